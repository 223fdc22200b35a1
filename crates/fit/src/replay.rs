//! Replays a schedule and checks it against the rules, apart from the search's own books.

use crate::{Problem, Step, Violation, graph::Graph};

/// What is known of a value while steps are replayed.
#[derive(Clone, Default)]
struct Seen {
    /// When it was defined last.
    made: Option<usize>,
    /// When its definition was last used.
    used: usize,
    /// When that definition's memory began.
    begun: usize,
    /// Whether the last use writes over it.
    is_over: bool,
    /// A copy in the slow memory: when, and its last use.
    slow: Option<(usize, usize)>,
    /// When it is there, in seconds; and its copy.
    ready: f64,
    copied: f64,
}

/// Replays steps. See [`crate::replay`].
pub(crate) fn replay(problem: &Problem, steps: &[Step]) -> Result<(u64, f64), Violation> {
    Graph::new(problem)?;
    of_checked(problem, steps)
}

/// The same, of a problem that breaks no rule.
pub(crate) fn of_checked(problem: &Problem, steps: &[Step]) -> Result<(u64, f64), Violation> {
    let mut replay = Replay::new(problem, steps.len());
    for (at, step) in steps.iter().enumerate() {
        match *step {
            Step::Run(work) => replay.run(at, work, None)?,
            Step::RunAs(work, way) => replay.run(at, work, Some(way))?,
            Step::Out(value) => replay.out(at, value)?,
            Step::In(value) => replay.back(at, value)?,
        }
    }
    replay.finish(steps.len())
}

struct Replay<'a> {
    problem: &'a Problem,
    values: Vec<Seen>,
    is_defined: Vec<bool>,
    ran: usize,
    /// Bytes that come and go at each step, and those of the slow memory.
    changes: Vec<i128>,
    slow: Vec<i128>,
    /// When each queue is done with what was given to it.
    queues: Vec<(usize, f64)>,
    /// When all works so far are done, and all moves out.
    works_done: f64,
    moved_out: f64,
}

impl<'a> Replay<'a> {
    fn new(problem: &'a Problem, steps: usize) -> Replay<'a> {
        let mut is_defined = vec![false; problem.values.len()];
        problem.works.iter().flat_map(|work| &work.writes).for_each(|value| is_defined[*value] = true);
        Replay {
            problem,
            values: vec![Seen::default(); problem.values.len()],
            is_defined,
            ran: 0,
            changes: vec![0; steps + 2],
            slow: vec![0; steps + 2],
            queues: Vec::new(),
            works_done: 0.0,
            moved_out: 0.0,
        }
    }

    fn root(&self, value: usize) -> Option<usize> {
        let mut root = self.problem.values[value].view_of?;
        // A chain of views is no longer than there are values: the problem was checked.
        while let Some(of) = self.problem.values[root].view_of {
            root = of;
        }
        Some(root)
    }

    fn queue(&mut self, queue: usize) -> &mut f64 {
        let at = match self.queues.iter().position(|other| other.0 == queue) {
            Some(at) => at,
            None => {
                self.queues.push((queue, 0.0));
                self.queues.len() - 1
            }
        };
        &mut self.queues[at].1
    }

    /// A use of a value at a step: when it is ready.
    fn read(&mut self, at: usize, by: usize, value: usize) -> Result<f64, Violation> {
        if !self.is_defined[value] {
            return Ok(0.0);
        }
        let Some(made) = self.values[value].made else {
            return Err(Violation(format!("step {at}: work {by} reads value {value}, which is not there")));
        };
        if let Some(root) = self.root(value).filter(|root| self.is_defined[*root]) {
            if self.values[root].made.is_none_or(|root| root > made) {
                return Err(Violation(format!("step {at}: work {by} reads value {value}, a view of what was lost")));
            }
            self.read(at, by, root)?;
        }
        let seen = &mut self.values[value];
        seen.used = at;
        seen.is_over = false;
        Ok(seen.ready)
    }

    /// A life of a value ends: its bytes are counted from its definition to its last use.
    fn close(&mut self, value: usize, end: usize) {
        let seen = &self.values[value];
        let bytes = i128::from(self.problem.values[value].bytes);
        self.changes[seen.begun] += bytes;
        self.changes[end] -= bytes;
    }

    fn define(&mut self, at: usize, value: usize, ready: f64) {
        if self.values[value].made.is_some() {
            let seen = &self.values[value];
            let end = if seen.is_over { seen.used } else { seen.used + 1 };
            self.close(value, end);
        }
        let seen = &mut self.values[value];
        (seen.made, seen.begun, seen.used, seen.is_over, seen.ready) = (Some(at), at, at, false, ready);
    }

    fn run(&mut self, at: usize, work: usize, way: Option<usize>) -> Result<(), Violation> {
        let problem = self.problem;
        let wrong = |what: String| Err(Violation(format!("step {at}: work {work} {what}")));
        let Some(info) = problem.works.get(work) else { return wrong("is not there".into()) };
        let (scratch, seconds) = match way.map(|way| info.ways.get(way)) {
            None => (info.scratch, info.seconds),
            Some(Some(way)) => (way.scratch, way.seconds),
            Some(None) => return wrong("has no such way to run".into()),
        };
        match work.cmp(&self.ran) {
            std::cmp::Ordering::Equal => self.ran += 1,
            std::cmp::Ordering::Greater => return wrong(format!("runs before work {}", self.ran)),
            std::cmp::Ordering::Less if !info.again => return wrong("may not run again".into()),
            std::cmp::Ordering::Less => {
                if let Some(until) = info.until.filter(|until| *until < self.ran) {
                    return wrong(format!("may not run again once work {until} has run"));
                }
            }
        }
        let mut start = self.moved_out.max(*self.queue(info.queue));
        for &value in &info.reads {
            start = start.max(self.read(at, work, value)?);
        }
        for (read, _) in &info.in_place {
            self.values[*read].is_over = self.is_defined[*read];
        }
        let end = start + seconds;
        *self.queue(info.queue) = end;
        self.works_done = self.works_done.max(end);
        for &value in &info.writes {
            self.define(at, value, end);
        }
        self.changes[at] += i128::from(scratch);
        self.changes[at + 1] -= i128::from(scratch);
        Ok(())
    }

    fn link(&self, at: usize, value: usize) -> Result<&'a crate::Slow, Violation> {
        let slow = self.problem.slow.as_ref().ok_or_else(|| Violation(format!("step {at}: there is no slow memory")))?;
        match self.problem.values.get(value) {
            Some(info) if self.is_defined[value] && info.view_of.is_none() => Ok(slow),
            _ => Err(Violation(format!("step {at}: value {value} is none that can move"))),
        }
    }

    fn seconds(&self, slow: &crate::Slow, value: usize) -> f64 {
        slow.latency + slow.seconds_per_byte * self.problem.values[value].bytes as f64
    }

    fn out(&mut self, at: usize, value: usize) -> Result<(), Violation> {
        let slow = self.link(at, value)?;
        if self.values[value].slow.is_some() {
            return Err(Violation(format!("step {at}: value {value} is in the slow memory already")));
        }
        let start = self.queue(slow.queue_out).max(self.values[value].ready);
        if self.values[value].made.is_none() {
            return Err(Violation(format!("step {at}: value {value} moves out and is not there")));
        }
        let end = start + self.seconds(slow, value);
        *self.queue(slow.queue_out) = end;
        self.moved_out = self.moved_out.max(end);
        let seen = &mut self.values[value];
        (seen.used, seen.is_over, seen.slow, seen.copied) = (at, false, Some((at, at)), end);
        Ok(())
    }

    fn back(&mut self, at: usize, value: usize) -> Result<(), Violation> {
        let slow = self.link(at, value)?;
        let Some((since, _)) = self.values[value].slow else {
            return Err(Violation(format!("step {at}: value {value} is not in the slow memory")));
        };
        self.values[value].slow = Some((since, at));
        let start = self.works_done.max(*self.queue(slow.queue_in)).max(self.values[value].copied);
        let end = start + self.seconds(slow, value);
        *self.queue(slow.queue_in) = end;
        self.define(at, value, end);
        Ok(())
    }

    fn finish(mut self, steps: usize) -> Result<(u64, f64), Violation> {
        if self.ran != self.problem.works.len() {
            return Err(Violation(format!("work {} never runs", self.ran)));
        }
        let mut held = vec![false; self.values.len()];
        for value in 0..self.values.len() {
            if self.problem.values[value].is_result && self.is_defined[value] {
                self.read(steps, usize::MAX, value)?;
                held[value] = true;
                if let Some(root) = self.root(value) {
                    held[root] = true;
                }
            }
        }
        for (value, is_held) in held.into_iter().enumerate() {
            let seen = &self.values[value];
            if seen.made.is_some() {
                let end = if is_held {
                    steps
                } else if seen.is_over {
                    seen.used
                } else {
                    seen.used + 1
                };
                self.close(value, end);
            }
            if let (Some((from, to)), Some(slow)) = (self.values[value].slow, &self.problem.slow) {
                let bytes = i128::from(slow.room_of(self.problem.values[value].bytes));
                self.slow[from] += bytes;
                self.slow[to + 1] -= bytes;
            }
        }
        let most = |changes: &[i128]| {
            let mut live = 0i128;
            changes
                .iter()
                .map(|change| {
                    live += change;
                    live
                })
                .max()
                .unwrap_or(0)
        };
        let room = self.problem.slow.as_ref().map_or(0, |slow| i128::from(slow.bytes));
        if most(&self.slow) > room {
            return Err(Violation(format!("{} bytes are in the slow memory at once", most(&self.slow))));
        }
        let peak = i128::from(self.problem.base) + most(&self.changes).max(0);
        let seconds = self.queues.iter().map(|queue| queue.1).fold(0.0, f64::max);
        Ok((u64::try_from(peak).unwrap_or(u64::MAX), seconds))
    }
}
