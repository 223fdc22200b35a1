//! `plimsoll._native`: the library for Python. It converts; the package `plimsoll` around it has the names and the words.

mod devices;
mod errors;
mod plan;
mod process;
mod session;
mod tensor;

use pyo3::prelude::*;

/// What the package builds on. Not for users.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<devices::Devices>()?;
    module.add_class::<session::Session>()?;
    module.add_class::<session::Callable>()?;
    module.add_class::<plan::Plan>()
}
