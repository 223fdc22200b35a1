//! `plimsoll run`: any program under a lease.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use plimsoll::machine::environment;
use plimsoll::share::enforce::{self, Rung};
use plimsoll::share::run::{Ended, Idle, Run, end_by};
use plimsoll::share::{Amount, Cards, Request, Wait, Which};
use plimsoll::{Error, Options};

use crate::device_options::duration;
use crate::exit_code::ExitCode;
use crate::failure::{Failure, OrUsage, Result, wrong_use};
use crate::output;

/// The exit status where there was no lease, as other programs that start programs have it.
const NO_LEASE: u8 = 125;
/// The exit status where time was over, or the cards were not used for too long.
const TIMED_OUT: u8 = 124;

/// The lease of a program, and the program.
#[derive(Args)]
#[command(
    after_help = "Exit status: the program's; 124 after --timeout and --idle-timeout, 125 where there was no lease, 126 or 127 where the program could \
                        not be started.\nExamples:\n  plimsoll run --gpus 1 --memory 4GiB -- python train.py\n  plimsoll run --gpus 3,2 --wait \
                        -- python train.py\n  plimsoll run --gpus 2 --memory 0.5 --wait=10min --timeout 8h --name nightly -- ./train.sh"
)]
pub struct RunArgs {
    #[command(flatten)]
    lease: LeaseArgs,
    /// Wait for memory that others hold, at most this long: 500ms, 30s, 5min
    #[arg(long, value_name = "DURATION", num_args = 0..=1, require_equals = true, default_missing_value = "forever")]
    wait: Option<String>,
    /// End the program after this time
    #[arg(long, value_name = "DURATION")]
    timeout: Option<String>,
    /// Among waiting programs, the higher priority goes first
    #[arg(long, value_name = "P", default_value_t = 0, allow_negative_numbers = true)]
    priority: i32,
    /// The name in listings
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The name in listings, instead of the command
    #[arg(long, value_name = "TEXT", hide = true)]
    program: Option<String>,
    /// The rung that holds the program to its lease; refused where that is not possible [default: the best there is]
    #[arg(long, value_enum, value_name = "RUNG")]
    enforce: Option<Enforce>,
    /// End the program when it has not used its cards for this long: 30min, 8h
    #[arg(long, value_name = "DURATION")]
    idle_timeout: Option<String>,
    /// Warn when the program has not used its cards for this long
    #[arg(long, value_name = "DURATION", num_args = 0..=1, require_equals = true, default_missing_value = "30min")]
    idle_notify: Option<String>,
    /// Write what the program took, and how it ended, as JSON; as a page to look at where the name ends in .html. The file is replaced as
    /// a whole; a link is followed
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// End what the program leaves behind when it ends
    #[arg(long)]
    end_tree: bool,
    /// Print warnings and errors only
    #[arg(short, long)]
    quiet: bool,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

/// A part of the machine's cards.
#[derive(Args, Clone)]
pub struct LeaseArgs {
    /// How many cards, or which: 2, or 3,2, or 3, for that one alone [default: 1, if there is any]
    #[arg(long, value_name = "N|LIST")]
    gpus: Option<String>,
    /// How much of each card: 2GiB, 0.4 [default: all]
    #[arg(long, value_name = "SIZE|FRACTION")]
    memory: Option<String>,
    /// Simulated GPUs, as 2x4GiB
    #[arg(long, value_name = "SPEC")]
    sim_gpus: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Enforce {
    /// Limits of the kernel's driver for all its processes (driver r615, root)
    Kernel,
    /// Limits of MPS for each of its processes
    Mps,
    /// A library between it and the driver, for all its processes
    Shim,
    /// The settings of PyTorch, TensorFlow and JAX
    Framework,
    /// None of them: use beyond the lease is reported, where it is seen
    None,
    /// The best there is, and the program is ended where it is seen to use more
    Kill,
    /// As without this option
    #[value(hide = true)]
    Warn,
}

impl Enforce {
    fn rung(self) -> enforce::Enforce {
        match self {
            Enforce::Kernel => enforce::Enforce::Only(Rung::Kernel),
            Enforce::Mps => enforce::Enforce::Only(Rung::Mps),
            Enforce::Shim => enforce::Enforce::Only(Rung::Shim),
            Enforce::Framework => enforce::Enforce::Only(Rung::Framework),
            Enforce::None => enforce::Enforce::Nothing,
            Enforce::Kill | Enforce::Warn => enforce::Enforce::Best,
        }
    }
}

impl LeaseArgs {
    /// Whether cards are simulated here.
    pub fn simulates(&self) -> bool {
        self.sim_gpus.is_some()
    }

    /// The cards of the machine.
    pub fn cards(&self) -> Result<Cards> {
        let mut options = Options::new();
        options.sim_gpus.clone_from(&self.sim_gpus);
        Ok(Cards::find(&options, &environment())?)
    }

    /// The request for a lease. If no cards are named it is one, or none where no card is seen and no memory is asked for.
    ///
    /// # Errors
    /// Wrong use.
    pub fn request(&self, cards_seen: usize) -> Result<Request> {
        let default = if self.memory.is_some() { 1 } else { cards_seen.min(1) };
        let cards = self.gpus.as_deref().map(|text| text.parse().map_err(|error: Error| error.context("--gpus"))).transpose().or_usage()?;
        let memory = self.memory.as_deref().map(|text| text.parse().map_err(|error: Error| error.context("--memory"))).transpose();
        Ok(Request {
            cards: cards.unwrap_or(Which::Count(default)),
            memory: memory.or_usage()?.unwrap_or(Amount::All),
            ..Request::default()
        })
    }
}

/// Runs.
pub fn run(args: RunArgs) -> Result<ExitCode> {
    // Wrong use comes first.
    args.lease.request(1)?;
    let cards = match args.lease.cards() {
        Ok(cards) => cards,
        Err(failure) => {
            failure.report();
            return Ok(ExitCode::from(NO_LEASE));
        }
    };
    let mut request = args.lease.request(cards.visible().len())?;
    request.name = args.name.unwrap_or_default();
    request.program = args.program.unwrap_or_default();
    let time = |option: &str, text: &Option<String>| text.as_deref().map(|text| duration(option, text)).transpose();
    request.wait =
        time("--wait", &args.wait)?.map(|wait| Wait { priority: args.priority, timeout: Some(wait).filter(|wait| *wait < Duration::MAX) });
    let timeout = time("--timeout", &args.timeout)?;
    let idle = Idle { end_after: time("--idle-timeout", &args.idle_timeout)?, warn_after: time("--idle-notify", &args.idle_notify)? };
    if [idle.end_after, idle.warn_after].contains(&Some(Duration::ZERO)) {
        return wrong_use("--idle-timeout and --idle-notify: 0 s is no time: write 30min");
    }
    let run = Run {
        timeout,
        enforce: args.enforce.map_or(enforce::Enforce::Best, Enforce::rung),
        end_beyond: args.enforce == Some(Enforce::Kill),
        idle,
        end_tree: args.end_tree,
        report: args.report,
        ..Run::new(args.command, request)
    };
    let mut note = |line: &str| {
        if !args.quiet || line.starts_with("warning") {
            output::note(format_args!("plimsoll run: {line}"));
        }
    };
    Ok(ExitCode::from(match plimsoll::share::run::run(&cards, &run, &mut note) {
        Ok(Ended::Exited(code)) => code,
        Ok(Ended::Signalled(signal) | Ended::Beyond(signal)) => end_by(signal),
        Ok(Ended::TimedOut | Ended::Idle) => TIMED_OUT,
        Ok(Ended::NotStarted(code)) => code,
        Err(error) => {
            Failure::from(error).report();
            NO_LEASE
        }
    }))
}
