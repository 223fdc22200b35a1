//! Compiled kernels on a card.

use std::ffi::CString;
use std::sync::Arc;

use super::raw::{Handle, Trouble};
use super::{CudaDriver, Entered, call};

/// Kernels that were loaded. The calling thread is in the card's context whenever one is made or asked.
#[derive(Debug)]
pub(crate) struct Module {
    driver: Arc<CudaDriver>,
    /// The context that it was made in.
    context: Handle,
    handle: Handle,
    /// Bytes of its code.
    pub bytes: u64,
}

// SAFETY: a module may be used from any thread, several at a time.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

/// A kernel of a module that lives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Function(pub Handle);

// SAFETY: a handle; launching it is the stream's.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

/// An argument of a launch: its first bytes are the value.
pub(crate) type Argument = u64;

impl Module {
    /// Loads what the compiler made for this card.
    pub fn load(driver: &Arc<CudaDriver>, cubin: &[u8]) -> Result<Module, Trouble> {
        let context = driver.context_now()?;
        let mut handle = std::ptr::null_mut();
        call!(driver, module_load(&mut handle, cubin.as_ptr().cast()))?;
        Ok(Module { driver: driver.clone(), context, handle, bytes: cubin.len() as u64 })
    }

    /// The kernel of that name.
    pub fn function(&self, name: &str) -> Result<Function, Trouble> {
        let name = CString::new(name).map_err(|_| Trouble::Code(500))?;
        let mut function = std::ptr::null_mut();
        call!(self.driver, module_function(&mut function, self.handle, name.as_ptr()))?;
        Ok(Function(function))
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        let _entered = Entered::new(&self.driver, self.context);
        let _ = call!(self.driver, module_unload(self.handle));
    }
}
