//! The seams that a device crate implements, and the state of a run that devices share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use plimsoll_base::{Bytes, Result};
use plimsoll_memory::Block;

use crate::{DeviceSpec, Fault, Place, Program};

/// A logical device.
pub trait Device: Send + Sync {
    /// Its name, kind, capacity and granularity.
    fn spec(&self) -> &DeviceSpec;

    /// Reserves `bytes` under the device's line in the name of `holder`, then backs them with zeroed memory; both end when
    /// the block is dropped.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED naming device, bytes asked, in use and allowed, and the holders.
    fn allocate(&self, bytes: Bytes, holder: &str) -> Result<Block>;

    /// Bytes reserved now, and the most there ever were since the peak was last reset.
    fn usage(&self) -> Usage;

    /// Forgets the peak: it becomes what is reserved now.
    fn reset_peak(&self);

    /// Prepares queue `queue` of a plan.
    ///
    /// # Errors
    /// UNIMPLEMENTED where the program has work of another kind of device.
    fn load(&self, queue: u32, program: Arc<Program>) -> Result<Box<dyn Executable>>;

    /// Lends the calling thread to the device until `run` is over. Devices that compute elsewhere merely wait.
    fn drive(&self, run: &Arc<Run>);
}

/// How much of a device is reserved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes reserved now.
    pub in_use: Bytes,
    /// The most bytes reserved at once.
    pub peak: Bytes,
}

/// A program that a device has prepared.
pub trait Executable: Send + Sync {
    /// Starts the program for `run` and returns at once. The device advances `run.queues[queue]` as commands finish, and
    /// fails the run when one does not.
    fn submit(&self, run: &Arc<Run>);
}

/// Addresses of the blocks that a program names, in the order of the numbers in [`Place`].
#[derive(Debug, Default)]
pub struct Bindings {
    /// One arena for each device of the plan.
    pub arenas: Vec<*mut u8>,
    /// Storage of variables.
    pub variables: Vec<*mut u8>,
    /// Their initialised flags.
    pub flags: Vec<*mut u8>,
    /// Constants. Never written.
    pub constants: Vec<*mut u8>,
    /// Fed tensors. Never written.
    pub feeds: Vec<*mut u8>,
    /// Fetched tensors.
    pub fetches: Vec<*mut u8>,
}

// SAFETY: the pointers are only followed by the kernels of a run, under the contract of `Run::bindings`.
unsafe impl Send for Bindings {}
// SAFETY: as above.
unsafe impl Sync for Bindings {}

impl Bindings {
    /// The address of a block.
    pub fn base(&self, place: Place) -> *mut u8 {
        let (table, index) = match place {
            Place::Arena(index) => (&self.arenas, index),
            Place::Variable(index) => (&self.variables, index),
            Place::VariableFlag(index) => (&self.flags, index),
            Place::Constant(index) => (&self.constants, index),
            Place::Feed(index) => (&self.feeds, index),
            Place::Fetch(index) => (&self.fetches, index),
        };
        table[index as usize]
    }
}

/// How far a run is, shared by the devices that take part in it. One is made when a plan is loaded and used again and again:
/// whoever starts a run has it alone until [`Run::is_over`].
#[derive(Debug)]
pub struct Run {
    /// Where everything lies. Written only between runs, by the one who has the run alone; the blocks stay valid, and
    /// nobody else uses them against the plan, until the run is over.
    pub bindings: Bindings,
    /// For each queue the number of commands finished.
    pub queues: Vec<Progress>,
    failed: AtomicBool,
    failure: Mutex<Option<Failure>>,
    unfinished: AtomicU32,
}

/// How many commands of a queue have finished; alone on its cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Progress(pub AtomicU32);

/// The command that failed, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The queue.
    pub queue: u32,
    /// The command in it.
    pub command: u32,
    /// Why.
    pub fault: Fault,
}

impl Run {
    /// A run of a plan with that many queues, over already.
    pub fn new(queues: usize, bindings: Bindings) -> Run {
        Run {
            bindings,
            queues: (0..queues).map(|_| Progress::default()).collect(),
            failed: AtomicBool::new(false),
            failure: Mutex::new(None),
            unfinished: AtomicU32::new(0),
        }
    }

    /// Back to the start. Only for the one who has the run alone.
    pub fn restart(&mut self) {
        for progress in &mut self.queues {
            *progress.0.get_mut() = 0;
        }
        *self.failed.get_mut() = false;
        *self.failure.get_mut().unwrap_or_else(PoisonError::into_inner) = None;
        *self.unfinished.get_mut() = self.queues.len() as u32;
    }

    /// Whether every queue has come to its end, by finishing or by giving up.
    pub fn is_over(&self) -> bool {
        self.unfinished.load(Ordering::Acquire) == 0
    }

    /// Called by a device once for each queue, after which it does not touch the run's memory any more. Returns whether it
    /// was the last queue.
    pub fn queue_ended(&self) -> bool {
        self.unfinished.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Ends the run early; the first failure is kept. Queues give up before their next command.
    pub fn fail(&self, failure: Failure) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
        self.failed.store(true, Ordering::Release);
    }

    /// Whether some command failed.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// The first failure.
    pub fn failure(&self) -> Option<Failure> {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
