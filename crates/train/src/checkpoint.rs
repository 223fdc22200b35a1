//! Checkpoints of trainings in TensorFlow's format: see [`plimsoll::checkpoint`].
//!
//! A folder holds `model.ckpt-STEP.index` and `.data-00000-of-00001`, the file `checkpoint` that names the latest, and
//! `graph.pbtxt`, the graph. How far the data has come is in variables of the graph.

use std::path::{Path, PathBuf};

use plimsoll::{Code, Error, HostTensor, Result, Session};

use crate::model::{DATA_POSITION, DATA_SEED, GLOBAL_STEP, TrainingGraph};

/// Where a training stands, its variables aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Steps done.
    pub step: u64,
    /// Examples taken from the data.
    pub position: u64,
    /// The seed of their order.
    pub seed: i64,
}

/// Writes a checkpoint of all variables and makes it the folder's latest; its prefix.
///
/// # Errors
/// What the file system says; FAILED_PRECONDITION where variables have no values.
pub fn save(folder: &Path, session: &Session, graph: &TrainingGraph, progress: &Progress) -> Result<PathBuf> {
    session.write_variable(DATA_POSITION, &HostTensor::scalar(progress.position as i64))?;
    session.write_variable(DATA_SEED, &HostTensor::scalar(progress.seed))?;
    let prefix = folder.join(format!("model.ckpt-{}", progress.step));
    session.save(&prefix)?;
    let path = folder.join("graph.pbtxt");
    let written = std::fs::write(&path, plimsoll::formats::print_graph_def(&graph.graph.to_def()));
    written.map_err(|error| Error::new(Code::Unknown, format!("writing {} failed: {error}", path.display())))?;
    Ok(prefix)
}

/// Gives all variables the values of a checkpoint: the latest of a folder, or the one of that prefix. They have storage
/// already.
///
/// # Errors
/// NOT_FOUND where there is no checkpoint, or it lacks a variable; INVALID_ARGUMENT where a variable is of another type or
/// shape there; DATA_LOSS where it is damaged.
pub fn restore(path: &Path, session: &Session) -> Result<Progress> {
    let prefix = plimsoll::checkpoint::find(path)?;
    let restored = plimsoll::checkpoint::restore_prepared(session, &prefix)?;
    // The states of random generators are of no use after the initializer.
    let is_variable = |name: &&String| session.variables().iter().any(|variable| variable.name == **name && !variable.is_state);
    if let Some(name) = restored.missing.iter().find(is_variable) {
        let error = Error::not_found(format!("Key {name} not found in checkpoint {}", prefix.display()));
        return Err(error.with_remedy("train with the network and the optimizer that the checkpoint was written with"));
    }
    let number = |name: &str| Ok::<i64, Error>(session.read_variable(name)?.as_slice::<i64>()?[0]);
    let count = |name: &str| {
        let value = number(name)?;
        u64::try_from(value).map_err(|_| Error::data_loss(format!("{name} is {value} in {}", prefix.display())))
    };
    Ok(Progress { step: count(GLOBAL_STEP)?, position: count(DATA_POSITION)?, seed: number(DATA_SEED)? })
}
