//! Recorded TensorFlow runs: a folder with `case.json`, a graph, fed arrays and fetched ones.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use plimsoll::formats::read_saved_model;
use plimsoll::model::SavedGraph;
use plimsoll::{Cancellation, DataType, Devices, Error, Footprint, HostTensor, PlacementMode, Session, Shape, Signature, model, npy};
use serde::{Deserialize, Serialize};

use crate::device_options::DeviceOptions;
use crate::failure::{Result, wrong_use};
use crate::{load, output};

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

/// The promised and the measured peak of a device.
#[derive(Clone, Debug, Serialize)]
pub struct DevicePeaks {
    name: String,
    limit_bytes: Option<u64>,
    pub planned_peak_bytes: u64,
    pub measured_peak_bytes: u64,
}

impl DevicePeaks {
    /// For each device, the promised peak beside the measured one.
    pub fn of(devices: &Devices, planned: &[u64]) -> Vec<DevicePeaks> {
        let peaks = |(report, planned): (plimsoll::DeviceReport, &u64)| DevicePeaks {
            name: report.name,
            limit_bytes: report.limit.map(|limit| limit.0),
            planned_peak_bytes: *planned,
            measured_peak_bytes: report.peak.0,
        };
        devices.report().into_iter().zip(planned).map(peaks).collect()
    }

    /// `CPU:0`.
    pub fn short_name(&self) -> &str {
        self.name.rsplit("device:").next().unwrap_or(&self.name)
    }
}

impl Case {
    /// Whether the folder holds a case at all.
    pub fn check(folder: &Path) -> Result<()> {
        if folder.join("case.json").is_file() {
            return Ok(());
        }
        wrong_use(format!("{} is not a recorded case: it has no case.json", folder.display()))
    }

    /// Reads `case.json`. Arrays are read when they are needed.
    pub fn read(folder: &Path) -> plimsoll::Result<Case> {
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
    pub fn last(&self) -> plimsoll::Result<usize> {
        let last = (0..self.steps()).rev().find(|step| self.error(*step).is_none());
        last.ok_or_else(|| Error::invalid_argument(format!("every step of {} fails", self.name)))
    }

    /// Relative and absolute tolerance.
    pub fn tolerance(&self) -> (f64, f64) {
        (self.file.rtol, self.file.atol)
    }

    /// The feeds of a step.
    fn feeds<'a>(&self, call: &'a CaseCall, step: usize) -> plimsoll::Result<Vec<(&'a str, HostTensor)>> {
        let files = self.file.steps[step].feeds.values();
        call.feeds.iter().zip(files).map(|(name, file)| Ok((name.as_str(), self.array(file)?))).collect()
    }

    /// A fetch of a step: the name, and the file with the value.
    pub fn fetches(&self, step: usize) -> impl Iterator<Item = (&str, &str)> {
        self.file.steps[step].fetches.iter().map(|(name, file)| (name.as_str(), file.as_str()))
    }

    /// An array of the case.
    pub fn array(&self, file: &str) -> plimsoll::Result<HostTensor> {
        npy::read_plain_file(&self.path(file)?)
    }

    /// A file or folder that the case names. A case is a folder that others may have made: the files that it names stay inside of
    /// it, also where a link leads.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for a path that leads out of the case's folder; NOT_FOUND.
    fn path(&self, named: &str) -> plimsoll::Result<PathBuf> {
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
        if path.is_dir() {
            for part in ["saved_model.pb", "saved_model.pbtxt", "variables"].map(|name| path.join(name)) {
                let of_folder = std::fs::read_dir(&part).into_iter().flatten().flatten().map(|entry| entry.path());
                for file in std::iter::once(part.clone()).chain(of_folder).filter(|file| file.exists()) {
                    if !is_inside(&file)? {
                        return Err(error("a model with a link that leads out of the case's folder"));
                    }
                }
            }
        }
        Ok(path)
    }

    /// Opens devices, loads the graph and plans all that will run.
    ///
    /// # Errors
    /// The flaw of the case; RESOURCE_EXHAUSTED where it does not fit.
    pub fn open(&self, options: &DeviceOptions) -> Result<Replay<'_>> {
        if self.file.steps.is_empty() {
            return Err(Error::invalid_argument("case.json has no steps").into());
        }
        let config = self.file.config.as_ref().map(|config| self.path(config)).transpose()?;
        let devices = crate::load::open(&options.resolve(config.as_deref())?, options)?;
        let mut init = self.file.init.clone();
        let (session, calls) = match (&self.file.graph, &self.file.saved_model) {
            (Some(graph), None) => (load::session(&devices, &self.path(graph)?)?, self.calls(None)?),
            (None, Some(folder)) => {
                let path = self.path(folder)?;
                let saved = SavedGraph::new(read_saved_model(&path)?, &path)?;
                let calls = self.calls(Some(&saved))?;
                let session = devices.session_with(devices.resolve(saved.graph)?, &saved.values, saved.init)?;
                init = [session.preparation(), &init].concat();
                (session, calls)
            }
            _ => return Err(Error::invalid_argument("case.json names neither a graph nor a saved_model, or both").into()),
        };
        let footprint = Footprint::new(devices.specs());
        let mut replay = Replay { case: self, calls, init, footprint, last_key: None, devices, session };
        if replay.devices.options().placement == PlacementMode::FirstFit {
            let placed = load::place(&replay.devices, self.name(), &replay.session, &replay.signatures()?, &[])?;
            placed.log.iter().for_each(output::note);
            replay.session = placed.session;
        }
        replay.plan_all()?;
        Ok(replay)
    }

    /// The names of every step's feeds, fetches and targets in the graph.
    fn calls(&self, saved: Option<&SavedGraph>) -> plimsoll::Result<Vec<CaseCall>> {
        let call = |step: &Step| {
            let mut call = CaseCall {
                feeds: step.feeds.keys().cloned().collect(),
                fetches: step.fetches.keys().cloned().collect(),
                targets: step.targets.clone(),
            };
            let (Some(saved), Some(name)) = (saved, &step.signature) else { return Ok(call) };
            let signature = saved.signature(name)?;
            let tensor = |infos, argument: &String, what| model::tensor_of(infos, argument, name, what).map(str::to_string);
            call.feeds = call.feeds.iter().map(|feed| tensor(&signature.inputs, feed, "argument")).collect::<plimsoll::Result<_>>()?;
            call.fetches = call.fetches.iter().map(|fetch| tensor(&signature.outputs, fetch, "result")).collect::<plimsoll::Result<_>>()?;
            // A call is made as a whole: if it changes variables, they are changed.
            call.targets.extend(signature.outputs.values().map(|info| model::node_of(&info.name).to_string()));
            call.targets.sort_unstable();
            call.targets.dedup();
            Ok(call)
        };
        self.file.steps.iter().map(call).collect()
    }
}

/// A step, in names of the graph.
struct CaseCall {
    feeds: Vec<String>,
    fetches: Vec<String>,
    targets: Vec<String>,
}

/// The difference between plans of steps: names, types and shapes of feeds; fetches; targets.
type Key = (Vec<(String, DataType, Shape)>, Vec<String>, Vec<String>);

/// A case on devices.
pub struct Replay<'a> {
    case: &'a Case,
    calls: Vec<CaseCall>,
    init: Vec<String>,
    devices: Devices,
    session: Session,
    footprint: Footprint,
    last_key: Option<Key>,
}

impl Replay<'_> {
    /// The replay, where `cancellation` ends runs.
    pub fn until(self, cancellation: &Cancellation) -> Self {
        Replay { session: self.session.until(cancellation), ..self }
    }

    fn plan_all(&mut self) -> Result<()> {
        if !self.init.is_empty() {
            let plan = self.session.plan(&[], &[], &self.init_targets())?;
            self.footprint.add(&plan);
        }
        let mut known: Vec<(Key, plimsoll::Plan)> = Vec::new();
        for step in 0..self.case.steps() {
            let feeds = self.case.feeds(&self.calls[step], step)?;
            let key = self.key(step, &feeds);
            let plan = match known.iter().position(|(other, _)| *other == key) {
                Some(position) => &known[position].1,
                None => {
                    let (fetches, targets) = self.wanted(step);
                    let plan = match (self.session.plan(&feeds, &fetches, &targets), self.case.error(step)) {
                        // The step fails before it starts.
                        (Err(error), Some(code)) if error.code().name() == code => continue,
                        (plan, _) => plan?,
                    };
                    known.push((key, plan));
                    &known[known.len() - 1].1
                }
            };
            self.footprint.add(plan);
        }
        Ok(self.footprint.check()?)
    }

    /// The runs of a case: the initializer, and every step that is unlike those before it.
    fn signatures(&self) -> plimsoll::Result<Vec<Signature>> {
        let mut signatures = Vec::new();
        if !self.init.is_empty() {
            signatures.push(Signature { targets: self.init.clone(), ..Signature::default() });
        }
        for step in 0..self.case.steps() {
            let (fetches, targets) = self.wanted(step);
            let signature = self.session.signature(&self.case.feeds(&self.calls[step], step)?, &fetches, &targets)?;
            if !signatures.contains(&signature) {
                signatures.push(signature);
            }
        }
        Ok(signatures)
    }

    fn key(&self, step: usize, feeds: &[(&str, HostTensor)]) -> Key {
        let feed = |(name, tensor): &(&str, HostTensor)| (name.to_string(), tensor.data_type(), tensor.shape().clone());
        let (fetches, targets) = self.wanted(step);
        let owned = |names: Vec<&str>| names.into_iter().map(str::to_string).collect();
        (feeds.iter().map(feed).collect(), owned(fetches), owned(targets))
    }

    /// The names of a step's fetches and targets.
    fn wanted(&self, step: usize) -> (Vec<&str>, Vec<&str>) {
        let call = &self.calls[step];
        (call.fetches.iter().map(String::as_str).collect(), call.targets.iter().map(String::as_str).collect())
    }

    fn init_targets(&self) -> Vec<&str> {
        self.init.iter().map(String::as_str).collect()
    }

    /// Runs the operations that initialise.
    pub fn init(&self) -> plimsoll::Result<()> {
        if !self.init.is_empty() {
            self.session.run(&[], &[], &self.init_targets())?;
            self.session.release_unused();
        }
        Ok(())
    }

    /// Runs a step that has to fail, if it is one.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where it does not, or not with the code that it has to fail with.
    pub fn fail(&mut self, step: usize) -> plimsoll::Result<bool> {
        let Some(code) = self.case.error(step) else { return Ok(false) };
        match self.step(step) {
            Err(error) if error.code().name() == code => Ok(true),
            Err(error) => Err(Error::invalid_argument(format!("fails with another code than {code}: {error}"))),
            Ok(_) => Err(Error::invalid_argument(format!("does not fail with {code}"))),
        }
    }

    /// Runs a step; the values of its fetches.
    pub fn step(&mut self, step: usize) -> plimsoll::Result<Vec<HostTensor>> {
        let feeds = self.case.feeds(&self.calls[step], step)?;
        let key = self.key(step, &feeds);
        if self.last_key.as_ref() != Some(&key) {
            // Constants of the plan before would count beside those of this one.
            self.session.release_unused();
            self.last_key = Some(key);
        }
        let (fetches, targets) = self.wanted(step);
        self.session.run(&feeds, &fetches, &targets)
    }

    /// The step that is timed, prepared, and its feeds.
    pub fn last(&self) -> plimsoll::Result<(plimsoll::Callable, Vec<HostTensor>)> {
        let step = self.case.last()?;
        let feeds = self.case.feeds(&self.calls[step], step)?;
        let (fetches, targets) = self.wanted(step);
        let callable = self.session.callable_for(&feeds, &fetches, &targets)?;
        Ok((callable, feeds.into_iter().map(|(_, tensor)| tensor).collect()))
    }

    /// The devices.
    pub fn devices(&self) -> &Devices {
        &self.devices
    }

    /// The session.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The most that each device will have held in the end.
    pub fn planned(&self) -> Vec<u64> {
        self.footprint.needs().iter().map(|need| need.peak.0).collect()
    }

    /// The smallest limit that is enough, given to every device that has one; to every device, where none has.
    pub fn minimum_limit(&self) -> u64 {
        self.footprint.minimum_limit().0
    }
}
