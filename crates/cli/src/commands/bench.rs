//! `plimsoll bench`: times the last step of a recorded run.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Args;
use plimsoll::{Bytes, DeviceSpec, HostTensor};
use serde::Serialize;

use crate::case::{Case, DevicePeaks};
use crate::device_options::DeviceOptions;
use crate::failure::Result;
use crate::stop::{AtOnce, TimeoutArgs};
use crate::{output, process, profile};

/// The case, and how often its last step runs.
#[derive(Args)]
pub struct BenchArgs {
    /// A folder with a case.json
    #[arg(value_name = "CASE")]
    case: PathBuf,
    /// Number of timed runs of the step
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    runs: u32,
    /// After the timed runs, write where the time goes, by operation and by command: JSON, also a Chrome trace
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
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
    /// The step on the virtual clock; null where no card's speed is modelled.
    modelled_ms: Option<f64>,
    devices: Vec<DevicePeaks>,
    max_rss_bytes: u64,
}

/// Runs that are not timed: caches and pages are cold in the first ones.
const WARM_UP: u32 = 3;

/// The most runs that a profile is made of: it keeps each of them.
const PROFILED: u32 = 1000;

/// Times.
pub fn run(args: BenchArgs, options: &DeviceOptions, json: bool) -> Result<ExitCode> {
    Case::check(&args.case)?;
    options.resolve(None)?;
    let at_once = AtOnce::new(&args.timeout)?;
    at_once.end(time(&args, options, json, &at_once))
}

fn time(args: &BenchArgs, options: &DeviceOptions, json: bool, at_once: &AtOnce) -> Result<ExitCode> {
    let case = Case::read(&args.case)?;
    let mut replay = case.open(options)?.until(at_once.cancellation());
    let (callable, feeds) = at_once.during(|| {
        replay.init()?;
        for step in 0..case.last()? {
            if !replay.fail(step)? {
                replay.step(step)?;
            }
        }
        replay.session().release_unused();
        replay.last()
    })?;
    let feeds: Vec<&HostTensor> = feeds.iter().collect();
    let mut outputs = callable.outputs()?;
    let mut fetches: Vec<&mut HostTensor> = outputs.iter_mut().collect();
    let mut milliseconds = Vec::with_capacity(args.runs as usize);
    at_once.during(|| -> plimsoll::Result<()> {
        for run in 0..WARM_UP + args.runs {
            let start = Instant::now();
            callable.run_into(&feeds, &mut fetches)?;
            if run >= WARM_UP {
                milliseconds.push(start.elapsed().as_secs_f64() * 1e3);
            }
        }
        Ok(())
    })?;
    milliseconds.sort_by(f64::total_cmp);
    let is_modelled = replay.devices().specs().iter().any(DeviceSpec::is_modelled);
    let modelled = if is_modelled { at_once.during(|| callable.profile(&feeds, &mut fetches, 1))?.modelled } else { None };
    let document = Document {
        case: case.name().to_string(),
        median_ms: quantile(&milliseconds, 0.5),
        p10_ms: quantile(&milliseconds, 0.1),
        p90_ms: quantile(&milliseconds, 0.9),
        runs: args.runs,
        modelled_ms: modelled.map(|step| step.as_nanos() as f64 / 1e6),
        devices: DevicePeaks::of(replay.devices(), &replay.planned()),
        max_rss_bytes: process::max_rss_bytes(),
    };
    let mut said = text(&document);
    if let Some(path) = &args.profile {
        let profile = at_once.during(|| callable.profile(&feeds, &mut fetches, args.runs.min(PROFILED)))?;
        let profile = profile::Document::new(case.name(), &profile);
        profile.write(path)?;
        said += &format!("\n{}", profile.table());
    }
    if json {
        output::result_json(&document)?;
    } else {
        output::result(said)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The value at that part of the way through sorted values, of which there are some.
fn quantile(sorted: &[f64], part: f64) -> f64 {
    let position = part * (sorted.len() - 1) as f64;
    let (below, above) = (position.floor() as usize, position.ceil() as usize);
    sorted[below] + (sorted[above] - sorted[below]) * position.fract()
}

fn text(document: &Document) -> String {
    let mut text = format!(
        "{}: median {:.4} ms, 10% below {:.4} ms, 10% above {:.4} ms, {} runs",
        document.case, document.median_ms, document.p10_ms, document.p90_ms, document.runs
    );
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_between_values() {
        assert_eq!(quantile(&[1.0], 0.9), 1.0);
        assert_eq!(quantile(&[1.0, 2.0], 0.5), 1.5);
        assert_eq!(quantile(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0], 0.1), 1.0);
    }
}
