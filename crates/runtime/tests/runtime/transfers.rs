//! Copies between devices: each tensor once for each destination, for all readers there; nothing for order alone (S32, and section
//! 7.6 of the facts).

use std::sync::Arc;

use plimsoll_base::DataType;
use plimsoll_cards::Options;
use plimsoll_device::DeviceKind;
use plimsoll_graph::{AttrValue, HostTensor, Output, Shape};
use plimsoll_kernels::CpuKernels;
use plimsoll_ops::builder::Initializer;
use plimsoll_ops::{GraphBuilder, Registry};
use plimsoll_plan::Plan;
use plimsoll_runtime::{Devices, Session};

fn builder() -> GraphBuilder {
    GraphBuilder::new(Arc::new(Registry::standard(Arc::new(CpuKernels))))
}

fn open(b: GraphBuilder) -> Session {
    let registry = b.registry().clone();
    let devices = Devices::open(&Options::new().device_count(DeviceKind::Cpu, 3)).unwrap();
    Session::new(&devices, &b.finish(), registry).unwrap()
}

/// The copies of a plan: the node, from where, to where, its bytes; sorted.
fn copies(plan: &Plan) -> Vec<(String, usize, usize, u64)> {
    let transfers = plan.transfers();
    let mut copies: Vec<_> = transfers.iter().map(|copy| (copy.node.to_string(), copy.from, copy.to, copy.bytes)).collect();
    copies.sort();
    copies
}

/// A node of one input on a device.
fn on(b: &mut GraphBuilder, device: &str, op: &str, input: Output, name: &str) -> Output {
    b.op(op).input(input).attr("T", AttrValue::data_type(DataType::Float)).device(device).name(name).build().unwrap()
}

fn x() -> HostTensor {
    HostTensor::from_slice([4], &[1f32, -2.0, 3.0, 0.5]).unwrap()
}

#[test]
fn s32_a_tensor_goes_once_to_each_device_that_reads_it() {
    let mut b = builder();
    let x0 = b.placeholder("x", DataType::Float, &Shape::from([4])).build().unwrap();
    let source = on(&mut b, "/cpu:0", "Softmax", x0, "source");
    // Read directly, twice by one node, under another name, through a name on another device, and on a third device.
    let renamed = on(&mut b, "/cpu:1", "Identity", source, "renamed");
    on(&mut b, "/cpu:1", "Softmax", source, "a");
    b.op("Mul").inputs([source, source]).device("/cpu:1").name("b").build().unwrap();
    on(&mut b, "/cpu:1", "Softmax", renamed, "c");
    on(&mut b, "/cpu:2", "Softmax", source, "d");
    on(&mut b, "/cpu:2", "Softmax", renamed, "e");
    let names = ["a", "b", "c", "d", "e"];
    let session = open(b);
    let plan = session.plan(&[("x", &x())], &names, &[]).unwrap();
    let of_source: Vec<_> = copies(&plan).into_iter().filter(|copy| copy.0 == "source").collect();
    assert_eq!(of_source, [("source".to_string(), 0, 1, 16), ("source".to_string(), 0, 2, 16)]);
    let values = session.run(&[("x", &x())], &names, &[]).unwrap();
    assert_eq!((&values[0], &values[0], &values[0]), (&values[2], &values[3], &values[4]));
}

#[test]
fn s32_what_is_fed_goes_once_too() {
    let mut b = builder();
    let x0 = b.placeholder("x", DataType::Float, &Shape::from([4])).build().unwrap();
    for (name, device) in [("a", "/cpu:1"), ("b", "/cpu:1"), ("c", "/cpu:2")] {
        on(&mut b, device, "Softmax", x0, name);
    }
    let session = open(b);
    let plan = session.plan(&[("x", &x())], &["a", "b", "c"], &[]).unwrap();
    let fed: Vec<_> = copies(&plan).into_iter().filter(|copy| copy.0 == "x").map(|(_, _, to, _)| to).collect();
    assert_eq!(fed, [1, 2]);
}

#[test]
fn control_edges_between_devices_copy_nothing() {
    let mut b = builder();
    let count = b.get_variable("count", DataType::Float, [4], &Initializer::Zeros).unwrap();
    let one = b.constant(HostTensor::from_slice([4], &[1f32; 4]).unwrap()).build().unwrap();
    let added = b.op("AssignAdd").inputs([count.handle, one]).name("added").build_node().unwrap();
    let other = b.device("/cpu:1", |b| b.get_variable("other", DataType::Float, [4], &Initializer::Zeros)).unwrap();
    let two = b.device("/cpu:1", |b| b.constant(HostTensor::from_slice([4], &[2f32; 4]).unwrap()).build()).unwrap();
    let then = b.op("AssignAdd").inputs([other.handle, two]).device("/cpu:1").control(added).name("then").build_node().unwrap();
    b.op("NoOp").device("/cpu:2").control(then).name("all").build_node().unwrap();
    b.global_variables_initializer().unwrap();
    let session = open(b);
    session.run(&[], &[], &["init"]).unwrap();
    let plan = session.plan(&[], &[], &["all"]).unwrap();
    assert_eq!(copies(&plan), []);
    session.run(&[], &[], &["all"]).unwrap();
    for (name, value) in [("count", 1f32), ("other", 2.0)] {
        assert_eq!(session.read_variable(name).unwrap().to_vec::<f32>().unwrap(), [value; 4]);
    }
}

/// A Switch sits with its data, against any request: the predicate goes there, and live tensors go on from there.
#[test]
fn a_switch_sits_with_its_data_and_each_side_is_copied_once() {
    let mut b = builder();
    let x0 = b.placeholder("x", DataType::Float, &Shape::from([4])).build().unwrap();
    let p = b.placeholder("p", DataType::Bool, &Shape::scalar()).build().unwrap();
    let data = on(&mut b, "/cpu:1", "Softmax", x0, "data");
    let switch = b.op("Switch").inputs([data, p]).device("/cpu:2").name("switch").build_node().unwrap();
    let sides = [0, 1].map(|index| Output { node: switch, index });
    // Both sides are read on CPU:2, one of them twice.
    let no = on(&mut b, "/cpu:2", "Softmax", sides[0], "no");
    let yes = on(&mut b, "/cpu:2", "Exp", sides[1], "yes");
    let again = on(&mut b, "/cpu:2", "Softmax", sides[1], "again");
    let sum = b.op("Add").inputs([yes, again]).device("/cpu:2").name("sum").build().unwrap();
    b.op("Merge").inputs([no, sum]).device("/cpu:2").name("y").build_node().unwrap();
    let session = open(b);
    let device = |name: &str| plimsoll_graph::id::Id::index(session.placement().devices[session.graph().find(name).unwrap()]);
    assert_eq!((device("data"), device("switch"), device("no")), (1, 1, 2));
    let truth = |value: bool| HostTensor::from_bools(Shape::scalar(), &[value]).unwrap();
    let plan = session.plan(&[("x", &x()), ("p", &truth(true))], &["y"], &[]).unwrap();
    let bytes: Vec<u64> = copies(&plan).into_iter().filter(|copy| (copy.1, copy.2) == (1, 2)).map(|copy| copy.3).collect();
    assert!(bytes.iter().filter(|bytes| **bytes == 16).count() <= 2, "a copy for each side at most: {:?}", copies(&plan));
    let softmax = |values: &[f32]| {
        let sum: f32 = values.iter().map(|value| value.exp()).sum();
        values.iter().map(|value| value.exp() / sum).collect::<Vec<_>>()
    };
    let once = softmax(&x().to_vec::<f32>().unwrap());
    for (p, wanted) in
        [(false, softmax(&once)), (true, once.iter().zip(softmax(&once)).map(|(value, again)| value.exp() + again).collect::<Vec<_>>())]
    {
        let y = session.run(&[("x", &x()), ("p", &truth(p))], &["y"], &[]).unwrap()[0].to_vec::<f32>().unwrap();
        assert!(y.iter().zip(&wanted).all(|(got, want)| (got - want).abs() < 1e-6), "{y:?} {wanted:?}");
    }
}
