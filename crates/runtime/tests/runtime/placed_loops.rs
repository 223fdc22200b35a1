//! Loops that `auto` places: by their bodies, where that is faster, and otherwise each on one device. Values are those of one processor.

use std::collections::BTreeMap;
use std::fmt::Write;

use plimsoll_base::{Code, DataType};
use plimsoll_cards::Options;
use plimsoll_graph::id::Id;
use plimsoll_graph::{Graph, HostTensor, NodeId, Shape};
use plimsoll_plan::{Feed, Fitted, How, Objective, PlaceOptions, Signature, place};
use plimsoll_runtime::{Devices, Session};
use proptest::prelude::*;

use crate::auto::{asking, broken, cards, cases, init, open, registry, seconds, stands_with_data};
use crate::random_graphs::bits;
use crate::segments::{self, COLUMNS, FLOAT, ROWS, Text, loops, make, of};
use crate::shared_loops::shared;

/// A square of so many columns, in each iteration the mean of two branches. Each is as many products by a weight of its own.
fn branches(columns: u64, products: usize, trips: u64) -> Graph {
    let mut g = Text::new(&[""]);
    let dims = format!("dim {{ size: {columns} }} dim {{ size: {columns} }}");
    g.node("x", "Placeholder", &[], &[("dtype", of(FLOAT)), ("shape", format!("shape {{ {dims} }}"))]);
    for branch in ["a", "b"] {
        g.node(&format!("{branch}/weights"), "VariableV2", &[], &[("dtype", of(FLOAT)), ("shape", format!("shape {{ {dims} }}"))]);
        let mut values = String::new();
        (0..columns * columns).for_each(|at| write!(values, " float_val: {}", (at * 7 % 11) as f32 / 64.0 - 0.07).unwrap());
        let value = format!("tensor {{ dtype: {FLOAT} tensor_shape {{ {dims} }}{values} }}");
        g.node(&format!("{branch}/first"), "Const", &[], &[("dtype", of(FLOAT)), ("value", value)]);
        g.typed(&format!("{branch}/init"), "Assign", &[&format!("{branch}/weights"), &format!("{branch}/first")]);
    }
    g.node("init", "NoOp", &["^a/init", "^b/init"], &[]);
    g.counts("loop", trips);
    g.carried("loop", "s", "x", FLOAT);
    for branch in ["a", "b"] {
        let read = g.typed(&format!("{branch}/read"), "Identity", &[&format!("{branch}/weights")]);
        let weights = g.stays("loop", &format!("{branch}/stays"), &read, FLOAT);
        let mut value = "s/now".to_string();
        for at in 0..products {
            let product = g.typed(&format!("{branch}/product{at}"), "MatMul", &[&value, &weights]);
            value = g.typed(&format!("{branch}/value{at}"), "Tanh", &[&product]);
        }
        g.typed(branch, "Identity", &[&value]);
    }
    g.typed("s/sum", "AddV2", &["a", "b"]);
    g.typed("s/next", "Tanh", &["s/sum"]);
    g.typed("y", "Identity", &["s/exit"]);
    g.graph()
}

fn step(shape: [u64; 2], fetch: &str, target: Option<&str>) -> Signature {
    let x = Feed { tensor: "x".into(), data_type: DataType::Float, shape: Shape::from(shape), value: None };
    let targets = target.map(str::to_string).into_iter().collect();
    Signature { feeds: vec![x], fetches: vec![fetch.into()], targets, ..Signature::default() }
}

fn input(shape: [u64; 2]) -> HostTensor {
    let values: Vec<f32> = (0..shape[0] * shape[1]).map(|i| (i as f32 * 0.37).sin()).collect();
    HostTensor::from_slice(Shape::from(shape), &values).unwrap()
}

/// The fetched value of some steps.
fn run(session: &Session, x: &HostTensor, fetch: &str, targets: &[&str]) -> Vec<Vec<u32>> {
    session.run(&[], &[], &["init"]).unwrap();
    (0..2).map(|_| bits(&session.run(&[("x", x)], &[fetch], targets).unwrap()[0])).collect()
}

/// On how many devices the products of each branch are.
fn devices_of(fitted: &Fitted, graph: &Graph) -> [Vec<usize>; 2] {
    ["a/product", "b/product"].map(|prefix| {
        let there = graph.nodes().iter().filter(|(_, node)| node.name.starts_with(prefix));
        let mut devices: Vec<usize> = there.map(|(id, _)| fitted.placement.devices[id].index()).collect();
        devices.sort_unstable();
        devices.dedup();
        devices
    })
}

#[test]
fn branches_of_a_body_are_on_two_cards() {
    let (columns, trips) = (256, 12);
    let graph = branches(columns, 8, trips);
    let devices = Devices::open(&Options::new().intra_op(2).sim_gpus("2x1GiB,speed=1,link=300GB")).unwrap();
    let session = open(&devices, &graph);
    let runs = [init(), step([columns, columns], "y", None)];
    let fitted = session.auto(&runs, &[], Objective::Latency).unwrap();
    let [a, b] = devices_of(&fitted, session.graph());
    assert!(a.len() == 1 && b.len() == 1 && a != b, "{a:?} {b:?}: {:#?}", fitted.tried);
    // As one op it takes the time of both.
    let (now, whole) = (fitted.tried.last().unwrap().seconds, seconds(&fitted, |how| *how == How::TensorFlow));
    assert!(now < 0.62 * whole, "{now} in place of {whole}");
    let least = fitted.least.unwrap().seconds(Objective::Latency);
    assert!(least <= now && least > 0.8 * now, "{least} of {now}");
    let x = input([columns, columns]);
    let placed = session.with_placement(fitted.placement.clone()).unwrap();
    let plan = placed.plan(&[("x", &x)], &["y"], &[]).unwrap();
    assert_eq!(shared(&plan), 2, "{plan}");
    let one = Devices::open(&Options::new().intra_op(1)).unwrap();
    assert_eq!(run(&placed, &x, "y", &[]), run(&open(&one, &graph), &x, "y", &[]));
    for (report, need) in devices.report().iter().zip(fitted.footprint.needs()) {
        assert_eq!(report.peak, need.peak, "{}", need.name);
    }
}

/// What each iteration has to move takes longer than what a second card saves.
#[test]
fn a_body_stays_on_one_card_where_copies_take_longer() {
    let columns = 64;
    let graph = branches(columns, 1, 12);
    let devices = Devices::open(&Options::new().intra_op(2).sim_gpus("2x1GiB,speed=1,link=1GB,latency=20")).unwrap();
    let session = open(&devices, &graph);
    let fitted = session.auto(&[init(), step([columns, columns], "y", None)], &[], Objective::Latency).unwrap();
    let [a, b] = devices_of(&fitted, session.graph());
    assert!(a.len() == 1 && a == b, "{a:?} {b:?}");
    let (now, whole) = (fitted.tried.last().unwrap().seconds, seconds(&fitted, |how| *how == How::TensorFlow));
    assert!(now <= whole, "{now} in place of {whole}");
}

proptest! {
    #![proptest_config(cases(60))]

    /// Loops with lists, in loops and conditions, of which some nodes ask for devices, on cards with room for all or some.
    #[test]
    fn constraints_lines_and_values_of_loops_hold(
        loops in loops(), room in 3u64..40, requests in prop::collection::vec(any::<u16>(), 1..24), asks in any::<bool>(), soft in any::<bool>(),
    ) {
        let plain = make(&loops, &[""]);
        let graph = if asks { asking(&plain.graph, &requests) } else { plain.graph.clone() };
        let devices = Devices::open(&cards(room * 4096).soft_placement(soft)).unwrap();
        let tensorflow = match place(&graph, &registry(), devices.specs(), &PlaceOptions::new(soft)) {
            Ok(placement) => placement,
            Err(error) => {
                let refused = Session::new(&devices, &graph, registry()).err().map(|error| error.code());
                prop_assert_eq!(refused, Some(error.code()));
                return Ok(());
            }
        };
        let session = open(&devices, &graph);
        let runs = [init(), step([ROWS, COLUMNS], "result:0", Some("changes"))];
        let fitted = match session.auto(&runs, &[], Objective::Latency) {
            Ok(fitted) => fitted,
            Err(error) => {
                // Requests may be such that no plan has them.
                let may_be = error.code() == Code::ResourceExhausted || asks && error.code() == Code::Unimplemented;
                prop_assert!(may_be, "{}", error);
                return Ok(());
            }
        };
        let chosen = fitted.tried.last().unwrap();
        prop_assert!(chosen.seconds <= seconds(&fitted, |how| *how == How::TensorFlow), "{:?}", fitted.tried);
        let least = fitted.least.map_or(0.0, |least| least.seconds(Objective::Latency));
        prop_assert!(chosen.seconds >= least * (1.0 - 1e-6), "{} {:?}", least, fitted.tried);
        let name = |node| devices.specs()[fitted.placement.devices[node].index()].name.to_string();
        let stands = |node: &NodeId| !stands_with_data(&session.graph().node(*node).op);
        let nodes = || session.graph().nodes().ids().filter(stands);
        let assigned: BTreeMap<_, _> = nodes().map(|node| (node, name(node))).collect();
        let again = place(session.graph(), &registry(), devices.specs(), &PlaceOptions { assigned, ..PlaceOptions::new(soft) }).unwrap();
        prop_assert!(nodes().all(|node| again.devices[node] == fitted.placement.devices[node]), "{:?}", fitted.placement);
        let is_hard = place(&graph, &registry(), devices.specs(), &PlaceOptions::new(false)).is_ok();
        let broken = broken(session.graph(), &devices, &tensorflow, is_hard, &fitted.placement);
        prop_assert!(broken.is_empty(), "{:?}", broken);
        let x = input([segments::ROWS, segments::COLUMNS]);
        let placed = session.with_placement(fitted.placement.clone()).unwrap();
        let got = run(&placed, &x, "result:0", &["changes"]);
        for (report, need) in devices.report().iter().zip(fitted.footprint.needs()) {
            prop_assert!(report.limit.is_none_or(|limit| report.peak <= limit) && report.peak <= need.peak, "{:?} {:?}", report, need);
        }
        let processor = Devices::open(&Options::new().intra_op(1)).unwrap();
        prop_assert_eq!(got, run(&open(&processor, &plain.graph), &x, "result:0", &["changes"]));
    }
}
