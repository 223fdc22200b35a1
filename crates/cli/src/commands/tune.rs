//! `plimsoll tune`: times the ways to compute a graph's products and convolutions on cards, and writes the table that plans may read.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use plimsoll::recorded::Case;
use plimsoll::tuned::{HowToTune, Tuned, TunedDevice, TunedFor, TunedRequest, Tuning, tune};
use plimsoll::{Devices, Plan, Signature};
use serde::Serialize;

use crate::device_options::DeviceOptions;
use crate::exit_code::ExitCode;
use crate::failure::{Result, wrong_use};
use crate::names::Sized;
use crate::requests::{AskedArgs, Requested, requests};
use crate::{load, output};

/// The models, the runs whose products and convolutions are timed, and where the table goes.
#[derive(Args)]
pub struct TuneArgs {
    /// GraphDefs (.pb, .pbtxt), MetaGraphs (.meta), SavedModel folders, or folders of recorded cases (case.json): all runs of these
    #[arg(value_name = "MODEL", required = true)]
    models: Vec<PathBuf>,
    #[command(flatten)]
    asked: AskedArgs,
    /// Compute once what the model computes from variables and constants alone, as the runs that the table is for
    #[arg(long)]
    freeze: bool,
    /// Write the table to this file, for `--tuned FILE`, with what the table of --tuned has; to standard output, if it is left out
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The most engines of cuDNN for each product and convolution, of those that it predicts to be fast
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=64))]
    engines: u32,
    /// How often each way is timed; the median counts
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
}

/// Times.
pub fn run(args: TuneArgs, options: &DeviceOptions, json: bool) -> Result<ExitCode> {
    if json && args.output.is_none() {
        return wrong_use("--json prints one document: name a file for the table, --output FILE");
    }
    // Where the file cannot be written, nothing is timed.
    args.output.as_deref().map_or(Ok(()), plimsoll::model::check_output)?;
    let options = &DeviceOptions { freeze: args.freeze, ..options.clone() };
    let devices = load::devices(options)?;
    let plans = plans(&devices, &args)?;
    let how = HowToTune { engines: args.engines as usize, rounds: args.rounds };
    let tuning = tune(&devices, &plans, how, &|what| output::note(format!("timing: {what}")))?;
    tuning.left_out.iter().for_each(|what| output::note(format!("left out: {what}")));
    let text = tuning.table.to_text();
    match &args.output {
        None => output::result(text.trim_end())?,
        Some(path) => {
            plimsoll::model::replace_output(path, |out| {
                out.write_all(text.as_bytes()).map_err(|error| plimsoll::model::file_error(path, &error))
            })?;
        }
    }
    if json {
        output::result_json(&Document::new(&tuning))?;
    } else {
        tuning.devices.iter().for_each(|device| output::note(said(device)));
        if let Some(path) = &args.output {
            output::note(format!("times {} are in {}", tuning.table.fingerprint(), path.display()));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The plans of the models' runs, each behind that of what runs before it, and of all runs of recorded cases.
fn plans(devices: &Devices, args: &TuneArgs) -> Result<Vec<Plan>> {
    let (cases, models): (Vec<&PathBuf>, Vec<&PathBuf>) = args.models.iter().partition(|folder| Case::check(folder).is_ok());
    let mut plans = Vec::new();
    for folder in cases {
        let case = Case::read(folder)?;
        if case.config()?.is_some() {
            output::note(format!("{}: its own config is not read: the devices are those of the options", case.name()));
        }
        let replay = case.open(devices.clone())?;
        replay.placement_log().iter().for_each(output::note);
        plans.extend(replay.plans()?);
    }
    if models.is_empty() {
        return match args.asked.is_of_models() {
            true => wrong_use("a recorded case says its runs by itself: what is asked is asked of models"),
            false => Ok(plans),
        };
    }
    let models: Vec<PathBuf> = models.into_iter().cloned().collect();
    let requests = requests(devices, &models, &args.asked)?;
    for (model, Requested { init, signature }) in requests.models.all().iter().zip(requests.all) {
        let Sized::Whole(signature) = signature else {
            return wrong_use(format!("{}: times are for one size: give each feed a shape, as --feed-shape x=32x6", model.label));
        };
        let runs: Vec<Signature> = init.into_iter().chain([signature]).collect();
        let placed = load::place(devices, &model.label, &model.session, &runs)?;
        placed.log.iter().for_each(output::note);
        for run in &runs {
            plans.push(placed.session.plan_signature(run)?);
        }
    }
    Ok(plans)
}

fn said(device: &TunedDevice) -> String {
    let TunedDevice { name, of, timed, known, changed, promised, measured, .. } = device;
    let known = if *known > 0 { format!(", {known} were known") } else { String::new() };
    format!("{name} ({of}): {timed} timed{known}, {changed} have a faster way than was predicted; promised {promised}, measured {measured}")
}

#[derive(Serialize)]
struct Document<'a> {
    /// The name of the table, which plans keep.
    table: &'a str,
    devices: Vec<DeviceEntry<'a>>,
    left_out: &'a [String],
}

#[derive(Serialize)]
struct DeviceEntry<'a> {
    name: &'a str,
    card: &'a str,
    /// The version of cuDNN, where it computes.
    cudnn: Option<&'a str>,
    timed: usize,
    known: usize,
    changed: usize,
    limit_bytes: Option<u64>,
    planned_peak_bytes: u64,
    measured_peak_bytes: u64,
    requests: Vec<RequestEntry<'a>>,
}

/// A request of the table's part for the device.
#[derive(Serialize)]
struct RequestEntry<'a> {
    key: &'a str,
    what: &'a str,
    /// The fastest first.
    ways: Vec<WayEntry<'a>>,
}

#[derive(Serialize)]
struct WayEntry<'a> {
    name: &'a str,
    seconds: f64,
}

impl<'a> Document<'a> {
    fn new(tuning: &'a Tuning) -> Document<'a> {
        let requests = |table: &'a Tuned, of: &TunedFor| {
            let entry = |(key, TunedRequest { what, times }): (&'a String, &'a TunedRequest)| RequestEntry {
                key,
                what,
                ways: times.iter().map(|(name, seconds)| WayEntry { name, seconds: *seconds }).collect(),
            };
            table.part(of).map_or_else(Vec::new, |part| part.iter().map(entry).collect())
        };
        let device = |device: &'a TunedDevice| DeviceEntry {
            name: &device.name,
            card: &device.of.card,
            cudnn: device.of.cudnn.as_ref().map(|cudnn| cudnn.version.as_str()),
            timed: device.timed,
            known: device.known,
            changed: device.changed,
            limit_bytes: device.limit.map(|limit| limit.0),
            planned_peak_bytes: device.promised.0,
            measured_peak_bytes: device.measured.0,
            requests: requests(&tuning.table, &device.of),
        };
        let devices = tuning.devices.iter().map(device).collect();
        Document { table: tuning.table.fingerprint(), devices, left_out: &tuning.left_out }
    }
}
