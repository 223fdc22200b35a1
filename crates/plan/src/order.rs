//! The order of works: the best of some, by peak first and time second. How many are tried depends on nothing but the works.

use std::collections::BTreeSet;

use plimsoll_base::Result;
use plimsoll_graph::IdVec;

use crate::Request;
use crate::evaluate::evaluate;
use crate::lir::{Home, Lir, ValueId, Work, WorkId};
use crate::prepare::{Prepare, prepare};

/// The works in order, with their kernels.
pub(crate) struct Schedule {
    pub order: Vec<WorkId>,
    pub prepared: IdVec<WorkId, Option<Prepare>>,
}

pub(crate) fn order(request: &Request<'_>, lir: &Lir) -> Result<Schedule> {
    let mut prepared = IdVec::filled(None, lir.works.len());
    for (id, work) in lir.live() {
        let prepare = prepare(request, lir, work).map_err(|error| error.at_node(&request.graph.node(work.nodes[0]).name))?;
        prepared[id] = Some(prepare);
    }
    let as_written = lir.topological()?;
    let devices = request.devices.len();
    let candidates = [eager(lir, &as_written, &prepared), as_written];
    let schedules = candidates.into_iter().map(|order| (evaluate(lir, &prepared, devices, &order), order));
    // Of equal ones the later, the order as written, stays.
    let best = schedules.reduce(|best, other| if best.0.is_better_than(&other.0) { best } else { other });
    let (_, order) = best.expect("there are candidates");
    Ok(Schedule { order, prepared })
}

/// How many of the ready works are looked at for one that frees memory.
const LOOK_AHEAD: usize = 64;

/// The order as written, but a work that frees at least as much as it takes goes as soon as it can.
fn eager(lir: &Lir, as_written: &[WorkId], prepared: &IdVec<WorkId, Option<Prepare>>) -> Vec<WorkId> {
    let definitions = lir.definitions();
    let mut position: IdVec<WorkId, usize> = IdVec::filled(0, lir.works.len());
    let mut waiting: IdVec<WorkId, usize> = IdVec::filled(0, lir.works.len());
    let mut followers: IdVec<WorkId, Vec<WorkId>> = IdVec::filled(Vec::new(), lir.works.len());
    let mut readers: IdVec<ValueId, usize> = lir.uses().values().map(Vec::len).collect();
    for (index, &id) in as_written.iter().enumerate() {
        position[id] = index;
        for before in lir.predecessors(&lir.works[id], &definitions) {
            waiting[id] += 1;
            followers[before].push(id);
        }
    }
    let mut ready: BTreeSet<(usize, WorkId)> = as_written.iter().filter(|id| waiting[**id] == 0).map(|id| (position[*id], *id)).collect();
    let mut order = Vec::with_capacity(as_written.len());
    while let Some(&first) = ready.first() {
        let frees = |(_, id): &&(usize, WorkId)| growth(lir, &readers, prepared, *id) <= 0;
        let next = *ready.iter().take(LOOK_AHEAD).find(frees).unwrap_or(&first);
        ready.remove(&next);
        order.push(next.1);
        for value in distinct_inputs(&lir.works[next.1]) {
            readers[value] -= 1;
        }
        for &follower in &followers[next.1] {
            waiting[follower] -= 1;
            if waiting[follower] == 0 {
                ready.insert((position[follower], follower));
            }
        }
    }
    order
}

fn distinct_inputs(work: &Work) -> Vec<ValueId> {
    let mut values: Vec<ValueId> = work.reads().collect();
    values.sort_unstable();
    values.dedup();
    values
}

/// By how many bytes the arenas grow when the work has been done (scratch counts, since it is needed on the way).
fn growth(lir: &Lir, readers: &IdVec<ValueId, usize>, prepared: &IdVec<WorkId, Option<Prepare>>, id: WorkId) -> i64 {
    let work = &lir.works[id];
    let bytes = |value: ValueId| if lir.values[value].home == Home::Arena { lir.values[value].bytes as i64 } else { 0 };
    let taken: i64 = work.outputs.iter().map(|output| bytes(*output)).sum();
    let freed: i64 = distinct_inputs(work).into_iter().filter(|value| readers[*value] == 1).map(bytes).sum();
    taken - freed + prepared[id].as_ref().map_or(0, |prepare| prepare.scratch() as i64)
}
