//! How often loops run at most, where their conditions count: `i < n` for an `i` that grows by the same number in each iteration, or an `n`
//! that falls so.

use plimsoll_graph::{Graph, IdVec, NodeId, Output};
use plimsoll_ops::Fact;

use crate::frames::{Frame, Round, round, stays};
use crate::infer::Pruned;

/// How often a loop runs at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Most {
    /// So often; just so often, where `exactly`.
    Known { trips: u64, exactly: bool },
    /// This tensor from outside of the loop says it; its elements are not known.
    Said(Output),
    /// Nothing bounds it.
    Open,
}

/// Chains of nodes longer than this are not followed.
const MOST_STEPS: usize = 256;

/// So many loops behind one another are followed whose counts come from the loop before.
const MOST_LOOPS: u32 = 4;

/// How often a loop runs at most, by what is known of the loop alone: facts may be those of an inference that is not over.
pub(crate) fn most(graph: &Graph, facts: &IdVec<NodeId, Vec<Fact>>, frame: &Frame) -> Most {
    Counted { graph, facts, frame, before: None }.most()
}

/// How often a loop runs at most when all facts are there. A gradient's loop runs as often as the count says that its loop ends with.
pub(crate) fn most_behind(graph: &Graph, pruned: &Pruned, frame: &Frame) -> Most {
    Counted { graph, facts: &pruned.facts, frame, before: Some((pruned, MOST_LOOPS)) }.most()
}

/// What an integer is in the first iteration, if that is known, which is larger by the same number in each iteration, and this number.
pub(crate) fn count_of(graph: &Graph, facts: &IdVec<NodeId, Vec<Fact>>, frame: &Frame, tensor: Output) -> Option<(Option<i128>, i128)> {
    let counted = Counted { graph, facts, frame, before: None };
    let round = counted.round(tensor)?;
    Some((counted.int(round.first), counted.step(round.merge, round.next)?))
}

/// What an integer is in the first iteration that is 1 more in each iteration.
pub(crate) fn first_of_count(graph: &Graph, facts: &IdVec<NodeId, Vec<Fact>>, frame: &Frame, tensor: Output) -> Option<u64> {
    let counted = Counted { graph, facts, frame, before: None };
    let round = counted.round(tensor)?;
    let first = counted.int(round.first)?;
    let step = counted.step(round.merge, round.next)?;
    u64::try_from(first).ok().filter(|_| step == 1)
}

/// The value that goes round that a tensor is.
pub(crate) fn round_of(graph: &Graph, facts: &IdVec<NodeId, Vec<Fact>>, frame: &Frame, tensor: Output) -> Option<Round> {
    Counted { graph, facts, frame, before: None }.round(tensor)
}

/// What is known of a loop of which both are true.
fn better(a: Option<Most>, b: Most) -> Most {
    let Some(a) = a else { return b };
    match (a, b) {
        (Most::Known { trips: a, exactly: mine }, Most::Known { trips: b, exactly: theirs }) => {
            Most::Known { trips: a.min(b), exactly: mine && theirs }
        }
        (Most::Known { trips, .. }, _) | (_, Most::Known { trips, .. }) => Most::Known { trips, exactly: false },
        (Most::Said(tensor), _) | (_, Most::Said(tensor)) => Most::Said(tensor),
        (Most::Open, Most::Open) => Most::Open,
    }
}

struct Counted<'a> {
    graph: &'a Graph,
    facts: &'a IdVec<NodeId, Vec<Fact>>,
    frame: &'a Frame,
    /// The loops of the graph, and how many of them may still be followed; none where facts may change.
    before: Option<(&'a Pruned, u32)>,
}

impl Counted<'_> {
    /// How often the loop runs at most.
    fn most(&self) -> Most {
        let mut best: Option<Most> = None;
        let mut open: Vec<Output> = self.frame.test.iter().map(|test| self.graph.node(*test).inputs[0]).collect();
        for _ in 0..MOST_STEPS {
            let Some(tensor) = open.pop() else { break };
            let node = self.graph.node(tensor.node);
            match (node.op.as_str(), &node.inputs[..]) {
                // The loop ends with the first that is false.
                ("LogicalAnd", [a, b]) => open.extend([*a, *b]),
                ("Identity" | "ToBool", [input, ..]) => open.push(*input),
                ("Less", [i, n]) | ("Greater", [n, i]) => {
                    best = Some(better(best, self.trips_down(*n, *i, 0).unwrap_or_else(|| self.trips(*i, *n, 0))));
                }
                ("LessEqual", [i, n]) | ("GreaterEqual", [n, i]) => {
                    best = Some(better(best, self.trips_down(*n, *i, 1).unwrap_or_else(|| self.trips(*i, *n, 1))));
                }
                _ => best = Some(better(best, Most::Open)),
            }
        }
        best.unwrap_or(Most::Open)
    }

    /// How often a loop runs that ends where `i`, `more` less, reaches `n`.
    fn trips(&self, i: Output, n: Output, more: i128) -> Most {
        let Some(round) = self.round(i) else { return Most::Open };
        let (Some(first), Some(step)) = (self.int(round.first), self.step(round.merge, round.next)) else { return Most::Open };
        let n = self.origin(n);
        if self.frame.rounds.iter().any(|round| round.merge == n.node) {
            return Most::Open;
        }
        match self.int(n) {
            Some(last) => {
                let trips = (last + more - first + step - 1).div_euclid(step).max(0);
                u64::try_from(trips).map_or(Most::Open, |trips| Most::Known { trips, exactly: true })
            }
            None => Most::Said(n),
        }
    }

    /// How often a loop runs that ends where `n` has fallen to `i`, or below it by `more`. None where that is not known.
    fn trips_down(&self, n: Output, i: Output, more: i128) -> Option<Most> {
        let round = self.round(n)?;
        let (first, step) = (self.int(round.first)?, self.step_down(round.merge, round.next)?);
        let i = self.origin(i);
        let last = self.int(i).filter(|_| self.frame.rounds.iter().all(|round| round.merge != i.node))?;
        let trips = (first + more - last + step - 1).div_euclid(step).max(0);
        u64::try_from(trips).ok().map(|trips| Most::Known { trips, exactly: true })
    }

    /// By how much what goes round is smaller in the next iteration: the same number each time, more than 0.
    fn step_down(&self, merge: NodeId, next: NodeId) -> Option<i128> {
        let difference = self.graph.node(self.origin(*self.graph.node(next).inputs.first()?).node);
        match (difference.op.as_str(), &difference.inputs[..]) {
            ("Sub", [a, b]) if self.origin(*a).node == merge => self.int(*b).filter(|step| *step > 0),
            _ => None,
        }
    }

    fn round(&self, tensor: Output) -> Option<Round> {
        let merge = self.origin(tensor).node;
        self.frame.rounds.iter().find(|round| round.merge == merge).copied()
    }

    /// By how much what goes round is larger in the next iteration: the same number each time, more than 0.
    fn step(&self, merge: NodeId, next: NodeId) -> Option<i128> {
        let sum = self.origin(*self.graph.node(next).inputs.first()?);
        let node = self.graph.node(sum.node);
        let [a, b] = node.inputs[..] else { return None };
        let by = match node.op.as_str() {
            "Add" | "AddV2" if self.origin(a).node == merge => b,
            "Add" | "AddV2" if self.origin(b).node == merge => a,
            _ => return None,
        };
        self.int(by).filter(|step| *step > 0)
    }

    /// The tensor that a tensor is, from outside of loops that do not change it.
    fn origin(&self, tensor: Output) -> Output {
        let mut here = tensor;
        for _ in 0..MOST_STEPS {
            let node = self.graph.node(here.node);
            let before = match (node.op.as_str(), &node.inputs[..]) {
                ("Identity" | "Enter", [input, ..]) => *input,
                ("Switch", [input, ..]) if here.index == 1 && self.is_round(input.node) => *input,
                ("Merge", _) => match round(self.graph, here.node) {
                    Some((first, next)) if stays(self.graph, here.node, next) => first,
                    _ => return here,
                },
                _ => return here,
            };
            // What goes round may be fed: nothing is known of what it comes from then.
            if self.facts[before.node].get(before.index as usize).is_none() {
                return here;
            }
            here = before;
        }
        here
    }

    fn is_round(&self, merge: NodeId) -> bool {
        round(self.graph, merge).is_some()
    }

    fn int(&self, tensor: Output) -> Option<i128> {
        let known = |tensor: Output| self.facts[tensor.node].get(tensor.index as usize)?.value.as_ref()?.to_i64s();
        let origin = self.origin(tensor);
        match known(tensor).or_else(|| known(origin)).as_deref() {
            Some([int]) => Some(i128::from(*int)),
            Some(_) => None,
            None => self.end_of_count(origin),
        }
    }

    /// What a count of a loop is when the loop is over.
    fn end_of_count(&self, end: Output) -> Option<i128> {
        let (pruned, left) = self.before?;
        let mut end = end;
        // A While gives its results together.
        if self.graph.node(end.node).op == "IdentityN" && !pruned.is_fed(end) {
            end = self.origin(*self.graph.node(end.node).inputs.get(end.index as usize)?);
        }
        let node = self.graph.node(end.node);
        if pruned.is_fed(end) {
            return None;
        }
        let merge =
            self.graph.node(node.inputs.first().filter(|_| matches!(node.op.as_str(), "Exit" | "RefExit"))?.node).inputs.first()?.node;
        let loop_ = Counted { frame: pruned.frames.get(pruned.frames.of(merge)?), before: Some((pruned, left.checked_sub(1)?)), ..*self };
        let round = loop_.frame.rounds.iter().find(|round| round.merge == merge)?;
        let (first, step) = (loop_.int(round.first)?, loop_.step(round.merge, round.next)?);
        match loop_.most() {
            Most::Known { trips, exactly: true } => {
                step.checked_mul(i128::from(trips))?.checked_add(first).filter(|end| i64::try_from(*end).is_ok())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Most, better};

    #[test]
    fn the_smaller_bound_counts_and_a_known_one_before_one_that_is_said() {
        let said = Most::Said(plimsoll_graph::Output { node: plimsoll_graph::id::Id::from_index(1), index: 0 });
        let known = |trips, exactly| Most::Known { trips, exactly };
        assert_eq!(better(None, known(3, true)), known(3, true));
        assert_eq!(better(Some(known(3, true)), known(2, true)), known(2, true));
        assert_eq!(better(Some(said.clone()), known(2, true)), known(2, false));
        assert_eq!(better(Some(Most::Open), said.clone()), said);
        assert_eq!(better(Some(Most::Open), Most::Open), Most::Open);
    }
}
