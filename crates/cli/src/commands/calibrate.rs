//! `plimsoll calibrate`: measures the kernels of this machine and writes the table of costs that plans may read.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use plimsoll::costs::{Costs, calibrate};

use crate::exit_code::ExitCode;
use crate::failure::Result;
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
}

/// Measures.
pub fn run(args: CalibrateArgs) -> Result<ExitCode> {
    // Where the file cannot be written, nothing is measured.
    args.output.as_deref().map_or(Ok(()), plimsoll::model::check_output)?;
    let table = calibrate(None, args.intra_op, &|class| output::note(format!("measuring: {class}")))?;
    let costs = Costs::of(vec![table])?;
    let json = costs.to_json()?;
    match &args.output {
        None => output::result(String::from_utf8_lossy(&json).trim_end())?,
        Some(path) => {
            plimsoll::model::replace_output(path, |out| out.write_all(&json).map_err(|error| plimsoll::model::file_error(path, &error)))?;
            output::note(format!("costs {} are in {}", costs.fingerprint(), path.display()));
        }
    }
    Ok(ExitCode::SUCCESS)
}
