//! Placing graphs: milliseconds, the least and the median of several, and microseconds a node.
//!
//!     cargo run --release --manifest-path bench/Cargo.toml --bin place -- target/graphs/keras_resnet50_train_sgdm.pb …
//!
//! The files that are named, and graphs made here, of 1,000 to 200,000 nodes: towers on two cards with variables on the CPU,
//! colocated updates, constants and shapes. Without variables' edges and names there would be nothing to join.

use std::time::Instant;

use plimsoll_device::{DeviceKind, DeviceName, DeviceSpec, InstructionSet};
use plimsoll_formats::read_graph_def;
use plimsoll_graph::{AttrValue, Attrs, Graph, GraphDef, NodeDef};
use plimsoll_kernels::CpuKernels;
use plimsoll_ops::Registry;
use plimsoll_plan::{PlaceOptions, place};
use std::sync::Arc;

fn main() -> plimsoll::Result<()> {
    let registry = Registry::standard(Arc::new(CpuKernels));
    let gpu = |index| DeviceSpec {
        name: DeviceName::local("GPU", index),
        kind: DeviceKind::Gpu,
        ..DeviceSpec::cpu(0, None, 1, InstructionSet::Baseline)
    };
    let cpu = |index| DeviceSpec::cpu(index, None, 1, InstructionSet::Baseline);
    let sets = [("2 CPU", vec![cpu(0), cpu(1)]), ("1 CPU, 2 GPU", vec![cpu(0), gpu(0), gpu(1)])];
    let mut graphs = Vec::new();
    for path in std::env::args().skip(1) {
        let bytes = std::fs::read(&path).expect("the file can be read");
        let name = path.rsplit('/').next().unwrap_or(&path).trim_end_matches(".pb").to_string();
        graphs.push((name, Graph::resolve(read_graph_def(&bytes)?, registry.table())?));
    }
    for count in [1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000] {
        graphs.push(("towers".to_string(), Graph::resolve(towers(count), registry.table())?));
    }
    for (name, graph) in &graphs {
        for (devices, specs) in &sets {
            let mut times: Vec<f64> = (0..9)
                .map(|_| {
                    let start = Instant::now();
                    let placement = place(graph, &registry, specs, &PlaceOptions::new(true)).expect("it can be placed");
                    assert_eq!(placement.order.len(), graph.nodes().len());
                    start.elapsed().as_secs_f64() * 1e3
                })
                .collect();
            times.sort_by(f64::total_cmp);
            let nodes = graph.nodes().len();
            let each = times[4] * 1e3 / nodes as f64;
            println!("{name:32} {devices:12} {nodes:8} nodes {:8.2} ms (least {:.2}) {each:6.2} us a node", times[4], times[0]);
        }
    }
    Ok(())
}

/// `count` nodes, more or less: layers of ten.
fn towers(count: usize) -> GraphDef {
    let float = || AttrValue::data_type(plimsoll::DataType::Float);
    let mut nodes = Vec::new();
    let mut add = |name: String, op: &str, inputs: Vec<String>, device: &str, attrs: Vec<(&str, AttrValue)>| {
        let attrs: Attrs = attrs.into_iter().map(|(name, value)| (name.to_string(), value)).collect();
        nodes.push(NodeDef { name: name.clone(), op: op.to_string(), inputs, device: device.to_string(), attrs, ..NodeDef::default() });
        name
    };
    let shape = || AttrValue::Shape(plimsoll_graph::PartialShape::from(&plimsoll_graph::Shape::from([2, 2])));
    let mut last = add("x".into(), "Placeholder", vec![], "", vec![("dtype", float()), ("shape", shape())]);
    for layer in 0..count / 10 {
        let card = format!("/device:GPU:{}", layer % 2);
        let at = |part: &str| format!("layer_{layer}/{part}");
        let handle = [("dtype", float()), ("shape", shape())];
        let w = add(at("w"), "VarHandleOp", vec![], "/device:CPU:0", handle.to_vec());
        let b = add(at("b"), "VariableV2", vec![], "", handle.to_vec());
        let read = add(at("read"), "ReadVariableOp", vec![w.clone()], &card, vec![("dtype", float())]);
        let product = add(at("product"), "MatMul", vec![last.clone(), read], &card, vec![("T", float())]);
        let own =
            add(at("b/read"), "Identity", vec![b.clone()], "", vec![("T", float()), ("_class", AttrValue::texts(&[format!("loc:@{b}")]))]);
        let sum = add(at("sum"), "AddV2", vec![product, own], &card, vec![("T", float())]);
        add(at("shape"), "Shape", vec![sum.clone()], "", vec![("T", float())]);
        let change = add(at("change"), "Neg", vec![sum.clone()], "", vec![("T", float())]);
        add(
            at("update"),
            "AssignAdd",
            vec![b.clone(), change],
            "",
            vec![("T", float()), ("_class", AttrValue::texts(&[format!("loc:@{b}")]))],
        );
        last = add(at("out"), "Relu", vec![sum], &card, vec![("T", float())]);
    }
    GraphDef { nodes, ..GraphDef::default() }
}
