//! The two ways to ask.

use crate::graph::{Graph, Slot, slot};
use crate::improve::{improve, prune};
use crate::repair::{Taste, repair};
use crate::state::State;
use crate::{Problem, Violation, replay};
use plimsoll_base::Random;

const GREEDY: Taste = Taste { tried: 12, noise: 0.0, is_quick: false, depth: 8 };

/// Schedules that [`fit`] begins with are made under these parts of the budget.
const PARTS: [f64; 4] = [1.0, 0.93, 0.86, 0.78];

/// The first way down takes at most this part of the effort.
const FIRST_WAY: f64 = 0.6;

/// So often chance is tried where the best choices lead to nothing.
const CHANCES: u64 = 4;

/// Chance aims up to this part lower.
const LOWER: f64 = 0.2;

/// How many peaks are aimed at on the way down; and how often one that is not reached is followed by one half as far.
const AIMS: i64 = 96;
const FAILURES: u32 = 7;

/// See [`crate::fit`].
pub(crate) fn fit(problem: &Problem, peak: u64, effort: u64) -> Result<Option<crate::State>, Violation> {
    let graph = Graph::new(problem)?;
    let budget = i64::try_from(peak).unwrap_or(i64::MAX).min(i64::MAX / 4);
    let mut random = Random::new(1);
    let (start, spent) = start(&graph, budget, &mut random, effort);
    let Some(mut state) = start else { return Ok(None) };
    state.steps = spent;
    let left = effort.saturating_sub(spent);
    improve(&mut state, &mut random, left);
    written(problem, &state).map(Some)
}

/// The fastest of some schedules within a budget, and the steps that it took. Each comes from one under a lower budget, by taking out what
/// need not run again: together, values can be lost for less than one after the other.
fn start<'a>(graph: &'a Graph, budget: i64, random: &mut Random, effort: u64) -> (Option<State<'a>>, u64) {
    let mut best: Option<(i64, State)> = None;
    let mut spent = 0;
    for depth in [GREEDY.depth, 0] {
        let mut state = State::new(graph, budget);
        for part in PARTS {
            let lower = graph.base as f64 + (budget - graph.base) as f64 * part;
            state.profile.set_budget(if part < 1.0 { lower as i64 } else { budget });
            // What nothing fits into may take all effort; further schedules take some of it.
            let most = if best.is_none() { effort.saturating_sub(spent) } else { (effort / 4).saturating_sub(spent) };
            let before = state.steps;
            let fits = repair(&mut state, Taste { depth, ..GREEDY }, random, most);
            state.keep();
            spent += state.steps - before;
            let mut pruned = state.clone();
            pruned.profile.set_budget(budget);
            if pruned.profile.over() == 0 {
                prune(&mut pruned);
                spent += pruned.steps - state.steps;
                let total = pruned.total();
                if best.as_ref().is_none_or(|(other, _)| total < *other) {
                    best = Some((total, pruned));
                }
            }
            if !fits {
                break;
            }
        }
    }
    (best.map(|(_, state)| state), spent)
}

/// See [`crate::descend`]. A first way down takes no time to improve schedules: it comes as low as it can. A second one spends what is
/// left on faster schedules.
pub(crate) fn descend(problem: &Problem, effort: u64) -> Result<Vec<crate::State>, Violation> {
    let graph = Graph::new(problem)?;
    let mut states = vec![written(problem, &State::new(&graph, i64::MAX / 4))?];
    let spent = way_down(problem, &graph, ((effort as f64 * FIRST_WAY) as u64, 0), &mut states);
    let left = effort.saturating_sub(spent);
    way_down(problem, &graph, (left, left), &mut states);
    Ok(row(states))
}

/// See [`crate::row`].
pub(crate) fn of(problem: &Problem, schedules: Vec<Vec<crate::Step>>) -> Result<Vec<crate::State>, Violation> {
    Graph::new(problem)?;
    let state = |steps: Vec<crate::Step>| {
        let (peak, seconds) = replay::of_checked(problem, &steps).ok()?;
        Some(crate::State { steps, peak, seconds })
    };
    Ok(row(schedules.into_iter().filter_map(state).collect()))
}

/// Adds schedules under ever lower budgets, within an effort of which a part goes to improvements. The steps that it took.
fn way_down(problem: &Problem, graph: &Graph, (effort, improvements): (u64, u64), states: &mut Vec<crate::State>) -> u64 {
    let mut state = State::new(graph, i64::MAX / 4);
    let mut random = Random::new(1);
    let (peak, floor) = (state.peak(), floor(graph));
    let mut aim = ((peak - floor) / AIMS).max(1);
    let (mut budget, mut failed) = (peak, 0);
    while failed < FAILURES && budget > floor {
        let lower = (budget - aim).max(floor);
        let left = effort.saturating_sub(state.steps);
        let found = reach(&mut state, lower, &mut random, left / 4);
        if !found {
            // Nearer to what was reached.
            (failed, aim) = (failed + 1, aim / 2);
            state.profile.set_budget(budget);
            if aim == 0 || state.steps >= effort {
                break;
            }
            continue;
        }
        budget = lower;
        prune(&mut state);
        let aims = ((budget - floor) / aim + 1) as u64;
        let left = improvements.saturating_sub(state.steps);
        improve(&mut state, &mut random, left / aims / 2);
        let Ok(state) = written(problem, &state) else { break };
        states.push(state);
    }
    state.steps
}

/// Brings a schedule under a lower budget, from where it is or from the start; otherwise leaves it as it is.
fn reach(state: &mut State, budget: i64, random: &mut Random, most_steps: u64) -> bool {
    state.keep();
    state.profile.set_budget(budget);
    if repair(state, GREEDY, random, most_steps) {
        return true;
    }
    state.back_to(0);
    // Chance finds ways around what the best choice each time runs into.
    for _ in 0..CHANCES {
        let taste = Taste { noise: 2.0 * random.unit(), depth: random.below(9) as u32, ..GREEDY };
        let kept = state.clone();
        if random.below(2) == 0 {
            *state = State::new(state.graph, budget);
            state.steps = kept.steps;
        }
        let lower = (budget - state.graph.base) as f64 * LOWER * random.unit();
        state.profile.set_budget(budget - lower as i64);
        repair(state, taste, random, most_steps / CHANCES);
        state.profile.set_budget(budget);
        if state.profile.over() == 0 {
            return true;
        }
        let steps = state.steps;
        *state = kept;
        state.steps = steps;
    }
    let (start, spent) = start(state.graph, budget, random, most_steps);
    let steps = state.steps.saturating_add(spent);
    let found = start.is_some();
    if let Some(start) = start {
        *state = start;
    }
    state.steps = steps;
    found
}

/// Those of the states that are a descent from the first.
fn row(mut states: Vec<crate::State>) -> Vec<crate::State> {
    if let [_, others @ ..] = &mut states[..] {
        // Of one peak the fastest.
        others.sort_by(|a, b| b.peak.cmp(&a.peak).then(a.seconds.total_cmp(&b.seconds)));
    }
    let mut row: Vec<crate::State> = Vec::new();
    for state in states {
        if row.last().is_some_and(|last| state.peak >= last.peak) {
            continue;
        }
        // A lower peak in less time is better than what came before; the schedule as given stays.
        while row.len() > 1 && row.last().is_some_and(|last| last.seconds > state.seconds) {
            row.pop();
        }
        if row.last().is_none_or(|last| last.seconds <= state.seconds) {
            row.push(state);
        }
    }
    row
}

/// No schedule has a lower peak: each work needs so much while it runs.
fn floor(graph: &Graph) -> i64 {
    let of = |work: &crate::graph::Work| {
        let reads: i64 = work.reads.iter().map(|value| graph.values[*value].bytes).sum();
        let writes: i64 = work.writes.iter().map(|value| graph.values[*value].bytes).sum();
        let over: i64 = work.in_place.iter().map(|(read, _)| graph.values[*read].bytes).sum();
        reads + writes + work.least_scratch() - over
    };
    graph.works.iter().map(of).max().unwrap_or(0) + graph.base
}

/// The schedule of a state, with its peak and time as a replay finds them.
fn written(problem: &Problem, state: &State) -> Result<crate::State, Violation> {
    let step = |key| match state.graph.slots[slot(key) as usize] {
        Slot::Run(work) => match state.way_number(work) {
            0 => crate::Step::Run(work),
            way => crate::Step::RunAs(work, way - 1),
        },
        Slot::Out(value) => crate::Step::Out(value),
        Slot::In(value) => crate::Step::In(value),
    };
    let steps: Vec<crate::Step> = state.profile.positions().map(|(key, _)| step(key)).collect();
    let replayed = replay::of_checked(problem, &steps);
    debug_assert!(replayed.is_ok(), "the search follows the rules: {replayed:?}");
    let (peak, seconds) = replayed?;
    let most = || state.profile.positions().map(|(_, bytes)| bytes).max().unwrap_or(0);
    debug_assert_eq!(i128::from(peak), i128::from(most().max(state.graph.base)), "the books of the search are right");
    Ok(crate::State { steps, peak, seconds })
}
