//! Which nodes of an inlined graph came from which call.

use plimsoll_graph::{IdVec, NodeId};

/// Where a node of an inlined graph belongs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// The node that stands for the call in whose body it is. None for nodes of the graph itself, and of branches of conditions
    /// in it.
    pub call: Option<NodeId>,
    /// Whether all of that body is on the device of the call.
    pub is_bound: bool,
    /// In how many branches of conditions it is, counted from the body of the call.
    pub branches: u32,
    /// Whether it stands for a call that takes no tensor and gives one.
    pub is_generator: bool,
}

/// Which nodes of an inlined graph came from which call. Empty for a graph without calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    parts: IdVec<NodeId, Part>,
    /// By node: in how many bodies it is.
    levels: IdVec<NodeId, u32>,
}

impl Calls {
    /// By node. The node in place of a call is where the call stood, outside of its body.
    pub fn new(parts: IdVec<NodeId, Part>) -> Calls {
        if parts.values().all(|part| *part == Part::default()) {
            return Calls::default();
        }
        let mut levels: IdVec<NodeId, Option<u32>> = IdVec::filled(None, parts.len());
        let mut path = Vec::new();
        for id in parts.ids() {
            let mut here = id;
            // No call is in its own body; the length bounds the work for a wrong table.
            let level = loop {
                match (levels[here], parts[here].call.filter(|call| parts.get(*call).is_some())) {
                    (Some(level), _) => break level,
                    (None, Some(call)) if path.len() < parts.len() => path.push(std::mem::replace(&mut here, call)),
                    _ => {
                        levels[here] = Some(0);
                        break 0;
                    }
                }
            };
            for (above, node) in path.drain(..).rev().enumerate() {
                levels[node] = Some(level + 1 + above as u32);
            }
        }
        let levels = levels.values().map(|level| level.unwrap_or(0)).collect();
        Calls { parts, levels }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Where a node belongs.
    pub fn part(&self, id: NodeId) -> Part {
        self.parts.get(id).copied().unwrap_or_default()
    }

    /// In how many bodies a node is.
    pub fn level(&self, id: NodeId) -> u32 {
        self.levels.get(id).copied().unwrap_or(0)
    }

    /// The call that a node is a part of, seen from so many bodies deep; the node itself where it is not deeper.
    pub fn seen_from(&self, level: u32, mut id: NodeId) -> NodeId {
        while self.level(id) > level {
            let Some(call) = self.part(id).call else { break };
            id = call;
        }
        id
    }
}
