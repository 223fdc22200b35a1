//! `plimsoll eval`: runs graphs once.

mod planned;

use std::path::{Path, PathBuf};

use clap::Args;
use plimsoll::placing::Beside;
use plimsoll::signature::BoundPlan;
use plimsoll::{
    Cancellation, Code, Devices, Error, Footprint, HostTensor, Joint, Kind, Placed, RunMetadata, Session, Signature, Together, Unfed,
    checkpoint, npy,
};
use serde::Serialize;
use serde_json::Value;

use crate::device_options::DeviceOptions;
use crate::exit_code::ExitCode;
use crate::failure::{Failure, Result, wrong_use};
use crate::models::{Calls, Fetch, Models, Opened, Wanted};
use crate::stop::{AtOnce, TimeoutArgs};
use crate::trace::{TraceArgs, TracedRun};
use crate::{load, names, output, outputs, show};

/// The models, and the run of each.
#[derive(Args)]
pub struct EvalArgs {
    /// GraphDefs (.pb, .pbtxt), MetaGraphs (.meta, with the checkpoint beside) or SavedModel folders. Where there are several, a
    /// name below is for every model that has it, and MODEL::NAME for one: its path, its file's name with or without extension, or its number from 1
    #[arg(value_name = "MODEL", required = true)]
    models: Vec<PathBuf>,
    /// Of the graphs of a SavedModel the one with exactly these tags, as serve,gpu [default: serve, or the only one]
    #[arg(long, value_name = "TAGS")]
    tags: Vec<String>,
    /// The signature of a SavedModel that is called: names are those of its arguments and results [default: serving_default, or
    /// the only one]
    #[arg(long, value_name = "NAME")]
    signature: Vec<String>,
    /// A tensor to feed
    #[arg(long, value_name = "NAME=FILE.npy")]
    feed: Vec<String>,
    /// A tensor to print, or to write to a file
    #[arg(long, value_name = "NAME[=FILE.npy]")]
    fetch: Vec<String>,
    /// An operation to run before; a SavedModel restores itself
    #[arg(long, value_name = "OPERATION")]
    init: Vec<String>,
    /// A checkpoint to take variables from: a folder (the latest in it) or a prefix
    #[arg(long, value_name = "DIR")]
    restore: Option<PathBuf>,
    /// The file of a plan of this run, which `plan --output` wrote: it runs instead of one that is made now; for one model
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// Run all models at the same time if the sum of their memory fits, else in turns. Without this, one
    /// after the other
    #[arg(long)]
    parallel: bool,
    /// Compute once what the model computes from variables and constants alone, and keep it in their place: batch norms become part of
    /// the convolutions before them
    #[arg(long)]
    freeze: bool,
    #[command(flatten)]
    timeout: TimeoutArgs,
    #[command(flatten)]
    trace: TraceArgs,
}

#[derive(Serialize)]
struct Document {
    models: Vec<ModelEntry>,
    /// The order of runs: rounds, one after the other, of models that ran side by side, by their positions. With `--parallel`.
    #[serde(skip_serializing_if = "Option::is_none")]
    rounds: Option<Vec<Vec<usize>>>,
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
struct Work {
    label: String,
    session: Session,
    feeds: Vec<(String, HostTensor)>,
    wanted: Wanted,
    init: Vec<String>,
    restore: Option<PathBuf>,
    footprint: Footprint,
    /// The plan of a file, where one was given.
    planned: Option<BoundPlan>,
    is_traced: bool,
}

/// The result of a run: its values, and with a trace what ran when.
type Ran = (Vec<HostTensor>, Option<RunMetadata>);

/// Runs.
pub fn run(args: EvalArgs, options: &DeviceOptions, json: bool) -> Result<ExitCode> {
    let at_once = AtOnce::new(&args.timeout)?;
    let options = DeviceOptions { freeze: args.freeze, ..options.clone() };
    at_once.end(evaluate(args, &options, json, &at_once))
}

fn evaluate(args: EvalArgs, options: &DeviceOptions, json: bool, at_once: &AtOnce) -> Result<ExitCode> {
    if args.plan.is_some() && args.models.len() > 1 {
        return wrong_use("--plan is the plan of one model");
    }
    let devices = load::devices(options)?;
    if args.plan.is_some() && devices.options().placement.looks_at_runs() {
        return wrong_use("--plan has its placement: leave out --placement");
    }
    let works = works(&devices, &args)?;
    let files = works.iter().flat_map(|work| &work.wanted.fetches).map(|fetch| ("--fetch", fetch.file.as_ref()));
    outputs::check(files.chain([("--profile", args.trace.profile.as_ref())]))?;
    let joint = Joint::new(works.iter().map(|work| (work.label.clone(), work.footprint.clone())));
    let rounds = if args.parallel { joint.rounds()? } else { joint.one_by_one()? };
    if args.parallel && joint.together() == Together::InTurn {
        output::note(turns(&joint, &rounds));
    }
    let mut results: Vec<Vec<HostTensor>> = vec![Vec::new(); works.len()];
    let mut traced = Vec::new();
    for round in &rounds {
        for (&index, (values, metadata)) in
            round.iter().zip(at_once.during(|| run_together(round.iter().map(|&index| &works[index]).collect(), at_once.cancellation()))?)
        {
            results[index] = values;
            traced.extend(metadata.map(|metadata| TracedRun { label: works[index].label.clone(), metadata }));
        }
    }
    let stats = args.trace.deliver(&traced)?;
    let mut document = Document { models: Vec::new(), rounds: args.parallel.then_some(rounds) };
    for (work, values) in works.iter().zip(&results) {
        let fetches = work.wanted.fetches.iter().zip(values).map(|(fetch, value)| deliver(fetch, value, json));
        document.models.push(ModelEntry { model: work.label.clone(), fetches: fetches.collect::<Result<_>>()? });
    }
    if json {
        stats.into_iter().for_each(output::note);
        output::result_json(&document)?;
    } else {
        stats.into_iter().try_for_each(output::result)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Everything that the command line asks for, planned; nothing has run.
fn works(devices: &Devices, args: &EvalArgs) -> Result<Vec<Work>> {
    let mut feeds: Vec<Vec<(String, HostTensor)>> = vec![Vec::new(); args.models.len()];
    let mut inits: Vec<Vec<String>> = vec![Vec::new(); args.models.len()];
    let read = args.feed.iter().map(|text| read_feed(text)).collect::<Result<Vec<_>>>()?;
    let fetched = args.fetch.iter().map(|text| text.split_once('=').map_or(text.as_str(), |(name, _)| name));
    let names = fetched.chain(read.iter().map(|(name, _)| *name)).chain(args.init.iter().map(String::as_str)).collect();
    let calls = Calls { tags: &args.tags, signatures: &args.signature, names };
    let models = Models::open(devices, &args.models, &calls, args.restore.as_deref())?;
    for (text, (name, tensor)) in args.feed.iter().zip(&read) {
        for (model, name) in models.find(name, Opened::feed)?.0 {
            let checked = names::check_feed(models.all()[model].graph(), devices.registry(), &name, tensor);
            checked.map_err(|error| Failure::usage(error.context(format_args!("--feed {text}"))))?;
            feeds[model].push((name, tensor.clone()));
        }
    }
    for name in &args.init {
        models.find(name, Opened::node)?.0.into_iter().for_each(|(model, name)| inits[model].push(name));
    }
    let wanted = models.wanted(devices, &args.fetch, &[])?;
    let each = models.into_all().into_iter().zip(feeds).zip(inits).zip(wanted);
    let asked: Vec<Asked> =
        each.map(|(((model, feeds), init), wanted)| Asked::new(model, feeds, init, wanted, args)).collect::<Result<_>>()?;
    let beside: Vec<Beside<'_>> = asked.iter().map(Asked::beside).collect();
    let placed = match args.parallel {
        true => load::place_all(devices, &beside)?,
        // One after the other, each has the devices to itself.
        false => beside.iter().map(|model| load::place(devices, model.name, model.session, model.runs)).collect::<Result<_>>()?,
    };
    Ok(asked.into_iter().zip(placed).map(|(asked, placed)| asked.placed(placed)).collect())
}

/// Why models that were to run at the same time do not, and in which rounds they run.
fn turns(joint: &Joint, rounds: &[Vec<usize>]) -> String {
    let short = joint.needs().into_iter().find(|need| need.shortfall().0 > 0);
    let why = short.map_or_else(String::new, |need| {
        let limit = need.limit.unwrap_or_default();
        format!(" ({} needs {} bytes for all of them and its limit is {} bytes)", short_name(&need.name), need.peak.0, limit.0)
    });
    let round = |round: &Vec<usize>| round.iter().map(|&index| joint.names()[index].as_str()).collect::<Vec<_>>().join(" beside ");
    format!("note: the models take turns{why}: {}", rounds.iter().map(round).collect::<Vec<_>>().join(", then "))
}

fn short_name(name: &str) -> &str {
    name.rsplit("device:").next().unwrap_or(name)
}

/// Runs models side by side; each gives its memory back as it ends.
fn run_together(works: Vec<&Work>, cancellation: &Cancellation) -> Result<Vec<Ran>> {
    if let [work] = works[..] {
        return Ok(vec![work.run(cancellation)?]);
    }
    let ended = || Error::internal("a thread of ours ended early");
    let results: Vec<plimsoll::Result<Ran>> = std::thread::scope(|scope| {
        let threads: Vec<_> = works.iter().map(|work| scope.spawn(|| work.run(cancellation))).collect();
        threads.into_iter().map(|thread| thread.join().map_err(|_| ended())?).collect()
    });
    Ok(results.into_iter().collect::<plimsoll::Result<Vec<_>>>()?)
}

/// Writes a fetched value to its file, or prints it.
fn deliver(fetch: &Fetch, value: &HostTensor, json: bool) -> Result<FetchEntry> {
    let Fetch { shown, file, .. } = fetch;
    if let Some(file) = file {
        plimsoll::model::replace_output(file, |out| plimsoll::npy::write(value, out))?;
    }
    if !json {
        let what = match file {
            Some(file) => format!("-> {}", file.display()),
            None => format!("= {}", show::elements(value)),
        };
        output::result(format!("{shown} {}{} {what}", value.data_type(), value.shape()))?;
    }
    Ok(FetchEntry {
        name: shown.clone(),
        data_type: value.data_type().to_string(),
        shape: value.shape().dims().to_vec(),
        values: if file.is_none() && json { show::values(value) } else { None },
        file: file.as_ref().map(|file| file.display().to_string()),
    })
}

fn read_feed(text: &str) -> Result<(&str, HostTensor)> {
    let Some((name, file)) = text.split_once('=').filter(|(_, file)| !file.is_empty()) else {
        return wrong_use(format!("--feed {text}: write NAME=FILE.npy"));
    };
    let tensor = npy::read_file(Path::new(file)).map_err(|error| match error.code() {
        // A damaged file and a lack of memory are no mistakes in the command.
        Code::DataLoss | Code::ResourceExhausted | Code::Unimplemented => Failure::from(error),
        _ => Failure::usage(error),
    })?;
    Ok((name, tensor))
}

/// One model's part of the command, before it is placed.
struct Asked {
    label: String,
    session: Session,
    runs: Vec<Signature>,
    feeds: Vec<(String, HostTensor)>,
    wanted: Wanted,
    init: Vec<String>,
    restore: Option<PathBuf>,
    planned: Option<BoundPlan>,
    is_traced: bool,
}

impl Asked {
    fn new(model: Opened, feeds: Vec<(String, HostTensor)>, init: Vec<String>, wanted: Wanted, args: &EvalArgs) -> Result<Asked> {
        // The placement that was tried takes the place of the model's own.
        let init = if init.is_empty() { model.session.preparation_for(&wanted.names()) } else { init };
        let initialise = Signature { targets: init.clone(), ..Signature::default() };
        let initialise = Some(initialise).filter(|_| !init.is_empty());
        let (planned, step) = match &args.plan {
            Some(path) => (Some(planned::open(path, &model.session, &feeds, &wanted)?), None),
            None => (None, Some(step(&model, &feeds, &wanted)?)),
        };
        let runs: Vec<Signature> = initialise.into_iter().chain(step).collect();
        let (restore, is_traced) = (args.restore.clone(), args.trace.is_asked());
        Ok(Asked { label: model.label, session: model.session, runs, feeds, wanted, init, restore, planned, is_traced })
    }

    fn beside(&self) -> Beside<'_> {
        Beside { name: &self.label, session: &self.session, runs: &self.runs }
    }

    fn placed(self, placed: Placed) -> Work {
        let Placed { session, mut footprint, log, .. } = placed;
        log.iter().for_each(output::note);
        if let Some(planned) = &self.planned {
            footprint.add(planned.plan());
        }
        let Asked { label, feeds, wanted, init, restore, planned, is_traced, .. } = self;
        Work { label, session, feeds, wanted, init, restore, footprint, planned, is_traced }
    }
}

impl Work {
    /// Runs, and gives everything back to the devices.
    fn run(&self, cancellation: &Cancellation) -> plimsoll::Result<Ran> {
        let values = self.values(&self.session.until(cancellation));
        self.session.close();
        values
    }

    fn values(&self, session: &Session) -> plimsoll::Result<Ran> {
        if !self.init.is_empty() {
            session.run(&[], &[], &texts(&self.init))?;
            session.release_unused();
        }
        let callable = match &self.planned {
            Some(planned) => planned.callable(session)?,
            None => session.callable_for(&fed(&self.feeds), &self.wanted.tensors(), &self.wanted.targets())?,
        };
        if let Some(path) = &self.restore {
            let missing = checkpoint::missing(session, path)?;
            if !missing.is_empty() {
                output::note(format_args!("note: the checkpoint does not have {}", missing.join(", ")));
            }
        }
        let feeds: Vec<&HostTensor> = self.feeds.iter().map(|(_, tensor)| tensor).collect();
        let feeds = self.planned.as_ref().map_or(feeds.clone(), |planned| planned.feeds(&feeds));
        let (outputs, metadata) = if self.is_traced {
            let mut outputs = callable.outputs()?;
            let metadata = callable.run_with_stats(&feeds, &mut outputs.iter_mut().collect::<Vec<_>>())?;
            (outputs, Some(metadata))
        } else {
            (callable.run(&feeds)?, None)
        };
        Ok((self.planned.as_ref().map_or(outputs.clone(), |planned| planned.fetches(&outputs)), metadata))
    }
}

/// The signature of a model's step.
fn step(model: &Opened, feeds: &[(String, HostTensor)], wanted: &Wanted) -> Result<Signature> {
    model.session.signature(&fed(feeds), &wanted.tensors(), &wanted.targets()).map_err(|error| match error.kind() {
        Kind::NotFed(missing) => {
            let feed = |unfed: &Unfed| format!("--feed {}=FILE.npy", model.argument_of(&unfed.name));
            let feeds: Vec<String> = missing.iter().map(feed).collect();
            Failure::usage(error.with_remedy(format!("add {}", feeds.join(" "))))
        }
        _ => Failure::from(error),
    })
}

fn texts(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}

fn fed(feeds: &[(String, HostTensor)]) -> Vec<(&str, HostTensor)> {
    feeds.iter().map(|(name, tensor)| (name.as_str(), tensor.clone())).collect()
}
