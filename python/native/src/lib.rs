//! `plimsoll._native`: the library for Python. It converts; the package `plimsoll` around it has the names and the words.

mod attrs;
mod builder;
mod checkpoint;
mod config;
mod devices;
mod errors;
mod plan;
mod process;
mod program;
mod session;
mod tensor;

use pyo3::prelude::*;

/// What the package builds on. Not for users.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    session::MAIN.get_or_init(|| std::thread::current().id());
    module.add("ENVIRONMENT", plimsoll::Environment::NAMES.to_vec())?;
    module.add_class::<config::Config>()?;
    module.add_class::<builder::Builder>()?;
    module.add_function(wrap_pyfunction!(builder::types, module)?)?;
    module.add_function(wrap_pyfunction!(checkpoint::checkpoint_entries, module)?)?;
    module.add_function(wrap_pyfunction!(checkpoint::read_checkpoint, module)?)?;
    module.add_function(wrap_pyfunction!(checkpoint::write_checkpoint, module)?)?;
    module.add_class::<devices::Devices>()?;
    module.add_class::<session::Session>()?;
    module.add_class::<session::Callable>()?;
    module.add_class::<plan::Plan>()
}
