//! A program on a card, and its runs.

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering, fence};

use plimsoll_base::Code;
use plimsoll_device::{Executable, Failure, Fault, Run, RunState, Threads};

use super::loaded::Loaded;
use super::marks::Marks;
use super::memory::LOST;
use super::queue::{self, Kept, Shared};

/// A program prepared for the device's stream.
pub(super) struct CudaExecutable {
    pub loaded: Arc<Loaded>,
    pub shared: Arc<Shared>,
    pub threads: Arc<Threads<Job>>,
}

/// A queue of a run to be run.
pub(super) struct Job {
    loaded: Arc<Loaded>,
    shared: Arc<Shared>,
    run: Arc<Run>,
}

/// The device's state for a queue of a run.
pub(super) struct State {
    /// Its graphs go before the kernels that they have.
    kept: UnsafeCell<Result<Kept, Fault>>,
    loaded: Arc<Loaded>,
    pub marks: Marks,
    /// The address of the byte by which loops on the card are given up; null until there is one.
    halt: AtomicPtr<u8>,
}

// SAFETY: `kept` is used by the thread that has the job, and there is one job at a time for a queue of a run: a run is submitted again
// only when it is over. The rest may be used by any thread.
unsafe impl Sync for State {}

impl Executable for CudaExecutable {
    fn submit(&self, run: &Arc<Run>) {
        let refuse = |fault| {
            run.fail(Failure { queue: self.loaded.queue, command: 0, fault });
            run.queue_ended();
        };
        let internal = |message| Fault { code: Code::Internal, message, numbers: [0, 0] };
        if self.shared.context.is_lost() {
            return refuse(LOST);
        }
        if !self.loaded.fits(run, &run.bindings) {
            return refuse(internal("the run does not have the queues and blocks that the program names"));
        }
        if let Err(message) = self.threads.push(Job { loaded: self.loaded.clone(), shared: self.shared.clone(), run: run.clone() }) {
            refuse(internal(message));
        }
    }
}

impl State {
    /// From here on a run that ends early ends its loops on the card. A run that has ended before says so behind this.
    fn begin(&self, halt: *mut u8) {
        self.halt.store(halt, Ordering::SeqCst);
        // SAFETY: see `run_ends_early`.
        unsafe { AtomicU8::from_ptr(halt) }.store(0, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }
}

impl RunState for State {
    fn run_ends_early(&self) {
        let halt = self.halt.load(Ordering::SeqCst);
        if !halt.is_null() {
            // SAFETY: a byte of pinned memory, which lives as long as this; beside the card, atomic accesses alone use it.
            unsafe { AtomicU8::from_ptr(halt) }.store(1, Ordering::SeqCst);
        }
    }
}

/// Runs a job, on a thread of the device.
pub(super) fn perform(Job { loaded, shared, run }: Job) {
    let shared = &shared;
    let make = || State {
        loaded: loaded.clone(),
        kept: UnsafeCell::new(Kept::new(shared)),
        marks: Marks::new(shared),
        halt: AtomicPtr::default(),
    };
    let fail = |fault| run.fail(Failure { queue: loaded.queue, command: 0, fault });
    match run.kept_or(loaded.queue, make).filter(|state| Arc::ptr_eq(&state.loaded, &loaded)) {
        None => fail(Fault { code: Code::Internal, message: "the run was made for another program", numbers: [0, 0] }),
        Some(state) => {
            // SAFETY: see `State`.
            match unsafe { &mut *state.kept.get() } {
                Ok(kept) => {
                    state.begin(kept.halt_place());
                    queue::run(shared, &loaded, &run, kept, &state.marks);
                }
                Err(fault) => {
                    fail(*fault);
                    // The next run of it tries again.
                    // SAFETY: as above; the reference to the fault has ended.
                    unsafe { *state.kept.get() = Kept::new(shared) };
                }
            }
        }
    }
    run.queue_ended();
}
