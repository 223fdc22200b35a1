//! Feeds of unexpected shapes, and bytes seen as another type.

use std::sync::Arc;

use plimsoll_base::{Code, DataType};
use plimsoll_cards::Options;
use plimsoll_graph::{AttrValue, HostTensor, Output, PartialShape};
use plimsoll_kernels::CpuKernels;
use plimsoll_ops::{GraphBuilder, Registry};
use plimsoll_runtime::{Devices, Session};

fn builder() -> GraphBuilder {
    GraphBuilder::new(Arc::new(Registry::standard(Arc::new(CpuKernels))))
}

fn session(builder: GraphBuilder) -> Session {
    let registry = builder.registry().clone();
    Session::new(&Devices::open(&Options::new()).unwrap(), &builder.finish(), registry).unwrap()
}

fn placeholder(b: &mut GraphBuilder, name: &str, data_type: DataType) -> Output {
    b.placeholder(name, data_type, PartialShape::unknown()).build().unwrap()
}

/// Tensors that are no scalars: an empty one has nothing to read at all.
fn no_scalars(data_type: DataType) -> [HostTensor; 3] {
    [vec![0u64], vec![2, 0], vec![2]].map(|dims| HostTensor::zeros(data_type, dims.into()).unwrap())
}

#[test]
fn where_a_kernel_reads_a_scalar_it_gets_one() {
    type Make = fn(&mut GraphBuilder, Output) -> Output;
    let cases: [(&str, DataType, Make); 5] = [
        ("Fill", DataType::Float, |b, x| {
            let dims = b.constant(HostTensor::from_slice([1], &[3i32]).unwrap()).build().unwrap();
            b.fill(dims, x).build().unwrap()
        }),
        ("RandomUniformInt minval", DataType::Int32, |b, x| {
            let (dims, most) = (b.constant(HostTensor::from_slice([1], &[3i32]).unwrap()).build().unwrap(), b.scalar(9i32).unwrap());
            b.op("RandomUniformInt").inputs([dims, x, most]).build().unwrap()
        }),
        ("RandomUniformInt maxval", DataType::Int32, |b, x| {
            let (dims, least) = (b.constant(HostTensor::from_slice([1], &[3i32]).unwrap()).build().unwrap(), b.scalar(-9i32).unwrap());
            b.op("RandomUniformInt").inputs([dims, least, x]).build().unwrap()
        }),
        ("PadV2", DataType::Float, |b, x| {
            let inner = b.constant(HostTensor::from_slice([2], &[1f32, 2.0]).unwrap()).build().unwrap();
            let border = b.constant(HostTensor::from_slice([1, 2], &[1i32, 1]).unwrap()).build().unwrap();
            b.op("PadV2").inputs([inner, border, x]).build().unwrap()
        }),
        ("InTopKV2", DataType::Int32, |b, x| {
            let scores = b.constant(HostTensor::from_slice([1, 2], &[1f32, 2.0]).unwrap()).build().unwrap();
            let target = b.constant(HostTensor::from_slice([1], &[1i32]).unwrap()).build().unwrap();
            b.op("InTopKV2").inputs([scores, target, x]).build().unwrap()
        }),
    ];
    for (what, data_type, make) in cases {
        let mut b = builder();
        let x = placeholder(&mut b, "x", data_type);
        let y = make(&mut b, x);
        b.identity(y).name("y").build().unwrap();
        let session = session(b);
        for fed in no_scalars(data_type) {
            let error = session.run(&[("x", &fed)], &["y"], &[]).unwrap_err();
            assert_eq!(error.code(), Code::InvalidArgument, "{what}: {error}");
            assert!(error.message().contains("must be a scalar, got shape "), "{what}: {error}");
        }
        let one = if data_type == DataType::Float { HostTensor::scalar(1f32) } else { HostTensor::scalar(1i32) };
        session.run(&[("x", &one)], &["y"], &[]).unwrap();
    }
}

#[test]
fn bytes_are_seen_as_another_type_in_the_middle_of_a_chain() {
    let mut b = builder();
    let x = placeholder(&mut b, "x", DataType::Float);
    let sum = b.add(x, x).build().unwrap();
    let bits =
        |b: &mut GraphBuilder, x: Output, to: DataType| b.op("Bitcast").input(x).attr("type", AttrValue::data_type(to)).build().unwrap();
    let words = bits(&mut b, sum, DataType::Int32);
    let one = b.scalar(1i32).unwrap();
    b.add(words, one).name("next").build().unwrap();
    let bytes = bits(&mut b, sum, DataType::Uint8);
    b.identity(bytes).name("bytes").build().unwrap();
    let back = bits(&mut b, bytes, DataType::Float);
    b.relu(back).name("back").build().unwrap();
    let fed = HostTensor::from_slice([2], &[1f32, -3.0]).unwrap();
    let session = session(b);
    let values = session.run(&[("x", &fed)], &["next", "bytes", "back"], &[]).unwrap();
    assert_eq!(values[0].to_vec::<i32>().unwrap(), [2f32, -6.0].map(|value| value.to_bits() as i32 + 1));
    assert_eq!(values[1].shape().dims(), [2, 4]);
    assert_eq!(values[1].to_vec::<u8>().unwrap(), [2f32.to_le_bytes(), (-6f32).to_le_bytes()].concat());
    assert_eq!(values[2].to_vec::<f32>().unwrap(), [2.0, 0.0]);
    let next = session.run(&[("x", &fed)], &["next"], &[]).unwrap();
    assert_eq!(next[0], values[0]);
}

#[test]
fn an_assertion_that_does_not_hold_fails_the_step() {
    let mut b = builder();
    let x = placeholder(&mut b, "x", DataType::Float);
    let zero = b.scalar(0f32).unwrap();
    let positive = b.op("Greater").inputs([x, zero]).build().unwrap();
    let check =
        b.op("Assert").input(positive).input(x).attr("T", AttrValue::data_types(&[DataType::Float])).name("check").build_node().unwrap();
    b.control_dependencies(&[check], |b| b.identity(x).name("y").build().unwrap());
    let session = session(b);
    let one = HostTensor::scalar(1f32);
    assert_eq!(session.run(&[("x", &one)], &["y"], &[]).unwrap()[0], one);
    let error = session.run(&[("x", &HostTensor::scalar(-1f32))], &["y"], &[]).unwrap_err();
    assert_eq!((error.code(), error.message(), error.node()), (Code::InvalidArgument, "assertion failed", Some("check")));
    // The session lives on.
    assert_eq!(session.run(&[("x", &one)], &["y"], &[]).unwrap()[0], one);
}

#[test]
fn what_the_machine_does_not_have_is_refused_without_a_limit_too() {
    let mut b = builder();
    let dims = b.constant(HostTensor::from_slice([2], &[1i64 << 14, 1 << 26]).unwrap()).build().unwrap();
    let x = placeholder(&mut b, "x", DataType::Float);
    let big = b.fill(dims, x).build().unwrap();
    let sum = b.reduce_sum(big, None).name("sum").build().unwrap();
    b.relu(big).name("big").build().unwrap();
    b.identity(sum).build().unwrap();
    let session = session(b);
    let one = HostTensor::scalar(1f32);
    for fetch in ["sum", "big"] {
        let error = session.run(&[("x", &one)], &[fetch], &[]).unwrap_err();
        assert_eq!(error.code(), Code::ResourceExhausted, "{error}");
    }
}

#[test]
fn a_handle_cannot_be_taken_for_a_variable_of_another_type() {
    use plimsoll_ops::builder::{Initializer, VariableKind};
    let mut b = builder();
    b.set_variable_kind(VariableKind::Resource);
    let v = b.get_variable("v", DataType::Float, [4, 3], &Initializer::Zeros).unwrap();
    b.global_variables_initializer().unwrap();
    let indices = b.constant(HostTensor::from_slice([2], &[0i32, 3]).unwrap()).build().unwrap();
    let double = AttrValue::data_type(DataType::Double);
    b.op("ResourceGather").inputs([v.handle, indices]).attr("dtype", double).name("taken").build().unwrap();
    let session = session(b);
    session.run(&[], &[], &["init"]).unwrap();
    let error = session.run(&[], &["taken"], &[]).unwrap_err();
    assert_eq!((error.code(), error.node()), (Code::InvalidArgument, Some("taken")), "{error}");
}

#[test]
fn a_variable_that_calls_itself_a_state_is_none() {
    let mut b = builder();
    let shape = b.constant(HostTensor::from_slice([1], &[3i32]).unwrap()).build().unwrap();
    let float = AttrValue::data_type(DataType::Float);
    let like_a_state = b
        .op("VariableV2")
        .attr("dtype", float.clone())
        .attr("shape", AttrValue::Shape(PartialShape(Some(vec![Some(5)]))))
        .attr("container", AttrValue::text("state"))
        .attr("shared_name", AttrValue::text("r"))
        .build()
        .unwrap();
    let five = b.constant(HostTensor::from_slice([5], &[1f32; 5]).unwrap()).build().unwrap();
    let assign = b.op("Assign").inputs([like_a_state, five]).name("assign").build_node().unwrap();
    b.control_dependencies(&[assign], |b| b.op("RandomUniform").input(shape).attr("dtype", float).name("r").build().unwrap());
    let values = session(b).run(&[], &["r"], &[]).unwrap();
    assert_eq!(values[0].shape().dims(), [3]);
}

/// Lists of more tensors, and of larger ones, than there is memory for.
#[test]
fn lists_of_any_size_are_errors() {
    let float = || AttrValue::data_type(DataType::Float);
    let limit = plimsoll_base::Bytes(64 << 20);
    for (count, element, is_fed) in [
        (i32::MAX, 1i64 << 31, false),
        (i32::MAX, 1 << 31, true),
        (i32::MAX, 1, true),
        (4, 1 << 62, false),
        (4, 1 << 62, true),
        (-3, 2, true),
    ] {
        let mut b = builder();
        let shape = b.constant(HostTensor::from_slice([1], &[element]).unwrap()).build().unwrap();
        let length = match is_fed {
            true => placeholder(&mut b, "count", DataType::Int32),
            false => b.scalar(count).unwrap(),
        };
        let list = b.op("TensorListReserve").inputs([shape, length]).attr("element_dtype", float());
        let list = list.attr("shape_type", AttrValue::data_type(DataType::Int64)).build().unwrap();
        let any = b.scalar(-1i32).unwrap();
        let all = b.op("TensorListStack").inputs([list, any]).attr("element_dtype", float()).build().unwrap();
        b.op("Identity").input(all).attr("T", float()).name("all").build().unwrap();
        let registry = b.registry().clone();
        let devices = Devices::open(&Options::new().limit("CPU:0", &limit.0.to_string())).unwrap();
        let run = || -> plimsoll_base::Result<Vec<HostTensor>> {
            let session = Session::new(&devices, &b.finish(), registry)?;
            let fed = HostTensor::scalar(count);
            let feeds = [("count", &fed)];
            session.run(&feeds[..usize::from(is_fed)], &["all"], &[])
        };
        let error = run().unwrap_err();
        let codes = [Code::InvalidArgument, Code::ResourceExhausted, Code::Unimplemented];
        assert!(codes.contains(&error.code()), "{count} of {element}, fed {is_fed}: {error}");
        assert!(devices.report().iter().all(|report| report.peak <= limit), "{count} of {element}, fed {is_fed}");
    }
}
