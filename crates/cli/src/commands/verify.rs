//! `plimsoll verify`: replays recorded TensorFlow runs and compares every value.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use crate::case::{Case, DevicePeaks};
use crate::compare::compare;
use crate::device_options::DeviceOptions;
use crate::failure::{Failure, Result};
use crate::output;
use crate::stop::{AtOnce, TimeoutArgs};

/// The cases.
#[derive(Args)]
pub struct VerifyArgs {
    /// Folders with a case.json
    #[arg(value_name = "CASE", required = true)]
    cases: Vec<PathBuf>,
    #[command(flatten)]
    timeout: TimeoutArgs,
}

/// The verdict on a case.
#[derive(Debug, Default, Serialize)]
struct Verdict {
    name: String,
    /// Steps that were run and compared.
    steps: usize,
    /// The largest `abs(got - want) / (atol + rtol * abs(want))`; at most 1 passes.
    worst_error: f64,
    /// The sum over devices of the measured peaks.
    peak_bytes: u64,
    /// `OK` or `FAIL`.
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    minimum_limit_bytes: Option<u64>,
    devices: Vec<DevicePeaks>,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Verdict { name, steps, worst_error, peak_bytes, status, .. } = self;
        write!(f, "{name} steps={steps} worst_error={worst_error:.6e} peak={peak_bytes} {status}")?;
        self.reason.as_ref().map_or(Ok(()), |reason| write!(f, " {}", reason.replace('\n', " ")))
    }
}

/// Replays. Exit status 1 where a case fails.
pub fn run(args: VerifyArgs, options: &DeviceOptions, json: bool) -> Result<ExitCode> {
    args.cases.iter().try_for_each(|folder| Case::check(folder))?;
    crate::load::check(options)?;
    let at_once = AtOnce::new(&args.timeout)?;
    at_once.end(verify_all(&args, options, json, &at_once))
}

fn verify_all(args: &VerifyArgs, options: &DeviceOptions, json: bool, at_once: &AtOnce) -> Result<ExitCode> {
    let mut verdicts = Vec::with_capacity(args.cases.len());
    for folder in &args.cases {
        let verdict = verify(folder, options, at_once);
        at_once.check()?;
        if !json {
            output::result(&verdict)?;
        }
        verdicts.push(verdict);
    }
    if json {
        output::result_json(&verdicts)?;
    } else if verdicts.iter().any(|verdict| verdict.steps > 0) {
        output::note("worst_error is a share of the tolerance: at most 1 passes");
    }
    Ok(ExitCode::from(u8::from(verdicts.iter().any(|verdict| verdict.reason.is_some()))))
}

fn verify(folder: &Path, options: &DeviceOptions, at_once: &AtOnce) -> Verdict {
    let mut verdict = Verdict { name: Case::folder_name(folder), ..Verdict::default() };
    verdict.reason = replay(folder, options, &mut verdict, at_once).err();
    verdict.status = if verdict.reason.is_some() { "FAIL" } else { "OK" };
    verdict
}

/// Fills the verdict in as far as the replay comes.
///
/// # Errors
/// Why the case fails.
fn replay(folder: &Path, options: &DeviceOptions, verdict: &mut Verdict, at_once: &AtOnce) -> std::result::Result<(), String> {
    let text = |error: plimsoll::Error| error.to_string();
    let case = Case::read(folder).map_err(text)?;
    verdict.name = case.name().to_string();
    let replay = case.open(options).map_err(|failure: Failure| failure.error().to_string())?;
    let mut replay = replay.until(at_once.cancellation());
    verdict.minimum_limit_bytes = Some(replay.minimum_limit());
    let result = at_once.during(|| {
        replay.init().map_err(text)?;
        let mut first_miss = None;
        for step in 0..case.steps() {
            let at = |error: plimsoll::Error| format!("step {step}: {error}");
            if replay.fail(step).map_err(at)? {
                verdict.steps += 1;
                continue;
            }
            let values = replay.step(step).map_err(at)?;
            let (rtol, atol) = case.tolerance();
            for ((name, file), got) in case.fetches(step).zip(&values) {
                let want = case.array(file).map_err(text)?;
                let distance = compare(got, &want, rtol, atol).map_err(|reason| format!("step {step}: {name} {reason}"))?;
                verdict.worst_error = verdict.worst_error.max(distance.error);
                if distance.error > 1.0 && first_miss.is_none() {
                    first_miss =
                        Some(format!("step {step}: {name}, element {}: {} instead of {}", distance.element, distance.got, distance.want));
                }
            }
            verdict.steps += 1;
        }
        first_miss.map_or(Ok(()), Err)
    });
    verdict.devices = DevicePeaks::of(replay.devices(), &replay.planned());
    verdict.peak_bytes = verdict.devices.iter().map(|device| device.measured_peak_bytes).sum();
    result?;
    let broken = verdict.devices.iter().find(|device| device.measured_peak_bytes > device.planned_peak_bytes);
    broken.map_or(Ok(()), |device| {
        let (measured, planned) = (device.measured_peak_bytes, device.planned_peak_bytes);
        Err(format!("{} held {measured} bytes, and the plan promised {planned}", device.short_name()))
    })
}
