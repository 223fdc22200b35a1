//! The queues of a schedule: the works of each device in order, and what they wait for in other queues.
//!
//! A loop of several devices has a place in the queue of each. It begins where all of them have come to it, and no iteration ends before
//! it is over everywhere: a work of one of these devices needs no wait for it, and the others wait for its place in the queue of its own
//! device. In its body, waits mean the
//! iteration, and a wait for 0 works says that the other queue has begun it.

use plimsoll_device::Wait;
use plimsoll_graph::IdVec;
use plimsoll_graph::id::Id;

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
    /// For each work, its waits, without those that an earlier wait of the queue implies. In the body of a loop one may be for 0 works.
    pub waits: Vec<Vec<Wait>>,
}

/// A lane for each device that has works, or whose arena holds values; behind it one for its copies beside the works, if there are any.
/// In the body of a loop a lane for each device that has a part in it. A loop stands in the lane of its own device.
pub(crate) fn lanes(lir: &Lir, order: &[WorkId], definitions: &IdVec<ValueId, Option<WorkId>>) -> (Vec<Lane>, IdVec<WorkId, Slot>) {
    let works = || order.iter().map(|id| &lir.works[*id]);
    let made = works().flat_map(|work| &work.outputs).map(|output| &lir.values[*output]).filter(|value| value.home == Home::Arena);
    let devices = made.map(|value| value.device).chain(works().flat_map(|work| lir.devices(work))).map(|device| (device, false));
    let beside = works().filter(|work| work.is_beside).map(|work| (work.device, true));
    let partners = lir.region().partners.iter().map(|device| (*device, false));
    let mut queues: Vec<(DeviceId, bool)> = devices.chain(beside).chain(partners).collect();
    queues.sort_unstable();
    queues.dedup();
    let lane = |(device, is_beside)| Lane { device, is_beside, works: Vec::new(), clocks: Vec::new(), waits: Vec::new() };
    let mut lanes: Vec<Lane> = queues.iter().copied().map(lane).collect();
    let mut slots = IdVec::filled((0, 0), lir.works.len());
    for &id in order {
        let work = &lir.works[id];
        let queue = |device, is_beside| queues.binary_search(&(device, is_beside)).unwrap_or_default();
        let own = queue(work.device, work.is_beside);
        slots[id] = (own, lanes[own].works.len());
        lanes[own].works.push(id);
        lir.devices(work).skip(1).for_each(|device| lanes[queue(device, false)].works.push(id));
    }
    set_waits(lir, order, definitions, &mut lanes, &slots);
    (lanes, slots)
}

/// Waits for what other queues define, left out where an earlier wait has seen to it.
fn set_waits(lir: &Lir, order: &[WorkId], definitions: &IdVec<ValueId, Option<WorkId>>, lanes: &mut [Lane], slots: &IdVec<WorkId, Slot>) {
    let count = lanes.len();
    let of_device = |lanes: &[Lane], device: DeviceId| lanes.iter().position(|lane| lane.device == device && !lane.is_beside);
    let in_loop = lir.here().index() > 0 && count > 1;
    let mut now: Vec<Vec<u32>> = vec![vec![0; count]; count];
    // In the body of a loop: the queues that are known to have begun the iteration.
    let mut begun: Vec<Vec<bool>> = vec![vec![false; count]; count];
    let mut needed = vec![0u32; count];
    for &id in order {
        let work = &lir.works[id];
        let partners: Vec<usize> = lir.devices(work).skip(1).filter_map(|device| of_device(lanes, device)).collect();
        for queue in std::iter::once(slots[id].0).chain(partners.iter().copied()) {
            let position = lanes[queue].clocks.len();
            let mut clock = std::mem::take(&mut now[queue]);
            needed.fill(0);
            for before in lir.predecessors(work, definitions) {
                let (other, at) = slots[before];
                let is_here =
                    other == queue || lir.devices(&lir.works[before]).skip(1).any(|device| of_device(lanes, device) == Some(queue));
                if !is_here {
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
                let seen = &lanes[other].clocks[at];
                clock.iter_mut().zip(seen).for_each(|(mine, theirs)| *mine = (*mine).max(*theirs));
                clock[other] = clock[other].max(wait.commands);
            }
            if in_loop {
                // Before it has begun the iteration, another queue may still look at its condition, or not have come to the loop.
                let values = work.reads().chain(work.outputs.iter().copied());
                let mut others: Vec<usize> = values.filter_map(|value| of_device(lanes, lir.values[value].device)).collect();
                others.retain(|other| *other != queue && !partners.contains(other) && *other != slots[id].0);
                others.sort_unstable();
                others.dedup();
                for other in others {
                    if !std::mem::replace(&mut begun[queue][other], true) && clock[other] == 0 {
                        waits.push(Wait { queue: other as u32, commands: 0 });
                    }
                }
                waits.sort_by_key(|wait| wait.queue);
            }
            lanes[queue].clocks.push(clock.clone());
            lanes[queue].waits.push(waits);
            clock[queue] = position as u32 + 1;
            now[queue] = clock;
        }
        // A loop begins where all that have a part in it have come: each knows of what is before it in the others.
        if !partners.is_empty() {
            let all: Vec<usize> = partners.iter().copied().chain([slots[id].0]).collect();
            let mut known = vec![0u32; count];
            for &queue in &all {
                let clock = lanes[queue].clocks.last().into_iter().flatten();
                known.iter_mut().zip(clock).for_each(|(most, clock)| *most = (*most).max(*clock));
                known[queue] = known[queue].max(lanes[queue].clocks.len() as u32 - 1);
            }
            for &queue in &all {
                now[queue].iter_mut().zip(&known).for_each(|(mine, known)| *mine = (*mine).max(*known));
            }
        }
    }
}
