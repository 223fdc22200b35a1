//! The invariants of every placement, on graphs made at random.

use std::collections::BTreeSet;

use plimsoll_base::{Code, DataType};
use plimsoll_device::{DeviceKind, DeviceName, DeviceSpec, InstructionSet};
use plimsoll_graph::id::Id;
use plimsoll_graph::{ArgDef, AttrValue, Attrs, FuncRef, FunctionDef, Graph, GraphDef, Library, NodeDef, NodeId, OpDef, OpTable};
use plimsoll_kernels::CpuKernels;
use plimsoll_ops::{KernelRegistry, Registry};
use plimsoll_plan::{PlaceOptions, Placement, Why, place};
use proptest::prelude::*;
use std::sync::Arc;

/// Signature, and the device types with kernels.
const OPS: &[(&str, &str)] = &[
    ("Source() -> (o:float) | |", "CPU | GPU"),
    ("Work(a:float, b:float) -> (o:float) | |", "CPU | GPU"),
    ("WorkCpu(a:float, b:float) -> (o:float) | |", "CPU"),
    ("WorkGpu(a:float, b:float) -> (o:float) | |", "GPU"),
    ("Prefers(a:float, b:float) -> (o:float) | |", "CPU 2 | GPU 1"),
    ("Var() -> (o:ref float) | |", "CPU | GPU"),
    ("Write(v:ref float, a:float) -> (o:float) | |", "CPU | GPU"),
    ("WriteCpu(v:ref float, a:float) -> (o:float) | |", "CPU"),
    ("Handle() -> (o:resource) | |", "CPU | GPU"),
    ("Use(h:resource, a:float) -> (o:float) | |", "CPU | GPU"),
    ("Shape(input:float) -> (output:float) | |", "CPU | GPU"),
    ("Identity(input:float) -> (output:float) | |", "CPU | GPU"),
];

const DEVICES: &[&str] =
    &["", "", "", "", "/cpu:0", "/device:CPU:1", "/gpu:0", "/device:GPU:1", "/device:GPU", "/job:a", "/device:GPU:7", "/task:1"];

fn registry() -> Registry {
    let (mut table, mut kernels) = (OpTable::empty(), KernelRegistry::empty());
    for (signature, devices) in OPS {
        table.insert_line(signature).unwrap();
        kernels.insert_line(&format!("{} | {devices}", signature.split('(').next().unwrap())).unwrap();
    }
    Registry::with_table(table).with_kernels(kernels)
}

fn devices(gpus: u32) -> Vec<DeviceSpec> {
    let name = |kind: &str, index| DeviceName::full("a", 0, 0, kind, index);
    let cpus = (0..2).map(|index| DeviceSpec { name: name("CPU", index), ..DeviceSpec::cpu(0, None, 1, InstructionSet::Baseline) });
    let gpu =
        |index| DeviceSpec { name: name("GPU", index), kind: DeviceKind::Gpu, ..DeviceSpec::cpu(0, None, 1, InstructionSet::Baseline) };
    cpus.chain((0..gpus).map(gpu)).collect()
}

/// A node: its operation, the places of its inputs among earlier nodes, the device it asks for, the node that it stands with.
type Sketch = (usize, [usize; 2], usize, Option<usize>);

fn build(sketches: &[Sketch], registry: &Registry) -> Graph {
    let mut nodes: Vec<NodeDef> = Vec::new();
    let find = |nodes: &[NodeDef], output: DataType, is_ref: bool, choice: usize| {
        let gives = |node: &&NodeDef| {
            let types = registry.table().get(&node.op).unwrap().output_types(&node.attrs).unwrap();
            types[0].base == output && (!is_ref || types[0].is_ref)
        };
        let found: Vec<&NodeDef> = nodes.iter().filter(gives).collect();
        found.get(choice % found.len().max(1)).map(|node| node.name.clone())
    };
    for (op, inputs, device, with) in sketches {
        let signature = OPS[op % OPS.len()].0;
        let op = signature.split('(').next().unwrap();
        let wanted = registry.table().get(op).unwrap().input_types(&Default::default()).unwrap();
        let given: Option<Vec<String>> =
            wanted.iter().zip(inputs).map(|(arg, choice)| find(&nodes, arg.base, arg.is_ref, *choice)).collect();
        let Some(inputs) = given else { continue };
        let mut node = NodeDef {
            name: format!("n{}", nodes.len()),
            op: op.to_string(),
            inputs,
            device: DEVICES[device % DEVICES.len()].to_string(),
            ..NodeDef::default()
        };
        if let Some(with) = with.filter(|_| !nodes.is_empty()) {
            node.attrs.insert("_class".into(), AttrValue::texts(&[format!("loc:@{}", nodes[with % nodes.len()].name)]));
        }
        nodes.push(node);
    }
    Graph::resolve(GraphDef { nodes, ..GraphDef::default() }, registry.table()).unwrap()
}

fn check(graph: &Graph, registry: &Registry, specs: &[DeviceSpec], placement: &Placement, soft: bool) {
    let name = |id: NodeId| &specs[placement.devices[id].index()].name;
    let mut generators = false;
    assert_eq!(placement.order.iter().copied().collect::<BTreeSet<_>>().len(), graph.nodes().len(), "every node once");
    for &id in &placement.order {
        let def = registry.table().get(&graph.node(id).op).unwrap();
        let is_generator = def.inputs.is_empty() && !def.outputs[0].is_ref;
        assert!(is_generator || !generators, "generators come last");
        generators |= is_generator;
    }
    for (id, node) in graph.nodes().iter() {
        let kind = name(id).kind.clone().unwrap();
        assert!(registry.kernels().find(&node.op, &kind, &node.attrs).unwrap().kernel.is_some(), "{} has no kernel on {kind}", node.op);
        let def = registry.table().get(&node.op).unwrap();
        let mut tied = node.inputs.iter().zip(&def.inputs).filter(|(_, arg)| arg.is_ref || arg.data_type == DataType::Resource.number());
        let first = tied.next();
        if let Some((source, _)) = first {
            assert_eq!(name(id), name(source.node), "the ends of a reference or resource edge");
        }
        if let (false, Some(AttrValue::List(classes))) = (soft, node.attrs.get("_class")) {
            let label = String::from_utf8(classes.bytes[0].clone()).unwrap();
            let other = graph.find(label.strip_prefix("loc:@").unwrap()).unwrap();
            assert_eq!(name(id), name(other), "{} stands with {label}", node.name);
        }
        let asked = DeviceName::parse(&node.device).unwrap();
        let has_what_it_asks = name(id).satisfies(&asked);
        // Without soft placement only an edge that carries a reference or a resource overrules a request.
        if !soft && first.is_none() && matches!(placement.why[id], Why::Default | Why::OnlyKernel(_) | Why::Priority(_) | Why::Softened(_))
        {
            assert!(has_what_it_asks, "{} asks for {}", node.name, node.device);
        }
        match &placement.why[id] {
            Why::Requested => assert!(has_what_it_asks && !node.device.is_empty()),
            Why::Softened(device) => assert!(soft && *device == node.device && !has_what_it_asks),
            Why::Colocated(other) | Why::Shares(other) | Why::Follows(other) => assert_eq!(name(id), name(*other)),
            Why::OnlyKernel(wanted) | Why::Priority(wanted) => assert_eq!(*wanted, kind),
            Why::Default => assert!(node.device.is_empty()),
            why => panic!("nothing was assigned, nothing is control flow: {why:?}"),
        }
    }
}

/// `name(x: resource) -> (y: resource)`, which hands it through these functions one after the other.
fn handing(name: &str, through: &[String]) -> FunctionDef {
    let arg = |name: &str| ArgDef { name: name.into(), data_type: DataType::Resource.number(), ..ArgDef::default() };
    let signature = OpDef { name: name.into(), inputs: vec![arg("x")], outputs: vec![arg("y")], ..OpDef::default() };
    let (mut nodes, mut last) = (Vec::new(), "x".to_string());
    for (at, function) in through.iter().enumerate() {
        nodes.push(handed(&format!("c{at}"), function, &last));
        last = format!("c{at}:output:0");
    }
    FunctionDef { signature, nodes, ret: [("y".to_string(), last)].into(), ..FunctionDef::default() }
}

/// A call of such a function.
fn handed(name: &str, function: &str, input: &str) -> NodeDef {
    let func = AttrValue::Func(FuncRef { name: function.into(), attrs: Attrs::new() });
    let types = || AttrValue::data_types(&[DataType::Resource]);
    let attrs = [("Tin".to_string(), types()), ("Tout".to_string(), types()), ("f".to_string(), func)].into();
    NodeDef { name: name.into(), op: "PartitionedCall".into(), inputs: vec![input.into()], attrs, ..NodeDef::default() }
}

/// Calls that return resources are looked into where a graph is placed as it is written.
#[test]
fn functions_that_return_resources_are_looked_into_within_bounds() {
    let place_all = |functions: Vec<FunctionDef>| {
        let registry = Registry::standard(Arc::new(CpuKernels));
        let handle = AttrValue::data_type(DataType::Resource);
        let arg = [("T".to_string(), handle), ("index".to_string(), AttrValue::Int(0))].into();
        let arg = NodeDef { name: "a".into(), op: "_Arg".into(), attrs: arg, ..NodeDef::default() };
        let library = Library { functions, ..Library::default() };
        let def = GraphDef { nodes: vec![arg, handed("y", "f0", "a")], library, ..GraphDef::default() };
        let graph = Graph::resolve(def, registry.table()).unwrap();
        place(&graph, &registry, &[DeviceSpec::cpu(0, None, 1, InstructionSet::Baseline)], &PlaceOptions::new(false))
    };
    let chain = |count: usize, times: usize| -> Vec<FunctionDef> {
        let level = |at: usize| handing(&format!("f{at}"), &vec![format!("f{}", at + 1); times]);
        (0..count).map(level).chain([handing(&format!("f{count}"), &[])]).collect()
    };
    place_all(chain(190, 1)).unwrap();
    let deep = place_all(chain(1000, 1)).unwrap_err();
    assert!(deep.code() == Code::Unimplemented && deep.message().contains("200 deep"), "{deep}");
    let wide = place_all(chain(30, 2)).unwrap_err();
    assert!(wide.code() == Code::InvalidArgument && wide.message().contains("function 'f0'"), "{wide}");
}

/// Mostly nothing, often a device that is there, seldom one that is not.
fn asked() -> impl Strategy<Value = usize> {
    prop_oneof![60 => 0usize..4, 20 => 4usize..10, 1 => 10usize..DEVICES.len()]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn placements_respect_kernels_edges_requests_and_groups(
        sketches in prop::collection::vec(
            (0..OPS.len(), [any::<usize>(), any::<usize>()], asked(), prop::option::weighted(0.1, any::<usize>())),
            1..25,
        ),
        gpus in 0u32..12,
        soft: bool,
    ) {
        let registry = registry();
        let graph = build(&sketches, &registry);
        let specs = devices(gpus);
        let options = PlaceOptions { log: true, ..PlaceOptions::new(soft) };
        let placed = place(&graph, &registry, &specs, &options);
        prop_assert_eq!(format!("{placed:?}"), format!("{:?}", place(&graph, &registry, &specs, &options)));
        match placed {
            Ok(placement) => check(&graph, &registry, &specs, &placement, soft),
            Err(error) => {
                prop_assert_eq!(error.code(), Code::InvalidArgument);
                prop_assert!(graph.find(error.node().expect("a node is named")).is_some());
            }
        }
    }

    /// If no node asks for another process, no kernel is missing, and no two resources meet, softly everything has a place.
    #[test]
    fn soft_placement_finds_a_place_for_everything(
        sketches in prop::collection::vec((0..2usize, [any::<usize>(), any::<usize>()], 0..DEVICES.len() - 1, prop::option::weighted(0.3, any::<usize>())), 1..40),
        gpus in 0u32..3,
    ) {
        let registry = registry();
        let graph = build(&sketches, &registry);
        let specs = devices(gpus);
        let placement = place(&graph, &registry, &specs, &PlaceOptions::new(true)).unwrap();
        check(&graph, &registry, &specs, &placement, true);
    }
}
