//! `plimsoll verify`: replays recorded TensorFlow runs and compares every value.

use std::path::{Path, PathBuf};

use clap::Args;
use plimsoll::Bytes;
use plimsoll::peaks::Peak;
use plimsoll::recorded::{Case, Verified};
use serde::Serialize;

use crate::device_options::DeviceOptions;
use crate::exit_code::ExitCode;
use crate::failure::{OrUsage, Result};
use crate::peaks::DevicePeaks;
use crate::stop::{AtOnce, TimeoutArgs};
use crate::{load, output};

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
    args.cases.iter().try_for_each(|folder| Case::check(folder)).or_usage()?;
    load::check(options)?;
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
    let case = Case::read(folder).map_err(|error| error.to_string())?;
    verdict.name = case.name().to_string();
    let replay = load::case(&case, options).map_err(|failure| failure.error().to_string())?;
    let mut replay = replay.until(at_once.cancellation());
    if options.json {
        verdict.minimum_limit_bytes = Some(replay.minimum_limit().map_err(|error| error.to_string())?.0);
    }
    let mut verified = Verified::default();
    let result = at_once.during(|| replay.verify(&mut verified));
    (verdict.steps, verdict.worst_error) = (verified.steps, verified.worst_error);
    let peaks = replay.peaks();
    verdict.peak_bytes = peaks.iter().map(|peak| peak.measured).sum::<Bytes>().0;
    verdict.devices = peaks.iter().map(DevicePeaks::new).collect();
    result?;
    peaks.iter().try_for_each(Peak::check).map_err(|error| error.message().to_string())
}
