//! The runs that workers may take part in.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use plimsoll_device::Run;

/// How many runs may be offered to workers at once: the bits of a mask. Further runs are computed by their drivers alone.
const COUNT: u32 = u64::BITS;

/// A place for a run that is being driven. While it is set and `users` is not 0, its driver does not return.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Entry {
    run: AtomicPtr<Run>,
    users: AtomicU32,
    running: AtomicU32,
}

/// The runs that workers may take part in.
#[derive(Debug)]
pub(crate) struct OpenRuns {
    taken: AtomicU64,
    open: AtomicU64,
    entries: Box<[Entry]>,
}

/// A run in an entry, until dropped.
pub(crate) struct Opened<'a> {
    runs: &'a OpenRuns,
    index: u32,
    _run: &'a Run,
}

impl OpenRuns {
    pub fn new() -> OpenRuns {
        OpenRuns { taken: AtomicU64::new(0), open: AtomicU64::new(0), entries: (0..COUNT).map(|_| Entry::default()).collect() }
    }

    /// Lets workers see `run`; `None` where too many runs are seen already.
    pub fn open<'a>(&'a self, run: &'a Run) -> Option<Opened<'a>> {
        let first_free = |taken: u64| (taken != u64::MAX).then(|| taken | 1 << taken.trailing_ones());
        let taken = self.taken.fetch_update(Ordering::SeqCst, Ordering::SeqCst, first_free).ok()?;
        let index = taken.trailing_ones();
        let entry = &self.entries[index as usize];
        entry.running.store(0, Ordering::Relaxed);
        entry.run.store(std::ptr::from_ref(run).cast_mut(), Ordering::SeqCst);
        self.open.fetch_or(1 << index, Ordering::SeqCst);
        Some(Opened { runs: self, index, _run: run })
    }

    /// Whether workers see any run.
    pub fn are_empty(&self) -> bool {
        self.open.load(Ordering::SeqCst) == 0
    }

    /// Whether workers see more than one run.
    pub fn are_several(&self) -> bool {
        self.open.load(Ordering::SeqCst).count_ones() > 1
    }

    /// Calls `look` with each run in turn, beginning after the first `from` entries, and with the number of threads that run its
    /// queues. Ends early when `look` returns false.
    pub fn visit(&self, from: u32, mut look: impl FnMut(&Run, &AtomicU32) -> bool) {
        let mut open = self.open.load(Ordering::SeqCst).rotate_right(from);
        while open != 0 {
            let index = (open.trailing_zeros() + from) % COUNT;
            open &= open - 1;
            let entry = &self.entries[index as usize];
            entry.users.fetch_add(1, Ordering::SeqCst);
            let _user = User(entry);
            let run = entry.run.load(Ordering::SeqCst);
            // SAFETY: a driver that puts the null there waits for `users` to fall to 0 before it lets go of the run. Either it
            // sees this user, or this load sees the null.
            let Some(run) = (unsafe { run.as_ref() }) else {
                continue;
            };
            if !look(run, &entry.running) {
                return;
            }
        }
    }
}

struct User<'a>(&'a Entry);

impl Drop for User<'_> {
    fn drop(&mut self) {
        self.0.users.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Opened<'_> {
    /// The number of threads that run queues of the run.
    pub fn running(&self) -> &AtomicU32 {
        &self.runs.entries[self.index as usize].running
    }
}

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        let entry = &self.runs.entries[self.index as usize];
        self.runs.open.fetch_and(!(1 << self.index), Ordering::SeqCst);
        entry.run.store(null_mut(), Ordering::SeqCst);
        let mut rounds = 0u32;
        while entry.users.load(Ordering::SeqCst) > 0 {
            // Threads that are there find nothing to do and leave at once, unless they were interrupted.
            rounds += 1;
            if rounds > 200 { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
        self.runs.taken.fetch_and(!(1 << self.index), Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_device::Bindings;

    use super::*;

    #[test]
    fn runs_are_seen_while_they_are_open() {
        let open_runs = OpenRuns::new();
        let runs: Vec<Run> = (0..COUNT + 1).map(|_| Run::new(0, Bindings::default())).collect();
        let mut opened: Vec<_> = runs.iter().map(|run| open_runs.open(run)).collect();
        assert!(opened.pop().unwrap().is_none());
        let seen = |from| {
            let mut seen = Vec::new();
            open_runs.visit(from, |run, _| {
                seen.push(runs.iter().position(|other| std::ptr::eq(run, other)).unwrap());
                true
            });
            seen
        };
        assert_eq!(seen(0), (0..64).collect::<Vec<_>>());
        opened.retain(|opened| opened.as_ref().is_some_and(|opened| opened.index % 32 == 1));
        assert_eq!((seen(0), seen(2), seen(63)), (vec![1, 33], vec![33, 1], vec![1, 33]));
        assert!(open_runs.are_several());
        drop(opened.pop());
        assert!(!open_runs.are_several() && !open_runs.are_empty());
        drop(opened);
        assert!(open_runs.are_empty());
        assert_eq!(seen(0), Vec::<usize>::new());
    }
}
