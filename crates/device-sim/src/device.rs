//! A logical device on a simulated card.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_base::{Bytes, Error, Result};
use plimsoll_device::interpret::{Loaded, Streams};
use plimsoll_device::{CpuLibrary, Device, DeviceSpec, Executable, Library, Program, Work};
use plimsoll_memory::{Block, Ledger, Loan};

use crate::compute::Compute;
use crate::memory::CardMemory;
use crate::stream::CardEngine;

/// A logical device on a simulated card.
pub struct SimDevice {
    spec: DeviceSpec,
    library: Arc<dyn CpuLibrary>,
    ledger: Arc<Ledger>,
    memory: CardMemory,
    /// The card's own overhead.
    _overhead: Loan,
    streams: Streams<CardEngine>,
    lost: Arc<AtomicBool>,
}

impl SimDevice {
    /// A device that has a card to itself: see [`SimDevice::on`].
    ///
    /// # Errors
    /// As [`SimDevice::on`].
    pub fn new(spec: DeviceSpec, ledger: Arc<Ledger>, library: Arc<dyn CpuLibrary>) -> Result<SimDevice> {
        SimDevice::on(&Arc::default(), spec, ledger, library)
    }

    /// A device on the card, with that line, that computes with `compute` and kernels of `library`. It takes the specification's
    /// overhead at once. A card computes with one thread: `spec.threads` becomes 1.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED where the line has no room for the overhead.
    pub fn on(compute: &Arc<Compute>, mut spec: DeviceSpec, ledger: Arc<Ledger>, library: Arc<dyn CpuLibrary>) -> Result<SimDevice> {
        spec.threads = 1;
        let mut overhead = Loan::new(&ledger, "context of the card");
        overhead.set(spec.overhead).map_err(plimsoll_base::Error::from)?;
        let lost = Arc::default();
        let memory = CardMemory::new(&ledger, &lost);
        let priority = spec.card.as_ref().map_or(0, |card| card.priority);
        let streams = Streams::new(CardEngine { compute: compute.clone(), priority, lost: lost.clone() });
        Ok(SimDevice { spec, library, ledger, memory, _overhead: overhead, streams, lost })
    }

    /// The card falls off the bus, as real ones do: from now on every program fails with UNAVAILABLE.
    pub fn lose(&self) {
        self.lost.store(true, Ordering::Release);
    }
}

impl Device for SimDevice {
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

    fn load(&self, queue: u32, program: Arc<Program>) -> Result<Box<dyn Executable>> {
        self.memory.refuse_if_lost()?;
        if let Some(command) = program.commands.iter().find(|command| matches!(command.work, Work::Outside { .. })) {
            let message = format!("{} reaches outside of the memory of a card", command.label);
            return Err(Error::unimplemented(message).on_device(self.spec.name.to_string()));
        }
        let loaded =
            Loaded::new(queue, &program, 1, &self.spec, &*self.library).map_err(|error| error.on_device(self.spec.name.to_string()))?;
        Ok(self.streams.executable(loaded))
    }
}

impl Drop for SimDevice {
    fn drop(&mut self) {
        self.streams.close();
    }
}
