//! Checkpoints tensor by tensor, as TensorFlow 1's `Saver` has them.

use std::path::PathBuf;

use plimsoll::formats::bundle::{BundleWriter, Checkpoint};
use pyo3::prelude::*;

use crate::errors::raised;
use crate::tensor::{of_value, to_value};

/// The names of a checkpoint's tensors, with the wire numbers of their types and their shapes.
#[pyfunction]
pub fn checkpoint_entries(py: Python<'_>, prefix: PathBuf) -> PyResult<Vec<(String, i32, Vec<u64>)>> {
    let read = || {
        let checkpoint = Checkpoint::open(&prefix)?;
        let names: Vec<String> = checkpoint.names().map(str::to_string).collect();
        let entry = |name: String| {
            let entry = checkpoint.entry(&name)?;
            Ok((name, entry.data_type.number(), entry.shape.to_vec()))
        };
        names.into_iter().map(entry).collect::<plimsoll::Result<Vec<_>>>()
    };
    py.detach(read).map_err(|error| raised(py, &error))
}

/// The tensors of these names.
#[pyfunction]
pub fn read_checkpoint(py: Python<'_>, prefix: PathBuf, names: Vec<String>) -> PyResult<Vec<Py<PyAny>>> {
    let read = || {
        let checkpoint = Checkpoint::open(&prefix)?;
        names.iter().map(|name| checkpoint.read(name)).collect::<plimsoll::Result<Vec<_>>>()
    };
    let tensors = py.detach(read).map_err(|error| raised(py, &error))?;
    tensors.into_iter().map(|tensor| to_value(py, tensor)).collect()
}

/// Writes a checkpoint of these names and arrays. Nothing stands under its final names before it is complete.
#[pyfunction]
pub fn write_checkpoint(py: Python<'_>, prefix: PathBuf, tensors: Vec<(String, Bound<'_, PyAny>)>) -> PyResult<()> {
    let tensors = tensors.into_iter().map(|(name, value)| Ok((name, of_value(&value, None)?))).collect::<PyResult<Vec<_>>>()?;
    let write = || {
        let mut writer = BundleWriter::create(&prefix)?;
        tensors.iter().try_for_each(|(name, tensor)| writer.add(name, tensor))?;
        writer.finish()
    };
    py.detach(write).map_err(|error| raised(py, &error))
}
