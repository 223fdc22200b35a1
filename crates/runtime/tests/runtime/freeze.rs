//! Folded variables: the same values from fewer works, the line to the byte, and new values after an assignment.

use std::sync::Arc;

use plimsoll_base::{Bytes, Code, DataType};
use plimsoll_cards::Options;
use plimsoll_graph::{AttrValue, HostTensor, Output, PartialShape};
use plimsoll_kernels::CpuKernels;
use plimsoll_ops::builder::{Initializer, VariableKind};
use plimsoll_ops::{GraphBuilder, Registry};
use plimsoll_plan::{Feed, Footprint, Signature};
use plimsoll_runtime::{Devices, Session};

const CHANNELS: u64 = 8;

fn open(freeze: bool, limit: Option<Bytes>) -> Devices {
    let options = Options::new().intra_op(1).freeze(freeze).fit(false);
    Devices::open(&limit.map_or(options.clone(), |limit| options.limit("CPU:0", &format!("{}B", limit.0)))).unwrap()
}

/// Numbers that are neither alike nor large.
fn numbers(shape: &[u64], from: f32, step: f32) -> HostTensor {
    let count: u64 = shape.iter().product();
    let values: Vec<f32> = (0..count).map(|i| from + step * ((i * 7 + 3) % 11) as f32).collect();
    HostTensor::from_slice(shape.to_vec(), &values).unwrap()
}

/// A variable, with its first value.
fn variable(b: &mut GraphBuilder, name: &str, shape: &[u64], from: f32, step: f32) -> Output {
    b.get_variable(name, DataType::Float, shape.to_vec(), &Initializer::Value(numbers(shape, from, step))).unwrap().value
}

/// `y` from `x` of N images: a convolution with a bias and a batch norm, a depthwise one with the batch norm that Keras writes, a product
/// with scale and offset. `train` adds to the first filter. Between them are nodes that do nothing.
fn session(devices: &Devices, kind: VariableKind) -> Session {
    let mut b = GraphBuilder::new(Arc::new(Registry::standard(Arc::new(CpuKernels))));
    b.set_variable_kind(kind);
    let image = PartialShape(Some(vec![None, Some(6), Some(6), Some(3)]));
    let x = b.placeholder("x", DataType::Float, image).build().unwrap();
    let vectors = |b: &mut GraphBuilder, name: &str| {
        let of = |b: &mut GraphBuilder, part: &str, from, step| variable(b, &format!("{name}/{part}"), &[CHANNELS], from, step);
        [of(b, "gamma", 0.5, 0.1), of(b, "beta", -0.3, 0.05), of(b, "mean", -0.2, 0.07), of(b, "variance", 0.4, 0.2)]
    };
    let w = variable(&mut b, "w", &[3, 3, 3, CHANNELS], -0.4, 0.08);
    let bias = variable(&mut b, "bias", &[CHANNELS], 0.1, 0.02);
    let product = b.conv2d(x, w, [1, 1], "SAME").name("conv").build().unwrap();
    let sum = b.bias_add(product, bias).build().unwrap();
    let [gamma, beta, mean, variance] = vectors(&mut b, "norm");
    let norm = b.op("FusedBatchNormV3").inputs([sum, gamma, beta, mean, variance]).attr("is_training", AttrValue::Bool(false));
    let norm = norm.attr("epsilon", AttrValue::Float(1e-3)).name("norm").build().unwrap();
    let first = b.relu(norm).build().unwrap();
    let first = (0..3).fold(first, |tensor, _| b.identity(tensor).build().unwrap());
    let first = b.op("Cast").input(first).attr("DstT", AttrValue::data_type(DataType::Float)).name("cast").build().unwrap();
    let deep = variable(&mut b, "deep", &[3, 3, CHANNELS, 1], -0.2, 0.06);
    let product = b.op("DepthwiseConv2dNative").inputs([first, deep]).attr("strides", AttrValue::ints([1, 2, 2, 1]));
    let product = product.attr("padding", AttrValue::text("VALID")).name("depthwise").build().unwrap();
    let [gamma, beta, mean, variance] = vectors(&mut b, "keras");
    let epsilon = b.constant(HostTensor::scalar(1e-3f32)).build().unwrap();
    let spread = b.add(variance, epsilon).build().unwrap();
    let spread = b.op("Rsqrt").input(spread).build().unwrap();
    let factor = b.mul(spread, gamma).name("factor").build().unwrap();
    let scaled = b.mul(product, factor).build().unwrap();
    let moved = b.mul(mean, factor).build().unwrap();
    let moved = b.op("Sub").inputs([beta, moved]).build().unwrap();
    let second = b.add(scaled, moved).build().unwrap();
    let second = b.relu(second).build().unwrap();
    let flat = b.op("Reshape").input(second).constant_input("shape", HostTensor::from_slice([2], &[-1i32, 32]).unwrap()).build().unwrap();
    let last = variable(&mut b, "last", &[32, 5], -0.1, 0.03);
    let scale = variable(&mut b, "scale", &[5], 0.7, 0.1);
    let product = b.matmul(flat, last).name("product").build().unwrap();
    let scaled = b.mul(product, scale).build().unwrap();
    let y = b.add(scaled, scale).build().unwrap();
    b.identity(y).name("y").build().unwrap();
    let filter = b.variables().iter().find(|variable| variable.name == "w").unwrap().clone();
    let step = b.constant(numbers(&[3, 3, 3, CHANNELS], 0.01, 0.01)).build().unwrap();
    let train = b.assign_add(&filter, step).unwrap();
    b.op("NoOp").control(train).name("train").build_node().unwrap();
    b.global_variables_initializer().unwrap();
    let registry = b.registry().clone();
    Session::new(devices, &b.finish(), registry).unwrap()
}

fn images(count: u64) -> HostTensor {
    numbers(&[count, 6, 6, 3], -0.5, 0.1)
}

fn run(session: &Session, count: u64) -> Vec<f32> {
    session.run(&[("x", &images(count))], &["y"], &[]).unwrap()[0].to_vec().unwrap()
}

#[track_caller]
fn assert_near(got: &[f32], want: &[f32]) {
    assert_eq!(got.len(), want.len());
    let largest = want.iter().fold(0f32, |largest, value| largest.max(value.abs()));
    let far = got.iter().zip(want).map(|(got, want)| (got - want).abs()).fold(0f32, f32::max);
    assert!(far <= 1e-5 * largest && largest > 0.1, "{far} of {largest}");
}

fn initialised(freeze: bool, kind: VariableKind) -> Session {
    let session = session(&open(freeze, None), kind);
    session.run(&[], &[], &["init"]).unwrap();
    session
}

fn signature(count: u64, targets: &[&str]) -> Signature {
    let feed = Feed { tensor: "x".into(), data_type: DataType::Float, shape: [count, 6, 6, 3].into(), value: None };
    let targets = targets.iter().map(ToString::to_string).collect();
    Signature { feeds: vec![feed], fetches: vec!["y".into()], targets, ..Signature::default() }
}

const KINDS: [VariableKind; 2] = [VariableKind::Reference, VariableKind::Resource];

#[test]
fn a_batch_norm_becomes_part_of_the_convolution_before_it() {
    for kind in KINDS {
        let (plain, frozen) = (initialised(false, kind), initialised(true, kind));
        for count in [1, 3] {
            assert_near(&run(&frozen, count), &run(&plain, count));
        }
        let plan = frozen.plan_signature(&signature(2, &[])).unwrap();
        let calls: Vec<String> = plan.queues[0].program.commands.iter().map(|command| command.label.to_string()).collect();
        let [conv, depthwise, product] = &calls[..] else { panic!("{calls:?}") };
        // The numbers count the bias, the Relu, and what joins the results.
        assert!(conv.starts_with("conv/folded (+"), "{calls:?}");
        assert!(depthwise.starts_with("depthwise/folded (+") && product.starts_with("product/folded (+"), "{calls:?}");
        let read: Vec<&str> = plan.variables.iter().map(|variable| variable.name.as_str()).collect();
        assert!(read.iter().all(|name| name.contains("/folded")) && read.len() == 6, "{read:?}");
        // Users do not see the folded variables.
        assert!(frozen.variables().iter().all(|variable| !variable.name.contains("folded")));
        assert_eq!(frozen.variables().len(), plain.variables().len());
    }
}

#[test]
fn nodes_that_do_nothing_are_in_no_plan() {
    let plan = initialised(false, VariableKind::Resource).plan_signature(&signature(2, &[])).unwrap();
    let labels: Vec<String> = plan.queues[0].program.commands.iter().map(|command| command.label.to_string()).collect();
    assert!(labels.iter().all(|label| !label.contains("Identity") && !label.contains("cast") && !label.starts_with('y')), "{labels:?}");
    assert!(labels.iter().any(|label| label == "norm (+1)") && labels.len() > 3, "{labels:?}");
}

#[test]
fn what_changes_a_variable_changes_what_is_folded() {
    for kind in KINDS {
        let (plain, frozen) = (initialised(false, kind), initialised(true, kind));
        let callables = [&plain, &frozen].map(|session| session.callable(&signature(2, &[])).unwrap());
        let both = |what: &str| {
            let [want, got] = [0, 1].map(|index: usize| callables[index].run(&[&images(2)]).unwrap()[0].to_vec::<f32>().unwrap());
            let far = got.iter().zip(&want).map(|(got, want)| (got - want).abs()).fold(0f32, f32::max);
            assert!(far < 1e-4, "{what}: {far}");
            want
        };
        let mut seen = vec![both("first")];
        let sessions = [&plain, &frozen];
        sessions.iter().for_each(|session| session.write_variable("keras/gamma", &numbers(&[CHANNELS], 1.5, 0.2)).unwrap());
        seen.push(both("written"));
        sessions.iter().for_each(|session| drop(session.run(&[], &[], &["train"]).unwrap()));
        seen.push(both("assigned by a run"));
        // A run that assigns what it reads is made of the graph as written.
        let [want, got] =
            sessions.map(|session| session.run(&[("x", &images(2))], &["y"], &["train"]).unwrap()[0].to_vec::<f32>().unwrap());
        assert_eq!(got.len(), want.len());
        seen.push(both("assigned by a run that computes"));
        for session in sessions {
            let value = numbers(&[32, 5], 0.2, 0.01);
            let mut fill = |_: &mut [u8], give: &mut dyn FnMut(u64, &[u8]) -> plimsoll_base::Result<()>| give(0, value.bytes().unwrap());
            session.fill_variable("last", Bytes(4096), &mut fill).unwrap();
        }
        seen.push(both("restored"));
        sessions.iter().for_each(|session| drop(session.run(&[], &[], &["init"]).unwrap()));
        let again = both("initialised again");
        assert_eq!(again, seen[0]);
        assert!(seen.windows(2).all(|pair| pair[0] != pair[1]));
    }
}

/// A graph whose filters are constants, as frozen graphs have them.
fn of_constants(devices: &Devices) -> Session {
    let mut b = GraphBuilder::new(Arc::new(Registry::standard(Arc::new(CpuKernels))));
    let x = b.placeholder("x", DataType::Float, PartialShape(Some(vec![None, Some(64)]))).build().unwrap();
    let mut constant = |value: HostTensor| b.constant(value).build().unwrap();
    let (w, scale, offset) =
        (constant(numbers(&[64, 96], -0.2, 0.04)), constant(numbers(&[96], 0.5, 0.1)), constant(numbers(&[96], -0.3, 0.05)));
    let spread = b.op("Rsqrt").input(scale).build().unwrap();
    let product = b.matmul(x, w).name("product").build().unwrap();
    let scaled = b.mul(product, spread).build().unwrap();
    let moved = b.add(scaled, offset).build().unwrap();
    b.relu(moved).name("y").build().unwrap();
    let registry = b.registry().clone();
    Session::new(devices, &b.finish(), registry).unwrap()
}

#[test]
fn a_filter_that_is_a_constant_is_there_once() {
    let x = numbers(&[3, 64], -0.5, 0.1);
    let values = |session: &Session| session.run(&[("x", &x)], &["y"], &[]).unwrap()[0].to_vec::<f32>().unwrap();
    let [plain, frozen] = [false, true].map(|freeze| of_constants(&open(freeze, None)));
    assert_near(&values(&frozen), &values(&plain));
    let plan = |session: &Session| session.plan(&[("x", &x)], &["y"], &[]).unwrap();
    let [plain_plan, frozen_plan] = [&plain, &frozen].map(plan);
    let [plain_peak, frozen_peak] = [&plain_plan, &frozen_plan].map(|plan| {
        let mut footprint = Footprint::new(plain.devices().specs());
        footprint.add(plan);
        footprint.needs()[0].peak
    });
    assert!(!frozen_plan.before.is_empty(), "the scale is computed once");
    assert!(frozen_peak.0 <= plain_peak.0 + 4 * 64 + 2 * 96 * 4, "{frozen_peak} of {plain_peak}: the filter has 24 KiB");
    // The graph ends where it did.
    let ends = |session: &Session| plimsoll_plan::Asked::ends(session.graph(), &plimsoll_runtime::standard_registry());
    assert_eq!((ends(&frozen).fetches, ends(&frozen).targets.len()), (vec!["y:0".to_string()], 0));
}

#[test]
fn a_plan_that_reads_folded_variables_is_kept_in_a_file() {
    let (x, wanted) = (images(2), signature(2, &[]));
    let file = initialised(true, VariableKind::Resource).plan_file(&wanted).unwrap();
    let session = initialised(true, VariableKind::Resource);
    let opened = session.open_plan(&file).unwrap();
    assert!(!opened.plan().before.is_empty(), "what computes the folded variables is planned anew");
    let callable = session.callable_of(&opened).unwrap();
    assert_eq!(callable.run(&[&x]).unwrap()[0].to_vec::<f32>().unwrap(), run(&initialised(true, VariableKind::Resource), 2));
    // After an assignment they are computed anew.
    session.run(&[], &[], &["train"]).unwrap();
    let trained = initialised(false, VariableKind::Resource);
    trained.run(&[], &[], &["train"]).unwrap();
    assert_near(&callable.run(&[&x]).unwrap()[0].to_vec::<f32>().unwrap(), &run(&trained, 2));
    // A plan of the graph as written is one of another graph.
    let other = initialised(false, VariableKind::Resource);
    assert_eq!(other.open_plan(&file).err().unwrap().code(), Code::FailedPrecondition);
}

#[test]
fn by_first_fit_folded_variables_are_where_they_are_read() {
    let mut bytes = Bytes::ZERO;
    for (limit, device) in [(None, "GPU:0"), (Some(1), "CPU:0")] {
        let options = Options::new().intra_op(1).freeze(true).placement(plimsoll_cards::PlacementMode::FirstFit).sim_gpus("1x64MiB");
        let options = limit.map_or(options.clone(), |less| options.limit("GPU:0", &format!("{}B", bytes.0 - less)));
        let session = session(&Devices::open(&options).unwrap(), VariableKind::Resource);
        let init = Signature { targets: vec!["init".to_string()], ..Signature::default() };
        let fitted = session.first_fit(&[init, signature(2, &[])], &[]).unwrap();
        let session = session.with_placement(fitted.placement).unwrap();
        session.run(&[], &[], &["init"]).unwrap();
        assert_near(&run(&session, 2), &run(&initialised(false, VariableKind::Resource), 2));
        let folded = session.graph().find("conv/folded").unwrap();
        let name = session.devices().specs()[plimsoll_graph::id::Id::index(session.placement().devices[folded])].name.short();
        // Where it does not fit as a whole, the first nodes are still on the card.
        assert!(name == device || limit.is_some(), "{name}");
        bytes = fitted.footprint.needs()[1].peak;
    }
}

#[test]
fn a_fed_tensor_is_never_passed_over() {
    let (plain, frozen) = (initialised(false, VariableKind::Resource), initialised(true, VariableKind::Resource));
    for (tensor, value) in [("factor", numbers(&[CHANNELS], 1.0, 0.5)), ("conv", numbers(&[1, 6, 6, CHANNELS], 0.0, 0.1))] {
        let run = |session: &Session| {
            let feeds = [("x", &images(1)), (tensor, &value)];
            session.run(&feeds, &["y"], &[]).unwrap()[0].to_vec::<f32>().unwrap()
        };
        assert_eq!(run(&frozen), run(&plain), "{tensor}");
        assert_ne!(run(&plain), self::run(&plain, 1), "{tensor}");
    }
    // A tensor inside is computed as it was written.
    let inside = |session: &Session| session.run(&[("x", &images(1))], &["norm"], &[]).unwrap().remove(0);
    assert_eq!(inside(&frozen), inside(&plain));
}

#[test]
fn the_line_holds_to_the_byte() {
    let promised = {
        let devices = open(true, None);
        let session = session(&devices, VariableKind::Resource);
        let mut footprint = Footprint::new(devices.specs());
        let init = Signature { targets: vec!["init".into()], ..Signature::default() };
        footprint.add(&session.plan_signature(&init).unwrap());
        footprint.add(&session.plan_signature(&signature(40, &[])).unwrap());
        footprint.needs()[0].peak
    };
    let run = |limit: Bytes| {
        let devices = open(true, Some(limit));
        let session = session(&devices, VariableKind::Resource);
        session.run(&[], &[], &["init"])?;
        session.run(&[("x", &images(40))], &["y"], &[])?;
        session.write_variable("bias", &numbers(&[CHANNELS], 0.0, 0.1))?;
        session.run(&[("x", &images(40))], &["y"], &[])?;
        Ok(devices.report()[0].peak)
    };
    assert_eq!(run(promised).map_err(|error: plimsoll_base::Error| error), Ok(promised));
    assert_eq!(run(promised - Bytes(1)).unwrap_err().code(), Code::ResourceExhausted);
}

#[test]
fn threads_that_run_and_write_never_see_a_mixture_for_long() {
    let session = initialised(true, VariableKind::Resource);
    std::thread::scope(|scope| {
        for thread in 0..2u64 {
            let session = session.clone();
            scope.spawn(move || (0..20).for_each(|_| drop(run(&session, thread + 1))));
        }
        for step in 0..20 {
            session.write_variable("scale", &numbers(&[5], step as f32 * 0.1, 0.1)).unwrap();
        }
    });
    let plain = initialised(false, VariableKind::Resource);
    plain.write_variable("scale", &numbers(&[5], 1.9, 0.1)).unwrap();
    assert_near(&run(&session, 2), &run(&plain, 2));
}

/// `y` is `x`, or `x` with noise where `training` holds, as TensorFlow 1 writes a dropout under a condition.
fn dropout(training: bool) -> Vec<String> {
    let mut b = GraphBuilder::new(Arc::new(Registry::standard(Arc::new(CpuKernels))));
    let x = b.placeholder("x", DataType::Float, PartialShape(Some(vec![Some(4), Some(4)]))).build().unwrap();
    let training = b.constant(HostTensor::from_bools(plimsoll_graph::Shape::scalar(), &[training]).unwrap()).build().unwrap();
    let switch = b.op("Switch").inputs([x, training]).build().unwrap();
    let taken = Output { index: 1, ..switch };
    let pivot = b.identity(taken).build().unwrap();
    let shape = HostTensor::from_slice([2], &[4i32, 4]).unwrap();
    let noise = b.op("RandomUniform").constant_input("shape", shape).attr("dtype", AttrValue::data_type(DataType::Float));
    let noise = noise.control(pivot.node).name("noise").build().unwrap();
    let dropped = b.mul(taken, noise).name("dropped").build().unwrap();
    let merged = b.op("Merge").inputs([switch, dropped]).build().unwrap();
    b.relu(merged).name("y").build().unwrap();
    let registry = b.registry().clone();
    let session = Session::new(&open(false, None), &b.finish(), registry).unwrap();
    let feed = Feed { tensor: "x".into(), data_type: DataType::Float, shape: [4, 4].into(), value: None };
    let plan = session.plan_signature(&Signature { feeds: vec![feed], fetches: vec!["y".into()], ..Signature::default() }).unwrap();
    plan.queues[0].program.commands.iter().map(|command| command.label.to_string()).collect()
}

#[test]
fn a_branch_of_training_is_in_no_plan_that_does_not_train() {
    assert_eq!(dropout(false), ["y"]);
    assert!(dropout(true).iter().any(|label| label.starts_with("noise")), "{:?}", dropout(true));
}
