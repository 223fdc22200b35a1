//! A random search for placements of a graph on simulated cards, to hold `--placement auto` against. Random scopes of names
//! and stretches of the graph ask for devices, and TensorFlow's placer does the rest. The search goes on from a plan that is predicted to be
//! faster, or not much slower.
//!
//!     cargo run --release --manifest-path bench/Cargo.toml --bin search -- GRAPH.pb --target train --feed x=1024x24x24x3 \
//!         --feed y=int32:1024 --sim-gpus 8x16GiB,speed=1 --minutes 60 [--seed 1] \
//!         [--intra-op 2]
//!
//! It begins with the requests of the graph, and becomes less patient with slower plans as its minutes pass. Prints milliseconds of a step of
//! these, of one card, and of the best found, each time that is better.

use std::time::{Duration, Instant};

use plimsoll::{DataType, Devices, Feed, Options, Shape, Signature};
use plimsoll_base::Random;
use plimsoll_formats::read_graph_def;
use plimsoll_graph::{Graph, GraphDef};
use plimsoll_kernels::CpuKernels;
use plimsoll_ops::Registry;

/// How much slower a step may be at the beginning to be gone on from once in e times, as a part of it; it falls to a hundredth.
const HEAT: f64 = 0.01;

struct Search {
    devices: Devices,
    names: Vec<String>,
    def: GraphDef,
    step: Signature,
}

impl Search {
    /// The predicted seconds of a step with these requests; none where they cannot be.
    fn seconds(&mut self, requests: &[String]) -> Option<f64> {
        self.def.nodes.iter_mut().zip(requests).for_each(|(node, request)| node.device.clone_from(request));
        let registry = Registry::standard(std::sync::Arc::new(CpuKernels));
        let graph = Graph::resolve(self.def.clone(), registry.table()).ok()?;
        let session = self.devices.session(graph).ok()?;
        let plan = session.plan_signature(&self.step).ok()?;
        plan.predicted_seconds().filter(|_| plan.fits())
    }

    /// Asks a device for a scope of names, or for a stretch of nodes.
    fn change(&self, requests: &mut [String], random: &mut Random) {
        let nodes = &self.def.nodes;
        let device = match random.below(8) {
            0 => String::new(),
            _ => self.names[random.below(self.names.len())].clone(),
        };
        let node = random.below(nodes.len());
        if random.below(2) == 0 {
            let name = &nodes[node].name;
            let ends: Vec<usize> = name.match_indices('/').map(|(at, _)| at + 1).chain([name.len()]).collect();
            let scope = &name[..ends[random.below(ends.len())]];
            let inside = nodes.iter().zip(requests).filter(|(node, _)| node.name.starts_with(scope));
            inside.for_each(|(_, request)| request.clone_from(&device));
        } else {
            let most = 1 << random.below(10);
            let end = nodes.len().min(node + 1 + random.below(most));
            let from = requests[node].clone();
            requests[node..end].iter_mut().filter(|request| **request == from).for_each(|request| request.clone_from(&device));
        }
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let all = |name: &str| words.windows(2).filter(|pair| pair[0] == name).map(|pair| pair[1].clone()).collect::<Vec<_>>();
    let one = |name: &str| all(name).pop();
    let minutes: f64 = one("--minutes").expect("--minutes").parse().expect("a number of minutes");
    let limit = Duration::from_secs_f64(minutes * 60.0);
    let mut random = Random::new(one("--seed").map_or(1, |seed| seed.parse().expect("a number")));
    let def = read_graph_def(&std::fs::read(&words[0]).expect("a graph can be read")).expect("a graph");
    let threads = one("--intra-op").map_or(0, |threads| threads.parse().expect("a number of threads"));
    let options = Options::new().sim_gpus(one("--sim-gpus").expect("--sim-gpus")).fit(false).intra_op(threads);
    let devices = Devices::open(&options).expect("devices");
    let feed = |text: String| {
        let (name, shape) = text.split_once('=').expect("NAME=SHAPE");
        let (data_type, shape) = match shape.strip_prefix("int32:") {
            Some(shape) => (DataType::Int32, shape),
            None => (DataType::Float, shape),
        };
        let sizes: Vec<u64> = shape.split('x').map(|size| size.parse().expect("a size")).collect();
        Feed { tensor: name.to_string(), data_type, shape: Shape::from(sizes), value: None }
    };
    let feeds = all("--feed").into_iter().map(feed).collect();
    let step = Signature { feeds, targets: vec![one("--target").expect("--target")], ..Signature::default() };
    let names: Vec<String> = devices.report().iter().map(|report| report.name.clone()).collect();
    let mut search = Search { names, def, step, devices };
    let mut now: Vec<String> = search.def.nodes.iter().map(|node| node.device.clone()).collect();
    let mut seconds = search.seconds(&now).expect("a plan of the graph as written");
    let alone = search.seconds(&vec![String::new(); now.len()]).expect("a plan without requests");
    println!("as written {:.3} ms, without requests {:.3} ms", seconds * 1e3, alone * 1e3);
    let mut best = seconds;
    let (mut steps, mut planned, mut taken) = (0u64, 0u64, 0u64);
    let begun = Instant::now();
    while begun.elapsed() < limit {
        steps += 1;
        let heat = HEAT * 0.01f64.powf(begun.elapsed().as_secs_f64() / limit.as_secs_f64());
        let mut next = now.clone();
        for _ in 0..1 + random.below(2) {
            search.change(&mut next, &mut random);
        }
        if next == now {
            continue;
        }
        let Some(other) = search.seconds(&next) else { continue };
        planned += 1;
        if other <= seconds || random.unit() < ((seconds - other) / (heat * seconds)).exp() {
            (now, seconds) = (next, other);
            taken += 1;
        }
        if seconds < best {
            best = seconds;
            println!("step {steps}: {:.3} ms", best * 1e3);
        }
    }
    println!("best {:.3} ms after {steps} steps in {minutes} minutes: {planned} plans, {taken} taken", best * 1e3);
}
