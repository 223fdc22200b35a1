//! The report of a training: its promise, its last lines, its document.

use std::collections::BTreeMap;

use plimsoll::{Bytes, DeviceKind, Devices};
use plimsoll_train::{Evaluation, Promise, Report, TowerReport};
use serde::Serialize;

use crate::peaks::DevicePeaks;
use crate::show;

/// The document of `--json`.
#[derive(Serialize)]
pub struct Document {
    /// Those before a checkpoint included.
    pub steps: u64,
    /// Of the last step; null where none was taken.
    pub final_loss: Option<f32>,
    /// The other scalars of a signature, of the last step.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<String, f64>,
    /// Means over the held-out examples, at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_out: Option<BTreeMap<String, f64>>,
    /// With --epochs, those that came to their end.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub epochs: Vec<Epoch>,
    /// With the moving averages where the training keeps some, with the variables elsewhere; null where there are no examples
    /// to test with.
    pub test_accuracy: Option<f64>,
    pub variables_accuracy: Option<f64>,
    /// Null where the training keeps no moving averages.
    pub averages_accuracy: Option<f64>,
    /// Of the steps taken now, without planning and evaluation.
    pub seconds: f64,
    pub towers: Vec<Tower>,
    /// Null where all towers step together.
    pub staleness: Option<Staleness>,
    /// Whether the GPUs are simulated without being asked for.
    pub has_default_simulated_gpus: bool,
    pub devices: Vec<DevicePeaks>,
    pub max_rss_bytes: u64,
}

/// An epoch that came to its end.
#[derive(Serialize)]
pub struct Epoch {
    /// From 1.
    epoch: u64,
    /// Of the last step.
    loss: Option<f32>,
    /// Of the last step.
    metrics: BTreeMap<String, f64>,
    held_out: BTreeMap<String, f64>,
}

impl Epoch {
    /// The end of an epoch, with the loss and metrics of its last step, and what the held-out examples gave.
    pub fn new(epoch: u64, loss: Option<f32>, metrics: &[(String, f32)], held_out: &[(String, f64)]) -> Epoch {
        let metrics = values(metrics.iter().map(|(name, value)| (name.clone(), f64::from(*value))));
        Epoch { epoch, loss, metrics, held_out: values(held_out.iter().cloned()) }
    }

    /// `epoch 2: loss 0.5120, accuracy 0.8100; held out: accuracy 0.7900, loss 0.6010`
    pub fn line(&self) -> String {
        let loss = self.loss.map(|loss| format!("loss {}", show::significant(loss)));
        let mut text = format!("epoch {}", self.epoch);
        let learned: Vec<String> = loss.into_iter().chain(list(&self.metrics)).collect();
        if !learned.is_empty() {
            text += &format!(": {}", learned.join(", "));
        }
        if !self.held_out.is_empty() {
            text += &format!("; held out: {}", list(&self.held_out).join(", "));
        }
        text
    }
}

/// Numbers by name.
pub fn values(values: impl Iterator<Item = (String, f64)>) -> BTreeMap<String, f64> {
    values.collect()
}

fn list(values: &BTreeMap<String, f64>) -> Vec<String> {
    values.iter().map(|(name, value)| format!("{name} {}", show::significant(*value as f32))).collect()
}

/// How a tower fared in the steps taken now.
#[derive(Serialize)]
pub struct Tower {
    device: String,
    steps: u64,
    /// The time of its runs.
    seconds: f64,
    /// The part of it in which nothing of the tower was computed.
    wait_seconds: f64,
    moved_bytes_per_step: u64,
}

impl Tower {
    /// Tower by tower.
    pub fn of(report: &Report) -> Vec<Tower> {
        let tower = |tower: &TowerReport| Tower {
            device: tower.device.clone(),
            steps: tower.steps,
            seconds: tower.running.as_secs_f64(),
            wait_seconds: tower.waiting.as_secs_f64(),
            moved_bytes_per_step: tower.moved_bytes_per_step,
        };
        report.towers.iter().map(tower).collect()
    }
}

/// By how many steps of others the variables had changed when a tower changed them.
#[derive(Serialize)]
pub struct Staleness {
    mean: f64,
    max: u64,
}

impl Staleness {
    /// The part of it that is shown.
    pub fn of(staleness: plimsoll_train::Staleness) -> Staleness {
        Staleness { mean: staleness.mean(), max: staleness.max }
    }
}

/// For each tower its waiting and the bytes moved for it; then the staleness, where there can be some.
pub fn towers(document: &Document) -> Vec<String> {
    let tower = |(index, tower): (usize, &Tower)| {
        let each = 1000.0 / tower.steps.max(1) as f64;
        format!(
            "tower {index} on {}: {} steps of {:.1} ms, {:.1} ms of them waiting; {} moved a step",
            short(&tower.device),
            tower.steps,
            each * tower.seconds,
            each * tower.wait_seconds,
            Bytes(tower.moved_bytes_per_step)
        )
    };
    let staleness = document.staleness.as_ref().map(|staleness| {
        let Staleness { mean, max } = staleness;
        format!("staleness: {mean:.2} steps of other towers, at most {max}")
    });
    document.towers.iter().enumerate().map(tower).chain(staleness).collect()
}

/// That the cards are simulated without being asked for, and how to do without.
pub fn simulated(devices: &Devices) -> String {
    let gpus = devices.specs().iter().filter(|spec| spec.kind == DeviceKind::Gpu).map(|spec| spec.name.to_string());
    let gpus: Vec<String> = gpus.map(|name| short(&name).to_string()).collect();
    format!("no GPU to compute on: {} are simulated (--towers {} for CPUs)", gpus.join(" and "), gpus.len())
}

/// For each device its line and the promise.
pub fn promises(promise: &Promise) -> Vec<String> {
    let devices = promise.devices().iter();
    devices.map(|device| format!("{}: limit {}, promised {}", short(&device.name), limit(device.limit), exact(device.peak))).collect()
}

/// The steps taken, and the results.
pub fn summary(document: &Document, evaluation: Option<&Evaluation>, averages: Option<&Evaluation>, wanted: u64) -> String {
    let mut text = format!("step {}", document.steps);
    if document.steps < wanted {
        text += &format!(" of {wanted}, stopped");
    }
    match document.final_loss {
        Some(loss) => text += &format!(": loss {}, {:.2} s", show::significant(loss), document.seconds),
        None => text += &format!(": {:.2} s", document.seconds),
    }
    if !document.metrics.is_empty() {
        text += &format!("\nmetrics of the last step: {}", list(&document.metrics).join(", "));
    }
    if let Some(evaluation) = evaluation {
        text += &format!("\nheld out: {}", scores(evaluation));
    }
    if let Some(averages) = averages {
        text += &format!("\nwith moving averages: {}", scores(averages));
    }
    text + &format!("\nmost memory resident: {}", Bytes(document.max_rss_bytes))
}

/// `81.00 % right, loss 0.6010`
fn scores(evaluation: &Evaluation) -> String {
    let right = evaluation.get("accuracy").map(|share| format!("{:.2} % right", 100.0 * share));
    let others = evaluation.results.iter().filter(|(name, _)| name != "accuracy");
    let others = others.map(|(name, value)| format!("{name} {}", show::significant(*value as f32)));
    right.into_iter().chain(others).collect::<Vec<_>>().join(", ")
}

/// For each device the line, the promised and the measured peak, and the refusal for one byte less.
pub fn last_lines(promise: &Promise, devices: &Devices) -> Vec<String> {
    let measured = devices.report();
    let devices = promise.devices().iter().zip(measured).enumerate();
    let line = |(index, (promised, measured)): (usize, (&plimsoll::Need, plimsoll::DeviceReport))| {
        let mut text = format!(
            "{}: limit {}, promised {}, measured {}",
            short(&promised.name),
            limit(promised.limit),
            exact(promised.peak),
            exact(measured.peak)
        );
        if let Some(error) = promise.one_byte_less(index) {
            let said =
                format!("with --fit=off a limit of {} bytes would have said: {}: {}", promised.peak.0 - 1, error.code(), error.message());
            text += &format!("\n{}", show::wrapped(&said, 2));
        }
        text
    };
    devices.map(line).collect()
}

fn limit(limit: Option<Bytes>) -> String {
    limit.map_or("none".to_string(), |limit| limit.to_string())
}

/// A size and its bytes.
fn exact(bytes: Bytes) -> String {
    if bytes.0 < 1024 { bytes.to_string() } else { format!("{bytes} ({} bytes)", bytes.0) }
}

/// `CPU:0`.
fn short(name: &str) -> &str {
    name.rsplit("device:").next().unwrap_or(name)
}
