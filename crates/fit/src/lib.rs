//! Makes a schedule fit into less memory: what it computes again, and what it moves to a slower memory, at the least time.
//!
//! A [`Problem`] is a computation as numbers. [`fit`] finds a fast schedule within a peak, and [`descend`] a row of schedules, each
//! with a lower peak than the one before. [`replay`] checks a schedule and says its peak and its time.
//!
//! Effort is counted in steps, never in seconds: the same problem gives the same schedules.

#![forbid(unsafe_code)]

mod bound;
mod chains;
mod descent;
mod graph;
mod improve;
mod moves;
mod profile;
mod repair;
mod replay;
mod state;

use std::fmt;

/// A computation: works in a valid order, each with what it reads and writes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Problem {
    /// In the order of their first runs, which no schedule changes.
    pub works: Vec<Work>,
    /// What works read and write. A value that no work writes is an input: it is always there, and only `base` counts it.
    pub values: Vec<Value>,
    /// Bytes that are always there.
    pub base: u64,
    /// A memory that values can wait in.
    pub slow: Option<Slow>,
}

/// Something that a work writes, once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Value {
    /// Bytes on the device at hand; 0 for a value that is elsewhere.
    pub bytes: u64,
    /// Whether it has to be there at the end.
    pub is_result: bool,
    /// The value in whose memory it lies. It has no bytes of its own and is lost with that memory: it is made again before it is
    /// read, where the other value was computed again.
    pub view_of: Option<usize>,
}

/// A step of the computation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Work {
    /// How long it takes.
    pub seconds: f64,
    /// Bytes that are there while it runs only.
    pub scratch: u64,
    /// Values that it reads.
    pub reads: Vec<usize>,
    /// Values that it defines.
    pub writes: Vec<usize>,
    /// (read, written): the result is written over the operand where nothing reads that later. Both have the same bytes.
    pub in_place: Vec<(usize, usize)>,
    /// Whether it may run more than once.
    pub again: bool,
    /// It may not run again once this work has run for the first time: something that it reads is overwritten then.
    pub until: Option<usize>,
    /// Works that have to run before, beyond those that define what it reads.
    pub after: Vec<usize>,
    /// Queues run beside each other, each in order.
    pub queue: usize,
    /// Other ways to run it: each has less scratch than the one before and takes no less time. All of its runs go the same way.
    pub ways: Vec<Way>,
}

/// Another way to run a work.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Way {
    /// As [`Work::scratch`].
    pub scratch: u64,
    /// As [`Work::seconds`].
    pub seconds: f64,
}

/// A slower memory, with a queue for each direction.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Slow {
    /// The queue of moves to it.
    pub queue_out: usize,
    /// The queue of moves back.
    pub queue_in: usize,
    /// What a move takes however small it is.
    pub latency: f64,
    /// What each byte adds.
    pub seconds_per_byte: f64,
    /// Its size.
    pub bytes: u64,
    /// What values take there is a multiple of this; 0 is as 1.
    pub granularity: u64,
}

impl Slow {
    /// What a value of so many bytes takes there.
    fn room_of(&self, bytes: u64) -> u64 {
        let granularity = self.granularity.max(1);
        bytes.div_ceil(granularity).saturating_mul(granularity)
    }
}

/// A step of a schedule. A read of a value means its latest definition: by a run, or by a move back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// A work runs.
    Run(usize),
    /// A work runs in one of its other ways.
    RunAs(usize, usize),
    /// A value was moved to the slow memory. The move begins as soon as value and queue are ready; runs behind this step wait for
    /// its end, so that the value's memory is free for them.
    Out(usize),
    /// A value moves back. The move begins when the runs before this step are done; it is a definition of the value.
    In(usize),
}

/// A schedule with its peak and its time.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    /// In order.
    pub steps: Vec<Step>,
    /// The most bytes at one step: what is read and written there, what is read later without being defined before, and scratch.
    pub peak: u64,
    /// When the last queue is done.
    pub seconds: f64,
}

/// The rule that a problem or a schedule breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(pub String);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Violation {}

/// Whether the other functions take a problem.
///
/// # Errors
/// The rule that the problem breaks.
pub fn check(problem: &Problem) -> Result<(), Violation> {
    graph::Graph::new(problem).map(|_| ())
}

/// Schedules from the one given (each work once, in order) down to the lowest peak that is found. Each has a lower peak than the one
/// before and takes no less time. There is none if the problem breaks a rule ([`check`]).
pub fn descend(problem: &Problem, effort: u64) -> Vec<State> {
    descent::descend(problem, effort).unwrap_or_default()
}

/// A descent of some schedules of a problem: the first, and of the others those that have a lower peak than all before and take no less
/// time. Schedules that break a rule are left out; there is none if the problem breaks one.
pub fn row(problem: &Problem, schedules: Vec<Vec<Step>>) -> Vec<State> {
    descent::of(problem, schedules).unwrap_or_default()
}

/// A fast schedule with at most this peak, if one was found. All effort goes to it. There is none if the problem breaks a rule.
pub fn fit(problem: &Problem, peak: u64, effort: u64) -> Option<State> {
    descent::fit(problem, peak, effort).ok().flatten()
}

/// What computing again adds to the time, in seconds, in every schedule with at most this peak that moves nothing. None if no schedule
/// has so low a peak, or if the problem breaks a rule.
pub fn lower_bound(problem: &Problem, peak: u64, effort: u64) -> Option<f64> {
    let graph = graph::Graph::new(problem).ok()?;
    let parts = bound::again(&graph, i64::try_from(peak).unwrap_or(i64::MAX).min(i64::MAX / 4), effort)?;
    Some(parts as f64 / graph.scale)
}

/// Replays a schedule: its peak, and its time in seconds.
///
/// # Errors
/// The rule that the problem or the schedule breaks.
pub fn replay(problem: &Problem, steps: &[Step]) -> Result<(u64, f64), Violation> {
    replay::replay(problem, steps)
}
