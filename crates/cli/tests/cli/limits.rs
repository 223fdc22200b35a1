//! The line holds, for every command that runs a graph; and the process stays near it.

use super::{cases, document, plimsoll, said};
use std::process::Command;

/// The bytes that a process may hold beside the lines of its devices.
const OVERHEAD: u64 = 40 << 20;

fn minimum_of(case: &str) -> u64 {
    document(&format!("verify {case} --json"))[0]["minimum_limit_bytes"].as_u64().unwrap()
}

#[test]
fn lines_of_devices_that_hold_nothing_do_not_count() {
    // The card has a line of its own, and every node is on a processor.
    let minimum = minimum_of("towers3_uneven_stack");
    assert!(minimum > 0);
    assert_eq!(minimum_of("towers3_uneven_stack --sim-gpus 1x64MiB"), minimum);
}

#[test]
fn a_case_runs_at_the_minimum_and_is_refused_one_byte_below() {
    for case in ["scalars", "mlp_sgd_ref", "mlp_adam_resource"] {
        let minimum = minimum_of(case);
        for command in ["verify", "bench --runs 3"] {
            let at = |limit: u64| plimsoll(&format!("{command} {case} --memory-limit CPU:0={limit}B"));
            let runs = at(minimum);
            assert_eq!(runs.code, 0, "{command} {case}: {}{}", runs.out, runs.err);
            let refused = at(minimum - 1);
            assert_eq!(refused.code, 1, "{command} {case}: {}", refused.out);
            assert!(format!("{}{}", refused.out, refused.err).contains("1 byte short"), "{}{}", refused.out, refused.err);
        }
        // Refused before anything was computed.
        assert!(plimsoll(&format!("verify {case} --memory-limit CPU:0={}B", minimum - 1)).out.contains(" steps=0 "));
    }
}

#[test]
fn what_a_plan_says_is_what_the_steps_of_a_case_take() {
    for (case, feeds) in [("mlp_sgd_ref", "12"), ("mlp_adam_resource", "12")] {
        let plan = format!("plan {case}/graph.pb --fetch loss:0 --target train --feed-shape x={feeds}x6 --feed-shape y={feeds} --json");
        assert_eq!(document(&plan)["minimum_limit_bytes"].as_u64(), Some(minimum_of(case)), "{case}");
    }
}

/// The smallest limit that `plan` prints is the one at which `eval` restores, initialises and runs.
#[test]
fn plan_and_eval_agree_on_one_number() {
    let saved = |name: &str| super::saved(name).display().to_string();
    let [model, keras, x, y] = [saved("model"), saved("keras"), saved("x.npy"), saved("y.npy")];
    let mlp = "mlp_sgd_ref/graph.pb --init init --fetch loss:0";
    let feeds = "--feed x=mlp_sgd_ref/step0_feed0.npy --feed y=mlp_sgd_ref/step0_feed1.npy";
    let cases = [
        (format!("{mlp} --feed-shape x=12x6 --feed-shape y=12"), format!("{mlp} {feeds}")),
        (format!("{keras} --feed-shape inputs=12x4"), format!("{keras} --feed inputs={x}")),
        (format!("{model} --feed-shape x=12x4 --feed-shape y=12"), format!("{model} --feed x={x} --feed y={y}")),
    ];
    for (planned, evaluated) in cases {
        for cards in ["", "--sim-gpus 1x64MiB"] {
            let document = document(&format!("plan {planned} {cards} --json"));
            let needs = document["devices"].as_array().unwrap();
            let limits = |less: u64, of: usize| {
                let name = |device: &serde_json::Value| device["name"].as_str().unwrap().rsplit("device:").next().unwrap().to_string();
                let limit = |(index, device): (usize, &serde_json::Value)| {
                    let peak = device["peak_bytes"].as_u64().unwrap();
                    format!("{}={}B", name(device), peak - if index == of { less } else { 0 })
                };
                needs.iter().enumerate().map(limit).collect::<Vec<_>>().join(",")
            };
            for (index, need) in needs.iter().enumerate() {
                let at = |less: u64| plimsoll(&format!("eval {evaluated} {cards} --memory-limit {}", limits(less, index)));
                let runs = at(0);
                assert_eq!(runs.code, 0, "{evaluated}: {}", runs.err);
                if need["peak_bytes"].as_u64() > Some(0) {
                    let refused = at(1);
                    assert!(refused.code == 1 && refused.err.contains("1 byte short"), "{evaluated} {cards}: {}", refused.err);
                }
            }
        }
    }
}

/// A checkpoint takes the place of the initializer's values, and its loading belongs to the promise.
#[test]
fn a_checkpoint_is_restored_within_the_limit_that_plan_prints() {
    let folder = super::Folder::new("restored");
    let graph = "mlp_sgd_ref/graph.pb";
    let feeds = "--feed x=mlp_sgd_ref/step0_feed0.npy --feed y=mlp_sgd_ref/step0_feed1.npy --fetch loss:0";
    let checkpoint = folder.0.join("trained").display().to_string();
    let data = "--data x=mlp_sgd_ref/step0_feed0.npy --data y=mlp_sgd_ref/step0_feed1.npy --target train --batch-size 6";
    let trained = plimsoll(&format!("train {graph} {data} --steps 20 --save {checkpoint}"));
    assert_eq!(trained.code, 0, "{}", trained.err);
    let shapes = "--fetch loss:0 --feed-shape x=12x6 --feed-shape y=12 --json";
    let value = |options: &str| document(&format!("eval {graph} {feeds} {options} --json"))["models"][0]["fetches"][0]["values"].clone();
    let (first, restored) = (value("--init init"), value(&format!("--restore {checkpoint}")));
    assert!(restored[0].as_f64() < first[0].as_f64(), "{restored} {first}");
    for options in [format!("--restore {checkpoint}"), format!("--init init --restore {checkpoint}")] {
        let minimum = document(&format!("plan {graph} {options} {shapes}"))["minimum_limit_bytes"].as_u64().unwrap();
        assert_eq!(value(&format!("{options} --memory-limit CPU:0={minimum}")), restored, "{options}");
        let refused = plimsoll(&format!("eval {graph} {feeds} {options} --memory-limit CPU:0={}", minimum - 1));
        assert!(refused.code == 1 && refused.err.contains("1 byte short"), "{options}: {}", refused.err);
    }
}

#[test]
fn the_machine_is_a_line_too() {
    let planned = document("plan mlp_sgd_ref/graph.pb --fetch loss:0 --feed-shape x=900000000000x6 --feed-shape y=900000000000 --json");
    assert_eq!((&planned["fits"], &planned["devices"][0]["limit_bytes"]), (&false.into(), &serde_json::Value::Null));
    assert!(planned["shortfall_bytes"].as_u64() > Some(0));
    let said = plimsoll("plan mlp_sgd_ref/graph.pb --fetch loss:0 --feed-shape x=900000000000x6 --feed-shape y=900000000000");
    assert!(said.code == 1 && said.out.contains("does not fit the machine"), "{}", said.out);
}

#[test]
fn each_device_has_its_own_line() {
    let verdict = document("verify towers --json");
    let peak = |device: usize| verdict[0]["devices"][device]["planned_peak_bytes"].as_u64().unwrap();
    let run = |first: u64, second: u64| plimsoll(&format!("verify towers --memory-limit CPU:0={first}B,CPU:1={second}B"));
    let runs = run(peak(0), peak(1));
    assert_eq!(runs.code, 0, "{}", runs.out);
    for (limits, device) in [((peak(0) - 1, peak(1)), "CPU:0"), ((peak(0), peak(1) - 1), "CPU:1")] {
        let refused = run(limits.0, limits.1);
        assert_eq!(refused.code, 1);
        assert!(refused.out.contains("1 byte short") && refused.out.contains(device), "{}", refused.out);
    }
}

#[test]
fn an_evaluation_runs_at_the_minimum_and_is_refused_one_byte_below() {
    let minimum = document("plan scalars/graph.pb --json")["minimum_limit_bytes"].as_u64().unwrap();
    let feeds = "--feed a=scalars/step0_feed0.npy --feed x=scalars/step0_feed1.npy --feed b=scalars/step0_feed2.npy";
    let two = "scalars/graph.pb scalars/graph.pb";
    for (models, limit) in [("scalars/graph.pb", minimum), (two, minimum), (&format!("{two} --parallel"), minimum)] {
        let at = |limit: u64| plimsoll(&format!("eval {models} {feeds} --memory-limit CPU:0={limit}B"));
        let runs = at(limit);
        assert_eq!(runs.code, 0, "{models}: {}", runs.err);
        let refused = at(limit - 1);
        assert_eq!((refused.code, refused.out.as_str()), (1, ""), "{models}");
        assert!(refused.err.contains("1 byte short"), "{}", refused.err);
    }
}

#[test]
fn models_take_turns_where_their_sum_is_over_a_line() {
    let minimum = document("plan scalars/graph.pb --json")["minimum_limit_bytes"].as_u64().unwrap();
    let feeds = "--feed a=scalars/step0_feed0.npy --feed x=scalars/step0_feed1.npy --feed b=scalars/step0_feed2.npy";
    let models = "scalars/graph.pb scalars/graph.pb scalars/graph.pb";
    let rounds = |limit: u64| document(&format!("eval {models} {feeds} --parallel --json --memory-limit CPU:0={limit}B"))["rounds"].clone();
    assert_eq!(rounds(3 * minimum), serde_json::json!([[0, 1, 2]]));
    assert_eq!(rounds(3 * minimum - 1), serde_json::json!([[0, 1], [2]]));
    assert_eq!(rounds(2 * minimum - 1), serde_json::json!([[0], [1], [2]]));
    let said = plimsoll(&format!("eval {models} {feeds} --parallel --memory-limit CPU:0={}B", 2 * minimum - 1));
    assert!(said.err.starts_with("note: the models take turns (CPU:0 needs "), "{}", said.err);

    // They run as they were planned.
    let plan = |more: &str, limit: u64| {
        let said = plimsoll(&format!("plan {models} --json --memory-limit CPU:0={limit}B {more}"));
        let plan: serde_json::Value = serde_json::from_str(&said.out).unwrap();
        assert_eq!(plan["fits"], said.code == 0, "{more} {limit}");
        let fits = |how: &str| plan[how]["fits"].clone();
        let minima = (plan["side_by_side"]["minimum_limit_bytes"].clone(), plan["in_turn"]["minimum_limit_bytes"].clone());
        assert_eq!(minima, ((3 * minimum).into(), minimum.into()));
        (said.code, plan["together"].clone(), fits("side_by_side"), fits("in_turn"), plan["in_turn"]["rounds"].clone())
    };
    for (more, in_turn) in [("", 0), ("--together", 1)] {
        let rounds = serde_json::json!([[0, 1, 2]]);
        assert_eq!(plan(more, 3 * minimum), (0, "side_by_side".into(), true.into(), true.into(), rounds));
        let rounds = serde_json::json!([[0, 1], [2]]);
        assert_eq!(plan(more, 2 * minimum), (in_turn, "in_turn".into(), false.into(), true.into(), rounds));
        assert_eq!(plan(more, minimum - 1), (1, "never".into(), false.into(), false.into(), serde_json::json!([])));
    }
}

#[test]
#[cfg(target_os = "linux")]
fn the_process_stays_near_its_lines() {
    let minimum = minimum_of("mlp_adam_resource");
    let bench = document(&format!("bench mlp_adam_resource --runs 20 --json --memory-limit CPU:0={minimum}B"));
    let resident = bench["max_rss_bytes"].as_u64().unwrap();
    assert!(resident > 0 && resident <= minimum + OVERHEAD, "{resident} bytes were resident");
}

#[test]
#[cfg(target_os = "linux")]
fn a_limit_from_outside_is_kept_too() {
    let minimum = minimum_of("mlp_adam_resource");
    let script = format!(
        "ulimit -d {}; exec {} verify {} --memory-limit CPU:0={minimum}B",
        (minimum + OVERHEAD) / 1024,
        env!("CARGO_BIN_EXE_plimsoll"),
        cases().join("mlp_adam_resource").display()
    );
    let said = said(Command::new("sh").args(["-c", &script]));
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
}

/// The largest N that `plan` prints runs under the line, and the next one is refused.
#[test]
fn the_largest_batch_that_fits_is_the_largest_that_runs() {
    let folder = super::Folder::new("batches");
    let of = "mlp_sgd_ref/graph.pb --init init --fetch loss:0 --memory-limit CPU:0=64KiB";
    let planned = document(&format!("plan {of} --json"));
    assert_eq!(document(&format!("plan {of} --feed-shape x=Nx6 --json"))["sizes"], planned["sizes"], "open batches are N");
    let sizes = planned["sizes"].as_array().unwrap();
    let peaks: Vec<u64> = sizes.iter().map(|size| size["devices"][0]["peak_bytes"].as_u64().unwrap()).collect();
    assert!(peaks.is_sorted() && planned["fits"] == true && sizes[0]["n"] == 1, "{planned}");
    let largest = planned["largest_n"].as_u64().unwrap();
    let fits = |n: u64| sizes.iter().find(|size| size["n"].as_u64() == Some(n)).unwrap()["fits"].as_bool();
    assert_eq!((fits(largest), fits(largest + 1)), (Some(true), Some(false)));
    let eval = |n: u64| {
        let [x, y] = [("x", vec![n, 6]), ("y", vec![n])].map(|(name, shape)| {
            let path = folder.0.join(format!("{name}{n}.npy"));
            let data_type = if name == "x" { plimsoll::DataType::Float } else { plimsoll::DataType::Int32 };
            let zeros = plimsoll::HostTensor::zeros(data_type, shape.into()).unwrap();
            plimsoll::npy::write(&zeros, &mut std::fs::File::create(&path).unwrap()).unwrap();
            path.display().to_string()
        });
        plimsoll(&format!("eval {of} --feed x={x} --feed y={y}"))
    };
    let runs = eval(largest);
    assert_eq!(runs.code, 0, "{}", runs.err);
    let refused = eval(largest + 1);
    assert!(refused.code == 1 && refused.err.contains("bytes short"), "{}", refused.err);
}

#[test]
fn sizes_that_a_graph_refuses_are_passed_over() {
    let towers = "plan towers/graph.pb --config towers/config.pbtxt --fetch loss --target train";
    let planned = document(&format!("{towers} --memory-limit CPU:0=30KiB --json"));
    assert_eq!((&planned["step"], &planned["sizes"][0]["n"]), (&2.into(), &2.into()), "two towers take even batches");
    let largest = planned["largest_n"].as_u64().unwrap();
    let sizes: Vec<u64> = planned["sizes"].as_array().unwrap().iter().map(|size| size["n"].as_u64().unwrap()).collect();
    assert!(largest.is_multiple_of(2) && sizes.contains(&(largest + 2)), "{sizes:?}");
    let never = plimsoll(&format!("{towers} --memory-limit CPU:0=4KiB"));
    assert!(never.code == 1 && never.out.contains("N = 2 does not fit; the smallest limit that is enough"), "{}", never.out);
    for (options, said) in [
        ("--after pack", "--output, --after and --curve are for one plan"),
        ("--feed-shape x=12x6", "placeholders need shapes: 'y'"),
        ("mlp_sgd_ref/graph.pb", "of several each needs"),
    ] {
        let refused = plimsoll(&format!("{towers} {options}"));
        assert!(refused.code > 0 && refused.err.contains(said), "{options}: {}", refused.err);
    }
}
