//! How many threads may compute at the same time.

use std::sync::atomic::{AtomicU32, Ordering};

use plimsoll_device::Bell;

/// Permits to compute. Threads that drive runs get one as soon as one is free; workers take one only while no driver waits.
#[derive(Debug)]
pub(crate) struct Permits {
    free: AtomicU32,
    waiting_drivers: AtomicU32,
    freed: Bell,
}

impl Permits {
    pub fn new(count: u32) -> Permits {
        Permits { free: AtomicU32::new(count), waiting_drivers: AtomicU32::new(0), freed: Bell::new() }
    }

    fn try_take(&self) -> bool {
        self.free.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |free| free.checked_sub(1)).is_ok()
    }

    /// A permit for a driver, as soon as there is one.
    pub fn take(&self) {
        if self.try_take() {
            return;
        }
        self.waiting_drivers.fetch_add(1, Ordering::SeqCst);
        loop {
            let ticket = self.freed.ticket();
            if self.try_take() {
                break;
            }
            self.freed.wait(ticket);
        }
        self.waiting_drivers.fetch_sub(1, Ordering::SeqCst);
    }

    /// A permit for a worker, if there is one that no driver wants.
    pub fn take_idle(&self) -> bool {
        !self.are_wanted() && self.try_take()
    }

    /// Whether drivers wait for a permit.
    pub fn are_wanted(&self) -> bool {
        self.waiting_drivers.load(Ordering::SeqCst) > 0
    }

    /// Gives a permit back.
    pub fn give(&self) {
        self.free.fetch_add(1, Ordering::SeqCst);
        if self.are_wanted() {
            self.freed.ring_one();
        }
    }

    /// Free permits.
    pub fn free(&self) -> u32 {
        self.free.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_more_than_there_are_and_no_thread_starves() {
        let permits = Permits::new(2);
        let (inside, most) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for driver in [true, true, true, false] {
                let (permits, inside, most) = (&permits, &inside, &most);
                scope.spawn(move || {
                    for _ in 0..500 {
                        if driver {
                            permits.take();
                        } else if !permits.take_idle() {
                            continue;
                        }
                        most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        std::hint::spin_loop();
                        inside.fetch_sub(1, Ordering::SeqCst);
                        permits.give();
                    }
                });
            }
        });
        assert!(most.into_inner() <= 2);
        assert_eq!(permits.free(), 2);
    }
}
