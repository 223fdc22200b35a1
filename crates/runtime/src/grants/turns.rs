//! The queue of runs that found no room on the devices. They wait for runs under way, of other sessions too, first come, first
//! served.
//!
//! A waiting run holds no variable, and no memory but the part that stays anyway. So runs under way come to their end. Runs that
//! come later wait behind it: none is overtaken for ever.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use plimsoll_base::{Error, Result};

use crate::cancellation::{self, Cancellation};

/// The result of an attempt that needs room.
pub(crate) enum Attempt<R> {
    /// Nothing: there was no room for it, and it did not start.
    NoRoom(Error),
    /// It was done, or cannot be done.
    Over(Result<R>),
}

impl<R> Attempt<R> {
    /// Of something that changes nothing where it finds no room.
    pub fn of(result: Result<R>) -> Attempt<R> {
        match result {
            Err(error) if error.is_no_room() => Attempt::NoRoom(error),
            other => Attempt::Over(other),
        }
    }
}

/// The queue of a [`crate::Devices`].
#[derive(Default)]
pub(crate) struct Turns {
    /// The number of waiters: every run looks at it.
    waiting: AtomicU32,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The next ticket, and the one whose turn it is.
    next: u64,
    first: u64,
    /// Tickets after `first` whose holders wait no longer.
    gone: BTreeSet<u64>,
    /// The number of runs that have ended while there were waiters.
    ends: u64,
}

impl State {
    /// The turn goes to the next waiter.
    fn pass_on(&mut self) {
        self.first += 1;
        while self.gone.remove(&self.first) {
            self.first += 1;
        }
    }
}

/// The sessions of the devices, as waiters see them.
pub(crate) trait Others {
    /// Whether a run has memory, or is about to take it.
    fn is_any_under_way(&self) -> bool;
    /// Gives idle arenas back.
    fn release_arenas(&self);
    /// Gives back the constants of the plan that was not used for longest, of those that no run uses. Whether there was one.
    fn release_constants(&self) -> bool;
    /// Gives back whatever no run needs now.
    fn release_all(&self);
}

impl Turns {
    /// Whether there is no waiter.
    pub fn is_free(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) == 0
    }

    /// A run has ended, and says so after it no longer counts as under way.
    pub fn ended(&self) {
        if !self.is_free() {
            self.state().ends += 1;
            self.changed.notify_all();
        }
    }

    /// Waits for its turn, and then makes attempts until one is over. An attempt follows every run that ends, and everything that is
    /// given back. The last one is made when no run is under way and nothing more can be given back. Then the next waiter has its
    /// turn.
    ///
    /// # Errors
    /// The error of the last attempt; the error of `cancellation`.
    pub fn wait<R>(&self, others: &dyn Others, cancellation: Option<&Cancellation>, mut attempt: impl FnMut() -> Attempt<R>) -> Result<R> {
        let mut turn = Some(self.turn(cancellation)?);
        let mut attempt = || {
            let attempt = attempt();
            if let Attempt::Over(_) = &attempt {
                turn = None;
                self.ended();
            }
            attempt
        };
        loop {
            let ends = self.state().ends;
            // The memory that this session keeps may be enough.
            if let Attempt::Over(result) = attempt() {
                return result;
            }
            let is_quiet = !others.is_any_under_way();
            others.release_arenas();
            loop {
                if let Attempt::Over(result) = attempt() {
                    return result;
                }
                if !others.release_constants() {
                    break;
                }
            }
            if is_quiet {
                others.release_all();
            }
            let error = match attempt() {
                Attempt::Over(result) => return result,
                Attempt::NoRoom(error) => error,
            };
            let mut state = self.state();
            if is_quiet && state.ends == ends && !others.is_any_under_way() {
                return Err(error);
            }
            while state.ends == ends && others.is_any_under_way() {
                state = cancellation::wait(&self.changed, state, cancellation);
                if let Some(error) = cancellation.and_then(Cancellation::error) {
                    drop(state);
                    return Err(error);
                }
            }
        }
    }

    fn turn(&self, cancellation: Option<&Cancellation>) -> Result<Turn<'_>> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut state = self.state();
        let ticket = state.next;
        state.next += 1;
        while state.first != ticket {
            state = cancellation::wait(&self.changed, state, cancellation);
            if let Some(error) = cancellation.and_then(Cancellation::error)
                && state.first != ticket
            {
                state.gone.insert(ticket);
                drop(state);
                self.waiting.fetch_sub(1, Ordering::SeqCst);
                return Err(error);
            }
        }
        Ok(Turn(self))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The first place in the queue; the next one's when dropped.
struct Turn<'a>(&'a Turns);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.state().pass_on();
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
        self.0.changed.notify_all();
    }
}
