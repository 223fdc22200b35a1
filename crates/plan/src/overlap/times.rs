//! When the works of a schedule run, on paper.

use std::collections::{BTreeSet, HashSet, VecDeque};

use plimsoll_device::DeviceSpec;
use plimsoll_graph::IdVec;
use plimsoll_graph::id::Id;

use crate::evaluate::queue;
use crate::lir::{Followers, Lir, WorkId, WorkKind};
use crate::plan::DeviceId;

/// When works run. A queue takes its works in order; a free one, as those of copies are, takes of those that can begin the first in the
/// order as it was.
pub(super) struct Times {
    /// By start.
    order: Vec<WorkId>,
    /// Where a work is in it.
    place: IdVec<WorkId, usize>,
    start: IdVec<WorkId, f64>,
    end: IdVec<WorkId, f64>,
}

impl Times {
    pub fn of(lir: &Lir, devices: usize, free: &BTreeSet<DeviceId>) -> Times {
        let is_free = |number: usize| number >= devices || free.contains(&DeviceId::from_index(number));
        Times::ran(lir, Run::new(lir, devices, is_free, None))
    }

    /// Of a schedule whose queues all take their works in order, where copies share links, as [`crate::Plan::on_the_clock`] says.
    pub fn on_links(lir: &Lir, devices: usize, links: &Links) -> Times {
        Times::ran(lir, Run::new(lir, devices, |_| false, Some(links)))
    }

    fn ran(lir: &Lir, mut run: Run<'_>) -> Times {
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

    /// When the last work ends.
    pub fn last(&self) -> f64 {
        self.end.values().copied().fold(0.0, f64::max)
    }

    /// The most seconds by which some works keep the others in the queue of a device waiting.
    pub fn kept_by(&self, some: &HashSet<WorkId>, lir: &Lir, devices: usize) -> f64 {
        let (mut kept, mut free_at) = (vec![0.0; devices], vec![0.0; devices]);
        for id in self.order.iter().filter(|id| !lir.works[**id].is_beside) {
            let device = lir.works[*id].device.index();
            if some.contains(id) {
                kept[device] += self.end[*id] - free_at[device];
            }
            free_at[device] = self.end[*id];
        }
        kept.into_iter().fold(0.0, f64::max)
    }

    /// The schedule in this order, with waits for [`Times::hold`].
    pub fn applied(&self, mut lir: Lir, devices: usize) -> Lir {
        lir.region_mut().works.clone_from(&self.order);
        self.hold(&mut lir, devices);
        lir
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

/// The links of modelled cards.
pub(super) struct Links {
    /// Of each work the links that it has until it ends.
    of: IdVec<WorkId, [Option<usize>; 2]>,
    count: usize,
}

impl Links {
    pub fn new(lir: &Lir, devices: &[DeviceSpec]) -> Links {
        let mut known: Vec<u32> = Vec::new();
        let mut of = IdVec::filled([None; 2], lir.works.len());
        for &id in &lir.region().works {
            let work = &lir.works[id];
            let (WorkKind::Copy, [from], [to]) = (&work.kind, &work.inputs[..], &work.outputs[..]) else { continue };
            let ends = [lir.values[from.value].device, lir.values[*to].device].map(|end| &devices[end.index()]);
            let [here, there] = ends.map(|end| end.card.as_ref().map(|card| card.card));
            if here == there || !devices[work.device.index()].is_modelled() {
                continue;
            }
            of[id] = ends.map(|end| {
                let card = end.card.as_ref().filter(|_| end.is_modelled())?.card;
                Some(known.iter().position(|other| *other == card).unwrap_or_else(|| {
                    known.push(card);
                    known.len() - 1
                }))
            });
        }
        Links { of, count: known.len() }
    }
}

/// A run on paper.
struct Run<'a> {
    lir: &'a Lir,
    devices: usize,
    /// The order as it was, and where a work is in it.
    written: &'a [WorkId],
    place: IdVec<WorkId, usize>,
    /// Also how many works a work still waits for.
    followers: Followers,
    /// When those of them end that are done.
    ready: IdVec<WorkId, f64>,
    queues: Vec<Queue>,
    /// Where copies share links: these, and when each of them is free.
    links: Option<(&'a Links, Vec<f64>)>,
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
    /// Links count where no queue is free.
    fn new(lir: &'a Lir, devices: usize, is_free: impl Fn(usize) -> bool, links: Option<&'a Links>) -> Run<'a> {
        let written = &lir.region().works[..];
        let mut run = Run {
            lir,
            devices,
            written,
            place: IdVec::filled(usize::MAX, lir.works.len()),
            followers: Followers::new(lir, written, &lir.definitions()),
            ready: IdVec::filled(0.0, lir.works.len()),
            queues: (0..2 * devices).map(|number| Queue { is_free: is_free(number), ..Queue::default() }).collect(),
            links: links.map(|links| (links, vec![0.0; links.count])),
        };
        for (place, &id) in written.iter().enumerate() {
            run.place[id] = place;
            if !run.is_free(id) {
                run.queues_of(id).into_iter().for_each(|queue| run.queues[queue].works.push_back(id));
            } else if run.followers.waiting[id] == 0 {
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
        let mut first: Option<(f64, f64, usize)> = None;
        for number in 0..self.queues.len() {
            let next = if self.queues[number].is_free { self.next_there(number) } else { self.next_work(number) };
            if let Some(next) = next
                && first.is_none_or(|first| next.0.total_cmp(&first.0).then(next.1.total_cmp(&first.1)).then(next.2.cmp(&first.2)).is_lt())
            {
                first = Some(next);
            }
        }
        first.map(|(start, _, place)| (start, self.written[place]))
    }

    /// When the next work of a queue begins, since when it could but for its links where these count, and its place; if it comes next in all
    /// queues that have it.
    fn next_work(&self, number: usize) -> Option<(f64, f64, usize)> {
        let id = *self.queues[number].works.front()?;
        let queues = self.queues_of(id);
        let is_next = self.followers.waiting[id] == 0 && queues.iter().all(|queue| self.queues[*queue].works.front() == Some(&id));
        let free = queues.iter().map(|queue| self.queues[*queue].free_at);
        is_next.then(|| {
            let ready = free.fold(self.ready[id], f64::max);
            match &self.links {
                Some((links, free_at)) => {
                    (links.of[id].iter().flatten().map(|link| free_at[*link]).fold(ready, f64::max), ready, self.place[id])
                }
                None => (ready, 0.0, self.place[id]),
            }
        })
    }

    /// The same of a free queue.
    fn next_there(&mut self, number: usize) -> Option<(f64, f64, usize)> {
        let Queue { coming, there, free_at, .. } = &mut self.queues[number];
        while let Some((_, place)) = coming.first().copied().filter(|(ready, _)| f64::from_bits(*ready) <= *free_at) {
            coming.pop_first();
            there.insert(place);
        }
        let waiting = coming.first().map(|(ready, place)| (f64::from_bits(*ready), 0.0, *place));
        there.first().map(|place| (*free_at, 0.0, *place)).or(waiting)
    }

    /// A work begins as [`Run::next`] says, and ends then.
    fn done(&mut self, id: WorkId, end: f64) {
        if let Some((links, free_at)) = &mut self.links {
            links.of[id].iter().flatten().for_each(|link| free_at[*link] = end);
        }
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
        for number in 0..self.followers.of(id).len() {
            let follower = self.followers.of(id)[number];
            self.followers.waiting[follower] -= 1;
            self.ready[follower] = self.ready[follower].max(end);
            if self.followers.waiting[follower] == 0 && self.is_free(follower) {
                self.arrive(follower);
            }
        }
    }
}
