//! `plimsoll train`: a network learns under hard memory limits.

mod ensemble;
mod model;
mod network;
mod report;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;
use plimsoll::peaks::Peak;
use plimsoll::share::supervise::Supervisors;
use plimsoll::{Cancellation, Devices, Kind};
use plimsoll_train::model::{Model, OptimizerKind};
use plimsoll_train::{Evaluation, Every, Saver, Step, Trainer};

use crate::device_options::{DeviceOptions, duration};
use crate::exit_code::ExitCode;
use crate::failure::Result;
use crate::load::Machine;
use crate::peaks::DevicePeaks;
use crate::progress::Progress;
use crate::trace::{TraceArgs, TracedRun};
use crate::{output, outputs, process, stop};
use network::Network;
use report::Document;

/// How often a checkpoint is written where that is not said: as often as TensorFlow's MonitoredTrainingSession does.
const SAVE_EVERY: Duration = Duration::from_secs(600);

/// The network or model, and how it is trained.
#[derive(Args, Clone)]
pub struct TrainArgs {
    /// digits, which are built in; mnist or cifar10; a GraphDef (.pb, .pbtxt) with a training target, a MetaGraph
    /// (.meta), or a SavedModel folder
    #[arg(value_name = "digits|mnist|cifar10|MODEL", default_value = "digits")]
    what: String,
    /// Of the graphs of a SavedModel the one with exactly these tags, as serve,gpu [default: serve, or the only one]
    #[arg(long, value_name = "TAGS")]
    tags: Option<String>,
    /// The signature of a SavedModel that a step calls
    #[arg(long, value_name = "NAME")]
    signature: Option<String>,
    /// A model: the operation that every step runs
    #[arg(long, value_name = "OPERATION")]
    target: Vec<String>,
    /// mnist, cifar10: the folder of the data set. A model: a placeholder and the examples that it is fed, along the first axis
    /// of the array
    #[arg(long, value_name = "DIR|NAME=FILE.npy")]
    data: Vec<String>,
    /// A model: the loss to report, a scalar [default of a SavedModel: its result loss]. Other scalars of a signature are its metrics
    #[arg(long, value_name = "TENSOR")]
    fetch: Option<String>,
    /// A model: the operation that gives variables their first values [default: init]
    #[arg(long, value_name = "OPERATION")]
    init: Vec<String>,
    /// Replicas of the network: tower i on GPU:i, or, where there are no GPUs, on CPU:i. Without --device-count there are as many
    /// logical CPU devices as towers on them. Without this, one on each GPU, or 2 on CPUs. A network that is built in takes two
    /// simulated GPUs where there is none, and neither an option nor the environment names towers, devices or their memory. auto: as
    /// many as make the predicted step the shortest, at most one on each GPU, or 8 on CPUs
    #[arg(long, value_name = "N|auto", value_parser = towers)]
    towers: Option<Towers>,
    /// Each tower takes steps of its own, without waiting for the others
    #[arg(long = "async")]
    is_async: bool,
    /// cifar10: crop, flip and change brightness and contrast of images at random
    #[arg(long)]
    augment: bool,
    /// Examples of a step: of all towers together, with --async of the one that takes it
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u64).range(1..))]
    batch_size: u64,
    /// Print the largest --batch-size that fits the limits, at most as many as there are examples, and nothing else
    #[arg(long, conflicts_with_all = ["ensemble", "save", "resume"])]
    largest_batch: bool,
    /// The number of the last step; a resumed training counts on from its checkpoint [default: 1000]
    #[arg(long, value_name = "N", conflicts_with = "epochs")]
    steps: Option<u64>,
    /// Instead of --steps: how often every example is learned from. After each epoch its loss and metrics are printed, and what the
    /// held-out examples give
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    epochs: Option<u64>,
    /// A model: the share of examples, from the end of the arrays, that is not learned from but tested with, as 0.2
    #[arg(long, value_name = "SHARE", value_parser = share)]
    held_out: Option<f64>,
    /// A SavedModel: the signature that tests, with the arguments of the training [default with --held-out: evaluate, or test_step].
    /// A graph: a scalar that the held-out examples give. Means over all of them are printed
    #[arg(long, value_name = "NAME", requires = "held_out")]
    evaluate: Vec<String>,
    /// sgd, momentum or adam [default: the network's; adam for digits, momentum for mnist, sgd for cifar10]
    #[arg(long, value_name = "O", value_parser = optimizer)]
    optimizer: Option<OptimizerKind>,
    /// The learning rate of the first step [default: one that suits network and optimizer]
    #[arg(long, value_name = "R")]
    learning_rate: Option<f32>,
    /// The seed of first values and of the order of examples; with --resume the order is the checkpoint's
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    seed: i64,
    /// Train N networks side by side, with seeds that count up from --seed, and report the averaged accuracy. --save and
    /// --resume then name a folder with a folder seed-SEED for each
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=1000))]
    ensemble: Option<u32>,
    /// Write checkpoints into this folder: on the way (--save-every) and at the end
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
    /// How often --save writes a checkpoint: every 500 steps, every 10min, or whichever comes first (500,10min). The latest 5 are
    /// kept [default: 10min]
    #[arg(long, value_name = "STEPS|DURATION", value_delimiter = ',', value_parser = every, requires = "save")]
    save_every: Vec<Every>,
    /// Begin with the latest checkpoint in this folder, or with the checkpoint of this prefix; TensorFlow's, too
    #[arg(long, value_name = "DIR")]
    resume: Option<PathBuf>,
    #[command(flatten)]
    trace: TraceArgs,
}

/// A training that is planned, and nothing run yet.
struct Planned {
    devices: Devices,
    trainer: Trainer,
    /// The network or model, and how it is trained, in a line.
    headline: String,
    /// Whether there are examples to test with.
    has_test: bool,
    /// Whether the GPUs are simulated without being asked for.
    is_simulated: bool,
}

/// Trains.
pub fn run(args: TrainArgs, options: &DeviceOptions, json: bool, supervisors: Supervisors) -> Result<ExitCode> {
    if args.largest_batch {
        return largest_batch(&args, options, json);
    }
    outputs::check([("--profile", args.trace.profile.as_ref())])?;
    if let Some(count) = args.ensemble {
        return ensemble::train(count, &args, json, supervisors);
    }
    let cancellation = Cancellation::new();
    let has_begun = Arc::new(AtomicBool::new(false));
    let listen = || {
        let (cancellation, saves, is_async) = (cancellation.clone(), args.save.is_some(), args.is_async);
        let has_begun = has_begun.clone();
        stop::on_signals(move |signal| match (saves, is_async) {
            // While it plans, reads files or waits for cards, there is nothing to save.
            _ if !has_begun.load(Ordering::SeqCst) => stop::end_process(128 + i32::from(signal)),
            // A step that is cut short changes a part of the variables: nothing that could be saved.
            (false, _) => cancellation.cancel(),
            (true, false) => cancellation.finish(),
            // Each tower comes to the end of its step.
            (true, true) => {}
        })
    };
    let (stop, planned) = match Model::named(&args.what).map(Network::new) {
        Some(network) => {
            network.check(&args)?;
            (listen()?, network.plan(&args, options, &Machine::HERE)?)
        }
        None => {
            let model = model::Model::new(&args)?;
            (listen()?, model.plan(&args, options, &Machine::HERE)?)
        }
    };
    has_begun.store(true, Ordering::SeqCst);
    let Planned { devices, trainer, headline, has_test, is_simulated } = planned;
    let mut trainer = trainer.until(&cancellation);
    let say = |text: String| if json { output::note(text) } else { output::print(text) };
    let every = if args.save_every.is_empty() { vec![Every::Time(SAVE_EVERY)] } else { args.save_every };
    let mut saver = args.save.as_ref().map(|folder| Saver::new(folder, every));
    if let (Some(saver), Some(folder)) = (&saver, &args.save) {
        saver.check().map_err(|error| error.context(format_args!("--save {}", folder.display())))?;
    }
    say(headline);
    if is_simulated {
        say(report::simulated(&devices));
    }
    trainer.placement_log().iter().for_each(output::note);
    report::promises(trainer.promise()).into_iter().for_each(&say);
    trainer.start(args.resume.as_deref())?;
    let (examples, batch) = (trainer.examples(), args.batch_size);
    let last_step = args.epochs.map(|epochs| epoch_end(epochs, examples, batch)).or(args.steps).unwrap_or(DEFAULT_STEPS);
    if args.resume.is_some() {
        say(format!("resumed after step {}", trainer.steps()));
        if trainer.steps() >= last_step {
            let option =
                args.epochs.map_or_else(|| format!("--steps {last_step}"), |epochs| format!("--epochs {epochs} (step {last_step})"));
            say(format!("nothing to do: {option} is not after that"));
        }
    }
    let begun_after = trainer.steps();
    let mut taken = Taken::default();
    let mut epochs = Vec::new();
    for epoch in 1.. {
        let end = if args.epochs.is_some() { epoch_end(epoch, examples, batch) } else { last_step };
        let is_last = end >= last_step;
        if end <= begun_after && !is_last {
            continue;
        }
        // The last part is the one that --stats and --profile look into.
        taken.add(steps(&mut trainer, end, &stop, saver.as_mut(), is_last && args.trace.is_asked())?);
        if args.epochs.is_some() && trainer.steps() == end {
            let held_out = if has_test { trainer.evaluate()?.results } else { Vec::new() };
            let epoch = report::Epoch::new(epoch, taken.final_loss, &trainer.metrics()?, &held_out);
            say(epoch.line());
            epochs.push(epoch);
        }
        if is_last || stop.is_asked() {
            break;
        }
    }
    let Taken { final_loss, seconds, traced } = taken;
    // Results are printed even where they, or the trace, cannot be saved.
    let saved = saver.as_mut().map(|saver| saver.save(&trainer));
    if let Some(Ok(path)) = &saved {
        say(format!("checkpoint: {}", path.display()));
    }
    let has_test = has_test && !trainer.is_torn();
    let evaluation = if has_test { Some(trainer.evaluate()?) } else { None };
    let averages = if has_test { trainer.evaluate_averages()? } else { None };
    let accuracy = |evaluation: &Evaluation| evaluation.get("accuracy");
    let peaks = Peak::of(&devices, trainer.promise().devices());
    let towers = trainer.report();
    let document = Document {
        steps: trainer.steps(),
        final_loss,
        metrics: report::values(trainer.metrics()?.into_iter().map(|(name, value)| (name, f64::from(value)))),
        test_accuracy: averages.as_ref().or(evaluation.as_ref()).and_then(accuracy),
        variables_accuracy: evaluation.as_ref().and_then(accuracy),
        averages_accuracy: averages.as_ref().and_then(accuracy),
        held_out: evaluation.as_ref().map(|evaluation| report::values(evaluation.results.iter().cloned())),
        epochs,
        seconds,
        towers: report::Tower::of(&towers),
        staleness: towers.staleness.map(report::Staleness::of),
        has_default_simulated_gpus: is_simulated,
        devices: peaks.iter().map(DevicePeaks::new).collect(),
        max_rss_bytes: process::max_rss_bytes(),
    };
    let (stats, traced) = match args.trace.deliver(&traced) {
        Ok(stats) => (stats, Ok(())),
        Err(error) => (None, Err(error)),
    };
    if json {
        stats.into_iter().for_each(output::note);
        output::result_json(&document)?;
    } else {
        stats.into_iter().try_for_each(output::result)?;
        output::result(report::summary(&document, evaluation.as_ref(), averages.as_ref(), last_step))?;
        report::towers(&document).into_iter().try_for_each(output::result)?;
        report::last_lines(trainer.promise(), &devices).into_iter().try_for_each(output::result)?;
    }
    saved.transpose()?;
    traced?;
    peaks.iter().try_for_each(Peak::check)?;
    // As shells expect of a program that was interrupted.
    Ok(stop.exit_status().unwrap_or(ExitCode::SUCCESS))
}

/// Prints the largest batch that fits.
fn largest_batch(args: &TrainArgs, options: &DeviceOptions, json: bool) -> Result<ExitCode> {
    let machine = Machine::to_plan_for(options)?;
    let plan = |batch_size: u64| {
        let args = TrainArgs { batch_size, ..args.clone() };
        let planned = match Model::named(&args.what).map(Network::new) {
            Some(network) => network.check(&args).and_then(|()| network.plan(&args, options, &machine)),
            None => model::Model::new(&args).and_then(|model| model.plan(&args, options, &machine)),
        };
        planned.map(drop)
    };
    let largest = plimsoll_train::largest_batch(args.batch_size, plan, |failure| failure.error().code())?;
    match json {
        true => output::result_json(&serde_json::json!({ "largest_batch": largest.size, "smaller_that_do_not_fit": largest.gaps }))?,
        false => {
            output::result(largest.size)?;
            plimsoll::signature::said_of_gaps("batch size", &largest.gaps).into_iter().for_each(output::note);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The value of `--towers`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Towers {
    Auto,
    Count(u32),
}

fn towers(text: &str) -> std::result::Result<Towers, String> {
    match text.parse() {
        _ if text == "auto" => Ok(Towers::Auto),
        Ok(count @ 1..=256) => Ok(Towers::Count(count)),
        _ => Err("write a number from 1 to 256, or auto".to_string()),
    }
}

fn optimizer(text: &str) -> std::result::Result<OptimizerKind, String> {
    text.parse().map_err(|_| "write sgd, momentum or adam".to_string())
}

/// The number of the last step where neither --steps nor --epochs is given.
const DEFAULT_STEPS: u64 = 1000;

/// The last step of an epoch: whole batches, the last of which may reach into the next epoch.
fn epoch_end(epoch: u64, examples: u64, batch: u64) -> u64 {
    epoch.saturating_mul(examples).div_ceil(batch.max(1))
}

/// Reads a share: more than 0, less than 1.
fn share(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if share > 0.0 && share < 1.0 => Ok(share),
        _ => Err("write a share between 0 and 1, as 0.2".to_string()),
    }
}

/// The results of the steps.
#[derive(Default)]
struct Taken {
    /// Of the last step.
    final_loss: Option<f32>,
    seconds: f64,
    /// The last step, where that was asked for.
    traced: Vec<TracedRun>,
}

impl Taken {
    /// With further steps.
    fn add(&mut self, more: Taken) {
        self.final_loss = more.final_loss.or(self.final_loss);
        self.seconds += more.seconds;
        self.traced.extend(more.traced);
    }
}

/// Reads `500` or `10min`.
fn every(text: &str) -> std::result::Result<Every, String> {
    let wrong = || "write a number of steps as 500, or a duration as 10min".to_string();
    match text.parse::<u64>() {
        Ok(0) => Err(wrong()),
        Ok(steps) => Ok(Every::Steps(steps)),
        Err(_) => match duration("--save-every", text) {
            Ok(period) if period > Duration::ZERO && period < Duration::MAX => Ok(Every::Time(period)),
            _ => Err(wrong()),
        },
    }
}

/// Takes steps until there are as many or a signal asks to stop, the last one traced where that is asked for.
fn steps(trainer: &mut Trainer, steps: u64, stop: &stop::Stop, saver: Option<&mut Saver>, is_traced: bool) -> plimsoll::Result<Taken> {
    let progress = Mutex::new(Progress::new(trainer.steps(), steps));
    let progress = || progress.lock().unwrap_or_else(PoisonError::into_inner);
    let start = Instant::now();
    let until = if is_traced { steps.saturating_sub(1) } else { steps };
    let (is_over, show) = (|| stop.is_asked(), |step: Step| progress().show(step.step, step.loss));
    let written = |saved: plimsoll::Result<&Path>| match saved {
        Ok(path) => progress().say(format_args!("checkpoint: {}", path.display())),
        Err(error) => progress().say(format_args!("warning: no checkpoint at this step, the training goes on: {error}")),
    };
    let mut last = match saver {
        Some(saver) => trainer.run_and_save(until, saver, &is_over, &show, &written),
        None => trainer.run(until, &is_over, &show),
    };
    let mut traced = Vec::new();
    if is_traced && last.is_ok() && trainer.steps() < steps && !stop.is_asked() {
        last = match trainer.step_with_stats() {
            // It was cancelled: the steps before it stay.
            Err(error) if stop.is_asked() && error.kind() == Kind::Cancelled => last,
            stepped => stepped.map(|(step, runs)| {
                progress().show(step.step, step.loss);
                let run = |(name, metadata)| TracedRun { label: format!("{name} {}", step.step), metadata };
                traced = runs.into_iter().map(run).collect();
                Some(step)
            }),
        };
    }
    let seconds = start.elapsed().as_secs_f64();
    progress().end();
    Ok(Taken { final_loss: last?.and_then(|step| step.loss), seconds, traced })
}
