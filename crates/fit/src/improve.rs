//! Makes a schedule within its budget faster.

use crate::graph::{Key, stage};
use crate::random::Random;
use crate::repair::{Taste, repair};
use crate::state::State;

/// Everything that runs again, in order.
fn extra(state: &State) -> Vec<Key> {
    let mut keys: Vec<Key> = (0..state.graph.works.len()).flat_map(|work| state.runs_again(work)).copied().collect();
    keys.sort_unstable();
    keys
}

/// Takes out what need not run again, the most expensive first.
pub(crate) fn prune(state: &mut State, random: Option<&mut Random>) {
    let mut keys = extra(state);
    let cost = |state: &State, key: Key| match state.graph.slots[crate::graph::slot(key) as usize] {
        crate::graph::Slot::Run(work) => state.graph.works[work].cost,
        _ => 0,
    };
    match random {
        Some(random) => {
            for at in (1..keys.len()).rev() {
                keys.swap(at, random.below(at + 1));
            }
        }
        None => keys.sort_by_key(|key| (std::cmp::Reverse(cost(state, *key)), *key)),
    }
    for key in keys {
        try_without(state, key);
    }
}

/// Takes a position out if nothing needs it and the schedule gets no further over its budget.
fn try_without(state: &mut State, key: Key) -> bool {
    state.steps += 1;
    if !state.is_there(key) || !state.can_go(key) {
        return false;
    }
    let (mark, over) = (state.mark(), state.profile.over());
    state.remove(key);
    if state.profile.over() > over {
        state.back_to(mark);
        return false;
    }
    true
}

/// Takes out some of what runs again and brings the schedule back under its budget, over and over; keeps what is better.
pub(crate) fn improve(state: &mut State, random: &mut Random, most_steps: u64) {
    let end = state.steps.saturating_add(most_steps);
    let mut keys = extra(state);
    state.keep();
    while state.steps < end && !keys.is_empty() {
        let before = state.cost;
        let middle = random.below(keys.len());
        let size = 1 << random.below(6);
        let count = 1 + random.below(size);
        let mut removed = 0;
        if random.below(2) == 0 {
            for &key in &keys[middle.saturating_sub(count / 2)..(middle + count.div_ceil(2)).min(keys.len())] {
                if state.is_there(key) && state.can_go(key) {
                    state.remove(key);
                    removed += 1;
                }
            }
        } else {
            let around = stage(keys[middle]);
            for _ in 0..count {
                let key = keys[random.below(keys.len())];
                let near = stage(key).abs_diff(around) < 1 + state.graph.works.len() / 8;
                if near && state.is_there(key) && state.can_go(key) {
                    state.remove(key);
                    removed += 1;
                }
            }
        }
        if removed == 0 {
            state.steps += 1;
            continue;
        }
        let taste = Taste { tried: 1 + random.below(4), noise: random.unit() * 2.0 };
        let left = end.saturating_sub(state.steps);
        let fits = repair(state, taste, random, left);
        if fits {
            for key in extra_near(state, &keys, middle) {
                try_without(state, key);
            }
        }
        if fits && state.cost <= before {
            state.keep();
            keys = extra(state);
        } else {
            state.back_to(0);
        }
    }
}

fn extra_near(state: &State, _keys: &[Key], _middle: usize) -> Vec<Key> {
    if state.profile.len() > 2000 { Vec::new() } else { extra(state) }
}
