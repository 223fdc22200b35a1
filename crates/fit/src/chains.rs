//! What it costs, about, to lose values: the works that would run again. What was found is kept until a value that it depends on changes.

use crate::graph::key;
use crate::state::State;

/// So many works are looked at for one value.
const VISITS: u32 = 64;

/// What was found, and what has changed since.
#[derive(Default)]
pub(crate) struct Chains {
    /// By value.
    found: Vec<Option<Found>>,
    /// By value: the number of the last change of where it is defined or read.
    changed: Vec<u64>,
    /// The number of changes so far.
    changes: u64,
    /// Whether changes are taken back before the next question.
    pub is_trial: bool,
}

/// The cost of a value that is lost up to a stage.
struct Found {
    to: usize,
    depth: u32,
    cost: i64,
    /// The number of changes when it was found, and the values that it depends on.
    changes: u64,
    asked: Vec<usize>,
}

impl Chains {
    /// A value changes.
    pub fn note(&mut self, value: usize) {
        if !self.is_trial {
            self.changes += 1;
            if self.changed.len() <= value {
                self.changed.resize(value + 1, 0);
            }
            self.changed[value] = self.changes;
        }
    }

    fn known(&self, value: usize, to: usize, depth: u32) -> Option<i64> {
        let found = self.found.get(value)?.as_ref().filter(|found| (found.to, found.depth) == (to, depth))?;
        let is_as_before = |value: &usize| self.changed.get(*value).is_none_or(|changed| *changed <= found.changes);
        found.asked.iter().all(is_as_before).then_some(found.cost)
    }

    fn keep(&mut self, value: usize, found: Found) {
        if self.found.len() <= value {
            self.found.resize_with(value + 1, || None);
        }
        self.found[value] = Some(found);
    }
}

/// Another schedule begins without what was found for this one.
impl Clone for Chains {
    fn clone(&self) -> Chains {
        Chains::default()
    }
}

impl State<'_> {
    /// What it costs, about, to make a value again in a stage: with what that reads and is not there, so far back.
    pub fn chain(&mut self, value: usize, to: usize, depth: u32) -> i64 {
        if let Some(cost) = self.chains.known(value, to, depth) {
            return cost;
        }
        let mut asked = Vec::new();
        let cost = self.chain_of(self.graph.values[value].work, to, depth, &mut VISITS.clone(), &mut asked);
        let changes = self.chains.changes;
        self.chains.keep(value, Found { to, depth, cost, changes, asked });
        cost
    }

    fn chain_of(&self, work: usize, to: usize, depth: u32, visits: &mut u32, asked: &mut Vec<usize>) -> i64 {
        let graph = self.graph;
        let info = &graph.works[work];
        let at = key(to, info.slot);
        let mut cost = info.cost;
        if depth == 0 || *visits == 0 {
            return cost;
        }
        *visits -= 1;
        for &value in &info.reads {
            let operand = &graph.values[value];
            if operand.bytes > 0 && graph.works[operand.work].again {
                asked.push(value);
                if self.is_gone(value, at) {
                    cost = cost.saturating_add(self.chain_of(operand.work, to, depth - 1, visits, asked));
                }
            }
        }
        cost
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use plimsoll_base::Random;

    use crate::graph::Graph;
    use crate::state::State;
    use crate::{Problem, Value, Work};

    /// Works that read some of what was made before.
    pub(crate) fn made_up(random: &mut Random, works: usize) -> Problem {
        let work = |at: usize, random: &mut Random| {
            let mut reads: Vec<usize> = (0..at.min(3)).map(|_| random.below(at)).collect();
            reads.sort_unstable();
            reads.dedup();
            Work { seconds: 1.0 + random.below(4) as f64, again: random.below(8) > 0, reads, writes: vec![at], ..Work::default() }
        };
        let values = (0..works).map(|_| Value { bytes: 64 * random.below(5) as u64, ..Value::default() }).collect();
        Problem { works: (0..works).map(|at| work(at, random)).collect(), values, ..Problem::default() }
    }

    #[test]
    fn what_was_found_holds_until_something_changes() {
        let mut random = Random::new(7);
        for _ in 0..40 {
            let problem = made_up(&mut random, 24);
            let graph = Graph::new(&problem).unwrap();
            let mut state = State::new(&graph, 256);
            for _ in 0..60 {
                let (value, to) = (random.below(24), random.below(25));
                match random.below(4) {
                    0 => {
                        state.run_again(graph.values[value].work, to);
                    }
                    1 => state.back_to(random.below(state.mark() + 1)),
                    _ => {
                        let depth = random.below(9) as u32;
                        let fresh = state.clone().chain(value, to, depth);
                        assert_eq!(state.chain(value, to, depth), fresh);
                        assert_eq!(state.chain(value, to, depth), fresh);
                    }
                }
            }
        }
    }
}
