//! Damaged graphs, the whole way: parsed or made, resolved, placed, planned and run under a small line. The result is always a
//! value or an error; nothing panics, hangs or takes memory beyond the line.
//!
//! `PLIMSOLL_MUTATIONS=100000` makes it that many.

use std::path::Path;

use plimsoll::formats::read_graph_def;
use plimsoll::graph::AttrValue;
use plimsoll::{Bytes, DataType, Devices, GraphDef, HostTensor, Options, PartialShape, Shape};

/// A small generator (xorshift), so that every run sees the same graphs.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    fn of<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())].clone()
    }

    fn number(&mut self) -> i64 {
        self.of(&[-2, -1, 0, 1, 2, 3, 7, 64, 1 << 20, 1 << 31, 1 << 40, i64::MAX, i64::MIN])
    }

    fn shape(&mut self) -> Shape {
        (0..self.below(5)).map(|_| self.of(&[0, 1, 2, 3, 8, 10, 1 << 20, 1 << 33, u64::MAX])).collect()
    }

    fn tensor(&mut self) -> HostTensor {
        let data_type = self.of(&[DataType::Float, DataType::Int32, DataType::Int64, DataType::Bool, DataType::Uint8, DataType::Double]);
        let numbers: Vec<u8> = (0..self.below(4)).flat_map(|_| self.number().to_le_bytes()).collect();
        let shape =
            if self.below(2) == 0 { Shape::from([numbers.len() as u64 / data_type.size().unwrap_or(1) as u64]) } else { self.shape() };
        HostTensor::from_leading(data_type, shape, &numbers).unwrap_or_else(|_| HostTensor::scalar(0f32))
    }
}

fn damage(random: &mut Random, graph: &mut GraphDef, ops: &[&'static str]) {
    for _ in 0..=random.below(3) {
        let count = graph.nodes.len();
        if count == 0 {
            return;
        }
        let other = graph.nodes[random.below(count)].clone();
        let node = &mut graph.nodes[random.below(count)];
        let names: Vec<String> = node.attrs.keys().cloned().collect();
        match random.below(12) {
            0 => node.op = random.of(ops).to_string(),
            1 => node.op = other.op,
            2 => node.device = random.of(&["/cpu:0", "/cpu:1", "/gpu:9", "/job:x", "nonsense", "/device:CPU:*"]).to_string(),
            3 if !node.inputs.is_empty() => {
                let at = random.below(node.inputs.len());
                node.inputs[at] = format!("{}:{}", other.name, random.below(3));
            }
            4 if !node.inputs.is_empty() => {
                let at = random.below(node.inputs.len());
                node.inputs.remove(at);
            }
            5 => node.inputs.push(random.of(&[other.name.clone(), format!("^{}", other.name)])),
            6 => node.attrs = other.attrs,
            7 | 8 if !names.is_empty() => {
                let value = match random.below(6) {
                    0 => AttrValue::Int(random.number()),
                    1 => AttrValue::Shape(PartialShape(Some(random.shape().iter().map(|dim| (*dim != 3).then_some(*dim)).collect()))),
                    2 => AttrValue::data_type(random.of(DataType::ALL)),
                    3 => AttrValue::Bool(random.below(2) == 0),
                    4 => AttrValue::ints([random.number(), random.number()]),
                    _ => AttrValue::Tensor(random.tensor()),
                };
                node.attrs.insert(random.of(&names), value);
            }
            9 | 10 if node.op == "Const" => {
                let tensor = random.tensor();
                node.attrs.insert("dtype".into(), AttrValue::data_type(tensor.data_type()));
                node.attrs.insert("value".into(), AttrValue::Tensor(tensor));
            }
            _ if node.attrs.contains_key("shape") => {
                node.attrs.insert("shape".into(), AttrValue::Shape((&random.shape()).into()));
            }
            _ => {}
        }
    }
}

/// Plans and runs everything that can be planned and run.
fn use_it(devices: &Devices, graph: GraphDef, feeds: &[(&str, &HostTensor)]) {
    let Ok(graph) = plimsoll::Graph::resolve(graph, plimsoll_runtime::standard_registry().table()) else { return };
    let Ok(session) = devices.session(graph) else { return };
    let _ = session.run(&[], &[], &["init"]);
    let fed: Vec<plimsoll::Fed<'_>> = feeds.iter().map(|(name, tensor)| (*name, (*tensor).clone())).collect();
    // Without a search for the least limit: most graphs differ little from each other.
    let _ = session.signature(&fed, &["loss:0"], &["train"]).and_then(|signature| session.plan_signature(&signature));
    let _ = session.run(&fed, &["loss:0"], &["train"]);
    drop(session);
    for device in devices.report() {
        assert_eq!((device.in_use, device.reserved), (Bytes::ZERO, Bytes::ZERO));
    }
}

#[test]
fn damaged_graphs_give_values_or_errors() {
    let count: u64 = std::env::var("PLIMSOLL_MUTATIONS").ok().and_then(|count| count.parse().ok()).unwrap_or(1500);
    let limit = "8MiB";
    let mut options = Options::new().limit("CPU:0", limit).limit("CPU:1", limit).intra_op(2);
    options.device_count.insert("CPU".into(), 2);
    let devices = Devices::open(&options).unwrap();
    let registry = plimsoll_runtime::standard_registry();
    let ops = registry.names();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/tests/cases");
    let cases: Vec<(GraphDef, HostTensor, HostTensor)> = ["mlp_sgd_ref", "mlp_adam_resource", "towers"]
        .iter()
        .map(|case| {
            let file = |name: &str| std::fs::read(folder.join(case).join(name)).unwrap();
            let array = |name: &str| plimsoll::npy::read(&file(name)).unwrap();
            (read_graph_def(&file("graph.pb")).unwrap(), array("step0_feed0.npy"), array("step0_feed1.npy"))
        })
        .collect();
    for seed in 1..=count {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let (graph, x, y) = &cases[random.below(cases.len())];
        let mut graph = graph.clone();
        damage(&mut random, &mut graph, &ops);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| use_it(&devices, graph, &[("x:0", x), ("y:0", y)])));
        assert!(result.is_ok(), "graph {seed} panicked");
    }
}
