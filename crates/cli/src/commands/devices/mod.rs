//! `plimsoll devices`: the machine's cards, their logical devices, and their holders.

mod document;
mod page;
mod screen;
mod table;
mod watch;

use std::path::PathBuf;

use clap::Args;
use plimsoll::machine::{self, Observer, View};

use crate::device_options::DeviceOptions;
use crate::exit_code::ExitCode;
use crate::failure::{OrUsage, Result};
use crate::output;

/// How devices are listed.
#[derive(Args)]
pub struct DevicesArgs {
    /// Also print what was found and what was not, with reasons
    #[arg(short, long)]
    verbose: bool,
    /// Repeat every second, or every N seconds, until Ctrl-C
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1")]
    watch: Option<f64>,
    /// Write a page to look at: who holds what of which card, and who waits
    #[arg(long, value_name = "FILE", conflicts_with = "watch")]
    html: Option<PathBuf>,
}

/// Lists.
pub fn run(args: DevicesArgs, options: &DeviceOptions, json: bool) -> Result<ExitCode> {
    let observer = Observer::open(&options.resolve(None)?, &machine::environment()).or_usage()?;
    let text = |view: &View| if json { document::of(view) } else { table::of(view, args.verbose) };
    match args.watch {
        None => {
            let view = observer.look();
            if let Some(path) = &args.html {
                output::file(path, &page::of(&view).html())?;
            }
            output::result(text(&view))?;
        }
        Some(seconds) => watch::watch(seconds, !json, || observer.look(), text)?,
    }
    Ok(ExitCode::SUCCESS)
}
