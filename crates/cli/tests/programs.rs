//! Programs of loops, lists, conditions and functions, made at random and recorded with TensorFlow by scripts/record_programs.py:
//! values, where nodes are, and what goes from device to device. `PLIMSOLL_PROGRAMS` may name another folder of such programs, and
//! `PLIMSOLL_PROGRAM` one of them.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use plimsoll::formats::read_graph_def;
use plimsoll::recorded::compare;
use plimsoll::{Certainty, DataType, Devices, Error, Fed, Footprint, HostTensor, Options, Result, Session, Shape};
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
    /// `node operation 1` for nodes of conditions and loops that TensorFlow lowers.
    lowered: Vec<String>,
    #[serde(default)]
    runs: Vec<Run>,
    /// A GraphDef as text.
    graph: String,
}

/// One run, after which TensorFlow showed its partitions.
#[derive(Deserialize)]
struct Run {
    fetches: Vec<String>,
    targets: Vec<String>,
    /// `tensor:0 0>1` for every tensor that was sent, `node:^ 0>1` for control.
    transfers: Vec<String>,
    /// Nodes of control flow that did not run.
    pruned: Vec<String>,
    /// Nodes that run elsewhere than the log says.
    moved: BTreeMap<String, usize>,
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
        self.open(options).map(|(_, session)| session)
    }

    fn open(&self, options: Options) -> Result<(Devices, Session)> {
        let mut options = options;
        options.soft_placement = true;
        options.device_count.insert("CPU".to_string(), self.cpus);
        let devices = Devices::open(&options)?;
        let session = devices.session(devices.resolve(read_graph_def(self.graph.as_bytes())?)?)?;
        Ok((devices, session))
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

impl Program {
    /// Hands what each run feeds, fetches and targets to `call`.
    fn each(&self, mut call: impl FnMut(&[Fed<'_>], &[&str], &[&str]) -> Result<()>) -> Result<()> {
        for target in &self.init {
            call(&[], &[], &[target])?;
        }
        for step in &self.steps {
            let feeds: Vec<Fed<'_>> = step.feeds.iter().map(|(name, text)| (name.as_str(), tensor(text))).collect();
            let fetches: Vec<&str> = step.fetches.keys().map(String::as_str).collect();
            let targets: Vec<&str> = step.targets.iter().map(String::as_str).collect();
            call(&feeds, &fetches, &targets)?;
        }
        Ok(())
    }

    /// With limits of the promised peaks the devices hold just these, or no more where a peak is at most so much. Whether it is one
    /// that can be promised.
    fn holds(&self, options: Options) -> Result<bool, String> {
        let text = |error: Error| error.to_string();
        let (devices, session) = self.open(options.clone()).map_err(text)?;
        let mut promised = Footprint::new(devices.specs());
        let planned = self.each(|feeds, fetches, targets| {
            promised.add(&session.plan(feeds, fetches, targets)?);
            Ok(())
        });
        let is_open = |certainty: &Certainty| matches!(certainty, Certainty::OpenFrom(_));
        // What cannot be planned has no value either: another test says so.
        if planned.is_err()
            || self.steps.iter().any(|step| step.error.is_some())
            || promised.needs().iter().any(|need| is_open(&need.certainty))
        {
            return Ok(false);
        }
        drop((session, devices));
        let mut options = options;
        for need in promised.needs().iter().filter(|need| need.peak.0 > 0) {
            options = options.limit(need.name.rsplit("device:").next().unwrap(), &need.peak.0.to_string());
        }
        let (devices, session) = self.open(options).map_err(text)?;
        let ran = self.each(|feeds, fetches, targets| {
            session.run(feeds, fetches, targets)?;
            session.release_unused();
            Ok(())
        });
        ran.map_err(text)?;
        for (need, report) in promised.needs().iter().zip(devices.report()) {
            let is_exact = need.certainty == Certainty::Exact;
            if report.peak > need.peak || is_exact && report.peak < need.peak {
                return Err(format!("{} held {}, promised {} ({:?})", report.name, report.peak, need.peak, need.certainty));
            }
        }
        Ok(true)
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

/// What TensorFlow was asked to put on a card, and had none, is on one here.
#[test]
fn values_on_a_card_are_tensorflows() {
    held("other values on a card", |program| program.differs(on_a_card()));
}

#[test]
fn devices_hold_what_is_promised() {
    let count = std::cell::Cell::new(0);
    held("other peaks", |program| {
        count.set(count.get() + usize::from(program.holds(Options::new())?));
        count.set(count.get() + usize::from(program.holds(on_a_card())?));
        Ok(())
    });
    assert!(count.get() > 10 || std::env::var_os("PLIMSOLL_PROGRAM").is_some());
}

/// A card that other programs may use, too.
fn on_a_card() -> Options {
    Options::new().sim_gpus("1x64MiB").allow_growth(true).wait(Duration::from_secs(600))
}

fn cpu(at: &str) -> String {
    format!("/job:localhost/replica:0/task:0/device:CPU:{at}")
}

/// A name that TensorFlow gives a node of what it lowers.
fn is_lowered(name: &str) -> bool {
    name.split('/').any(|part| part.strip_prefix('_').is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit())))
}

#[test]
fn the_log_is_tensorflows() {
    held("other logs", |program| {
        let session = program.session(Options::new()).map_err(|error| error.to_string())?;
        let said: Vec<String> = session.placement_log().collect();
        let said: BTreeMap<&str, (&str, &str)> = said
            .iter()
            .map(|line| line.split_once(": (").unwrap())
            .map(|(name, rest)| (name, rest.split_once("): ").unwrap()))
            .rev()
            .collect();
        let mut wanted: BTreeMap<&str, (Option<&str>, &str)> = BTreeMap::new();
        wanted.extend(program.log.iter().map(|line| line.rsplit_once(' ').unwrap()).map(|(name, at)| (name, (None, at))));
        let lowered = program.lowered.iter().map(|line| {
            let mut words = line.rsplitn(3, ' ');
            let (at, op, name) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
            (name, (Some(op), at))
        });
        // The rest are what TensorFlow's placer puts around calls that give resources.
        let names: BTreeSet<&str> = wanted.keys().copied().collect();
        wanted.extend(lowered.filter(|(name, _)| is_lowered(name) || names.contains(name)));
        let differs = wanted.iter().filter_map(|(name, (op, at))| match said.get(name) {
            None => Some(format!("{name} is missing")),
            Some((said, device)) => {
                let same = op.is_none_or(|op| op == *said) && *device == cpu(at);
                (!same).then(|| format!("{name}: ({said}): {device} and not {}{}", op.unwrap_or_default(), cpu(at)))
            }
        });
        let more = said.keys().filter(|name| is_lowered(name) && !wanted.contains_key(*name)).map(|name| format!("{name} is no node"));
        let differs: Vec<String> = differs.chain(more).take(4).collect();
        if differs.is_empty() { Ok(()) } else { Err(differs.join("; ")) }
    });
}

#[test]
fn nodes_run_where_tensorflows_partitions_have_them() {
    held("nodes are elsewhere", |program| {
        let session = program.session(Options::new()).map_err(|error| error.to_string())?;
        let mut differs: Vec<String> = Vec::new();
        for (run, step) in program.runs.iter().zip(&program.steps) {
            let [fetches, targets] = [&run.fetches, &run.targets].map(|names| names.iter().map(String::as_str).collect::<Vec<_>>());
            let feeds: Vec<Fed<'_>> = step.feeds.iter().map(|(name, text)| (name.as_str(), tensor(text))).collect();
            let placed = session.placements_of(&feeds, &fetches, &targets).map_err(|error| error.to_string())?;
            for (name, at) in program.log.iter().map(|line| line.rsplit_once(' ').unwrap()) {
                // Of control flow that does not run, TensorFlow does not say where it would have gone.
                let Some(device) = placed.get(name).filter(|_| !run.pruned.iter().any(|pruned| pruned == name)) else { continue };
                let at = run.moved.get(name).map_or(at.to_string(), ToString::to_string);
                if *device != cpu(&at) {
                    differs.push(format!("{name} is on {device}, not CPU:{at}"));
                }
            }
        }
        if differs.is_empty() { Ok(()) } else { Err(differs.join("; ")) }
    });
}

#[test]
fn copies_are_no_more_than_tensorflow_sends() {
    held("more copies", |program| {
        let session = program.session(Options::new()).map_err(|error| error.to_string())?;
        for run in &program.runs {
            let [fetches, targets] = [&run.fetches, &run.targets].map(|names| names.iter().map(String::as_str).collect::<Vec<_>>());
            // Not each program can be planned without what is fed.
            let Ok(plan) = session.plan(&[], &fetches, &targets) else { continue };
            let sent = run.transfers.iter().filter(|sent| !sent.contains(":^ ")).count();
            let copies = plan.transfers().len();
            if copies > sent {
                return Err(format!("{copies} copies, and TensorFlow sends {sent}"));
            }
        }
        Ok(())
    });
}
