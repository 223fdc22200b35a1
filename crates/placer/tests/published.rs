//! The instances published with "Efficient Algorithms for Device Placement of DNN Graph Operators", in a folder beside the project, by
//! the code of `planbench place`: splits take no more than `docs/placement.md` says, and hold their limits.

// Parts of the command that are not called here.
#![allow(dead_code)]

#[path = "../../../bench/src/bin/planbench/place/blocks.rs"]
mod blocks;
#[path = "../../../bench/src/bin/planbench/place/instance.rs"]
mod instance;
#[path = "../../../bench/src/bin/planbench/place/latency.rs"]
mod latency;
#[path = "../../../bench/src/bin/planbench/place/series.rs"]
mod series;
#[path = "../../../bench/src/bin/planbench/place/split.rs"]
mod split;
#[path = "../../../bench/src/bin/planbench/place/throughput.rs"]
mod throughput;

use std::path::Path;

use instance::Instance;
use latency::MOST;
use split::{Objective, RATINGS, split};

/// Splits the instances of these names; each with the latency that it may take.
fn latencies_are_no_more_than(marks: &[(&str, f64)]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/planning/placement");
    if !folder.is_dir() {
        eprintln!("skipped: no published instances in {}", folder.display());
        return;
    }
    for (name, most) in marks {
        let text = std::fs::read_to_string(folder.join(name).with_extension("json")).unwrap();
        let instance = Instance::parse(&text).unwrap();
        assert!(instance.accelerators <= MOST, "{name}");
        let (devices, rating) = split(&instance, Objective::Latency, RATINGS);
        assert!(rating.over == 0.0 && rating.seconds <= *most, "{name}: {rating:?}");
        // The limit by the instance's own numbers, and nothing on an accelerator that only the host can run.
        let mut bytes = vec![0.0; instance.accelerators + 1];
        for node in &instance.nodes {
            let device = usize::from(devices[node.part]);
            bytes[device] += node.bytes;
            assert!(device == 0 || node.can_accelerate, "{name}: node {}", node.id);
        }
        assert!(bytes[1..].iter().all(|bytes| *bytes <= instance.limit), "{name}: {bytes:?} of {}", instance.limit);
    }
}

#[test]
fn layer_graphs_take_the_least() {
    latencies_are_no_more_than(&[("bert24-layers", 100.219), ("gnmt-layers", 225.649), ("inceptionv3-layers", 1186.549)]);
}

/// Below the best that others are known to have: 414.4 and 444.0.
#[test]
fn operator_graphs_are_below_the_best_known() {
    latencies_are_no_more_than(&[("bert-3-ops", 410.0), ("bert-6-ops", 440.0)]);
}
