//! Planning graphs that are made here: seconds for each step from nodes to a loaded program, and microseconds a node.
//!
//!     cargo run --release --manifest-path bench/Cargo.toml --bin plan -- [SHAPE] [NODES…]
//!
//! Every shape of graph at 10,000, 100,000 and 1,000,000 nodes, if nothing else is said. A cost that grows faster than the graph
//! shows in the last column.

use std::time::Instant;

use plimsoll_device::interpret::Loaded;
use plimsoll_device::{Costs, DeviceSpec, InstructionSet, Library};
use plimsoll_graph::{
    ArgDef, AttrList, AttrValue, Attrs, FuncRef, FunctionDef, Graph, GraphDef, Library as Functions, NodeDef, OpDef, PartialShape, Shape,
};
use plimsoll_kernels::CpuKernels;
use plimsoll_ops::Registry;
use plimsoll_plan::{Feed, Lines, PlaceOptions, Request, Signature, inline, place, plan};
use std::sync::Arc;

/// A graph, and the targets of its run.
#[derive(Default)]
struct Made {
    nodes: Vec<NodeDef>,
    functions: Vec<FunctionDef>,
    feeds: Vec<String>,
    fetches: Vec<String>,
    targets: Vec<String>,
}

type Shaped = (&'static str, fn(usize) -> Made);

const SHAPES: [Shaped; 15] = [
    ("chain", chain),
    ("fan", fan),
    ("fan of chains", fan_of_chains),
    ("tree", tree),
    ("addn", addn),
    ("diamonds", diamonds),
    ("variables", variables),
    ("readers", readers),
    ("late readers", late_readers),
    ("constants", constants),
    ("copies", copies),
    ("fetches", fetches),
    ("feeds", feeds),
    ("calls", calls),
    ("calls in calls", calls_in_calls),
];

fn main() -> plimsoll::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let named = arguments.iter().find(|word| word.parse::<usize>().is_err());
    let mut counts: Vec<usize> = arguments.iter().filter_map(|word| word.parse().ok()).collect();
    if counts.is_empty() {
        counts = vec![10_000, 100_000, 1_000_000];
    }
    let registry = Arc::new(Registry::standard(Arc::new(CpuKernels)));
    let devices = [0, 1].map(|index| DeviceSpec::cpu(index, None, 1, InstructionSet::Baseline));
    println!(
        "{:14} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "shape", "nodes", "resolve", "inline", "place", "plan", "load", "text", "us/node"
    );
    for (name, make) in SHAPES.iter().filter(|(name, _)| named.is_none_or(|wanted| wanted == name)) {
        for &count in &counts {
            let Made { nodes, functions, feeds, fetches, targets } = make(count);
            let mut times = Vec::new();
            let mut last = Instant::now();
            let mut note = |times: &mut Vec<f64>| {
                times.push(last.elapsed().as_secs_f64());
                last = Instant::now();
            };
            let library = Functions { functions, ..Functions::default() };
            let graph = Graph::resolve(GraphDef { nodes, library, ..GraphDef::default() }, registry.table())?;
            note(&mut times);
            let graph = inline(&graph, &registry)?.graph;
            note(&mut times);
            let placement = place(&graph, &registry, &devices, &PlaceOptions::new(true))?;
            note(&mut times);
            let feed = |tensor: String| Feed { tensor, data_type: plimsoll::DataType::Float, shape: Shape::from([4]), value: None };
            let signature = Signature { feeds: feeds.into_iter().map(feed).collect(), fetches, targets, ..Signature::default() };
            let libraries = vec![&CpuKernels as &dyn Library; devices.len()];
            let request = Request {
                graph: &graph,
                registry: &registry,
                devices: &devices,
                libraries: &libraries,
                costs: &Costs::committed(),
                placement: &placement,
                lines: &Lines::NONE,
                signature: &signature,
            };
            let plan = plan(&request)?;
            note(&mut times);
            for (index, queue) in plan.queues.iter().enumerate() {
                Loaded::new(index as u32, &queue.program, 2, &devices[0], &CpuKernels)?;
            }
            note(&mut times);
            let text = plan.to_string();
            note(&mut times);
            assert!(!text.is_empty());
            let nodes = graph.nodes().len();
            let shown: Vec<String> = times.iter().map(|seconds| format!("{seconds:8.3}")).collect();
            println!("{name:14} {nodes:8} {} {:8.2}", shown.join(" "), times.iter().sum::<f64>() * 1e6 / nodes as f64);
        }
    }
    Ok(())
}

impl Made {
    fn add(&mut self, name: impl Into<String>, op: &str, inputs: Vec<String>, attrs: &[(&str, AttrValue)]) -> String {
        self.add_on("", name, op, inputs, attrs)
    }

    fn add_on(&mut self, device: &str, name: impl Into<String>, op: &str, inputs: Vec<String>, attrs: &[(&str, AttrValue)]) -> String {
        let name = name.into();
        let attrs: Attrs = attrs.iter().map(|(name, value)| (name.to_string(), value.clone())).collect();
        let (op, device) = (op.to_string(), device.to_string());
        self.nodes.push(NodeDef { name: name.clone(), op, inputs, device, attrs, ..NodeDef::default() });
        name
    }

    fn input(&mut self, name: impl Into<String>) -> String {
        let name = self.add(name, "Placeholder", vec![], &[("dtype", float()), ("shape", shape())]);
        self.feeds.push(name.clone());
        name
    }

    fn one(&mut self, name: impl Into<String>, op: &str, input: &str) -> String {
        self.add(name, op, vec![input.to_string()], &[("T", float())])
    }

    fn two(&mut self, name: impl Into<String>, op: &str, a: &str, b: &str) -> String {
        self.add(name, op, vec![a.to_string(), b.to_string()], &[("T", float())])
    }

    fn variable(&mut self, name: impl Into<String>) -> String {
        self.add(name, "VarHandleOp", vec![], &[("dtype", float()), ("shape", shape())])
    }

    fn read(&mut self, name: impl Into<String>, variable: &str) -> String {
        self.add(name, "ReadVariableOp", vec![variable.to_string()], &[("dtype", float())])
    }

    fn write(&mut self, name: impl Into<String>, variable: &str, value: &str) -> String {
        self.add(name, "AssignAddVariableOp", vec![variable.to_string(), value.to_string()], &[("dtype", float())])
    }
}

fn float() -> AttrValue {
    AttrValue::data_type(plimsoll::DataType::Float)
}

fn shape() -> AttrValue {
    AttrValue::Shape(PartialShape::from(&Shape::from([4])))
}

fn chain(count: usize) -> Made {
    let mut made = Made::default();
    let mut last = made.input("x");
    for number in 1..count {
        last = made.one(format!("n{number}"), "Neg", &last);
    }
    made.fetches.push(last);
    made
}

fn fan(count: usize) -> Made {
    let mut made = Made::default();
    let x = made.input("x");
    for number in 1..count {
        let leaf = made.one(format!("n{number}"), "Exp", &x);
        made.targets.push(leaf);
    }
    made
}

fn fan_of_chains(count: usize) -> Made {
    let mut made = Made::default();
    let x = made.input("x");
    for number in 0..count / 4 {
        let a = made.one(format!("a{number}"), "Exp", &x);
        let b = made.one(format!("b{number}"), "Softmax", &a);
        let c = made.one(format!("c{number}"), "Neg", &b);
        let d = made.two(format!("d{number}"), "Mul", &c, &x);
        made.targets.push(d);
    }
    made
}

fn tree(count: usize) -> Made {
    let mut made = Made::default();
    let x = made.input("x");
    let mut level: Vec<String> = (0..count / 2).map(|number| made.one(format!("leaf{number}"), "Softmax", &x)).collect();
    let mut number = 0;
    while level.len() > 1 {
        level = level
            .chunks(2)
            .map(|pair| match pair {
                [a, b] => {
                    number += 1;
                    made.two(format!("sum{number}"), "AddV2", a, b)
                }
                _ => pair[0].clone(),
            })
            .collect();
    }
    made.fetches.extend(level);
    made
}

fn addn(count: usize) -> Made {
    let mut made = Made::default();
    let x = made.input("x");
    let leaves: Vec<String> = (0..count).map(|number| made.one(format!("leaf{number}"), "Softmax", &x)).collect();
    let sum = made.add("sum", "AddN", leaves, &[("T", float()), ("N", AttrValue::Int(count as i64))]);
    made.fetches.push(sum);
    made
}

fn diamonds(count: usize) -> Made {
    let mut made = Made::default();
    let mut last = made.input("x");
    for number in 0..count / 3 {
        let left = made.one(format!("left{number}"), "Softmax", &last);
        let right = made.one(format!("right{number}"), "Exp", &last);
        last = made.two(format!("join{number}"), "AddV2", &left, &right);
    }
    made.fetches.push(last);
    made
}

/// Each variable is read and written.
fn variables(count: usize) -> Made {
    let mut made = Made::default();
    let x = made.input("x");
    for number in 0..count / 4 {
        let variable = made.variable(format!("v{number}"));
        let read = made.read(format!("read{number}"), &variable);
        let product = made.two(format!("product{number}"), "Mul", &read, &x);
        let write = made.write(format!("write{number}"), &variable, &product);
        made.targets.push(write);
    }
    made
}

/// A hundred writes of one variable with many readers between them.
fn readers(count: usize) -> Made {
    let mut made = Made::default();
    let x = made.input("x");
    let variable = made.variable("v");
    for version in 0..100 {
        for number in 0..count / 200 {
            let read = made.read(format!("read{version}_{number}"), &variable);
            let product = made.two(format!("product{version}_{number}"), "Mul", &read, &x);
            made.targets.push(product);
        }
        let write = made.write(format!("write{version}"), &variable, &x);
        made.targets.push(write);
    }
    made
}

/// The reader of the old value needs the new one, too.
fn late_readers(count: usize) -> Made {
    let mut made = Made::default();
    let x = made.input("x");
    let variable = made.variable("v");
    let old = made.read("old", &variable);
    let write = made.write("write", &variable, &x);
    let new = made.add("new", "ReadVariableOp", vec![variable, format!("^{write}")], &[("dtype", float())]);
    for number in 0..count / 2 {
        let soft = made.one(format!("soft{number}"), "Softmax", &new);
        let both = made.two(format!("both{number}"), "Mul", &old, &soft);
        made.targets.push(both);
    }
    made
}

fn constants(count: usize) -> Made {
    let mut made = Made::default();
    let x = made.input("x");
    for number in 0..count / 2 {
        let values: Vec<f32> = (0..4).map(|place| (number * 4 + place) as f32).collect();
        let value = plimsoll_graph::HostTensor::from_slice([4], &values).expect("four elements");
        let constant = made.add(format!("c{number}"), "Const", vec![], &[("dtype", float()), ("value", AttrValue::Tensor(value))]);
        let product = made.two(format!("product{number}"), "Mul", &x, &constant);
        made.targets.push(product);
    }
    made
}

/// Between two devices, there and back.
fn copies(count: usize) -> Made {
    let mut made = Made::default();
    let mut last = made.input("x");
    for number in 0..count / 2 {
        let device = format!("/cpu:{}", number % 2);
        last = made.add_on(&device, format!("n{number}"), "Softmax", vec![last], &[("T", float())]);
        let side = made.add_on(&device, format!("side{number}"), "Exp", vec!["x".to_string()], &[("T", float())]);
        last = if number % 64 == 0 { made.two(format!("both{number}"), "AddV2", &last, &side) } else { last };
    }
    made.fetches.push(last);
    made
}

fn fetches(count: usize) -> Made {
    let mut made = Made::default();
    let x = made.input("x");
    for number in 1..count {
        let leaf = made.one(format!("n{number}"), "Softmax", &x);
        made.fetches.push(leaf);
    }
    made
}

fn feeds(count: usize) -> Made {
    let mut made = Made::default();
    for number in 0..count / 2 {
        let x = made.input(format!("x{number}"));
        let leaf = made.one(format!("n{number}"), "Softmax", &x);
        made.fetches.push(leaf);
    }
    made
}

/// A call of a function of one vector.
fn call(made: &mut Made, name: String, function: &str, input: &str) -> String {
    let types = || AttrValue::List(Box::new(AttrList { types: vec![1], ..AttrList::default() }));
    let func = AttrValue::Func(FuncRef { name: function.to_string(), attrs: Attrs::new() });
    made.add(name, "PartitionedCall", vec![input.to_string()], &[("Tin", types()), ("Tout", types()), ("f", func)])
}

/// `name(x) -> (y)`.
fn function(name: &str, nodes: Vec<NodeDef>, result: &str) -> FunctionDef {
    let arg = |name: &str| ArgDef { name: name.to_string(), data_type: 1, ..ArgDef::default() };
    let signature = OpDef { name: name.to_string(), inputs: vec![arg("x")], outputs: vec![arg("y")], ..OpDef::default() };
    FunctionDef { signature, nodes, ret: [("y".to_string(), result.to_string())].into(), ..FunctionDef::default() }
}

/// A function of eight nodes.
fn eight() -> FunctionDef {
    let mut body = Made::default();
    let mut last = "x".to_string();
    for number in 0..8 {
        body.one(format!("n{number}"), "Neg", &last);
        last = format!("n{number}:y:0");
    }
    function("eight", body.nodes, &last)
}

/// Calls in a row.
fn calls(count: usize) -> Made {
    let mut made = Made { functions: vec![eight()], ..Made::default() };
    let mut last = made.input("x");
    for number in 0..count / 9 {
        last = call(&mut made, format!("call{number}"), "eight", &last);
    }
    made.fetches.push(last);
    made
}

/// Functions that each call the next one twice.
fn calls_in_calls(count: usize) -> Made {
    let mut made = Made { functions: vec![eight()], ..Made::default() };
    let (mut callee, mut nodes) = ("eight".to_string(), 9);
    while nodes < count {
        let mut body = Made::default();
        call(&mut body, "first".to_string(), &callee, "x");
        call(&mut body, "second".to_string(), &callee, "first:output:0");
        callee = format!("twice{}", made.functions.len());
        made.functions.push(function(&callee, body.nodes, "second:output:0"));
        nodes = 2 * nodes + 1;
    }
    let x = made.input("x");
    let last = call(&mut made, "call".to_string(), &callee, &x);
    made.fetches.push(last);
    made
}
