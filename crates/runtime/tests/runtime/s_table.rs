//! The table of cases "S. Session and executor" of the facts about TensorFlow: each row that can be executed now, by its id,
//! and the others with the reason.

use std::collections::BTreeSet;
use std::sync::Arc;

use plimsoll_base::{Code, DataType, Result};
use plimsoll_cards::Options;
use plimsoll_device::Work;
use plimsoll_graph::{AttrValue, HostTensor, PartialShape};
use plimsoll_kernels::CpuKernels;
use plimsoll_ops::builder::{Initializer, VariableKind};
use plimsoll_ops::{GraphBuilder, Registry};
use plimsoll_plan::{Feed, Signature};
use plimsoll_runtime::{Devices, Session};

/// A row: its id, and the claim.
type Row = (&'static str, fn());

const ROWS: &[Row] = &[
    ("S1", unfed_placeholder_with_a_shape),
    ("S2", unfed_placeholder_without_a_shape),
    ("S4", wrong_feed_type),
    ("S5", fed_and_fetched),
    ("S6", inner_tensor_fed),
    ("S7", unknown_names),
    ("S9", nothing_to_do),
    ("S10", duplicate_fetch),
    ("S11", order_of_feeds_and_fetches),
    ("S12", fed_twice),
    ("S15", a_device_that_is_there_or_not),
    ("S16", variables_keep_their_values),
    ("S25", run_after_close),
    ("S27", the_side_that_was_not_taken),
    ("S29", uninitialized_variables),
    ("S32", one_copy_for_two_consumers),
    ("S34", a_node_that_cannot_be_placed),
    ("S35", a_switch_before_a_transfer),
    ("S39", times_of_a_step),
];

/// Rows that cannot be executed, and why.
const OTHERS: &[(&str, &str)] = &[
    ("S14", "a session is made with its graph: there is none without"),
    ("S17", "tensor connections belong to callables of later work"),
    ("S19", "a kernel here has all its outputs before it starts"),
    ("S20", "there are no RunOptions yet; a plan of one queue always runs on the calling thread"),
    ("S21", "there are no RunOptions yet; session_inter_op_thread_pool is refused with 'not yet'"),
    ("S22", "session_inter_op_thread_pool is refused with 'not yet'"),
    ("S24", "no operation that can be executed blocks"),
    ("S26", "containers cannot be reset yet"),
    ("S30", "partial runs are later work"),
    ("S31", "partial runs are later work"),
    ("S36", "there is no rendezvous to abort: transfers are copies of the plan"),
    ("S37", "there is no Recv whose type could differ: transfers are copies of the plan"),
    ("S40", "there is no GPU yet"),
];

#[test]
fn every_row_holds() {
    for (id, check) in ROWS {
        eprintln!("{id}");
        check();
    }
}

#[test]
fn every_row_of_the_facts_is_here_once() {
    let here: Vec<&str> = ROWS.iter().map(|(id, _)| *id).chain(OTHERS.iter().map(|(id, _)| *id)).collect();
    let ids: BTreeSet<&str> = here.iter().copied().collect();
    assert_eq!(ids.len(), here.len());
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/tensorflow-semantics.md");
    let Ok(facts) = std::fs::read_to_string(path) else { return eprintln!("skipped: {path} is not there") };
    let table = facts.split("### S. Session and executor").nth(1).expect("the facts have the table");
    let rows = table.lines().filter_map(|line| line.strip_prefix("| S")?.split(' ').next()).map(|number| format!("S{number}"));
    assert_eq!(rows.collect::<BTreeSet<String>>(), ids.into_iter().map(str::to_string).collect());
}

fn builder() -> GraphBuilder {
    GraphBuilder::new(Arc::new(Registry::standard(Arc::new(CpuKernels))))
}

fn session_on(options: &Options, builder: GraphBuilder) -> Result<Session> {
    let registry = builder.registry().clone();
    Session::new(&Devices::open(options)?, &builder.finish(), registry)
}

fn session(builder: GraphBuilder) -> Session {
    session_on(&Options::new(), builder).unwrap()
}

fn shape(dims: &[i64]) -> PartialShape {
    PartialShape(Some(dims.iter().map(|dim| u64::try_from(*dim).ok()).collect()))
}

fn scalar(value: f32) -> HostTensor {
    HostTensor::scalar(value)
}

fn floats(tensor: &HostTensor) -> Vec<f32> {
    tensor.to_vec().unwrap()
}

#[track_caller]
fn fails<T: std::fmt::Debug>(result: Result<T>, code: Code, fragment: &str) {
    let error = result.unwrap_err();
    assert_eq!(error.code(), code, "{error}");
    assert!(error.message().contains(fragment), "{error}");
}

/// `y = a * x + b`, the product named `mul`.
fn affine() -> GraphBuilder {
    let mut b = builder();
    let [a, x, c] = ["a", "x", "b"].map(|name| b.placeholder(name, DataType::Float, PartialShape::unknown()).build().unwrap());
    let product = b.mul(a, x).name("mul").build().unwrap();
    b.add(product, c).name("y").build().unwrap();
    b
}

fn unfed(placeholder: PartialShape) -> String {
    let mut b = builder();
    let x = b.placeholder("x", DataType::Float, placeholder).build().unwrap();
    b.relu(x).name("y").build().unwrap();
    let error = session(b).run(&[], &["y"], &[]).unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    assert_eq!(error.node(), Some("x"));
    error.message().to_string()
}

fn unfed_placeholder_with_a_shape() {
    assert_eq!(unfed(shape(&[2, 2])), "You must feed a value for placeholder tensor 'x' with dtype float and shape [2,2]");
    assert_eq!(unfed(shape(&[-1, 2])), "You must feed a value for placeholder tensor 'x' with dtype float and shape [?,2]");
}

fn unfed_placeholder_without_a_shape() {
    for without in [shape(&[]), PartialShape::unknown()] {
        assert_eq!(unfed(without), "You must feed a value for placeholder tensor 'x' with dtype float");
    }
}

fn a_node_that_cannot_be_placed() {
    let graph = || {
        let mut b = affine();
        b.device("/gpu:7", |b| b.scalar(1f32)).unwrap();
        b
    };
    let options = Options::new().soft_placement(false);
    fails(session_on(&options, graph()).map(drop), Code::InvalidArgument, "/device:GPU:7");
    let session = session_on(&options.place_pruned_graph(true), graph()).unwrap();
    let two = scalar(2.0);
    let y = session.run(&[("a", &two), ("x", &two), ("b", &two)], &["y"], &[]).unwrap();
    assert_eq!(floats(&y[0]), [6.0]);
    fails(session.run(&[], &["Const"], &[]), Code::InvalidArgument, "/device:GPU:7");
}

fn wrong_feed_type() {
    let session = session(affine());
    let int = HostTensor::scalar(1i32);
    let one = scalar(1.0);
    fails(
        session.run(&[("a", &one), ("x", &int), ("b", &one)], &["y"], &[]),
        Code::InvalidArgument,
        "Expects arg[1] to be float but int32 is provided",
    );
    let callable = session.callable_for(&[("a", &one), ("x", &one), ("b", &one)], &["y"], &[]).unwrap();
    fails(callable.run(&[&one, &int, &one]), Code::InvalidArgument, "Type mismatch: actual int32");
    fails(callable.run(&[&one, &one]), Code::InvalidArgument, "Expected 3 feed tensors");
}

fn fed_and_fetched() {
    fails(session(affine()).run(&[("a", &scalar(1.0))], &["a:0"], &[]), Code::InvalidArgument, "both fed and fetched");
}

fn inner_tensor_fed() {
    let mut b = affine();
    // A node that is not above the fetch does not run, a write neither.
    let v = b.get_variable("v", DataType::Float, [], &Initializer::Zeros).unwrap();
    b.global_variables_initializer().unwrap();
    let one = b.scalar(1f32).unwrap();
    b.assign_add(&v, one).unwrap();
    let session = session(b);
    session.run(&[], &[], &["init"]).unwrap();
    let y = session.run(&[("mul:0", &scalar(5.0)), ("b", &scalar(1.0))], &["y"], &[]).unwrap();
    assert_eq!(floats(&y[0]), [6.0]);
    assert_eq!(session.read_variable("v").unwrap(), scalar(0.0));
}

fn unknown_names() {
    let session = session(affine());
    let one = scalar(1.0);
    let not_found = "specified in either feed_devices or fetch_devices was not found in the Graph";
    fails(session.run(&[("q", &one)], &["y"], &[]), Code::InvalidArgument, not_found);
    fails(session.run(&[], &["q:0"], &[]), Code::InvalidArgument, not_found);
    fails(session.run(&[], &["y:1"], &[]), Code::OutOfRange, "does not have output 1");
    fails(session.run(&[("y:7", &one)], &["y"], &[]), Code::OutOfRange, "does not have output 7");
    fails(session.run(&[], &[], &["q"]), Code::NotFound, "PruneForTargets: Some target nodes not found");
}

fn nothing_to_do() {
    let message = "Must specify at least one target to fetch or execute.";
    fails(session(affine()).run(&[("a", &scalar(1.0))], &[], &[]), Code::InvalidArgument, message);
}

fn duplicate_fetch() {
    let session = session(affine());
    let feeds = [("a", &scalar(2.0)), ("x", &scalar(3.0)), ("b", &scalar(4.0))];
    let values = session.run(&feeds, &["y", "mul", "y:0"], &[]).unwrap();
    assert_eq!(values.iter().map(floats).collect::<Vec<_>>(), [[10.0], [6.0], [10.0]]);
}

fn order_of_feeds_and_fetches() {
    let session = session(affine());
    let (a, x, c) = (scalar(2.0), scalar(3.0), scalar(4.0));
    for feeds in [[("a", &a), ("x", &x), ("b", &c)], [("b", &c), ("x", &x), ("a", &a)]] {
        for fetches in [["mul", "y"], ["y", "mul"]] {
            let values = session.run(&feeds, &fetches, &[]).unwrap();
            for (name, value) in fetches.iter().zip(&values) {
                assert_eq!(floats(value), [if *name == "y" { 10.0 } else { 6.0 }], "{feeds:?} {fetches:?}");
            }
        }
    }
}

fn fed_twice() {
    let session = session(affine());
    let one = scalar(1.0);
    for again in ["a", "a:0"] {
        fails(session.run(&[("a", &one), (again, &one)], &["y"], &[]), Code::InvalidArgument, "fed more than once");
    }
}

fn a_device_that_is_there_or_not() {
    let graph = || {
        let mut b = builder();
        b.device("/job:localhost/replica:0/task:0/device:CPU:1", |b| b.constant(scalar(3.0)).name("y").build()).unwrap();
        b
    };
    let mut options = Options::new();
    options.soft_placement = false;
    fails(session_on(&options, graph()).map(drop), Code::InvalidArgument, "Cannot assign a device for operation y");
    options.device_count.insert("CPU".to_string(), 2);
    let y = session_on(&options, graph()).unwrap().run(&[], &["y"], &[]).unwrap();
    assert_eq!(floats(&y[0]), [3.0]);
}

const KINDS: [VariableKind; 2] = [VariableKind::Reference, VariableKind::Resource];

fn counter(kind: VariableKind) -> GraphBuilder {
    let mut b = builder();
    b.set_variable_kind(kind);
    let v = b.get_variable("v", DataType::Float, [64], &Initializer::Zeros).unwrap();
    b.global_variables_initializer().unwrap();
    let ones = b.constant(HostTensor::from_slice([64], &[1f32; 64]).unwrap()).build().unwrap();
    let add = b.assign_add(&v, ones).unwrap();
    b.group(&[add], "step").unwrap();
    let read = b.read(&v).unwrap();
    b.identity(read).name("r").build().unwrap();
    b
}

fn variables_keep_their_values() {
    for kind in KINDS {
        let session = session(counter(kind));
        session.run(&[], &[], &["init"]).unwrap();
        session.run(&[], &[], &["step"]).unwrap();
        session.run(&[], &[], &["step"]).unwrap();
        assert_eq!(floats(&session.run(&[], &["r"], &[]).unwrap()[0]), [2f32; 64]);
        // Runs at the same time: every value read was once the whole variable.
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..100).for_each(|_| drop(session.run(&[], &[], &["step"]).unwrap())));
                scope.spawn(|| {
                    for _ in 0..100 {
                        let values = floats(&session.run(&[], &["r"], &[]).unwrap()[0]);
                        assert!(values.iter().all(|value| *value == values[0]), "{values:?}");
                    }
                });
            }
        });
        assert_eq!(floats(&session.run(&[], &["r"], &[]).unwrap()[0]), [402f32; 64]);
    }
}

fn run_after_close() {
    let session = session(affine());
    let one = scalar(1.0);
    let feeds = [("a", &one), ("x", &one), ("b", &one)];
    let callable = session.callable_for(&feeds, &["y"], &[]).unwrap();
    session.close();
    fails(session.run(&feeds, &["y"], &[]), Code::Cancelled, "Session has been closed.");
    fails(callable.run(&[&one, &one, &one]), Code::Cancelled, "Session has been closed.");
    session.close();
}

fn uninitialized_variables() {
    for (kind, text) in KINDS
        .into_iter()
        .zip(["Attempting to use uninitialized value v", "Could not find variable v. This could mean that the variable has been deleted."])
    {
        let session = session(counter(kind));
        fails(session.run(&[], &["r"], &[]), Code::FailedPrecondition, text);
        fails(session.run(&[], &[], &["step"]), Code::FailedPrecondition, text);
        session.run(&[], &[], &["init"]).unwrap();
        session.run(&[], &["r"], &[]).unwrap();
    }
}

fn the_side_that_was_not_taken() {
    let mut b = builder();
    let x = b.placeholder("x", DataType::Float, shape(&[])).build().unwrap();
    let p = b.placeholder("p", DataType::Bool, shape(&[])).build().unwrap();
    b.op("Switch").inputs([x, p]).name("s").build_node().unwrap();
    let session = session(b);
    let p = HostTensor::from_bools([0u64; 0], &[true]).unwrap();
    fails(session.run(&[("x", &scalar(1.0)), ("p", &p)], &["s:0"], &[]), Code::InvalidArgument, "Retval[0] does not have value");
    assert_eq!(floats(&session.run(&[("x", &scalar(1.0)), ("p", &p)], &["s:1"], &[]).unwrap()[0]), [1.0]);
}

/// A live tensor arrives on the other device, and a dead one is dead there.
fn a_switch_before_a_transfer() {
    let mut b = builder();
    let x = b.placeholder("x", DataType::Float, shape(&[])).build().unwrap();
    let p = b.placeholder("p", DataType::Bool, shape(&[])).build().unwrap();
    let switch = b.op("Switch").inputs([x, p]).build_node().unwrap();
    let yes = plimsoll_graph::Output { node: switch, index: 1 };
    b.op("Neg").input(yes).device("/cpu:1").name("y").build().unwrap();
    let mut options = Options::new();
    options.device_count.insert("CPU".to_string(), 2);
    let session = session_on(&options, b).unwrap();
    let run = |p: bool| session.run(&[("x", &scalar(2.0)), ("p", &HostTensor::from_bools([0u64; 0], &[p]).unwrap())], &["y"], &[]);
    assert_eq!(floats(&run(true).unwrap()[0]), [-2.0]);
    fails(run(false), Code::InvalidArgument, "Retval[0] does not have value");
}

/// More of it is in `tests/stats.rs`.
fn times_of_a_step() {
    let session = session(affine());
    let feeds = [("a", &scalar(2.0)), ("x", &scalar(3.0)), ("b", &scalar(1.0))];
    let (values, metadata) = session.run_with_stats(&feeds, &["y", "mul"], &[]).unwrap();
    assert_eq!(floats(&values[0]), [7.0]);
    let nodes: Vec<_> = metadata.step_stats.iter().flat_map(|device| &device.node_stats).collect();
    assert!(!nodes.is_empty());
    for node in nodes {
        let start = node.all_start_nanos;
        let times = [node.scheduled_nanos, start, start + node.op_start_rel_nanos, start + node.op_end_rel_nanos, node.all_end_nanos()];
        assert!(times.is_sorted(), "{node:?}");
        assert_eq!((node.scheduled_micros(), node.all_start_micros()), (node.scheduled_nanos / 1000, start / 1000));
    }
}

fn one_copy_for_two_consumers() {
    let mut b = builder();
    let x = b.placeholder("x", DataType::Float, shape(&[4])).build().unwrap();
    // A kernel's result on CPU:0, read by two kernels on CPU:1.
    let source = b.device("/cpu:0", |b| b.softmax(x).build()).unwrap();
    b.device("/cpu:1", |b| {
        b.softmax(source).name("p").build().unwrap();
        b.l2_loss(source).name("q").build().unwrap();
    });
    let mut options = Options::new();
    options.device_count.insert("CPU".to_string(), 2);
    let session = session_on(&options, b).unwrap();
    let feed = Feed { tensor: "x".into(), data_type: DataType::Float, shape: [4].into(), value: None };
    let signature = Signature { feeds: vec![feed], fetches: vec!["p".into(), "q".into()], targets: vec![], ..Signature::default() };
    let plan = session.plan_signature(&signature).unwrap();
    let second =
        plan.queues.iter().find(|queue| plan.devices[1].name.ends_with("CPU:1") && queue.device != session.placement().host).unwrap();
    let copies = second.program.commands.iter().filter(|command| matches!(command.work, Work::Copy)).count();
    assert_eq!(copies, 1, "{:?}", second.program.commands);
    session.callable(&signature).unwrap().run(&[&HostTensor::from_slice([4], &[1f32, 2.0, 3.0, 4.0]).unwrap()]).unwrap();
}

// Facts of section 7 that the table does not number.

#[test]
fn the_shape_of_a_feed_is_not_the_placeholders() {
    let mut b = builder();
    let x = b.placeholder("x", DataType::Float, shape(&[2, 2])).build().unwrap();
    b.relu(x).name("y").build().unwrap();
    let fed = HostTensor::from_slice([3, 3], &[1f32; 9]).unwrap();
    let y = session(b).run(&[("x", &fed)], &["y"], &[]).unwrap();
    assert_eq!(y[0], fed);
}

#[test]
fn a_placeholder_with_default_may_be_fed() {
    let mut b = builder();
    let default = b.constant(scalar(2.0)).build().unwrap();
    let shape = AttrValue::Shape(PartialShape::unknown());
    let x = b.op("PlaceholderWithDefault").input(default).attr("shape", shape).name("x").build().unwrap();
    b.add(x, x).name("y").build().unwrap();
    let session = session(b);
    assert_eq!(floats(&session.run(&[], &["y"], &[]).unwrap()[0]), [4.0]);
    assert_eq!(floats(&session.run(&[("x", &scalar(5.0))], &["y"], &[]).unwrap()[0]), [10.0]);
}

#[test]
fn a_fed_reference_is_not_assigned() {
    let session = session(counter(VariableKind::Reference));
    let fed = HostTensor::from_slice([64], &[3f32; 64]).unwrap();
    assert_eq!(session.run(&[("v", &fed)], &["r"], &[]).unwrap()[0], fed);
    assert_eq!(session.run(&[("v", &fed)], &[], &["step"]).unwrap_err().code(), Code::InvalidArgument);
}

#[test]
fn a_variable_fetched_with_its_change_shows_the_new_value() {
    let session = session(counter(VariableKind::Reference));
    session.run(&[], &[], &["init"]).unwrap();
    assert_eq!(floats(&session.run(&[], &["v"], &["step"]).unwrap()[0]), [1f32; 64]);
}

#[test]
fn what_happened_before_a_failure_stays() {
    let mut b = builder();
    let v = b.get_variable("v", DataType::Int32, [], &Initializer::Zeros).unwrap();
    b.global_variables_initializer().unwrap();
    let one = b.scalar(1i32).unwrap();
    let add = b.assign_add(&v, one).unwrap();
    let x = b.placeholder("x", DataType::Int32, PartialShape::unknown()).build().unwrap();
    b.control_dependencies(&[add], |b| b.op("FloorDiv").inputs([x, x]).name("y").build()).unwrap();
    let session = session(b);
    session.run(&[], &[], &["init"]).unwrap();
    let error = session.run(&[("x", &HostTensor::scalar(0i32))], &["y"], &[]).unwrap_err();
    assert_eq!((error.code(), error.node()), (Code::InvalidArgument, Some("y")), "{error}");
    assert_eq!(session.run(&[("x", &HostTensor::scalar(4i32))], &["y"], &[]).unwrap()[0], HostTensor::scalar(1i32));
    assert_eq!(session.read_variable("v").unwrap(), HostTensor::scalar(2i32));
}

#[test]
fn a_target_runs_without_readers() {
    let mut b = builder();
    let x = b.placeholder("x", DataType::Int32, PartialShape::unknown()).build().unwrap();
    b.op("FloorDiv").inputs([x, x]).name("y").build().unwrap();
    fails(session(b).run(&[("x", &HostTensor::scalar(0i32))], &[], &["y"]), Code::InvalidArgument, "division by zero");
}

#[test]
fn what_is_wrong_with_a_shape_that_is_fed_is_said() {
    let mut b = builder();
    let dims = b.placeholder("n", DataType::Int32, shape(&[2])).build().unwrap();
    let one = b.scalar(1f32).unwrap();
    b.fill(dims, one).name("y").build().unwrap();
    let session = session(b);
    let y = session.run(&[("n", &HostTensor::from_slice([2], &[2i32, 1]).unwrap())], &["y"], &[]).unwrap();
    assert_eq!(floats(&y[0]), [1.0, 1.0]);
    fails(session.run(&[("n", &HostTensor::from_slice([2], &[-3i32, 4]).unwrap())], &["y"], &[]), Code::InvalidArgument, "-3");
}
