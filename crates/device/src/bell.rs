//! How a thread that has nothing to do is woken.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

/// Rung whenever something changed that sleepers may be waiting for. Neither ringing nor waiting allocates.
///
/// To wait: take a [`ticket`](Bell::ticket), look again whether there is something to do, then [`wait`](Bell::wait) with the
/// ticket. A ring after the ticket was taken is not missed.
#[derive(Debug, Default)]
pub struct Bell {
    rings: AtomicU32,
    sleepers: AtomicU32,
    lock: Mutex<()>,
    woken: Condvar,
}

impl Bell {
    /// A bell that was never rung.
    pub fn new() -> Bell {
        Bell::default()
    }

    /// The number of rings until now.
    pub fn ticket(&self) -> u32 {
        self.rings.load(Ordering::SeqCst)
    }

    /// How many threads sleep, or are about to.
    pub fn sleepers(&self) -> u32 {
        self.sleepers.load(Ordering::SeqCst)
    }

    /// Wakes all sleepers.
    pub fn ring(&self) {
        self.count_ring(|| self.woken.notify_all());
    }

    /// Wakes one sleeper.
    pub fn ring_one(&self) {
        self.count_ring(|| self.woken.notify_one());
    }

    fn count_ring(&self, notify: impl Fn()) {
        self.rings.fetch_add(1, Ordering::SeqCst);
        if self.sleepers() > 0 {
            // A sleeper that saw the old number holds the lock until it sleeps.
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            notify();
        }
    }

    /// Sleeps until a ring after `ticket` was taken.
    pub fn wait(&self, ticket: u32) {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        while self.ticket() == ticket {
            guard = self.woken.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        drop(guard);
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_ring_is_missed() {
        let bell = Bell::new();
        let turn = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for me in 0..2 {
                let (bell, turn) = (&bell, &turn);
                scope.spawn(move || {
                    for round in 0..1000 {
                        loop {
                            let ticket = bell.ticket();
                            if turn.load(Ordering::SeqCst) == 2 * round + me {
                                break;
                            }
                            bell.wait(ticket);
                        }
                        turn.fetch_add(1, Ordering::SeqCst);
                        bell.ring();
                    }
                });
            }
        });
        assert_eq!((turn.into_inner(), bell.sleepers()), (2000, 0));
    }
}
