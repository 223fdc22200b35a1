//! `plimsoll bench`: times the last step of a recorded run.

use std::path::PathBuf;

use clap::Args;
use plimsoll::page::{self, Picture};
use plimsoll::recorded::{Case, Timing};
use plimsoll::{Bytes, DeviceSpec, HostTensor};
use serde::Serialize;

use crate::device_options::DeviceOptions;
use crate::exit_code::ExitCode;
use crate::failure::{OrUsage, Result};
use crate::peaks::DevicePeaks;
use crate::stop::{AtOnce, TimeoutArgs};
use crate::{load, output, outputs, process, profile};

/// The case, and how often its last step runs.
#[derive(Args)]
pub struct BenchArgs {
    /// A folder with a case.json
    #[arg(value_name = "CASE")]
    case: PathBuf,
    /// Number of timed runs of the step
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    runs: u32,
    /// After the timed runs, write where the time goes, by operation and by command: JSON, also a Chrome trace, and for `calibrate --from`
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// After the timed runs, write a page to look at: the plan's memory and queues, with the measured times beside the predicted ones
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Compute once what the model computes from variables and constants alone, and keep it in their place: batch norms become part of
    /// the convolutions before them
    #[arg(long)]
    freeze: bool,
    #[command(flatten)]
    timeout: TimeoutArgs,
}

#[derive(Serialize)]
struct Document {
    case: String,
    median_ms: f64,
    p10_ms: f64,
    p90_ms: f64,
    runs: u32,
    /// The step as its plan predicts it; null where a device has neither a table of costs nor a virtual clock.
    predicted_ms: Option<f64>,
    /// The step on the virtual clock; null where no card's speed is modelled, and for a run in stages.
    modelled_ms: Option<f64>,
    devices: Vec<DevicePeaks>,
    max_rss_bytes: u64,
}

/// The most runs that a profile is made of: it keeps each of them.
const PROFILED: u32 = 1000;

/// Times.
pub fn run(args: BenchArgs, options: &DeviceOptions, json: bool) -> Result<ExitCode> {
    Case::check(&args.case).or_usage()?;
    outputs::check([("--profile", args.profile.as_ref()), ("--html", args.html.as_ref())])?;
    options.resolve(None)?;
    let options = &DeviceOptions { freeze: args.freeze, ..options.clone() };
    let at_once = AtOnce::new(&args.timeout)?;
    at_once.end(time(&args, options, json, &at_once))
}

fn time(args: &BenchArgs, options: &DeviceOptions, json: bool, at_once: &AtOnce) -> Result<ExitCode> {
    let case = Case::read(&args.case)?;
    let mut replay = load::case(&case, options)?.until(at_once.cancellation());
    let (callable, feeds) = at_once.during(|| replay.last())?;
    let feeds: Vec<&HostTensor> = feeds.iter().collect();
    let mut outputs = callable.outputs()?;
    let mut fetches: Vec<&mut HostTensor> = outputs.iter_mut().collect();
    let timing = at_once.during(|| Timing::of(&callable, &feeds, &mut fetches, args.runs))?;
    let is_modelled = replay.devices().specs().iter().any(DeviceSpec::is_modelled);
    let modelled = match callable.is_in_stages() {
        false if is_modelled => at_once.during(|| callable.profile(&feeds, &mut fetches, 1))?.modelled,
        _ => None,
    };
    let document = Document {
        case: case.name().to_string(),
        median_ms: timing.median,
        p10_ms: timing.p10,
        p90_ms: timing.p90,
        runs: args.runs,
        predicted_ms: replay.predicted_seconds()?.map(|seconds| seconds * 1e3),
        modelled_ms: modelled.map(|step| step.as_nanos() as f64 / 1e6),
        devices: replay.peaks().iter().map(DevicePeaks::new).collect(),
        max_rss_bytes: process::max_rss_bytes(),
    };
    let mut said = text(&document);
    if args.profile.is_some() || args.html.is_some() {
        let profile = at_once.during(|| callable.profile(&feeds, &mut fetches, args.runs.min(PROFILED)))?;
        if let Some(path) = &args.html {
            let mut model = replay.picture()?;
            let peaks: Vec<(String, Bytes)> = replay.peaks().into_iter().map(|peak| (peak.name, peak.measured)).collect();
            let step = [timing.median, timing.p10, timing.p90].map(|milliseconds| milliseconds / 1e3);
            page::measured(&mut model, &profile, step, &peaks);
            let picture = Picture { title: case.name().to_string(), models: vec![model], ..Picture::default() };
            output::file(path, &picture.html())?;
        }
        if let Some(path) = &args.profile {
            let profile = profile::Document::new(case.name(), &profile);
            profile.write(path)?;
            said += &format!("\n{}", profile.table());
        }
    }
    if json {
        output::result_json(&document)?;
    } else {
        output::result(said)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn text(document: &Document) -> String {
    let mut text = format!(
        "{}: median {:.4} ms, 10% below {:.4} ms, 10% above {:.4} ms, {} runs",
        document.case, document.median_ms, document.p10_ms, document.p90_ms, document.runs
    );
    if let Some(predicted) = document.predicted_ms {
        // A prediction for cards of modelled speed is no time of this machine.
        match document.modelled_ms {
            Some(_) => text += &format!("\npredicted on the virtual clock: {predicted:.6} ms"),
            None => text += &format!("\npredicted {predicted:.4} ms, measured {:.2} times as much", document.median_ms / predicted),
        }
    }
    if let Some(modelled) = document.modelled_ms {
        text += &format!("\non the virtual clock: {modelled:.6} ms");
    }
    for device in &document.devices {
        text += &format!(
            "\n{}: promised {} bytes, measured {} bytes",
            device.short_name(),
            device.planned_peak_bytes,
            device.measured_peak_bytes
        );
    }
    text + &format!("\nmost memory resident: {}", Bytes(document.max_rss_bytes))
}
