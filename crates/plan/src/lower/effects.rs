//! An effect that follows a failure, by data or by control, must not have happened.
//!
//! Failing is an effect, as is a write. A work that may fail waits for the works with effects before it in the graph. A work with an
//! effect waits for those that may fail. Every node has a [`Frontier`]: the last of such works before it, along edges of data and
//! control. Nodes that become no work hand theirs on. A work that cannot fail and changes nothing is not ordered.
//!
//! Every request says whether it can fail (`KernelRequest::can_fail`). Where more than 16 such works meet, one command that does
//! nothing waits for them. A work that may fail is never fused into a write, nor moved where others wait for it.

use plimsoll_base::Result;
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;

use plimsoll_graph::id::Id;
use plimsoll_graph::{IdVec, Node, NodeId, Output};
use plimsoll_request::KernelRequest;

use super::Lowering;
use crate::infer::Pruned;
use crate::lir::{WorkId, WorkKind};

/// Where more works than this meet, one work waits for all of them, and the many that come after wait for that one.
const MOST: usize = 16;

/// Works, sorted, each once. Shared between nodes.
type Works = Rc<[WorkId]>;

/// The works that a node comes after.
#[derive(Clone, Default)]
struct Frontier {
    /// Works that may fail. Works that they waited for themselves are left out.
    faults: Option<Works>,
    /// Works with effects that none of `faults` waited for.
    effects: Option<Works>,
}

/// The works that every node comes after, as far as nodes have been lowered.
pub(super) struct Effects {
    frontiers: IdVec<NodeId, Frontier>,
    fed: HashSet<Output>,
    last: Vec<WorkId>,
}

impl Effects {
    pub(super) fn new(nodes: usize, pruned: &Pruned) -> Effects {
        Effects { frontiers: IdVec::filled(Frontier::default(), nodes), fed: pruned.feeds.iter().copied().collect(), last: Vec::new() }
    }
}

impl Lowering<'_> {
    /// Orders the works from `first` on, which are those of the node, and records its successors' frontier.
    pub(super) fn settle_effects(&mut self, id: NodeId, node: &Node, first: usize) -> Result<()> {
        let inputs = node.inputs.iter().filter(|input| !self.effects.fed.contains(input)).map(|input| input.node);
        let before: Vec<NodeId> = inputs.chain(node.controls.iter().copied()).collect();
        let faults = self.meet(id, before.iter().map(|node| self.effects.frontiers[*node].faults.clone()).collect())?;
        let effects = self.meet(id, before.iter().map(|node| self.effects.frontiers[*node].effects.clone()).collect())?;
        let frontier = self.order_effects(id, Frontier { faults, effects }, first)?;
        self.effects.frontiers[id] = frontier;
        Ok(())
    }

    /// Orders the works from `first` on behind those that the node comes after.
    pub(super) fn settle_effects_after(&mut self, id: NodeId, first: usize) -> Result<()> {
        let frontier = self.effects.frontiers[id].clone();
        self.order_effects(id, frontier, first).map(drop)
    }

    /// A loop waits for what its Enters wait for, and what is behind its Exits waits for the loop.
    pub(super) fn settle_loop(&mut self, work: WorkId, enters: &[NodeId], exits: &[NodeId]) {
        for enter in enters {
            let Frontier { faults, effects } = self.effects.frontiers[*enter].clone();
            self.wait_for(work, &faults);
            self.wait_for(work, &effects);
        }
        for exit in exits {
            self.effects.frontiers[*exit] = Frontier { faults: Some(Rc::new([work])), effects: None };
        }
    }

    fn order_effects(&mut self, id: NodeId, mut frontier: Frontier, first: usize) -> Result<Frontier> {
        for work in (first..self.lir.works.len()).map(WorkId::from_index) {
            let (can_fail, has_effect) = (self.lir.works[work].can_fail(), self.lir.has_effect(&self.lir.works[work]));
            if can_fail || has_effect {
                self.wait_for(work, &frontier.faults);
            }
            if can_fail {
                self.wait_for(work, &frontier.effects);
                frontier = Frontier { faults: Some(Rc::new([work])), effects: None };
            } else if has_effect {
                frontier.effects = self.meet(id, vec![frontier.effects.take(), Some(Rc::new([work]))])?;
            }
        }
        Ok(frontier)
    }

    fn wait_for(&mut self, work: WorkId, before: &Option<Works>) {
        self.lir.works[work].after.extend(before.iter().flat_map(|works| works.iter()));
    }

    /// All of the works, or one that waits for all of them.
    fn meet(&mut self, id: NodeId, sets: Vec<Option<Works>>) -> Result<Option<Works>> {
        let mut distinct: Vec<Works> = Vec::new();
        for set in sets.into_iter().flatten() {
            // Neighbours have their set from one node, as a rule.
            if distinct.last().is_none_or(|last| !Rc::ptr_eq(last, &set)) {
                distinct.push(set);
            }
        }
        if distinct.len() < 2 {
            return Ok(distinct.pop());
        }
        let mut works: Vec<WorkId> = distinct.iter().flat_map(|set| set.iter().copied()).collect();
        works.sort_unstable();
        works.dedup();
        if works.len() > MOST {
            let device = self.device(id);
            let kind = WorkKind::Request { request: Arc::new(KernelRequest::Nothing), args: Vec::new() };
            let one = self.lir.work(kind, device, vec![id], Vec::new(), Vec::new());
            self.lir.works[one].after = std::mem::replace(&mut works, vec![one]);
        }
        Ok(Some(works.into()))
    }

    /// Works that fail because of the whole run's result are behind all effects of the run.
    pub(super) fn settle_last(&mut self) -> Result<()> {
        let last = std::mem::take(&mut self.effects.last);
        let Some(&one) = last.first() else { return Ok(()) };
        // A loop stands for what its body does.
        let effects = self.lir.all().filter(|(_, work)| self.lir.has_effect(work));
        let effects: Vec<Option<Works>> = effects.map(|(id, _)| Some(Rc::from([id]))).collect();
        let effects = self.meet(self.lir.works[one].nodes[0], effects)?;
        last.into_iter().for_each(|work| self.wait_for(work, &effects));
        Ok(())
    }

    /// The work is behind all effects of the run.
    pub(super) fn put_last(&mut self, work: WorkId) {
        self.effects.last.push(work);
    }
}
