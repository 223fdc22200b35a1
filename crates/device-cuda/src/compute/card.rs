//! A card of the machine, opened to compute.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_base::Result;

use crate::compile::Compiler;
use crate::driver::{Context, CudaDriver, DriverCard, Function, Module};
use crate::emit;

/// A card with the kernels that were loaded there. Its logical devices share it; kernels stay as long as it does.
#[derive(Debug)]
pub struct CudaCard {
    name: String,
    context: Arc<Context>,
    compiler: Arc<Compiler>,
    kernels: Mutex<Kernels>,
}

#[derive(Debug, Default)]
struct Kernels {
    by_name: HashMap<String, Function>,
    modules: Vec<Module>,
}

impl CudaCard {
    /// Opens a card.
    ///
    /// # Errors
    /// FAILED_PRECONDITION for a card that is too old; the driver's error.
    pub fn open(driver: &Arc<CudaDriver>, card: &DriverCard, compiler: &Arc<Compiler>) -> Result<Arc<CudaCard>> {
        let context = Context::new(driver, card)?;
        Ok(Arc::new(CudaCard { name: card.name.clone(), context, compiler: compiler.clone(), kernels: Mutex::default() }))
    }

    pub(super) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// The driver's name of it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Bytes in which it gives out memory.
    pub fn granularity(&self) -> u64 {
        self.context.granularity
    }

    /// Bytes of its memory that no program has.
    ///
    /// # Errors
    /// The driver's.
    pub fn free_bytes(&self) -> Result<u64> {
        self.context.free_bytes()
    }

    /// Whether it is lost, as far as a call has said.
    pub fn is_lost(&self) -> bool {
        self.context.is_lost()
    }

    /// Sees to it that these kernels are loaded: what is missing is compiled as one program.
    ///
    /// # Errors
    /// The compiler's or the driver's.
    pub(super) fn load(&self, kernels: &[&emit::Kernel]) -> Result<()> {
        let mut loaded = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        let mut missing: Vec<&emit::Kernel> =
            kernels.iter().copied().filter(|kernel| !loaded.by_name.contains_key(&kernel.entry)).collect();
        // The same kernels are the same program, in whichever order they are asked for.
        missing.sort_by(|one, other| one.entry.cmp(&other.entry));
        missing.dedup_by(|one, other| one.entry == other.entry);
        if missing.is_empty() {
            return Ok(());
        }
        let cubin = self.compiler.cubin(&emit::program(missing.iter().copied()), self.context.capability)?;
        let functions = self.context.enter().and_then(|()| {
            let module = Module::load(&self.context.driver, &cubin)?;
            let functions = missing.iter().map(|kernel| Ok((kernel.entry.clone(), module.function(&kernel.entry)?)));
            Ok((functions.collect::<std::result::Result<Vec<_>, _>>()?, module))
        });
        let (functions, module) = functions.map_err(|trouble| self.context.error("kernels cannot be loaded", trouble))?;
        loaded.by_name.extend(functions);
        loaded.modules.push(module);
        Ok(())
    }

    /// A kernel that was loaded.
    pub(super) fn function(&self, name: &str) -> Option<Function> {
        self.kernels.lock().unwrap_or_else(PoisonError::into_inner).by_name.get(name).copied()
    }
}

impl Drop for CudaCard {
    fn drop(&mut self) {
        let _ = self.context.enter();
        self.kernels.get_mut().unwrap_or_else(PoisonError::into_inner).modules.clear();
    }
}
