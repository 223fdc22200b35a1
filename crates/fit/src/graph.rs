//! A problem that was checked, with what the search asks of it.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::{Problem, Slow, Violation};

/// All sizes of a problem together: far from the end of `i64`, also when some positions are added up.
const MOST_BYTES: u64 = 1 << 54;

/// A schedule's seconds are counted in parts of the whole: all works together are so many.
const PARTS: f64 = (1u64 << 40) as f64;

/// No move takes longer.
const MOST_TIME: i64 = 1 << 45;

/// What a slot of a stage stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    Run(usize),
    Out(usize),
    In(usize),
}

/// A position in a schedule. A stage ends with the first run of its work; what runs again for it lies before, by slots. Slots follow
/// the order of works, so that a stage computes operands first.
pub(crate) type Key = u64;

pub(crate) fn key(stage: usize, slot: u32) -> Key {
    (stage as u64) << 32 | u64::from(slot)
}

pub(crate) fn stage(key: Key) -> usize {
    (key >> 32) as usize
}

pub(crate) fn slot(key: Key) -> u32 {
    key as u32
}

/// A value of the search: only those that a work defines.
#[derive(Clone, Debug, Default)]
pub(crate) struct Value {
    pub bytes: i64,
    pub is_result: bool,
    /// The work that defines it, or `usize::MAX`: an input.
    pub work: usize,
    pub readers: Vec<usize>,
    /// The value that it is a view of, at the end of a chain of views.
    pub root: Option<usize>,
    /// The views of it.
    pub views: Vec<usize>,
    /// Whether some work writes over it.
    pub is_over: bool,
    pub slot_in: u32,
    pub slot_out: u32,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Work {
    /// Parts of all works' time.
    pub cost: i64,
    /// The same on the queue that has most to do, 0 elsewhere.
    pub busy: i64,
    pub scratch: i64,
    /// Other ways to run it.
    pub ways: Vec<Way>,
    /// Distinct, without inputs; with the roots of views.
    pub reads: Vec<usize>,
    pub writes: Vec<usize>,
    pub in_place: Vec<(usize, usize)>,
    pub again: bool,
    /// The last stage in which it may run.
    pub until: usize,
    pub slot: u32,
}

/// A way to run a work.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Way {
    pub scratch: i64,
    pub cost: i64,
    pub busy: i64,
}

impl Work {
    /// The way with a number: 0 is the work as it is.
    pub fn way(&self, number: usize) -> Way {
        let as_it_is = Way { scratch: self.scratch, cost: self.cost, busy: self.busy };
        number.checked_sub(1).and_then(|other| self.ways.get(other)).copied().unwrap_or(as_it_is)
    }

    /// The least scratch that it can do with.
    pub fn least_scratch(&self) -> i64 {
        self.way(self.ways.len()).scratch
    }
}

/// The way to the slow memory.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    /// In parts of time.
    latency: i64,
    per_byte: f64,
    pub slow: Slow,
}

impl Link {
    pub fn time(&self, bytes: i64) -> i64 {
        self.latency.saturating_add((bytes as f64 * self.per_byte) as i64).min(MOST_TIME)
    }

    /// What a value takes there.
    pub fn room_of(&self, bytes: i64) -> i64 {
        self.slow.room_of(bytes as u64).min(MOST_BYTES) as i64
    }

    /// Its size.
    pub fn bytes(&self) -> i64 {
        self.slow.bytes.min(MOST_BYTES) as i64
    }
}

pub(crate) struct Graph {
    pub link: Option<Link>,
    pub works: Vec<Work>,
    pub values: Vec<Value>,
    pub slots: Vec<Slot>,
    /// Values with bytes, the largest first.
    pub large: Vec<usize>,
    pub base: i64,
    /// Parts of time for a second.
    pub scale: f64,
}

impl Graph {
    /// # Errors
    /// The first rule that the problem breaks.
    pub fn new(problem: &Problem) -> Result<Graph, Violation> {
        let wrong = |what: String| Err(Violation(what));
        let (works, values) = (problem.works.len(), problem.values.len());
        if works >= 1 << 30 || values >= 1 << 28 {
            return wrong("the problem has more works or values than can be counted".into());
        }
        let mut total = problem.base;
        let mut graph = Graph {
            link: None,
            works: Vec::new(),
            values: vec![Value { work: usize::MAX, ..Value::default() }; values],
            slots: Vec::new(),
            large: Vec::new(),
            base: 0,
            scale: 1.0,
        };
        for (index, value) in problem.values.iter().enumerate() {
            total = total.saturating_add(value.bytes);
            graph.values[index].bytes = value.bytes.min(MOST_BYTES) as i64;
            graph.values[index].is_result = value.is_result;
        }
        let mut seconds = 0.0f64;
        for work in &problem.works {
            total = total.saturating_add(work.scratch);
            if !(work.seconds >= 0.0 && work.seconds.is_finite()) {
                return wrong(format!("a work takes {} seconds", work.seconds));
            }
            seconds += work.seconds;
        }
        if total > MOST_BYTES {
            return wrong("the problem has more bytes than can be counted".into());
        }
        graph.base = problem.base as i64;
        graph.scale = if seconds > 0.0 && seconds.is_finite() { PARTS / seconds } else { 1.0 };
        if !graph.scale.is_finite() {
            graph.scale = 1.0;
        }
        for (index, value) in problem.values.iter().enumerate() {
            let Some(of) = value.view_of else { continue };
            if of >= values || value.bytes != 0 {
                return wrong(format!("value {index} is a view of {of} with {} bytes of its own", value.bytes));
            }
        }
        if let Some(slow) = &problem.slow {
            if !(slow.latency >= 0.0 && slow.seconds_per_byte >= 0.0) {
                return wrong("a move takes less than no time".into());
            }
            let (latency, per_byte) = ((slow.latency * graph.scale) as i64, slow.seconds_per_byte * graph.scale);
            graph.link = Some(Link { latency: latency.min(MOST_TIME), per_byte, slow: slow.clone() });
        }
        for (index, work) in problem.works.iter().enumerate() {
            graph.add(problem, index, work)?;
        }
        for value in 0..values {
            if problem.values[value].view_of.is_some() && graph.values[value].work == usize::MAX {
                return wrong(format!("value {value} is a view that no work makes"));
            }
            if let Some(root) = graph.values[value].root {
                graph.values[root].views.push(value);
                graph.values[root].is_result |= graph.values[value].is_result;
            }
        }
        let mut queues: BTreeMap<usize, i64> = BTreeMap::new();
        for (work, info) in graph.works.iter().zip(&problem.works) {
            *queues.entry(info.queue).or_default() += work.cost;
        }
        let busiest = queues.into_iter().max_by_key(|(queue, cost)| (*cost, Reverse(*queue))).map(|(queue, _)| queue);
        for (work, info) in graph.works.iter_mut().zip(&problem.works) {
            let is_busiest = Some(info.queue) == busiest;
            work.busy = if is_busiest { work.cost } else { 0 };
            work.ways.iter_mut().for_each(|way| way.busy = if is_busiest { way.cost } else { 0 });
        }
        let (values, works) = (&graph.values, &graph.works);
        let may_move = graph.link.is_some();
        let may_go = |value: &usize| values[*value].bytes > 0 && works.get(values[*value].work).is_some_and(|work| work.again || may_move);
        graph.large = (0..values.len()).filter(may_go).collect();
        graph.large.sort_by_key(|value| Reverse(values[*value].bytes));
        Ok(graph)
    }

    fn add(&mut self, problem: &Problem, index: usize, work: &crate::Work) -> Result<(), Violation> {
        let wrong = |what: String| Err(Violation(format!("work {index} {what}")));
        let values = self.values.len();
        let mut reads = Vec::new();
        for &read in &work.reads {
            if read >= values {
                return wrong(format!("reads value {read}, which is not there"));
            }
            reads.push(read);
            reads.extend(self.values[read].root);
        }
        reads.sort_unstable();
        reads.dedup();
        let mut writes = work.writes.clone();
        writes.sort_unstable();
        writes.dedup();
        for &write in &writes {
            if write >= values {
                return wrong(format!("writes value {write}, which is not there"));
            }
            if self.values[write].work != usize::MAX {
                return wrong(format!("writes value {write}, as does work {}", self.values[write].work));
            }
            if reads.binary_search(&write).is_ok() || !self.values[write].readers.is_empty() {
                return wrong(format!("writes value {write}, which is read before"));
            }
        }
        if let Some(after) = work.after.iter().find(|after| **after >= index) {
            return wrong(format!("runs after work {after}, which is not before it"));
        }
        for &(read, written) in &work.in_place {
            let known = reads.binary_search(&read).is_ok() && writes.binary_search(&written).is_ok();
            if !known || self.values[read].bytes != self.values[written].bytes {
                return wrong(format!("cannot write value {written} over value {read}"));
            }
            let once = |pairs: &dyn Fn(&(usize, usize)) -> bool| work.in_place.iter().filter(|pair| pairs(pair)).count() == 1;
            if !once(&|pair| pair.0 == read) || !once(&|pair| pair.1 == written) {
                return wrong(format!("writes over value {read}, or to value {written}, twice"));
            }
        }
        // An input that is read before a work defines it would be two values; `readers` above keeps inputs too.
        for &read in &reads {
            self.values[read].readers.push(index);
        }
        for (read, _) in &work.in_place {
            self.values[*read].is_over = true;
        }
        let mut last = (work.scratch, work.seconds);
        for way in &work.ways {
            if way.scratch >= last.0 || !(way.seconds >= last.1 && way.seconds.is_finite()) {
                return wrong("has a way with no less scratch, or of less time, than the one before".into());
            }
            last = (way.scratch, way.seconds);
        }
        let cost = |seconds: f64| ((seconds * self.scale) as i64).min(MOST_TIME);
        let ways = work.ways.iter().map(|way| Way { scratch: way.scratch as i64, cost: cost(way.seconds), busy: 0 }).collect();
        let slot = self.slots.len() as u32;
        self.slots.push(Slot::Run(index));
        for &write in &writes {
            let root = problem.values[write].view_of.map(|of| self.values[of].root.unwrap_or(of));
            if let Some(of) = problem.values[write].view_of
                && reads.binary_search(&of).is_err()
            {
                return wrong(format!("makes a view of value {of} and does not read it"));
            }
            let value = &mut self.values[write];
            value.work = index;
            value.slot_in = self.slots.len() as u32;
            value.slot_out = value.slot_in + 1;
            value.root = root;
            self.slots.extend([Slot::In(write), Slot::Out(write)]);
        }
        // Views of inputs are never lost.
        for &write in &writes {
            self.values[write].root = self.values[write].root.filter(|root| self.values[*root].work != usize::MAX);
        }
        reads.retain(|read| self.values[*read].work != usize::MAX);
        self.works.push(Work {
            cost: (work.seconds * self.scale) as i64,
            busy: 0,
            scratch: work.scratch as i64,
            ways,
            reads,
            writes,
            in_place: work.in_place.iter().copied().filter(|(read, _)| self.values[*read].work != usize::MAX).collect(),
            again: work.again,
            until: work.until.unwrap_or(usize::MAX),
            slot,
        });
        Ok(())
    }

    pub fn first(&self, work: usize) -> Key {
        key(work, self.works[work].slot)
    }

    /// The last stage: after all works.
    pub fn end(&self) -> usize {
        self.works.len()
    }

    /// Whether a work that reads the value writes over it, if nothing reads it later.
    pub fn is_over(&self, slot: u32, value: usize) -> bool {
        match self.slots[slot as usize] {
            Slot::Run(work) => self.works[work].in_place.iter().any(|(read, _)| *read == value),
            _ => false,
        }
    }
}
