//! Brings a schedule under its budget, one value after the other.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::graph::{Key, Slot, key, slot, stage};
use crate::state::State;
use plimsoll_base::Random;

/// Way of way are computed again so far back.
const DEPTH: u32 = 400;

/// So many candidates are tried in one way each, before all ways are tried.
const QUICKLY: usize = 8;

/// How a choice is made.
#[derive(Clone, Copy)]
pub(crate) struct Taste {
    /// At most so many candidates are tried, the most promising ones.
    pub tried: usize,
    /// How much chance changes what is promising: 0 leaves it as it is.
    pub noise: f64,
    /// The first candidate that helps is taken, in a way that chance chooses.
    pub is_quick: bool,
    /// How far back operands count in what is promising.
    pub depth: u32,
}

/// How a value is lost between two uses: the work that makes it runs again, and an operand that is not there any more
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Way {
    /// stays where it has room, and is computed again otherwise;
    Room,
    /// stays;
    Stay,
    /// is computed again.
    Again,
    /// Or the value waits in the slow memory, with some slack for the moves.
    Slow(i64),
}

const WAYS: [Way; 6] = [Way::Room, Way::Stay, Way::Again, Way::Slow(0), Way::Slow(1), Way::Slow(3)];

/// A value that is live at a position and not used there: between two uses it may be lost.
struct Candidate {
    /// The most that it can be worth, about: bytes over the budget that it saves, for each part of time.
    promise: f64,
    value: usize,
    before: Key,
    next: Key,
    /// Bytes saved, and whether the promise counts the time of way too.
    saved: f64,
    is_exact: bool,
}

impl Ord for Candidate {
    fn cmp(&self, other: &Candidate) -> Ordering {
        self.promise.total_cmp(&other.promise).then(other.value.cmp(&self.value))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Candidate) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Candidate) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Candidate {}

/// Computes more again until no position is over the budget. Without luck the schedule is left as far as it came.
pub(crate) fn repair(state: &mut State, taste: Taste, random: &mut Random, most_steps: u64) -> bool {
    let end = state.steps.saturating_add(most_steps);
    let mut candidates = BinaryHeap::new();
    while state.profile.over() > 0 {
        if state.steps >= end {
            return false;
        }
        let Some(highest) = state.profile.highest() else { return true };
        if !step(state, highest, taste, random, &mut candidates) {
            return false;
        }
    }
    true
}

/// One value less at a position.
fn step(state: &mut State, at: Key, taste: Taste, random: &mut Random, candidates: &mut BinaryHeap<Candidate>) -> bool {
    find(state, at, candidates);
    let before = (state.profile.over(), state.total());
    let narrower = narrower(state, at, before);
    let mut best = narrower.map(|(rate, work, number)| (rate, Choice::Narrow(work, number)));
    let ways: &[Way] = if state.graph.link.is_some() { &WAYS } else { &WAYS[..3] };
    let mut tried = 0;
    while let Some(mut candidate) = candidates.pop() {
        // The promise is the most that a candidate can be worth, about.
        if best.as_ref().is_some_and(|(rate, _)| tried >= taste.tried || *rate >= candidate.promise) {
            break;
        }
        if !candidate.is_exact {
            let to = stage_of(state, candidate.next);
            let work = state.graph.values[candidate.value].work;
            let mut cost = chain(state, work, to, taste.depth, &mut 64).min(i64::MAX / 2);
            if let Some(link) = &state.graph.link {
                // Moves take nothing where works have enough to do beside them.
                cost = cost.min(link.time(state.graph.values[candidate.value].bytes) / 4);
            }
            state.steps += 1;
            candidate.promise = candidate.saved / (cost as f64 + 1.0);
            if taste.noise > 0.0 {
                candidate.promise *= 1.0 + taste.noise * random.unit();
            }
            candidate.is_exact = true;
            candidates.push(candidate);
            continue;
        }
        tried += 1;
        if taste.is_quick {
            let way = ways[random.below(ways.len())];
            let mark = state.mark();
            if lose(state, candidate.value, (candidate.before, candidate.next), at, way) && state.profile.over() < before.0 {
                return true;
            }
            state.back_to(mark);
            if tried < QUICKLY {
                continue;
            }
        }
        for &way in ways {
            let mark = state.mark();
            if lose(state, candidate.value, (candidate.before, candidate.next), at, way) {
                let gained = (before.0 - state.profile.over()) as f64;
                let mut rate = gained / ((state.total() - before.1).max(0) as f64 + 1.0);
                if taste.noise > 0.0 {
                    rate *= 1.0 + taste.noise * random.unit();
                }
                if gained > 0.0 && best.as_ref().is_none_or(|(other, _)| rate > *other) {
                    best = Some((rate, Choice::Lose(candidate.value, (candidate.before, candidate.next), way)));
                }
            }
            state.back_to(mark);
        }
    }
    match best {
        Some((_, Choice::Lose(value, uses, way))) => lose(state, value, uses, at, way),
        Some((_, Choice::Narrow(work, number))) => {
            state.set_way(work, number);
            true
        }
        None => false,
    }
}

/// What is done at a position that is over the budget.
enum Choice {
    /// A value is lost between two uses.
    Lose(usize, (Key, Key), Way),
    /// The work there runs in a way with less scratch.
    Narrow(usize, usize),
}

/// The way with less scratch that is worth most for the work at a position.
fn narrower(state: &mut State, at: Key, before: (i128, i64)) -> Option<(f64, usize, usize)> {
    let Slot::Run(work) = state.graph.slots[slot(at) as usize] else { return None };
    let mut best: Option<(f64, usize, usize)> = None;
    for number in state.way_number(work) + 1..=state.graph.works[work].ways.len() {
        let mark = state.mark();
        state.set_way(work, number);
        let gained = (before.0 - state.profile.over()) as f64;
        let rate = gained / ((state.total() - before.1).max(0) as f64 + 1.0);
        state.back_to(mark);
        if gained > 0.0 && best.is_none_or(|(other, ..)| rate > other) {
            best = Some((rate, work, number));
        }
    }
    best
}

/// The last stage for a use that is the end.
fn stage_of(state: &State, next: Key) -> usize {
    if next == Key::MAX { state.graph.end() } else { stage(next) }
}

/// The values that could be lost at a position.
fn find(state: &mut State, at: Key, candidates: &mut BinaryHeap<Candidate>) {
    candidates.clear();
    let graph = state.graph;
    let (first, last) = state.profile.zone(at);
    let wanted = (state.profile.bytes_at(at) - state.profile.budget()).max(1);
    let largest = graph.large.first().map_or(0, |value| graph.values[*value].bytes);
    let mut found = std::mem::take(candidates).into_vec();
    for (looked, &value) in graph.large.iter().enumerate() {
        let info = &graph.values[value];
        if found.len() >= 16 && info.bytes < wanted.min(largest) / 64 {
            state.steps += looked as u64 / 16;
            break;
        }
        let work = &graph.works[info.work];
        if work.slot >= slot(at) && info.work >= stage(at) {
            continue;
        }
        let Some((before, next)) = state.gap(value, at) else { continue };
        let to = stage_of(state, next);
        let back = key(to, work.slot);
        let may_run = work.again && to <= work.until;
        if next == at || back <= at || !(may_run || graph.link.is_some()) {
            continue;
        }
        let length = (stage(back.min(last)) + 1).saturating_sub(stage(before.max(first)));
        let saved = info.bytes as f64 * length as f64;
        found.push(Candidate {
            value,
            before,
            next,
            promise: f64::MAX.min(2.0 * saved / (work.cost as f64 + 1.0)),
            saved,
            is_exact: false,
        });
    }
    state.steps += 1 + found.len() as u64 / 4;
    *candidates = found.into();
}

/// What it costs, about, to run a work again in a stage: with what it reads and is not there.
fn chain(state: &State, work: usize, to: usize, depth: u32, visits: &mut u32) -> i64 {
    let graph = state.graph;
    let info = &graph.works[work];
    let at = key(to, info.slot);
    let mut cost = info.cost;
    if depth == 0 || *visits == 0 {
        return cost;
    }
    *visits -= 1;
    for &value in &info.reads {
        let operand = &graph.values[value];
        if operand.bytes > 0 && state.end(value, at) <= at && graph.works[operand.work].again {
            cost = cost.saturating_add(chain(state, operand.work, to, depth - 1, visits));
        }
    }
    cost
}

/// Loses a value between two uses, at a position between them.
pub(crate) fn lose(state: &mut State, value: usize, uses: (Key, Key), at: Key, way: Way) -> bool {
    if let Way::Slow(slack) = way {
        return state.wait_slow(value, uses, at, slack);
    }
    let to = stage_of(state, uses.1);
    again(state, state.graph.values[value].work, to, way, DEPTH)
}

fn again(state: &mut State, work: usize, to: usize, way: Way, depth: u32) -> bool {
    let graph = state.graph;
    let info = &graph.works[work];
    let at = key(to, info.slot);
    if state.is_there(at) {
        return true;
    }
    if depth == 0 || !info.again || to > info.until || at <= graph.first(work) {
        return false;
    }
    for &value in &info.reads {
        let operand = &graph.values[value];
        if operand.bytes == 0 {
            continue;
        }
        let end = state.end(value, at);
        if end > at {
            continue;
        }
        let stays = match way {
            Way::Room => state.profile.most(end, at).saturating_add(operand.bytes) <= state.profile.budget(),
            Way::Stay => true,
            Way::Again | Way::Slow(_) => false,
        };
        state.steps += 1;
        if !stays {
            let mark = state.mark();
            if !again(state, operand.work, to, way, depth - 1) {
                state.back_to(mark);
            }
        }
    }
    state.run_again(work, to)
}
