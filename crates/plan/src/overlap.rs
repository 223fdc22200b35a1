//! Copies of cards run beside their works, as moves do, in the second queue of the card that carries them; and works go before
//! others of their device that still wait.
//!
//! In the card's own queue a copy keeps works waiting that do not read it. Beside them it begins as soon as what it copies is there
//! and the copies before it are done: variables come while the works before their readers compute, and gradients leave while the ones
//! before them are made. A host that updates variables takes them as their gradients come: in the order as written the update of the
//! first layer is the first, whose gradient comes last. A card that waits for a variable computes what waits for nothing meanwhile. What
//! has come early takes memory early, so the schedule as it is stays for lines that this one does not fit ([`crate::fit`]).

use std::collections::{BTreeSet, HashSet, VecDeque};

use plimsoll_device::{DeviceKind, DeviceSpec};
use plimsoll_graph::IdVec;
use plimsoll_graph::id::Id;

use crate::evaluate::{CLEARLY, ends, queue};
use crate::lir::{Lir, Work, WorkId, WorkKind};
use crate::plan::DeviceId;

/// A copy of fewer predicted seconds stays among the works: to wait for it in another queue takes about as long.
pub(crate) const LEAST: f64 = 20e-6;

/// Devices of which something stays as it is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    /// Their works stay in their order.
    pub order: BTreeSet<DeviceId>,
    /// Copies from and to them stay among the works.
    pub copies: BTreeSet<DeviceId>,
}

/// The region at hand, whose works are in order, with copies of cards beside their works, and works before others of their device that
/// still wait: of processors alone, or of all devices where that is clearly faster. None where nothing is.
pub(crate) fn overlap(lir: &Lir, devices: &[DeviceSpec], kept: &Kept) -> Option<Lir> {
    let works = || lir.region().works.iter().copied();
    let mut copies: Vec<WorkId> = works().filter(|id| may_be_beside(lir, &lir.works[*id], devices, &kept.copies)).collect();
    // A card without works of its own has one queue.
    let apart: HashSet<WorkId> = copies.iter().copied().collect();
    let busy: BTreeSet<DeviceId> = works().filter(|id| !apart.contains(id)).map(|id| lir.works[id].device).collect();
    copies.retain(|id| busy.contains(&lir.works[*id].device));
    // A loop of several devices comes next in all their queues.
    let shared: BTreeSet<DeviceId> =
        works().filter(|id| lir.is_shared(&lir.works[*id])).flat_map(|id| lir.devices(&lir.works[id]).collect::<Vec<_>>()).collect();
    let is_free = |device: &DeviceId| !kept.order.contains(device) && !shared.contains(device);
    // One device alone takes the same time in any order.
    let all: BTreeSet<DeviceId> = busy.iter().copied().filter(|device| busy.len() > 1 && is_free(device)).collect();
    let is_processor = |device: &DeviceId| devices[device.index()].kind == DeviceKind::Cpu;
    let processors: BTreeSet<DeviceId> = all.iter().copied().filter(is_processor).collect();
    let mut ways: Vec<BTreeSet<DeviceId>> = Vec::new();
    if !copies.is_empty() {
        ways.push(BTreeSet::new());
    }
    if !processors.is_empty() {
        ways.push(processors.clone());
    }
    if all != processors {
        ways.push(all);
    }
    if ways.is_empty() {
        return None;
    }
    let mut beside = lir.clone();
    copies.iter().for_each(|id| beside.works[*id].is_beside = true);
    let mut least = ends(lir, devices.len(), &lir.region().works).values().copied().fold(0.0, f64::max);
    let mut best = None;
    for free in &ways {
        let times = Times::of(&beside, devices.len(), free);
        let end = times.end.values().copied().fold(0.0, f64::max);
        if end * CLEARLY < least {
            (least, best) = (end, Some(times));
        }
    }
    let times = best?;
    beside.region_mut().works.clone_from(&times.order);
    times.hold(&mut beside, devices.len());
    Some(beside)
}

/// Whether a copy can run beside the works of its card: it is on its way between the card and other memory for long enough.
fn may_be_beside(lir: &Lir, work: &Work, devices: &[DeviceSpec], kept: &BTreeSet<DeviceId>) -> bool {
    let (WorkKind::Copy, [from], [to]) = (&work.kind, &work.inputs[..], &work.outputs[..]) else { return false };
    let ends = [lir.values[from.value].device, lir.values[*to].device];
    let [here, there] = ends.map(|end| devices[end.index()].card.as_ref().map(|card| card.card));
    let leaves = devices[work.device.index()].kind == DeviceKind::Gpu && here != there;
    leaves && !work.is_beside && work.seconds() >= LEAST && ends.iter().all(|end| !kept.contains(end))
}

/// When works run. A queue takes its works in order; a free one, as those of copies are, takes of those that can begin the first in the
/// order as it was.
struct Times {
    /// By start.
    order: Vec<WorkId>,
    /// Where a work is in it.
    place: IdVec<WorkId, usize>,
    start: IdVec<WorkId, f64>,
    end: IdVec<WorkId, f64>,
}

impl Times {
    fn of(lir: &Lir, devices: usize, free: &BTreeSet<DeviceId>) -> Times {
        let mut run = Run::new(lir, devices, free);
        let mut times = Times {
            order: Vec::with_capacity(run.written.len()),
            place: IdVec::filled(usize::MAX, lir.works.len()),
            start: IdVec::filled(0.0, lir.works.len()),
            end: IdVec::filled(0.0, lir.works.len()),
        };
        while let Some((start, id)) = run.next() {
            let end = start + lir.works[id].seconds();
            (times.start[id], times.end[id], times.place[id]) = (start, end, times.order.len());
            times.order.push(id);
            run.done(id, end);
        }
        debug_assert_eq!(times.order.len(), run.written.len(), "every work runs");
        times
    }

    /// Has copies wait for works of their card, and works for copies, where that takes no time on paper: what a copy makes is not needed
    /// before it begins, and what it reads not behind its end.
    fn hold(&self, lir: &mut Lir, devices: usize) {
        let of_device = |device| self.order.iter().copied().filter(|id| queue(&lir.works[*id], devices) == device).collect();
        let own: Vec<Vec<WorkId>> = (0..devices).map(of_device).collect();
        for &id in &self.order {
            let work = &lir.works[id];
            if !work.is_beside {
                continue;
            }
            let works = &own[work.device.index()];
            let (before, behind) = works.split_at(works.partition_point(|other| self.place[*other] < self.place[id]));
            let (first, then) = if lir.values[work.outputs[0]].device == work.device {
                (before.iter().rev().copied().find(|other| self.end[*other] <= self.start[id]), Some(id))
            } else {
                (Some(id), behind.iter().copied().find(|other| self.start[*other] >= self.end[id]))
            };
            if let (Some(first), Some(then)) = (first, then)
                && let Err(at) = lir.works[then].after.binary_search(&first)
            {
                // Waits are sorted.
                lir.works[then].after.insert(at, first);
            }
        }
    }
}

/// A run on paper.
struct Run<'a> {
    lir: &'a Lir,
    devices: usize,
    /// The order as it was, and where a work is in it.
    written: &'a [WorkId],
    place: IdVec<WorkId, usize>,
    followers: IdVec<WorkId, Vec<WorkId>>,
    /// How many works a work still waits for, and when those of them end that are done.
    waiting: IdVec<WorkId, usize>,
    ready: IdVec<WorkId, f64>,
    queues: Vec<Queue>,
}

/// The works of a queue that are left, in order; or, where it is free, those that have what they read.
#[derive(Default)]
struct Queue {
    is_free: bool,
    works: VecDeque<WorkId>,
    /// By when they have it (bits of seconds) and by place: those that had it when the queue became free are `there`.
    coming: BTreeSet<(u64, usize)>,
    there: BTreeSet<usize>,
    free_at: f64,
}

impl<'a> Run<'a> {
    fn new(lir: &'a Lir, devices: usize, free: &BTreeSet<DeviceId>) -> Run<'a> {
        let written = &lir.region().works[..];
        let definitions = lir.definitions();
        let is_free = |number: usize| number >= devices || free.contains(&DeviceId::from_index(number));
        let mut run = Run {
            lir,
            devices,
            written,
            place: IdVec::filled(usize::MAX, lir.works.len()),
            followers: IdVec::filled(Vec::new(), lir.works.len()),
            waiting: IdVec::filled(0, lir.works.len()),
            ready: IdVec::filled(0.0, lir.works.len()),
            queues: (0..2 * devices).map(|number| Queue { is_free: is_free(number), ..Queue::default() }).collect(),
        };
        for (place, &id) in written.iter().enumerate() {
            run.place[id] = place;
            for before in lir.predecessors(&lir.works[id], &definitions) {
                run.waiting[id] += 1;
                run.followers[before].push(id);
            }
            if !run.is_free(id) {
                run.queues_of(id).into_iter().for_each(|queue| run.queues[queue].works.push_back(id));
            } else if run.waiting[id] == 0 {
                run.arrive(id);
            }
        }
        run
    }

    /// The queues that have a work: those of a loop are its devices'.
    fn queues_of(&self, id: WorkId) -> Vec<usize> {
        let work = &self.lir.works[id];
        std::iter::once(queue(work, self.devices)).chain(self.lir.devices(work).skip(1).map(Id::index)).collect()
    }

    /// Whether the queue of a work is free.
    fn is_free(&self, id: WorkId) -> bool {
        self.queues[queue(&self.lir.works[id], self.devices)].is_free
    }

    /// A work of a free queue has all that it reads.
    fn arrive(&mut self, id: WorkId) {
        let own = queue(&self.lir.works[id], self.devices);
        // No seconds are negative: their bits have their order.
        self.queues[own].coming.insert((self.ready[id].to_bits(), self.place[id]));
    }

    /// What begins next, and when.
    fn next(&mut self) -> Option<(f64, WorkId)> {
        let mut first: Option<(f64, usize)> = None;
        for number in 0..self.queues.len() {
            let next = if self.queues[number].is_free { self.next_there(number) } else { self.next_work(number) };
            if let Some(next) = next
                && first.is_none_or(|first| next.0.total_cmp(&first.0).then(next.1.cmp(&first.1)).is_lt())
            {
                first = Some(next);
            }
        }
        first.map(|(start, place)| (start, self.written[place]))
    }

    /// The next work of a queue, by place, if it comes next in all queues that have it.
    fn next_work(&self, number: usize) -> Option<(f64, usize)> {
        let id = *self.queues[number].works.front()?;
        let queues = self.queues_of(id);
        let is_next = self.waiting[id] == 0 && queues.iter().all(|queue| self.queues[*queue].works.front() == Some(&id));
        let free = queues.iter().map(|queue| self.queues[*queue].free_at);
        is_next.then(|| (free.fold(self.ready[id], f64::max), self.place[id]))
    }

    /// The same of a free queue.
    fn next_there(&mut self, number: usize) -> Option<(f64, usize)> {
        let Queue { coming, there, free_at, .. } = &mut self.queues[number];
        while let Some((_, place)) = coming.first().copied().filter(|(ready, _)| f64::from_bits(*ready) <= *free_at) {
            coming.pop_first();
            there.insert(place);
        }
        let waiting = coming.first().map(|(ready, place)| (f64::from_bits(*ready), *place));
        there.first().map(|place| (*free_at, *place)).or(waiting)
    }

    /// A work begins as [`Run::next`] says, and ends then.
    fn done(&mut self, id: WorkId, end: f64) {
        for number in self.queues_of(id) {
            let queue = &mut self.queues[number];
            queue.free_at = end;
            if queue.is_free {
                queue.there.remove(&self.place[id]);
                queue.coming.remove(&(self.ready[id].to_bits(), self.place[id]));
            } else {
                queue.works.pop_front();
            }
        }
        for follower in std::mem::take(&mut self.followers[id]) {
            self.waiting[follower] -= 1;
            self.ready[follower] = self.ready[follower].max(end);
            if self.waiting[follower] == 0 && self.is_free(follower) {
                self.arrive(follower);
            }
        }
    }
}
