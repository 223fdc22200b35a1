//! The cost of a schedule: one pure function for every comparison of schedules.

use plimsoll_graph::IdVec;
use plimsoll_graph::id::Id;

use crate::lir::{Home, Lir, ValueId, WorkId};
use crate::prepare::Prepare;

/// The cost of a schedule.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// Seconds until the last device is done.
    pub makespan: f64,
    /// For each device, the most bytes of values and scratch that are live at once.
    pub live_peak: Vec<u64>,
}

impl Evaluation {
    /// Whether this schedule is better: lower peaks in all, then the earlier end.
    pub(crate) fn is_better_than(&self, other: &Evaluation) -> bool {
        let (mine, theirs): (u64, u64) = (self.live_peak.iter().sum(), other.live_peak.iter().sum());
        mine < theirs || (mine == theirs && self.makespan < other.makespan)
    }
}

/// Runs the schedule on paper: every device takes its works in order, each when its inputs are there.
pub(crate) fn evaluate(lir: &Lir, prepared: &IdVec<WorkId, Option<Prepare>>, devices: usize, order: &[WorkId]) -> Evaluation {
    let definitions = lir.definitions();
    let mut finish: IdVec<WorkId, f64> = IdVec::filled(0.0, lir.works.len());
    let mut free_at = vec![0.0f64; devices];
    let mut last_use: IdVec<ValueId, usize> = IdVec::filled(0, lir.values.len());
    for (step, &id) in order.iter().enumerate() {
        let work = &lir.works[id];
        let ready = lir.predecessors(work, &definitions).map(|before| finish[before]).fold(0.0, f64::max);
        let seconds = prepared[id].as_ref().map_or(0.0, |prepare| prepare.seconds);
        finish[id] = ready.max(free_at[work.device.index()]) + seconds;
        free_at[work.device.index()] = finish[id];
        work.reads().chain(work.outputs.iter().copied()).for_each(|value| last_use[value] = step);
    }
    let mut live = vec![0u64; devices];
    let mut live_peak = vec![0u64; devices];
    for (step, &id) in order.iter().enumerate() {
        let work = &lir.works[id];
        let in_arena = |value: &ValueId| lir.values[*value].home == Home::Arena;
        for output in work.outputs.iter().filter(|value| in_arena(value)) {
            live[lir.values[*output].device.index()] += lir.values[*output].bytes;
        }
        let device = work.device.index();
        let scratch = prepared[id].as_ref().map_or(0, |prepare| prepare.scratch());
        live_peak[device] = live_peak[device].max(live[device] + scratch);
        let mut touched: Vec<ValueId> = work.reads().chain(work.outputs.iter().copied()).collect();
        touched.sort_unstable();
        touched.dedup();
        for value in touched.iter().filter(|value| in_arena(value) && last_use[**value] == step) {
            live[lir.values[*value].device.index()] -= lir.values[*value].bytes;
        }
    }
    Evaluation { makespan: finish.values().copied().fold(0.0, f64::max), live_peak }
}
