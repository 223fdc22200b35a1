//! Waiters for room under a line, and how they learn that there may be some.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Rung where something under a line was given back. Without listeners that costs a load.
#[derive(Debug, Default)]
pub(crate) struct Room {
    listeners: AtomicUsize,
    rings: Mutex<u64>,
    rung: Condvar,
}

/// A listener that looks for room, and misses nothing that is given back from now on.
#[derive(Debug)]
pub struct Listener<'a> {
    room: &'a Room,
    heard: u64,
}

impl Room {
    /// Says that something was given back: called after it was.
    pub fn ring(&self) {
        if self.listeners.load(Ordering::SeqCst) > 0 {
            *self.rings() += 1;
            self.rung.notify_all();
        }
    }

    /// Begins to listen. A listener looks for room once more before it waits.
    pub fn listen(&self) -> Listener<'_> {
        self.listeners.fetch_add(1, Ordering::SeqCst);
        Listener { room: self, heard: *self.rings() }
    }

    fn rings(&self) -> MutexGuard<'_, u64> {
        self.rings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listener<'_> {
    /// Sleeps until something was given back since this was last called, or since the beginning; not beyond `until`.
    pub fn wait(&mut self, until: Instant) {
        let rings = self.room.rings();
        let left = until.saturating_duration_since(Instant::now());
        let heard = self.heard;
        let (rings, _) = self.room.rung.wait_timeout_while(rings, left, |rings| *rings == heard).unwrap_or_else(PoisonError::into_inner);
        self.heard = *rings;
    }
}

impl Drop for Listener<'_> {
    fn drop(&mut self) {
        self.room.listeners.fetch_sub(1, Ordering::SeqCst);
    }
}
