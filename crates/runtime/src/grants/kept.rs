//! The memory that a session keeps for its next run, and the time of its last run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use plimsoll_device::Device;

use super::arenas::Arenas;
use super::constants::Constants;
use crate::plans::Plans;

/// The memory that a session can do without between two runs. Its devices know it weakly: they may give it back at any time. When
/// the session ends it is emptied, so that a thread that looks at it at that moment does not delay that.
pub(crate) struct Kept {
    pub arenas: Arenas,
    pub plans: Plans,
    pub constants: Constants,
    /// Runs with memory of the session's shared arenas.
    under_way: AtomicU32,
    born: Instant,
    /// Nanoseconds from `born` to the end of the last run; counted only where that is used.
    last: AtomicU64,
    /// `last` when the arenas were last given back.
    released: AtomicU64,
    /// After how many nanoseconds without a run the arenas are given back; 0 is never.
    limit: AtomicU64,
}

impl Kept {
    pub fn new(devices: &[Arc<dyn Device>], holder: &str) -> Kept {
        let [last, released, limit] = [0; 3].map(AtomicU64::new);
        Kept {
            arenas: Arenas::new(devices.len()),
            plans: Plans::default(),
            constants: Constants::new(devices, holder),
            under_way: AtomicU32::new(0),
            born: Instant::now(),
            last,
            released,
            limit,
        }
    }

    /// Gives back idle arenas, and the device memory of plans without holders.
    pub fn release(&self) {
        self.arenas.clear();
        self.plans.unload();
    }

    /// A run is about to take memory, until the guard is dropped.
    pub fn under_way(&self) -> UnderWay<'_> {
        self.under_way.fetch_add(1, Ordering::SeqCst);
        UnderWay(self)
    }

    /// Whether a run has memory of the session's shared arenas.
    pub fn is_under_way(&self) -> bool {
        self.under_way.load(Ordering::SeqCst) > 0
    }

    /// A run has ended.
    pub fn ran(&self) {
        if self.limit.load(Ordering::Relaxed) > 0 {
            self.last.store(self.now(), Ordering::Relaxed);
        }
    }

    /// From now on the session counts as idle after so long; `None` is never.
    pub fn set_limit(&self, after: Option<Duration>) {
        self.last.store(self.now(), Ordering::Relaxed);
        self.limit.store(after.map_or(0, nanoseconds), Ordering::Relaxed);
    }

    /// Gives idle arenas back where the session has not run for so long, once after each run. When to look again, and whether they
    /// were given back now; `None` where that is not wanted.
    pub fn look(&self) -> Option<(Duration, bool)> {
        let limit = self.limit.load(Ordering::Relaxed);
        if limit == 0 {
            return None;
        }
        let last = self.last.load(Ordering::Relaxed);
        let since = self.now().saturating_sub(last);
        if since < limit {
            return Some((Duration::from_nanos(limit - since), false));
        }
        let is_new = self.released.swap(last, Ordering::Relaxed) != last;
        if is_new {
            self.arenas.clear();
        }
        Some((Duration::from_nanos(limit), is_new))
    }

    fn now(&self) -> u64 {
        nanoseconds(self.born.elapsed())
    }
}

/// A run that is under way.
pub(crate) struct UnderWay<'a>(&'a Kept);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::SeqCst);
    }
}

/// At least one: none means something else.
fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX).max(1)
}
