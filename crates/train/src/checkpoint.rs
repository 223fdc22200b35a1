//! Checkpoints of trainings in TensorFlow's format: see [`plimsoll::checkpoint`].
//!
//! A folder holds `model.ckpt-STEP.index` and `.data-00000-of-00001`, the file `checkpoint` that names the latest, and
//! `graph.pbtxt`, the graph. How far the training has come stands beside the variables, under keys that TensorFlow does not ask
//! for.

use std::path::{Path, PathBuf};

use plimsoll::formats::bundle::Checkpoint;
use plimsoll::{Error, HostTensor, Result, Session};

/// The key of the number of steps.
pub const STEP: &str = "_PLIMSOLL_TRAINING/step";
/// The key of the number of examples that were taken.
pub const POSITION: &str = "_PLIMSOLL_TRAINING/position";
/// The key of the seed of the examples' order.
pub const SEED: &str = "_PLIMSOLL_TRAINING/seed";

/// The variable in which TensorFlow's trainings count their steps.
const GLOBAL_STEP: &str = "global_step";

/// Where a training stands, its variables aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Steps done.
    pub step: u64,
    /// Where it stands in the data; none where TensorFlow wrote the checkpoint.
    pub order: Option<Order>,
}

/// Where a training stands in its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Examples taken from the data.
    pub position: u64,
    /// The seed of their order.
    pub seed: i64,
}

/// Writes a checkpoint of all variables but `copies` (by name) and makes it the folder's latest; its prefix.
///
/// # Errors
/// The file system's error; FAILED_PRECONDITION where variables have no values.
pub fn save(folder: &Path, session: &Session, copies: &[String], progress: &Progress) -> Result<PathBuf> {
    let scalar = HostTensor::scalar::<i64>;
    let mut others = vec![(STEP, scalar(progress.step as i64))];
    if let Some(Order { position, seed }) = progress.order {
        others.extend([(POSITION, scalar(position as i64)), (SEED, scalar(seed))]);
    }
    let prefix = folder.join(format!("model.ckpt-{}", progress.step));
    plimsoll::checkpoint::save_with(session, &prefix, |variable| !copies.contains(&variable.name), &others)?;
    let path = folder.join("graph.pbtxt");
    let graph = plimsoll::formats::print_graph_def(&session.graph().to_def());
    plimsoll::formats::bundle::replace_file(&path, graph.as_bytes())?;
    Ok(prefix)
}

/// Gives all variables but `copies` the values of a checkpoint: the latest of a folder, or the one of that prefix. They have storage
/// already. How far the training had come: for a checkpoint that TensorFlow wrote, its `global_step`, or the number that its name
/// ends in.
///
/// # Errors
/// NOT_FOUND where there is no checkpoint, or it lacks a variable. INVALID_ARGUMENT where a variable is of another type or shape
/// there. DATA_LOSS where it is damaged.
pub fn restore(path: &Path, session: &Session, copies: &[String]) -> Result<Progress> {
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
    let reader = Checkpoint::open(&prefix)?;
    if ![STEP, POSITION, SEED].iter().any(|key| reader.contains(key)) {
        return Ok(Progress { step: global_step(&reader, &prefix)?, order: None });
    }
    let number = |key: &str| match reader.read(key)?.to_i64s().as_deref() {
        Some([number]) => Ok(*number),
        _ => Err(Error::data_loss(format!("{key} is not a number in {}", prefix.display()))),
    };
    let count = |key: &str| {
        let value = number(key)?;
        u64::try_from(value).map_err(|_| Error::data_loss(format!("{key} is {value} in {}", prefix.display())))
    };
    Ok(Progress { step: count(STEP)?, order: Some(Order { position: count(POSITION)?, seed: number(SEED)? }) })
}

/// How many steps TensorFlow had taken: the variable `global_step`, else the number after the last `-` of the prefix, where
/// `Saver.save(..., global_step)` puts it; else 0.
fn global_step(reader: &Checkpoint, prefix: &Path) -> Result<u64> {
    if reader.contains(GLOBAL_STEP)
        && let Some([step]) = reader.read(GLOBAL_STEP)?.to_i64s().as_deref()
        && let Ok(step) = u64::try_from(*step)
    {
        return Ok(step);
    }
    let name = prefix.file_name().and_then(|name| name.to_str());
    Ok(name.and_then(|name| name.rsplit_once('-')?.1.parse().ok()).unwrap_or(0))
}
