//! Makes a schedule within its budget faster.
//!
//! Large neighbourhood search: something is changed at random, and the schedule is brought back to where it fits and where nothing
//! runs in vain. There are three kinds of changes. The first takes out some of what runs again, and lets `repair` find other values to
//! lose. The second loses values that were made one behind another, as a segment between two checkpoints. The third repairs under a
//! lower budget. What need not run again any more is taken out, the expensive rather first. A schedule that is a little slower is kept
//! for a while: how much slower falls to nothing.

use std::cmp::Reverse;

use crate::graph::{Key, Slot, slot, stage};
use crate::repair::{Taste, Way, lose, repair};
use crate::state::State;
use plimsoll_base::Random;

/// So many positions are tried to be taken out after a change.
const MOST_PRUNED: usize = 256;

/// How much slower than the best a schedule may be that the search goes on from, at first.
const SLOWER: f64 = 0.1;

/// How much lower a budget may be, as a part of it, to see what else could be lost.
const LOWER: f64 = 0.2;

/// Everything that runs again, in order.
fn extra(state: &State) -> Vec<Key> {
    let mut keys: Vec<Key> = (0..state.graph.works.len()).flat_map(|work| state.runs_again(work)).copied().collect();
    keys.extend(state.moved.values().flat_map(|moves| moves.out.iter().chain(&moves.back)));
    keys.sort_unstable();
    keys
}

fn cost(state: &State, key: Key) -> i64 {
    match state.graph.slots[slot(key) as usize] {
        Slot::Run(work) => state.graph.works[work].cost,
        Slot::In(value) | Slot::Out(value) => state.graph.link.as_ref().map_or(0, |link| link.time(state.graph.values[value].bytes)),
    }
}

/// Takes out what need not run again, the most expensive first.
pub(crate) fn prune(state: &mut State) {
    let mut keys = extra(state);
    keys.sort_by_key(|key| (Reverse(cost(state, *key)), *key));
    for key in keys {
        try_without(state, key);
    }
    prune_ways(state);
}

/// Lets works run in a faster way where there is room.
fn prune_ways(state: &mut State) {
    let mut works: Vec<(i64, usize)> =
        state.ways().iter().map(|(work, number)| (state.graph.works[*work].way(*number).cost, *work)).collect();
    works.sort_unstable_by_key(|(cost, work)| (Reverse(*cost), *work));
    for (_, work) in works {
        let over = state.profile.over();
        for number in 0..state.way_number(work) {
            let mark = state.mark();
            state.set_way(work, number);
            if state.profile.over() <= over {
                break;
            }
            state.back_to(mark);
        }
    }
}

/// The same for some of the positions, the expensive ones rather first.
fn prune_some(state: &mut State, mut keys: Vec<Key>, random: &mut Random) {
    if keys.len() > MOST_PRUNED {
        let from = random.below(keys.len() - MOST_PRUNED + 1);
        keys = keys[from..from + MOST_PRUNED].to_vec();
    }
    let noise = random.unit();
    let mut order: Vec<(f64, Key)> =
        keys.iter().map(|key| ((cost(state, *key) as f64 + 1.0) * (1.0 - noise * random.unit()), *key)).collect();
    order.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    for (_, key) in order {
        try_without(state, key);
    }
    prune_ways(state);
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

/// Changes the schedule, which fits, over and over; leaves it as the fastest that was found.
pub(crate) fn improve(state: &mut State, random: &mut Random, most_steps: u64) {
    let begin = state.steps;
    let end = begin.saturating_add(most_steps);
    state.keep();
    let mut keys = extra(state);
    let mut best = (state.total(), keys.clone(), state.ways().clone());
    while state.steps < end && best.0 > 0 {
        let left = 1.0 - (state.steps - begin) as f64 / most_steps as f64;
        let slower = (best.0 as f64 * SLOWER * left * left) as i64;
        state.steps += 1;
        let fits = match random.below(5) {
            0 | 1 => without(state, &keys, random, end),
            2 | 3 => segment(state, random),
            _ => lower(state, random, end),
        };
        if fits {
            prune_some(state, extra(state), random);
        }
        let total = state.total();
        if fits && total <= best.0.saturating_add(slower) {
            state.keep();
            keys = extra(state);
            if total < best.0 {
                best = (total, keys.clone(), state.ways().clone());
            }
        } else {
            state.back_to(0);
        }
    }
    if state.total() > best.0 {
        state.restore(&best.1, &best.2);
    }
}

/// Takes out some of what runs again, in one place or near it, and repairs.
fn without(state: &mut State, keys: &[Key], random: &mut Random, end: u64) -> bool {
    let mut removed = 0;
    if !state.ways().is_empty() && (keys.is_empty() || random.below(4) == 0) {
        let work = state.ways().keys().copied().nth(random.below(state.ways().len())).unwrap_or(0);
        state.set_way(work, random.below(state.way_number(work).max(1)));
        removed += 1;
    }
    if keys.is_empty() {
        return removed > 0 && mend(state, random, end);
    }
    let middle = random.below(keys.len());
    let size = 1 << random.below(6);
    let count = 1 + random.below(size);
    let mut remove = |state: &mut State, key: Key| {
        if state.is_there(key) && state.can_go(key) {
            state.remove(key);
            removed += 1;
        }
    };
    if random.below(2) == 0 {
        for &key in &keys[middle.saturating_sub(count / 2)..(middle + count.div_ceil(2)).min(keys.len())] {
            remove(state, key);
        }
    } else {
        let around = stage(keys[middle]);
        for _ in 0..count {
            let key = keys[random.below(keys.len())];
            if stage(key).abs_diff(around) < 1 + state.graph.works.len() / 8 {
                remove(state, key);
            }
        }
    }
    removed > 0 && mend(state, random, end)
}

fn mend(state: &mut State, random: &mut Random, end: u64) -> bool {
    let taste = Taste { tried: 1 + random.below(4), noise: random.unit() * 2.0, is_quick: random.below(4) > 0, depth: 8 };
    let left = end.saturating_sub(state.steps);
    repair(state, taste, random, left)
}

/// Brings the schedule under a lower budget.
fn lower(state: &mut State, random: &mut Random, end: u64) -> bool {
    let budget = state.profile.budget();
    let less = (budget - state.graph.base).max(0) as f64 * LOWER * random.unit();
    state.profile.set_budget(budget - less as i64);
    let taste =
        Taste { tried: 2 + random.below(4), noise: random.unit() * 2.0, is_quick: random.below(2) == 0, depth: random.below(9) as u32 };
    let left = end.saturating_sub(state.steps);
    repair(state, taste, random, left);
    state.profile.set_budget(budget);
    state.profile.over() == 0
}

/// Loses values of works that follow each other, where the first of them is not used for long.
fn segment(state: &mut State, random: &mut Random) -> bool {
    let graph = state.graph;
    if graph.large.is_empty() {
        return false;
    }
    let value = graph.large[random.below(graph.large.len()).min(random.below(graph.large.len()))];
    let Some((before, next)) = state.longest(value) else { return false };
    let to = if next == Key::MAX { graph.end() } else { stage(next) };
    let middle = (stage(before) + to) / 2;
    if middle >= graph.end() || middle <= stage(before) {
        return false;
    }
    let at = graph.first(middle);
    let size = 1 << random.below(7);
    let count = 1 + random.below(size);
    let first = graph.values[value].work.saturating_sub(random.below(count));
    let chance = [1, 2, 4][random.below(3)];
    let mut lost: Vec<((Key, Key), usize)> = Vec::new();
    for work in &graph.works[first..(first + count).min(graph.end())] {
        for &other in &work.writes {
            state.steps += 1;
            let wanted = graph.values[other].bytes > 0 && work.again && (other == value || random.below(4) < chance);
            if wanted && let Some((before, next)) = state.gap(other, at) {
                lost.push(((before, next), other));
            }
        }
    }
    lost.sort_unstable_by_key(|lost| (lost.0.1, lost.1));
    let way = if random.below(2) == 0 { Way::Room } else { Way::Again };
    let mut any = false;
    for (uses, other) in lost {
        let mark = state.mark();
        if lose(state, other, uses, at, way) {
            any = true;
        } else {
            state.back_to(mark);
        }
    }
    // Segments that take more room than there is may still be mended by what follows.
    any && (state.profile.over() == 0 || repair(state, Taste { tried: 2, noise: 1.0, is_quick: false, depth: 8 }, random, 2000))
}
