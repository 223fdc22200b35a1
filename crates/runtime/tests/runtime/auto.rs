//! Placement by predicted time: it keeps to what the graph asks for and to the lines, is no slower on paper than TensorFlow's, and the
//! values are those of any other placement.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_base::{Bytes, Code, DataType};
use plimsoll_cards::Options;
use plimsoll_device::{DeviceKind, DeviceName};
use plimsoll_graph::id::Id;
use plimsoll_graph::{AttrValue, Graph, HostTensor, NodeId, Output, PartialShape, Shape};
use plimsoll_kernels::CpuKernels;
use plimsoll_ops::builder::optimizer::{GradientDescent, Optimizer};
use plimsoll_ops::builder::{Initializer, Variable, VariableKind};
use plimsoll_ops::{GraphBuilder, Registry};
use plimsoll_plan::{Feed, Fitted, How, Objective, PlaceOptions, Placement, Signature, place};
use plimsoll_runtime::{Devices, Session};
use proptest::prelude::*;

use crate::mutated_loops::{CASES, fed, graph};
use crate::plan_files::Random;
use crate::random_graphs::{CARDS, COLUMNS, Made, ROWS, bits, make, steps};
use crate::shared_loops;

pub fn registry() -> Arc<Registry> {
    Arc::new(Registry::standard(Arc::new(CpuKernels)))
}

pub fn open(devices: &Devices, graph: &Graph) -> Session {
    Session::new(devices, graph, registry()).unwrap()
}

/// A processor, and two cards of modelled speed with so many bytes each.
pub fn cards(bytes: u64) -> Options {
    two_cards().limit("GPU:0", &bytes.to_string()).limit("GPU:1", &bytes.to_string())
}

fn two_cards() -> Options {
    Options::new().intra_op(2).sim_gpus("2x1GiB,speed=1")
}

const BATCH: u64 = 2048;
const WIDTH: u64 = 128;

/// Towers of so many layers over the same variables, each with its part of the batch; their mean gradient is applied. Nothing asks for a
/// device.
fn towers(towers: usize, layers: usize) -> Graph {
    networks(towers, BATCH, &vec![WIDTH; layers + 1])
}

/// The same, of layers with these numbers of units behind that of the input.
fn networks(towers: usize, batch: u64, units: &[u64]) -> Graph {
    let mut b = GraphBuilder::new(registry());
    b.set_variable_kind(VariableKind::Resource);
    let weights: Vec<Variable> = units
        .windows(2)
        .enumerate()
        .map(|(layer, of)| {
            let elements: Vec<f32> = (0..of[0] * of[1]).map(|i| ((i * 7 + layer as u64) % 23) as f32 / 230.0 - 0.05).collect();
            let first = Initializer::Value(HostTensor::from_slice([of[0], of[1]], &elements).unwrap());
            b.get_variable(&format!("w{layer}"), DataType::Float, [of[0], of[1]], &first).unwrap()
        })
        .collect();
    let mut losses = Vec::new();
    for tower in 0..towers {
        let shape = PartialShape(Some(vec![Some(batch), Some(units[0])]));
        let mut value = b.placeholder(&format!("x{tower}"), DataType::Float, shape).build().unwrap();
        for weights in &weights {
            let read = b.read(weights).unwrap();
            let product = b.matmul(value, read).build().unwrap();
            value = b.op("Tanh").input(product).attr("T", AttrValue::data_type(DataType::Float)).build().unwrap();
        }
        losses.push(b.reduce_mean(value, None).name(&format!("loss{tower}")).build().unwrap());
    }
    let mut total = losses[0];
    for loss in &losses[1..] {
        total = b.add(total, *loss).build().unwrap();
    }
    let total = b.identity(total).name("loss").build().unwrap();
    GradientDescent::new(0.5).minimize(&mut b, total, &weights, "train").unwrap();
    b.global_variables_initializer().unwrap();
    b.finish()
}

pub fn init() -> Signature {
    Signature { targets: vec!["init".into()], ..Signature::default() }
}

fn runs(towers: usize) -> Vec<Signature> {
    runs_of(towers, BATCH)
}

/// With so many examples for each tower.
fn runs_of(towers: usize, batch: u64) -> Vec<Signature> {
    let x = |tower| Feed { tensor: format!("x{tower}"), data_type: DataType::Float, shape: Shape::from([batch, WIDTH]), value: None };
    let step = Signature {
        feeds: (0..towers).map(x).collect(),
        fetches: vec!["loss".into()],
        targets: vec!["train".into()],
        ..Signature::default()
    };
    vec![init(), step]
}

/// The losses of some steps, and the variables after them.
fn train(session: &Session, towers: usize) -> Vec<Vec<u32>> {
    train_on(session, towers, BATCH)
}

fn train_on(session: &Session, towers: usize, batch: u64) -> Vec<Vec<u32>> {
    let x = |tower: usize| {
        let values: Vec<f32> = (0..batch * WIDTH).map(|i| ((i + tower as u64 * 13) as f32 * 0.37).sin()).collect();
        (format!("x{tower}"), HostTensor::from_slice([batch, WIDTH], &values).unwrap())
    };
    let feeds: Vec<(String, HostTensor)> = (0..towers).map(x).collect();
    let feeds: Vec<(&str, &HostTensor)> = feeds.iter().map(|(name, value)| (name.as_str(), value)).collect();
    session.run(&[], &[], &["init"]).unwrap();
    session.release_unused();
    let mut seen: Vec<Vec<u32>> = (0..3).map(|_| bits(&session.run(&feeds, &["loss"], &["train"]).unwrap()[0])).collect();
    let names: Vec<String> = session.variables().into_iter().map(|variable| variable.name).collect();
    seen.extend(names.iter().map(|name| bits(&session.read_variable(name).unwrap())));
    seen
}

fn peaks_are_those_of(devices: &Devices, fitted: &Fitted) {
    for (report, need) in devices.report().iter().zip(fitted.footprint.needs()) {
        assert_eq!(report.peak, need.peak, "{}", need.name);
        assert!(report.limit.is_none_or(|limit| report.peak <= limit), "{report:?}");
    }
}

pub fn seconds(fitted: &Fitted, how: impl Fn(&How) -> bool) -> f64 {
    fitted.tried.iter().filter(|tried| how(&tried.how) && tried.fits()).map(|tried| tried.seconds).fold(f64::INFINITY, f64::min)
}

#[test]
fn towers_that_ask_for_nothing_are_spread_over_the_cards() {
    let (graph, count) = (towers(2, 6), 2);
    let devices = Devices::open(&cards(512 << 20)).unwrap();
    let session = open(&devices, &graph);
    let fitted = session.auto(&runs(count), &[], Objective::Latency).unwrap();
    let chosen = fitted.tried.last().unwrap();
    assert!(matches!(chosen.how, How::Auto { .. }) && !chosen.is_fitted, "{:?}", fitted.tried);
    assert!(fitted.footprint.needs()[1..].iter().all(|need| need.peak > Bytes::ZERO));
    // TensorFlow puts both on the first card.
    let alone = seconds(&fitted, |how| *how == How::TensorFlow);
    assert!(chosen.seconds < 0.75 * alone, "{} of {alone}", chosen.seconds);
    let again = session.auto(&runs(count), &[], Objective::Latency).unwrap();
    assert_eq!(again.placement, fitted.placement, "the search is deterministic");
    let placed = session.with_placement(fitted.placement.clone()).unwrap();
    let got = train(&placed, count);
    peaks_are_those_of(&devices, &fitted);
    let processor = Devices::open(&Options::new().intra_op(2)).unwrap();
    assert_eq!(got, train(&open(&processor, &graph), count));
}

/// Plans are made beside searches, and other programs' threads may plan at the same time: what comes of it is the same.
#[test]
fn placing_is_the_same_each_time_and_beside_other_placing() {
    let graph = towers(2, 3);
    let need = open(&Devices::open(&cards(512 << 20)).unwrap(), &graph).auto(&runs(2), &[], Objective::Latency).unwrap();
    let need = need.footprint.needs()[1].peak.0;
    // With room for what is the fastest, and without.
    for limit in [512 << 20, need * 3 / 4] {
        let devices = Devices::open(&cards(limit)).unwrap();
        let placed = || {
            let session = open(&devices, &graph);
            let fitted = session.auto(&runs(2), &[], Objective::Latency).unwrap();
            // The works of this placement are known. Another session with it begins anew.
            let known = session.with_placement(fitted.placement.clone()).unwrap().plan_signature(&runs(2)[1]).unwrap();
            let anew = open(&devices, &graph).with_placement(fitted.placement.clone()).unwrap().plan_signature(&runs(2)[1]).unwrap();
            let known = format!("{known:?}");
            assert_eq!(known, format!("{anew:?}"));
            assert!(anew.devices[1].least > Bytes::ZERO, "{anew}");
            (fitted.placement, fitted.tried, known)
        };
        let alone = placed();
        std::thread::scope(|scope| {
            let others: Vec<_> = (0..2).map(|_| scope.spawn(placed)).collect();
            others.into_iter().for_each(|other| assert!(other.join().unwrap() == alone, "of cards with {limit} bytes"));
        });
    }
}

/// As [`towers`], where one batch is divided. Towers ask for a card each if `asks`; variables and averages for the processor then.
fn divided(towers: usize, layers: usize, asks: bool) -> Graph {
    let mut b = GraphBuilder::new(registry());
    b.set_variable_kind(VariableKind::Resource);
    let device = |device: String| if asks { device } else { String::new() };
    let weights: Vec<Variable> = b.device(&device("/cpu:0".into()), |b| {
        let elements: Vec<f32> = (0..WIDTH * WIDTH).map(|i| (i % 23) as f32 / 230.0 - 0.05).collect();
        let first = Initializer::Value(HostTensor::from_slice([WIDTH, WIDTH], &elements).unwrap());
        (0..layers).map(|layer| b.get_variable(&format!("w{layer}"), DataType::Float, [WIDTH, WIDTH], &first).unwrap()).collect()
    });
    let parts = b.device(&device("/cpu:0".into()), |b| {
        let shape = PartialShape(Some(vec![None, Some(WIDTH)]));
        let x = b.placeholder("x", DataType::Float, shape).build().unwrap();
        let axis = b.scalar(0i32).unwrap();
        b.op("Split").inputs([axis, x]).attr("num_split", AttrValue::Int(towers as i64)).build_node().unwrap()
    });
    let mut gradients: Vec<Vec<Output>> = vec![Vec::new(); layers];
    for tower in 0..towers {
        b.device(&device(format!("/gpu:{tower}")), |b| {
            let mut value = Output { node: parts, index: tower as u32 };
            let mut reads = Vec::new();
            for weights in &weights {
                reads.push(b.read(weights).unwrap());
                let product = b.matmul(value, reads[reads.len() - 1]).build().unwrap();
                value = b.op("Tanh").input(product).build().unwrap();
            }
            let loss = b.reduce_mean(value, None).build().unwrap();
            let own = b.gradients(&[loss], &reads).unwrap();
            gradients.iter_mut().zip(own).for_each(|(all, gradient)| all.push(gradient.unwrap()));
        });
    }
    let updates: Vec<NodeId> = b.device(&device("/cpu:0".into()), |b| {
        let mut update = |(weights, gradients): (&Variable, &Vec<Output>)| {
            let sum = b.op("AddN").inputs(gradients.iter().copied()).build().unwrap();
            let rate = b.scalar(0.5f32).unwrap();
            b.op("ResourceApplyGradientDescent").inputs([weights.handle, rate, sum]).build_node().unwrap()
        };
        weights.iter().zip(&gradients).map(&mut update).collect()
    });
    b.op("NoOp").name("train").controls(updates).build_node().unwrap();
    b.finish()
}

#[test]
fn towers_of_a_divided_batch_are_found() {
    for towers in [4, 6] {
        let devices = Devices::open(&Options::new().intra_op(2).sim_gpus("4x1GiB,speed=1")).unwrap();
        let x = Feed { tensor: "x".into(), data_type: DataType::Float, shape: Shape::from([BATCH * towers, WIDTH]), value: None };
        let step = Signature { feeds: vec![x], targets: vec!["train".into()], ..Signature::default() };
        let auto = |asks| {
            let session = open(&devices, &divided(towers as usize, 8, asks && towers == 4));
            session.auto(std::slice::from_ref(&step), &[], Objective::Latency).unwrap()
        };
        let (free, asked) = (auto(false), auto(true));
        let chosen = free.tried.last().unwrap().seconds;
        let one = seconds(&free, |how| *how == How::TensorFlow);
        assert!(chosen < 0.55 * one, "{towers} towers: {chosen} of {one}");
        if towers == 4 {
            let written = seconds(&asked, |how| *how == How::TensorFlow);
            assert!(chosen <= 1.03 * written, "{chosen}, as written {written}");
        }
        assert!(free.footprint.needs()[1..].iter().all(|need| need.peak > Bytes::ZERO), "{:?}", free.tried);
    }
}

#[test]
fn a_card_that_is_too_small_computes_again_where_that_is_faster_than_the_processor() {
    let graph = towers(1, 24);
    let card = |limit: u64| {
        let devices = Devices::open(&Options::new().intra_op(2).sim_gpus("1x1GiB,speed=1").limit("GPU:0", &limit.to_string())).unwrap();
        let fitted = open(&devices, &graph).auto(&runs(1), &[], Objective::Latency).unwrap();
        (devices, fitted)
    };
    let (_, free) = card(1 << 30);
    let need = free.footprint.needs()[1].peak.0;
    let (devices, fitted) = card(need * 3 / 4);
    let chosen = fitted.tried.last().unwrap();
    assert!(chosen.is_fitted, "{:?}", fitted.tried);
    // With a part of it on the processor it would fit as it is.
    let as_it_is =
        fitted.tried.iter().filter(|tried| tried.fits() && !tried.is_fitted).map(|tried| tried.seconds).fold(f64::INFINITY, f64::min);
    assert!(as_it_is.is_finite() && chosen.seconds < as_it_is, "{:?}", fitted.tried);
    let session = open(&devices, &graph);
    let got = train(&session.with_placement(fitted.placement.clone()).unwrap(), 1);
    assert!(devices.report()[1].peak.0 <= need * 3 / 4);
    assert_eq!(got, train(&open(&Devices::open(&Options::new().intra_op(2)).unwrap(), &graph), 1));
}

/// The last layers have weights and activations that are large: a card that is too small for them computes the narrow layers, and as much of
/// the wide ones as costs the least, with some values away. To place first and to make that fit takes more than twice the time of a card with
/// room; to fit by place alone takes longer still.
#[test]
fn what_is_computed_again_is_chosen_together_with_the_place() {
    let batch = 512;
    let graph = networks(1, batch, &[WIDTH, WIDTH, WIDTH, WIDTH, WIDTH, 512, 512, WIDTH]);
    let card = |limit: u64| {
        let devices = Devices::open(&Options::new().intra_op(2).sim_gpus("1x1GiB,speed=1").limit("GPU:0", &limit.to_string())).unwrap();
        let fitted = open(&devices, &graph).auto(&runs_of(1, batch), &[], Objective::Latency).unwrap();
        (devices, fitted)
    };
    let (_, free) = card(1 << 30);
    let limit = 5 << 20;
    assert!(free.footprint.needs()[1].peak.0 > limit, "{:?}", free.tried);
    let (devices, fitted) = card(limit);
    let [with_room, chosen] = [&free, &fitted].map(|fitted| fitted.tried.last().unwrap());
    assert!(chosen.is_fitted && chosen.seconds < 1.5 * with_room.seconds, "{with_room:?} {:?}", fitted.tried);
    // Works and values are on both devices, and the choice is the same each time.
    assert!(fitted.footprint.needs().iter().all(|need| need.peak > Bytes::ZERO), "{:?}", fitted.tried);
    let session = open(&devices, &graph);
    assert_eq!(session.auto(&runs_of(1, batch), &[], Objective::Latency).unwrap().placement, fitted.placement);
    let got = train_on(&session.with_placement(fitted.placement.clone()).unwrap(), 1, batch);
    peaks_are_those_of(&devices, &fitted);
    assert_eq!(got, train_on(&open(&Devices::open(&Options::new().intra_op(2)).unwrap(), &graph), 1, batch));
}

#[test]
fn a_stream_of_steps_goes_through_both_cards() {
    let (graph, x) = (towers(1, 40), HostTensor::zeros(DataType::Float, Shape::from([BATCH, WIDTH])).unwrap());
    let [init, step] = <[Signature; 2]>::try_from(runs(1)).unwrap();
    let runs = [init, Signature { targets: Vec::new(), ..step }];
    let devices = Devices::open(&cards(512 << 20)).unwrap();
    let session = open(&devices, &graph);
    let [fast, stream] = [Objective::Latency, Objective::Throughput].map(|objective| session.auto(&runs, &[], objective).unwrap());
    let (one, two) = (fast.tried.last().unwrap(), stream.tried.last().unwrap());
    assert!(two.interval < 0.7 * one.interval, "{one:?} {two:?}");
    assert!(two.seconds >= one.seconds, "a chain is no faster on two cards");
    assert!(two.timed(Objective::Throughput).contains(" in a stream, "), "{two:?}");
    // Runs of several threads are in different cards at the same time; each has the values of a run by itself.
    let values = |fitted: &Fitted| {
        let session = session.with_placement(fitted.placement.clone()).unwrap();
        session.run(&[], &[], &["init"]).unwrap();
        let run = || bits(&session.run(&[("x0", &x)], &["loss"], &[]).unwrap()[0]);
        let all: Vec<Vec<u32>> = std::thread::scope(|scope| {
            let runs: Vec<_> = (0..3).map(|_| scope.spawn(run)).collect();
            runs.into_iter().map(|run| run.join().unwrap()).collect()
        });
        assert!(all.iter().all(|values| *values == all[0]));
        all[0].clone()
    };
    assert_eq!(values(&stream), values(&fast));
}

#[test]
fn two_processors_that_hold_a_network_only_together_share_it() {
    let (graph, count) = (towers(2, 6), 2);
    let free = Devices::open(&Options::new().intra_op(2)).unwrap();
    let session = open(&free, &graph);
    let whole = session.auto(&runs(count), &[], Objective::Latency).unwrap();
    let wanted = train(&session, count);
    let limit = whole.footprint.needs()[0].peak.0 * 3 / 4;
    let options = Options::new().intra_op(2).fit(false).device_count(DeviceKind::Cpu, 2);
    let options = options.limit("CPU:0", &limit.to_string()).limit("CPU:1", &limit.to_string());
    let devices = Devices::open(&options).unwrap();
    let session = open(&devices, &graph);
    let fitted = session.auto(&runs(count), &[], Objective::Latency).unwrap();
    let placed = session.with_placement(fitted.placement.clone()).unwrap();
    assert_eq!(train(&placed, count), wanted);
    peaks_are_those_of(&devices, &fitted);
}

#[test]
fn what_fits_nowhere_is_made_to_fit_or_refused() {
    let (graph, count) = (towers(2, 12), 2);
    let one = |fit, limit: u64| Devices::open(&Options::new().intra_op(2).fit(fit).limit("CPU:0", &limit.to_string())).unwrap();
    let need = open(&one(true, 1 << 30), &graph).auto(&runs(count), &[], Objective::Latency).unwrap().footprint.needs()[0].peak;
    let limit = need.0 - (64 << 10);
    let devices = one(true, limit);
    let session = open(&devices, &graph);
    let fitted = session.auto(&runs(count), &[], Objective::Latency).unwrap();
    assert!(fitted.tried.last().unwrap().is_fitted, "{:?}", fitted.tried);
    train(&session.with_placement(fitted.placement.clone()).unwrap(), count);
    assert!(devices.report()[0].peak.0 <= limit);
    let error = open(&one(false, limit), &graph).auto(&runs(count), &[], Objective::Latency).unwrap_err();
    assert_eq!(error.code(), Code::ResourceExhausted);
    for part in ["fits nowhere", "by TensorFlow's rules: does not fit", "bytes short"] {
        assert!(error.message().contains(part), "{part}: {error}");
    }
    // Where making it to fit is not enough either, each attempt is there once.
    let error = open(&one(true, 4096), &graph).auto(&runs(count), &[], Objective::Latency).unwrap_err();
    assert_eq!(error.message().matches("by TensorFlow's rules").count(), 1, "{error}");
}

/// How many graphs are tried: `PLIMSOLL_PLACED`, or so many.
pub fn cases(few: u32) -> ProptestConfig {
    let asked = std::env::var("PLIMSOLL_PLACED").ok().and_then(|cases| cases.parse().ok());
    ProptestConfig { cases: asked.unwrap_or(few), ..ProptestConfig::default() }
}

fn signature(fetch: &str) -> Signature {
    let x = Feed { tensor: "x".into(), data_type: DataType::Float, shape: Shape::from([ROWS, COLUMNS]), value: None };
    Signature { feeds: vec![x], fetches: vec![fetch.into()], targets: vec!["changes".into()], ..Signature::default() }
}

/// Two steps: the fetched values and the variables.
fn two_steps(session: &Session, made: &Made, fetch: &str) -> Vec<Vec<u32>> {
    let values: Vec<f32> = (0..ROWS * COLUMNS).map(|i| (i as f32 * 0.37).sin()).collect();
    let x = HostTensor::from_slice(Shape::from([ROWS, COLUMNS]), &values).unwrap();
    session.run(&[], &[], &["init"]).unwrap();
    let mut seen: Vec<Vec<u32>> = (0..2).map(|_| bits(&session.run(&[("x", &x)], &[fetch], &["changes"]).unwrap()[0])).collect();
    seen.extend(made.variables.iter().map(|variable| bits(&session.read_variable(&variable.name).unwrap())));
    seen
}

/// Requests as programs write them: whole, without an index, of a job, of a kind that a name has in other letters.
const REQUESTS: &[&str] = &[
    "/cpu:0",
    "/gpu:0",
    "/device:GPU:1",
    "/job:localhost/replica:0/task:0/device:GPU:1",
    "/job:localhost/device:GPU:0",
    "/device:GPU:*",
    "/gpu",
    "/device:CPU",
    "/job:localhost",
    "/task:0",
];

/// The graph, of which nodes that are no variables ask for some device or for that of another node, each by a number of `requests`.
pub fn asking(graph: &Graph, requests: &[u16]) -> Graph {
    let mut def = graph.to_def();
    let names: Vec<String> = def.nodes.iter().map(|node| node.name.clone()).collect();
    for (at, node) in def.nodes.iter_mut().enumerate() {
        let number = requests[at % requests.len()] as usize;
        let is_pinned = node.op.contains("Var") || node.op.starts_with("Assign") || node.attrs.contains_key("_class");
        match number % 6 {
            _ if is_pinned || at == 0 => {}
            0 | 1 => node.device = REQUESTS[number / 6 % REQUESTS.len()].to_string(),
            2 if node.device.is_empty() => {
                let label = format!("loc:@{}", names[number / 6 % at]);
                node.attrs.insert("_class".to_string(), AttrValue::texts(&[label]));
            }
            _ => {}
        }
    }
    Graph::resolve(def, registry().table()).unwrap()
}

/// Whether TensorFlow moves control flow's own node to what it reads, or to what reads it, against any request.
pub fn stands_with_data(op: &str) -> bool {
    matches!(op, "Switch" | "Exit" | "Enter" | "NextIteration")
}

/// What a graph asks for that a placement does not keep. Where not all can be kept, and of what uses a variable, which is where that is,
/// what TensorFlow's placement does not keep either is left out.
pub fn broken(graph: &Graph, devices: &Devices, tensorflow: &Placement, is_all_kept: bool, placement: &Placement) -> Vec<String> {
    let mut found = Vec::new();
    for (id, node) in graph.nodes().iter().filter(|(_, node)| !stands_with_data(&node.op)) {
        let on = |placement: &Placement, id: NodeId| devices.specs()[placement.devices[id].index()].name.clone();
        let uses_variable = node.inputs.iter().any(|input| graph.node(input.node).op.contains("Var"));
        let may_break = |is_kept: &dyn Fn(&Placement) -> bool| (!is_all_kept || uses_variable) && !is_kept(tensorflow);
        if !node.device.is_empty() {
            let asked = DeviceName::parse(&node.device).unwrap();
            let is_kept = |placement: &Placement| on(placement, id).satisfies(&asked);
            if !is_kept(placement) && !may_break(&is_kept) {
                found.push(format!("{} asks for {} and is on {}", node.name, node.device, on(placement, id)));
            }
        }
        let Some(AttrValue::List(list)) = node.attrs.get("_class") else { continue };
        for label in list.bytes.iter().filter_map(|label| std::str::from_utf8(label.strip_prefix(b"loc:@")?).ok()) {
            let Some(with) = graph.find(label).filter(|with| !stands_with_data(&graph.node(*with).op)) else { continue };
            let is_kept = |placement: &Placement| on(placement, id) == on(placement, with);
            if !is_kept(placement) && !may_break(&is_kept) {
                found.push(format!("{} is on {}, and {label} on {}", node.name, on(placement, id), on(placement, with)));
            }
        }
    }
    found
}

#[test]
fn a_placement_that_breaks_a_request_is_seen() {
    let made = make(&[], VariableKind::Resource, &[]);
    let mut graph = made.graph.to_def();
    graph.nodes[0].device = "/device:GPU:*".to_string();
    let graph = Graph::resolve(graph, registry().table()).unwrap();
    let devices = Devices::open(&two_cards()).unwrap();
    let kept = place(&graph, &registry(), devices.specs(), &PlaceOptions::new(true)).unwrap();
    assert!(broken(&graph, &devices, &kept, true, &kept).is_empty());
    let mut other = kept.clone();
    other.devices[NodeId::from_index(0)] = Id::from_index(0);
    assert_eq!(broken(&graph, &devices, &other, true, &other).len(), 1);
    assert!(broken(&graph, &devices, &other, false, &other).is_empty());
}

proptest! {
    #![proptest_config(cases(200))]

    /// Graphs of which some nodes ask for devices, on cards with room for all, some or nothing.
    #[test]
    fn constraints_lines_and_values_hold(
        steps in steps(), chosen in any::<u16>(), resource in any::<bool>(), asks in any::<bool>(), room in 1u64..24,
        requests in prop::collection::vec(any::<u16>(), 1..24), soft in any::<bool>(),
    ) {
        let kind = if resource { VariableKind::Resource } else { VariableKind::Reference };
        let mut made = make(&steps, kind, if asks { CARDS } else { &[] });
        made.graph = asking(&made.graph, &requests);
        let fetch = made.values[1 + chosen as usize % (made.values.len() - 1)].clone();
        let devices = Devices::open(&cards(room * 4096).soft_placement(soft)).unwrap();
        let tensorflow = match place(&made.graph, &registry(), devices.specs(), &PlaceOptions::new(soft)) {
            Ok(placement) => placement,
            // What TensorFlow refuses is refused.
            Err(error) => {
                let refused = Session::new(&devices, &made.graph, registry()).err().map(|error| error.code());
                prop_assert_eq!(refused, Some(error.code()));
                return Ok(());
            }
        };
        let session = open(&devices, &made.graph);
        let runs = [init(), signature(&fetch)];
        let fitted = match session.auto(&runs, &[], Objective::Latency) {
            Ok(fitted) => fitted,
            Err(error) => {
                prop_assert_eq!(error.code(), Code::ResourceExhausted, "{}", error);
                return Ok(());
            }
        };
        // It is no slower than what TensorFlow does, and no faster than the paper allows.
        let chosen = fitted.tried.last().unwrap();
        prop_assert!(chosen.seconds <= seconds(&fitted, |how| *how == How::TensorFlow), "{:?}", fitted.tried);
        let least = fitted.least.map_or(0.0, |least| least.seconds(Objective::Latency));
        prop_assert!(chosen.seconds >= least * (1.0 - 1e-6), "{} {:?}", least, fitted.tried);
        // TensorFlow's placer takes all nodes as they are placed.
        let name = |node| devices.specs()[fitted.placement.devices[node].index()].name.to_string();
        let assigned: BTreeMap<_, _> = session.graph().nodes().ids().map(|node| (node, name(node))).collect();
        let again = place(session.graph(), &registry(), devices.specs(), &PlaceOptions { assigned, ..PlaceOptions::new(soft) });
        prop_assert_eq!(again.unwrap().devices, fitted.placement.devices.clone());
        // Soft placement gives up what cannot be: all is kept where nothing has to be given up.
        let is_hard = place(&made.graph, &registry(), devices.specs(), &PlaceOptions::new(false)).is_ok();
        let broken = broken(session.graph(), &devices, &tensorflow, is_hard, &fitted.placement);
        prop_assert!(broken.is_empty(), "{:?}", broken);
        let placed = session.with_placement(fitted.placement.clone()).unwrap();
        let got = two_steps(&placed, &made, &fetch);
        for (report, need) in devices.report().iter().zip(fitted.footprint.needs()) {
            prop_assert!(report.limit.is_none_or(|limit| report.peak <= limit) && report.peak <= need.peak, "{:?} {:?}", report, need);
        }
        let processor = Devices::open(&Options::new().intra_op(1)).unwrap();
        let plain = make(&steps, kind, &[]);
        prop_assert_eq!(got, two_steps(&open(&processor, &plain.graph), &plain, &fetch));
    }
}

/// Loops whose nodes ask for devices at random: no step takes less than what is said that every placement takes.
#[test]
fn bounds_of_loops_hold() {
    let devices = Devices::open(&two_cards()).unwrap();
    let mut compared = 0;
    for (number, (case, has_variables, feeds, fetches)) in CASES.iter().enumerate() {
        for seed in 0..6 {
            let mut random = Random((number as u64) << 32 | seed);
            let names: &[&str] = if seed == 0 { &[""] } else { &["", "", "/cpu:0", "/gpu:0", "/gpu:1"] };
            let session = shared_loops::session(&devices, shared_loops::scattered(graph(case), names, &mut random));
            let feed = |name: &&str| {
                let value = fed(case, name, 5);
                Feed { tensor: format!("{name}:0"), data_type: value.data_type(), shape: value.shape().clone(), value: None }
            };
            let fetches = fetches.iter().map(|name| name.to_string()).collect();
            let step = Signature { feeds: feeds.iter().map(feed).collect(), fetches, ..Signature::default() };
            let runs: Vec<Signature> = has_variables.then(init).into_iter().chain([step]).collect();
            let Ok(fitted) = session.auto(&runs, &[], Objective::Latency) else { continue };
            let (Some(least), Some(chosen)) = (fitted.least, fitted.tried.last()) else { continue };
            let least = least.seconds(Objective::Latency);
            assert!(chosen.seconds >= least * (1.0 - 1e-6), "{case}, seed {seed}: {least} {:?}", fitted.tried);
            compared += 1;
        }
    }
    assert!(compared > 20, "only {compared} bounds were compared");
}

proptest! {
    #![proptest_config(cases(32))]

    /// What is found without lines is found under lines that just hold it.
    #[test]
    fn a_placement_is_found_again_at_its_own_peaks(
        steps in steps(), chosen in any::<u16>(), resource in any::<bool>(), asks in any::<bool>()
    ) {
        let kind = if resource { VariableKind::Resource } else { VariableKind::Reference };
        let made = make(&steps, kind, if asks { CARDS } else { &[] });
        let fetch = made.values[1 + chosen as usize % (made.values.len() - 1)].clone();
        let runs = [init(), signature(&fetch)];
        let place = |options: &Options| open(&Devices::open(options).unwrap(), &made.graph).auto(&runs, &[], Objective::Latency);
        let first = place(&cards(512 << 20)).unwrap();
        let lines = first.footprint.needs().iter().fold(two_cards().fit(false), |options, need| {
            // A device has a line of a page at least.
            options.limit(need.name.rsplit("device:").next().unwrap(), &need.peak.0.max(4096).to_string())
        });
        let again = place(&lines);
        prop_assert!(again.is_ok(), "{:?}: {}", first.footprint.needs(), again.unwrap_err());
        let least = |fitted: &Fitted| fitted.tried.last().unwrap().seconds;
        prop_assert!(least(&again.unwrap()) <= 1.021 * least(&first), "{:?}", first.tried);
    }
}
