//! Where results go: a full disk is an error, a missing reader is none, and nothing panics.

use std::fs::{File, OpenOptions};
use std::process::{Command, Stdio};

use crate::{Folder, cases, plimsoll};

/// A file that is always full, where the system has one.
fn full() -> Option<File> {
    let full = OpenOptions::new().write(true).open("/dev/full").ok();
    if full.is_none() {
        eprintln!("skipped: there is no /dev/full");
    }
    full
}

fn command(args: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.args(args.split_whitespace()).current_dir(cases()).env_remove("PLIMSOLL_SIM_GPUS");
    command
}

#[test]
fn a_result_that_cannot_be_written_is_a_failure() {
    let Some(full) = full() else { return };
    let commands =
        ["devices", "devices --json", "place scalars/graph.pb", "plan scalars/graph.pb --json", "verify scalars", "bench scalars --runs 1"];
    for args in commands.into_iter().chain(["--help", "--version", "help plan", "plan --help"]) {
        let output = command(args).stdout(full.try_clone().unwrap()).output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args}: {err}");
        assert!(err.contains("RESOURCE_EXHAUSTED: standard output: "), "{args}: {err}");
    }
}

#[test]
fn errors_that_cannot_be_written_keep_the_exit_status() {
    let Some(full) = full() else { return };
    for (args, code) in
        [("plan none.pb", 2), ("verify scalars --memory-limit CPU:0=1KiB", 1), ("place scalars/graph.pb --log-placement", 0)]
    {
        let status = command(args).stdout(Stdio::null()).stderr(full.try_clone().unwrap()).status().unwrap();
        assert_eq!(status.code(), Some(code), "{args}");
    }
}

#[test]
fn a_special_file_is_written_to_and_stays() {
    let folder = Folder::new("special");
    for (device, code) in [("/dev/null", 0), ("/dev/full", 1)] {
        // By another name, so that nothing of the system is lost if this fails.
        let link = folder.0.join(device.rsplit('/').next().unwrap());
        if !std::path::Path::new(device).exists() || std::os::unix::fs::symlink(device, &link).is_err() {
            eprintln!("skipped: there is no {device}");
            continue;
        }
        let feed = "scalars/step0_feed0.npy";
        let fetch = link.display();
        let said = plimsoll(&format!("eval scalars/graph.pb --feed a={feed} --feed x={feed} --feed b={feed} --fetch y={fetch}"));
        assert_eq!(said.code, code, "{}", said.err);
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    }
}

/// A file that cannot be written is said before a step runs.
#[test]
fn files_are_looked_at_before_the_work() {
    let folder = Folder::new("unwritable");
    let feeds = super::evaluation::scalars(&folder, [2.0, 3.5, -1.0]);
    let nowhere = folder.0.join("none/file").display().to_string();
    for args in [
        format!("train --steps 3 --profile {nowhere}"),
        format!("bench scalars --runs 1 --html {nowhere}"),
        format!("plan scalars/graph.pb --svg {nowhere}"),
        format!("eval scalars/graph.pb {feeds} --fetch y={nowhere}"),
    ] {
        let said = plimsoll(&args);
        assert_eq!((said.code, said.out.as_str()), (1, ""), "{args}: {}", said.err);
        assert!(said.err.starts_with(&format!("error: NOT_FOUND: {nowhere}")), "{args}: {}", said.err);
    }
    assert!(std::fs::read_dir(&folder.0).unwrap().all(|entry| entry.unwrap().path().extension().is_some_and(|end| end == "npy")));
}

#[test]
fn two_results_are_two_files() {
    let folder = Folder::new("two-results");
    let feeds = super::evaluation::scalars(&folder, [2.0, 3.5, -1.0]);
    let [file, same] = ["page", "./page"].map(|name| format!("{}/{name}", folder.0.display()));
    for (args, why) in [
        (format!("plan scalars/graph.pb --html {file} --svg {same}"), "--html and --svg would be written to one file: "),
        (format!("bench scalars --runs 1 --profile {file} --html {same}"), "--profile and --html would be written to one file: "),
        (format!("eval scalars/graph.pb {feeds} --fetch y={file} --fetch mul={same}"), "two tensors would be written to one file"),
        (
            format!("eval scalars/graph.pb {feeds} --fetch y={file} --profile {same}"),
            "--fetch and --profile would be written to one file: ",
        ),
        (format!("eval scalars/graph.pb {feeds} --fetch y="), "--fetch y=: write TENSOR, or TENSOR=FILE.npy"),
        ("eval scalars/graph.pb --feed a=".to_string(), "--feed a=: write NAME=FILE.npy"),
    ] {
        let said = plimsoll(&args);
        assert!(said.code == 2 && said.err.contains(why), "{args}: {} {}", said.code, said.err);
    }
    assert!(!std::path::Path::new(&file).exists());
}

#[test]
fn a_feed_has_one_shape() {
    let said = plimsoll("plan mlp_sgd_ref/graph.pb --fetch loss --feed-shape x=32x6 --feed-shape x=33x6 --feed-shape y=32");
    assert!(said.code == 2 && said.err.contains("--feed-shape x=33x6: 'x' has a shape already"), "{} {}", said.code, said.err);
}

#[test]
fn texts_of_a_plan_file_do_not_steer_a_terminal() {
    let folder = Folder::new("escapes");
    let file = folder.0.join("scalars.plan");
    let planned = plimsoll(&format!("plan scalars/graph.pb --output {}", file.display()));
    assert_eq!(planned.code, 0, "{}", planned.err);
    let plan = std::fs::read_to_string(&file).unwrap();
    let made_by = format!("\"made_by\":\"{}\"", env!("CARGO_PKG_VERSION"));
    assert!(plan.contains(&made_by), "{plan}");
    std::fs::write(&file, plan.replacen(&made_by, "\"made_by\":\"9\\u001b[31m\"", 1)).unwrap();
    let feed = "scalars/step0_feed0.npy";
    let said = plimsoll(&format!("eval scalars/graph.pb --plan {} --feed a={feed} --feed x={feed} --feed b={feed}", file.display()));
    assert!(said.code != 0 && said.err.contains("made by version 9?[31m"), "{}", said.err);
}
