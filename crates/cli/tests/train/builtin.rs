//! `plimsoll train` from the outside.

use std::path::Path;
use std::process::Stdio;

use crate::common::{Folder, command, devices, document, short, stopped, stopped_after, text, train};
use serde_json::Value;

#[test]
fn without_arguments_it_learns_the_digits_on_two_simulated_cards() {
    let document = document(&[]);
    assert!(document["test_accuracy"].as_f64().unwrap() >= 0.97, "{document}");
    assert!(document["final_loss"].as_f64().unwrap() < 0.1, "{document}");
    let devices = devices(&document);
    let names: Vec<&str> = devices.iter().map(|device| short(&device.0)).collect();
    assert_eq!(names, ["CPU:0", "GPU:0", "GPU:1"]);
    let mut limits = 0;
    for (name, limit, planned, measured) in &devices {
        assert!(*measured > 0 && measured == planned && *planned <= limit.unwrap(), "{name}: {document}");
        limits += limit.unwrap();
    }
    assert_eq!(document["has_default_simulated_gpus"], true);
    let resident = document["max_rss_bytes"].as_u64().unwrap();
    assert!(resident > 0 && resident <= limits + (40 << 20), "{resident}");
}

/// Two cards are simulated only where nothing names devices or towers.
#[test]
fn options_and_variables_that_name_devices_are_obeyed() {
    let names = |document: &Value| devices(document).iter().map(|device| short(&device.0).to_string()).collect::<Vec<_>>();
    let cases: &[(&[&str], &[&str])] = &[
        (&["--seed", "1", "--intra-op", "1"], &["CPU:0", "GPU:0", "GPU:1"]),
        (&["--async"], &["CPU:0", "GPU:0", "GPU:1"]),
        (&["--towers", "2"], &["CPU:0", "CPU:1"]),
        (&["--towers", "1"], &["CPU:0"]),
        (&["--device-count", "CPU=1"], &["CPU:0"]),
        (&["--memory-limit", "CPU:0=64MiB"], &["CPU:0", "CPU:1"]),
        (&["--placement", "first-fit"], &["CPU:0", "CPU:1"]),
        (&["--allow-growth"], &["CPU:0", "CPU:1"]),
        (&["--sim-gpus", "3x1GiB", "--batch-size", "96"], &["CPU:0", "GPU:0", "GPU:1", "GPU:2"]),
    ];
    for (args, expected) in cases {
        let document = document(&[args, &["--steps", "2"][..]].concat());
        assert_eq!(names(&document), *expected, "{args:?}");
        assert_eq!(document["has_default_simulated_gpus"], !args.contains(&"--sim-gpus") && expected.len() == 3, "{args:?}");
    }
    for (name, value) in [("PLIMSOLL_SIM_GPUS", ""), ("CUDA_VISIBLE_DEVICES", "-1")] {
        let output = command(&["--steps", "2", "--json"]).env(name, value).output().unwrap();
        assert_eq!(names(&serde_json::from_slice(&output.stdout).unwrap()), ["CPU:0", "CPU:1"], "{name}");
    }
}

/// As many towers as make the predicted step the shortest. Numbers that do not divide the batch are said to be none.
#[test]
fn towers_are_as_many_as_pay_off() {
    let run = |args: &[&str]| train(&[&["--towers", "auto", "--steps", "2", "--json", "--batch-size", "1024"], args].concat());
    let output = run(&["--sim-gpus", "3x1GiB,speed=0.001"]);
    let (said, document) = (text(&output.stderr), serde_json::from_slice::<Value>(&output.stdout).unwrap());
    let seconds = |towers: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(towers)?.strip_prefix(": ")?.strip_suffix(" ms a step"));
        line.map(|number| number.parse::<f64>().unwrap())
    };
    let all = [seconds("1 tower on GPU:0"), seconds("2 towers on GPU:0, GPU:1")].map(|seconds| seconds.expect(&said));
    assert!(said.contains("3 towers on GPU:0, GPU:1, GPU:2: a batch of 1024 cannot be divided evenly"), "{said}");
    assert!(all[1] < 0.6 * all[0], "{said}");
    assert_eq!(document["towers"].as_array().unwrap().len(), 2, "{said}");
    // The fastest card comes first, wherever it is.
    let slow_first = run(&["--sim-gpus", "1x1GiB,speed=0.0001+1x1GiB,speed=0.01"]);
    let said = text(&slow_first.stderr);
    assert!(slow_first.status.success() && said.contains("1 tower on GPU:1: "), "{said}");
    let document = serde_json::from_slice::<Value>(&slow_first.stdout).unwrap();
    assert_eq!(document["towers"].as_array().unwrap().len(), 1, "{said}");
    for (args, part) in [(["--towers", "auto", "--async"], "step together"), (["--steps", "2", "--towers=0"], "1 to 256, or auto")] {
        let output = train(&args);
        assert!(output.status.code() == Some(2) && text(&output.stderr).contains(part), "{args:?}: {}", text(&output.stderr));
    }
}

/// The promise of the cards is exact: their limits can be as low, and not a byte lower.
#[test]
fn one_byte_below_the_promise_of_a_card_is_refused() {
    for form in [&["--steps", "3"][..], &["--steps", "3", "--async"]] {
        let peaks: Vec<u64> = devices(&document(form)).iter().map(|device| device.2).collect();
        let limits = |less: u64| format!("CPU:0={}B,GPU:0={}B,GPU:1={}B", peaks[0], peaks[1], peaks[2] - less);
        let with = |less: u64| train(&[form, &["--json", "--fit=off", "--sim-gpus", "2x1GiB", "--memory-limit", &limits(less)]].concat());
        let exact: Value = serde_json::from_slice(&with(0).stdout).unwrap();
        assert_eq!(devices(&exact).iter().map(|device| device.3).collect::<Vec<_>>(), peaks);
        let output = with(1);
        let err = text(&output.stderr);
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(1), ""), "{err}");
        assert!(err.contains("device:GPU:1") && err.contains(": 1 byte short; at the peak "), "{err}");
    }
}

/// Without a ledger that programs with the same cards could share, training goes on, on CPUs.
#[test]
fn without_a_ledger_for_cards_the_towers_are_on_cpus() {
    let folder = Folder::new("no-ledger");
    std::fs::write(folder.0.join("file"), [0]).unwrap();
    let output = command(&["--steps", "2"]).env("PLIMSOLL_STATE_DIR", folder.text("file")).output().unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success() && out.contains("tower 1 on CPU:1: "), "{out}{err}");
    assert!(err.contains("note: no simulated cards, the towers are on CPUs: "), "{err}");
}

#[test]
fn the_last_lines_say_what_was_promised_measured_and_refused() {
    let output = train(&["--steps", "20"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let out = text(&output.stdout);
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines[0].starts_with("digits: 64-128-64-10, 2 towers of 64 images a step, adam"), "{out}");
    assert!(lines.iter().all(|line| line.chars().count() <= 120), "{out}");
    assert_eq!(lines[1], "no GPU to compute on: GPU:0 and GPU:1 are simulated (--towers 2 for CPUs)", "{out}");
    for (device, promise) in [("CPU:0", lines[2]), ("GPU:0", lines[3]), ("GPU:1", lines[4])] {
        assert!(promise.starts_with(&format!("{device}: limit ")), "{out}");
        let promised = promise.split("promised ").nth(1).unwrap();
        let last = lines.iter().position(|line| *line == format!("{promise}, measured {promised}")).unwrap_or_else(|| panic!("{out}"));
        let below = lines[last + 1..].iter().take_while(|line| line.starts_with("  ")).copied().collect::<Vec<_>>().join(" ");
        assert!(below.trim_start().starts_with("with --fit=off a limit of ") && below.contains("RESOURCE_EXHAUSTED: "), "{out}");
        assert!(below.split_whitespace().collect::<Vec<_>>().join(" ").contains("1 byte short"), "{out}");
    }
    let err = text(&output.stderr);
    assert_eq!(err.lines().filter(|line| line.starts_with("step ") && line.contains(": loss ")).count(), 10, "{err}");
}

#[test]
fn runs_at_the_promised_peaks_and_is_refused_one_byte_below() {
    let arguments = ["--steps", "3", "--batch-size", "32", "--device-count", "CPU=2"];
    let peaks: Vec<u64> = devices(&document(&arguments)).iter().map(|device| device.2).collect();
    let limits = |less: [u64; 2]| format!("CPU:0={}B,CPU:1={}B", peaks[0] - less[0], peaks[1] - less[1]);
    let limited = devices(&document(&[&arguments[..], &["--memory-limit", &limits([0, 0])]].concat()));
    for (device, peak) in limited.iter().zip(&peaks) {
        assert_eq!((device.1, device.2, device.3), (Some(*peak), *peak, *peak));
    }
    for (index, less) in [(0, [1, 0]), (1, [0, 1])] {
        let output = train(&[&arguments[..], &["--json", "--fit=off", "--memory-limit", &limits(less)]].concat());
        let err = text(&output.stderr);
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(1), ""), "{err}");
        assert!(err.starts_with("error: RESOURCE_EXHAUSTED: ") && err.contains(&format!("device:CPU:{index}")), "{err}");
        assert!(
            err.contains(": 1 byte short; at the peak ") && err.contains(&format!("raise the limit to {} bytes", peaks[index])),
            "{err}"
        );
    }
}

#[test]
fn a_resumed_training_writes_the_checkpoint_of_an_uninterrupted_one() {
    let folder = Folder::new("resume");
    let [first, second, whole] = ["first", "second", "whole"].map(|name| folder.text(name));
    document(&["--steps", "15", "--seed", "7", "--save", &first]);
    let resumed = document(&["--steps", "40", "--resume", &first, "--save", &second]);
    let at_once = document(&["--steps", "40", "--seed", "7", "--save", &whole]);
    assert_eq!((&resumed["steps"], &resumed["final_loss"]), (&at_once["steps"], &at_once["final_loss"]));
    assert_eq!(resumed["test_accuracy"], at_once["test_accuracy"]);
    let data = |folder: &str| std::fs::read(Path::new(folder).join("model.ckpt-40.data-00000-of-00001")).unwrap();
    assert_eq!(data(&second), data(&whole));
    // There is nothing left to do.
    let done = document(&["--steps", "40", "--resume", &whole]);
    assert_eq!((&done["steps"], &done["final_loss"]), (&Value::from(40), &Value::Null));
    assert_eq!(done["test_accuracy"], at_once["test_accuracy"]);
}

#[test]
fn ctrl_c_ends_at_a_step_with_a_summary_and_a_checkpoint() {
    let folder = Folder::new("stop");
    let saved = folder.text("saved");
    for (signal, status) in [("INT", 130), ("TERM", 143)] {
        let output = stopped(&["--steps", "20000000", "--save", &saved, "--json"], signal);
        assert_eq!(output.status.code(), Some(status), "{:?}", output.status);
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        let steps = document["steps"].as_u64().unwrap();
        assert!(steps < 20_000_000, "{document}");
        assert!(Path::new(&saved).join(format!("model.ckpt-{steps}.index")).is_file());
    }
}

/// Without a checkpoint to write, a step ends between two commands, and nothing is evaluated.
#[test]
fn ctrl_c_ends_a_training_that_saves_nothing_at_once() {
    for form in [&["--batch-size", "1400", "--steps", "20000000"][..], &["--async", "--batch-size", "1400", "--steps", "20000000"]] {
        let (output, took) = stopped_after("step ", &[form, &["--json"]].concat(), "INT");
        assert_eq!(output.status.code(), Some(130), "{:?}", output.status);
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(document["steps"].as_u64().unwrap() > 0 && took.as_secs() < 5, "{document} {took:?}");
    }
}

/// Where a training is killed, its latest checkpoint is whole, and a training goes on from it.
#[test]
fn a_killed_training_leaves_its_latest_checkpoint() {
    let folder = Folder::new("killed");
    let graph = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/mlp_sgd_ref");
    let file = |name: &str| graph.join(name).display().to_string();
    let (graph, x, y) = (file("graph.pb"), format!("x={}", file("step0_feed0.npy")), format!("y={}", file("step0_feed1.npy")));
    let model = [&graph, "--data", &x, "--data", &y, "--target", "train", "--batch-size", "6"];
    let cases: [(&[&str], &str, &str); 4] = [
        (&["digits"], "7", ""),
        (&["digits", "--async"], "7", ""),
        (&model, "20ms", ""),
        (&["--ensemble", "2", "--towers", "1"], "7", "seed-1"),
    ];
    for (number, (what, every, member)) in cases.into_iter().enumerate() {
        let saved = folder.0.join(number.to_string());
        let options = ["--steps", "20000000", "--save-every", every, "--save", saved.to_str().unwrap()];
        let mut child = command(&[what, &options].concat()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let latest = saved.join(member).join("checkpoint");
        let names = || -> Vec<String> {
            let text = std::fs::read_to_string(&latest).unwrap_or_default();
            let paths = text.lines().filter_map(|line| line.strip_prefix("all_model_checkpoint_paths: "));
            paths.map(|path| path.trim_matches('"').to_string()).collect()
        };
        let begin = std::time::Instant::now();
        while names().len() != 5 && begin.elapsed().as_secs() < 60 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let is_ensemble = !member.is_empty();
        // A network of an ensemble is asked to end when its program is gone. It may write one more checkpoint, at the step that it
        // is at. A sixth is named from when it is written until the oldest is gone; a training that was killed in between stays so.
        while is_ensemble && names().len() != 5 && begin.elapsed().as_secs() < 60 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let kept = names();
        assert!(kept.len() == 5 || (kept.len() == 6 && !is_ensemble), "{what:?}: {kept:?}");
        let steps: Vec<u64> = kept.iter().map(|name| name.rsplit('-').next().unwrap().parse().unwrap()).collect();
        assert!(steps.is_sorted() && (every != "7" || steps[..4].iter().all(|step| step % 7 == 0)), "{what:?}: {kept:?}");
        let from = saved.join(member).display().to_string();
        let what = if is_ensemble { &["--towers", "1"][..] } else { what };
        let output = train(&[what, &["--steps", "1", "--resume", &from]].concat());
        let out = text(&output.stdout);
        assert!(output.status.success(), "{what:?}: {}", text(&output.stderr));
        let step = out.lines().find_map(|line| line.strip_prefix("resumed after step ")).and_then(|step| step.parse::<u64>().ok());
        let is_at_will = every != "7" || is_ensemble;
        assert!(step.unwrap() > 1 && (is_at_will || step.unwrap() % 7 == 0), "{out}");
        assert!(out.contains("nothing to do: --steps 1 is not after that"), "{out}");
    }
}

#[test]
fn an_ensemble_saves_and_resumes_each_network() {
    let folder = Folder::new("ensemble");
    let saved = folder.text("a{b}");
    let options = ["--ensemble", "2", "--seed", "3", "--towers", "1", "--save", &saved];
    let first = document(&[&options[..], &["--steps", "5"]].concat());
    assert!(["seed-3", "seed-4"].iter().all(|seed| Path::new(&saved).join(seed).join("model.ckpt-5.index").is_file()), "{first}");
    let resumed = document(&[&options[..], &["--steps", "9", "--resume", &saved]].concat());
    let at_once = document(&["--ensemble", "2", "--seed", "3", "--towers", "1", "--steps", "9"]);
    assert_eq!(resumed["test_accuracy"], at_once["test_accuracy"]);
    assert!(Path::new(&saved).join("seed-4/model.ckpt-9.index").is_file());
}

#[test]
fn later_work_and_wrong_use_are_refused() {
    let folder = Folder::new("refused");
    let model = folder.text("model.pb");
    std::fs::write(&model, b"").unwrap();
    let cases: &[(&[&str], &str)] = &[
        (&["mnist"], "plimsoll train mnist --data FOLDER"),
        (&["cifar10", "--data", "cifar"], "cifar: no such folder"),
        (&["--augment"], "only for the images of cifar10"),
        (&[&model], "--data NAME=FILE.npy"),
        (&["nothing.pb"], "nothing.pb"),
        (&["--data", "images=x.npy"], "the digits are built in"),
        (&["--signature", "serve"], "--signature serve: only models have it"),
        (&["--optimizer", "lion"], "sgd, momentum or adam"),
        (&["--towers", "3"], "128 cannot be divided evenly among 3 towers"),
        (&["--towers", "0"], "--towers"),
        (&["--batch-size", "0"], "--batch-size"),
        (&["--batch-size", "5000"], "a step takes 5000 examples, and there are 1437\n  hint: take batches of at most 1437"),
        (&["--batch-size", "1438", "--async"], "a step takes 1438 examples, and there are 1437"),
        (&["--save-every", "5"], "--save"),
        (&["--save", "x", "--save-every", "0"], "a number of steps as 500, or a duration as 10min"),
        (&["--save", "x", "--save-every", "5 parsecs"], "a number of steps as 500, or a duration as 10min"),
        (&["--learning-rate", "nan"], "learning rate"),
    ];
    for (args, fragment) in cases {
        let output = train(args);
        let err = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {err}");
        assert!(err.contains(fragment) && output.stdout.is_empty(), "{args:?}: {err}");
    }
    let output = train(&["--resume", &folder.text("nowhere")]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("NOT_FOUND"));
}

#[test]
fn what_cannot_be_is_said_before_the_first_step() {
    let folder = Folder::new("refused");
    std::fs::write(folder.0.join("file"), [0]).unwrap();
    let save = folder.text("file");
    for (args, code, fragment) in [
        (vec!["--save", save.as_str()], "FAILED_PRECONDITION", "--save"),
        (vec!["--batch-size", "1024", "--memory-limit", "CPU:0=100KiB"], "RESOURCE_EXHAUSTED", "bytes short"),
        (vec!["--memory-limit", "CPU:0=0"], "RESOURCE_EXHAUSTED", "bytes short"),
    ] {
        let output = train(&args);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(code) && said.contains(fragment), "{said}");
        assert!(!text(&output.stdout).contains("step"), "{}", text(&output.stdout));
    }
}
