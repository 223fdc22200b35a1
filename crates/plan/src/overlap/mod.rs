//! Copies of cards run beside their works, as moves do, in the second queue of the card that carries them; and works go before
//! others of their device that still wait.
//!
//! In the card's own queue a copy keeps works waiting that do not read it. Beside them it begins as soon as what it copies is there
//! and the copies before it are done: variables come while the works before their readers compute, and gradients leave while the ones
//! before them are made. A host that updates variables takes them as their gradients come: in the order as written the update of the
//! first layer is the first, whose gradient comes last. A card that waits for a variable computes what waits for nothing meanwhile. What
//! has come early takes memory early, so the schedule as it is stays for lines that this one does not fit ([`crate::fit`]).
//!
//! A small copy is among the works: to wait for it in another queue takes about as long. On a real card it is a node of the works' graph there, so that
//! a step with small feeds is one launch. But where links are modelled it has the link behind
//! a large one that has begun, and all works of its card wait with it. Where that is clearly faster, small ones are beside the works, too.
//!
//! [`times`]: when works run, on paper.

mod times;

use std::collections::{BTreeSet, HashSet};

use plimsoll_device::{DeviceKind, DeviceSpec};
use plimsoll_graph::id::Id;

use self::times::{Links, Times};
use crate::evaluate::{CLEARLY, ends};
use crate::lir::{Lir, Work, WorkId, WorkKind};
use crate::plan::DeviceId;

/// A copy of fewer predicted seconds is small, but for [`always`].
pub(crate) const LEAST: f64 = 20e-6;

/// Devices of which something stays as it is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    /// Their works stay in their order.
    pub order: BTreeSet<DeviceId>,
    /// Copies from and to them stay among the works.
    pub copies: BTreeSet<DeviceId>,
}

/// What a real card takes for a copy of nothing: it is the host's, and a copy among the works is a node of their graph. Of other devices 0.
pub(crate) fn always(from: &DeviceSpec, to: &DeviceSpec) -> f64 {
    if from.real().or(to.real()).is_some() { to.copy_seconds(from, 0.0) } else { 0.0 }
}

/// The region at hand, whose works are in order, with copies of cards beside their works, and works before others of their device that
/// still wait: of processors alone, or of all devices where that is clearly faster. None where nothing is.
pub(crate) fn overlap(lir: &Lir, devices: &[DeviceSpec], kept: &Kept) -> Option<Lir> {
    let works = || lir.region().works.iter().copied();
    let (copies, busy) = copies(lir, devices, kept, LEAST);
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
    let beside = with_beside(lir, &copies);
    let mut least = ends(lir, devices.len(), &lir.region().works).values().copied().fold(0.0, f64::max);
    let mut best = None;
    for free in ways {
        let times = Times::of(&beside, devices.len(), &free);
        let end = times.last();
        if end * CLEARLY < least {
            (least, best) = (end, Some((times, free)));
        }
    }
    let (times, free) = best?;
    let large = times.applied(beside, devices.len());
    Some(with_small(&large, lir, devices, kept, &free).unwrap_or(large))
}

/// The same with small copies beside the works as well, where links are modelled and that is clearly faster on them.
fn with_small(large: &Lir, lir: &Lir, devices: &[DeviceSpec], kept: &Kept, free: &BTreeSet<DeviceId>) -> Option<Lir> {
    let (mut copies, _) = copies(lir, devices, kept, 0.0);
    copies.retain(|id| large.works[*id].is_beside || devices[lir.works[*id].device.index()].is_modelled());
    let small: HashSet<WorkId> = copies.iter().copied().filter(|id| !large.works[*id].is_beside).collect();
    if small.is_empty() {
        return None;
    }
    let links = Links::new(large, devices);
    let now = Times::on_links(large, devices.len(), &links);
    let least = now.last();
    // Without them no card would be done clearly earlier.
    if now.kept_by(&small, large, devices.len()) * CLEARLY < least * (CLEARLY - 1.0) {
        return None;
    }
    let beside = with_beside(lir, &copies);
    let all = Times::of(&beside, devices.len(), free).applied(beside, devices.len());
    let is_faster = Times::on_links(&all, devices.len(), &links).last() * CLEARLY < least;
    is_faster.then_some(all)
}

/// The copies that can be beside the works of their cards and take so long at least, and the devices that have other works. A card without
/// works of its own has one queue.
fn copies(lir: &Lir, devices: &[DeviceSpec], kept: &Kept, least: f64) -> (Vec<WorkId>, BTreeSet<DeviceId>) {
    let works = || lir.region().works.iter().copied();
    let mut copies: Vec<WorkId> = works().filter(|id| may_be_beside(lir, &lir.works[*id], devices, &kept.copies, least)).collect();
    let apart: HashSet<WorkId> = copies.iter().copied().collect();
    let busy: BTreeSet<DeviceId> = works().filter(|id| !apart.contains(id)).map(|id| lir.works[id].device).collect();
    copies.retain(|id| busy.contains(&lir.works[*id].device));
    (copies, busy)
}

fn with_beside(lir: &Lir, copies: &[WorkId]) -> Lir {
    let mut beside = lir.clone();
    copies.iter().for_each(|id| beside.works[*id].is_beside = true);
    beside
}

/// Whether a copy can run beside the works of its card: it is on its way between the card and other memory for long enough.
fn may_be_beside(lir: &Lir, work: &Work, devices: &[DeviceSpec], kept: &BTreeSet<DeviceId>, least: f64) -> bool {
    let (WorkKind::Copy, [from], [to]) = (&work.kind, &work.inputs[..], &work.outputs[..]) else { return false };
    let ends = [lir.values[from.value].device, lir.values[*to].device];
    let [here, there] = ends.map(|end| devices[end.index()].card.as_ref().map(|card| card.card));
    let leaves = devices[work.device.index()].kind == DeviceKind::Gpu && here != there;
    let [from, to] = ends.map(|end| &devices[end.index()]);
    leaves && !work.is_beside && work.seconds() - always(from, to) >= least && ends.iter().all(|end| !kept.contains(end))
}
