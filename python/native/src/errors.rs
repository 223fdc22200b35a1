//! Errors as exceptions: those of `plimsoll.errors`, which have TensorFlow's names.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The exception of an error.
pub fn raised(py: Python<'_>, error: &plimsoll::Error) -> PyErr {
    match exception(py, error) {
        Ok(exception) => PyErr::from_value(exception),
        Err(other) => other,
    }
}

fn exception<'py>(py: Python<'py>, error: &plimsoll::Error) -> PyResult<Bound<'py, PyAny>> {
    let facts = PyDict::new(py);
    facts.set_item("node", error.node())?;
    facts.set_item("device", error.device())?;
    facts.set_item("remedy", error.remedy())?;
    if let Some(shortage) = error.shortage() {
        facts.set_item("requested", shortage.requested.0)?;
        facts.set_item("missing", shortage.missing().0)?;
    }
    py.import("plimsoll.errors")?.getattr("of_status")?.call((error.code().name(), error.message(), error.to_string()), Some(&facts))
}

/// What a closed session says.
pub fn closed() -> PyErr {
    PyRuntimeError::new_err("Attempted to use a closed Session.")
}
