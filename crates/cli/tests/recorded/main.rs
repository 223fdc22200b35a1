//! Every recorded case, through the library: within tolerance of TensorFlow's values, and the same bits whatever the devices and
//! the threads. With the memory that is promised and no byte more.

mod auto;
mod files;
mod fitted;
mod list_shapes;
mod refused;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll::costs::{Class, Costs, Rates};
use plimsoll::recorded::compare;
use plimsoll::{
    Bytes, Certainty, Code, DeviceKind, Devices, Error, Fed, Footprint, HostTensor, MemoryLimit, Options, Pass, Result, Session, config,
    formats, model, npy,
};
use serde::Deserialize;

#[derive(Deserialize)]
struct Case {
    #[serde(skip)]
    folder: PathBuf,
    graph: String,
    config: String,
    #[serde(default)]
    init: Vec<String>,
    steps: Vec<Step>,
    rtol: f64,
    atol: f64,
}

#[derive(Deserialize)]
struct Step {
    feeds: BTreeMap<String, String>,
    fetches: BTreeMap<String, String>,
    targets: Vec<String>,
    error: Option<String>,
}

impl Case {
    fn read(folder: PathBuf) -> Case {
        let text = std::fs::read(folder.join("case.json")).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let case: Case = serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        Case { folder, ..case }
    }

    fn name(&self) -> String {
        self.folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    fn array(&self, file: &str) -> Result<HostTensor> {
        npy::read(&model::read_file(&self.folder.join(file))?).map_err(|error| error.context(file))
    }

    /// Its graph on so many logical devices; the first ones have these limits. Plans are as they are.
    fn open(&self, devices: u32, threads: i32, limits: &[Bytes]) -> Result<(Devices, Session)> {
        self.open_with(devices, threads, limits, false)
    }

    /// As [`Case::open`]; with `fit` plans are made to fit.
    fn open_with(&self, devices: u32, threads: i32, limits: &[Bytes], fit: bool) -> Result<(Devices, Session)> {
        self.open_by(Options::new(), devices, threads, limits, fit)
    }

    /// As [`Case::open_with`], with these options, too.
    fn open_by(&self, mut options: Options, devices: u32, threads: i32, limits: &[Bytes], fit: bool) -> Result<(Devices, Session)> {
        config::apply(&formats::read_config(&model::read_file(&self.folder.join(&self.config))?)?, &mut options)?;
        for (index, limit) in limits.iter().enumerate() {
            options.memory_limits.push(MemoryLimit { device: Some((DeviceKind::Cpu, index as u32)), parts: vec![*limit] });
        }
        let devices = Devices::open(&options.device_count(DeviceKind::Cpu, devices).intra_op(threads).fit(fit))?;
        let session = devices.load(self.folder.join(&self.graph))?;
        Ok((devices, session))
    }

    /// Hands the feeds, fetches and targets of every run to `call`, and the code with which it has to fail: of the initialisation, if there is one, then of the steps.
    fn each(&self, mut call: impl FnMut(&[Fed<'_>], &[&str], &[&str], Option<&str>) -> Result<()>) -> Result<()> {
        if !self.init.is_empty() {
            call(&[], &[], &self.init.iter().map(String::as_str).collect::<Vec<_>>(), None).map_err(|error| error.context("init"))?;
        }
        for (number, step) in self.steps.iter().enumerate() {
            let feeds = step.feeds.iter().map(|(name, file)| Ok((name.as_str(), self.array(file)?))).collect::<Result<Vec<_>>>()?;
            let fetches: Vec<&str> = step.fetches.keys().map(String::as_str).collect();
            let targets: Vec<&str> = step.targets.iter().map(String::as_str).collect();
            call(&feeds, &fetches, &targets, step.error.as_deref()).map_err(|error| error.context(format!("step {number}")))?;
        }
        Ok(())
    }

    /// The values of all fetches of all steps, in order.
    fn run(&self, devices: u32, threads: i32) -> Result<Vec<HostTensor>> {
        let (_devices, session) = self.open(devices, threads, &[])?;
        self.values(&session)
    }

    /// As [`Case::run`].
    fn values(&self, session: &Session) -> Result<Vec<HostTensor>> {
        let mut values = Vec::new();
        self.each(|feeds, fetches, targets, code| {
            values.extend(ran(session.run(feeds, fetches, targets), code)?);
            Ok(())
        })?;
        Ok(values)
    }

    /// The most that every device is promised to hold.
    fn promised(&self, devices: u32, limits: &[Bytes]) -> Result<Footprint> {
        let (devices, session) = self.open(devices, 2, limits)?;
        let mut footprint = Footprint::new(devices.specs());
        self.each(|feeds, fetches, targets, _| {
            footprint.add(&session.plan(feeds, fetches, targets)?);
            Ok(())
        })?;
        Ok(footprint)
    }

    /// With limits of its promised peaks it holds just these, and is refused with one byte less.
    ///
    /// # Errors
    /// The broken promise.
    fn at_the_line(&self, count: u32) -> Result<(), String> {
        let text = |error: Error| error.to_string();
        let promised = self.promised(count, &[]).map_err(text)?;
        if promised.needs().iter().any(|need| matches!(need.certainty, Certainty::OpenFrom(_))) {
            return self.at_the_open_line(count);
        }
        let peaks: Vec<Bytes> = promised.needs().iter().map(|need| need.peak).collect();
        let (devices, session) = self.open(count, 2, &peaks).map_err(text)?;
        let run = self.each(|feeds, fetches, targets, code| {
            ran(session.run(feeds, fetches, targets), code)?;
            session.release_unused();
            Ok(())
        });
        run.map_err(text)?;
        let held: Vec<Bytes> = devices.report().iter().map(|report| report.peak).collect();
        if held != peaks {
            return Err(format!("held {held:?}, promised {peaks:?}"));
        }
        for index in (0..peaks.len()).filter(|index| peaks[*index] > Bytes::ZERO) {
            let mut limits = peaks.clone();
            limits[index] = Bytes(limits[index].0 - 1);
            match self.promised(count, &limits).and_then(|footprint| footprint.check()) {
                Err(error) if error.code() == Code::ResourceExhausted => {}
                other => return Err(format!("one byte less on CPU:{index}: {other:?}")),
            }
        }
        Ok(())
    }

    /// Where the peak is open: with limits of what it holds without limits it holds just these, and with one byte less a step is refused.
    ///
    /// # Errors
    /// What is wrong.
    fn at_the_open_line(&self, count: u32) -> Result<(), String> {
        let held = |limits: &[Bytes]| {
            let (devices, session) = self.open(count, 2, limits)?;
            self.each(|feeds, fetches, targets, code| {
                ran(session.run(feeds, fetches, targets), code)?;
                session.release_unused();
                Ok(())
            })?;
            Ok(devices.report().iter().map(|report| report.peak).collect::<Vec<Bytes>>())
        };
        let peaks = held(&[]).map_err(|error: Error| error.to_string())?;
        match held(&peaks) {
            Ok(again) if again == peaks => {}
            other => return Err(format!("held {other:?}, without a limit {peaks:?}")),
        }
        for index in (0..peaks.len()).filter(|index| peaks[*index] > Bytes::ZERO) {
            let mut limits = peaks.clone();
            limits[index] = Bytes(limits[index].0 - 1);
            match held(&limits) {
                Err(error) if error.code() == Code::ResourceExhausted => {}
                other => return Err(format!("one byte less on CPU:{index}: {other:?}")),
            }
        }
        Ok(())
    }

    /// Writes the case to another folder, with the nodes of the second processor on `device`.
    fn copy_moved(&self, to: &Path, device: String) {
        std::fs::create_dir_all(to).expect("a folder can be made");
        for entry in std::fs::read_dir(&self.folder).expect("the case can be listed") {
            let path = entry.expect("it can be listed").path();
            std::fs::copy(&path, to.join(path.file_name().expect("it has a name"))).expect("a file can be copied");
        }
        let mut graph =
            formats::read_graph_def(&std::fs::read(self.folder.join(&self.graph)).expect("there is a graph")).expect("it is one");
        for node in graph.nodes.iter_mut().filter(|node| node.device.to_lowercase().ends_with("cpu:1")) {
            node.device.clone_from(&device);
        }
        std::fs::write(to.join(&self.graph), formats::write_graph_def(&graph)).expect("it can be written");
    }

    /// The values that differ from TensorFlow's.
    fn misses(&self, values: &[HostTensor]) -> Vec<String> {
        let fetches = self.steps.iter().enumerate().flat_map(|(number, step)| step.fetches.iter().map(move |fetch| (number, fetch)));
        let miss = |((number, (name, file)), got): ((usize, (&String, &String)), &HostTensor)| {
            let want = match self.array(file) {
                Ok(want) => want,
                Err(error) => return Some(error.to_string()),
            };
            match compare(got, &want, self.rtol, self.atol) {
                Err(reason) => Some(format!("step {number}: {name} {reason}")),
                Ok(distance) if distance.error > 1.0 => Some(format!(
                    "step {number}: {name}, element {}: {} instead of {}, {:.1} times the tolerance",
                    distance.element, distance.got, distance.want, distance.error
                )),
                Ok(_) => None,
            }
        };
        fetches.zip(values).filter_map(miss).collect()
    }

    /// Everything that is wrong with the case on up to four logical devices and three threads.
    fn failures(&self) -> Vec<String> {
        let mut failures = Vec::new();
        let mut first: Option<Vec<Vec<u8>>> = None;
        for devices in [1, 2, 4] {
            for threads in 1..=3 {
                let mut fail = |reason: String| failures.push(format!("{} on {devices} devices, {threads} threads: {reason}", self.name()));
                let values = match self.run(devices, threads) {
                    Ok(values) => values,
                    Err(error) => {
                        fail(error.to_string());
                        continue;
                    }
                };
                let bits = match values.iter().map(bits).collect::<Result<Vec<_>>>() {
                    Ok(bits) => bits,
                    Err(error) => {
                        fail(error.to_string());
                        continue;
                    }
                };
                match &first {
                    None => {
                        self.misses(&values).into_iter().for_each(&mut fail);
                        first = Some(bits);
                    }
                    Some(first) if *first != bits => fail("not the bits of the first run".to_string()),
                    Some(_) => {}
                }
            }
        }
        failures
    }
}

/// The result of a run; nothing where it has to fail, and does.
fn ran(values: Result<Vec<HostTensor>>, code: Option<&str>) -> Result<Vec<HostTensor>> {
    match (values, code) {
        (Err(error), Some(code)) if error.code().name() == code => Ok(Vec::new()),
        (Ok(_), Some(code)) => Err(Error::internal(format!("does not fail with {code}"))),
        (values, _) => values,
    }
}

fn bits(tensor: &HostTensor) -> Result<Vec<u8>> {
    Ok(tensor.dense()?.bytes().unwrap_or_default().to_vec())
}

fn cases() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut folders: Vec<PathBuf> =
        std::fs::read_dir(folder).expect("there are cases").map(|entry| entry.expect("it can be listed").path()).collect();
    // Some hold graphs for other tests, and no steps.
    folders.retain(|folder| folder.join("case.json").exists());
    folders.sort();
    folders.into_iter().map(Case::read).collect()
}

#[test]
fn every_case_gives_tensorflows_values_and_the_same_bits_everywhere() {
    let cases = cases();
    let failures: Vec<String> = cases.iter().flat_map(Case::failures).collect();
    assert!(cases.len() > 10, "only {} cases were found", cases.len());
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

/// Most cases are too small for convolutions with fewer multiplications to pay: here these are free, and chosen wherever there are
/// such forms.
#[test]
fn every_case_gives_tensorflows_values_with_either_form_of_convolutions() {
    let mut tables = Costs::committed().tables().to_vec();
    for table in &mut tables {
        table.rates.insert(Class::Winograd, Rates::default());
        table.command = 0.0;
    }
    let free = Arc::new(Costs::of(tables).unwrap());
    let mut failures = Vec::new();
    let mut chosen = 0;
    for case in &cases() {
        let run = |options: Options, threads: i32| -> Result<(Vec<HostTensor>, bool)> {
            let (_devices, session) = case.open_by(options, 1, threads, &[], false)?;
            let mut is_chosen = false;
            case.each(|feeds, fetches, targets, _| {
                let signature = session.signature(feeds, fetches, targets)?;
                is_chosen |= session.text_after(&signature, Pass::Pack)?.contains("-winograd");
                Ok(())
            })?;
            Ok((case.values(&session)?, is_chosen))
        };
        let of = |exact: bool| {
            let mut options = Options::new().exact_convolutions(exact);
            options.costs = Some(free.clone());
            options
        };
        let mut fail = |reason: String| failures.push(format!("{}: {reason}", case.name()));
        match run(of(false), 1) {
            Ok((_, false)) => continue,
            Ok((values, true)) => {
                chosen += 1;
                case.misses(&values).into_iter().for_each(&mut fail);
                match run(of(false), 2) {
                    Ok((others, _))
                        if values.iter().map(|value| bits(value).unwrap()).eq(others.iter().map(|value| bits(value).unwrap())) => {}
                    _ => fail("not the same bits with two threads".to_string()),
                }
            }
            Err(error) => fail(error.to_string()),
        }
        match run(of(true), 2) {
            Ok((_, true)) => fail("exact convolutions are not".to_string()),
            Ok((values, false)) => case.misses(&values).into_iter().for_each(&mut fail),
            Err(error) => fail(format!("exact: {error}")),
        }
    }
    assert!(chosen > 2, "only {chosen} cases have such convolutions");
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

/// Steps that fail, on a simulated card: with all on it that TensorFlow had on its second processor, and placed by default. Several
/// times, since queues race.
#[test]
fn failures_on_cards_change_what_they_change_with_tensorflow() {
    let folder = std::env::temp_dir().join(format!("plimsoll-recorded-{}", std::process::id()));
    let mut folders = Vec::new();
    for case in cases().iter().filter(|case| case.name().starts_with("fail_")) {
        for device in ["GPU:0", ""] {
            let copy = folder.join(format!("{}-{}", case.name(), device.to_lowercase()));
            case.copy_moved(&copy, if device.is_empty() { String::new() } else { format!("/device:{device}") });
            folders.extend([copy.clone(), copy.clone(), copy]);
        }
    }
    let said = replayed_on_a_card(&folders, &folder);
    let _ = std::fs::remove_dir_all(folder);
    said.unwrap();
}

/// Loops on a simulated card: TensorFlow has a part of each on the host.
#[test]
fn loops_run_on_cards() {
    let folder = std::env::temp_dir().join(format!("plimsoll-loops-{}", std::process::id()));
    let is_loop = |case: &&Case| case.name().starts_with("while_") || case.name().starts_with("frame_");
    let folders: Vec<PathBuf> = cases().iter().filter(is_loop).map(|case| case.folder.clone()).collect();
    assert!(folders.len() > 10, "only {} loops were found", folders.len());
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    let said = replayed_on_a_card(&folders, &folder);
    let _ = std::fs::remove_dir_all(folder);
    said.unwrap();
}

/// Replays recorded runs on a simulated card, whose ledger is in `state`; what differs.
fn replayed_on_a_card(folders: &[PathBuf], state: &Path) -> std::result::Result<(), String> {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.args(["verify", "--sim-gpus", "1x64MiB"]).args(folders).env("PLIMSOLL_STATE_DIR", state.join("state"));
    let output = command.output().expect("the program runs");
    let text = String::from_utf8_lossy(&output.stdout);
    if output.status.success() && text.lines().filter(|line| line.ends_with("OK")).count() == folders.len() {
        return Ok(());
    }
    let failures: Vec<&str> = text.lines().filter(|line| !line.ends_with("OK")).collect();
    Err(format!("{}\n{}", failures.join("\n"), String::from_utf8_lossy(&output.stderr)))
}

#[test]
fn every_case_holds_what_is_promised_and_is_refused_one_byte_below() {
    let mut failures = Vec::new();
    for case in &cases() {
        for devices in [1, 2] {
            if let Err(reason) = case.at_the_line(devices) {
                failures.push(format!("{} on {devices} devices: {reason}", case.name()));
            }
        }
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}
