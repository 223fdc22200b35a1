//! The threads of a device: one for each run that is under way, of which one computes at a time, with those of its card's other
//! logical devices.

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use plimsoll_base::Code;
use plimsoll_device::interpret::{Action, Bound, Loaded, NONE, Step, execute, is_wanted, next};
use plimsoll_device::{Bindings, Failure, Fault, Place, Run};
use plimsoll_memory::Address;

use crate::compute::Compute;
use crate::memory::{is_on_a_card, reach};

/// A queue of a run to be run.
pub(crate) struct Job {
    pub loaded: Arc<Loaded>,
    pub run: Arc<Run>,
}

/// The device's threads, made when they are needed and kept until it closes.
pub(crate) struct Streams {
    state: Mutex<State>,
    arrived: Condvar,
    /// Of the card.
    compute: Arc<Compute>,
    /// Of this device's commands among those of the card.
    priority: i32,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    /// Threads that wait for a job.
    idle: usize,
    threads: Vec<std::thread::JoinHandle<()>>,
    closed: bool,
}

/// The device's state for a queue of a run: its addresses, and the command that could not reach its arguments there.
struct Addresses {
    loaded: Arc<Loaded>,
    bound: UnsafeCell<(Bound, Option<u32>)>,
}

// SAFETY: `bound` is written by the thread that has the job, and there is one job at a time for a queue of a run: a run is
// submitted again only when it is over.
unsafe impl Sync for Addresses {}

impl Streams {
    /// Without threads yet.
    pub fn new(compute: &Arc<Compute>, priority: i32) -> Streams {
        Streams { state: Mutex::default(), arrived: Condvar::new(), compute: compute.clone(), priority }
    }

    /// Hands a job to a thread. Allocates only where there are more runs under way than ever before.
    pub fn push(self: &Arc<Streams>, job: Job) -> Result<(), &'static str> {
        if !job.loaded.fits(&job.run) {
            return Err("the run does not have the queues and blocks that the program names");
        }
        let mut state = self.state();
        if state.closed {
            return Err("the device is closed");
        }
        state.jobs.push_back(job);
        if state.idle < state.jobs.len() {
            let streams = self.clone();
            let thread = std::thread::Builder::new().name("plimsoll-sim".to_string()).spawn(move || streams.work());
            match thread {
                Ok(thread) => state.threads.push(thread),
                // The present threads may wait for the results of this job.
                Err(_) => {
                    state.jobs.pop_back();
                    return Err("the system has no thread for the device");
                }
            }
        }
        drop(state);
        self.arrived.notify_one();
        Ok(())
    }

    /// Ends the threads once they have done their jobs.
    pub fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        let threads = std::mem::take(&mut state.threads);
        drop(state);
        self.arrived.notify_all();
        threads.into_iter().for_each(|thread| drop(thread.join()));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut state = self.state();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                self.run(&job);
                // A run is handed back only when no thread has it any more.
                drop(job);
                state = self.state();
                continue;
            }
            if state.closed {
                return;
            }
            state.idle += 1;
            state = self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }

    fn run(&self, job: &Job) {
        let (loaded, run) = (&job.loaded, &*job.run);
        let kept = run.kept_or(loaded.queue, || Addresses { loaded: loaded.clone(), bound: UnsafeCell::default() });
        match kept.filter(|kept| Arc::ptr_eq(&kept.loaded, loaded)) {
            None => {
                let fault = Fault { code: Code::Internal, message: "the run was made for another program", numbers: [0, 0] };
                run.fail(Failure { queue: loaded.queue, command: 0, fault });
            }
            Some(addresses) => {
                // SAFETY: see `Addresses`.
                let (bound, refused) = unsafe { &mut *addresses.bound.get() };
                if bound.bind(loaded, &run.bindings, reach) {
                    *refused = beyond_reach(loaded, &run.bindings);
                }
                match *refused {
                    Some(command) => run.fail(Failure { queue: loaded.queue, command, fault: BEYOND_REACH }),
                    None => self.steps(loaded, run, bound),
                }
            }
        }
        run.queue_ended();
    }

    /// Whether a copy goes between the card and other memory.
    fn leaves(&self, loaded: &Loaded, run: &Run, step: &Step) -> bool {
        let is_here = |index: u32| is_on_a_card(run.bindings.base(loaded.pointers[index as usize].0));
        let mut ends = (step.args.0..step.args.0 + step.args.1).map(is_here);
        ends.any(|is_here| !is_here)
    }

    fn steps(&self, loaded: &Loaded, run: &Run, bound: &Bound) {
        let mut number = 0u32;
        while let Some(step) = loaded.steps.get(number as usize) {
            wait_for(loaded, run, step);
            if run.has_failed() {
                return;
            }
            let since = run.begins();
            let mut start = run.trace.as_ref().map(|trace| (trace, trace.now()));
            let turn = match step.action {
                Action::Copy { .. } if self.leaves(loaded, run, step) => self.compute.turn_at_link(self.priority),
                _ => self.compute.turn(self.priority),
            };
            // SAFETY: the pointers are those of this run, which is under way; the step's waits are over, and no other thread has
            // this queue. One thread takes all pieces, with the first slice of scratch.
            let (done, behind) = unsafe {
                let wanted = is_wanted(bound.pointers(), step);
                let done = if wanted { execute(run, bound.pointers(), step, 0..step.chunks, 0) } else { Ok(()) };
                start = start.filter(|_| wanted);
                (done, next(bound.pointers(), step, number, wanted))
            };
            drop(turn);
            run.was_busy(loaded.queue, since);
            if let Err(fault) = done {
                return run.fail(Failure { queue: loaded.queue, command: number, fault });
            }
            if let Some((trace, start)) = start {
                trace.record(loaded.queue, number, start);
            }
            number = behind;
            run.advance_round(loaded.queue, step.round, number);
        }
    }
}

/// The fault for an access that a real card could not make.
const BEYOND_REACH: Fault = Fault { code: Code::Internal, message: "a kernel of a card is given memory of the processor", numbers: [0, 0] };

/// The first command whose kernel would need values that are not in the memory of a card. States of operations are the
/// processor's: a card is told them with the call.
fn beyond_reach(loaded: &Loaded, bindings: &Bindings) -> Option<u32> {
    let is_reached = |index: u32| match loaded.pointers[index as usize].0 {
        Place::Variable(_) => true,
        place => {
            let base = bindings.base(place);
            // Buffers of no bytes may be all that lies in a place: it is nowhere then.
            base == Address::NULL || is_on_a_card(base)
        }
    };
    let is_fine = |step: &Step| {
        let args = match step.action {
            Action::Kernel { .. } => step.args.0..step.args.0 + step.args.1,
            // The condition of a loop is read as a guard is.
            Action::Copy { .. } | Action::Outside { .. } | Action::Jump { .. } => 0..0,
        };
        args.chain([step.scratch, step.worker.0, step.guard].into_iter().filter(|index| *index != NONE)).all(is_reached)
    };
    loaded.steps.iter().position(|step| !is_fine(step)).map(|position| position as u32)
}

/// Sleeps until the waits of the step are over, or the run has failed.
fn wait_for(loaded: &Loaded, run: &Run, step: &Step) {
    while let Some(wait) = loaded.unmet(run, step) {
        let ticket = run.bell().ticket();
        if run.has_failed() {
            return;
        }
        if !run.watch(loaded.queue, &wait) {
            run.bell().wait(ticket);
        }
    }
}
