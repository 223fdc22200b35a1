//! Runs that end early: because another thread says so, or at a time.
//!
//! The queues of a cancelled run give up before their next command, as after a failure. Waits for variables or room end too.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use plimsoll_base::{Code, Error, Result};
use plimsoll_device::Run;

/// How often a run that waits for variables or for room looks whether it was cancelled.
const LOOK: Duration = Duration::from_millis(10);

/// Ends runs early. Cloning shares it: all runs that were given it end, and those that are given it later do not start.
///
/// A run ends between two commands of a queue. Effects until then stay, as with a run that fails; a run whose commands are all done
/// has succeeded.
#[derive(Clone, Debug, Default)]
pub struct Cancellation(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    reason: Option<Reason>,
    /// Whether a run under way was ended.
    has_interrupted: bool,
    /// The runs under way.
    runs: Vec<Arc<Run>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    Cancelled,
    /// The time that runs had.
    TimedOut(Duration),
}

impl Cancellation {
    /// One that nothing has cancelled yet.
    pub fn new() -> Cancellation {
        Cancellation::default()
    }

    /// One that cancels its runs so long from now. They end with DEADLINE_EXCEEDED.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED where the system has no thread to wait for that time.
    pub fn after(time: Duration) -> Result<Cancellation> {
        let cancellation = Cancellation::new();
        let Some(deadline) = Instant::now().checked_add(time) else { return Ok(cancellation) };
        let shared = Arc::downgrade(&cancellation.0);
        let wait = move || wait_until(deadline, time, &shared);
        std::thread::Builder::new()
            .name("plimsoll-deadline".to_string())
            .spawn(wait)
            .map_err(|error| Error::new(Code::ResourceExhausted, format!("the system has no thread for a deadline: {error}")))?;
        Ok(cancellation)
    }

    /// Ends the runs under way, with CANCELLED. Does not wait for their end.
    pub fn cancel(&self) {
        self.0.end(Reason::Cancelled, true);
    }

    /// As [`Cancellation::cancel`], but runs under way come to their end. Runs that wait, and later ones, do not start.
    pub fn finish(&self) {
        self.0.end(Reason::Cancelled, false);
    }

    /// Whether a run under way was ended: it may have done a part of its work.
    pub fn has_interrupted(&self) -> bool {
        self.0.state().has_interrupted
    }

    /// How many runs under way it would end. A run that still waits for variables, room or its turn is none.
    pub fn runs_under_way(&self) -> usize {
        self.0.state().runs.len()
    }

    /// Why its runs end; none where they do not.
    pub fn error(&self) -> Option<Error> {
        self.0.state().reason.map(Reason::error)
    }

    /// Counts a run as under way until the guard is dropped.
    ///
    /// # Errors
    /// As [`Cancellation::error`]: the run must not start.
    pub(crate) fn watch<'a>(&'a self, run: &Arc<Run>) -> Result<Watched<'a>> {
        let mut state = self.0.state();
        if let Some(reason) = state.reason {
            return Err(reason.error());
        }
        state.runs.push(run.clone());
        Ok(Watched { cancellation: self, run: Arc::as_ptr(run) })
    }
}

/// A run that a [`Cancellation`] can end.
pub(crate) struct Watched<'a> {
    cancellation: &'a Cancellation,
    run: *const Run,
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        let run = self.run;
        self.cancellation.0.state().runs.retain(|other| !std::ptr::eq(Arc::as_ptr(other), run));
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first reason counts.
    fn end(&self, reason: Reason, ends_runs: bool) {
        let mut state = self.state();
        state.reason.get_or_insert(reason);
        if ends_runs {
            state.has_interrupted |= !state.runs.is_empty();
            state.runs.iter().for_each(|run| run.give_up());
        }
        self.changed.notify_all();
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.changed.notify_all();
    }
}

impl Reason {
    fn error(self) -> Error {
        match self {
            Reason::Cancelled => Error::cancelled("the run was cancelled"),
            Reason::TimedOut(time) => Error::new(Code::DeadlineExceeded, format!("the run was not done in {time:?}")),
        }
    }
}

/// Waits on a condition: for as long as it takes, or, where a run may be cancelled, for a while.
pub(crate) fn wait<'a, T>(changed: &Condvar, held: MutexGuard<'a, T>, cancellation: Option<&Cancellation>) -> MutexGuard<'a, T> {
    match cancellation {
        None => changed.wait(held).unwrap_or_else(PoisonError::into_inner),
        Some(_) => changed.wait_timeout(held, LOOK).unwrap_or_else(PoisonError::into_inner).0,
    }
}

/// Locks a mutex that others may hold for long.
///
/// # Errors
/// Why the wait was cancelled.
pub(crate) fn lock<'a, T>(mutex: &'a Mutex<T>, cancellation: Option<&Cancellation>) -> Result<MutexGuard<'a, T>> {
    let Some(cancellation) = cancellation else { return Ok(mutex.lock().unwrap_or_else(PoisonError::into_inner)) };
    loop {
        match mutex.try_lock() {
            Ok(guard) => return Ok(guard),
            Err(TryLockError::Poisoned(guard)) => return Ok(guard.into_inner()),
            Err(TryLockError::WouldBlock) => {}
        }
        if let Some(error) = cancellation.error() {
            return Err(error);
        }
        thread::sleep(LOOK);
    }
}

/// The threads whose waits for memory that other programs hold can be cancelled.
#[derive(Debug, Default)]
pub(crate) struct Asking(Mutex<Vec<(ThreadId, Cancellation)>>);

impl Asking {
    /// The waits of this thread end with `cancellation` until the guard is dropped.
    pub fn until(&self, cancellation: &Cancellation) -> Asked<'_> {
        self.list().push((thread::current().id(), cancellation.clone()));
        Asked(self)
    }

    /// Whether this thread may wait on.
    pub fn may_wait(&self) -> bool {
        let id = thread::current().id();
        self.list().iter().all(|(thread, cancellation)| *thread != id || cancellation.error().is_none())
    }

    fn list(&self) -> MutexGuard<'_, Vec<(ThreadId, Cancellation)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread of [`Asking`].
pub(crate) struct Asked<'a>(&'a Asking);

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let id = thread::current().id();
        let mut list = self.0.list();
        if let Some(position) = list.iter().rposition(|(thread, _)| *thread == id) {
            list.remove(position);
        }
    }
}

/// Waits for the deadline, as long as there is something to cancel.
fn wait_until(deadline: Instant, time: Duration, shared: &Weak<Shared>) {
    loop {
        let Some(shared) = shared.upgrade() else { return };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return shared.end(Reason::TimedOut(time), true);
        }
        let state = shared.state();
        if state.reason.is_some() {
            return;
        }
        // A second at most: the handle may be gone by then.
        let slept = shared.changed.wait_timeout(state, left.min(Duration::from_secs(1)));
        drop(slept);
    }
}
