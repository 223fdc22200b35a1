//! `plimsoll train`: a network learns under hard memory limits.

mod report;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::Args;
use plimsoll::{Bytes, Code, DeviceKind, Devices, Error, MemoryLimit, Options, model};
use plimsoll_train::model::OptimizerKind;
use plimsoll_train::{Config, Evaluation, Trainer};

use crate::case::DevicePeaks;
use crate::device_options::DeviceOptions;
use crate::failure::{Failure, OrUsage, Result, not_yet, wrong_use};
use crate::progress::Progress;
use crate::{output, process, stop};
use report::Document;

/// What is trained, and how.
#[derive(Args)]
pub struct TrainArgs {
    /// digits, which are built in; mnist, cifar10 or a model (not yet)
    #[arg(value_name = "digits|mnist|cifar10|MODEL", default_value = "digits")]
    what: String,
    /// A signature of the model (not yet)
    #[arg(long, value_name = "NAME")]
    signature: Option<String>,
    /// What a model is fed, as NAME=FILE.npy, or the folder of a data set (not yet)
    #[arg(long, value_name = "NAME=FILE.npy|DIR")]
    data: Vec<String>,
    /// Replicas of the network, tower i on CPU:i; without --device-count there are as many logical CPU devices
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=256))]
    towers: u32,
    /// Towers apply their gradients without waiting for each other (not yet)
    #[arg(long = "async")]
    is_async: bool,
    /// Examples of a step, all towers together
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u64).range(1..))]
    batch_size: u64,
    /// The step at which it ends; a resumed training counts on from its checkpoint
    #[arg(long, value_name = "N", default_value_t = 1000)]
    steps: u64,
    /// sgd, momentum or adam
    #[arg(long, value_name = "O", default_value_t = OptimizerKind::default(), value_parser = optimizer)]
    optimizer: OptimizerKind,
    /// How fast it learns [default: what suits the optimizer]
    #[arg(long, value_name = "R")]
    learning_rate: Option<f32>,
    /// Decides first values and the order of examples; with --resume the order is the checkpoint's
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    seed: i64,
    /// Write a checkpoint there when it ends
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
    /// Begin with the latest checkpoint there
    #[arg(long, value_name = "DIR")]
    resume: Option<PathBuf>,
}

/// The line of the device that holds the variables, where no other is said.
const DEFAULT_LIMIT: Bytes = Bytes(32 << 20);
/// The line of the other towers' devices.
const DEFAULT_TOWER_LIMIT: Bytes = Bytes(16 << 20);

/// Trains.
pub fn run(args: TrainArgs, options: &DeviceOptions, json: bool) -> Result<ExitCode> {
    args.check()?;
    let stop = stop::on_signals()?;
    let options = with_defaults(options.resolve(None)?, args.towers);
    let devices = Devices::open(&options).or_usage()?;
    let config = args.config();
    let mut trainer = Trainer::digits(&devices, &config).map_err(|error| match error.code() {
        Code::InvalidArgument => Failure::usage(error),
        _ => Failure::from(error),
    })?;
    let say = |text: String| if json { output::note(text) } else { output::print(text) };
    if let Some(folder) = &args.save {
        can_save(folder)?;
    }
    say(headline(&config));
    report::promises(trainer.promise()).into_iter().for_each(&say);
    trainer.start(args.resume.as_deref())?;
    if args.resume.is_some() {
        say(format!("resumed after step {}", trainer.steps()));
    }
    let (final_loss, seconds) = steps(&mut trainer, args.steps, &stop)?;
    // What was learnt is said even where it cannot be saved.
    let saved = args.save.as_ref().map(|folder| trainer.save(folder));
    if let Some(Ok(path)) = &saved {
        say(format!("checkpoint: {}", path.display()));
    }
    let evaluation = trainer.evaluate()?;
    let planned: Vec<u64> = trainer.promise().devices().iter().map(|device| device.peak.0).collect();
    let document = Document {
        steps: trainer.steps(),
        final_loss,
        test_accuracy: evaluation.accuracy,
        seconds,
        devices: DevicePeaks::of(&devices, &planned),
        max_rss_bytes: process::max_rss_bytes(),
    };
    if json {
        output::result_json(&document)?;
    } else {
        output::result(summary(&document, &evaluation, args.steps))?;
        report::last_lines(trainer.promise(), &devices).into_iter().try_for_each(output::result)?;
    }
    saved.transpose()?;
    report::kept(&document)?;
    Ok(ExitCode::SUCCESS)
}

/// Finds out before the first step whether a checkpoint can be written to the folder, which exists from now on.
fn can_save(folder: &Path) -> plimsoll::Result<()> {
    let probe = folder.join(format!(".probe-{}", std::process::id()));
    let attempt = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&probe, [0])).and_then(|()| std::fs::remove_file(&probe));
    attempt.map_err(|error| Error::failed_precondition(format!("--save {}: {error}", folder.display())))
}

impl TrainArgs {
    /// Whether it is built, and makes sense for what is trained.
    fn check(&self) -> Result<()> {
        match self.what.as_str() {
            "digits" => {}
            "mnist" | "cifar10" => return Err(not_yet(&format!("plimsoll train {}", self.what))),
            other => {
                model::check(Path::new(other)).or_usage()?;
                return Err(not_yet(&format!("training a model ({other})")));
            }
        }
        if self.is_async {
            return Err(not_yet("--async: towers wait for each other in every step"));
        }
        if let Some(data) = self.data.first() {
            return wrong_use(format!("--data {data}: the digits are built in"));
        }
        if let Some(signature) = &self.signature {
            return wrong_use(format!("--signature {signature}: only models have signatures"));
        }
        Ok(())
    }

    fn config(&self) -> Config {
        Config {
            towers: self.towers as usize,
            batch_size: self.batch_size,
            optimizer: self.optimizer,
            learning_rate: self.learning_rate,
            seed: self.seed,
        }
    }
}

fn optimizer(text: &str) -> std::result::Result<OptimizerKind, String> {
    text.parse().map_err(|_| "write sgd, momentum or adam".to_string())
}

/// A logical CPU device for each tower where no number is said, and a line for each where none is.
fn with_defaults(mut options: Options, towers: u32) -> Options {
    let count = *options.device_count.entry("CPU".to_string()).or_insert(towers as i32);
    if options.memory_limits.is_empty() {
        let limit = |index| if index == 0 { DEFAULT_LIMIT } else { DEFAULT_TOWER_LIMIT };
        let line = |index| MemoryLimit { device: Some((DeviceKind::Cpu, index)), parts: vec![limit(index)] };
        options.memory_limits = (0..towers.min(count.max(0) as u32)).map(line).collect();
    }
    options
}

/// Takes steps until there are as many or somebody asks to stop; the last loss, and how long it took.
fn steps(trainer: &mut Trainer, steps: u64, stop: &stop::Stop) -> plimsoll::Result<(Option<f32>, f64)> {
    let mut progress = Progress::new(trainer.steps(), steps);
    let mut loss = None;
    let start = Instant::now();
    while trainer.steps() < steps && !stop.is_asked() {
        let step = trainer.step()?;
        loss = step.loss;
        progress.show(step.step, step.loss);
    }
    let seconds = start.elapsed().as_secs_f64();
    progress.end();
    Ok((loss, seconds))
}

fn headline(config: &Config) -> String {
    let rate = config.learning_rate.unwrap_or(config.optimizer.default_learning_rate());
    let towers = match config.towers {
        1 => "1 tower".to_string(),
        towers => format!("{towers} towers"),
    };
    let each = config.batch_size / config.towers as u64;
    format!("digits: 64-128-64-10, {towers} of {each} images a step, {} {rate}, seed {}", config.optimizer, config.seed)
}

fn summary(document: &Document, evaluation: &Evaluation, wanted: u64) -> String {
    let mut text = format!("step {}", document.steps);
    if document.steps < wanted {
        text += &format!(" of {wanted}, stopped");
    }
    if let Some(loss) = document.final_loss {
        text += &format!(": loss {loss:.4}, {:.2} s", document.seconds);
    }
    text += &format!("\nheld-out images: {:.2} % right, loss {:.4}", 100.0 * evaluation.accuracy, evaluation.loss);
    text + &format!("\nmost memory resident: {}", Bytes(document.max_rss_bytes))
}
