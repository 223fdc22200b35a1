//! A card of the machine, opened to compute.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_base::{Error, Result};
use plimsoll_cards::CudnnMode;
use plimsoll_device::Tuned;

use crate::compile::Compiler;
use crate::convolve::CudnnLibrary;
use crate::cudnn::{Cudnn, EngineLimits, Planner, ReadyConvolution};
use crate::driver::{Context, CudaDriver, DriverCard, Function, Module};
use crate::emit;
use crate::source::{CudaLibrary, CudaSource};

/// A card with the kernels that were loaded there. Its logical devices share it; kernels stay as long as it does.
#[derive(Debug)]
pub struct CudaCard {
    name: String,
    context: Arc<Context>,
    compiler: Arc<Compiler>,
    kernels: Mutex<Kernels>,
    /// Convolutions that were made ready; they end before cuDNN's handle.
    convolutions: Mutex<Vec<(emit::Convolution, Arc<ReadyConvolution>)>>,
    /// None where cuDNN is not used.
    cudnn: Option<Arc<Cudnn>>,
}

#[derive(Debug, Default)]
struct Kernels {
    by_name: HashMap<String, Function>,
    modules: Vec<Module>,
}

impl CudaCard {
    /// Opens a card, whose convolutions cuDNN can compute where it is given. What that takes of the card's memory it takes now, but for the code of
    /// its kernels.
    ///
    /// # Errors
    /// FAILED_PRECONDITION for a card that is too old; the driver's error; cuDNN's reason.
    pub fn open(
        driver: &Arc<CudaDriver>,
        card: &DriverCard,
        compiler: &Arc<Compiler>,
        planner: Option<&Arc<Planner>>,
    ) -> Result<Arc<CudaCard>> {
        let context = Context::new(driver, card)?;
        let cudnn = planner.map(|planner| Cudnn::open(planner, &context)).transpose()?;
        let (name, compiler) = (card.name.clone(), compiler.clone());
        Ok(Arc::new(CudaCard { name, context, compiler, kernels: Mutex::default(), convolutions: Mutex::default(), cudnn }))
    }

    /// The kernels of its logical devices. Those of cuDNN are among them where it was opened with it, as far as the limits allow them; they are
    /// chosen by the table of times, where there is one.
    pub fn library(&self, limits: EngineLimits, mode: CudnnMode, tuned: Option<&Tuned>) -> Arc<dyn CudaSource> {
        match &self.cudnn {
            Some(cudnn) if mode != CudnnMode::Never => {
                let library = CudnnLibrary::on(cudnn, &self.name, limits, mode);
                Arc::new(match tuned {
                    Some(table) => library.tuned(table, &self.name),
                    None => library,
                })
            }
            _ => Arc::new(CudaLibrary),
        }
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

    /// A convolution by cuDNN, ready to be pushed.
    ///
    /// # Errors
    /// As [`Cudnn::ready`]; UNIMPLEMENTED where the card was opened without cuDNN.
    pub(super) fn convolution(&self, asked: &emit::Convolution) -> Result<Arc<ReadyConvolution>> {
        let Some(cudnn) = &self.cudnn else { return Err(Error::unimplemented(format!("{} on a card without cuDNN", asked.engine))) };
        let mut ready = self.convolutions.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |other: &emit::Convolution| (other.plan, &other.engine, other.limits) == (asked.plan, &asked.engine, asked.limits);
        if let Some((_, found)) = ready.iter().find(|(other, _)| is_it(other)) {
            return Ok(found.clone());
        }
        let made = Arc::new(cudnn.ready(&asked.plan, &asked.engine, asked.limits)?);
        ready.push((asked.clone(), made.clone()));
        Ok(made)
    }

    /// Gives back convolutions that no program has, with what cuDNN has for them.
    pub(super) fn forget_unused(&self) {
        self.convolutions.lock().unwrap_or_else(PoisonError::into_inner).retain(|(_, ready)| Arc::strong_count(ready) > 1);
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
