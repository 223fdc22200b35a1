//! Sweeps, with real processes: as many at once as there are leases, and on from where they were after a crash.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use plimsoll_cards::{Environment, Options};
use plimsoll_machine::StateDir;
use plimsoll_share::sweep::{Axis, Outcome, Sweep, points, sweep};
use plimsoll_share::{Cards, Request};

const FOLDER: &str = "PLIMSOLL_TEST_SWEEP";

fn folder(test: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("plimsoll-sweep-{test}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir(&path).unwrap();
    path
}

/// A sweep of a script over `n`, three at once, in a folder.
fn of(folder: &Path, script: &str, values: &str) -> (Cards, Sweep) {
    let axes: Vec<Axis> = vec![format!("n={values}").parse().unwrap()];
    let wanted = Sweep {
        command: ["sh", "-c", script, "sh", "{n}"].map(String::from).to_vec(),
        points: points(&axes, None, 0).unwrap(),
        request: Some(Request { memory: "300MiB".parse().unwrap(), ..Request::cards(1) }),
        jobs: 100,
        results: folder.join("results.jsonl"),
        supervisors: None,
        engine: None,
    };
    let state = StateDir::open(folder.join("state")).unwrap();
    (Cards::find_in(&state, &Options::new().sim_gpus("1x1GiB"), &Environment::new()).unwrap(), wanted)
}

fn run(folder: &Path, script: &str, values: &str) -> (Outcome, usize) {
    let (cards, wanted) = of(folder, script, values);
    let mut most = 0;
    let outcome = sweep(&cards, &wanted, &mut |_, progress| most = most.max(progress.running)).unwrap();
    (outcome, most)
}

#[test]
fn as_many_at_once_as_there_are_leases() {
    let folder = folder("leases");
    let script = "sleep 0.1; echo training; echo \"{\\\"loss\\\": $1}\"; echo oops >&2; [ $1 != 4 ]";
    let (outcome, most) = run(&folder, script, "1,2,3,4,5,6,7");
    assert_eq!(most, 3);
    let done: Vec<_> = outcome.done.iter().flatten().map(|done| (done.number("loss"), done.ok, done.status.as_str())).collect();
    assert_eq!(done.len(), 7);
    assert_eq!((done[0], done[3]), ((Some(1.0), true, "done"), (Some(4.0), false, "exit status 1")));
    let logs = folder.join("results.jsonl.logs");
    assert_eq!(std::fs::read_to_string(logs.join("3.err")).unwrap(), "oops\n");
    // A failed run is tried again, and nothing else.
    let (outcome, most) = run(&folder, script, "1,2,3,4,5,6,7");
    assert_eq!((outcome.before, most, outcome.done.iter().flatten().count()), (6, 1, 7));
    // Another command is another sweep.
    assert_eq!(run(&folder, "echo \"{}\"", "1").0.before, 0);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn what_can_never_be_is_said_at_once() {
    let folder = folder("never");
    let (cards, mut wanted) = of(&folder, "echo", "1");
    wanted.request = Some(Request { memory: "2GiB".parse().unwrap(), ..Request::cards(1) });
    let error = sweep(&cards, &wanted, &mut |_, _| {}).unwrap_err();
    assert!(error.remedy().unwrap().contains("ask for less"), "{error}");
    wanted.request = Some(Request::cards(1));
    wanted.command = vec!["/no/such/program".into(), "{n}".into()];
    let error = sweep(&cards, &wanted, &mut |_, _| {}).unwrap_err();
    assert!(error.message().contains("/no/such/program"), "{error}");
    std::fs::remove_dir_all(folder).unwrap();
}

const SCRIPT: &str = "echo $1 >> log; sleep 0.05; echo '{\"loss\": 1}'";
const VALUES: &str = "1,2,3,4,5,6,7,8,9,10,11,12";

/// Not a test of anything: a sweep that is killed.
#[test]
fn play() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    run(Path::new(&folder), SCRIPT, VALUES);
}

/// The first would run on for long, the second does not let itself be asked to end.
const STUBBORN: &str = "[ $1 = 1 ] || trap '' TERM; echo begin $1 $$ >> log; if [ $1 = 1 ] && mkdir first; then exec sleep 1000; fi
    sleep 0.5; echo end $1 $$ >> log; echo '{}'";

/// Not a test of anything: a sweep that is killed.
#[test]
fn play_stubborn() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    run(Path::new(&folder), STUBBORN, "1,2");
}

#[test]
fn programs_end_with_the_sweep_and_none_runs_beside_itself() {
    let folder = folder("ends");
    let play = || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["play_stubborn", "--exact"]).env(FOLDER, &folder).current_dir(&folder).stdout(Stdio::null());
        command
    };
    let log = || std::fs::read_to_string(folder.join("log")).unwrap_or_default();
    let wait = |what: &str, is_so: &dyn Fn() -> bool| {
        let begin = Instant::now();
        while !is_so() {
            assert!(begin.elapsed() < Duration::from_secs(60), "{what}: {}", log());
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let mut child = play().spawn().unwrap();
    wait("both run", &|| log().lines().count() == 2 && folder.join("first").exists());
    child.kill().unwrap();
    child.wait().unwrap();
    let text = log();
    let first = text.lines().find_map(|line| line.strip_prefix("begin 1 ")).unwrap();
    // Where it was not waited for yet, its number is still there.
    let is_gone = || std::fs::read_to_string(format!("/proc/{first}/stat")).map_or(true, |stat| stat.contains(") Z"));
    wait("the first ends with the sweep", &is_gone);
    assert!(play().status().unwrap().success());
    let of_second: Vec<String> = log().lines().filter_map(|line| line.split_once(" 2 ").map(|(what, _)| what.into())).collect();
    assert_eq!(of_second, ["begin", "end", "begin", "end"], "{}", log());
    assert_eq!(std::fs::read_to_string(folder.join("results.jsonl")).unwrap().lines().count(), 2);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn after_a_crash_it_goes_on_and_repeats_nothing_that_was_done() {
    let folder = folder("crash");
    for _ in 0..2 {
        let lines = || std::fs::read_to_string(folder.join("results.jsonl")).map_or(0, |text| text.lines().count());
        let before = lines();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["play", "--exact"]).env(FOLDER, &folder).current_dir(&folder).stdout(Stdio::null());
        let mut child = command.spawn().unwrap();
        let begin = Instant::now();
        while lines() < before + 2 {
            assert!(begin.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(1));
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let text = std::fs::read_to_string(folder.join("results.jsonl")).unwrap();
    let whole = &text[..text.rfind('\n').unwrap() + 1];
    let done: Vec<serde_json::Value> = whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["play", "--exact"]).env(FOLDER, &folder).current_dir(&folder).stdout(Stdio::null());
    assert!(command.status().unwrap().success());
    let mut ran: BTreeMap<String, usize> = BTreeMap::new();
    std::fs::read_to_string(folder.join("log")).unwrap().lines().for_each(|line| *ran.entry(line.into()).or_default() += 1);
    assert_eq!(ran.len(), 12, "none is missing: {ran:?}");
    assert!(done.len() >= 4);
    // Those that were running when it was killed are run again; two kills can hit three each. Those that were done are not.
    let repeated: usize = ran.values().map(|count| count - 1).sum();
    assert!(repeated <= 6, "{ran:?}");
    let all = std::fs::read_to_string(folder.join("results.jsonl")).unwrap();
    let mut values: Vec<String> = all
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["set"]["n"].as_str().unwrap().to_string())
        .collect();
    values.sort();
    let count = values.len();
    values.dedup();
    assert_eq!((count, values.len()), (12, 12), "each has one result");
    std::fs::remove_dir_all(folder).unwrap();
}
