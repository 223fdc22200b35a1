//! Placing large graphs by predicted time: seconds and user seconds for sessions that are placed by TensorFlow's rules and planned, and by
//! `--placement auto`, with the milliseconds of a step by both.
//!
//!     cargo run --release --manifest-path bench/Cargo.toml --bin auto -- [--write FOLDER] [NAMES…] [NODES…]
//!
//! Graphs of 10,000 and 50,000 nodes, if nothing else is said, on four simulated cards: products and elementwise nodes at random, and
//! recurrent networks of two layers, unrolled; and of a tenth of the nodes, one loop and eight loops. Written graphs are for `plimsoll plan FOLDER/NAME.pb --fetch y --sim-gpus 4x4GiB,speed=1
//! --placement auto`; unrolled ones read variables, which `--init init` sets.

use std::collections::VecDeque;
use std::time::Instant;

use plimsoll::{DataType, Devices, Options, PlacementMode, Signature};
use plimsoll_base::Random;
use plimsoll_formats::write_graph_def;
use plimsoll_graph::{AttrValue, Attrs, Graph, GraphDef, HostTensor, NodeDef, PartialShape, Shape};
use plimsoll_kernels::CpuKernels;
use plimsoll_ops::Registry;

/// Rows and columns of all matrices of random graphs, and of states and weights of unrolled networks.
const WIDTH: u64 = 512;

fn main() -> plimsoll::Result<()> {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let folder = words.iter().position(|word| word == "--write").map(|at| words.drain(at..at + 2).nth(1).expect("a folder"));
    let (counts, names): (Vec<String>, Vec<String>) = words.into_iter().partition(|word| word.parse::<usize>().is_ok());
    let mut counts: Vec<usize> = counts.iter().filter_map(|word| word.parse().ok()).collect();
    if counts.is_empty() {
        counts = vec![10_000, 50_000];
    }
    println!(
        "{:10} {:>8} {:>12} {:>7} {:>9} {:>7} {:>7} {:>9}",
        "graph", "nodes", "tensorflow s", "user s", "step ms", "auto s", "user s", "step ms"
    );
    for count in counts {
        let loops = [("loop", looped(count / 10, 1)), ("loops", looped(count / 10, 8))];
        for (name, made) in [("random", random(count)), ("unrolled", unrolled(count))].into_iter().chain(loops) {
            if !names.is_empty() && !names.iter().any(|wanted| wanted == name) {
                continue;
            }
            let def = GraphDef { nodes: made, ..GraphDef::default() };
            if let Some(folder) = &folder {
                std::fs::write(format!("{folder}/{name}{count}.pb"), write_graph_def(&def)).expect("the graph can be written");
            }
            let nodes = def.nodes.len();
            let mut line = format!("{name:10} {nodes:8}");
            for mode in [PlacementMode::TensorFlow, PlacementMode::Auto] {
                let Seconds { wall, user, step } = placed(def.clone(), mode)?;
                let width = if mode == PlacementMode::Auto { 7 } else { 12 };
                line += &format!(" {wall:width$.2} {user:7.2} {:9.3}", step * 1e3);
            }
            println!("{line}");
        }
    }
    Ok(())
}

/// Seconds and user seconds from a graph to the plan of a step, and the predicted seconds of that step.
struct Seconds {
    wall: f64,
    user: f64,
    step: f64,
}

fn placed(def: GraphDef, mode: PlacementMode) -> plimsoll::Result<Seconds> {
    let devices = Devices::open(&Options::new().sim_gpus("4x4GiB,speed=1").placement(mode))?;
    let registry = Registry::standard(std::sync::Arc::new(CpuKernels));
    let step = Signature { fetches: vec!["y".into()], ..Signature::default() };
    let (now, start) = (Instant::now(), user_seconds());
    let session = devices.session(Graph::resolve(def, registry.table())?)?;
    let placed = devices.place(&session, std::slice::from_ref(&step), &[])?;
    let plan = placed.session.plan_signature(&step)?;
    let (wall, user) = (now.elapsed().as_secs_f64(), user_seconds() - start);
    Ok(Seconds { wall, user, step: plan.predicted_seconds().unwrap_or(f64::NAN) })
}

fn user_seconds() -> f64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the call fills what it is given, and zeros are a value of the type.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    usage.ru_utime.tv_sec as f64 + usage.ru_utime.tv_usec as f64 * 1e-6
}

/// Nodes of a graph that is made.
#[derive(Default)]
struct Made(Vec<NodeDef>);

impl Made {
    fn add(&mut self, name: String, op: &str, inputs: &[&str], attrs: &[(&str, AttrValue)]) -> String {
        let float = [("T", AttrValue::data_type(DataType::Float))];
        let attrs = if attrs.is_empty() { &float[..] } else { attrs };
        let attrs: Attrs = attrs.iter().map(|(name, value)| (name.to_string(), value.clone())).collect();
        let inputs = inputs.iter().map(|input| input.to_string()).collect();
        self.0.push(NodeDef { name: name.clone(), op: op.to_string(), inputs, attrs, ..NodeDef::default() });
        name
    }

    /// A matrix that no kernel knows before the step.
    fn matrix(&mut self, name: &str) -> String {
        let handle = self.variable(name);
        self.add(format!("{name}/read"), "ReadVariableOp", &[&handle], &[("dtype", AttrValue::data_type(DataType::Float))])
    }

    fn variable(&mut self, name: &str) -> String {
        let shape = AttrValue::Shape(PartialShape::from(&Shape::from([WIDTH, WIDTH])));
        let text = AttrValue::text(name);
        let dtype = AttrValue::data_type(DataType::Float);
        self.add(name.to_string(), "VarHandleOp", &[], &[("dtype", dtype), ("shape", shape), ("shared_name", text)])
    }
}

/// Loops of TensorFlow 1.
impl Made {
    fn int(&mut self, name: &str, value: i32) {
        let value = HostTensor::scalar(value);
        self.add(name.to_string(), "Const", &[], &[("dtype", AttrValue::data_type(DataType::Int32)), ("value", AttrValue::Tensor(value))]);
    }

    /// What a loop is given: once, or for all iterations.
    fn enter(&mut self, name: &str, frame: &str, value: &str, data_type: DataType, stays: bool) -> String {
        let attrs =
            [("T", AttrValue::data_type(data_type)), ("frame_name", AttrValue::text(frame)), ("is_constant", AttrValue::Bool(stays))];
        self.add(name.to_string(), "Enter", &[value], &attrs)
    }

    /// What a loop carries: what its test reads, and what its body does. It leaves as `FRAME/NAME/exit`; `FRAME/NAME/next` is what the next
    /// iteration has.
    fn carried(&mut self, frame: &str, name: &str, first: &str, data_type: DataType) -> (String, String) {
        let at = |part: &str| format!("{frame}/{name}/{part}");
        let own = [("T", AttrValue::data_type(data_type))];
        let merged = [("T", AttrValue::data_type(data_type)), ("N", AttrValue::Int(2))];
        let first = self.enter(&at("enter"), frame, first, data_type, false);
        let merge = self.add(at("merge"), "Merge", &[&first, &at("round")], &merged);
        let switch = self.add(at("switch"), "Switch", &[&merge, &format!("{frame}/test")], &own);
        self.add(at("exit"), "Exit", &[&switch], &own);
        self.add(at("round"), "NextIteration", &[&at("next")], &own);
        let now = self.add(at("now"), "Identity", &[&format!("{switch}:1")], &own);
        (merge, now)
    }
}

/// A third of the nodes are products, the rest is elementwise. The first operand is the value that waits longest to be read, the second
/// one of those before.
fn random(count: usize) -> Vec<NodeDef> {
    let mut random = Random::new(1);
    let mut made = Made::default();
    let mut values: Vec<String> = (0..64).map(|number| made.matrix(&format!("w{number}"))).collect();
    let mut unread: VecDeque<String> = values.iter().cloned().collect();
    while made.0.len() + 1 < count {
        let name = format!("n{}", made.0.len());
        let Some(one) = unread.pop_front() else { break };
        let other = values[values.len() - 1 - random.below(values.len().min(200))].clone();
        let value = match random.below(6) {
            0 | 1 => made.add(name, "MatMul", &[&one, &other], &[]),
            2 | 3 => made.add(name, "AddV2", &[&one, &other], &[]),
            4 => made.add(name, "Tanh", &[&one], &[]),
            _ => made.add(name, "Relu", &[&one], &[]),
        };
        values.push(value.clone());
        unread.push_back(value);
    }
    sum(&mut made, &unread.into_iter().collect::<Vec<_>>());
    made.0
}

/// Two recurrent layers with three gates each: a step reads the state before, and that of the layer below.
fn unrolled(count: usize) -> Vec<NodeDef> {
    let mut made = Made::default();
    let weights: Vec<Vec<String>> =
        (0..2).map(|layer| (0..6).map(|gate| made.matrix(&format!("layer{layer}/w{gate}"))).collect()).collect();
    let mut states: Vec<String> = (0..2).map(|layer| made.matrix(&format!("layer{layer}/first"))).collect();
    let x = made.matrix("x");
    let mut time = 0;
    while made.0.len() + 48 < count {
        let mut below = x.clone();
        for layer in 0..2 {
            let at = |part: &str| format!("step{time}/layer{layer}/{part}");
            let mut gates = Vec::new();
            for gate in 0..3 {
                let own = made.add(at(&format!("own{gate}")), "MatMul", &[&states[layer], &weights[layer][gate]], &[]);
                let input = made.add(at(&format!("input{gate}")), "MatMul", &[&below, &weights[layer][3 + gate]], &[]);
                let both = made.add(at(&format!("both{gate}")), "AddV2", &[&own, &input], &[]);
                gates.push(made.add(at(&format!("gate{gate}")), if gate < 2 { "Sigmoid" } else { "Tanh" }, &[&both], &[]));
            }
            let kept = made.add(at("kept"), "Mul", &[&gates[0], &states[layer]], &[]);
            let new = made.add(at("new"), "Mul", &[&gates[1], &gates[2]], &[]);
            states[layer] = made.add(at("state"), "AddV2", &[&kept, &new], &[]);
            below = states[layer].clone();
        }
        time += 1;
    }
    sum(&mut made, &states);
    made.0
}

/// Loops, one behind the other, of 16 iterations: in a body a state goes through four branches of products, the mean of which is the next.
fn looped(count: usize, loops: usize) -> Vec<NodeDef> {
    let mut made = Made::default();
    let weights: Vec<String> = (0..4).map(|branch| made.matrix(&format!("w{branch}"))).collect();
    let ints = [("zero", 0), ("one", 1), ("limit", 16)];
    ints.iter().for_each(|(name, value)| made.int(name, *value));
    let mut state = made.matrix("x");
    // A product and an elementwise node for each branch; the rest is about 40 nodes.
    let products = (count / loops).saturating_sub(40) / 8;
    for number in 0..loops {
        let frame = format!("loop{number}");
        let at = |part: &str| format!("{frame}/{part}");
        let [limit, one] = ["limit", "one"].map(|name| made.enter(&at(name), &frame, name, DataType::Int32, true));
        let own: Vec<String> =
            weights.iter().map(|weight| made.enter(&at(&format!("stays/{weight}")), &frame, weight, DataType::Float, true)).collect();
        let ints = [("T", AttrValue::data_type(DataType::Int32))];
        let (merge, now) = made.carried(&frame, "i", "zero", DataType::Int32);
        let less = made.add(at("less"), "Less", &[&merge, &limit], &ints);
        made.add(at("test"), "LoopCond", &[&less], &[("T", AttrValue::data_type(DataType::Bool))]);
        made.add(at("i/next"), "AddV2", &[&now, &one], &ints);
        let (_, now) = made.carried(&frame, "s", &state, DataType::Float);
        let ends: Vec<String> = own
            .iter()
            .enumerate()
            .map(|(branch, weight)| {
                (0..products).fold(now.clone(), |value, number| {
                    let product = made.add(at(&format!("branch{branch}/product{number}")), "MatMul", &[&value, weight], &[]);
                    made.add(at(&format!("branch{branch}/value{number}")), "Tanh", &[&product], &[])
                })
            })
            .collect();
        let ends: Vec<&str> = ends.iter().map(String::as_str).collect();
        let attrs = [("T", AttrValue::data_type(DataType::Float)), ("N", AttrValue::Int(ends.len() as i64))];
        let all = made.add(at("sum"), "AddN", &ends, &attrs);
        made.add(at("s/next"), "Tanh", &[&all], &[]);
        state = at("s/exit");
    }
    sum(&mut made, &[state]);
    made.0
}

/// The sum of some values is what is fetched.
fn sum(made: &mut Made, values: &[String]) {
    let inputs: Vec<&str> = values.iter().map(String::as_str).collect();
    let attrs = [("T", AttrValue::data_type(DataType::Float)), ("N", AttrValue::Int(values.len() as i64))];
    made.add("y".to_string(), "AddN", &inputs, &attrs);
}
