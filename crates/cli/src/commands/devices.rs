//! `plimsoll devices`: the logical devices and their limits.

use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use crate::device_options::DeviceOptions;
use crate::failure::{Result, not_yet};
use crate::{load, output};

/// How devices are listed.
#[derive(Args)]
pub struct DevicesArgs {
    /// What was found and what was not, and why
    #[arg(short, long)]
    verbose: bool,
    /// Again and again (not yet)
    #[arg(long)]
    watch: bool,
}

#[derive(Serialize)]
struct Document {
    devices: Vec<Entry>,
    notes: Vec<String>,
}

#[derive(Serialize)]
struct Entry {
    name: String,
    description: String,
    limit_bytes: Option<u64>,
    in_use_bytes: u64,
}

/// Lists.
pub fn run(args: DevicesArgs, options: &DeviceOptions, json: bool) -> Result<ExitCode> {
    if args.watch {
        return Err(not_yet("--watch"));
    }
    let report = load::devices(options)?.report();
    let notes = notes();
    if json {
        let entry = |device: plimsoll::DeviceReport| Entry {
            name: device.name,
            description: device.description,
            limit_bytes: device.limit.map(|limit| limit.0),
            in_use_bytes: device.in_use.0,
        };
        output::result_json(&Document { devices: report.into_iter().map(entry).collect(), notes })?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut lines: Vec<String> = report
        .iter()
        .map(|device| {
            let limit = device.limit.map_or("no limit".to_string(), |limit| format!("limit {limit}"));
            format!("{}  {}  {limit}, {} in use", device.name, device.description, device.in_use)
        })
        .collect();
    if args.verbose {
        lines.extend(notes.into_iter().map(|note| format!("note: {note}")));
    }
    output::result(lines.join("\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// What was not looked for, and why.
fn notes() -> Vec<String> {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    vec![
        format!("{cores} cores may be used by this process (--intra-op)"),
        "GPUs were not looked for: there is no support for them yet".to_string(),
        "there are no simulated GPUs yet".to_string(),
        "what other programs hold is not seen yet".to_string(),
    ]
}
