//! Checkpoints of trainings in TensorFlow's format: see [`plimsoll::checkpoint`].
//!
//! A folder holds `model.ckpt-STEP.index` and `.data-00000-of-00001`, the file `checkpoint` that names the latest, and
//! `graph.pbtxt`, the graph. How far the training has come stands beside the variables, under keys that TensorFlow does not ask
//! for.

use std::path::{Path, PathBuf};

use plimsoll::formats::bundle::BundleReader;
use plimsoll::{Code, Error, HostTensor, Result, Session};

/// The key of the number of steps.
pub const STEP: &str = "_PLIMSOLL_TRAINING/step";
/// The key of the number of examples that were taken.
pub const POSITION: &str = "_PLIMSOLL_TRAINING/position";
/// The key of the seed of the examples' order.
pub const SEED: &str = "_PLIMSOLL_TRAINING/seed";

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

/// Writes a checkpoint of all variables but `copies` (by name) and makes it the folder's latest; its prefix.
///
/// # Errors
/// What the file system says; FAILED_PRECONDITION where variables have no values.
pub fn save(folder: &Path, session: &Session, copies: &[String], progress: &Progress) -> Result<PathBuf> {
    let scalar = HostTensor::scalar::<i64>;
    let others = [(STEP, scalar(progress.step as i64)), (POSITION, scalar(progress.position as i64)), (SEED, scalar(progress.seed))];
    let prefix = folder.join(format!("model.ckpt-{}", progress.step));
    plimsoll::checkpoint::save_with(session, &prefix, |variable| !copies.contains(&variable.name), &others)?;
    let path = folder.join("graph.pbtxt");
    let written = std::fs::write(&path, plimsoll::formats::print_graph_def(&session.graph().to_def()));
    written.map_err(|error| Error::new(Code::Unknown, format!("writing {} failed: {error}", path.display())))?;
    Ok(prefix)
}

/// Gives all variables but `copies` the values of a checkpoint: the latest of a folder, or the one of that prefix. They have storage
/// already. How far the training had come; none where no training of ours wrote the checkpoint.
///
/// # Errors
/// NOT_FOUND where there is no checkpoint, or it lacks a variable; INVALID_ARGUMENT where a variable is of another type or
/// shape there; DATA_LOSS where it is damaged.
pub fn restore(path: &Path, session: &Session, copies: &[String]) -> Result<Option<Progress>> {
    let prefix = plimsoll::checkpoint::find(path)?;
    let restored = plimsoll::checkpoint::restore_prepared(session, &prefix)?;
    // The states of random generators are of no use after the initializer.
    let variables = session.variables();
    let is_variable =
        |name: &&String| variables.iter().any(|variable| variable.name == **name && !variable.is_state) && !copies.contains(name);
    if let Some(name) = restored.missing.iter().find(is_variable) {
        let error = Error::not_found(format!("Key {name} not found in checkpoint {}", prefix.display()));
        return Err(error.with_remedy("train with the network and the optimizer that the checkpoint was written with"));
    }
    let reader = BundleReader::open(&prefix)?;
    if ![STEP, POSITION, SEED].iter().any(|key| reader.contains(key)) {
        return Ok(None);
    }
    let number = |key: &str| match reader.read(key)?.to_i64s().as_deref() {
        Some([number]) => Ok(*number),
        _ => Err(Error::data_loss(format!("{key} is no number in {}", prefix.display()))),
    };
    let count = |key: &str| {
        let value = number(key)?;
        u64::try_from(value).map_err(|_| Error::data_loss(format!("{key} is {value} in {}", prefix.display())))
    };
    Ok(Some(Progress { step: count(STEP)?, position: count(POSITION)?, seed: number(SEED)? }))
}
