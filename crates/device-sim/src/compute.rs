//! The processor of a card, and its link: one command at a time each, of any of its logical devices.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The compute units of a card and the link to its host, shared by its logical devices: a turn each, by priority.
#[derive(Debug, Default)]
pub struct Compute {
    units: Part,
    link: Part,
}

/// One of them.
#[derive(Debug, Default)]
struct Part {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_taken: bool,
    /// How many wait for a turn, by priority.
    waiting: BTreeMap<i32, u32>,
}

/// A turn; dropping it ends it.
#[derive(Debug)]
pub struct Turn<'a>(&'a Part);

impl Compute {
    /// Waits for a turn at the compute units: of the waiters, one with the smallest number comes next.
    pub fn turn(&self, priority: i32) -> Turn<'_> {
        self.units.turn(priority)
    }

    /// The same at the link.
    pub fn turn_at_link(&self, priority: i32) -> Turn<'_> {
        self.link.turn(priority)
    }
}

impl Part {
    fn turn(&self, priority: i32) -> Turn<'_> {
        let mut state = self.state();
        if state.is_taken || state.is_before(priority) {
            *state.waiting.entry(priority).or_default() += 1;
            while state.is_taken || state.is_before(priority) {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            state.no_longer_waits(priority);
        }
        state.is_taken = true;
        Turn(self)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether a waiter goes before those of that priority.
    fn is_before(&self, priority: i32) -> bool {
        self.waiting.first_key_value().is_some_and(|(first, _)| *first < priority)
    }

    fn no_longer_waits(&mut self, priority: i32) {
        if let Some(count) = self.waiting.get_mut(&priority) {
            *count -= 1;
            if *count == 0 {
                self.waiting.remove(&priority);
            }
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.is_taken = false;
        let is_wanted = !state.waiting.is_empty();
        drop(state);
        if is_wanted {
            self.0.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_the_waiters_the_smallest_number_goes_first() {
        let (compute, log) = (Compute::default(), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            let turn = compute.turn(0);
            for priority in [0, -2, 3, -2, -1] {
                let (compute, log) = (&compute, &log);
                scope.spawn(move || {
                    let _turn = compute.turn(priority);
                    log.lock().unwrap().push(priority);
                });
            }
            while compute.units.state().waiting.values().sum::<u32>() < 5 {
                std::thread::yield_now();
            }
            drop(turn);
        });
        assert_eq!(*log.lock().unwrap(), [-2, -2, -1, 0, 3]);
        assert!(compute.units.state().waiting.is_empty() && !compute.units.state().is_taken);
        // Who has the units does not keep others from the link.
        let _turn = compute.turn(0);
        drop(compute.turn_at_link(1));
    }
}
