//! The command line: `plimsoll COMMAND`. One file for each command in `commands`.
//!
//! Results and the log of placements go to standard output (of the two, only the document with `--json`), everything else to
//! standard error. Exit status: 0 done, 1 failed, 2 wrong use; `run` has its program's.
#![forbid(unsafe_code)]

mod commands;
mod device_options;
mod exit_code;
mod failure;
mod load;
mod models;
mod names;
mod output;
mod outputs;
mod peaks;
mod process;
mod profile;
mod progress;
mod requests;
mod show;
mod stop;
mod trace;

use clap::error::{ContextKind, ErrorKind};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use plimsoll::share::supervise::{self, Supervisors};

use device_options::DeviceOptions;
use exit_code::ExitCode;
use failure::Result;

/// Runs TensorFlow graphs inside the memory you give them, and says before the first step whether they fit.
#[derive(Parser)]
#[command(name = "plimsoll", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The machine's devices, their limits and their use
    Devices(On<commands::devices::DevicesArgs>),
    /// Trains a network under hard memory limits
    Train(On<commands::train::TrainArgs>),
    /// Says whether a graph fits, and what it takes of each device
    Plan(On<commands::plan::PlanArgs>),
    /// Says where every node goes, and why
    Place(On<commands::place::PlaceArgs>),
    /// Runs graphs once
    Eval(On<commands::eval::EvalArgs>),
    /// Replays recorded TensorFlow runs and compares
    Verify(On<commands::verify::VerifyArgs>),
    /// Times the last step of a recorded run
    Bench(On<commands::bench::BenchArgs>),
    /// Lists the operations that can be run, or those of a model that cannot
    Ops(commands::ops::OpsArgs),
    /// Measures this machine's kernels: a table of costs for --costs FILE
    Calibrate(commands::calibrate::CalibrateArgs),
    /// Times the ways to compute a graph's products and convolutions on the cards: a table for --tuned FILE
    Tune(On<commands::tune::TuneArgs>),
    /// Runs any program under a lease of the machine's cards
    Run(commands::run::RunArgs),
    /// Says what of this machine works for sharing cards, and what would help
    Doctor(commands::doctor::DoctorArgs),
    /// Runs a program with many values, as many at once as there are leases
    Sweep(commands::sweep::SweepArgs),
    /// Makes one ledger for all users of a group on this machine
    Setup(commands::setup::SetupArgs),
}

/// A command that opens devices.
#[derive(Args)]
struct On<A: Args> {
    #[command(flatten)]
    args: A,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    devices: DeviceOptions,
}

impl<A: Args> On<A> {
    fn run(mut self, command: impl FnOnce(A, &DeviceOptions, bool) -> Result<ExitCode>) -> Result<ExitCode> {
        self.devices.json = self.json;
        command(self.args, &self.devices, self.json)
    }
}

impl Command {
    fn run(self, supervisors: Supervisors) -> Result<ExitCode> {
        match self {
            Command::Devices(on) => on.run(commands::devices::run),
            Command::Train(on) => on.run(|args, devices, json| commands::train::run(args, devices, json, supervisors)),
            Command::Plan(on) => on.run(commands::plan::run),
            Command::Place(on) => on.run(commands::place::run),
            Command::Eval(on) => on.run(commands::eval::run),
            Command::Verify(on) => on.run(commands::verify::run),
            Command::Bench(on) => on.run(commands::bench::run),
            Command::Ops(args) => commands::ops::run(args),
            Command::Calibrate(args) => commands::calibrate::run(args),
            Command::Tune(on) => on.run(commands::tune::run),
            Command::Run(args) => commands::run::run(args),
            Command::Doctor(args) => commands::doctor::run(args),
            Command::Sweep(args) => commands::sweep::run(args, supervisors),
            Command::Setup(args) => commands::setup::run(args),
        }
    }
}

/// The command line. A number below 0 is the value of the option before it, never another option. A word that is not known is not
/// called a value, since `--` would end the options.
fn parse() -> clap::error::Result<Cli> {
    let takes_numbers = |arg: clap::Arg| {
        let takes_value = arg.get_action().takes_values() && !arg.is_positional();
        if takes_value && !arg.is_allow_hyphen_values_set() { arg.allow_negative_numbers(true) } else { arg }
    };
    let command = Cli::command().mut_subcommands(|command| command.mut_args(takes_numbers));
    let parsed = command.try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches));
    parsed.map_err(|mut error| {
        if error.kind() == ErrorKind::UnknownArgument {
            error.remove(ContextKind::Suggested);
        }
        error
    })
}

/// Runs the command line of this process; its exit status. Call it first in `main`.
pub fn main() -> u8 {
    // First: a supervisor of a program that `sweep` starts comes this far and no further.
    let supervisors = supervise::begin();
    let ended = match parse() {
        Ok(cli) => cli.command.run(supervisors),
        Err(said) => print(&said),
    };
    ended.unwrap_or_else(|failure| failure.report()).into()
}

/// Prints what there is to say instead of a command: a help text as a result, a mistake on standard error.
fn print(said: &clap::Error) -> Result<ExitCode> {
    let written = said.print();
    if !said.use_stderr() {
        output::written(written)?;
    }
    Ok(ExitCode::from(u8::try_from(said.exit_code()).unwrap_or(2)))
}
