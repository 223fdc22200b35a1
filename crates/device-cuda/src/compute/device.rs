//! A logical device on an NVIDIA card.

use std::sync::{Arc, OnceLock};

use plimsoll_base::{Bytes, Error, Result};
use plimsoll_device::{Device, DeviceSpec, Executable, Library, Program, Run, Threads, Tuner, Work};
use plimsoll_memory::{Block, Ledger};

use super::card::CudaCard;
use super::executable::{CudaExecutable, Job, perform, perform_here};
use super::graph_room::{GraphRoom, GraphUse};
use super::loaded::Loaded;
use super::memory::CudaMemory;
use super::queue::Shared;
use super::words::Words;
use crate::driver::Stream;
use crate::source::{ALIGNMENT, CudaSource};

/// A logical device on an NVIDIA card: a line, and a stream; another one for copies beside the works of a plan, once there are some.
pub struct CudaDevice {
    spec: DeviceSpec,
    library: Arc<dyn CudaSource>,
    ledger: Arc<Ledger>,
    memory: CudaMemory,
    threads: Arc<Threads<Job>>,
    shared: Arc<Shared>,
    beside: OnceLock<Arc<Shared>>,
    card: Arc<CudaCard>,
}

impl CudaDevice {
    /// What of a specification is the card's to say, which has that granularity ([`CudaCard::granularity`]). The device takes a piece
    /// of the card's memory for itself: its overhead is at least that.
    pub fn spec(granularity: u64, spec: DeviceSpec) -> DeviceSpec {
        let overhead = spec.overhead.max(Bytes(granularity));
        DeviceSpec { overhead, granularity, alignment: ALIGNMENT, threads: 1, ..spec }
    }

    /// The bytes of a card of that name and granularity that each of its logical devices takes for itself: a piece, and room for graphs and code.
    pub fn own(name: &str, granularity: u64) -> Bytes {
        Bytes(granularity) + GraphUse::on(name).taken.device
    }

    /// A device on a card, with that line, that computes with kernels of `library`. `spec` is as [`CudaDevice::spec`] makes it; its
    /// overhead is taken at once, and counts in `ledger` as long as the card is open. The room for graphs and code is a part of it.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED where the line, or the card, has no room for the overhead; the driver's error.
    pub fn on(
        card: &Arc<CudaCard>,
        spec: DeviceSpec,
        ledger: Arc<Ledger>,
        library: Arc<dyn CudaSource>,
        graphs: GraphUse,
    ) -> Result<CudaDevice> {
        let context = card.context().clone();
        context.charge(&ledger, spec.overhead).map_err(Error::from)?;
        let opened = context.enter().and_then(|_entered| {
            let priority = spec.card.as_ref().map_or(0, |card| card.priority);
            Ok((Words::new(&context)?, Stream::new(&context.driver, priority)?))
        });
        let (words, stream) =
            opened.map_err(|trouble| context.error("the device cannot be opened", trouble).on_device(spec.name.to_string()))?;
        if Bytes(words.bytes()) > spec.overhead {
            return Err(Error::internal(format!("{} has an overhead of {}, which is not the card's", spec.name, spec.overhead)));
        }
        let memory = CudaMemory::new(&context, &ledger);
        let shared = Arc::new(Shared { context, stream, words, graphs: GraphRoom::new(graphs), at_once: graphs.at_once });
        let threads = Threads::new("plimsoll-cuda", perform);
        Ok(CudaDevice { spec, library, ledger, memory, threads, shared, beside: OnceLock::new(), card: card.clone() })
    }

    /// What a queue of this program has: one of copies alone has a stream of its own, so that they run beside the device's works.
    fn shared_for(&self, program: &Program) -> Result<Arc<Shared>> {
        if program.commands.is_empty() || !program.commands.iter().all(|command| matches!(command.work, Work::Copy)) {
            return Ok(self.shared.clone());
        }
        if let Some(beside) = self.beside.get() {
            return Ok(beside.clone());
        }
        let Shared { context, words, graphs, at_once, .. } = &*self.shared;
        let priority = self.spec.card.as_ref().map_or(0, |card| card.priority);
        let stream = context.enter().and_then(|_entered| Stream::new(&context.driver, priority));
        let stream = stream.map_err(|trouble| context.error("there is no stream for copies", trouble))?;
        let shared = Shared { context: context.clone(), stream, words: words.clone(), graphs: graphs.clone(), at_once: *at_once };
        // Of two threads that come here at once, one makes the stream of both.
        Ok(self.beside.get_or_init(|| Arc::new(shared)).clone())
    }

    pub(super) fn card(&self) -> &Arc<CudaCard> {
        &self.card
    }

    pub(super) fn source(&self) -> &dyn CudaSource {
        &*self.library
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(super) fn specification(&self) -> &DeviceSpec {
        &self.spec
    }
}

impl Device for CudaDevice {
    fn spec(&self) -> &DeviceSpec {
        &self.spec
    }

    fn library(&self) -> &dyn Library {
        &*self.library
    }

    fn allocate(&self, bytes: Bytes, holder: &str) -> Result<Block> {
        self.memory.refuse_if_lost()?;
        Block::new(&self.ledger, &self.memory, bytes, holder)
    }

    fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    fn tuner(&self) -> Option<&dyn Tuner> {
        Some(self)
    }

    fn load(&self, queue: u32, program: Arc<Program>) -> Result<Box<dyn Executable>> {
        let named = |error: Error| error.on_device(self.spec.name.to_string());
        self.memory.refuse_if_lost()?;
        if let Some(command) = program.commands.iter().find(|command| matches!(command.work, Work::Outside { .. })) {
            return Err(named(Error::unimplemented(format!("{} reaches outside of the memory of a card", command.label))));
        }
        let loaded = Loaded::new((&self.card, &self.shared.graphs), queue, &program, &self.spec, &*self.library).map_err(named)?;
        let shared = self.shared_for(&program).map_err(named)?;
        Ok(Box::new(CudaExecutable { loaded: Arc::new(loaded), shared, threads: self.threads.clone() }))
    }

    fn drive(&self, run: &Arc<Run>) {
        perform_here(run);
        run.wait_over();
    }
}

impl Drop for CudaDevice {
    fn drop(&mut self) {
        self.threads.close();
    }
}
