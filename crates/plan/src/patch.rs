//! Applies the fusions that operations bring: see [`plimsoll_ops::fusion`].

use std::collections::HashSet;

use plimsoll_base::{Error, Result};
use plimsoll_graph::IdVec;
use plimsoll_graph::id::Id;
use plimsoll_ops::fusion::{Becomes, Computes, Fusion, Patch, Patched, Stage, Works};
use plimsoll_request::KernelRequest;

use crate::Request;
use crate::lir::verify::verify;
use crate::lir::{Applied, Arg, Edges, Home, Lir, Value, ValueId, View, WorkId, WorkKind};
use crate::passes::{Check, Pass};
use crate::prepare::{answers, expression, request_of, seconds_of};

/// Rewrites works as nodes became them.
///
/// # Errors
/// INTERNAL where a patch breaks a rule of the LIR: the fusion, its number and the work. The error of `go_on`.
pub(crate) fn patch(request: &Request<'_>, lir: &mut Lir, go_on: &Check<'_>) -> Result<()> {
    patches(request, lir, (Stage::Lowered, Pass::Patch), go_on)?;
    lir.drop_dead()
}

/// Rewrites works of a stage. `after` says which rules hold.
///
/// # Errors
/// As [`patch`].
pub(crate) fn patches(request: &Request<'_>, lir: &mut Lir, (stage, after): (Stage, Pass), go_on: &Check<'_>) -> Result<()> {
    let fusions: Vec<&Fusion> = request.registry.fusions().iter().filter(|fusion| fusion.stage == stage).collect();
    if fusions.is_empty() {
        return Ok(());
    }
    let order = lir.topological()?;
    let (edges, removed) = (Edges::new(lir), IdVec::filled(false, lir.works.len()));
    let mut patching = Patching { request, lir, edges, removed };
    for fusion in fusions {
        for &id in &order {
            if !patching.may_go_on() {
                break;
            }
            if patching.removed[id] {
                continue;
            }
            go_on()?;
            if let Some(patch) = (fusion.find)(&patching, id).filter(|patch| patching.can_be_computed(patch)) {
                patching.apply(fusion, id, patch)?;
                check(request, patching.lir, &patching.removed, after)?;
            }
        }
    }
    let removed = patching.removed;
    lir.retain(|id| !removed[id])
}

/// Whether one more fusion is allowed.
pub(crate) fn may_fuse(request: &Request<'_>, lir: &Lir) -> bool {
    request.registry.most_fusions().is_none_or(|most| lir.fusions.len() < most)
}

/// Works that are being rewritten.
struct Patching<'a> {
    request: &'a Request<'a>,
    lir: &'a mut Lir,
    edges: Edges,
    removed: IdVec<WorkId, bool>,
}

impl Patching<'_> {
    fn may_go_on(&self) -> bool {
        may_fuse(self.request, self.lir)
    }

    /// Whether the devices of the patch's works have kernels for what they become.
    fn can_be_computed(&self, patch: &Patch) -> bool {
        patch.works.iter().all(|patched| {
            let device = self.lir.works[patched.work].device;
            match &patched.becomes {
                Becomes::Expr(expr, shape) => answers(self.request, device, &expression(expr, shape, &patched.inputs)),
                Becomes::Anchor(anchor) => {
                    let asked = KernelRequest::Anchor { anchor: *anchor, epilogue: None, pooling: None };
                    answers(self.request, device, &asked)
                }
                Becomes::Request(asked) => answers(self.request, device, asked),
            }
        })
    }

    fn apply(&mut self, fusion: &Fusion, at: WorkId, patch: Patch) -> Result<()> {
        let wrong = |why: &str| Error::internal(format!("the patch of {}: {why}", fusion.name));
        let node = self.lir.works[at].nodes[0];
        for (index, bytes) in patch.values.iter().enumerate() {
            let id = ValueId::from_index(self.edges.makers.len());
            let maker = patch
                .works
                .iter()
                .find(|work| work.outputs.contains(&id))
                .ok_or_else(|| wrong(&format!("value {index} is not defined")))?;
            let (device, node) = (self.lir.works[maker.work].device, self.lir.works[maker.work].nodes[0]);
            let value = Value { device, region: self.lir.here(), home: Home::Arena, bytes: *bytes, node, is_copy: false, previous: None };
            self.lir.values.push(value);
            self.edges.push();
        }
        // A work that is there for its results is there wherever they are defined from now on.
        let is_rooted = |value: &ValueId| self.edges.makers[*value].is_some_and(|maker| self.lir.works[maker].is_root);
        let rooted: HashSet<ValueId> = patch.works.iter().flat_map(|work| &work.outputs).copied().filter(is_rooted).collect();
        for &gone in &patch.removed {
            // What it was there for is done by the work that defines its values now.
            let heir = patch.works.iter().find(|work| self.lir.works[gone].outputs.iter().any(|output| work.outputs.contains(output)));
            let heir = heir.ok_or_else(|| wrong("a work is gone, and nothing defines its values"))?.work;
            self.inherit(gone, heir);
            self.remove(gone);
        }
        for work in patch.works {
            let is_root = work.outputs.iter().any(|output| rooted.contains(output));
            let id = self.replace(work);
            self.lir.works[id].is_root |= is_root;
        }
        self.lir.fusions.push(Applied { name: fusion.name, node });
        Ok(())
    }

    /// Changes or adds a work.
    fn replace(&mut self, patched: Patched) -> WorkId {
        let Patched { work, is_new, joins, becomes, inputs, outputs } = patched;
        let kind = match becomes {
            Becomes::Expr(expr, shape) => WorkKind::Expr { expr, shape },
            Becomes::Anchor(anchor) if anchor.shape().is_some() => WorkKind::Anchor { anchor, epilogue: None },
            Becomes::Anchor(anchor) => {
                WorkKind::request(KernelRequest::Anchor { anchor, epilogue: None, pooling: None }, inputs.len(), outputs.len())
            }
            Becomes::Request(request) => WorkKind::request(request, inputs.len(), outputs.len()),
        };
        let id = if is_new {
            let base = &self.lir.works[work];
            let (device, nodes, guard, after, rank) = (base.device, base.nodes.clone(), base.guard, base.after.clone(), base.rank);
            let id = self.lir.work(kind, device, nodes, Vec::new(), Vec::new());
            let new = &mut self.lir.works[id];
            (new.guard, new.after, new.rank) = (guard, after, rank);
            self.removed.push(false);
            id
        } else {
            self.edges.forget(work, &self.lir.works[work]);
            self.lir.works[work].kind = kind;
            work
        };
        (self.lir.works[id].inputs, self.lir.works[id].outputs) = (inputs, outputs);
        for first in joins.into_iter().rev() {
            let nodes = self.lir.works[first].nodes.clone();
            self.lir.works[id].nodes.splice(0..0, nodes);
            self.inherit(first, id);
            self.remove(first);
        }
        self.edges.add(id, &self.lir.works[id]);
        id
    }

    /// `heir` is there for all that `gone` was there for, and waits for what that waited for.
    fn inherit(&mut self, gone: WorkId, heir: WorkId) {
        let (is_root, after) = (self.lir.works[gone].is_root, self.lir.works[gone].after.clone());
        self.lir.works[heir].is_root |= is_root;
        self.lir.works[heir].after.extend(after.into_iter().filter(|before| *before != heir));
    }

    fn remove(&mut self, work: WorkId) {
        self.edges.forget(work, &self.lir.works[work]);
        self.removed[work] = true;
    }
}

/// In debug builds, the rules of the LIR hold after each fusion.
///
/// # Errors
/// INTERNAL where they do not: the number and the name of the fusion, the work and the rule.
pub(crate) fn check(request: &Request<'_>, lir: &Lir, removed: &IdVec<WorkId, bool>, after: Pass) -> Result<()> {
    /// A check takes as long as there are works: of more than this, fusions are checked together.
    const MOST: usize = 120;
    if !cfg!(debug_assertions) || lir.works.len() > MOST {
        return Ok(());
    }
    let mut whole = lir.clone();
    let kept = whole.retain(|id| !removed[id]).and_then(|()| verify(request, &whole, after));
    let name = lir.fusions.last().map_or("", |applied| applied.name);
    kept.map_err(|error| error.context(format!("fusion {}, {name}", lir.fusions.len())))
}

impl Works for Patching<'_> {
    fn op(&self, work: WorkId) -> &str {
        self.lir.works[work].nodes.first().map_or("", |node| &self.request.graph.node(*node).op)
    }

    fn computes(&self, work: WorkId) -> Computes<'_> {
        let whole = &self.lir.works[work];
        match &whole.kind {
            WorkKind::Expr { expr, shape } => Computes::Expr(expr, shape),
            WorkKind::Anchor { anchor, epilogue } => Computes::Anchor(anchor, epilogue.as_ref()),
            WorkKind::Request { request, args } if *args == Arg::all(whole.inputs.len(), whole.outputs.len()) => Computes::Request(request),
            _ => Computes::Other,
        }
    }

    fn inputs(&self, work: WorkId) -> &[View] {
        &self.lir.works[work].inputs
    }

    fn outputs(&self, work: WorkId) -> &[ValueId] {
        &self.lir.works[work].outputs
    }

    fn maker(&self, value: ValueId) -> Option<WorkId> {
        self.edges.makers[value]
    }

    fn readers(&self, value: ValueId) -> &[WorkId] {
        &self.edges.readers[value]
    }

    fn is_kept(&self, value: ValueId) -> bool {
        self.lir.values[value].home != Home::Arena
    }

    fn is_variable(&self, value: ValueId) -> bool {
        matches!(self.lir.values[value].home, Home::Variable(_))
    }

    fn is_one(&self, value: ValueId, other: ValueId) -> bool {
        let [one, another] = [value, other].map(|value| &self.lir.values[value]);
        value == other || (one.home == another.home && matches!(one.home, Home::Constant(_) | Home::Feed(_)))
    }

    fn absorbs(&self, work: WorkId, other: WorkId) -> bool {
        let (one, other) = (&self.lir.works[work], &self.lir.works[other]);
        one.device == other.device && one.guard == other.guard && !other.is_root
    }

    fn is_next(&self, first: WorkId, second: WorkId) -> bool {
        let mut seen = HashSet::from([second]);
        let mut stack = vec![second];
        while let Some(work) = stack.pop() {
            for before in self.lir.predecessors(&self.lir.works[work], &self.edges.makers) {
                if before == first && work != second {
                    return false;
                }
                if before != first && seen.insert(before) {
                    stack.push(before);
                }
            }
        }
        true
    }

    fn request(&self, work: WorkId) -> Option<KernelRequest> {
        match self.computes(work) {
            Computes::Request(request) => Some(request.clone()),
            _ => request_of(&self.lir.works[work]),
        }
    }

    fn answers(&self, work: WorkId, request: &KernelRequest) -> bool {
        answers(self.request, self.lir.works[work].device, request)
    }

    fn seconds(&self, work: WorkId, request: &KernelRequest) -> Option<f64> {
        seconds_of(self.request, self.lir.works[work].device, request).ok()
    }

    fn takes(&self, work: WorkId, first: &KernelRequest, second: &KernelRequest) -> bool {
        let device = self.lir.works[work].device.index();
        self.request.libraries[device].takes(&self.request.devices[device], first, second)
    }

    fn next_value(&self) -> ValueId {
        self.lir.values.next_id()
    }
}
