//! Commands that end early: by Ctrl-C, and by `--timeout`.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{Folder, cases, state_dir};

/// A graph that computes for seconds: products in a row, of numbers that are known to no plan.
fn long_graph(folder: &Folder) -> String {
    folder.write("long.pbtxt", long_text(6000))
}

/// So many products, one after the other.
fn long_text(products: usize) -> String {
    let mut text = String::from(
        r#"versions { producer: 1087 }
node { name: "shape" op: "Const" attr { key: "dtype" value { type: DT_INT32 } }
  attr { key: "value" value { tensor { dtype: DT_INT32 tensor_shape { dim { size: 2 } } int_val: 256 int_val: 256 } } } }
node { name: "m0" op: "RandomUniform" input: "shape" attr { key: "T" value { type: DT_INT32 } } attr { key: "dtype" value { type: DT_FLOAT } } }
"#,
    );
    for number in 1..products {
        let before = number - 1;
        writeln!(
            text,
            r#"node {{ name: "m{number}" op: "MatMul" input: "m{before}" input: "m0" attr {{ key: "T" value {{ type: DT_FLOAT }} }} }}"#
        )
        .unwrap();
    }
    text + &format!(r#"node {{ name: "end" op: "NoOp" input: "^m{}" }}"#, products - 1)
}

/// A training whose steps take seconds: `train` adds the sums of `x` and of the products to a variable.
fn long_training(folder: &Folder) -> String {
    let float = r#"attr { key: "T" value { type: DT_FLOAT } }"#;
    let nodes = format!(
        r#"
node {{ name: "x" op: "Placeholder" attr {{ key: "dtype" value {{ type: DT_FLOAT }} }} }}
node {{ name: "axes" op: "Const" attr {{ key: "dtype" value {{ type: DT_INT32 }} }}
  attr {{ key: "value" value {{ tensor {{ dtype: DT_INT32 tensor_shape {{ dim {{ size: 2 }} }} int_val: 0 int_val: 1 }} }} }} }}
node {{ name: "sum" op: "Sum" input: "x" input: "axes" {float} attr {{ key: "Tidx" value {{ type: DT_INT32 }} }} }}
node {{ name: "zero" op: "Const" attr {{ key: "dtype" value {{ type: DT_FLOAT }} }}
  attr {{ key: "value" value {{ tensor {{ dtype: DT_FLOAT tensor_shape {{ }} float_val: 0 }} }} }} }}
node {{ name: "v" op: "VariableV2" attr {{ key: "dtype" value {{ type: DT_FLOAT }} }} attr {{ key: "shape" value {{ shape {{ }} }} }} }}
node {{ name: "init" op: "Assign" input: "v" input: "zero" {float} }}
node {{ name: "products" op: "Sum" input: "m1499" input: "axes" {float} attr {{ key: "Tidx" value {{ type: DT_INT32 }} }} }}
node {{ name: "both" op: "AddV2" input: "sum" input: "products" {float} }}
node {{ name: "add" op: "AssignAdd" input: "v" input: "both" {float} }}
node {{ name: "train" op: "NoOp" input: "^add" }}
"#
    );
    folder.write("training.pbtxt", long_text(1500) + &nodes)
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

/// A loop that no iteration ends. A float goes round in it.
const ENDLESS: &str = r#"
node { name: "one" op: "Const" attr { key: "dtype" value { type: DT_FLOAT } }
  attr { key: "value" value { tensor { dtype: DT_FLOAT tensor_shape {} float_val: 1 } } } }
node { name: "enter" op: "Enter" input: "one" attr { key: "T" value { type: DT_FLOAT } } attr { key: "frame_name" value { s: "f" } } }
node { name: "merge" op: "Merge" input: "enter" input: "next" attr { key: "T" value { type: DT_FLOAT } } attr { key: "N" value { i: 2 } } }
node { name: "limit" op: "Const" input: "^merge" attr { key: "dtype" value { type: DT_FLOAT } }
  attr { key: "value" value { tensor { dtype: DT_FLOAT tensor_shape {} float_val: 3 } } } }
node { name: "less" op: "Less" input: "merge" input: "limit" attr { key: "T" value { type: DT_FLOAT } } }
node { name: "test" op: "LoopCond" input: "less" }
node { name: "switch" op: "Switch" input: "merge" input: "test" attr { key: "T" value { type: DT_FLOAT } } }
node { name: "half" op: "Const" input: "^switch" attr { key: "dtype" value { type: DT_FLOAT } }
  attr { key: "value" value { tensor { dtype: DT_FLOAT tensor_shape {} float_val: 0.5 } } } }
node { name: "mul" op: "Mul" input: "switch:1" input: "half" attr { key: "T" value { type: DT_FLOAT } } }
node { name: "next" op: "NextIteration" input: "mul" attr { key: "T" value { type: DT_FLOAT } } }
node { name: "exit" op: "Exit" input: "switch" attr { key: "T" value { type: DT_FLOAT } } }
"#;

/// Loops without an end, in files of the folder, and the machines they are for: on one device, on two processors, and on two cards.
fn endless(folder: &Folder) -> Vec<String> {
    let known = ENDLESS.replace("\"LoopCond\" input: \"less\"", "\"LoopCond\" input: \"true\"");
    let always = r#"node { name: "true" op: "Const" input: "^merge" attr { key: "dtype" value { type: DT_BOOL } }
  attr { key: "value" value { tensor { dtype: DT_BOOL tensor_shape {} bool_val: true } } } }"#;
    let on_two = |kind: &str| {
        let asks =
            |text: String, op: &str, at: u32| text.replace(&format!("op: \"{op}\""), &format!("op: \"{op}\" device: \"/{kind}:{at}\""));
        asks(asks(ENDLESS.to_string(), "Mul", 1), "Less", 0)
    };
    let each = [
        ("endless", ENDLESS.to_string(), ""),
        ("known", known + always, ""),
        ("processors", on_two("cpu"), "--device-count CPU=2"),
        ("cards", on_two("gpu"), "--sim-gpus 2x64MiB"),
    ];
    each.map(|(name, text, machine)| format!("{} {machine}", folder.write(&format!("{name}.pbtxt"), text))).to_vec()
}

#[test]
fn a_loop_without_an_end_ends() {
    let folder = Folder::new("endless");
    for graph in endless(&folder) {
        let said = super::plimsoll(&format!("eval {graph} --fetch exit --timeout 1s"));
        assert!(said.code == 1 && said.err.contains("DEADLINE_EXCEEDED"), "{graph}: {}", said.err);
        let mut child = start(&format!("eval {graph} --fetch exit"));
        std::thread::sleep(Duration::from_millis(500));
        assert!(child.try_wait().unwrap().is_none(), "{graph} ends by itself");
        let (code, took, err) = stopped(child, "INT");
        assert!(code == Some(130) && took < Duration::from_secs(3), "{graph}: {code:?} {took:?} {err}");
    }
    assert!(super::document("devices --sim-gpus 2x64MiB --json")["cards"][0]["reserved_bytes"] == 0);
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

/// The first signal lets a step end that can be saved, the second one does not. The checkpoint of the step before is whole.
#[test]
fn a_second_signal_ends_a_training_in_its_step() {
    let folder = Folder::new("twice");
    let (graph, saved) = (long_training(&folder), folder.0.join("saved").display().to_string());
    let train = format!("train {graph} --data x=mlp_sgd_ref/step0_feed0.npy --target train --batch-size 6 --save {saved} --save-every 1");
    for [first, second] in [["INT", "INT"], ["TERM", "INT"]] {
        // Between two steps one signal ends a training at once. Then there was no second, and it is tried again.
        let ended_in_a_step = (0..20).any(|_| {
            let _ = std::fs::remove_dir_all(&saved);
            let mut child = start(&format!("{train} --steps 1000"));
            let mut said = BufReader::new(child.stderr.take().unwrap());
            let mut line = String::new();
            while !line.starts_with("checkpoint: ") {
                line.clear();
                assert!(said.read_line(&mut line).unwrap() > 0, "it ended too early");
            }
            std::thread::sleep(Duration::from_millis(300));
            assert!(Command::new("kill").args([&format!("-{first}"), &child.id().to_string()]).status().unwrap().success());
            std::thread::sleep(Duration::from_millis(100));
            if child.try_wait().unwrap().is_some() {
                return false;
            }
            assert!(Command::new("kill").args([&format!("-{second}"), &child.id().to_string()]).status().unwrap().success());
            let output = child.wait_with_output().unwrap();
            let out = String::from_utf8(output.stdout).unwrap();
            assert_eq!(output.status.code(), Some(130), "{out}");
            assert!(!out.contains("most memory resident"), "it came to its end: {out}");
            true
        });
        assert!(ended_in_a_step, "every signal came between two steps");
        // The step that was ended is in no checkpoint, and those before it are whole.
        let resumed = super::plimsoll(&format!("{train} --steps 1 --resume {saved}"));
        assert!(resumed.code == 0 && resumed.out.contains("resumed after step "), "{} {}", resumed.out, resumed.err);
        std::fs::remove_dir_all(&saved).unwrap();
    }
}

/// Before its first run, a training ends at once.
#[test]
fn ctrl_c_ends_a_training_that_plans_or_waits() {
    let mut holder = start("run --sim-gpus 1x1GiB --gpus 1 -- sleep 100");
    let mut said = BufReader::new(holder.stderr.take().unwrap());
    said.read_line(&mut String::new()).unwrap();
    let folder = Folder::new("plans");
    let saved = folder.0.join("saved").display().to_string();
    let waits = "train digits --towers 1 --steps 1 --sim-gpus 1x1GiB --wait --preallocate";
    let plans = "train digits --towers 256 --batch-size 256 --steps 20000000";
    for training in [waits, plans] {
        for options in [String::new(), format!(" --save {saved}")] {
            let child = start(&(training.to_string() + &options));
            std::thread::sleep(Duration::from_millis(500));
            let (code, took, err) = stopped(child, "INT");
            assert!(code == Some(130) && took < Duration::from_secs(3), "{training}: {code:?} {took:?} {err}");
            assert!(training != waits || !std::path::Path::new(&saved).exists(), "there is nothing to save");
        }
    }
    stopped(holder, "TERM");
}
