//! Recorded TensorFlow runs: a folder with `case.json`, a graph, fed arrays and fetched ones. A [`Replay`] runs one on devices,
//! compares every value, and times its last step.

mod compare;
mod replay;
mod timing;

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use plimsoll_base::{Error, Result};
use plimsoll_formats::read_saved_model;
use plimsoll_graph::HostTensor;
use serde::Deserialize;

use crate::model::{self, Model, SavedGraph, Tags};
use crate::{Devices, npy};

pub use compare::{Distance, compare};
pub use replay::{Replay, Verified};
pub use timing::Timing;

use replay::CaseCall;

/// A recorded run.
#[derive(Debug)]
pub struct Case {
    folder: PathBuf,
    name: String,
    file: CaseFile,
}

/// `case.json`.
#[derive(Debug, Deserialize)]
struct CaseFile {
    name: Option<String>,
    graph: Option<String>,
    saved_model: Option<String>,
    /// The tags of its graph, where it is not the one that serves.
    tags: Option<Vec<String>>,
    config: Option<String>,
    #[serde(default)]
    init: Vec<String>,
    steps: Vec<Step>,
    rtol: f64,
    atol: f64,
}

/// One call.
#[derive(Debug, Deserialize)]
struct Step {
    /// Of a SavedModel: feeds and fetches are its arguments and results.
    signature: Option<String>,
    #[serde(default)]
    feeds: BTreeMap<String, String>,
    #[serde(default)]
    fetches: BTreeMap<String, String>,
    #[serde(default)]
    targets: Vec<String>,
    /// The code with which the step fails; its fetches are not compared then.
    error: Option<String>,
}

impl Case {
    /// Whether the folder holds a case at all.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where it has no `case.json`.
    pub fn check(folder: &Path) -> Result<()> {
        match folder.join("case.json").is_file() {
            true => Ok(()),
            false => Err(Error::invalid_argument(format!("{} is not a recorded case: it has no case.json", folder.display()))),
        }
    }

    /// Reads `case.json`. Arrays are read when they are needed.
    ///
    /// # Errors
    /// As [`model::read_file`]; INVALID_ARGUMENT for a file that is no case.
    pub fn read(folder: &Path) -> Result<Case> {
        let path = folder.join("case.json");
        let file: CaseFile = serde_json::from_slice(&model::read_file(&path)?)
            .map_err(|error| Error::invalid_argument(format!("{}: {error}", path.display())))?;
        Ok(Case { name: file.name.clone().unwrap_or_else(|| Case::folder_name(folder)), folder: folder.to_path_buf(), file })
    }

    /// The name of a case whose file does not say it.
    pub fn folder_name(folder: &Path) -> String {
        folder.file_name().map_or_else(|| folder.display().to_string(), |name| name.to_string_lossy().into_owned())
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many steps were recorded.
    pub fn steps(&self) -> usize {
        self.file.steps.len()
    }

    /// The code with which a step has to fail, where it does.
    pub fn error(&self, step: usize) -> Option<&str> {
        self.file.steps[step].error.as_deref()
    }

    /// The last step that does not fail: the one to time.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where there is none.
    pub fn last(&self) -> Result<usize> {
        let last = (0..self.steps()).rev().find(|step| self.error(*step).is_none());
        last.ok_or_else(|| Error::invalid_argument(format!("every step of {} fails", self.name)))
    }

    /// Relative and absolute tolerance.
    pub fn tolerance(&self) -> (f64, f64) {
        (self.file.rtol, self.file.atol)
    }

    /// The feeds of a step.
    fn feeds<'a>(&self, call: &'a CaseCall, step: usize) -> Result<Vec<(&'a str, HostTensor)>> {
        let files = self.file.steps[step].feeds.values();
        call.feeds.iter().zip(files).map(|(name, file)| Ok((name.as_str(), self.array(file)?))).collect()
    }

    /// A fetch of a step: the name, and the file with the value.
    pub fn fetches(&self, step: usize) -> impl Iterator<Item = (&str, &str)> {
        self.file.steps[step].fetches.iter().map(|(name, file)| (name.as_str(), file.as_str()))
    }

    /// An array of the case.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for a path that leads out of the case's folder; the flaw of the file.
    pub fn array(&self, file: &str) -> Result<HostTensor> {
        npy::read_plain_file(&self.path(file)?)
    }

    /// A file or folder that the case names. A case is a folder that others may have made: the files that it names stay inside of
    /// it, also where a link leads.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for a path that leads out of the case's folder; NOT_FOUND.
    fn path(&self, named: &str) -> Result<PathBuf> {
        let error = |what: &str| {
            let shown = named.escape_debug();
            Error::invalid_argument(format!("case.json names '{shown}', {what}"))
                .with_remedy("keep the files of a case inside of its folder")
        };
        if !Path::new(named).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
            return Err(error("a path that is absolute or leads up"));
        }
        let path = self.folder.join(named);
        let real = |path: &Path| path.canonicalize().map_err(|error| model::file_error(path, &error));
        let folder = real(&self.folder)?;
        let is_inside = |path: &Path| Ok::<bool, Error>(real(path)?.starts_with(&folder));
        if !is_inside(&path)? {
            return Err(error("a link that leads out of the case's folder"));
        }
        // A MetaGraph's checkpoint lies beside it.
        let parts = match path.is_dir() {
            true => ["saved_model.pb", "saved_model.pbtxt", "variables"].map(|name| path.join(name)).to_vec(),
            false if model::is_meta(&path) => path.parent().map(Path::to_path_buf).into_iter().collect(),
            false => Vec::new(),
        };
        for part in parts {
            let of_folder = std::fs::read_dir(&part).into_iter().flatten().flatten().map(|entry| entry.path());
            for file in std::iter::once(part.clone()).chain(of_folder).filter(|file| file.exists()) {
                if !is_inside(&file)? {
                    return Err(error("a model with a link that leads out of the case's folder"));
                }
            }
        }
        Ok(path)
    }

    /// The ConfigProto that it was recorded with, if it names one.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where it has no steps, and for a path that leads out of the case's folder; NOT_FOUND.
    pub fn config(&self) -> Result<Option<PathBuf>> {
        if self.file.steps.is_empty() {
            return Err(Error::invalid_argument("case.json has no steps"));
        }
        self.file.config.as_ref().map(|config| self.path(config)).transpose()
    }

    /// Loads the graph on devices, and places it by their rule. Nothing is planned or run.
    ///
    /// # Errors
    /// The flaw of the case; RESOURCE_EXHAUSTED where it is placed by first fit and fits in no way.
    pub fn open(&self, devices: Devices) -> Result<Replay<'_>> {
        let (path, mut saved) = match (&self.file.graph, &self.file.saved_model) {
            (Some(graph), None) => {
                let path = self.path(graph)?;
                let saved = model::read(&path).and_then(|model| SavedGraph::of(model, &path));
                (path.clone(), saved.map_err(|error| error.context(path.display()))?)
            }
            (None, Some(folder)) => {
                let path = self.path(folder)?;
                let tags = self.file.tags.clone().map_or_else(Tags::default, Tags::of);
                let model = Model::SavedModel(Box::new(read_saved_model(&path)?)).with_tags(&tags)?;
                (path.clone(), SavedGraph::of(model, &path)?)
            }
            _ => return Err(Error::invalid_argument("case.json names neither a graph nor a saved_model, or both")),
        };
        let calls = self.calls(&saved)?;
        let named = calls.iter().flat_map(|call| call.feeds.iter().chain(&call.fetches).chain(&call.targets));
        saved.keep_for(&named.chain(&self.file.init).map(String::as_str).collect::<Vec<_>>());
        let SavedGraph { graph, values, init, .. } = saved;
        let graph = devices.resolve(graph).map_err(|error| error.context(path.display()))?;
        let session = devices.session_with(graph, &values, init).map_err(|error| error.context(path.display()))?;
        // What no step uses, a table say, is not prepared.
        let used: Vec<&str> = calls.iter().flat_map(|call| call.fetches.iter().chain(&call.targets)).map(String::as_str).collect();
        let init = [session.preparation_for(&used), self.file.init.clone()].concat();
        Replay::new(self, devices, session, calls, init)
    }

    /// The names of every step's feeds, fetches and targets in the graph.
    fn calls(&self, saved: &SavedGraph) -> Result<Vec<CaseCall>> {
        let call = |step: &Step| {
            let mut call = CaseCall {
                feeds: step.feeds.keys().cloned().collect(),
                fetches: step.fetches.keys().cloned().collect(),
                targets: step.targets.clone(),
            };
            let Some(name) = step.signature.as_ref().filter(|_| self.file.saved_model.is_some()) else { return Ok(call) };
            let signature = saved.signature(name)?;
            let tensor = |infos, argument: &String, what| model::tensor_of(infos, argument, name, what).map(str::to_string);
            call.feeds = call.feeds.iter().map(|feed| tensor(&signature.inputs, feed, "argument")).collect::<Result<_>>()?;
            call.fetches = call.fetches.iter().map(|fetch| tensor(&signature.outputs, fetch, "result")).collect::<Result<_>>()?;
            // A call is made as a whole: if it changes variables, they are changed.
            call.targets.extend(signature.outputs.values().map(|info| model::node_of(&info.name).to_string()));
            call.targets.sort_unstable();
            call.targets.dedup();
            Ok(call)
        };
        self.file.steps.iter().map(call).collect()
    }
}
