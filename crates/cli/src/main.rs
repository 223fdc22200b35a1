//! The command line: `plimsoll COMMAND`. One file for each command in `commands`.
//!
//! Results go to standard output, everything else to standard error. Exit status: 0 done, 1 failed, 2 wrong use.
#![forbid(unsafe_code)]

mod case;
mod commands;
mod compare;
mod device_options;
mod failure;
mod load;
mod models;
mod names;
mod output;
mod process;
mod profile;
mod progress;
mod show;
mod stop;

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use device_options::DeviceOptions;
use failure::Result;

/// Runs TensorFlow graphs inside the memory you give them, and says before the first step whether they fit.
#[derive(Parser)]
#[command(name = "plimsoll", version, arg_required_else_help = true, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The machine's devices, their limits and what is in use
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
    /// Runs any program under a lease (not yet)
    Run(commands::later::LaterArgs),
    /// Runs a grid of programs over the devices (not yet)
    Sweep(commands::later::LaterArgs),
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

impl Command {
    fn run(self) -> Result<ExitCode> {
        match self {
            Command::Devices(on) => commands::devices::run(on.args, &on.devices, on.json),
            Command::Train(on) => commands::train::run(on.args, &on.devices, on.json),
            Command::Plan(on) => commands::plan::run(on.args, &on.devices, on.json),
            Command::Place(on) => commands::place::run(on.args, &on.devices, on.json),
            Command::Eval(on) => commands::eval::run(on.args, &on.devices, on.json),
            Command::Verify(on) => commands::verify::run(on.args, &on.devices, on.json),
            Command::Bench(on) => commands::bench::run(on.args, &on.devices, on.json),
            Command::Run(_) => Err(failure::not_yet("plimsoll run")),
            Command::Sweep(_) => Err(failure::not_yet("plimsoll sweep")),
        }
    }
}

fn main() -> ExitCode {
    Cli::parse().command.run().unwrap_or_else(|failure| failure.report())
}
