//! Placement by predicted time, from the command line.

use super::{document, plimsoll};

const CARDS: &str = "--sim-gpus 2x1GiB,speed=1";
const RUN: &str = "two/big.pb --init init --fetch y";

#[test]
fn auto_is_no_slower_on_paper_than_tensorflows_placement() {
    let predicted = |how: &str| {
        let plan = document(&format!("plan {RUN} {CARDS} --placement {how} --json"));
        assert_eq!(plan["fits"], true);
        plan["predicted_step_seconds"].as_f64().unwrap()
    };
    let (auto, tensorflow, first_fit) = (predicted("auto"), predicted("tensorflow"), predicted("first-fit"));
    assert!(auto <= tensorflow.min(first_fit) * 1.021, "{auto}: {tensorflow} {first_fit}");
    // The attempts are compared; the last is the choice.
    let said = plimsoll(&format!("plan {RUN} {CARDS} --placement auto"));
    let tried: Vec<&str> = said.err.lines().filter(|line| line.contains(" a step, ")).collect();
    assert!(tried.len() > 1 && tried.iter().any(|line| line.contains("by TensorFlow's rules: fits: ")), "{}", said.err);
}

#[test]
fn a_stream_has_its_own_measure() {
    let said = plimsoll(&format!("plan {RUN} {CARDS} --placement auto:throughput"));
    assert!(
        said.code == 0 && said.err.lines().any(|line| line.contains(" a step, one every ") && line.contains(" in a stream, ")),
        "{}",
        said.err
    );
    let refused = plimsoll(&format!("plan {RUN} --placement auto:latency"));
    assert!(refused.code == 2 && refused.err.contains("auto:throughput"), "{}", refused.err);
}

#[test]
fn place_says_what_a_node_costs_here_and_there() {
    let placed = document(&format!("place {RUN} {CARDS} --placement auto --json"));
    let nodes = placed["nodes"].as_array().unwrap();
    let why = |node: &serde_json::Value| node["why"].as_str().unwrap().to_string();
    assert!(nodes.iter().any(|node| why(node).starts_with("auto: ") && why(node).contains(" here, ")), "{placed}");
    // Where nothing is free there is nothing to compare.
    let placed = document("place two/big.pb --init init --fetch y --placement auto --json");
    assert!(placed["nodes"].as_array().unwrap().iter().all(|node| !why(node).contains(" here, ")), "{placed}");
}

#[test]
fn a_model_that_fits_on_no_device_is_spread_or_refused_with_all_attempts() {
    let sides = "--sim-gpus 1x4GiB --placement auto --fit=off";
    let huge = "plan two/huge.pb --init init --fetch y";
    let plan = document(&format!("{huge} {sides} --memory-limit GPU:0=8MiB,CPU:0=8MiB --json"));
    assert_eq!(plan["fits"], true);
    let said = plimsoll(&format!("{huge} {sides} --memory-limit GPU:0=2MiB,CPU:0=2MiB"));
    assert_eq!(said.code, 1, "{}", said.err);
    for part in ["fits nowhere", "by TensorFlow's rules: does not fit", "bytes short"] {
        assert!(said.err.contains(part), "{part}: {}", said.err);
    }
}

#[test]
fn place_by_runs_needs_to_know_the_runs() {
    for how in ["auto", "first-fit"] {
        let said = plimsoll(&format!("place two/big.pb --placement {how}"));
        assert!(said.code == 2 && said.err.contains("--fetch"), "{how}: {}", said.err);
    }
}
