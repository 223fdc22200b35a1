//! The text file `checkpoint` beside checkpoints, which names the latest.

use std::path::{Path, PathBuf};

use plimsoll_base::Result;

use super::{index_path, io_error, replace_file};
use crate::file;
use crate::message::message;

message! {
    /// `tensorflow.CheckpointState`.
    pub struct CheckpointState {
        /// The latest checkpoint's prefix, absolute or relative to the folder.
        1 model_checkpoint_path: String,
        /// All that are kept, the oldest first.
        2 all_model_checkpoint_paths: Vec<String>,
    }
}

/// Reads the file `checkpoint` of a folder; none where there is no such file.
///
/// # Errors
/// INVALID_ARGUMENT where it cannot be read.
pub fn read_checkpoint_state(folder: &Path) -> Result<Option<CheckpointState>> {
    let path = folder.join("checkpoint");
    match plimsoll_base::read_file(&path) {
        Ok(bytes) => file::read("CheckpointState", &bytes).map(Some).map_err(|error| error.context(path.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io_error("reading", &path, error)),
    }
}

/// Writes the file `checkpoint` of a folder.
///
/// # Errors
/// The file system's error.
pub fn write_checkpoint_state(folder: &Path, state: &CheckpointState) -> Result<()> {
    replace_file(&folder.join("checkpoint"), file::print("CheckpointState", state).as_bytes())
}

/// The prefix of the latest checkpoint of a folder; none where no file says so or its index is gone.
///
/// # Errors
/// As [`read_checkpoint_state`].
pub fn latest_checkpoint(folder: &Path) -> Result<Option<PathBuf>> {
    let Some(state) = read_checkpoint_state(folder)?.filter(|state| !state.model_checkpoint_path.is_empty()) else { return Ok(None) };
    let prefix = folder.join(state.model_checkpoint_path);
    Ok(index_path(&prefix).exists().then_some(prefix))
}
