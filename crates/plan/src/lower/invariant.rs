//! What an iteration of a loop computes from values that stay: it is the same in each, and computed once, before the first.

use std::collections::HashSet;

use plimsoll_base::{DataType, Result};
use plimsoll_graph::{HostTensor, Node, NodeId, Output, Shape};
use plimsoll_ops::Lower;

use super::{Lowering, Meaning};
use crate::condition::Condition;
use crate::frames::{Frame, FrameId, Item, stays};
use crate::lir::{VariableId, View};
use crate::trips::{Most, most_behind};

/// The nodes of a loop whose results are the same in each iteration.
pub(super) struct Invariants {
    frame: FrameId,
    nodes: HashSet<NodeId>,
    /// The nodes of the loop.
    all: HashSet<NodeId>,
}

impl Invariants {
    /// Whether a tensor is the same in each iteration.
    pub fn has(&self, tensor: Output) -> bool {
        !self.all.contains(&tensor.node) || self.nodes.contains(&tensor.node)
    }
}

impl Lowering<'_> {
    /// Computes what stays of the nodes of a body, where `condition` holds and there is a `first` iteration. The rest of the body.
    pub(super) fn hoist(
        &mut self,
        (id, frame): (FrameId, &Frame),
        body: Vec<Item>,
        mut condition: Condition,
        first: View,
    ) -> Result<(Invariants, Vec<Item>)> {
        let mut invariants = Invariants { frame: id, nodes: HashSet::new(), all: self.pruned.frames.nodes(id).collect() };
        let graph = self.request.graph;
        let staying = frame.rounds.iter().filter(|round| stays(graph, round.merge, round.next)).map(|round| round.merge);
        invariants.nodes.extend(staying.chain(frame.enters.iter().copied()));
        let written = self.written_in(&invariants);
        let (mut early, mut rest) = (Vec::new(), Vec::new());
        for item in body {
            match item {
                Item::Node(node) if self.is_invariant(node, frame, &invariants, written.as_ref()) => {
                    invariants.nodes.insert(node);
                    early.push(node);
                }
                _ => rest.push(item),
            }
        }
        if early.is_empty() {
            return Ok((invariants, rest));
        }
        let runs = matches!(most_behind(graph, self.pruned, frame), Most::Known { trips: 1.., exactly: true });
        if !runs {
            let first = self.holds(first)?;
            condition = self.branches.and(condition, first)?;
        }
        let staying: Vec<NodeId> = invariants.nodes.difference(&early.iter().copied().collect()).copied().collect();
        if condition != Condition::ALWAYS {
            staying.iter().for_each(|node| _ = self.branches.nodes.insert(*node, condition));
        }
        // The Switches of the loop take what stays to its body.
        let known = Meaning::Known(HostTensor::from_bools(Shape::scalar(), &[true])?);
        let tested = frame.test.map(|test| Output { node: test, index: 0 }).map(|test| (test, self.meanings.insert(test, known)));
        self.items(&early.iter().copied().map(Item::Node).collect::<Vec<_>>())?;
        self.meanings.extend(tested.and_then(|(test, meaning)| Some((test, meaning?))));
        // Inside, they are alive.
        self.branches.revive(&early);
        self.branches.revive(&staying);
        Ok((invariants, rest))
    }

    /// The variables that a loop may write; none where that is not known.
    fn written_in(&self, invariants: &Invariants) -> Option<HashSet<VariableId>> {
        let mut written = HashSet::new();
        for &id in &invariants.all {
            let node = self.request.graph.node(id);
            let rules = self.request.registry.get(&node.op)?;
            if !matches!(rules.lower, Lower::Assign | Lower::Update(_) | Lower::UpdateInPlace(_) | Lower::Restore | Lower::Stateful(_)) {
                continue;
            }
            for input in node.inputs.iter().filter(|input| self.is_handle(**input)) {
                written.insert(self.variable_at(*input, invariants)?);
            }
        }
        Some(written)
    }

    fn is_handle(&self, tensor: Output) -> bool {
        self.pruned.facts[tensor.node].get(tensor.index as usize).is_none_or(|fact| fact.data_type == DataType::Resource || fact.is_ref)
    }

    /// The variable that a handle in a loop stands for.
    fn variable_at(&self, handle: Output, invariants: &Invariants) -> Option<VariableId> {
        let graph = self.request.graph;
        let mut here = handle;
        for _ in 0..graph.nodes().len() {
            if let Some(meaning) = self.meanings.get(&here) {
                return if let Meaning::Variable(variable) = meaning { Some(*variable) } else { None };
            }
            let node = graph.node(here.node);
            let passes = matches!(node.op.as_str(), "Identity" | "Switch" | "Enter" | "RefIdentity" | "RefEnter" | "RefSwitch");
            here = *node.inputs.first().filter(|_| passes && invariants.all.contains(&here.node))?;
        }
        None
    }

    fn is_invariant(&self, id: NodeId, frame: &Frame, invariants: &Invariants, written: Option<&HashSet<VariableId>>) -> bool {
        let (graph, pruned) = (self.request.graph, self.pruned);
        let node = graph.node(id);
        let Some(rules) = self.request.registry.get(&node.op) else { return false };
        let facts = &pruned.facts[id];
        let is_plain = |fact: &plimsoll_ops::Fact| fact.list.is_none() && !fact.is_ref;
        if facts.is_empty() || !facts.iter().all(is_plain) || pruned.frames.of(id) != Some(invariants.frame) {
            return false;
        }
        let is_loop_switch = node.op == "Switch" && node.inputs.get(1).map(|test| test.node) == frame.test;
        let inputs = &node.inputs[..if is_loop_switch { 1 } else { node.inputs.len() }];
        let stays = match rules.lower {
            Lower::Switch => is_loop_switch,
            Lower::ReadVariable => {
                let variable = inputs.first().and_then(|handle| self.variable_at(*handle, invariants));
                variable.is_some_and(|variable| written.is_some_and(|written| !written.contains(&variable)))
            }
            Lower::Alias => true,
            Lower::Const => facts.iter().all(|fact| fact.value.is_some()),
            Lower::Unary(_) | Lower::Binary(_) | Lower::Elementwise(_) | Lower::Anchor(_) => {
                !inputs.iter().any(|input| self.is_handle(*input))
            }
            Lower::Kernel(_) | Lower::Move(_) | Lower::Recipe(_) => !inputs.iter().any(|input| self.is_handle(*input)),
            _ => false,
        };
        let is_list = |tensor: &Output| pruned.facts[tensor.node].get(tensor.index as usize).is_some_and(|fact| fact.list.is_some());
        let has = |tensor: &Output| invariants.has(*tensor) && !is_list(tensor);
        stays && inputs.iter().all(has) && node.controls.iter().all(|control| self.says_nothing(*control, frame, invariants))
    }

    /// Whether an edge of control from a node says no more than that there is an iteration.
    fn says_nothing(&self, control: NodeId, frame: &Frame, invariants: &Invariants) -> bool {
        let graph = self.request.graph;
        let is_switch = |node: &Node| node.op == "Switch" && node.inputs.get(1).map(|test| test.node) == frame.test;
        let node = graph.node(control);
        let is_pivot =
            node.op == "Identity" && node.inputs.first().is_some_and(|input| input.index == 1 && is_switch(graph.node(input.node)));
        is_pivot || !invariants.all.contains(&control) || invariants.nodes.contains(&control)
    }
}
