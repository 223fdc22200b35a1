//! The queues of a schedule: the works of each device in order, and what they wait for in other queues.

use plimsoll_device::Wait;
use plimsoll_graph::IdVec;

use crate::lir::{Home, Lir, ValueId, WorkId};
use crate::plan::DeviceId;

/// Where a work stands: `(queue, position in it)`.
pub(crate) type Slot = (usize, usize);

/// The works of one device in order, or its copies that run beside them.
pub(crate) struct Lane {
    pub device: DeviceId,
    /// Whether it is the queue of copies. The device's arena belongs to its other queue.
    pub is_beside: bool,
    pub works: Vec<WorkId>,
    /// For each work, how many commands of every queue have finished when it starts.
    pub clocks: Vec<Vec<u32>>,
    /// For each work, its waits, without those that an earlier wait of the queue implies.
    pub waits: Vec<Vec<Wait>>,
}

/// A lane for each device that has works, or whose arena holds values; behind it one for its copies beside the works, if there are any.
pub(crate) fn lanes(lir: &Lir, order: &[WorkId], definitions: &IdVec<ValueId, Option<WorkId>>) -> (Vec<Lane>, IdVec<WorkId, Slot>) {
    let works = || order.iter().map(|id| &lir.works[*id]);
    let made = works().flat_map(|work| &work.outputs).map(|output| &lir.values[*output]).filter(|value| value.home == Home::Arena);
    let devices = made.map(|value| value.device).chain(works().map(|work| work.device)).map(|device| (device, false));
    let beside = works().filter(|work| work.is_beside).map(|work| (work.device, true));
    let mut queues: Vec<(DeviceId, bool)> = devices.chain(beside).collect();
    queues.sort_unstable();
    queues.dedup();
    let lane = |(device, is_beside)| Lane { device, is_beside, works: Vec::new(), clocks: Vec::new(), waits: Vec::new() };
    let mut lanes: Vec<Lane> = queues.iter().copied().map(lane).collect();
    let mut slots = IdVec::filled((0, 0), lir.works.len());
    for &id in order {
        let queue = queues.binary_search(&(lir.works[id].device, lir.works[id].is_beside)).unwrap_or_default();
        slots[id] = (queue, lanes[queue].works.len());
        lanes[queue].works.push(id);
    }
    set_waits(lir, order, definitions, &mut lanes, &slots);
    (lanes, slots)
}

/// Waits for what other queues define, left out where an earlier wait has seen to it.
fn set_waits(lir: &Lir, order: &[WorkId], definitions: &IdVec<ValueId, Option<WorkId>>, lanes: &mut [Lane], slots: &IdVec<WorkId, Slot>) {
    let count = lanes.len();
    let mut now: Vec<Vec<u32>> = vec![vec![0; count]; count];
    for &id in order {
        let (queue, position) = slots[id];
        let mut clock = std::mem::take(&mut now[queue]);
        let mut needed = vec![0u32; count];
        for before in lir.predecessors(&lir.works[id], definitions) {
            let (other, at) = slots[before];
            if other != queue {
                needed[other] = needed[other].max(at as u32 + 1);
            }
        }
        let mut waits = Vec::new();
        for (other, &commands) in needed.iter().enumerate() {
            if clock[other] < commands {
                waits.push(Wait { queue: other as u32, commands });
            }
        }
        for wait in &waits {
            let (other, at) = (wait.queue as usize, wait.commands as usize - 1);
            // When that command started, all this was done; and it has finished itself.
            let seen = lanes[other].clocks[at].clone();
            clock.iter_mut().zip(seen).for_each(|(mine, theirs)| *mine = (*mine).max(theirs));
            clock[other] = clock[other].max(wait.commands);
        }
        lanes[queue].clocks.push(clock.clone());
        lanes[queue].waits.push(waits);
        clock[queue] = position as u32 + 1;
        now[queue] = clock;
    }
}
