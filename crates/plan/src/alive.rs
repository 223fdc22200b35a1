//! Liveness before anything runs: the outputs that are certainly dead, and the predicates that others depend on. The rules are
//! those of [`crate::lower`], of which this is the part that no value of a run decides.

use std::collections::HashMap;
use std::sync::Arc;

use plimsoll_graph::{Graph, NodeId, Output};
use plimsoll_ops::{Fact, Lower};

use crate::frames::{is_exit, round};

/// A predicate, and the side of its Switches that is alive where it has that value.
pub(crate) type Side = (Output, bool);

/// When a node or an output is alive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum When {
    #[default]
    Always,
    Never,
    /// Only where all of these hold, the outer ones first. There may be more.
    Under(Arc<[Side]>),
}

/// More sides are not followed: the rest counts as decided by the run.
const MOST_SIDES: usize = 64;

impl When {
    /// When both.
    pub fn and(&self, other: &When) -> When {
        match (self, other) {
            (When::Never, _) | (_, When::Never) => When::Never,
            (When::Always, when) | (when, When::Always) => when.clone(),
            (When::Under(mine), When::Under(theirs)) => {
                if Arc::ptr_eq(mine, theirs) || theirs.iter().all(|side| mine.contains(side)) {
                    return self.clone();
                }
                if theirs.iter().any(|(predicate, side)| mine.contains(&(*predicate, !side))) {
                    return When::Never;
                }
                let new = theirs.iter().filter(|side| !mine.contains(side));
                When::Under(mine.iter().chain(new).take(MOST_SIDES).copied().collect())
            }
        }
    }

    fn or(&self, other: &When) -> When {
        match (self, other) {
            (When::Never, when) | (when, When::Never) => when.clone(),
            (When::Always, _) | (_, When::Always) => When::Always,
            (When::Under(mine), When::Under(theirs)) => {
                let both: Arc<[Side]> = mine.iter().filter(|side| theirs.contains(side)).copied().collect();
                if both.is_empty() { When::Always } else { When::Under(both) }
            }
        }
    }
}

/// When the nodes so far are alive. Nodes and outputs that are not here always are.
#[derive(Debug, Default)]
pub(crate) struct Alive {
    nodes: HashMap<NodeId, When>,
    outputs: HashMap<Output, When>,
}

impl Alive {
    /// When a node runs.
    pub fn node(&self, id: NodeId) -> When {
        self.nodes.get(&id).cloned().unwrap_or_default()
    }

    /// When an output that is not fed is alive.
    pub fn output(&self, output: Output) -> When {
        self.outputs.get(&output).or_else(|| self.nodes.get(&output.node)).cloned().unwrap_or_default()
    }

    /// When an Exit is alive: where the loop begins.
    fn outside(&self, graph: &Graph, exit: NodeId) -> When {
        let mut here = graph.node(exit).inputs.first().copied();
        let merge = std::iter::from_fn(|| {
            let node = graph.node(here?.node);
            here = node.inputs.first().copied().filter(|_| matches!(node.op.as_str(), "Switch" | "RefSwitch" | "Identity"));
            Some(node)
        });
        let first = merge.last().and_then(|node| node.inputs.first());
        first.map_or(When::Always, |first| self.output(*first))
    }

    /// Adds a node behind its inputs, with what is known of these, in place of what was said of it before. Whether that was something else.
    pub fn add<'f>(
        &mut self,
        graph: &Graph,
        id: NodeId,
        lower: Lower,
        known: impl Fn(&Output) -> Option<&'f Fact>,
        is_fed: impl Fn(Output) -> bool,
    ) -> bool {
        let node = graph.node(id);
        let input = |output: &Output| if is_fed(*output) { When::Always } else { self.output(*output) };
        let when = match lower {
            Lower::ControlTrigger => When::Always,
            // Whatever becomes of an iteration, a loop ends.
            _ if is_exit(graph, id) => self.outside(graph, id),
            Lower::Merge if let Some((first, _)) = round(graph, id) => input(&first),
            Lower::Merge => node.inputs.iter().map(input).fold(When::Never, |any, when| any.or(&when)),
            _ => {
                let controls = node.controls.iter().map(|control| self.node(*control));
                node.inputs.iter().map(input).chain(controls).fold(When::Always, |all, when| all.and(&when))
            }
        };
        let mut changed = false;
        if let (Lower::Switch, [_, predicate]) = (lower, &node.inputs[..]) {
            let known = known(predicate).and_then(|fact| fact.value.as_ref()?.splat()).map(|bytes| bytes[0] != 0);
            for (index, side) in [(0, false), (1, true)] {
                let here = match known {
                    Some(known) if known == side => When::Always,
                    Some(_) => When::Never,
                    None => When::Under([(*predicate, side)].into()),
                };
                let side = when.and(&here);
                changed |= self.outputs.insert(Output { node: id, index }, side.clone()) != Some(side);
            }
        }
        let before = if when == When::Always { self.nodes.remove(&id) } else { self.nodes.insert(id, when.clone()) };
        changed || before.unwrap_or_default() != when
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_graph::id::Id;

    use super::*;

    fn under(sides: &[(usize, bool)]) -> When {
        When::Under(sides.iter().map(|(node, side)| (Output { node: NodeId::from_index(*node), index: 0 }, *side)).collect())
    }

    #[test]
    fn conditions_join() {
        let (p, q, not_p) = (under(&[(1, true)]), under(&[(2, true)]), under(&[(1, false)]));
        assert_eq!(p.and(&q), under(&[(1, true), (2, true)]));
        assert_eq!(p.and(&q).and(&p), p.and(&q));
        assert_eq!((p.and(&not_p), p.and(&When::Never), p.and(&When::Always)), (When::Never, When::Never, p.clone()));
        assert_eq!((p.or(&not_p), p.or(&When::Never), p.or(&When::Always)), (When::Always, p.clone(), When::Always));
        // Both sides of an inner condition leave the outer one.
        assert_eq!(q.and(&p).or(&q.and(&not_p)), q);
        let many: Vec<(usize, bool)> = (0..2 * MOST_SIDES).map(|node| (node, true)).collect();
        let When::Under(sides) = many.iter().fold(When::Always, |all, side| all.and(&under(&[*side]))) else { panic!("not under sides") };
        assert_eq!(sides.len(), MOST_SIDES);
    }
}
