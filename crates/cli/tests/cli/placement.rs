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

/// On a card that is slightly too small, as much is on it as fits: no slower than layers in order, by the predicted microseconds of these.
/// More memory makes no step slower.
#[test]
fn a_card_that_is_too_small_gets_as_much_as_fits() {
    let of = |model: &str, mebibytes: u64| {
        let limit = format!("--sim-gpus 1x4GiB,speed=1 --memory-limit GPU:0={mebibytes}MiB --placement auto --json");
        document(&format!("plan two/{model}.pb --init init --fetch y {limit}"))["predicted_step_seconds"].as_f64().unwrap() * 1e6
    };
    // The initializer has another layer beside them, and some KiB: of 6 layers, a card of 6 MiB has room for 4.
    let big: Vec<f64> = (2..=8).rev().map(|mebibytes| of("big", mebibytes)).collect();
    for (found, layers) in big.iter().zip([21.9, 56.6, 89.7, 122.7, 156.3, 189.4, 220.8]) {
        assert!(*found <= layers * 1.021, "{big:?}");
    }
    let huge: Vec<f64> = [14, 12, 10, 8, 6].into_iter().map(|mebibytes| of("huge", mebibytes)).collect();
    assert!(huge[0] < 45.0 && huge[1] < 150.0 && huge[4] < 350.0, "{huge:?}");
    for steps in [big, huge] {
        assert!(steps.windows(2).all(|pair| pair[0] <= pair[1] * 1.021), "{steps:?}");
    }
}

#[test]
fn plan_compares_the_rules_of_placement() {
    let run = format!("plan {RUN} --sim-gpus 1x4GiB,speed=1 --memory-limit GPU:0=5MiB --placement auto");
    let plan = document(&format!("{run} --json"));
    let placements = plan["placements"].as_array().unwrap();
    let of = |rule: &str| placements.iter().find(|entry| entry["placement"] == rule).unwrap_or_else(|| panic!("{rule}: {plan}"));
    let (tensorflow, first_fit, auto) = (of("tensorflow"), of("first-fit"), of("auto"));
    assert_eq!([tensorflow, first_fit, auto].map(|entry| entry["fits"].as_bool().unwrap()), [false, true, true]);
    assert!(auto["predicted_step_seconds"].as_f64() <= first_fit["predicted_step_seconds"].as_f64());
    assert_eq!(auto["predicted_step_seconds"], plan["predicted_step_seconds"]);
    assert!(auto["moved_bytes"].as_u64().unwrap() > 0);
    for (entry, device) in auto["devices"].as_array().unwrap().iter().zip(plan["devices"].as_array().unwrap()) {
        assert_eq!((&entry["name"], &entry["peak_bytes"]), (&device["name"], &device["peak_bytes"]));
    }
    let said = plimsoll(&run);
    for rule in ["placement tensorflow: does not fit: ", "placement first-fit: fits: ", "placement auto: fits: "] {
        let line = said.out.lines().find(|line| line.starts_with(rule));
        assert!(line.is_some_and(|line| line.contains(" a step, ") && line.contains("peaks: CPU:0 ")), "{rule}{}", said.out);
    }
    // No attempt is named as another.
    let named = |line: &str| line.split(": ").nth(1).filter(|how| how.starts_with("auto")).map(str::to_string);
    let attempts: Vec<String> = said.err.lines().filter_map(named).collect();
    let mut different = attempts.clone();
    different.sort();
    different.dedup();
    assert!(attempts.len() > 1 && different.len() == attempts.len(), "{}", said.err);
}

#[test]
fn place_says_what_binds_each_group() {
    let why = |limit: &str| {
        let said = plimsoll(&format!("place {RUN} --sim-gpus 1x4GiB,speed=1 --memory-limit GPU:0={limit} --placement auto"));
        assert_eq!(said.code, 0, "{}", said.err);
        said.out
    };
    let full = why("5MiB");
    let lines = |device: &str, word: &str| full.lines().filter(|line| line.contains(device) && line.contains(word)).count();
    // A layer and its weights go together: what is on the processor would be faster on the card.
    assert!(lines("CPU:0", "memory binds it: a step ") > 0 && lines("CPU:0", " shorter on GPU:0, which lacks ") > 0, "{full}");
    assert!(lines("GPU:0", "time binds it: a step ") > 0, "{full}");
    assert!(full.lines().any(|line| line.starts_with("layer0/product ") && line.contains(" here, ")), "{full}");
    assert!(!full.contains("-0.0"), "{full}");
    // Where there is room, memory binds nothing.
    let free = why("1GiB");
    assert!(!free.contains("memory binds") && free.contains("time binds it: a step "), "{free}");
}

#[test]
fn several_models_fit_in_whatever_order_they_are_written() {
    let run = |models: &str| {
        let limits = "--sim-gpus 1x4GiB,speed=1 --memory-limit GPU:0=8MiB,CPU:0=6MiB --placement auto";
        plimsoll(&format!("eval {models} --init init --fetch y --parallel {limits}"))
    };
    for models in ["two/small.pb two/big.pb", "two/big.pb two/small.pb"] {
        let said = run(models);
        assert!(said.code == 0 && !said.err.contains("take turns") && !said.err.contains("takes its turn"), "{models}: {}", said.err);
    }
    assert!(run("two/small.pb two/big.pb").err.contains("placed the largest model first"));
    // Values come in the order of the models.
    let values = |said: super::Said| said.out.lines().map(str::to_string).collect::<Vec<_>>();
    let (one, other) = (values(run("two/small.pb two/big.pb")), values(run("two/big.pb two/small.pb")));
    assert_eq!(one, other.into_iter().rev().collect::<Vec<_>>());
}

#[test]
fn links_have_a_latency() {
    let seconds = |link: &str| {
        let plan = document(&format!("plan {RUN} --sim-gpus 1x4GiB,speed=1,link=25GB{link} --placement tensorflow --json"));
        plan["predicted_step_seconds"].as_f64().unwrap()
    };
    let (none, ten) = (seconds(""), seconds(",latency=10"));
    assert!((9e-6..12e-6).contains(&(ten - none)), "one copy leaves the card: {none} {ten}");
    let refused = plimsoll("devices --sim-gpus 1x4GiB,latency=-1");
    assert!(refused.code == 2 && refused.err.contains("a number of microseconds"), "{}", refused.err);
}

#[test]
fn towers_go_to_the_fastest_cards() {
    let cards = "1x4GiB,speed=0.001+1x4GiB,speed=1+1x4GiB,speed=0.001";
    let said = plimsoll(&format!("train digits --towers auto --steps 1 --sim-gpus {cards}"));
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(said.err.contains("1 tower on GPU:1: "), "{}", said.err);
    assert!(said.err.contains("2 towers on GPU:1, GPU:0: "), "{}", said.err);
    assert!((said.out + &said.err).contains("1 tower of 128 images a step on GPU:1"));
}

#[test]
fn bench_prints_the_predicted_step_beside_the_measured_one() {
    let bench = document("bench mlp_sgd_ref --runs 3 --json");
    assert!(bench["predicted_ms"].as_f64().unwrap() > 0.0 && bench["median_ms"].as_f64().unwrap() > 0.0, "{bench}");
    let said = plimsoll("bench mlp_sgd_ref --runs 3");
    assert!(said.out.lines().any(|line| line.starts_with("predicted ") && line.ends_with(" times as much")), "{}", said.out);
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
