//! What the search has found, for plans that ask the same again.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_fit::{Problem, State};

/// So many problems are kept, the latest ones.
const MOST: usize = 8;

/// Descents of the search by their problems. They do not depend on lines: the plan for a limit and the search for the least limit ask for
/// the same. To keep them changes the time that planning takes, and no plan.
#[derive(Default)]
pub struct Descents(Mutex<Vec<Found>>);

struct Found {
    problem: Problem,
    effort: u64,
    states: Arc<Vec<State>>,
}

impl Descents {
    /// [`plimsoll_fit::descend`], or what it was before.
    pub(super) fn descend(&self, problem: &Problem, effort: u64) -> Vec<State> {
        let is_same = |found: &&Found| found.effort == effort && found.problem == *problem;
        let known = self.lock().iter().find(is_same).map(|found| Arc::clone(&found.states));
        if let Some(states) = known {
            return states.to_vec();
        }
        let states = plimsoll_fit::descend(problem, effort);
        let mut kept = self.lock();
        if kept.len() >= MOST {
            kept.remove(0);
        }
        kept.push(Found { problem: problem.clone(), effort, states: Arc::new(states.clone()) });
        states
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Found>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Descents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Descents").field(&self.lock().len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_fit::{Value, Work};

    use super::*;

    #[test]
    fn what_was_found_is_found_again() {
        let work = |reads: Vec<usize>, writes: Vec<usize>| Work { seconds: 1.0, again: true, reads, writes, ..Work::default() };
        let works = vec![work(vec![], vec![0]), work(vec![0], vec![1]), work(vec![1], vec![2]), work(vec![0, 2], vec![3])];
        let values = vec![Value { bytes: 64, ..Value::default() }; 4];
        let problem = Problem { works, values, ..Problem::default() };
        let descents = Descents::default();
        let expected = plimsoll_fit::descend(&problem, 10_000);
        for _ in 0..2 {
            assert_eq!(descents.descend(&problem, 10_000), expected);
        }
        assert_eq!(descents.lock().len(), 1);
        // Another effort is another question, and only the latest are kept.
        for effort in 0..2 * MOST as u64 {
            assert_eq!(descents.descend(&problem, effort), plimsoll_fit::descend(&problem, effort));
        }
        assert_eq!(descents.lock().len(), MOST);
    }
}
