//! Live ranges, in positions of the queue of the device whose arena holds the value.

use plimsoll_graph::IdVec;
use plimsoll_graph::id::Id;

use super::{Lane, Ranges};
use crate::lir::{Home, Lir, ValueId, WorkId};

/// When the bytes of a value in an arena are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LiveRange {
    pub first: u32,
    pub last: u32,
    /// From this position on no other queue can be reading them.
    pub unread_elsewhere: u32,
}

/// The live ranges of all values that works define in arenas.
///
/// A value that another queue writes is live from a command of its owner's queue: the last that has surely finished before that
/// write. A value that another queue reads is live until its owner's queue has waited for that reader, or to the end.
pub(crate) fn live_ranges(lir: &Lir, lanes: &[Lane]) -> Ranges {
    let mut queue_of: Vec<Option<usize>> = Vec::new();
    for (queue, lane) in lanes.iter().enumerate().filter(|(_, lane)| !lane.is_beside) {
        queue_of.resize(lane.device.index() + 1, None);
        queue_of[lane.device.index()] = Some(queue);
    }
    let owner_of = |value| queue_of.get(lir.values[value].device.index()).copied().flatten();
    // A loop of several devices has a place in the queue of the value's device, too.
    let is_there_too = |id: WorkId, value: ValueId| {
        let work = &lir.works[id];
        lir.is_shared(work) && lir.devices(work).any(|device| device == lir.values[value].device)
    };
    let mut ranges: Ranges = IdVec::filled(None, lir.values.len());
    for (queue, lane) in lanes.iter().enumerate() {
        for (position, id) in lane.works.iter().enumerate() {
            for &output in lir.works[*id].outputs.iter().filter(|output| lir.values[**output].home == Home::Arena) {
                let owner = owner_of(output).unwrap_or(queue);
                if owner != queue && is_there_too(*id, output) {
                    continue;
                }
                let first = if owner == queue { position as u32 } else { lane.clocks[position][owner].saturating_sub(1) };
                ranges[output] = Some(LiveRange { first, last: first, unread_elsewhere: 0 });
            }
        }
    }
    for (queue, lane) in lanes.iter().enumerate() {
        for (position, id) in lane.works.iter().enumerate() {
            for value in lir.works[*id].reads() {
                let (Some(mut range), Some(owner)) = (ranges[value], owner_of(value)) else { continue };
                if owner != queue && is_there_too(*id, value) {
                    continue;
                }
                if owner == queue {
                    range.last = range.last.max(position as u32);
                } else {
                    let free = lanes[owner].clocks.partition_point(|clock| clock[queue] < position as u32 + 1) as u32;
                    range.unread_elsewhere = range.unread_elsewhere.max(free);
                    range.last = range.last.max(free.saturating_sub(1));
                }
                ranges[value] = Some(range);
            }
        }
    }
    ranges
}
