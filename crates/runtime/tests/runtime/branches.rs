//! Nodes that run only sometimes: dead tensors as TensorFlow has them, on one device and on several.

use std::sync::Arc;

use plimsoll_base::{Code, DataType};
use plimsoll_cards::Options;
use plimsoll_graph::{AttrValue, HostTensor, NodeId, Output, PartialShape, Shape};
use plimsoll_kernels::CpuKernels;
use plimsoll_ops::builder::Initializer;
use plimsoll_ops::{GraphBuilder, Registry};
use plimsoll_runtime::{Devices, Session};
use proptest::prelude::*;

fn builder() -> GraphBuilder {
    GraphBuilder::new(Arc::new(Registry::standard(Arc::new(CpuKernels))))
}

fn open(builder: GraphBuilder, cpus: i32) -> Session {
    let registry = builder.registry().clone();
    let mut options = Options::new();
    options.device_count.insert("CPU".into(), cpus);
    Session::new(&Devices::open(&options).unwrap(), &builder.finish(), registry).unwrap()
}

fn bool_of(value: bool) -> HostTensor {
    HostTensor::from_bools(Shape::scalar(), &[value]).unwrap()
}

fn placeholder(b: &mut GraphBuilder, name: &str, data_type: DataType) -> Output {
    b.placeholder(name, data_type, PartialShape::unknown()).build().unwrap()
}

fn output(node: NodeId, index: u32) -> Output {
    Output { node, index }
}

/// `[false, true]` sides of a Switch.
fn switch(b: &mut GraphBuilder, data: Output, predicate: Output) -> [Output; 2] {
    let node = b.op("Switch").inputs([data, predicate]).build_node().unwrap();
    [output(node, 0), output(node, 1)]
}

fn merge(b: &mut GraphBuilder, inputs: &[Output], name: &str) -> Output {
    let node = b.op("Merge").inputs(inputs.iter().copied()).attr("N", AttrValue::Int(inputs.len() as i64)).name(name).build_node().unwrap();
    output(node, 0)
}

#[test]
fn only_the_side_that_is_taken_runs() {
    for cpus in [1, 3] {
        let mut b = builder();
        let (x, p) = (placeholder(&mut b, "x", DataType::Int32), placeholder(&mut b, "p", DataType::Bool));
        let [no, yes] = switch(&mut b, x, p);
        // Faults if it runs.
        let zero = b.op("Sub").inputs([yes, yes]).device("/cpu:1").build().unwrap();
        let broken = b.op("FloorDiv").inputs([yes, zero]).device("/cpu:1").build().unwrap();
        let twice = b.op("Add").inputs([no, no]).device("/cpu:2").build().unwrap();
        let merged = merge(&mut b, &[broken, twice], "merged");
        b.identity(merged).name("y").build().unwrap();
        let session = open(b, cpus);
        let x = HostTensor::scalar(21i32);
        let run = |p| session.run(&[("x", &x), ("p", &bool_of(p))], &["y", "merged:1"], &[]);
        let results = run(false).unwrap();
        assert_eq!((results[0].to_vec::<i32>().unwrap(), results[1].to_vec::<i32>().unwrap()), (vec![42], vec![1]));
        let error = run(true).unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument, "{error}");
        assert!(!error.to_string().contains("Retval"), "{error}");
    }
}

#[test]
fn a_dead_fetch_is_an_error_whether_or_not_it_is_known_before() {
    let mut b = builder();
    let (x, p) = (placeholder(&mut b, "x", DataType::Float), placeholder(&mut b, "p", DataType::Bool));
    let [_, yes] = switch(&mut b, x, p);
    b.relu(yes).name("y").build().unwrap();
    let never = b.constant(bool_of(false)).build().unwrap();
    let [_, dead] = switch(&mut b, x, never);
    b.relu(dead).name("z").build().unwrap();
    b.identity(p).name("p2").build().unwrap();
    let session = open(b, 1);
    let x = HostTensor::scalar(3f32);
    assert_eq!(session.run(&[("x", &x), ("p", &bool_of(true))], &["y"], &[]).unwrap()[0].to_vec::<f32>().unwrap(), [3.0]);
    for (fetches, message) in [(["p2", "y"], "Retval[1] does not have value"), (["z", "p2"], "Retval[0] does not have value")] {
        let error = session.run(&[("x", &x), ("p", &bool_of(false))], &fetches, &[]).unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
        assert!(error.to_string().contains(message), "{error}");
    }
}

#[test]
fn death_goes_through_control_edges_but_not_through_a_trigger() {
    let mut b = builder();
    let p = placeholder(&mut b, "p", DataType::Bool);
    let [_, yes] = switch(&mut b, p, p);
    let pivot = b.identity(yes).build().unwrap();
    let count = b.get_variable("count", DataType::Float, [], &Initializer::Zeros).unwrap();
    let one = b.scalar(1f32).unwrap();
    b.op("AssignAdd").inputs([count.handle, one]).control(pivot.node).name("counted").build_node().unwrap();
    let trigger = b.op("ControlTrigger").control(pivot.node).build_node().unwrap();
    b.op("AssignSub").inputs([count.handle, one]).control(trigger).name("always").build_node().unwrap();
    b.global_variables_initializer().unwrap();
    let session = open(b, 2);
    session.run(&[], &[], &["init"]).unwrap();
    for (p, target, expected) in [(true, "counted", 1.0), (false, "counted", 1.0), (false, "always", 0.0), (true, "counted", 1.0)] {
        session.run(&[("p", &bool_of(p))], &[], &[target]).unwrap();
        assert_eq!(session.read_variable("count").unwrap().to_vec::<f32>().unwrap(), [expected], "{p} {target}");
    }
}

/// `v` is assigned, and `w` from `u`, which is never initialised, on the sides of a branch.
#[test]
fn variables_are_initialised_where_the_assignment_ran() {
    let mut b = builder();
    let (x, p) = (placeholder(&mut b, "x", DataType::Float), placeholder(&mut b, "p", DataType::Bool));
    let [no, yes] = switch(&mut b, x, p);
    let [v, u, w] = ["v", "u", "w"].map(|name| b.get_variable(name, DataType::Float, [2], &Initializer::Zeros).unwrap());
    let assigned = b.op("Assign").inputs([v.handle, yes]).name("assign").build_node().unwrap();
    let pivot = b.identity(no).build().unwrap();
    let read = b.op("Identity").input(u.handle).control(pivot.node).build().unwrap();
    let copied = b.op("Assign").inputs([w.handle, read]).name("copy").build_node().unwrap();
    b.group(&[assigned, copied], "both").unwrap();
    let is_initialized = b.op("IsVariableInitialized").input(v.handle).name("is_v").build().unwrap();
    let known = b.op("RefSwitch").inputs([v.handle, is_initialized]).build_node().unwrap();
    b.identity(output(known, 1)).name("guarded").build().unwrap();
    let session = open(b, 1);
    let x = HostTensor::from_slice([2], &[1f32, 2.0]).unwrap();
    let feeds = |p: &HostTensor| [("x", x.clone()), ("p", p.clone())];
    let run = |p: bool, fetches: &[&str], targets: &[&str]| {
        let [a, b] = feeds(&bool_of(p));
        session.run(&[(a.0, &a.1), (b.0, &b.1)], fetches, targets)
    };
    session.write_variable("w", &HostTensor::from_slice([2], &[5f32, 6.0]).unwrap()).unwrap();
    run(false, &[], &["assign"]).unwrap();
    let uninitialised = run(false, &["v"], &[]).unwrap_err();
    assert_eq!(uninitialised.code(), Code::FailedPrecondition, "{uninitialised}");
    let dead = run(false, &["guarded"], &[]).unwrap_err();
    assert!(dead.to_string().contains("does not have value"), "{dead}");
    let read = run(false, &[], &["both"]).unwrap_err();
    assert_eq!(read.code(), Code::FailedPrecondition, "{read}");
    assert_eq!(session.read_variable("w").unwrap().to_vec::<f32>().unwrap(), [5.0, 6.0]);
    run(true, &[], &["both"]).unwrap();
    assert_eq!(run(false, &["guarded", "v"], &[]).unwrap()[0].to_vec::<f32>().unwrap(), [1.0, 2.0]);
}

#[derive(Clone, Debug)]
enum Step {
    Switch(usize, usize),
    Merge(usize, usize, usize),
    Add(usize, usize),
    /// A variable grows by a value; the result is its value then.
    Count(usize, usize),
    /// A new tensor that waits for one.
    After(usize, usize),
    Less(usize, usize),
}

fn step() -> impl Strategy<Value = Step> {
    let at = 0usize..100;
    prop_oneof![
        3 => (at.clone(), at.clone()).prop_map(|(a, b)| Step::Switch(a, b)),
        3 => (at.clone(), at.clone(), at.clone()).prop_map(|(a, b, c)| Step::Merge(a, b, c)),
        2 => (at.clone(), at.clone()).prop_map(|(a, b)| Step::Add(a, b)),
        2 => (at.clone(), at.clone()).prop_map(|(a, b)| Step::Count(a, b)),
        1 => (at.clone(), at.clone()).prop_map(|(a, b)| Step::After(a, b)),
        1 => (at.clone(), at).prop_map(|(a, b)| Step::Less(a, b)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// Random graphs against an interpreter of TensorFlow's rules, for all values of the predicates.
    #[test]
    fn random_branches_live_and_die_as_in_tensorflow(steps in prop::collection::vec(step(), 1..24), cpus in 1i32..4, places in prop::collection::vec(0usize..3, 24)) {
        let mut b = builder();
        let fed: Vec<Output> = ["p", "q", "r"].into_iter().map(|name| placeholder(&mut b, name, DataType::Bool)).collect();
        let x = placeholder(&mut b, "x", DataType::Float);
        let counts: Vec<_> = ["c", "d"].into_iter().map(|name| b.get_variable(name, DataType::Float, [], &Initializer::Zeros).unwrap()).collect();
        let mut bools = fed.clone();
        let mut floats = vec![x];
        // The kind of each tensor, by number of the step: how to interpret it.
        for (index, step) in steps.iter().enumerate() {
            let device = format!("/cpu:{}", places[index] % cpus as usize);
            let pick = |from: &[Output], at: usize| from[at % from.len()];
            match *step {
                Step::Switch(a, p) => {
                    let node = b.op("Switch").inputs([pick(&floats, a), pick(&bools, p)]).device(&device).build_node().unwrap();
                    floats.extend([output(node, 0), output(node, 1)]);
                }
                Step::Merge(u, v, w) => {
                    let inputs = [u, v, w].map(|at| pick(&floats, at));
                    let node = b.op("Merge").inputs(inputs).attr("N", AttrValue::Int(3)).device(&device).build_node().unwrap();
                    floats.push(output(node, 0));
                }
                Step::Add(u, v) => floats.push(b.op("AddV2").inputs([pick(&floats, u), pick(&floats, v)]).device(&device).build().unwrap()),
                Step::Count(c, v) => {
                    let node = b.op("AssignAdd").inputs([counts[c % 2].handle, pick(&floats, v)]).build_node().unwrap();
                    floats.push(b.op("Identity").input(output(node, 0)).build().unwrap());
                }
                Step::After(u, v) => floats.push(b.op("Identity").input(pick(&floats, u)).control(pick(&floats, v).node).device(&device).build().unwrap()),
                Step::Less(u, v) => bools.push(b.op("Less").inputs([pick(&floats, u), pick(&floats, v)]).device(&device).build().unwrap()),
            }
        }
        b.global_variables_initializer().unwrap();
        let graph = b.graph().clone();
        let all: Vec<Output> = floats[1..].iter().chain(&bools[3..]).copied().collect();
        let targets: Vec<String> = all.iter().map(|output| graph.node(output.node).name.clone()).collect();
        let session = open(b, cpus);
        for world in 0..8u32 {
            session.run(&[], &[], &["init"]).unwrap();
            let predicates: Vec<HostTensor> = (0..3).map(|bit| bool_of(world >> bit & 1 == 1)).collect();
            let x = HostTensor::scalar(2.5f32);
            let feeds = [("p", &predicates[0]), ("q", &predicates[1]), ("r", &predicates[2]), ("x", &x)];
            let expected = interpret(&graph, world, 2.5);
            // Everything runs, for all fetches.
            let targets: Vec<&str> = targets.iter().map(String::as_str).collect();
            let alive: Vec<Output> = all.iter().copied().filter(|tensor| expected.values.contains_key(tensor)).collect();
            let names: Vec<String> = alive.iter().map(|tensor| graph.tensor_name(*tensor)).collect();
            let results = session.run(&feeds, &names.iter().map(String::as_str).collect::<Vec<_>>(), &targets).unwrap();
            for (tensor, result) in alive.iter().zip(results) {
                let got = if result.data_type() == DataType::Bool { f32::from(result.bytes().unwrap()[0]) } else { result.to_vec::<f32>().unwrap()[0] };
                prop_assert_eq!(got, expected.values[tensor], "{} in world {}", graph.tensor_name(*tensor), world);
            }
            for (name, count) in ["c", "d"].into_iter().zip(expected.counts) {
                prop_assert_eq!(session.read_variable(name).unwrap().to_vec::<f32>().unwrap()[0], count, "{} in world {}", name, world);
            }
            if let Some(dead) = all.iter().find(|tensor| !expected.values.contains_key(tensor)) {
                // From the beginning: the variables have moved on, and with them the dead tensors.
                session.run(&[], &[], &["init"]).unwrap();
                let error = session.run(&feeds, &[&graph.tensor_name(*dead)], &targets).unwrap_err();
                prop_assert!(error.to_string().contains("does not have value"), "{}", error);
            }
        }
    }
}

struct Expected {
    /// The tensors that are alive.
    values: std::collections::HashMap<Output, f32>,
    counts: [f32; 2],
}

/// Runs every node in the graph's order, dead tensors as TensorFlow has them.
fn interpret(graph: &plimsoll_graph::Graph, world: u32, x: f32) -> Expected {
    let mut values = std::collections::HashMap::new();
    let mut ran = std::collections::HashSet::new();
    let mut counts = [0f32; 2];
    let number = |name: &str| ["c", "d"].iter().position(|other| *other == name);
    for id in graph.topological().unwrap() {
        let node = graph.node(id);
        let is_init = node.name.starts_with("init") || node.name.ends_with("/Assign") || node.op == "Const" || node.op == "VariableV2";
        if is_init {
            continue;
        }
        if let Some(bit) = ["p", "q", "r"].iter().position(|name| *name == node.name) {
            values.insert(output(id, 0), (world >> bit & 1) as f32);
            ran.insert(id);
            continue;
        }
        if node.name == "x" {
            values.insert(output(id, 0), x);
            ran.insert(id);
            continue;
        }
        let variable = |input: &Output| number(&graph.node(input.node).name).filter(|_| graph.node(input.node).op == "VariableV2");
        let given: Vec<Option<f32>> =
            node.inputs.iter().map(|input| variable(input).map(|at| counts[at]).or(values.get(input).copied())).collect();
        if node.op == "Merge" {
            if let Some(first) = given.iter().flatten().next() {
                values.insert(output(id, 0), *first);
                ran.insert(id);
            }
            continue;
        }
        if given.iter().any(Option::is_none) || node.controls.iter().any(|control| !ran.contains(control)) {
            continue;
        }
        ran.insert(id);
        let given: Vec<f32> = given.into_iter().flatten().collect();
        match node.op.as_str() {
            "Switch" => values.insert(output(id, u32::from(given[1] != 0.0)), given[0]),
            "AddV2" => values.insert(output(id, 0), given[0] + given[1]),
            "Less" => values.insert(output(id, 0), f32::from(u8::from(given[0] < given[1]))),
            "AssignAdd" => {
                let at = variable(&node.inputs[0]).unwrap();
                counts[at] += given[1];
                values.insert(output(id, 0), counts[at])
            }
            "Identity" => values.insert(output(id, 0), given[0]),
            other => panic!("{other}"),
        };
    }
    Expected { values, counts }
}
