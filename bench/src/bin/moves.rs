//! Rating of moves: microseconds to move one work of a plan and to say its live peak.
//!
//!     cargo run --release --manifest-path bench/Cargo.toml --bin moves -- [WORKS…]
//!
//! The graph is a web of products, each of two of the fifty values before it; 1,000, 10,000 and 100,000 of them, if nothing else is
//! said. Works are moved to random places within their reach.

use std::sync::Arc;
use std::time::Instant;

use plimsoll_device::{Costs, DeviceSpec, InstructionSet, Library};
use plimsoll_graph::id::Id;
use plimsoll_graph::{AttrValue, Attrs, Graph, GraphDef, NodeDef, Shape};
use plimsoll_kernels::CpuKernels;
use plimsoll_ops::Registry;
use plimsoll_plan::{DeviceId, Feed, Lines, Moves, PlaceOptions, Request, Signature, place};

struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % most
    }
}

fn node(name: String, op: &str, inputs: Vec<String>) -> NodeDef {
    let attr = if op == "Placeholder" { "dtype" } else { "T" };
    let mut attrs = Attrs::default();
    attrs.insert(attr.to_string(), AttrValue::data_type(plimsoll::DataType::Float));
    NodeDef { name, op: op.to_string(), inputs, attrs, ..NodeDef::default() }
}

fn main() -> plimsoll::Result<()> {
    let mut counts: Vec<usize> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    if counts.is_empty() {
        counts = vec![1_000, 10_000, 100_000];
    }
    let registry = Registry::standard(Arc::new(CpuKernels));
    let devices = [DeviceSpec::cpu(0, None, 1, InstructionSet::Baseline)];
    println!("{:>8} {:>10} {:>10} {:>12}", "works", "plan s", "moves", "us a move");
    for count in counts {
        let mut random = Random(1);
        let mut nodes = vec![node("x".into(), "Placeholder", Vec::new())];
        for index in 0..count {
            let mut near = || nodes[nodes.len() - 1 - random.below(nodes.len().min(50))].name.clone();
            let inputs = vec![near(), near()];
            nodes.push(node(format!("n{index}"), "MatMul", inputs));
        }
        // What nothing reads is fetched.
        let read: std::collections::HashSet<&String> = nodes.iter().flat_map(|node| &node.inputs).collect();
        let fetches = nodes.iter().filter(|node| !read.contains(&node.name)).map(|node| node.name.clone()).collect();
        let graph = Graph::resolve(GraphDef { nodes, ..GraphDef::default() }, registry.table())?;
        let placement = place(&graph, &registry, &devices, &PlaceOptions::new(true))?;
        let feed = Feed { tensor: "x".into(), data_type: plimsoll::DataType::Float, shape: Shape::from([8, 8]), value: None };
        let signature = Signature { feeds: vec![feed], fetches, targets: Vec::new(), ..Signature::default() };
        let libraries = [&CpuKernels as &dyn Library];
        let (graph, placement, signature) = (&graph, &placement, &signature);
        let request = Request {
            graph,
            registry: &registry,
            devices: &devices,
            libraries: &libraries,
            costs: &Costs::committed(),
            placement,
            signature,
            lines: &Lines::NONE,
        };
        let start = Instant::now();
        let mut moves = Moves::new(&request, DeviceId::from_index(0))?;
        let planned = start.elapsed().as_secs_f64();
        let start = Instant::now();
        let mut made = 0;
        while made < 100_000 {
            let from = random.below(moves.len());
            let Some((first, last)) = moves.reach(from) else { continue };
            let to = first + random.below(last + 1 - first);
            made += usize::from(moves.shift(from, to).is_some());
        }
        let each = start.elapsed().as_secs_f64() / f64::from(made as u32);
        println!("{count:>8} {planned:>10.2} {made:>10} {:>12.2}", each * 1e6);
    }
    Ok(())
}
