//! The cost of a schedule: one pure function for every comparison of schedules.

use plimsoll_device::DeviceSpec;
use plimsoll_graph::IdVec;
use plimsoll_graph::id::Id;

use crate::lir::{Lir, RegionId, ValueId, Work, WorkId};
use crate::live::Live;
use crate::plan::DeviceId;

/// An end is clearly earlier where even so many times the time is: predictions are no better than that. On one device all orders take
/// the same time.
pub(crate) const CLEARLY: f64 = 1.01;

/// The cost of a schedule.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// Seconds until the last device is done.
    pub makespan: f64,
    /// For each device, the most bytes of values and scratch that are live at once: see [`crate::DevicePlan::live`].
    pub live_peak: Vec<u64>,
}

impl Evaluation {
    /// Whether this schedule is better: it ends clearly earlier; if neither does, lower peaks in all, then the earlier end.
    pub(crate) fn is_better_than(&self, other: &Evaluation) -> bool {
        let (mine, theirs): (u64, u64) = (self.live_peak.iter().sum(), other.live_peak.iter().sum());
        let (earlier, later) = (self.makespan * CLEARLY < other.makespan, other.makespan * CLEARLY < self.makespan);
        earlier || (!later && (mine < theirs || (mine == theirs && self.makespan < other.makespan)))
    }
}

/// The number of a work's queue.
pub(crate) fn queue(work: &Work, devices: usize) -> usize {
    queue_of(work.device, work.is_beside, devices)
}

/// The number of a queue: those of so many devices, then those of copies beside them.
pub(crate) fn queue_of(device: DeviceId, is_beside: bool, devices: usize) -> usize {
    device.index() + if is_beside { devices } else { 0 }
}

/// When each work of a schedule ends: every queue takes its works in order, each when its inputs are there.
pub(crate) fn ends(lir: &Lir, devices: usize, order: &[WorkId]) -> IdVec<WorkId, f64> {
    ends_with(lir, &lir.definitions(), devices, order)
}

/// Predicted seconds of one iteration of the body of a loop, whose works are scheduled.
pub(crate) fn once(lir: &Lir, body: RegionId, devices: usize) -> f64 {
    let region = &lir.regions[body];
    if region.partners.is_empty() {
        return region.works.iter().map(|work| lir.works[*work].seconds()).sum();
    }
    let mut definitions = IdVec::filled(None, lir.values.len());
    region.works.iter().for_each(|id| lir.works[*id].outputs.iter().for_each(|output| definitions[*output] = Some(*id)));
    ends_with(lir, &definitions, devices, &region.works).values().copied().fold(0.0, f64::max)
}

fn ends_with(lir: &Lir, definitions: &IdVec<ValueId, Option<WorkId>>, devices: usize, order: &[WorkId]) -> IdVec<WorkId, f64> {
    let mut finish: IdVec<WorkId, f64> = IdVec::filled(0.0, lir.works.len());
    let mut free_at = vec![0.0f64; 2 * devices];
    for &id in order {
        let work = &lir.works[id];
        let ready = lir.predecessors(work, definitions).map(|before| finish[before]).fold(0.0, f64::max);
        // A loop begins where all that have a part in it are there.
        let queues = || std::iter::once(queue(work, devices)).chain(lir.devices(work).skip(1).map(|device| device.index()));
        finish[id] = queues().map(|queue| free_at[queue]).fold(ready, f64::max) + work.seconds();
        queues().for_each(|queue| free_at[queue] = finish[id]);
    }
    finish
}

/// Rates a schedule.
pub(crate) fn evaluate(lir: &Lir, devices: &[DeviceSpec], order: &[WorkId]) -> Evaluation {
    let makespan = ends(lir, devices.len(), order).values().copied().fold(0.0, f64::max);
    let live_peak = Live::new(lir, order, devices).peaks(devices.len());
    Evaluation { makespan, live_peak }
}
