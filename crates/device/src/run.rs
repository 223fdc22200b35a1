//! One run of a plan: where everything lies, and how far the queues are.

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use plimsoll_memory::Address;

use crate::{Awaited, Bell, Fault, Place, Round, Trace};

/// Addresses of the blocks that a program names, in the order of the numbers in [`Place`]. Each is an address of the device in
/// whose memory the block lies. Fed and fetched tensors, flags, and constants that are only copied from are the host's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bindings {
    /// One arena for each device of the plan.
    pub arenas: Vec<Address>,
    /// Storage of variables.
    pub variables: Vec<Address>,
    /// Their initialised flags.
    pub flags: Vec<Address>,
    /// Constants. Never written.
    pub constants: Vec<Address>,
    /// Fed tensors. Never written.
    pub feeds: Vec<Address>,
    /// Fetched tensors.
    pub fetches: Vec<Address>,
}

impl Bindings {
    /// The address of a block; `None` where the table has no such entry.
    pub fn get(&self, place: Place) -> Option<Address> {
        let (table, index) = match place {
            Place::Arena(index) => (&self.arenas, index),
            Place::Variable(index) => (&self.variables, index),
            Place::VariableFlag(index) => (&self.flags, index),
            Place::Constant(index) => (&self.constants, index),
            Place::Feed(index) => (&self.feeds, index),
            Place::Fetch(index) => (&self.fetches, index),
        };
        table.get(index as usize).copied()
    }

    /// The address of a block. Panics where the table has no such entry.
    pub fn base(&self, place: Place) -> Address {
        match self.get(place) {
            Some(base) => base,
            None => panic!("the bindings have no {place:?}"),
        }
    }
}

/// Files: memory that runs read and write and that is no device's. One for each run that is under way.
pub trait Outside: Send + Sync + std::fmt::Debug {
    /// Does the plan's call of this number. `inputs`, `outputs` and `scratch` are the command's; no other thread uses them
    /// meanwhile.
    ///
    /// # Errors
    /// A fault; the maker of the run may know more of it.
    fn perform(&self, call: u32, inputs: &[&[u8]], outputs: &mut [&mut [u8]], scratch: &mut [u8]) -> Result<(), Fault>;
}

/// How far a run is, shared by the devices that take part in it. One is made when a plan is loaded and used again and again:
/// [`Run::alone`], write `bindings`, [`Run::restart`]; submit every queue; drive.
#[derive(Debug)]
pub struct Run {
    /// Where everything lies. Written only between runs, by the thread that has the run alone. Until the run is over the blocks
    /// stay valid, and no thread uses them against the plan.
    pub bindings: Bindings,
    /// For each queue the number of commands finished.
    pub queues: Vec<Progress>,
    /// The trace in which devices record when commands ran, if one was asked for.
    pub trace: Option<Trace>,
    /// Whether devices say how long they were busy. Written as `bindings` is.
    pub is_timed: bool,
    /// Does the commands that are [`crate::Work::Outside`]. Written as `bindings` is.
    pub outside: Option<Arc<dyn Outside>>,
    states: Vec<QueueState>,
    bell: Bell,
    failed: AtomicBool,
    failure: Mutex<Option<Failure>>,
    unfinished: AtomicU32,
}

/// State that a device keeps with a queue of a run, from one use of the run to the next.
pub trait RunState: Any + Send + Sync {
    /// The run has failed or is given up, as [`Run::has_failed`] says from now on. Called by any thread, and more than once. A device that
    /// makes its state meanwhile is not called: it looks at [`Run::has_failed`] behind a fence.
    fn run_ends_early(&self) {}
}

#[derive(Default)]
struct QueueState(OnceLock<Box<dyn RunState>>);

impl std::fmt::Debug for QueueState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.get().is_some() { "set" } else { "empty" })
    }
}

/// Progress of a queue, alone on its cache line.
#[derive(Debug)]
#[repr(align(64))]
pub struct Progress {
    /// Commands that have finished, in the lower half; above them the turn in a loop of several queues. Partners see both at once.
    at: AtomicU64,
    /// The smallest number of finished commands that a thread sleeps for, or [`NO_WAITER`].
    wake_at: AtomicU32,
    /// Of a queue whose thread sleeps: the commands that it could record as finished, and has not; 0 for none.
    unrecorded: AtomicU32,
    /// Nanoseconds for which the queue was advanced.
    busy_ns: AtomicU64,
}

/// The mark of a queue without a sleeping thread.
const NO_WAITER: u32 = u32::MAX;

impl Default for Progress {
    fn default() -> Progress {
        Progress { at: AtomicU64::new(0), wake_at: AtomicU32::new(NO_WAITER), unrecorded: AtomicU32::new(0), busy_ns: AtomicU64::new(0) }
    }
}

impl Progress {
    /// Commands that have finished. In a loop the number falls back to that of the first command of its body.
    pub fn finished(&self) -> u32 {
        // The lower half.
        self.at.load(Ordering::Acquire) as u32
    }

    fn position(&self) -> (u32, u32) {
        let at = self.at.load(Ordering::SeqCst);
        (at as u32, (at >> 32) as u32)
    }
}

/// The command that failed, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The queue.
    pub queue: u32,
    /// The command in it; 0 in a queue without commands. The last one that was begun, where a device fails that runs many at once.
    pub command: u32,
    /// Why.
    pub fault: Fault,
}

impl Run {
    /// A run of a plan with that many queues, over already: [`Run::restart`] comes before its first use, too.
    pub fn new(queues: usize, bindings: Bindings) -> Run {
        Run {
            bindings,
            queues: (0..queues).map(|_| Progress::default()).collect(),
            trace: None,
            is_timed: false,
            outside: None,
            states: (0..queues).map(|_| QueueState::default()).collect(),
            bell: Bell::new(),
            failed: AtomicBool::new(false),
            failure: Mutex::new(None),
            unfinished: AtomicU32::new(0),
        }
    }

    /// The run for the thread that has it alone, to bind and restart. A device may keep a reference for a moment after the run is
    /// over; it is waited for. The caller has no other reference, strong or weak, and the run is over.
    pub fn alone(run: &mut Arc<Run>) -> &mut Run {
        while Arc::get_mut(run).is_none() {
            std::thread::yield_now();
        }
        match Arc::get_mut(run) {
            Some(run) => run,
            None => unreachable!("nobody but the caller could have made a reference"),
        }
    }

    /// Back to the start. Only for the thread that has the run alone.
    pub fn restart(&mut self) {
        for progress in &mut self.queues {
            *progress.at.get_mut() = 0;
            *progress.wake_at.get_mut() = NO_WAITER;
            *progress.unrecorded.get_mut() = 0;
            *progress.busy_ns.get_mut() = 0;
        }
        *self.failed.get_mut() = false;
        *self.failure.get_mut().unwrap_or_else(PoisonError::into_inner) = None;
        *self.unfinished.get_mut() = self.queues.len() as u32;
        if let Some(trace) = &mut self.trace {
            trace.restart();
        }
    }

    /// Whether every queue has come to its end, by finishing or by giving up.
    pub fn is_over(&self) -> bool {
        self.unfinished.load(Ordering::Acquire) == 0
    }

    /// Called by a device once for each queue, after which it does not touch the run's blocks any more. Returns whether it
    /// was the last queue.
    pub fn queue_ended(&self) -> bool {
        let unfinished = self.unfinished.fetch_sub(1, Ordering::SeqCst);
        debug_assert_ne!(unfinished, 0, "a run is restarted before it is submitted");
        let last = unfinished == 1;
        if last {
            self.ring();
        }
        last
    }

    /// Records that `queue` has finished its first `finished` commands, and wakes the driver if it waits for that. Returns whether
    /// a thread waits for that. Called by the device whose queue it is. In a loop the number falls back to that of the first command of
    /// its body; otherwise numbers grow.
    pub fn advance(&self, queue: u32, finished: u32) -> bool {
        self.advance_in(queue, self.turn(queue), finished)
    }

    /// As [`Run::advance`], behind a command that does `round` to the queue's turn. Before it the queue has said that the commands up to
    /// the end of a body have finished: partners that wait for these are woken then.
    pub fn advance_round(&self, queue: u32, round: Round, finished: u32) -> bool {
        let now = self.turn(queue);
        let goes_back = finished <= self.queues[queue as usize].finished();
        self.advance_in(queue, round.turn(now, goes_back), finished)
    }

    /// The iterations that a queue has begun anew in the loop of several queues that it is in. Only the queue itself uses it.
    pub fn turn(&self, queue: u32) -> u32 {
        (self.queues[queue as usize].at.load(Ordering::Relaxed) >> 32) as u32
    }

    fn advance_in(&self, queue: u32, turn: u32, finished: u32) -> bool {
        let progress = &self.queues[queue as usize];
        let at = u64::from(turn) << 32 | u64::from(finished);
        if self.queues.len() == 1 {
            // No other queue: no thread waits.
            progress.at.store(at, Ordering::Release);
            return false;
        }
        progress.at.store(at, Ordering::SeqCst);
        let reached = finished >= progress.wake_at.load(Ordering::SeqCst);
        if reached {
            // A watcher whose mark is lost here took its ticket before the ring.
            progress.wake_at.store(NO_WAITER, Ordering::SeqCst);
            self.ring();
        }
        reached
    }

    /// When a device begins to advance a queue: for [`Run::was_busy`]. None where no trace was asked for.
    pub fn begins(&self) -> Option<Instant> {
        self.is_timed.then(Instant::now)
    }

    /// Records that the device advanced `queue` until now. Called before another thread may go on with the queue.
    pub fn was_busy(&self, queue: u32, since: Option<Instant>) {
        if let Some(since) = since {
            let nanoseconds = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.queues[queue as usize].busy_ns.fetch_add(nanoseconds, Ordering::Relaxed);
        }
    }

    /// How long `queue` was advanced, of a run that is over and was timed: the rest of the run's time it waited for other
    /// queues, or for a thread.
    pub fn busy(&self, queue: u32) -> Duration {
        Duration::from_nanos(self.queues[queue as usize].busy_ns.load(Ordering::Relaxed))
    }

    /// Whether the progress that a wait of `queue` asks for has been made.
    pub fn has_reached(&self, queue: u32, awaited: &Awaited) -> bool {
        let (finished, theirs) = self.queues[awaited.wait.queue as usize].position();
        awaited.is_reached(finished, theirs, self.turn(queue))
    }

    /// Asks for the bell to be rung when a wait of `queue` has happened. Returns whether it has happened already. For a thread that
    /// took a ticket of the bell before and looks at the run again after every ring.
    pub fn watch(&self, queue: u32, awaited: &Awaited) -> bool {
        let theirs = &self.queues[awaited.wait.queue as usize];
        theirs.wake_at.fetch_min(awaited.wait.commands, Ordering::SeqCst);
        if awaited.wait.commands <= theirs.unrecorded.load(Ordering::SeqCst) {
            self.ring();
        }
        self.has_reached(queue, awaited)
    }

    /// Whether a thread waits for the record that `queue` has finished so many commands, or fewer.
    pub fn is_awaited(&self, queue: u32, finished: u32) -> bool {
        finished >= self.queues[queue as usize].wake_at.load(Ordering::SeqCst)
    }

    /// Says that the thread of `queue` is about to sleep, and could record so many commands when it is asked: the bell rings when a thread
    /// begins to wait for them ([`Run::is_awaited`]). 0 ends that.
    pub fn leaves_unrecorded(&self, queue: u32, commands: u32) {
        self.queues[queue as usize].unrecorded.store(commands, Ordering::SeqCst);
    }

    /// A number that is another one whenever a queue has advanced.
    pub fn progress(&self) -> u64 {
        self.queues.iter().fold(0, |sum, progress| sum.wrapping_mul(31).wrapping_add(progress.at.load(Ordering::SeqCst)))
    }

    /// The bell on which the driving thread of the run sleeps.
    pub fn bell(&self) -> &Bell {
        &self.bell
    }

    /// Wakes the driving thread of the run, to look at it again.
    pub fn ring(&self) {
        self.bell.ring();
    }

    /// Sleeps until the run is over: the `drive` of a device that computes elsewhere.
    pub fn wait_over(&self) {
        loop {
            let ticket = self.bell.ticket();
            if self.is_over() {
                return;
            }
            self.bell.wait(ticket);
        }
    }

    /// The state that the device of `queue` keeps with it, made at first use and kept when the run is restarted. `None` where
    /// another type is kept already.
    pub fn kept_or<T: RunState>(&self, queue: u32, make: impl FnOnce() -> T) -> Option<&T> {
        let kept: &dyn Any = &**self.states[queue as usize].0.get_or_init(|| Box::new(make()));
        kept.downcast_ref()
    }

    /// The state that the device of `queue` keeps with it, if it is a `T`.
    pub fn kept<T: RunState>(&self, queue: u32) -> Option<&T> {
        let kept: &dyn Any = &**self.states[queue as usize].0.get()?;
        kept.downcast_ref()
    }

    /// Ends the run early; the first failure is kept. Queues give up before their next command.
    pub fn fail(&self, failure: Failure) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
        self.give_up();
    }

    /// Ends the run early without a failure. Queues give up before their next command; those that are done stay done.
    pub fn give_up(&self) {
        self.failed.store(true, Ordering::SeqCst);
        // A device that keeps something from now on looks at `failed` behind a fence of its own.
        fence(Ordering::SeqCst);
        self.states.iter().filter_map(|state| state.0.get()).for_each(|kept| kept.run_ends_early());
        self.ring();
    }

    /// Whether some command failed, or the run is to end early.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::SeqCst)
    }

    /// The first failure.
    pub fn failure(&self) -> Option<Failure> {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Wait;

    #[test]
    fn keeps_the_first_failure_and_forgets_it() {
        let mut run = Run::new(2, Bindings::default());
        assert!(run.is_over());
        run.restart();
        assert!(!run.is_over() && !run.has_failed());
        let fault = Fault::invalid("index {0} of {1}", [3, 2]);
        run.fail(Failure { queue: 1, command: 4, fault });
        run.fail(Failure { queue: 0, command: 0, fault });
        assert_eq!(run.failure(), Some(Failure { queue: 1, command: 4, fault }));
        assert!(!run.queue_ended());
        assert!(run.queue_ended());
        assert!(run.is_over());
        run.restart();
        assert_eq!((run.has_failed(), run.failure()), (false, None));
    }

    #[test]
    fn a_watcher_is_woken_when_the_mark_is_reached() {
        let mut run = Run::new(2, Bindings::default());
        run.restart();
        let bell = run.bell();
        let awaited = Awaited { wait: Wait { queue: 1, commands: 2 }, within: None };
        assert!(!run.watch(0, &awaited));
        let ticket = bell.ticket();
        assert!(!run.advance(1, 1));
        assert_eq!(bell.ticket(), ticket);
        assert!(run.advance(1, 2));
        assert_ne!(bell.ticket(), ticket);
        assert!(run.has_reached(0, &awaited) && run.watch(0, &awaited));
    }

    #[test]
    fn a_queue_that_sleeps_hears_of_those_that_wait_for_what_it_could_record() {
        let mut run = Run::new(2, Bindings::default());
        run.restart();
        let awaited = Awaited { wait: Wait { queue: 1, commands: 2 }, within: None };
        let ticket = run.bell().ticket();
        assert!(!run.watch(0, &awaited) && !run.is_awaited(1, 1) && run.is_awaited(1, 2));
        assert_eq!(run.bell().ticket(), ticket);
        run.leaves_unrecorded(1, 1);
        assert!(!run.watch(0, &awaited));
        assert_eq!(run.bell().ticket(), ticket);
        run.leaves_unrecorded(1, 2);
        assert!(!run.watch(0, &awaited));
        assert_ne!(run.bell().ticket(), ticket);
        run.restart();
        assert!(!run.is_awaited(1, 2));
    }

    #[test]
    fn waits_for_a_device_that_still_holds_the_run() {
        let mut run = Arc::new(Run::new(1, Bindings::default()));
        Run::alone(&mut run).restart();
        let device = run.clone();
        let thread = std::thread::spawn(move || {
            device.advance(0, 1);
            device.queue_ended();
        });
        run.wait_over();
        assert_eq!(Run::alone(&mut run).queues[0].finished(), 1);
        thread.join().unwrap();
    }

    #[test]
    fn a_queue_keeps_its_first_state() {
        let run = Run::new(1, Bindings::default());
        assert!(run.kept::<Ends>(0).is_none());
        assert!(run.kept_or(0, || Ends(AtomicU32::new(7))).is_some());
        let kept = run.kept_or(0, || Ends(AtomicU32::new(8))).expect("it is kept");
        assert_eq!(kept.0.load(Ordering::SeqCst), 7);
        assert!(run.kept_or(0, || Other).is_none());
    }

    struct Ends(AtomicU32);
    impl RunState for Ends {
        fn run_ends_early(&self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    struct Other;
    impl RunState for Other {}

    #[test]
    fn what_devices_keep_hears_of_a_run_that_ends_early() {
        let run = Run::new(2, Bindings::default());
        run.give_up();
        let kept = run.kept_or(1, || Ends(AtomicU32::new(0))).expect("it is kept");
        run.give_up();
        run.fail(Failure { queue: 0, command: 0, fault: Fault::invalid("no", [0, 0]) });
        assert_eq!(kept.0.load(Ordering::SeqCst), 2);
    }
}
