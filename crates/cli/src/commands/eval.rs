//! `plimsoll eval`: runs graphs once.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use plimsoll::{Code, Devices, Error, Footprint, HostTensor, Session, checkpoint, model, npy};
use serde::Serialize;
use serde_json::Value;

use crate::device_options::DeviceOptions;
use crate::failure::{Failure, OrUsage, Result, wrong_use};
use crate::names::{self, Asked};
use crate::{load, output, show};

/// What runs.
#[derive(Args)]
pub struct EvalArgs {
    /// GraphDefs (.pb, .pbtxt); each is fed and fetched what it has of the names
    #[arg(value_name = "MODEL", required = true)]
    models: Vec<PathBuf>,
    /// A tensor to feed
    #[arg(long, value_name = "NAME=FILE.npy")]
    feed: Vec<String>,
    /// A tensor to print, or to write to a file
    #[arg(long, value_name = "NAME[=FILE.npy]")]
    fetch: Vec<String>,
    /// An operation to run before
    #[arg(long, value_name = "OPERATION")]
    init: Vec<String>,
    /// A checkpoint to take variables from: a folder (the latest in it) or a prefix
    #[arg(long, value_name = "DIR")]
    restore: Option<PathBuf>,
    /// Run all models at the same time
    #[arg(long)]
    parallel: bool,
}

#[derive(Serialize)]
struct Document {
    models: Vec<ModelEntry>,
}

#[derive(Serialize)]
struct ModelEntry {
    model: String,
    fetches: Vec<FetchEntry>,
}

#[derive(Serialize)]
struct FetchEntry {
    name: String,
    data_type: String,
    shape: Vec<u64>,
    /// Row-major; none where they went to a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    values: Option<Vec<Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
}

/// One model's part of the command.
struct Work<'a> {
    session: Session,
    feeds: Vec<(&'a str, HostTensor)>,
    asked: Asked,
    init: Vec<&'a str>,
    restore: Option<&'a Path>,
    footprint: Footprint,
}

/// Runs.
pub fn run(args: EvalArgs, options: &DeviceOptions, json: bool) -> Result<ExitCode> {
    let devices = load::devices(options)?;
    let feeds = args.feed.iter().map(|text| read_feed(text)).collect::<Result<Vec<_>>>()?;
    let fetches: Vec<(&str, Option<&str>)> = args.fetch.iter().map(|text| split(text)).collect();
    let asked = Asked { fetches: fetches.iter().map(|(name, _)| name.to_string()).collect(), targets: Vec::new() };
    let sessions = args.models.iter().map(|model| load::session(&devices, model)).collect::<Result<Vec<_>>>()?;
    check_names(&sessions, &feeds, &asked, &args.init)?;
    check_files(&sessions, &fetches)?;
    let works = sessions.into_iter().map(|session| Work::new(&devices, session, &feeds, &asked, &args)).collect::<Result<Vec<_>>>()?;
    let results = if args.parallel { run_together(&devices, &works)? } else { run_in_turn(works.as_slice())? };
    let mut document = Document { models: Vec::new() };
    for ((model, work), values) in args.models.iter().zip(&works).zip(results) {
        let mut entry = ModelEntry { model: model.display().to_string(), fetches: Vec::new() };
        for (name, value) in work.asked.fetches.iter().zip(&values) {
            let file = fetches.iter().find(|(other, _)| other == name).and_then(|(_, file)| *file);
            entry.fetches.push(deliver(name, value, file, json)?);
        }
        document.models.push(entry);
    }
    if json {
        output::result_json(&document)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes a fetched value to its file, or prints it.
fn deliver(name: &str, value: &HostTensor, file: Option<&str>, json: bool) -> Result<FetchEntry> {
    if let Some(file) = file {
        write_array(Path::new(file), value)?;
    }
    if !json {
        let what = file.map_or_else(|| format!("= {}", show::elements(value)), |file| format!("-> {file}"));
        output::result(format!("{name} {}{} {what}", value.data_type(), value.shape()))?;
    }
    Ok(FetchEntry {
        name: name.to_string(),
        data_type: value.data_type().to_string(),
        shape: value.shape().dims().to_vec(),
        values: if file.is_none() && json { show::values(value) } else { None },
        file: file.map(str::to_string),
    })
}

fn split(text: &str) -> (&str, Option<&str>) {
    text.split_once('=').map_or((text, None), |(name, file)| (name, Some(file)))
}

fn read_feed(text: &str) -> Result<(&str, HostTensor)> {
    let (name, Some(file)) = split(text) else { return wrong_use(format!("--feed {text}: write NAME=FILE.npy")) };
    let bytes = model::read_file(Path::new(file)).or_usage()?;
    let tensor = npy::read(&bytes).map_err(|error| error.context(file))?;
    Ok((name, tensor))
}

/// Whether every name is in one of the models.
fn check_names(sessions: &[Session], feeds: &[(&str, HostTensor)], asked: &Asked, init: &[String]) -> Result<()> {
    let graphs = sessions.iter().map(|session| session.graph());
    asked.check(graphs.clone())?;
    feeds.iter().map(|(name, _)| *name).chain(init.iter().map(String::as_str)).try_for_each(|name| names::check_name(name, graphs.clone()))
}

/// Whether no two values would go to one file.
fn check_files(sessions: &[Session], fetches: &[(&str, Option<&str>)]) -> Result<()> {
    let mut files: Vec<&str> = fetches.iter().filter_map(|(_, file)| *file).collect();
    let count = files.len();
    files.sort_unstable();
    files.dedup();
    let repeated = fetches
        .iter()
        .filter(|(_, file)| file.is_some())
        .find(|(name, _)| sessions.iter().filter(|session| names::check_name(name, std::iter::once(session.graph())).is_ok()).count() > 1);
    match repeated {
        _ if files.len() < count => wrong_use("two tensors would be written to one file"),
        Some((name, _)) => wrong_use(format!("'{name}' is in several models, which would be written to one file")),
        None => Ok(()),
    }
}

fn run_in_turn(works: &[Work<'_>]) -> Result<Vec<Vec<HostTensor>>> {
    works.iter().try_for_each(|work| work.footprint.check())?;
    let run = |work: &Work<'_>| {
        let values = work.run()?;
        // The next one has the devices for itself.
        work.session.close();
        Ok(values)
    };
    works.iter().map(run).collect()
}

fn run_together(devices: &Devices, works: &[Work<'_>]) -> Result<Vec<Vec<HostTensor>>> {
    let mut all = Footprint::new(devices.specs());
    works.iter().for_each(|work| all.join(&work.footprint));
    all.check()?;
    let ended = || Error::internal("a thread of ours ended early");
    let results: Vec<plimsoll::Result<Vec<HostTensor>>> = std::thread::scope(|scope| {
        let threads: Vec<_> = works.iter().map(|work| scope.spawn(|| work.run())).collect();
        threads.into_iter().map(|thread| thread.join().map_err(|_| ended())?).collect()
    });
    Ok(results.into_iter().collect::<plimsoll::Result<Vec<_>>>()?)
}

impl<'a> Work<'a> {
    fn new(devices: &Devices, session: Session, feeds: &[(&'a str, HostTensor)], asked: &Asked, args: &'a EvalArgs) -> Result<Work<'a>> {
        let graph = session.graph();
        let has = |name: &str| names::check_name(name, std::iter::once(graph)).is_ok();
        let feeds: Vec<(&str, HostTensor)> = feeds.iter().filter(|(name, _)| has(name)).cloned().collect();
        let init: Vec<&str> = args.init.iter().map(String::as_str).filter(|name| has(name)).collect();
        let asked = asked.of_graph(graph, devices.registry())?;
        let mut footprint = Footprint::new(devices.specs());
        if !init.is_empty() {
            let plan = session.plan(&[], &[], &init)?;
            footprint.add(&plan);
        }
        let plan = session.plan(&feeds, &texts(&asked.fetches), &texts(&asked.targets)).map_err(|error| match error.code() {
            Code::InvalidArgument if error.message().starts_with("You must feed") => {
                Failure::usage(error.with_remedy("give it with --feed NAME=FILE.npy"))
            }
            _ => Failure::from(error),
        })?;
        footprint.add(&plan);
        Ok(Work { session, feeds, asked, init, restore: args.restore.as_deref(), footprint })
    }

    fn run(&self) -> plimsoll::Result<Vec<HostTensor>> {
        if !self.init.is_empty() {
            self.session.run(&[], &[], &self.init)?;
            self.session.release_unused();
        }
        let callable = self.session.callable_for(&self.feeds, &texts(&self.asked.fetches), &texts(&self.asked.targets))?;
        if let Some(path) = self.restore {
            let restored = checkpoint::restore_prepared(&self.session, path)?;
            if !restored.missing.is_empty() {
                output::note(format_args!("note: the checkpoint does not have {}", restored.missing.join(", ")));
            }
        }
        callable.run(&self.feeds.iter().map(|(_, tensor)| tensor).collect::<Vec<_>>())
    }
}

fn texts(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}

/// Writes an array beside its final name first, so that no half of one is ever there.
fn write_array(path: &Path, tensor: &HostTensor) -> Result<()> {
    let failed = |error: std::io::Error| Error::new(Code::Unknown, format!("{}: {error}", path.display()));
    let mut temporary = path.as_os_str().to_os_string();
    temporary.push(format!(".tmp{}", std::process::id()));
    let temporary = PathBuf::from(temporary);
    // A device, a pipe or another special file is written to, never replaced.
    let is_special = std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file());
    let target = if is_special { path } else { &temporary };
    let write = || -> plimsoll::Result<()> {
        let mut out = BufWriter::new(std::fs::File::create(target).map_err(failed)?);
        npy::write(tensor, &mut out)?;
        out.flush().map_err(failed)?;
        if is_special {
            return Ok(());
        }
        std::fs::rename(&temporary, path).map_err(failed)
    };
    let result = write();
    if result.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    Ok(result?)
}
