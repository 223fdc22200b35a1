//! The commands of a run that read and write files: the run's `device::Outside`, on the [`Checkpoints`] of the session.
//!
//! Each tensor goes between a file and a variable, on whatever device, through the command's scratch. That is at most 256 KiB, and is
//! part of the plan's peak. Cards refuse such commands.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll_base::{DataType, Error, Result};
use plimsoll_device::{Fault, Outside};
use plimsoll_graph::Shape;
use plimsoll_memory::Block;
use plimsoll_plan::{PlanCall, PlanCheck, PlanRestore, PlanSave, VariableKind};

use crate::checkpoints::{CheckpointReader, Checkpoints};

/// A variable of a plan, to read and write it wherever it is.
pub(crate) struct Reached {
    pub block: Arc<Block>,
    pub offset: u64,
    pub bytes: u64,
    pub data_type: DataType,
    pub shape: Shape,
    pub kind: VariableKind,
}

/// The common state of the runs of a plan.
pub(crate) struct FileCalls {
    pub calls: Vec<PlanCall>,
    pub variables: Vec<Reached>,
    pub checkpoints: Arc<dyn Checkpoints>,
}

/// The files of one run.
pub(crate) struct Files {
    calls: Arc<FileCalls>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Checkpoints that have been opened and not been written since.
    readers: HashMap<String, Arc<dyn CheckpointReader>>,
    /// Why a call failed.
    error: Option<Error>,
}

impl std::fmt::Debug for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Files").field("calls", &self.calls.calls.len()).finish()
    }
}

impl Files {
    pub fn new(calls: &Arc<FileCalls>) -> Files {
        Files { calls: calls.clone(), state: Mutex::default() }
    }

    /// Forgets the run before, and says why a call of it failed.
    pub fn forget(&self) -> Option<Error> {
        std::mem::take(&mut *self.state()).error
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reader(&self, prefix: &str) -> Result<Arc<dyn CheckpointReader>> {
        if let Some(reader) = self.state().readers.get(prefix) {
            return Ok(reader.clone());
        }
        let reader: Arc<dyn CheckpointReader> = self.calls.checkpoints.open(prefix)?.into();
        self.state().readers.insert(prefix.to_string(), reader.clone());
        Ok(reader)
    }

    fn call(&self, call: u32, inputs: &[&[u8]], scratch: &mut [u8]) -> Result<()> {
        match self.calls.calls.get(call as usize) {
            Some(PlanCall::Check(check)) => self.check(check, scratch),
            Some(PlanCall::Restore(restore)) => self.restore(restore, scratch),
            Some(PlanCall::Save(save)) => self.save(save, inputs, scratch),
            None => Err(Error::internal(format!("the plan has no call {call}"))),
        }
    }

    fn check(&self, check: &PlanCheck, scratch: &mut [u8]) -> Result<()> {
        let reader = self.reader(&check.prefix)?;
        for (name, data_type) in &check.tensors {
            let at = |error: Error| error.context(format!("{name} of {}", check.prefix));
            let (stored, _) = reader.entry(name).map_err(at)?;
            if stored != *data_type {
                let message = format!("tensor_name = {name}; expected dtype {data_type} does not equal original dtype {stored}");
                return Err(at(Error::invalid_argument(message)));
            }
            // Strings are no variable's: nothing reads them.
            if data_type.size().is_some() {
                reader.stream(name, scratch, &mut |_, _| Ok(())).map_err(at)?;
            }
        }
        Ok(())
    }

    /// The check has seen that the bytes are whole; nothing is written where the shape differs.
    fn restore(&self, restore: &PlanRestore, scratch: &mut [u8]) -> Result<()> {
        let PlanRestore { prefix, name, .. } = restore;
        let at = |error: Error| error.context(format!("{name} of {prefix}"));
        let variable = self.variable(restore.variable)?;
        let reader = self.reader(prefix)?;
        let (data_type, shape) = reader.entry(name).map_err(at)?;
        if shape != variable.shape || data_type != variable.data_type {
            let message = match variable.kind {
                VariableKind::Reference => {
                    format!("Assign requires shapes of both tensors to match. lhs shape= {} rhs shape= {shape}", variable.shape)
                }
                _ => format!("Trying to assign to variable with tensor with wrong shape. Expected {} got {shape}", variable.shape),
            };
            return Err(at(Error::invalid_argument(message)));
        }
        let mut write = |place: u64, bytes: &[u8]| match place.checked_add(bytes.len() as u64) {
            Some(end) if end <= variable.bytes => variable.block.write(variable.offset + place, bytes),
            _ => Err(Error::internal("a tensor is longer than its variable")),
        };
        reader.stream(name, scratch, &mut write).map_err(at)
    }

    fn save(&self, save: &PlanSave, inputs: &[&[u8]], scratch: &mut [u8]) -> Result<()> {
        // A file that is read again is opened again.
        self.state().readers.remove(&save.prefix);
        let mut writer = self.calls.checkpoints.create(&save.prefix)?;
        let mut inputs = inputs.iter();
        for tensor in &save.tensors {
            let variable = tensor.variable.map(|variable| self.variable(variable)).transpose()?;
            let given = if variable.is_none() { inputs.next().copied() } else { Some(&[][..]) };
            let given = given.ok_or_else(|| Error::internal(format!("'{}' is not there to be saved", tensor.name)))?;
            writer.add(&tensor.name, tensor.data_type, &tensor.shape, &mut |put| match variable {
                None => put(given),
                Some(variable) => read(variable, scratch, put),
            })?;
        }
        writer.finish()
    }

    fn variable(&self, index: u32) -> Result<&Reached> {
        self.calls.variables.get(index as usize).ok_or_else(|| Error::internal(format!("the plan has no variable {index}")))
    }
}

/// Hands over a variable through `scratch`.
fn read(variable: &Reached, scratch: &mut [u8], put: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let mut at = 0;
    while at < variable.bytes {
        let piece = (variable.bytes - at).min(scratch.len() as u64);
        if piece == 0 {
            return Err(Error::internal("a variable is saved without a buffer"));
        }
        let bytes = &mut scratch[..piece as usize];
        variable.block.read(variable.offset + at, bytes)?;
        put(bytes)?;
        at += piece;
    }
    Ok(())
}

impl Outside for Files {
    fn perform(&self, call: u32, inputs: &[&[u8]], _: &mut [&mut [u8]], scratch: &mut [u8]) -> std::result::Result<(), Fault> {
        self.call(call, inputs, scratch).map_err(|error| {
            let code = error.code();
            self.state().error.get_or_insert(error);
            Fault { code, message: "a checkpoint could not be read or written", numbers: [0, 0] }
        })
    }
}
