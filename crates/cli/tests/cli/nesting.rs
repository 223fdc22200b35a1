//! Graphs that nest ten thousand deep: calls, loops and conditions, in functions and in frames. Each runs, or is refused by one
//! sentence, in bounded memory. None ends the program by its stack.

use std::process::Command;

use plimsoll::{HostTensor, Shape, npy};

use super::{Folder, said};

const DEEP: usize = 10_000;
/// The program's address space, in KiB: code, stacks and all memory.
const MOST_KIB: usize = 2 << 20;

const FLOAT: &str = "DT_FLOAT";

fn types(names: &[&str]) -> String {
    names.iter().map(|name| format!(r#"attr {{ key: "{name}" value {{ list {{ type: DT_FLOAT }} }} }} "#)).collect()
}

fn float(key: &str) -> String {
    format!(r#"attr {{ key: "{key}" value {{ type: DT_FLOAT }} }}"#)
}

fn func(key: &str, name: &str) -> String {
    format!(r#"attr {{ key: "{key}" value {{ func {{ name: "{name}" }} }} }}"#)
}

/// A node, of a graph or of a function.
fn node(name: &str, op: &str, inputs: &[&str], attrs: &str) -> String {
    let inputs: String = inputs.iter().map(|input| format!(r#"input: "{input}" "#)).collect();
    format!(r#"{{ name: "{name}" op: "{op}" {inputs}{attrs} }}"#)
}

fn known(name: &str, data_type: &str, value: &str) -> String {
    let value = format!("value {{ tensor {{ dtype: {data_type} tensor_shape {{ }} {value} }} }}");
    node(name, "Const", &[], &format!(r#"attr {{ key: "dtype" value {{ type: {data_type} }} }} attr {{ key: "value" {value} }}"#))
}

/// `name(x: float) -> (y: data_type)`.
fn function(name: &str, data_type: &str, nodes: &[String], result: &str) -> String {
    let nodes: String = nodes.iter().map(|node| format!("node_def {node}\n")).collect();
    format!(
        "library {{ function {{ signature {{ name: \"{name}\" input_arg {{ name: \"x\" type: DT_FLOAT }} \
         output_arg {{ name: \"y\" type: {data_type} }} }}\n{nodes}ret {{ key: \"y\" value: \"{result}\" }} }} }}\n"
    )
}

/// A graph of a float `x`, a bool `p`, ten, and some nodes and functions.
fn graph(nodes: &[String], functions: &str) -> String {
    let own = [
        node("x", "Placeholder", &[], &float("dtype")),
        node("p", "Placeholder", &[], r#"attr { key: "dtype" value { type: DT_BOOL } }"#),
        known("ten", FLOAT, "float_val: 10"),
    ];
    let nodes: String = own.iter().chain(nodes).map(|node| format!("node {node}\n")).collect();
    format!("versions {{ producer: 1087 }}\n{nodes}{functions}")
}

/// Functions `f0` to `f{DEEP}`, each with what `level` makes of the name of the next one; the last negates.
fn chain(level: impl Fn(&str) -> Vec<String>) -> String {
    let mut text = String::new();
    for at in 0..DEEP {
        text += &function(&format!("f{at}"), FLOAT, &level(&format!("f{}", at + 1)), "c:output:0");
    }
    for name in [format!("f{DEEP}"), "leaf".to_string()] {
        text += &function(&name, FLOAT, &[node("neg", "Neg", &["x"], &float("T"))], "neg:y:0");
    }
    text
}

fn calls() -> String {
    let call = |name: &str, next: &str| node(name, "PartitionedCall", &["x"], &(types(&["Tin", "Tout"]) + &func("f", next)));
    graph(&[call("y", "f0")], &chain(|next| vec![call("c", next)]))
}

fn conditions() -> String {
    let condition = |name: &str, predicate: &str, next: &str| {
        let attrs = types(&["Tin", "Tout"]) + &func("then_branch", next) + &func("else_branch", "leaf");
        node(name, "If", &[predicate, "x"], &(attrs + r#"attr { key: "Tcond" value { type: DT_BOOL } }"#))
    };
    let level = |next: &str| vec![known("p", "DT_BOOL", "bool_val: true"), condition("c", "p:output:0", next)];
    graph(&[condition("y", "p", "f0")], &chain(level))
}

fn loops() -> String {
    let repeat = |name: &str, body: &str| node(name, "While", &["x"], &(types(&["T"]) + &func("cond", "less") + &func("body", body)));
    let less = [known("ten", FLOAT, "float_val: 10"), node("less", "Less", &["x", "ten:output:0"], &float("T"))];
    let functions = function("less", "DT_BOOL", &less, "less:z:0") + &chain(|next| vec![repeat("c", next)]);
    graph(&[repeat("y", "f0")], &functions)
}

/// TensorFlow 1's loops in each other: the innermost doubles `x`.
fn frames() -> String {
    let mut nodes = Vec::new();
    let of = |key: &str, at: usize| format!(r#"{} attr {{ key: "frame_name" value {{ s: "{key}{at}" }} }}"#, float("T"));
    let two = float("T") + r#" attr { key: "N" value { i: 2 } }"#;
    let (mut value, mut most) = ("x".to_string(), "ten".to_string());
    for at in 0..DEEP {
        nodes.push(node(&format!("e{at}"), "Enter", &[&value], &of("f", at)));
        nodes.push(node(&format!("m{at}"), "Merge", &[&format!("e{at}"), &format!("n{at}")], &two));
        nodes.push(node(&format!("t{at}"), "Enter", &[&most], &(of("f", at) + r#" attr { key: "is_constant" value { b: true } }"#)));
        nodes.push(node(&format!("l{at}"), "Less", &[&format!("m{at}"), &format!("t{at}")], &float("T")));
        nodes.push(node(&format!("c{at}"), "LoopCond", &[&format!("l{at}")], ""));
        nodes.push(node(&format!("s{at}"), "Switch", &[&format!("m{at}"), &format!("c{at}")], &float("T")));
        (value, most) = (format!("s{at}:1"), format!("t{at}"));
    }
    nodes.push(node("twice", "AddV2", &[&value, &value], &float("T")));
    value = "twice".to_string();
    for at in (0..DEEP).rev() {
        nodes.push(node(&format!("n{at}"), "NextIteration", &[&value], &float("T")));
        value = format!("x{at}");
        nodes.push(node(&value, "Exit", &[&format!("s{at}")], &float("T")));
    }
    nodes.push(node("y", "Identity", &[&value], &float("T")));
    graph(&nodes, "")
}

/// Switches in Switches, and as many Merges behind them.
fn switches() -> String {
    let mut nodes = Vec::new();
    let bools = r#"attr { key: "T" value { type: DT_BOOL } }"#;
    let (mut value, mut predicate) = ("x".to_string(), "p".to_string());
    for at in 0..DEEP {
        nodes.push(node(&format!("q{at}"), "Switch", &[&predicate, &predicate], bools));
        nodes.push(node(&format!("s{at}"), "Switch", &[&value, &predicate], &float("T")));
        (value, predicate) = (format!("s{at}:1"), format!("q{at}:1"));
    }
    nodes.push(node("neg", "Neg", &[&value], &float("T")));
    value = "neg".to_string();
    for at in (0..DEEP).rev() {
        let name = format!("m{at}");
        nodes.push(node(&name, "Merge", &[&value, &format!("s{at}")], &(float("T") + r#" attr { key: "N" value { i: 2 } }"#)));
        value = name;
    }
    nodes.push(node("y", "Identity", &[&value], &float("T")));
    graph(&nodes, "")
}

fn npy(tensor: &HostTensor) -> Vec<u8> {
    let mut bytes = Vec::new();
    npy::write(tensor, &mut bytes).unwrap();
    bytes
}

#[test]
fn what_nests_ten_thousand_deep_runs_or_is_refused_in_bounded_memory() {
    let folder = Folder::new("nesting");
    let x = folder.write("x.npy", npy(&HostTensor::scalar(2f32)));
    let p = folder.write("p.npy", npy(&HostTensor::from_bools(Shape::scalar(), &[true]).unwrap()));
    for (what, text, expected) in [
        ("calls", calls(), Ok("y float[] = -2.0")),
        ("conditions", conditions(), Err("with If inlined, the bodies of all calls come to")),
        ("loops", loops(), Err("loops more than 64 deep in each other")),
        ("frames", frames(), Err("loops more than 64 deep in each other")),
        ("switches", switches(), Ok("y float[] = -2.0")),
    ] {
        let model = folder.write(&format!("{what}.pbtxt"), text);
        let program = env!("CARGO_BIN_EXE_plimsoll");
        let script = format!("ulimit -v {MOST_KIB}; exec {program} eval {model} --feed x={x} --feed p={p} --fetch y --intra-op 1");
        let said = said(Command::new("sh").args(["-c", &script]));
        match expected {
            Ok(value) => assert!(said.code == 0 && said.out.contains(value), "{what}: {} {}{}", said.code, said.out, said.err),
            Err(reason) => {
                // One sentence, however long the names are.
                let is_short = said.err.lines().count() <= 3 && said.err.len() < 8 << 10;
                assert!(said.code == 1 && said.err.contains(reason) && is_short, "{what}: {} {}{}", said.code, said.out, said.err);
            }
        }
    }
}
