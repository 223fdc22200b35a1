//! Brings a schedule under its budget, one value after the other.

use crate::graph::{Key, key, stage};
use crate::random::Random;
use crate::state::State;

/// Operands of operands are computed again so far back.
const DEPTH: u32 = 400;

/// How a choice is made.
#[derive(Clone, Copy)]
pub(crate) struct Taste {
    /// So many candidates are tried, the most promising ones.
    pub tried: usize,
    /// How much chance changes what is promising: 0 leaves it as it is.
    pub noise: f64,
}

/// How an operand that is not there any more is had when a work runs again.
#[derive(Clone, Copy, PartialEq)]
enum Operands {
    /// It stays where it has room, and is computed again otherwise.
    Room,
    /// It stays.
    Stay,
    /// It is computed again.
    Again,
}

/// A value that is live at a position and not used there: between two uses it may be lost.
struct Candidate {
    value: usize,
    next: Key,
    promise: f64,
}

/// Computes more again until no position is over the budget. Without luck the schedule is left as far as it came.
pub(crate) fn repair(state: &mut State, taste: Taste, random: &mut Random, most_steps: u64) -> bool {
    let end = state.steps.saturating_add(most_steps);
    let mut candidates = Vec::new();
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
fn step(state: &mut State, at: Key, taste: Taste, random: &mut Random, candidates: &mut Vec<Candidate>) -> bool {
    find(state, at, taste, random, candidates);
    let mut best: Option<(f64, usize, Operands)> = None;
    let before = (state.profile.over(), state.cost);
    for (index, candidate) in candidates.iter().enumerate() {
        if index >= taste.tried && best.is_some() {
            break;
        }
        for operands in [Operands::Room, Operands::Stay, Operands::Again] {
            let mark = state.mark();
            if lose(state, candidate.value, candidate.next, operands) {
                let gained = (before.0 - state.profile.over()) as f64;
                let mut rate = gained / ((state.cost - before.1) as f64 + 1.0);
                if taste.noise > 0.0 {
                    rate *= 1.0 + taste.noise * random.unit();
                }
                if gained > 0.0 && best.is_none_or(|(other, _, _)| rate > other) {
                    best = Some((rate, index, operands));
                }
            }
            state.back_to(mark);
        }
    }
    let Some((_, index, operands)) = best else { return false };
    let candidate = &candidates[index];
    lose(state, candidate.value, candidate.next, operands)
}

/// The values that could be lost at a position, the most promising ones first.
fn find(state: &mut State, at: Key, taste: Taste, random: &mut Random, candidates: &mut Vec<Candidate>) {
    candidates.clear();
    let graph = state.graph;
    let (first, last) = state.profile.zone(at);
    state.steps += graph.values.len() as u64 / 16 + 1;
    let wanted = (state.profile.bytes_at(at) - state.profile.budget()).max(1);
    for (value, info) in graph.values.iter().enumerate() {
        if info.bytes == 0 || info.work == usize::MAX {
            continue;
        }
        let Some((before, next)) = state.gap(value, at) else { continue };
        let work = &graph.works[info.work];
        let to = if next == Key::MAX { graph.end() } else { stage(next) };
        let back = key(to, work.slot);
        if next == at || back <= at || !work.again || to > work.until {
            continue;
        }
        let length = (stage(back.min(last)) + 1).saturating_sub(stage(before.max(first)));
        let mut promise = info.bytes.min(wanted) as f64 * length as f64 / (work.cost as f64 + 1.0);
        if taste.noise > 0.0 {
            promise *= 1.0 + taste.noise * random.unit();
        }
        candidates.push(Candidate { value, next, promise });
    }
    candidates.sort_by(|a, b| b.promise.total_cmp(&a.promise).then(a.value.cmp(&b.value)));
}

/// Loses a value before its next use.
fn lose(state: &mut State, value: usize, next: Key, operands: Operands) -> bool {
    let to = if next == Key::MAX { state.graph.end() } else { stage(next) };
    again(state, state.graph.values[value].work, to, operands, DEPTH)
}

fn again(state: &mut State, work: usize, to: usize, operands: Operands, depth: u32) -> bool {
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
        let stays = match operands {
            Operands::Room => state.profile.most(end, at).saturating_add(operand.bytes) <= state.profile.budget(),
            Operands::Stay => true,
            Operands::Again => false,
        };
        state.steps += 1;
        if !stays {
            let mark = state.mark();
            if !again(state, operand.work, to, operands, depth - 1) {
                state.back_to(mark);
            }
        }
    }
    state.run_again(work, to)
}
