//! A trace of a run: when its commands started and ended.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// When the commands of a run started and ended, in nanoseconds since the run was restarted. A run has a trace where one was
/// put into [`crate::Run::trace`]; the device that runs a queue writes down its commands, but for those that are passed over. Of a
/// command in a loop the last iteration stays.
#[derive(Debug)]
pub struct Trace {
    zero: Instant,
    queues: Vec<Box<[Span]>>,
}

#[derive(Debug)]
struct Span {
    start: AtomicU64,
    end: AtomicU64,
}

/// The end of a command that did not run.
const NEVER: u64 = u64::MAX;

impl Trace {
    /// A trace of a run whose queues have that many commands each.
    pub fn new(commands: impl IntoIterator<Item = usize>) -> Trace {
        let spans = |count| (0..count).map(|_| Span { start: AtomicU64::new(0), end: AtomicU64::new(NEVER) }).collect();
        Trace { zero: Instant::now(), queues: commands.into_iter().map(spans).collect() }
    }

    /// Forgets everything; time begins now.
    pub fn restart(&mut self) {
        self.queues.iter_mut().flatten().for_each(|span| *span.end.get_mut() = NEVER);
        self.zero = Instant::now();
    }

    /// The instant from which on nanoseconds count.
    pub fn began(&self) -> Instant {
        self.zero
    }

    /// Nanoseconds since the beginning.
    pub fn now(&self) -> u64 {
        self.zero.elapsed().as_nanos() as u64
    }

    /// Writes down that `command` of `queue` started at `start` and ended now. Commands beyond the room of the trace are dropped.
    pub fn record(&self, queue: u32, command: u32, start: u64) {
        if let Some(span) = self.queues.get(queue as usize).and_then(|queue| queue.get(command as usize)) {
            span.start.store(start, Ordering::Relaxed);
            // The reader waits for the end of the queue, which orders these.
            span.end.store(self.now(), Ordering::Relaxed);
        }
    }

    /// When `command` of `queue` started and ended; `None` where it did not run. For when the run is over.
    pub fn span(&self, queue: u32, command: u32) -> Option<(u64, u64)> {
        let span = self.queues.get(queue as usize)?.get(command as usize)?;
        let end = span.end.load(Ordering::Relaxed);
        (end != NEVER).then(|| (span.start.load(Ordering::Relaxed), end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_what_ran_until_it_restarts() {
        let mut trace = Trace::new([2, 0]);
        let start = trace.now();
        trace.record(0, 1, start);
        trace.record(1, 0, start);
        trace.record(7, 7, start);
        let (from, to) = trace.span(0, 1).unwrap();
        assert!(from == start && to >= from);
        assert_eq!([trace.span(0, 0), trace.span(1, 0), trace.span(7, 7)], [None; 3]);
        trace.restart();
        assert_eq!(trace.span(0, 1), None);
    }
}
