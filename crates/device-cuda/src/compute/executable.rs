//! A program on a card, and its runs.

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, Ordering, fence};

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

/// A queue of a run to be run by a thread of the device. The run keeps its [`State`].
pub(super) struct Job {
    queue: u32,
    run: Arc<Run>,
}

/// The device's state for a queue of a run.
pub(super) struct State {
    /// Its graphs go before the kernels that they have. None until the card has made it.
    kept: UnsafeCell<Option<Kept>>,
    loaded: Arc<Loaded>,
    pub marks: Marks,
    /// The address of the byte by which loops on the card are given up; null until there is one.
    halt: AtomicPtr<u8>,
    /// Whether the queue is the whole run, and waits for the thread that drives it.
    waits: AtomicBool,
}

// SAFETY: `kept` is used by the thread that performs the queue, and there is one at a time: a run is submitted again only when it is over.
// The rest may be used by any thread.
unsafe impl Sync for State {}

impl Executable for CudaExecutable {
    fn submit(&self, run: &Arc<Run>) {
        let queue = self.loaded.queue;
        let refuse = |fault| {
            run.fail(Failure { queue, command: 0, fault });
            run.queue_ended();
        };
        let internal = |message| Fault { code: Code::Internal, message, numbers: [0, 0] };
        if self.shared.context.is_lost() {
            return refuse(LOST);
        }
        if !self.loaded.fits(run, &run.bindings) {
            return refuse(internal("the run does not have the queues and blocks that the program names"));
        }
        let state = run.kept_or(queue, || State::new(&self.loaded, &self.shared));
        let Some(state) = state.filter(|state| Arc::ptr_eq(&state.loaded, &self.loaded)) else {
            return refuse(internal("the run was made for another program"));
        };
        if run.queues.len() == 1 {
            return state.waits.store(true, Ordering::Release);
        }
        if let Err(message) = self.threads.push(Job { queue, run: run.clone() }) {
            refuse(internal(message));
        }
    }
}

impl State {
    fn new(loaded: &Arc<Loaded>, shared: &Arc<Shared>) -> State {
        let (halt, waits) = (AtomicPtr::default(), AtomicBool::new(false));
        State { kept: UnsafeCell::new(None), loaded: loaded.clone(), marks: Marks::new(shared), halt, waits }
    }

    /// Runs the queue.
    fn perform(&self, run: &Run) {
        let shared = self.marks.shared();
        // SAFETY: see `State`.
        let kept = unsafe { &mut *self.kept.get() };
        let made = match kept.take() {
            Some(kept) => Ok(kept),
            None => Kept::new(shared),
        };
        match made {
            // The next run of it tries again.
            Err(fault) => run.fail(Failure { queue: self.loaded.queue, command: 0, fault }),
            Ok(made) => {
                let kept = kept.insert(made);
                self.begin(kept.halt_place());
                queue::run(shared, &self.loaded, run, kept, &self.marks);
            }
        }
        run.queue_ended();
    }

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
pub(super) fn perform(Job { queue, run }: Job) {
    if let Some(state) = run.kept::<State>(queue) {
        state.perform(&run);
    }
}

/// Runs the queue of a run that is one queue, on the calling thread: no thread has to be woken for it, and none when it is over.
pub(super) fn perform_here(run: &Run) {
    if run.queues.len() == 1
        && let Some(state) = run.kept::<State>(0)
        && state.waits.swap(false, Ordering::Acquire)
    {
        state.perform(run);
    }
}
