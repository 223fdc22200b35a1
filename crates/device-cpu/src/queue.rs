//! A queue of a run: its state, its progress, and the pieces that other threads may take.

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use plimsoll_base::Code;
use plimsoll_device::interpret::{Bound, Loaded, Step, execute, is_wanted, next};
use plimsoll_device::{Awaited, Failure, Fault, Run, RunState};

use crate::offer::Offer;
use crate::pool::Crew;

/// Not submitted, or come to its end.
const IDLE: u32 = 0;
/// A thread writes its pointers.
const BINDING: u32 = 1;
/// Any thread may take it.
const READY: u32 = 2;
/// A thread runs it.
const CLAIMED: u32 = 3;

/// The pool's state for a queue of a run.
#[derive(Debug)]
pub(crate) struct CpuQueue {
    loaded: Arc<Loaded>,
    state: AtomicU32,
    bound: UnsafeCell<Bound>,
    offer: Offer,
}

impl RunState for CpuQueue {}

// SAFETY: `bound` is written by the thread that changed the state from IDLE to BINDING. It is read by threads that claimed the
// queue or took pieces of its offer; these are over before the state is IDLE again. The rest is Send.
unsafe impl Send for CpuQueue {}
// SAFETY: as above.
unsafe impl Sync for CpuQueue {}

/// Makes the queue of `run` ready, or fails the run.
pub(crate) fn submit(loaded: &Arc<Loaded>, run: &Run) {
    let refuse = |message| {
        run.fail(Failure { queue: loaded.queue, command: 0, fault: Fault { code: Code::Internal, message, numbers: [0, 0] } });
        run.queue_ended();
    };
    if !loaded.fits(run) {
        return refuse("the run does not have the queues and blocks that the program names");
    }
    let Some(queue) = run.kept_or(loaded.queue, || CpuQueue::new(loaded.clone())).filter(|queue| Arc::ptr_eq(&queue.loaded, loaded)) else {
        return refuse("the run was made for another program");
    };
    if queue.state.compare_exchange(IDLE, BINDING, Ordering::Acquire, Ordering::Relaxed).is_err() {
        return refuse("the program was submitted twice");
    }
    // SAFETY: the state is BINDING by our doing.
    let bound = unsafe { &mut *queue.bound.get() };
    // SAFETY: the buffers of a processor's program are in memory of this process; cards copy theirs here.
    bound.bind(loaded, &run.bindings, |address| unsafe { address.pointer() });
    queue.state.store(READY, Ordering::SeqCst);
}

impl CpuQueue {
    fn new(loaded: Arc<Loaded>) -> CpuQueue {
        CpuQueue { offer: Offer::new(loaded.threads), loaded, state: AtomicU32::new(IDLE), bound: UnsafeCell::default() }
    }

    /// Whether commands of the queue have several pieces.
    pub fn has_pieces(&self) -> bool {
        self.loaded.has_pieces
    }

    /// Claims the queue to run it, if it is unclaimed.
    pub fn claim(&self) -> bool {
        self.state.compare_exchange(READY, CLAIMED, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Whether the queue is unclaimed and something can be done in it.
    pub fn is_runnable(&self, run: &Run) -> bool {
        self.is_ready() && (run.has_failed() || self.blocked_by(run).is_none())
    }

    /// Whether the queue is unclaimed and not at its end.
    pub fn is_ready(&self) -> bool {
        self.state.load(Ordering::SeqCst) == READY
    }

    /// Whether a thread has the queue.
    pub fn is_claimed(&self) -> bool {
        self.state.load(Ordering::SeqCst) == CLAIMED
    }

    /// Whether there are pieces to take.
    pub fn offers_pieces(&self) -> bool {
        self.offer.is_open()
    }

    /// The wait of the next command, if it has to wait.
    pub fn blocked_by(&self, run: &Run) -> Option<Awaited> {
        let next = run.queues[self.loaded.queue as usize].finished();
        self.loaded.steps.get(next as usize).and_then(|step| self.loaded.unmet(run, step))
    }

    /// Runs the queue, which the caller has claimed, until it has to wait, it ends, or others need the thread more. `alone` says
    /// that no other thread could take pieces.
    pub fn run(&self, crew: &Crew<'_>, run: &Run, alone: bool) {
        let index = self.loaded.queue;
        let since = run.begins();
        let leave = || {
            run.was_busy(index, since);
            self.state.store(READY, Ordering::SeqCst);
        };
        let mut finished = run.queues[index as usize].finished();
        while let Some(step) = self.loaded.steps.get(finished as usize) {
            if run.has_failed() {
                break;
            }
            if step.waits.1 > 0 && self.loaded.unmet(run, step).is_some() {
                return leave();
            }
            let mut start = run.trace.as_ref().map(|trace| (trace, trace.now()));
            // SAFETY: the queue is claimed and the step's waits are over.
            let wanted = unsafe { is_wanted(self.pointers(), step) };
            if !wanted {
                // Passed over.
                start = None;
            } else if alone || step.chunks == 1 {
                // SAFETY: the queue is claimed and its waits are over; no other thread has pieces of the command.
                if let Err(fault) = unsafe { execute(run, self.pointers(), step, 0..step.chunks, 0) } {
                    run.fail(Failure { queue: index, command: finished, fault });
                    break;
                }
            } else {
                self.share(crew, run, finished, step);
                if run.has_failed() {
                    break;
                }
            }
            if let Some((trace, start)) = start {
                trace.record(index, finished, start);
            }
            // SAFETY: as above; the step is over.
            finished = unsafe { next(self.pointers(), step, finished, wanted) };
            if run.advance_round(index, step.round, finished) {
                crew.wake_workers();
            }
            if crew.is_needed_elsewhere() && (finished as usize) < self.loaded.steps.len() {
                return leave();
            }
        }
        run.was_busy(index, since);
        self.state.store(IDLE, Ordering::SeqCst);
        run.queue_ended();
    }

    /// Runs a command together with the threads that come to help.
    fn share(&self, crew: &Crew<'_>, run: &Run, command: u32, step: &Step) {
        self.offer.open(command, step.chunks);
        if step.wakes {
            crew.wake_for_pieces(run);
        }
        self.take_pieces(crew, run, false);
        let mut patience = crew.patience();
        while !self.offer.is_over(step.chunks) {
            if !patience.spin() {
                self.offer.sleep(step.chunks, crew.bell());
            }
        }
    }

    /// Takes pieces of the running command, if there are any. A helper leaves when a driver needs its permit. Returns whether
    /// there were some.
    pub fn take_pieces(&self, crew: &Crew<'_>, run: &Run, helper: bool) -> bool {
        let mut some = false;
        // The slice of scratch that was handed out to us, and for which command.
        let mut mine: Option<(u32, u32)> = None;
        while let Some((command, pieces)) = self.offer.take(crew.thread) {
            some = true;
            let step = &self.loaded.steps[command as usize];
            let mut count = pieces.len() as u32;
            let slice = match mine {
                _ if !step.few_slices => crew.thread,
                Some((known, slice)) if known == command => slice,
                _ => mine.insert((command, self.offer.slice())).1,
            };
            let at_once = if self.offer.is_backward() { 1 } else { count };
            let mut parts = pieces.step_by(at_once as usize).rev().map(|first| first..first + at_once);
            // SAFETY: the pieces and the slice are ours alone, and the command is not over before they are counted as done below.
            if let Err(fault) = unsafe { parts.try_for_each(|pieces| execute(run, self.pointers(), step, pieces, slice)) } {
                run.fail(Failure { queue: self.loaded.queue, command, fault });
                count += self.offer.withdraw();
            }
            self.offer.done(count, step.chunks, crew.bell());
            if helper && crew.is_needed_elsewhere() {
                break;
            }
        }
        some
    }

    /// The addresses. Only for a thread that claimed the queue, or took pieces that are not counted as done.
    fn pointers(&self) -> &[*mut u8] {
        // SAFETY: they are not written before the queue is IDLE, which it is not while the caller has it or its pieces.
        unsafe { (*self.bound.get()).pointers() }
    }
}
