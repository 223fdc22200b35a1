//! How far a queue has pushed its commands, for queues on other streams: these wait on their card, by an event, and not on the host.
//!
//! A queue announces commands that it has pushed when none of them can fail any more, and when all that the host has to do for them is
//! done. So only work of the card is behind an event. Events wait for what was pushed before alone: no order of queues can make
//! cards wait for each other. A processor's queue waits for commands that have run, as ever.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use plimsoll_device::{Awaited, Run};

use super::queue::Shared;
use crate::driver::{Context, Event, Trouble};

/// The mark of a queue that no thread waits for.
const NO_WAITER: u32 = u32::MAX;

/// Of a queue in one run.
#[derive(Debug)]
pub(super) struct Marks {
    shared: Arc<Shared>,
    /// Commands that were announced, in the lower half; above them the turn in a loop of several queues.
    pushed: AtomicU64,
    /// The fewest commands that a thread waits for.
    awaited: AtomicU32,
    /// Of a queue whose thread sleeps: the commands that it pushed, where it has not announced all of them; else 0.
    unannounced: AtomicU32,
    event: OnceLock<Event>,
}

impl Marks {
    pub fn new(shared: &Arc<Shared>) -> Marks {
        let (pushed, awaited, unannounced) = (AtomicU64::new(0), AtomicU32::new(NO_WAITER), AtomicU32::new(0));
        Marks { shared: shared.clone(), pushed, awaited, unannounced, event: OnceLock::new() }
    }

    /// What the queue's device has.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Whether a device's streams can be ordered behind this queue: one driver has both.
    pub fn is_of(&self, other: &Shared) -> bool {
        Arc::ptr_eq(&self.shared.context.driver, &other.context.driver)
    }

    /// Before the queue's first command. The calling thread is in the card's context.
    pub fn begin(&self) -> Result<(), Trouble> {
        if self.event.get().is_none() {
            let event = Event::new(&self.shared.context.driver)?;
            // The queue has one thread at a time.
            let _ = self.event.set(event);
        }
        Ok(())
    }

    /// Announces the first `commands` commands, in this turn, and wakes threads that wait for them.
    pub fn announce(&self, run: &Run, turn: u32, commands: u32) {
        self.pushed.store(u64::from(turn) << 32 | u64::from(commands), Ordering::SeqCst);
        if self.is_awaited(commands) {
            // A thread whose number is lost here took its ticket before the ring.
            self.awaited.store(NO_WAITER, Ordering::SeqCst);
            run.ring();
        }
    }

    /// Whether a thread waits for so many commands, or fewer.
    pub fn is_awaited(&self, commands: u32) -> bool {
        self.awaited.load(Ordering::SeqCst) <= commands
    }

    /// Behind the last command, of which the run has been told.
    pub fn end(&self, run: &Run) {
        self.announce(run, 0, 0);
        if self.awaited.swap(NO_WAITER, Ordering::SeqCst) != NO_WAITER {
            run.ring();
        }
    }

    /// Asks to be woken when so many commands are announced. The caller took a ticket of the run's bell before, and looks again behind.
    pub fn watch(&self, run: &Run, commands: u32) {
        self.awaited.fetch_min(commands, Ordering::SeqCst);
        if commands <= self.unannounced.load(Ordering::SeqCst) {
            run.ring();
        }
    }

    /// As [`Run::leaves_unrecorded`], for threads that ask here.
    pub fn leaves_unannounced(&self, commands: u32) {
        self.unannounced.store(commands, Ordering::SeqCst);
    }

    /// Lets a stream wait for these commands on its card, if they were announced. `turn` is that of the queue that waits. A stream has
    /// what it was given in order: the queue's own stream waits for nothing. An error comes with the card that said it.
    pub fn order<'a>(&'a self, on: &'a Shared, awaited: &Awaited, turn: u32) -> Result<bool, (&'a Context, Trouble)> {
        let pushed = self.pushed.load(Ordering::SeqCst);
        let Some(event) = self.event.get().filter(|_| awaited.is_reached(pushed as u32, (pushed >> 32) as u32, turn)) else {
            return Ok(false);
        };
        if !std::ptr::eq(&*self.shared, on) {
            event.record(&self.shared.stream).map_err(|trouble| (&*self.shared.context, trouble))?;
            on.stream.wait(event).map_err(|trouble| (&*on.context, trouble))?;
        }
        Ok(true)
    }
}
