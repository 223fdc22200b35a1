//! `plimsoll run`, `plimsoll sweep`, `plimsoll train --ensemble`.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Folder, Said, document, outcome, said, state_dir};

/// A call with a script as its last argument.
fn shell(args: &str, script: &str) -> Said {
    said(Command::new(env!("CARGO_BIN_EXE_plimsoll")).args(args.split_whitespace()).args(["--", "sh", "-c", script]))
}

#[test]
fn a_program_runs_under_a_lease() {
    let ran = shell("run --sim-gpus 4x1GiB --gpus 3,2 --memory 0.25 --name mine", "echo $CUDA_VISIBLE_DEVICES $PLIMSOLL_SIM_GPUS; exit 7");
    assert_eq!((ran.code, ran.out.as_str()), (7, "3,2 4x1GiB\n"), "{}", ran.err);
    assert!(
        ran.err.starts_with("plimsoll run: 256 MiB of GPU 3 (Simulated GPU), 256 MiB of GPU 2 (Simulated GPU); not watched: "),
        "{}",
        ran.err
    );
    assert!(ran.err.contains("use not observed; the lease is free"), "{}", ran.err);
    let quiet = shell("run --sim-gpus 1x1GiB --quiet", "true");
    assert_eq!((quiet.code, quiet.err.as_str()), (0, ""));
    assert_eq!(shell("run --sim-gpus 1x1GiB --timeout 100ms", "exec sleep 300").code, 124);
    let own = env!("CARGO_BIN_EXE_plimsoll");
    let inner = shell(
        "run --sim-gpus 2x1GiB --memory 600MiB",
        &format!("{own} run --memory 0.5 -- {own} devices --json; {own} run --memory 601MiB -- true"),
    );
    assert_eq!(inner.code, 125, "{}", inner.err);
    let seen: Value = serde_json::from_str(inner.out.trim()).unwrap();
    assert_eq!(seen["cards"][0]["reserved_bytes"], json!(600 << 20), "what is leased inside is not counted twice");
    assert_eq!(seen["devices"][1]["limit_bytes"], json!(300 << 20), "inside of a lease a card is as large as the lease");
    assert!(inner.err.contains("300 MiB of GPU 0 (Simulated GPU); held: it allocates nothing beyond"), "{}", inner.err);
}

#[test]
fn a_rung_is_asked_for_and_a_report_written() {
    let folder = Folder::new("report");
    let path = folder.0.join("report.json");
    for rung in ["kernel", "mps", "shim"] {
        let refused = shell(&format!("run --sim-gpus 1x1GiB --enforce {rung} --report {}", path.display()), "echo started");
        assert_eq!((refused.code, refused.out.as_str()), (125, ""), "{}", refused.err);
        assert!(refused.err.contains(&format!("FAILED_PRECONDITION: --enforce {rung}: cards are simulated")), "{}", refused.err);
        let report: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(report["ended"]["how"], "no lease");
    }
    for rung in ["none", "kill", "warn"] {
        let ran = shell(&format!("run --sim-gpus 1x1GiB --enforce={rung} --report {}", path.display()), "exit 4");
        assert!(ran.code == 4 && ran.err.contains("; not watched: "), "{}", ran.err);
        let report: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!((&report["ended"]["status"], &report["rung"]), (&json!(4), &json!("not watched")));
    }
    assert_eq!(shell("run --enforce watched", "true").code, 2);
    for idle in ["--idle-timeout 0s", "--idle-notify=0s", "--idle-timeout never"] {
        assert_eq!(shell(&format!("run --sim-gpus 1x1GiB {idle}"), "true").code, 2, "{idle}");
    }
    let refused = shell("run --sim-gpus 1x1GiB --idle-notify", "echo started");
    assert!(refused.code == 125 && refused.err.contains("use of these cards cannot be observed"), "{}", refused.err);
}

#[test]
fn the_doctor_says_what_is_here() {
    let said = super::plimsoll("doctor --json --sim-gpus 2x1GiB");
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    let document: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(document["ok"], json!(true));
    let checks = document["checks"].as_array().unwrap();
    let of = |name: &str| checks.iter().filter(|check| check["check"] == name).collect::<Vec<_>>();
    assert_eq!(of("driver")[0]["state"], "not here");
    assert!(of("driver")[0]["remedy"].is_string());
    assert!(of("ledger").len() == 4 && of("ledger")[1..].iter().all(|check| check["state"] == "pass"), "{document}");
    assert_eq!(
        (of("leases")[0]["state"].as_str(), of("leases")[0]["what"].as_str()),
        (Some("pass"), Some("2 cards can be leased; 0 holders"))
    );
    let rungs: Vec<&str> = of("rungs").iter().map(|check| check["what"].as_str().unwrap().split(':').next().unwrap()).collect();
    assert_eq!(rungs, ["kernel", "mps", "shim", "framework", "watched"]);
    let text = super::plimsoll("doctor");
    assert!(text.code == 0 && text.out.ends_with("nothing is broken\n"), "{}", text.out);
    // A folder that others may write is broken.
    let folder = Folder::new("doctor");
    std::fs::set_permissions(&folder.0, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    let broken = super::outcome(command.arg("doctor").env("PLIMSOLL_STATE_DIR", &folder.0).env("PLIMSOLL_NVML", ""));
    assert_eq!(broken.code, 1, "{}", broken.out);
    assert!(
        broken.out.contains("fail      ledger          the folder for ledgers ") && broken.out.ends_with("checks failed\n"),
        "{}",
        broken.out
    );
}

#[test]
fn without_a_card_a_program_runs_without_one() {
    let ran = shell("run", "echo [$CUDA_VISIBLE_DEVICES]; exit 7");
    assert_eq!(ran.code, 7, "{}{}", ran.out, ran.err);
    for asked in ["run --gpus 1", "run --memory 1GiB"] {
        let refused = shell(asked, "true");
        assert_eq!((refused.code, refused.out.as_str()), (125, ""), "{asked}: {}", refused.err);
    }
    let wrong = shell("run --memory 2", "true");
    assert!(wrong.code == 2 && wrong.err.contains("--memory: '2' has no unit: write 2GiB or 2MiB, or 2B for bytes"), "{}", wrong.err);
}

#[test]
fn a_network_stays_inside_its_lease() {
    let run = |memory: &str| {
        let own = env!("CARGO_BIN_EXE_plimsoll");
        shell(&format!("run --sim-gpus 2x1GiB --gpus 2 --memory {memory}"), &format!("{own} verify towers2_adam_ref --json"))
    };
    let fits = run("1MiB");
    assert_eq!(fits.code, 0, "{}{}", fits.out, fits.err);
    let verdict: Value = serde_json::from_str(fits.out.trim()).unwrap();
    let devices = verdict[0]["devices"].as_array().unwrap();
    let peak = devices
        .iter()
        .filter(|device| device["name"].as_str().unwrap().contains("GPU"))
        .map(|device| device["measured_peak_bytes"].as_u64().unwrap());
    let peak = peak.max().unwrap();
    assert!(peak > 0 && peak <= 1 << 20, "{verdict}");
    let refused = run("4KiB");
    assert_eq!(refused.code, 1, "{}{}", refused.out, refused.err);
}

#[test]
fn a_sweep_runs_and_goes_on() {
    let folder = Folder::new("sweep");
    let results = folder.0.join("results.jsonl").display().to_string();
    let script = "echo training; echo \"{\\\"accuracy\\\": 0.$0, \\\"steps\\\": 3}\"";
    let sweep = |set: &str, more: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        command.args(["sweep", "--set", set, "--sim-gpus", "1x1GiB", "--memory", "400MiB", "--results", &results]);
        said(command.args(more.split_whitespace()).args(["--", "sh", "-c", script, "{n}"]))
    };
    let first = sweep("n=1,3,2", "");
    assert_eq!(first.code, 0, "{}", first.err);
    let lines: Vec<Vec<&str>> = first.out.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["n", "accuracy", "steps", "seconds", "status"]);
    assert_eq!(lines[1..].iter().map(|line| line[0]).collect::<Vec<_>>(), ["3", "2", "1"], "the best first: {}", first.out);
    assert_eq!(first.err.lines().count(), 3, "{}", first.err);
    let second = sweep("n=1,4,3", "--best min --json");
    assert!(second.err.contains("2 of 3 were done before"), "{}", second.err);
    let all: Value = serde_json::from_str(&second.out).unwrap();
    let values: Vec<&str> = all.as_array().unwrap().iter().map(|done| done["set"]["n"].as_str().unwrap()).collect();
    assert_eq!((values, &all[0]["result"]["steps"]), (vec!["1", "3", "4"], &json!(3)));
    let mut failing = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    let logs = folder.0.join("failing.jsonl.logs");
    failing.args(["sweep", "--set", "n=1", "--gpus", "0", "--results"]).arg(folder.0.join("failing.jsonl"));
    let failed = said(failing.args(["--", "sh", "-c", "echo why >&2; exit {n}"]));
    assert_eq!((failed.code, failed.err.lines().last()), (1, Some(&*format!("the programs' output is in {}", logs.display()))));
    assert_eq!(std::fs::read_to_string(logs.join("1.err")).unwrap(), "why\n");
    assert_eq!(sweep("m=1", "").code, 2, "nothing in the command uses it");
}

/// A stand-in for Slurm's srun: a node is a ledger of its own.
const SRUN: &str = r#"#!/bin/sh
echo "$*" >> "$NODES/steps"
while [ $# -gt 0 ]; do
    case "$1" in
        --relative=*) node=${1#--relative=} ;;
        --*) ;;
        *) break ;;
    esac
    shift
done
export SLURMD_NODENAME="node$node" PLIMSOLL_STATE_DIR="$NODES/state$node" SLURM_STEP_ID=0
exec "$@"
"#;

#[test]
fn a_sweep_in_an_allocation_is_on_all_of_its_nodes() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new("slurm");
    let srun = folder.0.join("srun");
    std::fs::write(&srun, SRUN).unwrap();
    std::fs::set_permissions(&srun, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", folder.0.display(), std::env::var("PATH").unwrap_or_default());
    let sweep = |arguments: &[&str], variables: &[(&str, &str)]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        command.args(["sweep", "--set", "n=1,2,3,4,5,6", "--memory", "600MiB", "--results"]);
        command.arg(folder.0.join("results.jsonl")).args(arguments);
        command.env("PATH", &path).env("NODES", &folder.0).env("PLIMSOLL_SIM_GPUS", "1x1GiB").env("PLIMSOLL_NVML", "");
        command.env_remove("CUDA_VISIBLE_DEVICES").env_remove("SLURM_STEP_ID").envs(variables.iter().copied());
        let script =
            "sleep 0.2; echo \"{\\\"steps\\\": $0, \\\"node\\\": \\\"$SLURMD_NODENAME\\\", \\\"card\\\": \\\"$CUDA_VISIBLE_DEVICES\\\"}\"";
        outcome(command.env("PLIMSOLL_SHIM", "").env("PLIMSOLL_STATE_DIR", state_dir()).args(["--", "sh", "-c", script, "{n}"]))
    };
    let allocation = [("SLURM_JOB_ID", "7"), ("SLURM_JOB_NUM_NODES", "2"), ("SLURM_CPUS_ON_NODE", "2")];
    let ran = sweep(&["--json"], &allocation);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let all: Value = serde_json::from_str(&ran.out).unwrap();
    let nodes: Vec<&str> = all.as_array().unwrap().iter().map(|done| done["result"]["node"].as_str().unwrap()).collect();
    assert!(nodes.contains(&"node0") && nodes.contains(&"node1") && nodes.len() == 6, "{nodes:?}");
    assert!(all.as_array().unwrap().iter().all(|done| done["result"]["card"] == "0"), "{}", ran.out);
    let steps = std::fs::read_to_string(folder.0.join("steps")).unwrap();
    assert!(steps.lines().count() == 6 && steps.contains("run --gpus=1 --memory=629145600 --wait --quiet -- sh -c"), "{steps}");
    // The results are those of the programs, wherever they ran.
    assert!(sweep(&["--engine", "none"], &allocation).err.contains("6 of 6 were done before"));
    for (arguments, words) in [
        (&["--engine", "slurm"][..], "this is no Slurm allocation of several nodes"),
        (&["--engine", "ray", "--sim-gpus", "1x1GiB"], "--sim-gpus"),
        (&["--engine", "cluster"], "invalid value"),
    ] {
        let refused = sweep(arguments, &[]);
        assert!(refused.code == 2 && refused.err.contains(words), "{arguments:?}: {}", refused.err);
    }
}

/// An obstacle of a sweep ends it, with programs that would rather not.
#[test]
fn a_sweep_that_cannot_go_on_ends_its_programs() {
    let folder = Folder::new("stubborn");
    let [stubborn, waits, there] = ["stubborn.sh", "waits.sh", "there"].map(|name| folder.0.join(name).display().to_string());
    std::fs::write(&stubborn, format!("trap '' TERM\necho $$ > {there}.new\nmv {there}.new {there}\nwhile :; do sleep 0.1; done\n"))
        .unwrap();
    std::fs::write(&waits, format!("while [ ! -e {there} ]; do sleep 0.01; done\n")).unwrap();
    // The third cannot start, there is a folder where its output should go; it is its turn when the second has seen the first.
    std::fs::create_dir_all(folder.0.join("results.jsonl.logs/3.out")).unwrap();
    let mut sweep = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    sweep.args(["sweep", "--gpus", "0", "--jobs", "2", "--set", &format!("program={stubborn},{waits},other"), "--results"]);
    let said = said(sweep.arg(folder.0.join("results.jsonl")).args(["--", "sh", "{program}"]));
    assert!(said.code == 1 && said.err.contains("3.out"), "{} {}", said.code, said.err);
    let pid = std::fs::read_to_string(&there).unwrap();
    assert!(!std::path::Path::new("/proc").join(pid.trim()).exists(), "{}", said.err);
}

/// A process in a session of its own, whose parent is gone, writes its number.
const APART: &str = "setsid --fork sh -c 'trap : TERM HUP INT; echo $$ > pid.new; mv pid.new pid; while :; do sleep 0.05; done'";

#[test]
fn a_killed_sweep_leaves_nothing_behind() {
    if Command::new("setsid").arg("true").output().is_err() {
        eprintln!("skipped: there is no setsid");
        return;
    }
    // Where this program ignores it (a shell's job in the background), the sweep would, too.
    let always = Arc::new(AtomicBool::new(true));
    signal_hook::flag::register_conditional_default(signal_hook::consts::SIGINT, always).unwrap();
    for (signal, stubborn) in [("KILL", ""), ("KILL", "trap : TERM; "), ("TERM", ""), ("INT", "")] {
        let folder = Folder::new("killed");
        let mut sweep = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        sweep.args(["sweep", "--set", "n=1", "--sim-gpus", "1x1GiB", "--results", "results.jsonl", "--", "sh", "-c"]);
        sweep.arg(format!(
            "{stubborn}{APART} > /dev/null 2>&1; echo $$ {{n}} > first.new; mv first.new first; while :; do sleep 0.05; done"
        ));
        sweep.current_dir(&folder.0).env("PLIMSOLL_NVML", "").env("PLIMSOLL_STATE_DIR", folder.0.join("state")).stderr(Stdio::null());
        let mut sweep = sweep.stdin(Stdio::null()).spawn().unwrap();
        let read = |name: &str| -> Option<String> {
            let text = std::fs::read_to_string(folder.0.join(name)).ok()?;
            text.split_whitespace().next().map(str::to_string)
        };
        let comes = |what: &str, is_so: &dyn Fn() -> bool| {
            let begin = Instant::now();
            while !is_so() {
                assert!(begin.elapsed() < Duration::from_secs(60), "{signal} {stubborn}: {what}");
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        comes("both run", &|| read("pid").is_some() && read("first").is_some());
        let pids = [read("pid").unwrap(), read("first").unwrap()];
        let lives = |pid: &String| std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z"));
        assert!(pids.iter().all(lives), "{pids:?}");
        assert!(Command::new("kill").args([format!("-{signal}"), sweep.id().to_string()]).status().unwrap().success());
        let status = sweep.wait().unwrap();
        assert!(!status.success());
        comes("nothing is left", &|| !pids.iter().any(lives));
    }
}

#[test]
fn networks_side_by_side() {
    let ensemble = document("train digits --ensemble 2 --seed 5 --steps 5 --towers 1 --json");
    let alone = document("train digits --seed 6 --steps 5 --towers 1 --json");
    assert_eq!(ensemble["members"].as_array().unwrap().iter().map(|member| member["seed"].as_i64().unwrap()).collect::<Vec<_>>(), [5, 6]);
    let accuracy = |value: &Value| value["test_accuracy"].as_f64().unwrap();
    assert_eq!(accuracy(&ensemble["members"][1]), accuracy(&alone), "each is what it would be alone");
    let mean = (accuracy(&ensemble["members"][0]) + accuracy(&ensemble["members"][1])) / 2.0;
    assert!((accuracy(&ensemble) - mean).abs() < 1e-12);
}

#[test]
fn towers_are_where_the_cards_are() {
    let on_cards = document("train digits --sim-gpus 2x1GiB --steps 5 --json");
    let on_cpus = document("train digits --towers 2 --steps 5 --json");
    assert_eq!(on_cards["final_loss"], on_cpus["final_loss"], "the device changes no bit");
    let names = |document: &Value| -> Vec<String> {
        document["devices"]
            .as_array()
            .unwrap()
            .iter()
            .map(|device| device["name"].as_str().unwrap().rsplit("device:").next().unwrap().into())
            .collect()
    };
    assert_eq!(names(&on_cards), ["CPU:0", "GPU:0", "GPU:1"]);
    assert_eq!(names(&on_cpus), ["CPU:0", "CPU:1"]);
    for device in on_cards["devices"].as_array().unwrap() {
        assert!(device["measured_peak_bytes"].as_u64().unwrap() > 0, "{device}");
        assert_eq!(device["measured_peak_bytes"], device["planned_peak_bytes"]);
    }
}

/// A program for Python, and its folder on PYTHONPATH; None, and it is said, where there is no Python.
fn python(folder: &Folder, source: &str, options: &str) -> Option<Said> {
    if !Command::new("python3").args(["-c", "import sys; sys.exit(sys.version_info < (3, 7))"]).status().is_ok_and(|ended| ended.success())
    {
        eprintln!("skipped: there is no python3 of 3.7 or later");
        return None;
    }
    std::fs::write(folder.0.join("program.py"), source).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.args("run --sim-gpus 1x4GiB".split_whitespace()).args(options.split_whitespace()).args(["--", "python3"]);
    command.arg(folder.0.join("program.py")).env("PYTHONPATH", &folder.0).env_remove("PLIMSOLL_HOOK");
    Some(said(&mut command))
}

#[test]
fn python_programs_get_a_hook() {
    let folder = Folder::new("hook");
    std::fs::write(folder.0.join("sitecustomize.py"), "import sys\nsys.mine = __file__\n").unwrap();
    let source = "import json, os, sys, sitecustomize\n\
        hook = [finder for finder in sys.meta_path if getattr(finder, 'is_plimsoll_hook', False)]\n\
        path = os.environ['PYTHONPATH'].split(os.pathsep)\n\
        cards = json.loads(os.environ.get('PLIMSOLL_FRAMEWORK_LIMITS', '{}')).get('cards')\n\
        print(json.dumps([len(hook), sys.mine == sitecustomize.__file__, len(path), os.environ.get('XLA_PYTHON_CLIENT_MEM_FRACTION'), cards]))\n";
    let Some(held) = python(&folder, source, "--memory 2GiB") else { return };
    assert_eq!(held.code, 0, "{}", held.err);
    let seen: Value = serde_json::from_str(&held.out).unwrap();
    assert_eq!(seen.as_array().unwrap()[..4], [json!(1), json!(true), json!(2), json!("0.3750")], "{seen}");
    let (card, gib) = (&seen[4][0], 1_u64 << 30);
    assert_eq!((&card["bytes"], &card["total"], &card["pytorch"]), (&json!(2 * gib), &json!(4 * gib), &json!(3 * gib / 2)));
    let whole = python(&folder, source, "").unwrap();
    let seen: Value = serde_json::from_str(&whole.out).unwrap();
    assert_eq!(seen.as_array().unwrap()[..4], [json!(0), json!(true), json!(1), json!(null)], "a whole card is the program's: {seen}");
    assert_eq!(seen[4][0]["pytorch"], json!(4 * gib));
}
