//! `plimsoll devices`: the machine's cards, their logical devices, and their holders.

mod document;
mod page;
mod screen;
mod table;
mod watch;

use std::path::PathBuf;

use clap::Args;
use plimsoll::Devices;
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
    /// Write what plans need to know of this machine, its processor and its cards, whichever are seen: for `plan --devices FILE` and
    /// `place --devices FILE` on another machine
    #[arg(long, value_name = "FILE", conflicts_with = "watch")]
    describe: Option<PathBuf>,
}

/// Lists.
pub fn run(args: DevicesArgs, options: &DeviceOptions, json: bool) -> Result<ExitCode> {
    let resolved = options.resolve(None)?;
    let observer = Observer::open(&resolved, &machine::environment()).or_usage()?;
    if let Some(path) = &args.describe {
        output::file(path, &Devices::describe(&resolved)?.to_json()?)?;
    }
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
