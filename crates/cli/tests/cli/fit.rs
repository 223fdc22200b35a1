//! Plans that are made to fit, from the command line.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::evaluation::scalars;
use super::{Folder, cases, document, plimsoll, state_dir};

const TOWERS: &str = "plan towers2_adam_ref/graph.pb --target train --feed-shape x=64x8x8x3 --feed-shape y=64 --json";

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("no {key} in {value}"))
}

#[test]
fn a_plan_at_a_limit_of_the_curve_is_the_plan_of_the_curve() {
    let unlimited = document(&format!("{TOWERS} --curve"));
    let (least, highest) = (number(&unlimited, "minimum_limit_bytes"), number(&unlimited["devices"][0], "peak_bytes"));
    let curve = unlimited["curve"].as_array().unwrap();
    assert!(least < highest && curve.len() > 3, "{curve:?}");
    assert_eq!((number(&curve[0], "peak_bytes"), number(curve.last().unwrap(), "limit_bytes")), (least, highest));
    let bound = number(&unlimited["devices"][0], "lower_bound_bytes");
    assert!(0 < bound && bound <= least, "{bound} of {least}");
    let mut before: Option<(u64, f64)> = None;
    for point in curve {
        let limit = number(point, "limit_bytes");
        let plan = document(&format!("{TOWERS} --memory-limit CPU:0={limit}B"));
        let peak = number(&plan["devices"][0], "peak_bytes");
        assert_eq!((&plan["fits"], peak), (&true.into(), number(point, "peak_bytes")), "{point}");
        assert_eq!(number(&plan["devices"][0], "lower_bound_bytes"), bound);
        assert_eq!(plan["recomputed"].as_array().unwrap().len() as u64, number(point, "recomputed"));
        assert_eq!(number(&plan, "minimum_limit_bytes"), least);
        let seconds = plan["predicted_step_seconds"].as_f64().unwrap();
        assert!(peak <= limit && before.is_none_or(|(low, slow)| low <= peak && seconds <= slow), "{point}: {seconds}, {before:?}");
        before = Some((peak, seconds));
    }
    let refused = document(&format!("{TOWERS} --memory-limit CPU:0={}B", least - 1));
    assert_eq!((&refused["fits"], number(&refused, "shortfall_bytes"), number(&refused, "minimum_limit_bytes")), (&false.into(), 1, least));
    let said = plimsoll(&format!("{} --memory-limit CPU:0={}B", TOWERS.trim_end_matches(" --json"), least - 1));
    assert!(said.code == 1 && said.out.contains(&format!("; below {bound} bytes (")) && said.out.contains(") none can"), "{}", said.out);
    let as_it_is = document(&format!("{TOWERS} --memory-limit CPU:0={}B --fit=off", highest - 1));
    assert_eq!((number(&as_it_is, "shortfall_bytes"), number(&as_it_is, "minimum_limit_bytes")), (1, highest));
}

#[test]
fn a_file_is_a_second_line() {
    // Towers of 31 examples are not divided into parts, which would leave nothing to wait in a file.
    let towers = TOWERS.replace("=64", "=62");
    let folder = Folder::new("spill");
    let file = format!("--spill {}=4MiB", folder.0.display());
    let unlimited = document(&format!("{towers} {file} --curve"));
    let least = number(&unlimited, "minimum_limit_bytes");
    let buffer = number(&unlimited["devices"][0], "overhead_bytes");
    assert!(buffer > 0 && least <= number(&document(&towers), "minimum_limit_bytes") + buffer);
    let curve = unlimited["curve"].as_array().unwrap();
    assert!(curve.iter().any(|point| number(point, "offloaded_bytes") > 0), "{curve:?}");
    let mut before: Option<(u64, f64)> = None;
    for point in curve {
        let plan = document(&format!("{towers} {file} --memory-limit CPU:0={}B", number(point, "limit_bytes")));
        let peak = number(&plan["devices"][0], "peak_bytes");
        assert_eq!((&plan["fits"], peak), (&true.into(), number(point, "peak_bytes")), "{point}");
        assert_eq!(number(&plan, "offloaded_bytes"), number(point, "offloaded_bytes"));
        let spilled = plan["devices"].as_array().unwrap().last().unwrap();
        assert!(spilled["name"].as_str().unwrap().ends_with("SPILL:0") && number(spilled, "limit_bytes") == 4 << 20, "{spilled}");
        assert_eq!(number(spilled, "peak_bytes") > 0, number(point, "offloaded_bytes") > 0);
        let seconds = plan["predicted_step_seconds"].as_f64().unwrap();
        assert!(before.is_none_or(|(low, slow)| low <= peak && seconds <= slow), "{point}: {seconds}, {before:?}");
        before = Some((peak, seconds));
    }
    let refused = document(&format!("{towers} {file} --memory-limit CPU:0={}B", least - 1));
    assert_eq!((&refused["fits"], number(&refused, "shortfall_bytes"), number(&refused, "minimum_limit_bytes")), (&false.into(), 1, least));
}

#[test]
fn a_case_runs_at_its_least_limit_with_a_file() {
    let folder = Folder::new("spill-case");
    let verify = |limit: u64| {
        let file = format!("{}=64KiB", folder.0.display());
        let said = plimsoll(&format!("verify towers2_adam_ref --json --spill {file} --memory-limit CPU:0={limit}B"));
        serde_json::from_str::<Value>(&said.out).unwrap()[0].clone()
    };
    let least = number(&verify(1 << 20), "minimum_limit_bytes");
    let verdict = verify(least);
    assert_eq!(verdict["status"], "OK", "{verdict}");
    for device in verdict["devices"].as_array().unwrap() {
        assert_eq!(device["planned_peak_bytes"], device["measured_peak_bytes"], "{verdict}");
    }
    assert_eq!(number(&verdict["devices"][0], "measured_peak_bytes"), least);
    assert_eq!(verify(least - 1)["status"], "FAIL");
}

#[test]
fn commands_that_run_take_a_file() {
    let folder = Folder::new("spills");
    let file = format!("--spill {}=1MiB", folder.0.display());
    let feeds = Folder::new("spills-feeds");
    for command in [
        "verify mlp_adam_resource",
        "bench mlp_adam_resource --runs 1",
        "train digits --towers 1 --steps 2",
        "train digits --towers 1 --steps 2 --largest-batch --memory-limit CPU:0=2MiB",
        &format!("eval scalars/graph.pb {}", scalars(&feeds, [2.0, 3.5, -1.0])),
        "devices",
    ] {
        let said = plimsoll(&format!("{command} {file}"));
        assert_eq!(said.code, 0, "{command}: {}{}", said.out, said.err);
    }
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 0);
    let listed = document(&format!("devices --json {file}"));
    let last = listed["devices"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (number(last, "limit_bytes"), last["description"].as_str().unwrap()),
        (1 << 20, &*format!("a file in {}", folder.0.display()))
    );
    for (given, said) in [
        ("/nowhere=1MiB", "no file can be made in /nowhere"),
        ("/tmp", "--spill /tmp: no size is given"),
        ("/tmp=0", "--spill /tmp=0B: a file has 4 KiB at least"),
        ("/tmp=1048576GiB", "for a file: "),
    ] {
        let refused = plimsoll(&format!("verify mlp_adam_resource --spill {given}"));
        assert!(refused.code != 0 && format!("{}{}", refused.out, refused.err).contains(said), "{given}: {}{}", refused.out, refused.err);
    }
}

/// Runs a script of the shell, in which `$0` is the program and `$1` a folder. The exit status, and what was said.
fn in_a_shell(script: &str, folder: &Folder) -> (Option<i32>, String) {
    let mut shell = Command::new("sh");
    shell.args(["-c", script, env!("CARGO_BIN_EXE_plimsoll")]).arg(&folder.0).current_dir(cases());
    let done = shell.env("PLIMSOLL_NVML", "").env("PLIMSOLL_STATE_DIR", state_dir()).output().unwrap();
    (done.status.code(), format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr)))
}

#[test]
fn a_file_that_there_is_no_room_for_is_refused() {
    let folder = Folder::new("spill-room");
    let verify = |size: &str| format!("exec \"$0\" verify mlp_adam_resource --spill \"$1\"={size}");
    let (code, said) = in_a_shell(&format!("ulimit -f 64; {}", verify("4MiB")), &folder);
    assert!(code == Some(1) && said.contains("RESOURCE_EXHAUSTED: 4 MiB for a file in ") && said.contains("RLIMIT_FSIZE"), "{said}");
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 0);
    // A disk of 1 MiB, where this user may mount one.
    let on_disk = |command: &str| {
        let mounted = format!("unshare -rm sh -c 'mount -t tmpfs -o size=1m none \"$1\" && {command}' \"$0\" \"$1\"");
        in_a_shell(&mounted, &folder)
    };
    if on_disk("true").0 != Some(0) {
        eprintln!("skipped: no disk can be mounted here");
        return;
    }
    let (code, said) = on_disk(&verify("4MiB"));
    assert!(code == Some(1) && said.contains("has no 4 MiB (4194304 bytes) for a file"), "{said}");
    assert!(said.contains("1 MiB are free there on /job:localhost/replica:0/task:0/device:SPILL:0"), "{said}");
    let (code, said) = on_disk(&verify("1MiB"));
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn a_killed_program_leaves_no_file() {
    let folder = Folder::new("spill-killed");
    let mut program = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    program.args(["train", "digits", "--towers", "1", "--steps", "1000000", "--spill", &format!("{}=1MiB", folder.0.display())]);
    program.env("PLIMSOLL_NVML", "").env("PLIMSOLL_STATE_DIR", state_dir()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = program.spawn().unwrap();
    let files = format!("/proc/{}/fd", child.id());
    let is_there = || {
        let open = std::fs::read_dir(&files).into_iter().flatten().flatten().filter_map(|file| std::fs::read_link(file.path()).ok());
        open.into_iter().any(|path| path.starts_with(&folder.0))
    };
    let begin = Instant::now();
    while !is_there() {
        assert!(child.try_wait().unwrap().is_none() && begin.elapsed() < Duration::from_secs(60), "it never had its file");
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().code(), None);
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 0);
}

#[test]
fn a_card_takes_less_by_the_hosts_memory() {
    const CARD: &str = "plan towers2_adam_ref/graph.pb --target train --feed-shape x=64x8x8x3 --feed-shape y=64 --sim-gpus 1x1GiB --json";
    let peak = |plan: &Value| {
        let devices = plan["devices"].as_array().unwrap();
        number(devices.iter().find(|device| device["name"].as_str().unwrap().ends_with("GPU:0")).unwrap(), "peak_bytes")
    };
    let highest = peak(&document(&format!("{CARD} --fit=off")));
    let fitted = document(&format!("{CARD} --memory-limit GPU:0={}B", highest - 1));
    assert!(fitted["fits"] == true && peak(&fitted) < highest, "{fitted}");
    assert!(number(&fitted, "offloaded_bytes") > 0 || !fitted["recomputed"].as_array().unwrap().is_empty(), "{fitted}");
}

#[test]
fn the_largest_batch_is_larger_where_plans_are_made_to_fit() {
    let largest = |options: &str| {
        let said = plimsoll(&format!("plan towers2_adam_ref/graph.pb --target train --largest-batch {options}"));
        assert_eq!(said.code, 0, "{options}: {}", said.err);
        said.out.trim().parse::<u64>().unwrap_or_else(|_| panic!("{options}: {}", said.out))
    };
    let (fitted, as_they_are) = (largest("--memory-limit CPU:0=600KiB"), largest("--memory-limit CPU:0=600KiB --fit=off"));
    assert!(fitted > as_they_are, "{fitted} for {as_they_are}");
    let refused = plimsoll("plan towers2_adam_ref/graph.pb --target train --largest-batch");
    assert!(refused.code == 2 && refused.err.contains("no limit is met"), "{}", refused.err);
    let whole = plimsoll("plan towers2_adam_ref/graph.pb --target train --largest-batch --feed-shape x=64x8x8x3 --feed-shape y=64");
    assert!(whole.code == 2 && whole.err.contains("--largest-batch is for one model"), "{}", whole.err);
}

#[test]
fn the_largest_batch_of_a_training_trains_and_the_next_one_does_not() {
    const TRAIN: &str = "train digits --towers 2 --steps 1 --memory-limit CPU:0=1MiB,CPU:1=1MiB";
    let largest = |options: &str| {
        let said = plimsoll(&format!("{TRAIN} --largest-batch {options}"));
        assert_eq!(said.code, 0, "{options}: {}", said.err);
        said.out.trim().parse::<u64>().unwrap_or_else(|_| panic!("{options}: {}", said.out))
    };
    let (fitted, as_they_are) = (largest(""), largest("--fit=off"));
    assert!(fitted > as_they_are, "{fitted} for {as_they_are}");
    assert_eq!(number(&document(&format!("{TRAIN} --largest-batch --json")), "largest_batch"), fitted);
    let train = |batch: u64| plimsoll(&format!("{TRAIN} --batch-size {batch}"));
    let (fits, refused) = (train(fitted), train(fitted + 2));
    assert_eq!(fits.code, 0, "{}", fits.err);
    assert!(refused.code == 1 && refused.err.contains("RESOURCE_EXHAUSTED"), "{}", refused.err);
    let none = plimsoll("train digits --towers 2 --memory-limit CPU:0=1KiB,CPU:1=1KiB --largest-batch");
    assert!(none.code == 1 && none.err.contains("short"), "{}", none.err);
}

/// Of a loop back, what stacks hold says the shapes: it is known before the first step.
#[test]
fn the_gradient_of_a_frame_is_planned_as_a_whole() {
    let plan = document("plan frame_split_gradient/graph.pb --fetch loss --target train --feed-shape x=9x3x4 --json");
    assert_eq!(plan["devices"][0]["certainty"], "exact");
}
