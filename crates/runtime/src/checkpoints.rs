//! Where runs read and write checkpoints: whoever makes a session says.

use plimsoll_base::{Error, Result};
use plimsoll_graph::HostTensor;
use plimsoll_plan::{PlanRestore, PlanSave};

/// What RestoreV2 reads and SaveV2 writes.
pub trait Checkpoints: Send + Sync {
    /// The tensors, of the types and shapes that they say.
    ///
    /// # Errors
    /// NOT_FOUND where there is no such checkpoint or tensor; INVALID_ARGUMENT for another type or shape; DATA_LOSS.
    fn read(&self, restores: &[PlanRestore]) -> Result<Vec<HostTensor>>;

    /// Writes a checkpoint of these tensors, as many as `save` names.
    ///
    /// # Errors
    /// What the file system says.
    fn write(&self, save: &PlanSave, tensors: &[HostTensor]) -> Result<()>;
}

/// No files.
#[derive(Debug)]
pub(crate) struct None;

impl Checkpoints for None {
    fn read(&self, _: &[PlanRestore]) -> Result<Vec<HostTensor>> {
        Err(missing())
    }

    fn write(&self, _: &PlanSave, _: &[HostTensor]) -> Result<()> {
        Err(missing())
    }
}

fn missing() -> Error {
    Error::failed_precondition("the session was made without access to files")
}
