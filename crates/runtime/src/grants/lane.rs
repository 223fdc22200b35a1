//! Memory that is kept for some callables: their runs reserve nothing, whatever else the session runs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll_base::{Bytes, Error, Result};
use plimsoll_device::Device;
use plimsoll_memory::{Address, Block, Loan};

use crate::cancellation::{self, Cancellation};
use crate::loaded::Loaded;

/// Room for the runs of some callables, one at a time: see [`crate::Session::lane`]. Cloning shares it; when the last clone and
/// the last callable in it are gone, the memory goes back to the devices.
#[derive(Clone, Debug)]
pub struct Lane(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// None once the session was closed.
    memory: Mutex<Option<Memory>>,
    sizes: Vec<Bytes>,
    ends: Bytes,
}

/// The memory of a lane.
#[derive(Debug)]
pub(super) struct Memory {
    arenas: Vec<Option<Block>>,
    _ends: Vec<Loan>,
}

impl Memory {
    /// Where the arena of a device is.
    pub(super) fn arena(&self, device: usize) -> Address {
        self.arenas[device].as_ref().map_or(Address::NULL, Block::address)
    }
}

impl Lane {
    pub(super) fn new(plans: &[&Loaded], devices: &[Arc<dyn Device>], holder: &str) -> Result<Lane> {
        let mut sizes = vec![Bytes::ZERO; devices.len()];
        let mut ends = Bytes::ZERO;
        for plan in plans {
            plan.arenas().iter().for_each(|(device, bytes)| sizes[*device] = sizes[*device].max(*bytes));
            ends = ends.max(plan.ends().1);
        }
        let block = |(device, bytes): (&Arc<dyn Device>, &Bytes)| match *bytes {
            Bytes::ZERO => Ok(None),
            bytes => device.allocate(bytes, holder).map(Some),
        };
        let arenas = devices.iter().zip(&sizes).map(block).collect::<Result<Vec<_>>>()?;
        let mut loans = Vec::new();
        if let Some(plan) = plans.first() {
            let mut loan = devices[plan.ends().0].lend(&format!("{holder}: fed and fetched"));
            loan.set(ends).map_err(Error::from)?;
            loans.push(loan);
        }
        Ok(Lane(Arc::new(Inner { memory: Mutex::new(Some(Memory { arenas, _ends: loans })), sizes, ends })))
    }

    /// Whether runs of the plan fit.
    pub(crate) fn fits(&self, plan: &Loaded) -> bool {
        plan.arenas().iter().all(|(device, bytes)| *bytes <= self.0.sizes[*device]) && plan.ends().1 <= self.0.ends
    }

    /// The memory, for one run; waits for another run in the lane.
    ///
    /// # Errors
    /// Why the wait was cancelled.
    pub(super) fn memory(&self, cancellation: Option<&Cancellation>) -> Result<MutexGuard<'_, Option<Memory>>> {
        cancellation::lock(&self.0.memory, cancellation)
    }

    /// Gives the memory back, after the run that has it. Later runs in the lane are refused.
    pub(super) fn empty(&self) {
        *self.0.memory.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// A reference for the session, which ends the lane when it is closed.
    pub(super) fn downgrade(&self) -> WeakLane {
        WeakLane(Arc::downgrade(&self.0))
    }
}

/// A lane that may be gone.
#[derive(Debug)]
pub(super) struct WeakLane(std::sync::Weak<Inner>);

impl WeakLane {
    pub(super) fn upgrade(&self) -> Option<Lane> {
        self.0.upgrade().map(Lane)
    }
}
