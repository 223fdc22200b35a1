//! Nodes that are placed as one: they share a variable, are tied by `_class`, or sit together. In the order in which they are
//! needed.

use std::collections::HashMap;

use plimsoll_base::DataType;
use plimsoll_graph::{AttrValue, Graph, IdVec, NodeId};
use plimsoll_ops::Registry;

use super::PlaceRequest;
use crate::place::Placement;
use crate::request::Signature;

/// The nodes whose device is not decided by their requests or by the existing kernels.
pub(super) struct Units {
    /// In topological order: a unit comes where the first of its nodes is needed, its nodes in that order too. Nodes that nothing
    /// runs come last.
    pub free: Vec<Vec<NodeId>>,
}

impl Units {
    /// The units of a graph, and which nodes run. `wholes` are the placements with each device first: a node that is on the same
    /// device in all of them is not free.
    pub fn new(request: &PlaceRequest<'_>, wholes: &[&Placement]) -> (Units, IdVec<NodeId, bool>) {
        let graph = request.graph;
        let mut groups = groups(graph, request.registry);
        let mut runs = IdVec::filled(false, graph.nodes().len());
        let mut order: Vec<NodeId> = Vec::with_capacity(graph.nodes().len());
        // The last run decides. A node that only other runs reach goes with the first node that needs it there: initial values with
        // their variable.
        for run in request.runs.iter().rev() {
            let reached = reach(graph, run);
            let mut consumer: IdVec<NodeId, Option<NodeId>> = IdVec::filled(None, graph.nodes().len());
            for &id in &reached {
                for input in &graph.node(id).inputs {
                    consumer[input.node].get_or_insert(id);
                }
            }
            let new: Vec<NodeId> = reached.into_iter().filter(|id| !runs[*id]).collect();
            for &id in new.iter().filter(|_| !order.is_empty()) {
                consumer[id].into_iter().for_each(|consumer| groups.unite(id, consumer));
            }
            new.iter().for_each(|id| runs[*id] = true);
            order.extend(new);
        }
        order.extend(graph.nodes().ids().filter(|id| !runs[*id]));
        let is_free = |id: NodeId| wholes.iter().any(|whole| whole.devices[id] != wholes[0].devices[id]);
        let mut position: IdVec<NodeId, Option<usize>> = IdVec::filled(None, graph.nodes().len());
        let mut free: Vec<Vec<NodeId>> = Vec::new();
        for id in order.into_iter().filter(|id| is_free(*id)) {
            let root = groups.root(id);
            let unit = *position[root].get_or_insert_with(|| {
                free.push(Vec::new());
                free.len() - 1
            });
            free[unit].push(id);
        }
        (Units { free }, runs)
    }
}

/// The nodes that a run reaches without passing a feed: depth first, every node after its inputs.
fn reach(graph: &Graph, run: &Signature) -> Vec<NodeId> {
    let node = |name: &String| graph.find(name.rsplit_once(':').map_or(name.as_str(), |(node, _)| node)).or_else(|| graph.find(name));
    let fed: Vec<_> = run.feeds.iter().filter_map(|feed| graph.tensor(&feed.tensor).ok()).collect();
    let mut seen = IdVec::filled(false, graph.nodes().len());
    let mut order = Vec::new();
    for start in run.fetches.iter().chain(&run.targets).filter_map(node) {
        // A node, and how many of its inputs were visited.
        let mut stack: Vec<(NodeId, usize)> = Vec::new();
        if !std::mem::replace(&mut seen[start], true) {
            stack.push((start, 0));
        }
        while let Some((id, visited)) = stack.pop() {
            let current = graph.node(id);
            let next = match current.inputs.get(visited) {
                Some(input) if fed.contains(input) => None,
                Some(input) => Some(input.node),
                None => match current.controls.get(visited - current.inputs.len()) {
                    Some(control) => Some(*control),
                    None => {
                        order.push(id);
                        continue;
                    }
                },
            };
            stack.push((id, visited + 1));
            if let Some(next) = next
                && !std::mem::replace(&mut seen[next], true)
            {
                stack.push((next, 0));
            }
        }
    }
    order
}

/// Nodes that go to one device.
struct Groups(IdVec<NodeId, NodeId>);

impl Groups {
    fn root(&mut self, mut id: NodeId) -> NodeId {
        while self.0[id] != id {
            self.0[id] = self.0[self.0[id]];
            id = self.0[id];
        }
        id
    }

    fn unite(&mut self, a: NodeId, b: NodeId) {
        let (a, b) = (self.root(a), self.root(b));
        let (first, second) = (a.min(b), a.max(b));
        self.0[second] = first;
    }
}

fn groups(graph: &Graph, registry: &Registry) -> Groups {
    let mut groups = Groups(graph.nodes().ids().collect());
    let mut labels: HashMap<&[u8], NodeId> = HashMap::new();
    for (id, node) in graph.nodes().iter() {
        let types = registry.table().get(&node.op).and_then(|op| op.input_types(&node.attrs).ok()).unwrap_or_default();
        for (input, wanted) in node.inputs.iter().zip(types) {
            if wanted.is_ref || wanted.base == DataType::Resource {
                groups.unite(id, input.node);
            }
        }
        // A node with a label joins the first that has it; every node has its name as one.
        if let Some(AttrValue::List(list)) = node.attrs.get("_class") {
            for label in list.bytes.iter().filter_map(|class| class.strip_prefix(b"loc:@")) {
                let named = std::str::from_utf8(label).ok().and_then(|name| graph.find(name));
                groups.unite(id, *labels.entry(label).or_insert(named.unwrap_or(id)));
            }
        }
        // Control flow sits with its data.
        if matches!(node.op.as_str(), "Switch" | "RefSwitch" | "_SwitchN" | "Enter" | "RefEnter" | "Exit" | "RefExit" | "NextIteration")
            && let Some(input) = node.inputs.first()
        {
            groups.unite(id, input.node);
        }
    }
    groups
}
