//! Liveness: when the bytes of each value and scratch buffer of a schedule are needed, and which of them share their place. The
//! waits between queues follow. The order of works is rated by it, and addresses are given by it.
//!
//! [`queues`]: the works of each device, and their waits. [`ranges`]: live ranges of values. [`in_place`]: results that are
//! written over operands. [`arena`]: the buffers of a device and the bytes that are live at each position. [`moves`]: the same
//! bytes while works are moved. [`lower`]: a search for moves that lower the peak.

mod arena;
mod in_place;
mod lower;
pub(crate) mod moves;
mod queues;
mod ranges;
mod sequence;
#[cfg(test)]
mod tests;

use plimsoll_device::DeviceSpec;
use plimsoll_graph::IdVec;
use plimsoll_graph::id::Id;

use crate::lir::{Lir, ValueId, WorkId};

pub(crate) use self::arena::Arena;
pub(crate) use self::in_place::{Sharing, pairs, with_others};
pub(crate) use self::queues::{Lane, Slot, lanes};
pub(crate) use self::ranges::{LiveRange, live_ranges};

/// What a schedule holds when.
pub(crate) struct Live {
    /// The queues, by device; a queue of copies follows the other queue of its device.
    pub lanes: Vec<Lane>,
    /// Where each work stands.
    pub slots: IdVec<WorkId, Slot>,
    /// The arena of each queue's device; nothing for a queue of copies.
    pub arenas: Vec<Arena>,
}

impl Live {
    /// Of prepared works in this order.
    pub fn new(lir: &Lir, order: &[WorkId], devices: &[DeviceSpec]) -> Live {
        let definitions = lir.definitions();
        let (lanes, slots) = lanes(lir, order, &definitions);
        let ranges = live_ranges(lir, &lanes);
        let arenas = lanes.iter().map(|lane| Arena::new(lir, order, lane, &ranges, &devices[lane.device.index()])).collect();
        Live { lanes, slots, arenas }
    }

    /// For each device, the most bytes that are live in its arena at once.
    pub fn peaks(&self, devices: usize) -> Vec<u64> {
        let mut peaks = vec![0; devices];
        for (lane, arena) in self.lanes.iter().zip(&self.arenas).filter(|(lane, _)| !lane.is_beside) {
            peaks[lane.device.index()] = arena.peak().0;
        }
        peaks
    }
}

/// By value: when it is live, if it is in an arena.
pub(crate) type Ranges = IdVec<ValueId, Option<LiveRange>>;
