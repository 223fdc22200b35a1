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
            let mut cost = state.chain(candidate.value, to, taste.depth).min(i64::MAX / 2);
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
        let mut first: Option<Trial> = None;
        for &way in ways {
            let is_same = |trial: &&Trial| trial.is_same(way);
            let worth = match first.as_ref().filter(is_same) {
                Some(trial) => {
                    state.steps += trial.steps;
                    trial.worth
                }
                None => {
                    let trial = Trial::of(state, &candidate, at, way, before);
                    let worth = trial.worth;
                    first.get_or_insert(trial);
                    worth
                }
            };
            let Some((gained, longer)) = worth else { continue };
            let mut rate = gained / longer;
            if taste.noise > 0.0 {
                rate *= 1.0 + taste.noise * random.unit();
            }
            if gained > 0.0 && best.as_ref().is_none_or(|(other, _)| rate > *other) {
                best = Some((rate, Choice::Lose(candidate.value, (candidate.before, candidate.next), way)));
            }
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

/// So many works that run again change the books of a state alike however often they are put in and taken out: blocks of positions that
/// the first time has cut are not cut again.
const FEW: u64 = 40;

/// What operands did that were not there any more, while a value was lost.
#[derive(Clone, Copy, Default)]
pub(crate) struct Told {
    stayed: bool,
    again: bool,
}

/// A value that was lost and is there again.
struct Trial {
    /// Bytes that it gains over all positions, and how much longer it takes; none where it cannot be lost so.
    worth: Option<(f64, f64)>,
    told: Told,
    /// The steps that it took.
    steps: u64,
    is_small: bool,
}

impl Trial {
    /// Tries a way to lose a candidate at a position. `before` is what is over the budget, and the time.
    fn of(state: &mut State, candidate: &Candidate, at: Key, way: Way, before: (i128, i64)) -> Trial {
        let (mark, steps, puts) = (state.mark(), state.steps, state.puts);
        let mut told = Told::default();
        state.chains.is_trial = true;
        let is_lost = lose_told(state, candidate.value, (candidate.before, candidate.next), at, way, &mut told);
        let worth = is_lost.then(|| {
            let gained = (before.0 - state.profile.over()) as f64;
            (gained, (state.total() - before.1).max(0) as f64 + 1.0)
        });
        let is_small = state.puts - puts <= FEW;
        state.back_to(mark);
        state.chains.is_trial = false;
        Trial { worth, told, steps: state.steps - steps, is_small }
    }

    /// Whether another way does the same as that of this trial, [`Way::Room`].
    fn is_same(&self, way: Way) -> bool {
        self.is_small
            && match way {
                Way::Room => true,
                Way::Stay => !self.told.again,
                Way::Again => !self.told.stayed,
                Way::Slow(_) => false,
            }
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

/// Loses a value between two uses, at a position between them.
pub(crate) fn lose(state: &mut State, value: usize, uses: (Key, Key), at: Key, way: Way) -> bool {
    lose_told(state, value, uses, at, way, &mut Told::default())
}

fn lose_told(state: &mut State, value: usize, uses: (Key, Key), at: Key, way: Way, told: &mut Told) -> bool {
    if let Way::Slow(slack) = way {
        return state.wait_slow(value, uses, at, slack);
    }
    let to = stage_of(state, uses.1);
    again(state, state.graph.values[value].work, to, (way, DEPTH), told)
}

fn again(state: &mut State, work: usize, to: usize, (way, depth): (Way, u32), told: &mut Told) -> bool {
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
        if !state.is_gone(value, at) {
            continue;
        }
        let stays = match way {
            Way::Room => {
                let end = state.end(value, at);
                !state.profile.has_more(end, at, state.profile.budget() - operand.bytes)
            }
            Way::Stay => true,
            Way::Again | Way::Slow(_) => false,
        };
        state.steps += 1;
        (told.stayed, told.again) = (told.stayed || stays, told.again || !stays);
        if !stays {
            let mark = state.mark();
            if !again(state, operand.work, to, (way, depth - 1), told) {
                state.back_to(mark);
            }
        }
    }
    state.run_again(work, to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chains::tests::made_up;
    use crate::graph::Graph;

    #[test]
    fn ways_that_are_said_to_be_the_same_are() {
        let mut random = Random::new(3);
        let (mut same, mut other) = (0, 0);
        for _ in 0..40 {
            let problem = made_up(&mut random, 40);
            let graph = Graph::new(&problem).unwrap();
            let mut state = State::new(&graph, 64 * (6 + random.below(10)) as i64);
            let mut candidates = BinaryHeap::new();
            while state.profile.over() > 0 {
                let Some(at) = state.profile.highest() else { break };
                find(&mut state, at, &mut candidates);
                let before = (state.profile.over(), state.total());
                for candidate in candidates.iter() {
                    let (positions, steps) = (state.profile.positions().collect::<Vec<_>>(), state.steps);
                    let first = Trial::of(&mut state, candidate, at, Way::Room, before);
                    assert_eq!(state.steps - steps, first.steps);
                    for way in [Way::Stay, Way::Again] {
                        let trial = Trial::of(&mut state, candidate, at, way, before);
                        if first.is_same(way) {
                            assert_eq!((trial.worth, trial.steps), (first.worth, first.steps));
                            same += 1;
                        } else {
                            other += 1;
                        }
                    }
                    assert_eq!(state.profile.positions().collect::<Vec<_>>(), positions);
                }
                let taste = Taste { tried: 4, noise: 0.0, is_quick: false, depth: 8 };
                if !step(&mut state, at, taste, &mut random, &mut candidates) {
                    break;
                }
            }
        }
        assert!(same > 100 && other > 100, "{same} are the same, {other} are not");
    }
}
