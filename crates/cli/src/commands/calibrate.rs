//! `plimsoll calibrate`: writes the table of costs that plans may read, from measured kernels of this machine or from profiles.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use plimsoll::costs::{Costs, MeasuredKernels, calibrate};
use plimsoll::model;

use crate::device_options::read_costs;
use crate::exit_code::ExitCode;
use crate::failure::{Failure, OrUsage, Result};
use crate::output;

/// Where the table goes.
#[derive(Args)]
pub struct CalibrateArgs {
    /// Write the table to this file, for `--costs FILE`; to standard output, if it is left out
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The most threads to measure with; 0 is one for every core
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1024))]
    intra_op: u32,
    /// Measure nothing: scale the costs of each class of kernels to those in these files. `--profile FILE` of bench, train and eval writes
    /// them, also on another machine
    #[arg(long, value_name = "PROFILE", num_args = 1.., conflicts_with = "intra_op")]
    from: Vec<PathBuf>,
    /// The table that --from scales; the one of this version, if it is left out
    #[arg(long, value_name = "FILE", requires = "from")]
    costs: Option<PathBuf>,
}

/// Measures, or scales.
pub fn run(args: CalibrateArgs) -> Result<ExitCode> {
    // Where the file cannot be written, nothing is measured.
    args.output.as_deref().map_or(Ok(()), model::check_output)?;
    let costs = match args.from.is_empty() {
        true => Costs::of(vec![calibrate(None, args.intra_op, &|class| output::note(format!("measuring: {class}")))?])?,
        false => scaled(&args.from, args.costs.as_deref())?,
    };
    let json = costs.to_json()?;
    match &args.output {
        None => output::result(String::from_utf8_lossy(&json).trim_end())?,
        Some(path) => {
            model::replace_output(path, |out| out.write_all(&json).map_err(|error| model::file_error(path, &error)))?;
            output::note(format!("costs {} are in {}", costs.fingerprint(), path.display()));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The costs of the kernels in profiles.
fn scaled(profiles: &[PathBuf], costs: Option<&Path>) -> Result<Costs> {
    let costs = costs.map_or_else(|| Ok(Costs::committed()), read_costs)?;
    let mut measured = Vec::new();
    for path in profiles {
        let json = model::read_file(path).or_usage()?;
        measured.extend(MeasuredKernels::from_json(&json).map_err(|error| Failure::usage(error.context(path.display())))?);
    }
    let names: Vec<String> = profiles.iter().map(|path| path.display().to_string()).collect();
    let table = costs.scaled(&measured).and_then(|table| Costs::of(vec![table]));
    table.map_err(|error| Failure::usage(error.context(names.join(", "))))
}
