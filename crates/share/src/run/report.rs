//! The resources of a program, as a file: one JSON object for programs or, where the file's name ends in `.html`, a page for people.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use plimsoll_base::{Code, Error, Result};
use plimsoll_machine::{ChildrenUsage, children_usage};
use serde::Serialize;

use super::{Ended, Run};
use crate::enforce::Choice;
use crate::isolate::signal_name;
use crate::lease::{Part, Peak, Report};

/// The version of the file's fields: it grows when one is removed or means something else.
const VERSION: u32 = 1;

/// How many links may lead to each other, as the kernel has it.
const MOST_LINKS: usize = 40;

/// Where a report is to be written.
#[derive(Debug)]
pub(super) struct Target {
    path: PathBuf,
    before: ChildrenUsage,
}

#[derive(Serialize)]
struct Document<'a> {
    version: u32,
    command: Vec<String>,
    name: &'a str,
    pid: Option<u32>,
    ended: EndedEntry,
    wall_seconds: f64,
    waited_seconds: f64,
    user_seconds: Option<f64>,
    system_seconds: Option<f64>,
    peak_resident_bytes: Option<u64>,
    rung: Option<&'static str>,
    also: Vec<&'static str>,
    not_possible: Vec<LackEntry<'a>>,
    cards: Vec<CardEntry<'a>>,
    refusals: Option<u64>,
    memory_came_back: Option<bool>,
    left: Vec<LeftEntry<'a>>,
    warnings: &'a [String],
}

/// How it ended.
#[derive(Serialize)]
struct EndedEntry {
    how: &'static str,
    status: Option<u8>,
    signal: Option<String>,
    error: Option<String>,
}

#[derive(Serialize)]
struct LackEntry<'a> {
    rung: &'static str,
    why: &'a str,
    remedy: Option<&'a str>,
}

#[derive(Serialize)]
struct CardEntry<'a> {
    gpu: u32,
    uuid: &'a str,
    name: &'a str,
    reserved_bytes: u64,
    peak_bytes: Option<u64>,
    peak_by: Option<&'static str>,
    peaks: PeakEntry,
}

#[derive(Serialize)]
struct PeakEntry {
    driver: Option<u64>,
    ledger: Option<u64>,
}

#[derive(Serialize)]
struct LeftEntry<'a> {
    pid: u32,
    program: &'a str,
}

/// The known facts about a program when it has ended, or has not begun.
#[derive(Debug, Default)]
pub(super) struct Known<'a> {
    pub pid: Option<u32>,
    pub ended: Option<Ended>,
    pub error: Option<&'a Error>,
    pub wall: Duration,
    pub waited: Duration,
    pub choice: Option<&'a Choice>,
    /// The rung where there is no choice: a program of ours.
    pub held: bool,
    pub parts: &'a [Part],
    pub lease: Option<&'a Report>,
    pub warnings: &'a [String],
}

impl Target {
    /// A file that can be written: one that is there, or can be made in its folder. Nothing is left of the try.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where the path is a folder, a pipe or a device; NOT_FOUND, PERMISSION_DENIED or UNAVAILABLE where nothing can
    /// be made there.
    pub fn find(path: &Path) -> Result<Target> {
        // Behind such a name may be the file that the program writes to.
        let is_special = std::path::absolute(path).is_ok_and(|path| path.starts_with("/dev") || path.starts_with("/proc"));
        if is_special {
            let message = format!("--report {}: it is no plain file", path.display());
            return Err(Error::invalid_argument(message).with_remedy("name a file: the report is written whole, and then put there"));
        }
        // A link stays one: the file that it points to is replaced, or made.
        let path = followed(path);
        // A link that is left leads round.
        if fs::metadata(&path).is_ok_and(|facts| !facts.is_file()) || path.is_symlink() {
            let message = format!("--report {}: it is no plain file", path.display());
            return Err(Error::invalid_argument(message).with_remedy("name a file: the report is written whole, and then put there"));
        }
        if path.file_name().is_none() {
            return Err(Error::invalid_argument(format!("--report '{}' names no file", path.display())));
        }
        let beside = beside(&path);
        let tried = new_file(&beside).and_then(|file| {
            drop(file);
            fs::remove_file(&beside)
        });
        tried.map_err(|error| failed(&path, &error))?;
        Ok(Target { path, before: children_usage() })
    }

    /// Writes it: whole or not at all.
    ///
    /// # Errors
    /// The system's error.
    pub fn write(&self, run: &Run, known: &Known<'_>) -> Result<()> {
        let is_page = self.path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("html"));
        let text = if is_page { page(run, known).html() } else { self.text(run, known) };
        let beside = beside(&self.path);
        let written = new_file(&beside).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.write_all(b"\n")?;
            fs::rename(&beside, &self.path)
        });
        written.map_err(|error| {
            let _ = fs::remove_file(&beside);
            failed(&self.path, &error)
        })
    }

    fn text(&self, run: &Run, known: &Known<'_>) -> String {
        let now = children_usage();
        // A program that did not begin took nothing.
        let began = known.pid.is_some();
        let seconds = |now: Duration, before: Duration| began.then(|| now.saturating_sub(before).as_secs_f64());
        let nothing = Report::default();
        let lease = known.lease.unwrap_or(&nothing);
        let peak = |index: usize| lease.peaks.get(index).copied().unwrap_or_default();
        fn card(part: &Part, peak: Peak) -> CardEntry<'_> {
            CardEntry {
                gpu: part.ordinal,
                uuid: &part.device.uuid,
                name: &part.device.name,
                reserved_bytes: part.bytes.0,
                peak_bytes: peak.most().map(|bytes| bytes.0),
                peak_by: peak.by(),
                peaks: PeakEntry { driver: peak.driver.map(|bytes| bytes.0), ledger: peak.ledger.map(|bytes| bytes.0) },
            }
        }
        let lack = |step: &'_ crate::enforce::Step| (step.rung.word(), step.lack.clone());
        let above: Vec<_> = known.choice.iter().flat_map(|choice| &choice.above).map(lack).collect();
        let has_cards = !known.parts.is_empty();
        let document = Document {
            version: VERSION,
            command: run.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            name: &run.request.name,
            pid: known.pid,
            ended: ended(known),
            wall_seconds: known.wall.as_secs_f64(),
            waited_seconds: known.waited.as_secs_f64(),
            user_seconds: seconds(now.user, self.before.user),
            system_seconds: seconds(now.system, self.before.system),
            // Of programs that ran before, the most is not known apart.
            peak_resident_bytes: Some(now.peak_resident.0).filter(|_| began && now.peak_resident > self.before.peak_resident),
            rung: match known.choice {
                Some(choice) => Some(choice.rung.word()),
                None => known.held.then_some("held"),
            },
            also: known.choice.iter().flat_map(|choice| &choice.also).map(|rung| rung.word()).collect(),
            not_possible: above
                .iter()
                .filter_map(|(rung, lack)| {
                    let lack = lack.as_ref()?;
                    Some(LackEntry { rung, why: &lack.why, remedy: Some(lack.remedy.as_str()).filter(|remedy| !remedy.is_empty()) })
                })
                .collect(),
            cards: known.parts.iter().enumerate().map(|(index, part)| card(part, peak(index))).collect(),
            refusals: lease.refusals,
            memory_came_back: lease.came_back.filter(|_| has_cards),
            left: lease.left.iter().map(|(pid, program)| LeftEntry { pid: *pid, program }).collect(),
            warnings: known.warnings,
        };
        // Our documents have text keys only, so there is nothing that JSON lacks.
        serde_json::to_string_pretty(&document).unwrap_or_default()
    }
}

/// The same for people.
fn page(run: &Run, known: &Known<'_>) -> plimsoll_page::Lease {
    let nothing = Report::default();
    let lease = known.lease.unwrap_or(&nothing);
    let mut facts = Vec::new();
    let mut fact = |name: &str, value: Option<String>| facts.extend(value.map(|value| (name.to_string(), value)));
    fact("name", Some(run.request.name.clone()).filter(|name| !name.is_empty()));
    fact("pid", known.pid.map(|pid| pid.to_string()));
    fact("held to it by", known.choice.map(|choice| choice.rung.word().to_string()));
    fact("refused", lease.refusals.map(|count| count.to_string()));
    let came_back = lease.came_back.filter(|_| !known.parts.is_empty());
    fact("memory came back", came_back.map(|all| if all { "all" } else { "NOT all" }.to_string()));
    let peak = |index: usize| lease.peaks.get(index).and_then(Peak::most);
    let card = |(index, part): (usize, &Part)| (part.ordinal.to_string(), part.device.name.clone(), part.bytes, peak(index));
    let left = lease.left.iter().map(|(pid, program)| format!("pid {pid} ({program}) still holds the lease"));
    let command: Vec<String> = run.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    plimsoll_page::Lease {
        command: command.join(" "),
        ended: match (known.ended, known.error) {
            (Some(ended), _) => super::words::how(ended),
            (None, Some(error)) => format!("no lease: {}", error.message()),
            (None, None) => "no lease".to_string(),
        },
        waited: known.waited.as_secs_f64(),
        ran: known.wall.as_secs_f64(),
        facts,
        cards: known.parts.iter().enumerate().map(card).collect(),
        history: plimsoll_page::listing::Use { step: lease.history.step().as_secs_f64(), shares: lease.history.shares().collect() },
        notes: known.warnings.iter().cloned().chain(left).collect(),
    }
}

fn ended(known: &Known<'_>) -> EndedEntry {
    let entry = |how| EndedEntry { how, status: None, signal: None, error: None };
    let error = known.error.map(|error| error.message().to_string());
    match known.ended {
        Some(Ended::Exited(status)) => EndedEntry { status: Some(status), ..entry("exited") },
        Some(Ended::Signalled(signal)) => EndedEntry { signal: Some(signal_name(signal)), ..entry("signal") },
        Some(Ended::TimedOut) => entry("timeout"),
        Some(Ended::Idle) => entry("idle"),
        Some(Ended::Beyond(signal)) => EndedEntry { signal: Some(signal_name(signal)), ..entry("beyond") },
        Some(Ended::NotStarted(status)) => EndedEntry { status: Some(status), error, ..entry("not started") },
        None => EndedEntry { error, ..entry("no lease") },
    }
}

/// Where links lead, also to a file that is not there yet.
fn followed(path: &Path) -> PathBuf {
    let mut path = path.to_path_buf();
    for _ in 0..MOST_LINKS {
        match (fs::canonicalize(&path), fs::read_link(&path)) {
            (Ok(there), _) => return there,
            (Err(_), Ok(next)) => path = path.parent().unwrap_or(Path::new("")).join(next),
            (Err(_), Err(_)) => break,
        }
    }
    path
}

/// A name of this process's own beside a file.
fn beside(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.new", std::process::id()));
    path.with_file_name(name)
}

fn new_file(path: &Path) -> io::Result<fs::File> {
    // The file that an earlier process of that number left.
    let _ = fs::remove_file(path);
    fs::OpenOptions::new().write(true).create_new(true).open(path)
}

fn failed(path: &Path, error: &io::Error) -> Error {
    let code = match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Code::NotFound,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Code::PermissionDenied,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Code::ResourceExhausted,
        _ => Code::Unavailable,
    };
    Error::new(code, format!("--report {}: {error}", path.display())).with_remedy("name a file in a folder that can be written")
}
