//! Programs on the threads of a device that computes apart from its callers. What a command does, and whether several may at once, is
//! the device's.

use std::cell::UnsafeCell;
use std::sync::Arc;

use plimsoll_base::Code;
use plimsoll_memory::Address;

use super::{Bound, Loaded, Step, is_wanted, next};
use crate::{Bindings, Executable, Failure, Fault, Run, RunState, Threads};

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

/// The programs of a device that has threads of its own.
pub struct Streams<E> {
    engine: Arc<E>,
    threads: Arc<Threads<Job>>,
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

impl RunState for Addresses {}

impl<E: Engine> Streams<E> {
    /// Without threads yet.
    pub fn new(engine: E) -> Streams<E> {
        let engine = Arc::new(engine);
        let threads = Threads::new(E::THREAD, {
            let engine = engine.clone();
            move |job| run(&*engine, &job)
        });
        Streams { engine, threads }
    }

    /// How the device runs commands.
    pub fn engine(&self) -> &E {
        &self.engine
    }

    /// A program that runs on these threads.
    pub fn executable(&self, loaded: Loaded) -> Box<dyn Executable> {
        Box::new(OnStreams { loaded: Arc::new(loaded), engine: self.engine.clone(), threads: self.threads.clone() })
    }

    /// Ends the threads once they have done their jobs.
    pub fn close(&self) {
        self.threads.close();
    }
}

fn run<E: Engine>(engine: &E, job: &Job) {
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
            if bound.bind(loaded, &run.bindings, |address| engine.reach(address)) {
                *refused = engine.refuse(loaded, &run.bindings);
            }
            match *refused {
                Some((command, fault)) => run.fail(Failure { queue: loaded.queue, command, fault }),
                None => steps(engine, loaded, run, bound),
            }
        }
    }
    run.queue_ended();
}

fn steps<E: Engine>(engine: &E, loaded: &Loaded, run: &Run, bound: &Bound) {
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
            let done = if wanted { engine.execute(loaded, run, bound.pointers(), step) } else { Ok(()) };
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

/// A program prepared for a device's threads.
struct OnStreams<E> {
    loaded: Arc<Loaded>,
    engine: Arc<E>,
    threads: Arc<Threads<Job>>,
}

impl<E: Engine> OnStreams<E> {
    /// Hands the run to a thread.
    fn start(&self, run: &Arc<Run>) -> Result<(), Fault> {
        let internal = |message| Fault { code: Code::Internal, message, numbers: [0, 0] };
        if let Some(obstacle) = self.engine.obstacle() {
            return Err(obstacle);
        }
        if !self.loaded.fits(run) {
            return Err(internal("the run does not have the queues and blocks that the program names"));
        }
        self.threads.push(Job { loaded: self.loaded.clone(), run: run.clone() }).map_err(internal)
    }
}

impl<E: Engine> Executable for OnStreams<E> {
    fn submit(&self, run: &Arc<Run>) {
        if let Err(fault) = self.start(run) {
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
