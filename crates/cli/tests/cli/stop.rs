//! Commands that end early: by Ctrl-C, and by `--timeout`.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{Folder, cases, state_dir};

/// A graph that computes for seconds: products in a row, of numbers that are known to no plan.
fn long_graph(folder: &Folder) -> String {
    let mut text = String::from(
        r#"versions { producer: 1087 }
node { name: "shape" op: "Const" attr { key: "dtype" value { type: DT_INT32 } }
  attr { key: "value" value { tensor { dtype: DT_INT32 tensor_shape { dim { size: 2 } } int_val: 256 int_val: 256 } } } }
node { name: "m0" op: "RandomUniform" input: "shape" attr { key: "T" value { type: DT_INT32 } } attr { key: "dtype" value { type: DT_FLOAT } } }
"#,
    );
    for number in 1..6000 {
        let before = number - 1;
        writeln!(
            text,
            r#"node {{ name: "m{number}" op: "MatMul" input: "m{before}" input: "m0" attr {{ key: "T" value {{ type: DT_FLOAT }} }} }}"#
        )
        .unwrap();
    }
    text += r#"node { name: "end" op: "NoOp" input: "^m5999" }"#;
    folder.write("long.pbtxt", &text)
}

fn start(args: &str) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.args(args.split_whitespace()).current_dir(cases()).env_remove("PLIMSOLL_SIM_GPUS").env("PLIMSOLL_NVML", "");
    command.env("PLIMSOLL_STATE_DIR", state_dir()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// The exit status after a signal, how long it took, and standard error.
fn stopped(child: Child, signal: &str) -> (Option<i32>, Duration, String) {
    let asked = Instant::now();
    assert!(Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    (output.status.code(), asked.elapsed(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn ctrl_c_ends_a_run_between_two_commands() {
    let folder = Folder::new("stop");
    let graph = long_graph(&folder);
    let values = folder.0.join("values.npy").display().to_string();
    let mut delay = Duration::from_millis(200);
    loop {
        let child = start(&format!("eval {graph} --fetch m5999={values}"));
        std::thread::sleep(delay);
        let (code, took, err) = stopped(child, "INT");
        assert_eq!(code, Some(130), "{err}");
        assert!(took < Duration::from_secs(3), "{took:?}");
        if err.contains("CANCELLED: the run was cancelled") {
            break;
        }
        // It was not so far: it read and planned.
        assert!(err.is_empty() && delay < Duration::from_secs(20), "{err}");
        delay *= 2;
    }
}

#[test]
fn a_deadline_ends_a_command() {
    let folder = Folder::new("deadline");
    let graph = long_graph(&folder);
    let values = folder.0.join("values.npy").display().to_string();
    let mut milliseconds = 1;
    let mut whats = Vec::new();
    while whats.last() != Some(&"run") {
        let said = super::plimsoll(&format!("eval {graph} --fetch m5999={values} --timeout {milliseconds}ms"));
        assert_eq!(said.code, 1, "{}", said.err);
        let what = ["run", "command"].into_iter().find(|what| said.err.contains(&format!("DEADLINE_EXCEEDED: the {what} was not done in")));
        whats.push(what.unwrap_or_else(|| panic!("{}", said.err)));
        assert!(milliseconds < 40_000);
        milliseconds *= 3;
    }
    assert_eq!(whats[0], "command");
    for command in ["eval scalars/graph.pb --fetch y --feed", "verify scalars", "bench scalars"] {
        let said = super::plimsoll(&format!("{command} --timeout soon"));
        assert_eq!(said.code, 2, "{command}: {}", said.err);
    }
    for command in ["verify mlp_sgd_ref", "bench mlp_sgd_ref --runs 2"] {
        let said = super::plimsoll(&format!("{command} --timeout 10min"));
        assert_eq!(said.code, 0, "{command}: {}", said.err);
    }
    let said = super::plimsoll("bench mlp_sgd_ref --runs 10000000 --timeout 2s");
    // Between two runs it is the command that is not done.
    let ended = ["run", "command"].iter().any(|what| said.err.contains(&format!("DEADLINE_EXCEEDED: the {what} was not done in 2s")));
    assert!(said.code == 1 && ended && said.out.is_empty(), "{}", said.err);
}

#[test]
fn waiting_for_cards_ends() {
    let mut holder = start("run --sim-gpus 1x1GiB --gpus 1 -- sleep 100");
    let mut said = BufReader::new(holder.stderr.take().unwrap());
    said.read_line(&mut String::new()).unwrap();
    // Memory that a run needs is waited for in the run; memory that is reserved beforehand is waited for when devices are opened.
    for (options, what) in [("", "run"), ("--preallocate", "command")] {
        let waits = format!("verify mlp_sgd_ref --sim-gpus 1x1GiB --wait {options}");
        let child = start(&waits);
        std::thread::sleep(Duration::from_millis(500));
        let (code, took, err) = stopped(child, "INT");
        assert!(code == Some(130) && took < Duration::from_secs(3), "{code:?} {took:?} {err}");
        // Long enough for a machine that has much else to do to come to the wait.
        let said = super::plimsoll(&format!("{waits} --timeout 4s"));
        assert!(said.code == 1 && said.err.contains(&format!("DEADLINE_EXCEEDED: the {what} was not done in 4s")), "{}", said.err);
    }
    stopped(holder, "TERM");
}
