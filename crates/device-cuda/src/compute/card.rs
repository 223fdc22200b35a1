//! A card of the machine, opened to compute.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use plimsoll_base::{Error, Result};
use plimsoll_cards::CudnnMode;
use plimsoll_device::Tuned;

use super::graph_room::{GraphRoom, GraphShare};
use crate::compile::Compiler;
use crate::convolve::CudnnLibrary;
use crate::cudnn::{Cudnn, EngineLimits, Planner, ReadyConvolution};
use crate::driver::{Context, CudaDriver, DriverCard, Function, Module};
use crate::emit;
use crate::source::{CudaLibrary, CudaSource};

/// A card with the kernels that were loaded there. Its logical devices share it. Kernels stay as long as it does, or until their room is wanted and no
/// program has them.
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
    by_name: HashMap<String, (Function, Arc<Module>)>,
    /// The modules, and what each takes of a device's room.
    modules: Vec<(Arc<Module>, Option<GraphShare>)>,
}

impl Kernels {
    /// Unloads the modules that no program has. The calling thread is in the card's context.
    fn unload_unused(&mut self) {
        let named = |kernels: &Kernels, module: &Arc<Module>| kernels.by_name.values().filter(|(_, of)| Arc::ptr_eq(of, module)).count();
        let unused: Vec<Arc<Module>> = self
            .modules
            .iter()
            .map(|(module, _)| module)
            .filter(|module| Arc::strong_count(module) == 1 + named(self, module))
            .cloned()
            .collect();
        let is_used = |module: &Arc<Module>| unused.iter().all(|other| !Arc::ptr_eq(other, module));
        self.by_name.retain(|_, (_, module)| is_used(module));
        self.modules.retain(|(module, _)| is_used(module));
    }
}

/// How often a place for code is looked for, and how long is waited before the next time: a run that is over has its program for a moment.
const TRIES: u32 = 50;
const BETWEEN_TRIES: Duration = Duration::from_millis(1);

/// The part of the room for so many bytes of code. Modules that no program has go where they are in the way.
fn place_for(loaded: &mut Kernels, room: &Arc<GraphRoom>, bytes: u64) -> Result<GraphShare> {
    for _ in 0..TRIES {
        if let Some(share) = room.take_code(bytes) {
            return Ok(share);
        }
        loaded.unload_unused();
        if let Some(share) = room.take_code(bytes) {
            return Ok(share);
        }
        std::thread::sleep(BETWEEN_TRIES);
    }
    Err(room.without_place_for(bytes))
}

impl CudaCard {
    /// Opens a card, whose convolutions cuDNN can compute where it is given. What that takes of the card's memory it takes now, but for the code of
    /// its kernels, which has a part of the room that its logical devices keep.
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

    /// Sees to it that these kernels are loaded: what is missing is compiled as one program, and its code takes a part of the room, if one is given.
    /// Returns the modules that have them: they stay as long as these do.
    ///
    /// # Errors
    /// The compiler's or the driver's; RESOURCE_EXHAUSTED where the room has no place for the code.
    pub(super) fn load(&self, kernels: &[&emit::Kernel], room: Option<&Arc<GraphRoom>>) -> Result<Vec<Arc<Module>>> {
        let mut loaded = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        let mut modules: Vec<Arc<Module>> = Vec::new();
        let mut missing: Vec<&emit::Kernel> = Vec::new();
        for kernel in kernels {
            match loaded.by_name.get(&kernel.entry) {
                Some((_, module)) if modules.iter().any(|other| Arc::ptr_eq(other, module)) => {}
                Some((_, module)) => modules.push(module.clone()),
                None => missing.push(kernel),
            }
        }
        // The same kernels are the same program, in whichever order they are asked for.
        missing.sort_by(|one, other| one.entry.cmp(&other.entry));
        missing.dedup_by(|one, other| one.entry == other.entry);
        if missing.is_empty() {
            return Ok(modules);
        }
        let cubin = self.compiled(&emit::program(missing.iter().copied()))?;
        let entered = self.context.enter();
        let _entered = entered.map_err(|trouble| self.context.error("kernels cannot be loaded", trouble))?;
        let bytes = cubin.len() as u64;
        let share = room.map(|room| place_for(&mut loaded, room, bytes)).transpose()?;
        let functions = Module::load(&self.context.driver, &cubin).and_then(|module| {
            let functions = missing.iter().map(|kernel| Ok((kernel.entry.clone(), module.function(&kernel.entry)?)));
            Ok((functions.collect::<std::result::Result<Vec<_>, _>>()?, Arc::new(module)))
        });
        let (functions, module) = functions.map_err(|trouble| self.context.error("kernels cannot be loaded", trouble))?;
        loaded.by_name.extend(functions.into_iter().map(|(name, function)| (name, (function, module.clone()))));
        loaded.modules.push((module.clone(), share));
        modules.push(module);
        Ok(modules)
    }

    /// The code of a program for the card.
    pub(super) fn compiled(&self, program: &str) -> Result<Vec<u8>> {
        self.compiler.cubin(program, self.context.capability)
    }

    /// Bytes of the code that is loaded.
    pub fn code_bytes(&self) -> u64 {
        self.kernels.lock().unwrap_or_else(PoisonError::into_inner).modules.iter().map(|(module, _)| module.bytes).sum()
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
        self.kernels.lock().unwrap_or_else(PoisonError::into_inner).by_name.get(name).map(|(function, _)| *function)
    }
}

impl Drop for CudaCard {
    fn drop(&mut self) {
        let _entered = self.context.enter();
        let kernels = self.kernels.get_mut().unwrap_or_else(PoisonError::into_inner);
        kernels.by_name.clear();
        kernels.modules.clear();
    }
}
