//! The order of works: the best of some, by time where that differs clearly, else by peak. How many are tried depends on nothing but the works.

use std::collections::BTreeSet;

use plimsoll_base::{Bytes, Result};
use plimsoll_device::DeviceSpec;
use plimsoll_graph::IdVec;
use plimsoll_graph::id::Id;
use plimsoll_memory::layout;

use crate::Request;
use crate::evaluate::{Evaluation, evaluate};
use crate::lir::{Followers, Home, Lir, RegionId, ValueId, WorkId};
use crate::live::{Arena, Live};
use crate::plan::DeviceId;
use crate::prepare::prepare;
use crate::side_by_side::both;

/// Orders of more works are rated at once.
const MANY: usize = 2000;

/// Prepares the works and puts them in order.
///
/// # Errors
/// What preparing a work says, at its node; INTERNAL where works form a cycle.
pub(crate) fn order(request: &Request<'_>, lir: &mut Lir) -> Result<()> {
    prepare_all(request, lir)?;
    let as_written = lir.topological()?;
    let (rated, (other, eager)) = {
        let (lir, devices) = (&*lir, request.devices);
        let of_written = || evaluate(lir, devices, &as_written);
        let of_eager = || -> (Evaluation, Vec<WorkId>) {
            let order = eager(lir, &as_written);
            (evaluate(lir, devices, &order), order)
        };
        if as_written.len() < MANY { (of_written(), of_eager()) } else { both(of_written, of_eager) }
    };
    // Of equal ones the order as written stays.
    lir.region_mut().works = if other.is_better_than(&rated) { eager } else { as_written };
    lir.region_mut().arena = taken(lir, request.devices);
    Ok(())
}

/// Prepares the works of all regions, which stay in the order that they are in.
#[cfg(test)]
pub(crate) fn as_written(request: &Request<'_>, lir: &mut Lir) -> Result<()> {
    lir.each_region(|lir| {
        prepare_all(request, lir)?;
        lir.region_mut().arena = taken(lir, request.devices);
        Ok(())
    })
}

/// The bytes that the values and the scratch of a region take of each device that a work holds.
pub(crate) fn taken(lir: &Lir, devices: &[DeviceSpec]) -> Vec<(DeviceId, u64)> {
    if lir.here() == RegionId::from_index(0) {
        return Vec::new();
    }
    let Live { lanes, arenas, .. } = Live::new(lir, &lir.region().works, devices);
    let packed = |arena: &Arena, spec: &DeviceSpec| spec.slot(Bytes(layout::pack(&arena.buffers).peak)).0;
    lanes.iter().zip(&arenas).map(|(lane, arena)| (lane.device, packed(arena, &devices[lane.device.index()]))).collect()
}

/// Finds out what each work takes.
fn prepare_all(request: &Request<'_>, lir: &mut Lir) -> Result<()> {
    for id in lir.ids() {
        let work = &lir.works[id];
        let prepared = prepare(request, lir, work).map_err(|error| error.at_node(&request.graph.node(work.nodes[0]).name))?;
        lir.works[id].prepared = Some(prepared);
    }
    Ok(())
}

/// How many of the ready works are looked at for one that frees memory.
const LOOK_AHEAD: usize = 64;

/// The order as written, but a work that frees at least as much as it takes goes as soon as it can.
fn eager(lir: &Lir, as_written: &[WorkId]) -> Vec<WorkId> {
    let definitions = lir.definitions();
    let mut position: IdVec<WorkId, usize> = IdVec::filled(0, lir.works.len());
    as_written.iter().enumerate().for_each(|(index, id)| position[*id] = index);
    let mut followers = Followers::new(lir, as_written, &definitions);
    let mut waiting = std::mem::take(&mut followers.waiting);
    let mut growth = Growth::new(lir);
    let mut ready: BTreeSet<(usize, WorkId)> = as_written.iter().filter(|id| waiting[**id] == 0).map(|id| (position[*id], *id)).collect();
    // Those of them that free as much as they take.
    let mut freeing: BTreeSet<(usize, WorkId)> = ready.iter().copied().filter(|(_, id)| growth.of[*id] <= 0).collect();
    let mut order = Vec::with_capacity(as_written.len());
    while let Some(&first) = ready.first() {
        let near = |wanted: &&(usize, WorkId)| ready.iter().take(LOOK_AHEAD).any(|one| one == *wanted);
        let next = *freeing.first().filter(near).unwrap_or(&first);
        ready.remove(&next);
        freeing.remove(&next);
        order.push(next.1);
        growth.done(lir, next.1, |id| {
            if ready.contains(&(position[id], id)) {
                freeing.insert((position[id], id));
            }
        });
        for &follower in followers.of(next.1) {
            waiting[follower] -= 1;
            if waiting[follower] == 0 {
                ready.insert((position[follower], follower));
                if growth.of[follower] <= 0 {
                    freeing.insert((position[follower], follower));
                }
            }
        }
    }
    order
}

/// By how many bytes the arenas grow when a work has been done (scratch counts, since it is needed on the way).
struct Growth {
    of: IdVec<WorkId, i64>,
    /// For each value how many works still read it, and the sum of their numbers: of one reader, its number.
    readers: IdVec<ValueId, (u64, u64)>,
}

impl Growth {
    fn new(lir: &Lir) -> Growth {
        let mut growth = Growth { of: IdVec::filled(0, lir.works.len()), readers: IdVec::filled((0, 0), lir.values.len()) };
        for (id, work) in lir.all() {
            let taken: i64 = work.outputs.iter().map(|output| in_arena(lir, *output)).sum();
            growth.of[id] = taken + work.scratch() as i64;
            for value in work.reads_once() {
                let (count, sum) = growth.readers[value];
                growth.readers[value] = (count + 1, sum + id.index() as u64);
            }
        }
        let last: Vec<(WorkId, ValueId)> = growth.readers.iter().filter_map(|(value, readers)| Some((only(*readers)?, value))).collect();
        for (reader, value) in last {
            growth.of[reader] -= in_arena(lir, value);
        }
        growth
    }

    /// The work has been done; `frees` is told of works that now free as much as they take.
    fn done(&mut self, lir: &Lir, id: WorkId, mut frees: impl FnMut(WorkId)) {
        for value in lir.works[id].reads_once() {
            let (count, sum) = self.readers[value];
            self.readers[value] = (count - 1, sum - id.index() as u64);
            if let Some(reader) = only(self.readers[value]) {
                self.of[reader] -= in_arena(lir, value);
                if self.of[reader] <= 0 {
                    frees(reader);
                }
            }
        }
    }
}

/// The only work of a count and a sum of works.
fn only((count, sum): (u64, u64)) -> Option<WorkId> {
    (count == 1).then(|| WorkId::from_index(sum as usize))
}

fn in_arena(lir: &Lir, value: ValueId) -> i64 {
    if lir.values[value].home == Home::Arena { lir.values[value].bytes as i64 } else { 0 }
}
