//! The region as numbers, for the search: see [`plimsoll_fit::Problem`].

use std::collections::HashSet;

use plimsoll_base::Bytes;
use plimsoll_fit::{Problem, Slow, Value, Work};
use plimsoll_graph::IdVec;
use plimsoll_graph::id::Id;

use super::bodies::{self, Bodies};
use crate::Request;
use crate::evaluate::queue;
use crate::lir::{self, Home, Lir, RegionId, ValueId, WorkId, WorkKind};
use crate::live::{pairs, with_others};
use crate::plan::DeviceId;

/// The works of the region in their order, with the bytes that they take of one device's arena. Values have their own numbers.
/// They may wait in a slower memory. Loops run in the ways of their bodies.
pub(super) fn problem(request: &Request<'_>, lir: &Lir, device: DeviceId, slow: Option<Slow>, bodies: &Bodies) -> Problem {
    let spec = &request.devices[device.index()];
    let mut number: IdVec<WorkId, usize> = IdVec::filled(usize::MAX, lir.works.len());
    lir.region().works.iter().enumerate().for_each(|(index, id)| number[*id] = index);
    let (overwriting, tests) = (overwriting(lir), tests(lir));
    let works = lir.all().map(|(id, work)| {
        let reads = work.reads_once();
        let next_writers = reads.iter().filter_map(|value| overwriting[*value]).map(|writer| number[writer]);
        Work {
            seconds: work.seconds(),
            scratch: lir.scratch(work, device),
            until: next_writers.min(),
            reads: reads.iter().map(|value| value.index()).collect(),
            writes: work.outputs.iter().map(|value| value.index()).collect(),
            in_place: pairs(lir, work, |value| is_here(lir, value, device, lir.here()))
                .into_iter()
                .map(|(from, to)| (from.index(), to.index()))
                .collect(),
            again: may_repeat(lir, id, device) && !work.outputs.iter().any(|output| tests.contains(output)),
            after: work.after.iter().map(|before| number[*before]).collect(),
            queue: queue(work, request.devices.len()),
            ways: match work.kind {
                WorkKind::Loop { body, trips, .. } if lir.devices(work).any(|other| other == device) => bodies.ways(body, trips),
                _ => Vec::new(),
            },
        }
    });
    let value = |id: ValueId| {
        let bytes = if is_here(lir, id, device, lir.here()) { spec.slot(Bytes(lir.values[id].bytes)).0 } else { 0 };
        Value { bytes, is_result: false, view_of: None }
    };
    Problem { works: works.collect(), values: lir.values.ids().map(value).collect(), base: 0, slow }
}

/// The most bytes that a schedule may take below its peak in the search. There a result is written over one certain operand, if nothing
/// reads that later; in a plan over any other one that nothing reads later.
pub(super) fn uncounted(request: &Request<'_>, lir: &Lir, device: DeviceId) -> u64 {
    let spec = &request.devices[device.index()];
    let works = lir.all().filter(|(_, work)| work.device == device);
    let results = works.map(|(_, work)| with_others(lir, work, |value| is_here(lir, value, device, lir.here())));
    results.map(|results| results.into_iter().map(|value| spec.slot(Bytes(lir.values[value].bytes)).0).sum()).max().unwrap_or(0)
}

/// Whether the value is in the arena of the device, and of a region.
pub(super) fn is_here(lir: &Lir, value: ValueId, device: DeviceId, region: RegionId) -> bool {
    let value = &lir.values[value];
    value.device == device && value.home == Home::Arena && value.region == region
}

/// By value: the work that overwrites it, if one does.
pub(super) fn overwriting(lir: &Lir) -> IdVec<ValueId, Option<WorkId>> {
    let definitions = lir.definitions();
    let mut writers = IdVec::filled(None, lir.values.len());
    for (old, new) in lir.versions() {
        writers[old] = definitions[new];
    }
    writers
}

/// The conditions with which loops of several devices begin. Those of a loop are copies of one value: its queues go round equally often.
fn tests(lir: &Lir) -> HashSet<ValueId> {
    let shared = lir.all().map(|(_, work)| work).filter(|work| lir.is_shared(work));
    let tests = |work: &lir::Work| {
        let WorkKind::Loop { carried, .. } = work.kind else { return Vec::new() };
        let others = lir.devices(work).skip(1).count();
        std::iter::once(0).chain(carried - others..carried).map(|test| work.inputs[test].value).collect()
    };
    shared.flat_map(tests).collect()
}

/// Whether a work may run a second time on the device, for the same results: they are nowhere but in its arena, and nothing else
/// happens. What it reads has to be as it was: see [`Work::until`].
pub(super) fn may_repeat(lir: &Lir, id: WorkId, device: DeviceId) -> bool {
    let work = &lir.works[id];
    let may = match &work.kind {
        WorkKind::Expr { .. } | WorkKind::Anchor { .. } | WorkKind::Kernel { .. } | WorkKind::Copy | WorkKind::Parts(_) => true,
        WorkKind::Loop { body, .. } => bodies::may_repeat(lir, *body),
        WorkKind::Request { .. } | WorkKind::Outside { .. } => false,
    };
    may && !work.outputs.is_empty() && work.outputs.iter().all(|output| is_here(lir, *output, device, lir.here()))
}
