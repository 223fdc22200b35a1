//! The threads of a device that computes apart from its callers: one for each run that is under way. What a command does, and whether
//! several may at once, is the device's.

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use plimsoll_base::Code;
use plimsoll_memory::Address;

use super::{Bound, Loaded, Step, is_wanted, next};
use crate::{Bindings, Executable, Failure, Fault, Run};

/// How a device runs the commands of its queues.
pub trait Engine: Send + Sync + 'static {
    /// The name of its threads.
    const THREAD: &'static str;

    /// Why no program can be run, where that is so.
    fn obstacle(&self) -> Option<Fault>;

    /// The pointer that stands for an address in [`Engine::execute`].
    fn reach(&self, address: Address) -> *mut u8;

    /// The first command whose arguments the device cannot reach, where one is, and why. Asked again when blocks have moved.
    fn refuse(&self, loaded: &Loaded, bindings: &Bindings) -> Option<(u32, Fault)>;

    /// Runs a command.
    ///
    /// # Safety
    /// The pointers are those of this run, which is under way, by [`Engine::reach`]. The step's waits are over, and no other thread
    /// has its queue.
    ///
    /// # Errors
    /// Why it failed.
    unsafe fn execute(&self, loaded: &Loaded, run: &Run, pointers: &[*mut u8], step: &Step) -> Result<(), Fault>;
}

/// A device's threads, made when they are needed and kept until it closes.
pub struct Streams<E> {
    engine: E,
    state: Mutex<State>,
    arrived: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    /// Threads that wait for a job.
    idle: usize,
    threads: Vec<std::thread::JoinHandle<()>>,
    closed: bool,
}

/// A queue of a run to be run.
struct Job {
    loaded: Arc<Loaded>,
    run: Arc<Run>,
}

/// The device's state for a queue of a run: its addresses, and the command that could not reach its arguments there.
struct Addresses {
    loaded: Arc<Loaded>,
    bound: UnsafeCell<(Bound, Option<(u32, Fault)>)>,
}

// SAFETY: `bound` is written by the thread that has the job, and there is one job at a time for a queue of a run: a run is
// submitted again only when it is over.
unsafe impl Sync for Addresses {}

impl<E: Engine> Streams<E> {
    /// Without threads yet.
    pub fn new(engine: E) -> Arc<Streams<E>> {
        Arc::new(Streams { engine, state: Mutex::default(), arrived: Condvar::new() })
    }

    /// How the device runs commands.
    pub fn engine(&self) -> &E {
        &self.engine
    }

    /// A program that runs on these threads.
    pub fn executable(self: &Arc<Streams<E>>, loaded: Loaded) -> Box<dyn Executable> {
        Box::new(OnStreams { loaded: Arc::new(loaded), streams: self.clone() })
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

    /// Hands a job to a thread. Allocates only where there are more runs under way than ever before.
    fn push(self: &Arc<Streams<E>>, job: Job) -> Result<(), Fault> {
        let internal = |message| Err(Fault { code: Code::Internal, message, numbers: [0, 0] });
        if let Some(obstacle) = self.engine.obstacle() {
            return Err(obstacle);
        }
        if !job.loaded.fits(&job.run) {
            return internal("the run does not have the queues and blocks that the program names");
        }
        let mut state = self.state();
        if state.closed {
            return internal("the device is closed");
        }
        state.jobs.push_back(job);
        if state.idle < state.jobs.len() {
            let streams = self.clone();
            let thread = std::thread::Builder::new().name(E::THREAD.to_string()).spawn(move || streams.work());
            match thread {
                Ok(thread) => state.threads.push(thread),
                // The present threads may wait for the results of this job.
                Err(_) => {
                    state.jobs.pop_back();
                    return internal("the system has no thread for the device");
                }
            }
        }
        drop(state);
        self.arrived.notify_one();
        Ok(())
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
                if bound.bind(loaded, &run.bindings, |address| self.engine.reach(address)) {
                    *refused = self.engine.refuse(loaded, &run.bindings);
                }
                match *refused {
                    Some((command, fault)) => run.fail(Failure { queue: loaded.queue, command, fault }),
                    None => self.steps(loaded, run, bound),
                }
            }
        }
        run.queue_ended();
    }

    fn steps(&self, loaded: &Loaded, run: &Run, bound: &Bound) {
        let mut number = 0u32;
        while let Some(step) = loaded.steps.get(number as usize) {
            wait_for(loaded, run, step);
            if run.has_failed() {
                return;
            }
            let since = run.begins();
            let start = run.trace.as_ref().map(|trace| (trace, trace.now()));
            // SAFETY: the pointers are those of this run, which is under way; the step's waits are over, and no other thread has
            // this queue.
            let (wanted, done, behind) = unsafe {
                let wanted = is_wanted(bound.pointers(), step);
                let done = if wanted { self.engine.execute(loaded, run, bound.pointers(), step) } else { Ok(()) };
                (wanted, done, next(bound.pointers(), step, number, wanted))
            };
            run.was_busy(loaded.queue, since);
            if let Err(fault) = done {
                return run.fail(Failure { queue: loaded.queue, command: number, fault });
            }
            if let Some((trace, start)) = start.filter(|_| wanted) {
                trace.record(loaded.queue, number, start);
            }
            number = behind;
            run.advance_round(loaded.queue, step.round, number);
        }
    }
}

/// A program prepared for a device's threads.
struct OnStreams<E> {
    loaded: Arc<Loaded>,
    streams: Arc<Streams<E>>,
}

impl<E: Engine> Executable for OnStreams<E> {
    fn submit(&self, run: &Arc<Run>) {
        if let Err(fault) = self.streams.push(Job { loaded: self.loaded.clone(), run: run.clone() }) {
            run.fail(Failure { queue: self.loaded.queue, command: 0, fault });
            run.queue_ended();
        }
    }
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
