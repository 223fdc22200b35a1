//! Updates of many variables by one kernel of a card.
//!
//! An optimizer writes each variable by the same expression. On a card each of these works is a launch, and most variables are so small
//! that the launch takes longest. Updates that may wait for the last of them become one work in its place, where the card's library has a kernel
//! for several groups of tensors ([`Exprs`]).
//!
//! Gradients live until their update, so one that waits keeps its gradient alive. No arena may grow by that: updates wait only as long as
//! what is live meanwhile stays below the arena's peak.

use std::collections::BTreeSet;
use std::ops::Range;

use plimsoll_base::{Bytes, Result};
use plimsoll_device::DeviceKind;
use plimsoll_graph::IdVec;
use plimsoll_graph::id::Id;
use plimsoll_request::KernelRequest;
use plimsoll_request::expr::Expr;
use plimsoll_request::exprs::Exprs;

use crate::Request;
use crate::evaluate::ends;
use crate::lir::{Arg, Home, Lir, ValueId, View, Work, WorkId, WorkKind};
use crate::live::{Live, Slot, live_ranges};
use crate::plan::DeviceId;
use crate::prepare::{answers, choose_one, prepare};

/// The region at hand, whose works are in order, with updates put together; none where there are none to put together. `arenas` says what
/// the arena of each device takes.
///
/// # Errors
/// INTERNAL where a work that is made so does not hold.
pub(crate) fn put_together(request: &Request<'_>, lir: &Lir, arenas: &dyn Fn(&Lir) -> Vec<Bytes>) -> Result<Option<Lir>> {
    let kinds = kinds(request, lir);
    if kinds.is_empty() {
        return Ok(None);
    }
    let live = Live::new(lir, &lir.region().works, request.devices);
    let before = arenas(lir);
    let end = |lir: &Lir| ends(lir, request.devices.len(), &lir.region().works).values().copied().fold(0.0, f64::max);
    // Buffers that live longer may be packed less densely: then fewer bytes wait.
    for share in [1, 4, 16] {
        let runs = Search { request, lir, live: &live, arenas: &before, share }.runs(&kinds)?;
        if runs.is_empty() {
            break;
        }
        let joined = join_all(request, lir, &runs)?;
        if arenas(&joined).iter().zip(&before).all(|(now, before)| now <= before) && end(&joined) <= end(lir) {
            return Ok(Some(joined));
        }
    }
    Ok(None)
}

/// Works that differ in their tensors alone.
struct Kind {
    device: DeviceId,
    guard: Option<ValueId>,
    expr: Expr,
    /// For each operand that is one element, its view.
    single: Vec<Option<View>>,
    /// By their order.
    works: Vec<WorkId>,
}

impl Kind {
    /// The request of works of this kind.
    fn request(&self, lir: &Lir, works: &[WorkId]) -> KernelRequest {
        let elements = works.iter().map(|id| elements(&lir.works[*id]).unwrap_or(0)).collect();
        KernelRequest::Exprs(Exprs { expr: self.expr.clone(), single: self.single.iter().map(Option::is_some).collect(), elements })
    }
}

/// The kinds of updates that several works of a card are of, where its library has a kernel for two.
fn kinds(request: &Request<'_>, lir: &Lir) -> Vec<Kind> {
    let mut kinds: Vec<Kind> = Vec::new();
    for (id, work) in lir.all() {
        if request.devices[work.device.index()].kind != DeviceKind::Gpu {
            continue;
        }
        let (Some(single), WorkKind::Expr { expr, .. }) = (single(lir, work), &work.kind) else { continue };
        let is_it =
            |kind: &&mut Kind| kind.device == work.device && kind.guard == work.guard && kind.single == single && kind.expr == *expr;
        match kinds.iter_mut().find(is_it) {
            Some(kind) => kind.works.push(id),
            None => kinds.push(Kind { device: work.device, guard: work.guard, expr: expr.clone(), single, works: vec![id] }),
        }
    }
    kinds.retain(|kind| kind.works.get(..2).is_some_and(|works| answers(request, kind.device, &kind.request(lir, works))));
    kinds
}

/// The elements of an expression's results.
fn elements(work: &Work) -> Option<u64> {
    let WorkKind::Expr { shape, .. } = &work.kind else { return None };
    shape.elements().ok()
}

/// Of a work that writes variables and nothing else, element by element: for each operand its view if it is one element. None of other
/// works.
fn single(lir: &Lir, work: &Work) -> Option<Vec<Option<View>>> {
    let WorkKind::Expr { expr, .. } = &work.kind else { return None };
    let elements = elements(work).filter(|elements| *elements > 1)?;
    let writes = !work.outputs.is_empty() && work.outputs.iter().all(|output| matches!(lir.values[*output].home, Home::Variable(_)));
    if !writes || expr.can_fail() || work.is_beside {
        return None;
    }
    let single = |view: &View| match view.elements() {
        1 => Some(Some(view.clone())),
        whole if whole == elements => Some(None),
        _ => None,
    };
    work.inputs.iter().map(single).collect()
}

/// Works of a kind that become one, by their order.
struct Run<'a> {
    kind: &'a Kind,
    works: &'a [WorkId],
}

struct Search<'a> {
    request: &'a Request<'a>,
    lir: &'a Lir,
    live: &'a Live,
    /// What the arena of each device takes.
    arenas: &'a [Bytes],
    /// The bytes that wait are at most this part of what there is room for.
    share: u64,
}

impl<'a> Search<'a> {
    /// The works that become one.
    fn runs(&self, kinds: &'a [Kind]) -> Result<Vec<Run<'a>>> {
        let until = self.until();
        let ranges = live_ranges(self.lir, &self.live.lanes);
        let mut runs = Vec::new();
        for (queue, lane) in self.live.lanes.iter().enumerate().filter(|(_, lane)| !lane.is_beside) {
            let mut profile: Vec<u64> = self.live.arenas[queue].profile.iter().map(|bytes| bytes.0).collect();
            let peak = profile.iter().copied().max().unwrap_or(0);
            let spec = &self.request.devices[lane.device.index()];
            // The rest of what the arena takes anyway.
            let packed = self.request.lines.pack(&self.live.arenas[queue].buffers).peak;
            let most = match self.share {
                1 => peak + self.arenas[lane.device.index()].0.saturating_sub(packed),
                _ => peak,
            };
            let held = |id: WorkId| -> u64 {
                let own = self.lir.works[id].reads_once().into_iter().filter(|value| {
                    self.lir.values[*value].device == lane.device
                        && ranges[*value].is_some_and(|range| range.last <= self.slot(id).1 as u32)
                });
                own.map(|value| spec.slot(Bytes(self.lir.values[value].bytes)).0).sum()
            };
            for kind in kinds.iter().filter(|kind| kind.device == lane.device) {
                let mut growing = Growing { first: 0, end: 0, held: 0, until: usize::MAX };
                for (number, &id) in kind.works.iter().enumerate() {
                    let position = self.slot(id).1;
                    let between = if growing.is_empty() { 0..0 } else { self.slot(kind.works[growing.end - 1]).1 + 1..position + 1 };
                    if !growing.is_empty() && !self.may_grow(kind, &growing, number, (&profile, between.clone(), most)) {
                        runs.extend(growing.run(kind));
                        growing = Growing { first: number, end: number, held: 0, until: usize::MAX };
                    } else {
                        profile[between].iter_mut().for_each(|bytes| *bytes += growing.held);
                    }
                    growing.end = number + 1;
                    growing.held += held(id);
                    growing.until = growing.until.min(until[id]);
                }
                runs.extend(growing.run(kind));
            }
        }
        Ok(runs)
    }

    /// Whether the works of a run may wait for work `number` of their kind.
    fn may_grow(&self, kind: &Kind, growing: &Growing, number: usize, (profile, between, most): (&[u64], Range<usize>, u64)) -> bool {
        let room = between.clone().map(|position| most.saturating_sub(profile[position])).min().unwrap_or(u64::MAX);
        let position = self.slot(kind.works[number]).1;
        position < growing.until
            && growing.held <= room / self.share
            && answers(self.request, kind.device, &kind.request(self.lir, &kind.works[growing.first..=number]))
    }

    fn slot(&self, id: WorkId) -> Slot {
        self.live.slots[id]
    }

    /// For each work the place in its queue before which it has to be done: where another queue waits for it, its own.
    fn until(&self) -> IdVec<WorkId, usize> {
        let mut until = IdVec::filled(usize::MAX, self.lir.works.len());
        let definitions = self.lir.definitions();
        for (id, work) in self.lir.all() {
            for before in self.lir.predecessors(work, &definitions) {
                let at = if self.slot(before).0 == self.slot(id).0 && !self.lir.is_shared(work) { self.slot(id).1 } else { 0 };
                until[before] = until[before].min(at);
            }
        }
        until
    }
}

/// A run that works still join: those of its kind from `first` to `end`.
struct Growing {
    first: usize,
    end: usize,
    /// Bytes of what they read and nothing reads behind them.
    held: u64,
    /// The place in their queue before which they have to be done.
    until: usize,
}

impl Growing {
    fn is_empty(&self) -> bool {
        self.first == self.end
    }

    fn run<'a>(&self, kind: &'a Kind) -> Option<Run<'a>> {
        (self.end - self.first > 1).then(|| Run { kind, works: &kind.works[self.first..self.end] })
    }
}

/// The works of each run as one, in the place of the last.
fn join_all(request: &Request<'_>, lir: &Lir, runs: &[Run<'_>]) -> Result<Lir> {
    let mut joined = lir.clone();
    let mut heirs: IdVec<WorkId, Option<WorkId>> = IdVec::filled(None, lir.works.len());
    for Run { kind, works } in runs {
        let Some((&heir, others)) = works.split_last() else { continue };
        others.iter().for_each(|id| heirs[*id] = Some(heir));
        let asked = kind.request(lir, works);
        let mut inputs: Vec<View> = kind.single.iter().flatten().cloned().collect();
        let (mut outputs, mut nodes, mut after) = (Vec::new(), Vec::new(), BTreeSet::new());
        for id in *works {
            let work = &lir.works[*id];
            inputs.extend(work.inputs.iter().zip(&kind.single).filter(|(_, single)| single.is_none()).map(|(view, _)| view.clone()));
            outputs.extend(&work.outputs);
            nodes.extend(&work.nodes);
            after.extend(work.after.iter().copied());
        }
        let args = Arg::all(inputs.len(), outputs.len());
        let is_root = works.iter().any(|id| lir.works[*id].is_root);
        let call = choose_one(request, kind.device, asked)?;
        let kind = WorkKind::Kernel { call, args };
        let work = Work { kind, inputs, outputs, nodes, after: after.into_iter().collect(), is_root, ..lir.works[heir].clone() };
        joined.works[heir] = Work { prepared: Some(prepare(request, lir, &work)?), ..work };
    }
    for work in joined.works.values_mut() {
        if work.after.iter().any(|before| heirs[*before].is_some()) {
            let after: BTreeSet<WorkId> = work.after.iter().map(|before| heirs[*before].unwrap_or(*before)).collect();
            work.after = after.into_iter().collect();
        }
    }
    joined.retain(|id| heirs[id].is_none())?;
    Ok(joined)
}
