//! Weights that are held as kernels read them: the same bits, the line to the byte, and other readers.

use std::sync::Arc;

use plimsoll_base::{Bytes, Code, DataType};
use plimsoll_cards::Options;
use plimsoll_graph::{AttrValue, AttrsExt, HostTensor, Output, PartialShape};
use plimsoll_kernels::CpuKernels;
use plimsoll_ops::{GraphBuilder, Registry};
use plimsoll_plan::{Feed, Footprint, Signature};
use plimsoll_runtime::{Devices, Session};

fn open(freeze: bool, threads: i32, limit: Option<Bytes>) -> Devices {
    let options = Options::new().intra_op(threads).freeze(freeze).fit(false);
    Devices::open(&limit.map_or(options.clone(), |limit| options.limit("CPU:0", &format!("{}B", limit.0)))).unwrap()
}

fn numbers(shape: &[u64], seed: u64) -> HostTensor {
    let count: u64 = shape.iter().product();
    let value = |at: u64| (at.wrapping_mul(seed * 2 + 7_919) % 1_009) as f32 / 504.5 - 1.0;
    HostTensor::from_slice(shape.to_vec(), &(0..count).map(value).collect::<Vec<_>>()).unwrap()
}

/// `y` of images: two convolutions, one of them of 1x1, and a product.
fn session(devices: &Devices) -> Session {
    let mut b = GraphBuilder::new(Arc::new(Registry::standard(Arc::new(CpuKernels))));
    let x = b.placeholder("x", DataType::Float, PartialShape(Some(vec![None, Some(9), Some(9), Some(12)]))).build().unwrap();
    let weights = |b: &mut GraphBuilder, name: &str, shape: &[u64]| {
        let value = b.constant(numbers(shape, shape.iter().sum())).name(name).build().unwrap();
        b.identity(value).name(&format!("{name}/read")).build().unwrap()
    };
    let w = weights(&mut b, "w", &[3, 3, 12, 150]);
    let y = b.conv2d(x, w, [1, 1], "SAME").build().unwrap();
    let y = b.relu(y).name("first").build().unwrap();
    let v = weights(&mut b, "v", &[1, 1, 150, 80]);
    let y = b.conv2d(y, v, [2, 2], "VALID").build().unwrap();
    let y = b.relu(y).build().unwrap();
    let flat = b.op("Reshape").input(y).constant_input("rows", HostTensor::from_slice([2], &[-1i32, 2000]).unwrap()).build().unwrap();
    let u = weights(&mut b, "u", &[2000, 130]);
    b.matmul(flat, u).name("y").build().unwrap();
    let registry = b.registry().clone();
    Session::new(devices, &b.finish(), registry).unwrap()
}

fn images(count: u64) -> HostTensor {
    numbers(&[count, 9, 9, 12], 3)
}

fn signature(count: u64, fetches: &[&str]) -> Signature {
    let feed = Feed { tensor: "x".into(), data_type: DataType::Float, shape: [count, 9, 9, 12].into(), value: None };
    Signature { feeds: vec![feed], fetches: fetches.iter().map(ToString::to_string).collect(), ..Signature::default() }
}

fn bits(tensor: &HostTensor) -> Vec<u32> {
    tensor.to_vec::<f32>().unwrap().into_iter().map(f32::to_bits).collect()
}

fn run(session: &Session, count: u64) -> Vec<u32> {
    bits(&session.run(&[("x", &images(count))], &["y"], &[]).unwrap()[0])
}

#[test]
fn the_bits_are_those_of_weights_row_by_row() {
    let plain = session(&open(false, 1, None));
    for threads in [1, 2] {
        let frozen = session(&open(true, threads, None));
        let held = |name: &str| frozen.graph().node(frozen.graph().find(name).unwrap()).attrs.tensor("value").unwrap().panels().is_some();
        assert!(held("w") && held("v") && held("u"));
        // One image, several, and so many that the first convolution has fewer multiplications.
        for count in [1, 3, 40] {
            assert_eq!(run(&frozen, count), run(&plain, count), "{count}");
        }
        let plan = frozen.plan_signature(&signature(3, &["y"])).unwrap();
        assert_eq!(plan.constants.iter().filter(|constant| constant.panels.is_some()).count(), 3, "{plan}");
        // Who asks for the weights gets them as they were.
        let fetched = frozen.run(&[("x", &images(2))], &["y", "w/read", "w"], &[]).unwrap();
        assert_eq!(fetched[1], numbers(&[3, 3, 12, 150], 168));
        assert!(fetched[1].bytes().is_some() && fetched[2] == fetched[1]);
        assert_eq!(bits(&fetched[0]), run(&plain, 2));
        assert_eq!(frozen.run(&[], &["u"], &[]).unwrap()[0], numbers(&[2000, 130], 2130));
    }
}

#[test]
fn the_line_holds_to_the_byte() {
    for fetches in [&["y"][..], &["y", "w"]] {
        let promised = {
            let devices = open(true, 1, None);
            let mut footprint = Footprint::new(devices.specs());
            footprint.add(&session(&devices).plan_signature(&signature(5, fetches)).unwrap());
            footprint.needs()[0].peak
        };
        let run = |limit: Bytes| {
            let devices = open(true, 1, Some(limit));
            let session = session(&devices);
            for _ in 0..2 {
                session.run(&[("x", &images(5))], fetches, &[])?;
                session.release_unused();
            }
            Ok(devices.report()[0].peak)
        };
        assert_eq!(run(promised).map_err(|error: plimsoll_base::Error| error), Ok(promised), "{fetches:?}");
        assert_eq!(run(promised - Bytes(1)).unwrap_err().code(), Code::ResourceExhausted, "{fetches:?}");
    }
}

#[test]
fn plans_of_several_signatures_share_them() {
    let devices = open(true, 1, None);
    let session = session(&devices);
    let callables = [1, 4].map(|count| session.callable(&signature(count, &["y"])).unwrap());
    let results = [0, 1].map(|index: usize| bits(&callables[index].run(&[&images([1, 4][index])]).unwrap()[0]));
    let plain = self::session(&open(false, 1, None));
    assert_eq!(results, [run(&plain, 1), run(&plain, 4)]);
    session.release_unused();
    let constants: u64 = [3 * 3 * 12 * 150, 150 * 80, 2000 * 130].iter().map(|elements| 4 * elements).sum();
    // In whole pages.
    assert!((constants..constants + 4096).contains(&devices.report()[0].reserved.0));
}

#[test]
fn a_plan_goes_to_a_session_that_holds_them_otherwise() {
    let [plain, frozen] = [false, true].map(|freeze| session(&open(freeze, 1, None)));
    let wanted = signature(2, &["y"]);
    for (from, to) in [(&frozen, &plain), (&plain, &frozen), (&frozen, &frozen)] {
        let file = from.plan_file(&wanted).unwrap();
        let callable = to.callable_of(&to.open_plan(&file).unwrap()).unwrap();
        assert_eq!(bits(&callable.run(&[&images(2)]).unwrap()[0]), run(&plain, 2));
    }
    // A plan that reads them in another order than it says is refused.
    let file = String::from_utf8(frozen.plan_file(&wanted).unwrap()).unwrap();
    let panels = |columns: u64| format!(r#""panels":{{"columns":{columns},"#);
    for (what, other) in
        [(panels(150), panels(90)), (panels(130), panels(26)), (r#""argument":1"#.to_string(), r#""argument":0"#.to_string())]
    {
        assert!(file.contains(&what), "{what}");
        let error = frozen.open_plan(file.replace(&what, &other).as_bytes()).err().unwrap();
        assert_eq!(error.code(), Code::InvalidArgument, "{error}");
    }
    let without = file.replacen(r#""device":0,"panels""#, r#""device":0,"panel""#, 1);
    assert!(without != file && frozen.open_plan(without.as_bytes()).is_err());
}

/// `y` is `x` times the same weights, and what is negative becomes 0, until the sum is large.
fn repeated(devices: &Devices) -> Session {
    let mut b = GraphBuilder::new(Arc::new(Registry::standard(Arc::new(CpuKernels))));
    let x = b.placeholder("x", DataType::Float, PartialShape(Some(vec![Some(3), Some(96)]))).build().unwrap();
    let weights = b.constant(numbers(&[96, 96], 7)).name("w").build().unwrap();
    let enter = |b: &mut GraphBuilder, value: Output, stays: bool| {
        let frame = b.op("Enter").input(value).attr("frame_name", AttrValue::text("loop"));
        frame.attr("is_constant", AttrValue::Bool(stays)).build().unwrap()
    };
    let (state, weights) = (enter(&mut b, x, false), enter(&mut b, weights, true));
    let op = |b: &mut GraphBuilder, name: &str, inputs: &[Output]| {
        let node = b.op(name).inputs(inputs.iter().copied()).build_node().unwrap();
        Output { node, index: 0 }
    };
    let merge = op(&mut b, "Merge", &[state, state]);
    let (sum, most) =
        b.control_dependencies(&[merge.node], |b| (b.reduce_sum(merge, Some(&[0, 1])).build().unwrap(), b.scalar(1e6f32).unwrap()));
    let less = op(&mut b, "Less", &[sum, most]);
    let test = op(&mut b, "LoopCond", &[less]);
    let switch = op(&mut b, "Switch", &[merge, test]);
    let body = op(&mut b, "Identity", &[Output { index: 1, ..switch }]);
    let product = b.matmul(body, weights).name("product").build().unwrap();
    let positive = b.relu(product).build().unwrap();
    let next = op(&mut b, "NextIteration", &[positive]);
    b.close_loop(merge.node, next.node).unwrap();
    let left = op(&mut b, "Exit", &[switch]);
    b.identity(left).name("y").build().unwrap();
    let registry = b.registry().clone();
    Session::new(devices, &b.finish(), registry).unwrap()
}

#[test]
fn weights_of_a_loop_are_read_in_panels() {
    let x = numbers(&[3, 96], 5);
    let run = |session: &Session| bits(&session.run(&[("x", &x)], &["y"], &[]).unwrap()[0]);
    let [plain, frozen] = [false, true].map(|freeze| repeated(&open(freeze, 1, None)));
    assert_eq!(run(&frozen), run(&plain));
    let [plain, frozen] = [plain, frozen].map(|session| session.plan(&[("x", &x)], &["y"], &[]).unwrap());
    assert!(frozen.constants.iter().any(|constant| constant.panels.is_some()), "{frozen}");
    assert_eq!(frozen.devices[0].peak.constants, plain.devices[0].peak.constants);
}
