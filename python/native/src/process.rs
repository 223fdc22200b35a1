//! What belongs to one process. A forked child has its memory, and not its threads: there it can be neither used nor ended.

use std::mem::ManuallyDrop;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// A value of the process that made it. A forked child gets an exception, and leaves it alone at its end.
pub struct Own<T> {
    process: u32,
    value: ManuallyDrop<T>,
}

impl<T> Own<T> {
    pub fn new(value: T) -> Own<T> {
        Own { process: std::process::id(), value: ManuallyDrop::new(value) }
    }

    fn is_mine(&self) -> bool {
        self.process == std::process::id()
    }

    /// The value.
    ///
    /// # Errors
    /// RuntimeError in another process than the one that made it.
    pub fn get(&self) -> PyResult<&T> {
        match self.is_mine() {
            true => Ok(&self.value),
            false => Err(PyRuntimeError::new_err(
                "sessions and devices belong to the process that opened them: a forked child opens its own, \
                 or is made by spawn or forkserver",
            )),
        }
    }
}

impl<T> Drop for Own<T> {
    fn drop(&mut self) {
        if self.is_mine() {
            // SAFETY: nobody uses it after this.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}
