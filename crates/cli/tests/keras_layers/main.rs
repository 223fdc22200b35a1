//! Every layer, loss and operation of Keras 3, as `scripts/record_keras_layers.py` recorded it: within tolerance of TensorFlow's values.
//!
//! `tests/keras/missing.txt` lists the steps that do not run yet, with the operations that have no rules or the error. A step that
//! begins to run has to leave the list. `PLIMSOLL_BLESS=1` writes the list anew.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use plimsoll::model::{self, SavedGraph};
use plimsoll::operations::{Run, missing_in};
use plimsoll::recorded::compare;
use plimsoll::{Devices, Error, Fed, HostTensor, Options, Result, Session, npy};
use serde::Deserialize;

/// The tolerance, relative and absolute, of steps in floats of two bytes: gradients of some biases are sums that are 0 but for
/// rounding.
const HALF: (f64, f64) = (2e-2, 4e-3);

#[derive(Deserialize)]
struct Case {
    #[serde(skip)]
    folder: PathBuf,
    name: String,
    graph: Option<String>,
    saved_model: Option<String>,
    steps: Vec<Step>,
    rtol: f64,
    atol: f64,
}

/// Layers that are loops. Their steps also run by plans from files.
const LOOPS: &[&str] = &["Bidirectional", "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D", "GRU", "LSTM", "RNN", "SimpleRNN"];

/// A call of a layer, or of its gradient.
#[derive(Deserialize)]
struct Step {
    name: String,
    signature: Option<String>,
    feeds: BTreeMap<String, String>,
    fetches: BTreeMap<String, String>,
}

/// A model, and the operations that run before its steps.
struct Opened {
    session: Session,
    graph: SavedGraph,
}

impl Case {
    fn read(folder: PathBuf) -> Case {
        let text = std::fs::read(folder.join("case.json")).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let case: Case = serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        Case { folder, ..case }
    }

    fn saved(&self) -> Result<SavedGraph> {
        let path = self.folder.join(self.graph.as_ref().or(self.saved_model.as_ref()).expect("a case has a graph or a model"));
        SavedGraph::of(model::read(&path)?, &path)
    }

    fn open(&self, devices: &Devices) -> Result<Opened> {
        let graph = self.saved()?;
        let session = devices.session_with(devices.resolve(graph.graph.clone())?, &graph.values, graph.init.clone())?;
        Ok(Opened { session, graph })
    }

    fn array(&self, file: &str) -> Result<HostTensor> {
        npy::read(&model::read_file(&self.folder.join(file))?).map_err(|error| error.context(file))
    }

    /// Why a step does not run, on one line. None where it gives TensorFlow's values.
    ///
    /// # Panics
    /// Where a value is another than TensorFlow's: that is an error, not work to be done.
    fn obstacle(&self, opened: &Result<Opened>, step: &Step) -> Option<String> {
        let run = opened.as_ref().map_err(Error::clone).and_then(|opened| self.run(opened, step));
        let error = match run {
            Ok(()) => return None,
            Err(error) => error,
        };
        let lacking = self.saved().map(|graph| {
            let (feeds, fetches) = step.tensors(&graph);
            let of_init = missing_in(&graph.graph, &Run { wanted: &graph.init, fed: &[] });
            let mut ops: Vec<String> = missing_in(&graph.graph, &Run { wanted: &fetches, fed: &feeds }).into_iter().map(|m| m.op).collect();
            ops.extend(of_init.into_iter().map(|m| m.op));
            ops.sort_unstable();
            ops.dedup();
            ops
        });
        match lacking {
            Ok(ops) if !ops.is_empty() => Some(ops.join(" ")),
            _ => Some(format!("{}: {}", error.code(), error.message().lines().next().unwrap_or_default())),
        }
    }

    fn run(&self, opened: &Opened, step: &Step) -> Result<()> {
        let (feeds, fetches) = step.tensors(&opened.graph);
        let arrays = step.feeds.values().map(|file| self.array(file)).collect::<Result<Vec<_>>>()?;
        let feeds: Vec<(&str, HostTensor)> = feeds.iter().map(String::as_str).zip(arrays).collect();
        let fetches: Vec<&str> = fetches.iter().map(String::as_str).collect();
        let (rtol, atol) = if step.name.contains("float16") { HALF } else { (self.rtol, self.atol) };
        opened.session.prepare()?;
        let values = opened.session.run(&feeds, &fetches, &[])?;
        if self.name.strip_prefix("layers/").is_some_and(|layer| LOOPS.contains(&layer)) {
            self.by_file(opened, &feeds, &fetches, &values)?;
        }
        for ((name, file), got) in step.fetches.iter().zip(&values) {
            let wrong = |text: String| panic!("{} {}: {name} {text}", self.name, step.name);
            match compare(got, &self.array(file)?, rtol, atol) {
                Err(reason) => wrong(reason),
                Ok(distance) if distance.error > 1.0 => {
                    wrong(format!("element {}: {} instead of {}", distance.element, distance.got, distance.want));
                }
                Ok(_) => {}
            }
        }
        Ok(())
    }

    /// Runs a step by a plan from a file.
    ///
    /// # Panics
    /// Where it gives other bits than `values`.
    fn by_file(&self, opened: &Opened, feeds: &[Fed<'_>], fetches: &[&str], values: &[HostTensor]) -> Result<()> {
        let signature = opened.session.signature(feeds, fetches, &[])?;
        let file = opened.session.plan_file(&signature)?;
        let other = self.open(&Devices::open(&Options::new().intra_op(1))?)?;
        other.session.prepare()?;
        let callable = other.session.callable_of(&other.session.open_plan(&file)?)?;
        let found = callable.run(&feeds.iter().map(|(_, value)| value).collect::<Vec<_>>())?;
        assert!(found == values, "{}: other bits by a plan from a file", self.name);
        Ok(())
    }
}

impl Step {
    /// The names in the graph of its feeds and fetches.
    fn tensors(&self, graph: &SavedGraph) -> (Vec<String>, Vec<String>) {
        let Some(signature) = self.signature.as_ref().and_then(|name| graph.signatures.get(name)) else {
            return (self.feeds.keys().cloned().collect(), self.fetches.keys().cloned().collect());
        };
        let feeds = self.feeds.keys().map(|name| signature.inputs[name].name.clone());
        (feeds.collect(), self.fetches.keys().map(|name| signature.outputs[name].name.clone()).collect())
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/keras")
}

/// The folders in a folder, in order.
fn folders(path: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> =
        std::fs::read_dir(path).expect("there are cases").map(|entry| entry.expect("it can be listed").path()).collect();
    found.retain(|path| path.is_dir());
    found.sort();
    found
}

fn cases() -> Vec<Case> {
    folders(&root()).iter().flat_map(|group| folders(group)).map(Case::read).collect()
}

#[test]
fn all_of_keras_runs_or_is_listed() {
    let devices = Devices::open(&Options::new().intra_op(1)).expect("a processor can be opened");
    let (cases, mut lines, mut steps) = (cases(), Vec::new(), 0);
    for case in &cases {
        let opened = case.open(&devices);
        for step in &case.steps {
            steps += 1;
            lines.extend(case.obstacle(&opened, step).map(|why| format!("{} {}: {why}\n", case.name, step.name)));
            let _ = opened.as_ref().map(|opened| opened.session.release_unused());
        }
    }
    assert!(cases.len() > 120 && steps > 700, "{} cases, {steps} steps", cases.len());
    let path = root().join("missing.txt");
    let found = lines.concat();
    if std::env::var_os("PLIMSOLL_BLESS").is_some() {
        return std::fs::write(&path, found).expect("the list can be written");
    }
    let listed = std::fs::read_to_string(&path).expect("there is a list");
    let difference = |a: &str, b: &str| a.lines().filter(|line| !b.lines().any(|other| other == *line)).collect::<Vec<_>>().join("\n");
    assert!(
        found == listed,
        "tests/keras/missing.txt is not true (PLIMSOLL_BLESS=1 writes it).\nfound, not listed:\n{}\nlisted, not found:\n{}",
        difference(&found, &listed),
        difference(&listed, &found)
    );
}
