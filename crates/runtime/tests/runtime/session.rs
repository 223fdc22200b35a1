//! Sessions from the outside: results of runs, their memory, and refusals.

use std::sync::Arc;

use plimsoll_base::{Bytes, Code, DataType};
use plimsoll_cards::Options;
use plimsoll_graph::{Graph, GraphDef, HostTensor, NodeDef, Output, Shape};
use plimsoll_kernels::CpuKernels;
use plimsoll_ops::builder::{Initializer, VariableKind};
use plimsoll_ops::{GraphBuilder, Registry};
use plimsoll_runtime::{Devices, Session};

fn builder() -> GraphBuilder {
    GraphBuilder::new(Arc::new(Registry::standard(Arc::new(CpuKernels))))
}

fn open(options: Options, builder: GraphBuilder) -> Session {
    let registry = builder.registry().clone();
    Session::new(&Devices::open(&options).unwrap(), &builder.finish(), registry).unwrap()
}

fn vector(values: &[f32]) -> HostTensor {
    HostTensor::from_slice([values.len() as u64], values).unwrap()
}

fn matrix(rows: u64, columns: u64, seed: u32) -> HostTensor {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 24) as f32 - 0.5
    };
    let values: Vec<f32> = (0..rows * columns).map(|_| next()).collect();
    HostTensor::from_slice([rows, columns], &values).unwrap()
}

fn floats(tensor: &HostTensor) -> Vec<f32> {
    tensor.to_vec().unwrap()
}

/// `y = a * x + b` on whatever shapes are fed.
fn affine(builder: &mut GraphBuilder) {
    let any = plimsoll_graph::PartialShape::unknown();
    let [a, x, b] = ["a", "x", "b"].map(|name| builder.placeholder(name, DataType::Float, any.clone()).build().unwrap());
    let product = builder.mul(a, x).build().unwrap();
    builder.add(product, b).name("y").build().unwrap();
}

#[test]
fn runs_a_graph_once_and_again_with_other_shapes() {
    let mut b = builder();
    affine(&mut b);
    let session = open(Options::new(), b);
    let scalar = HostTensor::scalar::<f32>;
    let y = session.run(&[("a", &scalar(2.0)), ("x", &scalar(3.0)), ("b", &scalar(1.0))], &["y"], &[]).unwrap();
    assert_eq!((floats(&y[0]), y[0].shape().clone()), (vec![7.0], Shape::scalar()));
    let y = session.run(&[("a", &scalar(2.0)), ("x:0", &vector(&[1.0, 2.0])), ("b", &vector(&[10.0, 20.0]))], &["y:0", "y"], &[]).unwrap();
    assert_eq!((floats(&y[0]), floats(&y[1])), (vec![12.0, 24.0], vec![12.0, 24.0]));
}

/// The node is not fetched.
#[test]
fn a_graph_with_an_unregistered_operation_is_refused() {
    let registry = Arc::new(Registry::standard(Arc::new(CpuKernels)));
    let node = |name: &str, op: &str| NodeDef { name: name.to_string(), op: op.to_string(), ..NodeDef::default() };
    let def = GraphDef { nodes: vec![node("there", "NoOp"), node("odd", "NobodyKnowsThis")], ..GraphDef::default() };
    let graph = Graph::resolve(def, registry.table()).unwrap();
    let error = Session::new(&Devices::open(&Options::new()).unwrap(), &graph, registry).err().unwrap();
    assert_eq!((error.code(), error.node()), (Code::NotFound, Some("odd")));
    assert!(error.to_string().contains("Op type not registered 'NobodyKnowsThis'"), "{error}");
}

#[test]
fn errors_are_tensorflows() {
    let mut b = builder();
    affine(&mut b);
    let session = open(Options::new(), b);
    let one = HostTensor::scalar(1f32);
    for (feeds, fetches, targets, code, fragment) in [
        (vec![("a", &one)], vec!["y"], vec![], Code::InvalidArgument, "You must feed a value for placeholder tensor 'x' with dtype float"),
        (vec![], vec![], vec![], Code::InvalidArgument, "Must specify at least one target"),
        (vec![], vec!["nothing:0"], vec![], Code::InvalidArgument, "was not found in the Graph"),
        (vec![], vec!["y:1"], vec![], Code::OutOfRange, "does not have output 1"),
        (vec![], vec![], vec!["nothing"], Code::NotFound, "Some target nodes not found"),
        (vec![("y", &one)], vec!["y"], vec![], Code::InvalidArgument, "both fed and fetched"),
        (vec![("a", &one), ("a:0", &one)], vec!["y"], vec![], Code::InvalidArgument, "fed more than once"),
        (vec![("a", &HostTensor::scalar(1i32))], vec!["y"], vec![], Code::InvalidArgument, "to be float but int32"),
    ] {
        let error = session.run(&feeds, &fetches, &targets).unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        assert!(error.message().contains(fragment), "{error}");
    }
}

#[test]
fn feeding_the_middle_of_a_graph_leaves_out_what_is_above() {
    let mut b = builder();
    affine(&mut b);
    let session = open(Options::new(), b);
    let y = session.run(&[("mul", &HostTensor::scalar(5f32)), ("b", &HostTensor::scalar(1f32))], &["y"], &[]).unwrap();
    assert_eq!(floats(&y[0]), [6.0]);
}

fn counter(kind: VariableKind) -> Session {
    let mut b = builder();
    b.set_variable_kind(kind);
    let v = b.get_variable("v", DataType::Float, [2], &Initializer::Zeros).unwrap();
    b.global_variables_initializer().unwrap();
    let step = b.constant(vector(&[1.0, 2.0])).build().unwrap();
    let before = b.read(&v).unwrap();
    let add = b.assign_add(&v, step).unwrap();
    // `sum` runs after the change and needs the value from before it, too.
    b.control_dependencies(&[add], |b| {
        let after = b.read(&v).unwrap();
        b.identity(after).name("after").build().unwrap();
        b.add(before, after).name("sum").build().unwrap();
    });
    b.group(&[add], "step").unwrap();
    open(Options::new(), b)
}

#[test]
fn variables_keep_their_values_and_reads_come_in_order() {
    for kind in [VariableKind::Reference, VariableKind::Resource] {
        let session = counter(kind);
        let error = session.run(&[], &[], &["step"]).unwrap_err();
        assert_eq!(error.code(), Code::FailedPrecondition, "{error}");
        session.run(&[], &[], &["init"]).unwrap();
        session.run(&[], &[], &["step"]).unwrap();
        let sum = session.run(&[], &["sum", "after"], &["step"]).unwrap();
        assert_eq!((floats(&sum[0]), floats(&sum[1])), (vec![3.0, 6.0], vec![2.0, 4.0]));
        assert_eq!(session.read_variable("v").unwrap(), vector(&[2.0, 4.0]));
        session.write_variable("v", &vector(&[7.0, 8.0])).unwrap();
        session.run(&[], &[], &["step"]).unwrap();
        assert_eq!(session.read_variable("v").unwrap(), vector(&[8.0, 10.0]));
    }
}

/// Two layers with biases and relu, a squared loss and plain gradient descent, on the devices named.
fn network(b: &mut GraphBuilder, hidden_device: &str) -> Output {
    let x = b.placeholder("x", DataType::Float, plimsoll_graph::PartialShape(Some(vec![None, Some(8)]))).build().unwrap();
    let t = b.placeholder("t", DataType::Float, plimsoll_graph::PartialShape(Some(vec![None, Some(3)]))).build().unwrap();
    let variable = |b: &mut GraphBuilder, name: &str, dims: &[u64]| {
        b.get_variable(name, DataType::Float, dims.to_vec(), &Initializer::truncated_normal(0.3, Some(3))).unwrap()
    };
    let (w0, b0) = (variable(b, "w0", &[8, 16]), variable(b, "b0", &[16]));
    let (w1, b1) = (variable(b, "w1", &[16, 3]), variable(b, "b1", &[3]));
    let reads: Vec<Output> = [&w0, &b0, &w1, &b1].iter().map(|v| b.read(v).unwrap()).collect();
    let hidden = b.device(hidden_device, |b| {
        let product = b.matmul(x, reads[0]).build().unwrap();
        let sum = b.add(product, reads[1]).build().unwrap();
        b.relu(sum).name("hidden").build().unwrap()
    });
    let product = b.matmul(hidden, reads[2]).build().unwrap();
    let y = b.add(product, reads[3]).name("y").build().unwrap();
    let difference = b.sub(y, t).build().unwrap();
    let square = b.mul(difference, difference).build().unwrap();
    let loss = b.reduce_mean(square, None).name("loss").build().unwrap();
    let gradients = b.gradients(&[loss], &reads).unwrap();
    let rate = b.scalar(0.1f32).unwrap();
    let mut updates = Vec::new();
    for (variable, gradient) in [w0, b0, w1, b1].iter().zip(gradients) {
        let reference = variable.handle;
        let op = if matches!(variable.kind, VariableKind::Reference) { "ApplyGradientDescent" } else { "ResourceApplyGradientDescent" };
        updates.push(b.op(op).inputs([reference, rate, gradient.unwrap()]).build_node().unwrap());
    }
    b.group(&updates, "train").unwrap();
    b.global_variables_initializer().unwrap();
    loss
}

fn losses(options: Options, hidden_device: &str, steps: usize) -> (Vec<u32>, Session) {
    let mut b = builder();
    network(&mut b, hidden_device);
    let session = open(options, b);
    session.run(&[], &[], &["init"]).unwrap();
    let (x, t) = (matrix(20, 8, 1), matrix(20, 3, 2));
    let losses = (0..steps).map(|_| floats(&session.run(&[("x", &x), ("t", &t)], &["loss"], &["train"]).unwrap()[0])[0].to_bits());
    (losses.collect(), session)
}

fn cpus(count: i32) -> Options {
    let mut options = Options::new();
    options.device_count.insert("CPU".into(), count);
    options
}

#[test]
fn training_learns_and_has_the_same_bits_on_any_devices_and_threads() {
    let (one, _) = losses(Options::new().intra_op(1), "", 20);
    assert!(f32::from_bits(one[19]) < 0.7 * f32::from_bits(one[0]), "{:?}", one.iter().map(|l| f32::from_bits(*l)).collect::<Vec<_>>());
    for threads in [1, 2, 3] {
        assert_eq!(losses(Options::new().intra_op(threads), "", 20).0, one);
        assert_eq!(losses(cpus(2).intra_op(threads), "/cpu:1", 20).0, one);
        assert_eq!(losses(cpus(3).intra_op(threads), "/gpu:0", 20).0, one);
    }
}

#[test]
fn measured_is_promised_and_one_byte_less_is_refused() {
    for (options, device) in [(Options::new(), ""), (cpus(2), "/cpu:1")] {
        let (_, session) = losses(options.clone(), device, 3);
        let (x, t) = (matrix(20, 8, 1), matrix(20, 3, 2));
        let plan = session.plan(&[("x", &x), ("t", &t)], &["loss"], &["train"]).unwrap();
        let init = session.plan(&[], &[], &["init"]).unwrap();
        let mut limits = options.clone();
        for ((device, init), report) in plan.devices.iter().zip(&init.devices).zip(session.devices().report()) {
            let promised = device.peak.total().max(init.peak.total());
            assert!(promised > Bytes::ZERO);
            assert_eq!(report.peak, promised, "{device:?} {report:?}");
            let name = device.name.rsplit("device:").next().unwrap().to_string();
            limits = limits.limit(&name, &promised.0.to_string());
            let (code, message) = {
                let mut b = builder();
                network(&mut b, if options.device_count.is_empty() { "" } else { "/cpu:1" });
                let session = open(options.clone().fit(false).limit(&name, &(promised.0 - 1).to_string()), b);
                let error =
                    session.run(&[], &[], &["init"]).and_then(|_| session.run(&[("x", &x), ("t", &t)], &["loss"], &["train"])).unwrap_err();
                (error.code(), error.to_string())
            };
            assert_eq!(code, Code::ResourceExhausted, "{message}");
            assert!(message.contains("1 byte short") && message.contains("hint: "), "{message}");
        }
        let (bits, _) = losses(limits, device, 3);
        assert_eq!(bits, losses(options, device, 3).0);
    }
}

#[test]
fn everything_goes_back() {
    let devices = Devices::open(&Options::new()).unwrap();
    let mut b = builder();
    network(&mut b, "");
    let registry = b.registry().clone();
    let session = Session::new(&devices, &b.finish(), registry).unwrap();
    session.run(&[], &[], &["init"]).unwrap();
    assert!(devices.report()[0].in_use > Bytes::ZERO);
    session.close();
    assert_eq!((devices.report()[0].in_use, devices.report()[0].reserved), (Bytes::ZERO, Bytes::ZERO));
    let error = session.run(&[], &[], &["init"]).unwrap_err();
    assert_eq!((error.code(), error.message()), (Code::Cancelled, "Session has been closed."));
    let again = Session::new(&devices, session.graph(), Arc::new(Registry::standard(Arc::new(CpuKernels)))).unwrap();
    again.run(&[], &[], &["init"]).unwrap();
    drop(again);
    assert_eq!(devices.report()[0].in_use, Bytes::ZERO);
}

#[test]
fn concurrent_runs_do_not_disturb_each_other() {
    let session = counter(VariableKind::Reference);
    session.run(&[], &[], &["init"]).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let values = session.run(&[], &["sum", "after"], &["step"]).unwrap();
                    let (sum, after) = (floats(&values[0]), floats(&values[1]));
                    assert_eq!(sum[0], 2.0 * after[0] - 1.0, "{sum:?} {after:?}");
                }
            });
        }
    });
    assert_eq!(session.read_variable("v").unwrap(), vector(&[400.0, 800.0]));
}
