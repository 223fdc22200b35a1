//! Programs of loops, lists, conditions and functions, made at random and recorded with TensorFlow by scripts/record_programs.py:
//! values, where nodes are, and what goes from device to device. `PLIMSOLL_PROGRAMS` may name another folder of such programs, and
//! `PLIMSOLL_PROGRAM` one of them.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use plimsoll::formats::read_graph_def;
use plimsoll::recorded::compare;
use plimsoll::{DataType, Devices, Error, Fed, HostTensor, Options, Result, Session, Shape};
use serde::Deserialize;

const RTOL: f64 = 1e-4;
const ATOL: f64 = 1e-5;

/// A graph, and what TensorFlow did with it.
#[derive(Deserialize)]
struct Program {
    name: String,
    cpus: i32,
    init: Vec<String>,
    steps: Vec<Step>,
    /// `node 1` in the order of TensorFlow's log.
    log: Vec<String>,
    /// A GraphDef as text.
    graph: String,
}

#[derive(Deserialize)]
struct Step {
    feeds: BTreeMap<String, String>,
    fetches: BTreeMap<String, String>,
    targets: Vec<String>,
    error: Option<String>,
}

fn folder() -> PathBuf {
    std::env::var_os("PLIMSOLL_PROGRAMS").map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs"), PathBuf::from)
}

fn programs() -> Vec<Program> {
    let text = std::fs::read_to_string(folder().join("programs.jsonl")).unwrap();
    let wanted = std::env::var("PLIMSOLL_PROGRAM").ok();
    let read = |line| serde_json::from_str(line).unwrap();
    text.lines().map(read).filter(|program: &Program| wanted.as_ref().is_none_or(|wanted| *wanted == program.name)).collect()
}

/// A tensor as `type dimensions bytes`.
fn tensor(text: &str) -> HostTensor {
    let mut words = text.split(' ');
    let mut word = || words.next().unwrap();
    let data_type = match word() {
        "float32" => DataType::Float,
        "float64" => DataType::Double,
        "int32" => DataType::Int32,
        "int64" => DataType::Int64,
        "bool" => DataType::Bool,
        other => panic!("{other}"),
    };
    let dims: Vec<u64> = word().split(',').filter(|dim| !dim.is_empty()).map(|dim| dim.parse().unwrap()).collect();
    let digits = word();
    let bytes: Vec<u8> = (0..digits.len() / 2).map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap()).collect();
    HostTensor::from_bytes(data_type, Shape::from(dims), &bytes).unwrap()
}

impl Program {
    fn session(&self, options: Options) -> Result<Session> {
        let mut options = options;
        options.soft_placement = true;
        options.device_count.insert("CPU".to_string(), self.cpus);
        let devices = Devices::open(&options)?;
        devices.session(devices.resolve(read_graph_def(self.graph.as_bytes())?)?)
    }

    /// What differs from TensorFlow's values.
    fn differs(&self, options: Options) -> Result<(), String> {
        let text = |error: Error| error.to_string();
        let session = self.session(options).map_err(text)?;
        for target in &self.init {
            session.run(&[], &[], &[target]).map_err(text)?;
        }
        for (number, step) in self.steps.iter().enumerate() {
            let feeds: Vec<Fed<'_>> = step.feeds.iter().map(|(name, text)| (name.as_str(), tensor(text))).collect();
            let fetches: Vec<&str> = step.fetches.keys().map(String::as_str).collect();
            let targets: Vec<&str> = step.targets.iter().map(String::as_str).collect();
            match (session.run(&feeds, &fetches, &targets), &step.error) {
                (Err(error), Some(code)) if error.code().name() == code => return Ok(()),
                (Ok(_), Some(code)) => return Err(format!("WRONG: step {number} does not fail with {code}")),
                (Err(error), Some(code)) => return Err(format!("WRONG: step {number} has to fail with {code}, and says {error}")),
                (Err(error), None) => return Err(error.to_string()),
                (Ok(values), None) => {
                    for ((name, want), got) in step.fetches.iter().zip(&values) {
                        let differs = match compare(got, &tensor(want), RTOL, ATOL) {
                            Ok(distance) if distance.error <= 1.0 => continue,
                            Ok(distance) => format!("element {}: {} instead of {}", distance.element, distance.got, distance.want),
                            Err(why) => why,
                        };
                        return Err(format!("WRONG: step {number}: {name} {differs}"));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Asserts that a check holds of all programs; a program that panics does not hold.
fn held(what: &str, check: impl Fn(&Program) -> Result<(), String>) {
    let programs = programs();
    assert!(!programs.is_empty());
    let failed = |program: &Program| {
        let held = catch_unwind(AssertUnwindSafe(|| check(program))).unwrap_or_else(|_| Err("PANIC".to_string()));
        held.err().map(|why| format!("{}: {why}", program.name))
    };
    let wrong: Vec<String> = programs.iter().filter_map(failed).collect();
    assert!(wrong.is_empty(), "{what}: {} of {}\n{}", wrong.len(), programs.len(), wrong.join("\n"));
}

#[test]
fn values_are_tensorflows() {
    held("other values", |program| program.differs(Options::new()));
}

#[test]
fn nodes_are_where_tensorflow_puts_them() {
    held("nodes are elsewhere", |program| {
        let session = program.session(Options::new()).map_err(|error| error.to_string())?;
        let placed: BTreeMap<&str, String> = session.placements().map(|(node, device)| (&*node.name, device)).collect();
        let differs = program.log.iter().filter_map(|line| {
            let (name, at) = line.rsplit_once(' ').unwrap();
            let device = placed.get(name)?;
            (*device != format!("/job:localhost/replica:0/task:0/device:CPU:{at}")).then(|| format!("{name} is on {device}, not CPU:{at}"))
        });
        let differs: Vec<String> = differs.collect();
        if differs.is_empty() { Ok(()) } else { Err(differs.join("; ")) }
    });
}
