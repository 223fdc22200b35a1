//! The copies of towers on cards: every variable once to each tower with its part of the batch, every gradient once back.

use std::collections::BTreeMap;
use std::path::Path;

use super::{document, plimsoll};

/// How many tensors a step copies, by `CPU:0>GPU:1`, as the document has it; the table says the same.
fn copies(args: &str) -> BTreeMap<String, usize> {
    let document = document(&format!("plan {args} --json"));
    let mut copies = BTreeMap::new();
    for transfer in document["transfers"].as_array().expect("transfers") {
        let device = |key: &str| transfer[key].as_str().unwrap().rsplit("device:").next().unwrap().to_string();
        assert!(transfer["bytes"].as_u64().unwrap() > 0 && !transfer["node"].as_str().unwrap().is_empty(), "{transfer}");
        *copies.entry(format!("{}>{}", device("from"), device("to"))).or_default() += 1;
    }
    let table = plimsoll(&format!("plan {args}")).out;
    for (pair, count) in &copies {
        let (from, to) = pair.split_once('>').unwrap();
        assert!(table.contains(&format!("copied from {from} to {to}: {count} tensor")), "{table}");
    }
    copies
}

/// Both towers take `there` tensors and give `back`. All fits as it is: the smallest limit is not looked for.
fn holds(args: &str, there: usize, back: usize) {
    let wanted = [("CPU:0>GPU:0", there), ("CPU:0>GPU:1", there), ("GPU:0>CPU:0", back), ("GPU:1>CPU:0", back)];
    assert_eq!(
        copies(&format!("{args} --sim-gpus 2x1GiB --fit=off")),
        BTreeMap::from(wanted.map(|(pair, count)| (pair.to_string(), count))),
        "{args}"
    );
}

#[test]
fn towers_copy_variables_batches_and_gradients() {
    // Eight variables; images and labels.
    for case in ["towers2_adam_ref", "towers2_nesterov_resource"] {
        holds(&format!("{case}/graph.pb --target train --feed-shape x=12x8x8x3 --feed-shape y=12"), 8 + 2, 8);
    }
}

/// A file beside the project; none, visibly, where it is not there.
fn shared(name: &str) -> Option<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared").join(name);
    if !path.exists() {
        eprintln!("skipped: {} is not there", path.display());
    }
    path.exists().then(|| path.display().to_string())
}

#[test]
fn the_tutorials_towers_copy_what_tensorflow_copies() {
    // Ten variables; images and labels.
    for kind in ["ref", "resource"] {
        let Some(graph) = shared(&format!("golden/tf1_cifar10_towers2_{kind}/graph.pb")) else { continue };
        holds(&format!("{graph} --target train --feed-shape x=128x24x24x3 --feed-shape y=128"), 12, 10);
    }
    for kind in ["ref", "res"] {
        let Some(graph) = shared(&format!("graphs/cifar10_multigpu2_trainstep_{kind}.pb")) else { continue };
        // In place of the queue.
        let fed: String = ["tower_0", "tower_1"]
            .map(|tower| format!(" --feed-shape {tower}/fifo_queue_Dequeue:0=128x24x24x3 --feed-shape {tower}/fifo_queue_Dequeue:1=128"))
            .concat();
        holds(&format!("{graph} --target GradientDescent --target ExponentialMovingAverage{fed}"), 12, 10);
    }
}
