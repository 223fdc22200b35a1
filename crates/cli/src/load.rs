//! Devices and models for a command.

use std::path::Path;

use plimsoll::machine::MachineDescription;
use plimsoll::model::{self, SavedGraph, Tags};
use plimsoll::placing::Beside;
use plimsoll::recorded::{Case, Replay};
use plimsoll::{Code, Devices, Error, Options, Placed, Session, Signature};
use plimsoll_train::defaults;

use crate::device_options::DeviceOptions;
use crate::failure::{Failure, OrUsage, Result};
use crate::{names, output};

/// Opens the devices that the command line asks for.
pub fn devices(options: &DeviceOptions) -> Result<Devices> {
    open(&options.resolve(None)?, options)
}

/// Opens the devices to plan for: those of the machine that `--devices` describes, else of this one.
pub fn devices_to_plan_for(options: &DeviceOptions) -> Result<Devices> {
    let machine = Machine::to_plan_for(options)?;
    machine.open(&machine.resolve(options)?, options)
}

/// The machine that something is planned for: this one, or one that a file describes.
pub struct Machine(Option<MachineDescription>);

impl Machine {
    /// This one: what is planned is run.
    pub const HERE: Machine = Machine(None);

    /// The one that `--devices` describes, else this one: nothing is run.
    pub fn to_plan_for(options: &DeviceOptions) -> Result<Machine> {
        options.described().map(Machine)
    }

    /// Whether a file describes it.
    pub fn is_described(&self) -> bool {
        self.0.is_some()
    }

    /// What the command line asks for there. Wrong use of `--devices` where it is this machine.
    pub fn resolve(&self, options: &DeviceOptions) -> Result<Options> {
        if self.is_described() { options.resolve_for_any_machine(None) } else { options.resolve(None) }
    }

    /// The devices that options make of it: see [`open`].
    pub fn open(&self, options: &Options, given: &DeviceOptions) -> Result<Devices> {
        self.open_quietly(options, given).and_then(said)
    }

    /// As [`Machine::open`], and nothing is written.
    pub fn open_quietly(&self, options: &Options, given: &DeviceOptions) -> Result<Devices> {
        match &self.0 {
            Some(machine) => Ok(logged(Devices::described(options, machine).map_err(at_fault)?, given)),
            None => open_quietly(options, given),
        }
    }

    /// How many logical GPUs options make of it.
    pub fn gpus(&self, options: &Options) -> Result<u32> {
        match &self.0 {
            Some(machine) => defaults::gpus_of(options, machine).map_err(at_fault),
            None => defaults::gpus(options).or_usage(),
        }
    }
}

/// A session for a model, with nothing run. A file that is not there or of another kind is wrong use, one that makes no sense a
/// failure.
pub fn session(devices: &Devices, path: &Path, tags: &Tags) -> Result<Session> {
    model::check(path).or_usage()?;
    let model = names::tagged(model::read(path)?, path, tags)?;
    let session = || devices.session(devices.resolve(SavedGraph::of(model, path)?.graph)?);
    Ok(session().map_err(|error| error.context(path.display()))?)
}

/// A recorded case on the devices that it and the options ask for, planned.
pub fn case<'a>(case: &'a Case, options: &DeviceOptions) -> Result<Replay<'a>> {
    let devices = open(&options.resolve(case.config()?.as_deref())?, options)?;
    let mut replay = case.open(devices)?;
    replay.placement_log().iter().for_each(output::note);
    replay.plan()?;
    Ok(replay)
}

/// Places a model for these runs, by the rule that the devices were opened with. The model names its attempts.
pub fn place(devices: &Devices, label: &str, session: &Session, runs: &[Signature]) -> Result<Placed> {
    let mut all = place_all(devices, &[Beside { name: label, session, runs }])?;
    all.pop().ok_or_else(|| Error::internal("no model was placed").into())
}

/// As [`place`], of models side by side.
pub fn place_all(devices: &Devices, models: &[Beside<'_>]) -> Result<Vec<Placed>> {
    let mut all = devices.place_all(models)?;
    for (placed, model) in all.iter_mut().zip(models) {
        placed.log.iter_mut().for_each(|line| *line = format!("{}: {line}", model.name));
    }
    Ok(all)
}

/// The devices that the options make of this machine: wrong use where the options are at fault, a failure where others are. Writes
/// to standard error which GPU is on which card, where there are cards, and which options had no effect. `given` is where `options`
/// come from.
pub fn open(options: &Options, given: &DeviceOptions) -> Result<Devices> {
    open_quietly(options, given).and_then(said)
}

/// Writes what there is to say about devices.
fn said(devices: Devices) -> Result<Devices> {
    devices.start_log().iter().for_each(output::note);
    let notes = devices.division().map_or(&[][..], |division| &division.notes);
    let obstacle = devices.division().and_then(|division| division.obstacle.as_ref());
    notes.iter().chain(obstacle).for_each(|note| output::note(format_args!("note: {note}")));
    Ok(devices)
}

/// As [`open`], and nothing is written.
pub fn open_quietly(options: &Options, given: &DeviceOptions) -> Result<Devices> {
    Ok(logged(Devices::open(options).map_err(at_fault)?, given))
}

/// Wrong use where the options are at fault.
fn at_fault(error: Error) -> Failure {
    match error.code() {
        Code::InvalidArgument | Code::NotFound | Code::Unimplemented | Code::Unknown => Failure::usage(error),
        _ => Failure::from(error),
    }
}

/// The devices, which write the placements of sessions if that is asked for.
fn logged(devices: Devices, given: &DeviceOptions) -> Devices {
    if devices.options().log_placement {
        output::note(devices.device_mapping());
    }
    let is_json = given.json;
    devices.with_placement_log(move |log| {
        log.notes.iter().for_each(output::note);
        let lines = log.lines.join("\n");
        match is_json {
            _ if lines.is_empty() => {}
            true => output::note(lines),
            false => output::print(lines),
        }
    })
}

/// Whether the command line makes sense by itself; the rest of a recorded case's ConfigProto is checked when it is opened.
pub fn check(options: &DeviceOptions) -> Result<()> {
    options.resolve(None)?.simulated_cards(&plimsoll::machine::environment()).or_usage().map(drop)
}
