//! Loops that the session drives, an iteration behind another: those whose sizes change, or follow from elements that an iteration
//! makes.
//!
//! The condition and the body are signatures of their own, in which what goes round is fed. They are planned for the sizes that an
//! iteration has, and may run in stages themselves.

use std::collections::{BTreeSet, HashSet};

use plimsoll_base::{Error, Result};
use plimsoll_graph::{HostTensor, NodeId, Output};

use super::split::Splitter;
use super::{Operand, Value};
use crate::frames::{Frame, FrameId, Round, stays};
use crate::request::{Signature, unset_rows};

/// A loop that the session drives. It has values that go round, and others that stay.
#[derive(Clone, Debug)]
pub struct Repeat {
    /// The name of its LoopCond.
    pub name: String,
    /// What goes round, as it comes in; then what stays; then the stacks; then what is fed to the run.
    pub first: Vec<Operand>,
    /// Whether there is another iteration: it fetches one bool.
    pub test: LoopPart,
    /// An iteration: it fetches what goes round, as the next one is given it.
    pub body: LoopPart,
    /// The numbers of the values that the body fetches.
    pub goes: Vec<usize>,
    /// The numbers of the values that leave the loop: what its Exits have, and its stacks.
    pub exits: Vec<usize>,
}

/// A signature in a loop.
#[derive(Clone, Debug)]
pub struct LoopPart {
    signature: Signature,
    /// For each feed, the number of the value of the loop.
    feeds: Vec<usize>,
    /// Whether the shapes of all feeds are known.
    is_sized: bool,
    /// The lists whose lengths it fetches behind everything else, by their positions.
    cut: Vec<usize>,
}

impl Repeat {
    /// The signatures of the condition and the body, where their sizes are the same in all iterations.
    pub fn signatures(&self) -> Option<[Signature; 2]> {
        (self.test.is_sized && self.body.is_sized).then(|| [self.test.signature.clone(), self.body.signature.clone()])
    }
}

impl LoopPart {
    /// Those of these values of the loop that are fed.
    ///
    /// # Errors
    /// INTERNAL where there are too few values.
    pub fn feeds<'a>(&self, values: &'a [Value]) -> Result<Vec<&'a Value>> {
        let value = |number: &usize| values.get(*number).ok_or_else(|| Error::internal("a loop lacks a value"));
        self.feeds.iter().map(value).collect()
    }

    /// The signature that is fed with these.
    pub fn signature(&self, feeds: &[&Value]) -> Signature {
        let mut signature = self.signature.clone();
        for (index, value) in feeds.iter().enumerate() {
            let Some(feed) = signature.feeds.get_mut(index) else { break };
            feed.shape = value.tensor.shape().clone();
            if let Some(traits) = &value.traits {
                signature.has_seen(index, traits);
            }
        }
        signature
    }

    /// What an iteration hands on, of what it has fetched.
    ///
    /// # Errors
    /// INTERNAL where there are too few tensors.
    pub fn made(&self, fetched: Vec<Value>) -> Result<Vec<Value>> {
        super::cut(fetched, &self.cut)
    }
}

/// What each iteration of a loop reads, beside what goes round.
struct Fixed {
    /// The Enters of what stays.
    tensors: Vec<Output>,
    /// The stacks that it changes.
    stacks: Vec<Output>,
}

/// What a loop that the session drives is made from.
pub(super) struct Repeats<'a> {
    pub splitter: &'a Splitter<'a>,
    pub frame: &'a Frame,
    pub id: FrameId,
    /// The nodes that are done before.
    pub done: &'a HashSet<String>,
}

impl Repeats<'_> {
    /// The loop, of which these tensors are wanted.
    ///
    /// # Errors
    /// UNIMPLEMENTED for loops of forms that TensorFlow does not write.
    pub fn repeat(&self, wanted: &[Output], operand: impl Fn(Output) -> Result<Operand>) -> Result<Repeat> {
        let graph = self.splitter.request.graph;
        let refused = |what: &str, id: NodeId| Error::unimplemented(format!("not yet: {what}")).at_node(&graph.node(id).name);
        let Some(test) = self.frame.test else { return Err(refused("a loop without a LoopCond", self.frame.enters[0])) };
        let rounds = &self.frame.rounds;
        let firsts: HashSet<NodeId> = rounds.iter().map(|round| round.first.node).collect();
        // Handles, and what is known and costs nothing, are read again by every iteration.
        let is_again = |enter: NodeId| {
            let tensor = Output { node: enter, index: 0 };
            let source = graph.node(enter).inputs[0];
            let is_known = self.splitter.fact(tensor).is_some_and(|fact| fact.value.is_some()) && self.splitter.is_free(source.node);
            self.splitter.is_handle(tensor) || is_known
        };
        let fixed = self.frame.enters.iter().copied().filter(|enter| !firsts.contains(enter) && !is_again(*enter));
        let fixed: Vec<Output> = fixed.map(|node| Output { node, index: 0 }).collect();
        let outside = |tensor: Output| match self.frame.enters.contains(&tensor.node) {
            true => graph.node(tensor.node).inputs[0],
            false => tensor,
        };
        let stacks = self.splitter.stacks_of(self.id);
        let fixed = Fixed { tensors: fixed, stacks };
        let comes_in = rounds.iter().map(|round| round.first).chain(fixed.tensors.iter().copied()).chain(fixed.stacks.iter().copied());
        let mut first = comes_in.map(|tensor| operand(outside(tensor))).collect::<Result<Vec<Operand>>>()?;
        for (value, round) in first.iter_mut().zip(rounds) {
            // The flow of a gradient begins as a number.
            let list = self.splitter.fact(Output { node: round.merge, index: 0 }).and_then(|fact| fact.list.as_ref());
            if let Some(list) = list.filter(|_| !self.splitter.is_list(outside(round.first))) {
                let length = list.length.ok_or_else(|| refused("a gradient of a TensorArray of a size that a loop says", round.merge))?;
                *value = Operand::Known(HostTensor::zeros(list.stored_type(), unset_rows(length))?);
            }
        }
        let mut again = Vec::new();
        let mut goes: Vec<usize> = (0..rounds.len()).filter(|index| !stays(graph, rounds[*index].merge, rounds[*index].next)).collect();
        let mut next: Vec<Output> = goes.iter().map(|index| Output { node: rounds[*index].next, index: 0 }).collect();
        next.extend(&fixed.stacks);
        let first_stack = rounds.len() + fixed.tensors.len();
        goes.extend((0..fixed.stacks.len()).map(|index| first_stack + index));
        let exits = wanted.iter().map(|exit| {
            if let Some(index) = fixed.stacks.iter().position(|stack| stack == exit) {
                return Ok(first_stack + index);
            }
            let source = graph.node(exit.node).inputs[0];
            let merge = graph.node(source.node).inputs.first().map(|merge| merge.node);
            let round = rounds.iter().position(|round| Some(round.merge) == merge && source.index == 0);
            round.ok_or_else(|| refused("a value that leaves a loop and does not go round in it", exit.node))
        });
        let test_part = self.part(vec![Output { node: test, index: 0 }], &fixed, &mut again)?;
        let body = self.part(next, &fixed, &mut again)?;
        for tensor in again {
            first.push(operand(tensor)?);
        }
        Ok(Repeat { name: graph.node(test).name.clone(), first, test: test_part, body, goes, exits: exits.collect::<Result<_>>()? })
    }

    /// The signature that fetches these tensors of an iteration. Adds to `again` what is fed to the run and read by what is computed
    /// again.
    fn part(&self, fetches: Vec<Output>, fixed: &Fixed, again: &mut Vec<Output>) -> Result<LoopPart> {
        let (graph, pruned) = (self.splitter.request.graph, self.splitter.pruned);
        let (mut seen, mut read) = (HashSet::new(), BTreeSet::new());
        let open: Vec<NodeId> = fetches.iter().map(|fetch| fetch.node).collect();
        for stack in fetches.iter().filter(|fetch| fixed.stacks.contains(fetch)) {
            read.extend(self.value(*stack, fixed).map(|number| (*stack, number)));
        }
        let mut open: Vec<NodeId> = open.into_iter().filter(|id| !fixed.stacks.iter().any(|stack| stack.node == *id)).collect();
        let mut over: BTreeSet<NodeId> = fixed.tensors.iter().map(|tensor| tensor.node).collect();
        while let Some(id) = open.pop() {
            if over.contains(&id) || self.done.contains(&graph.node(id).name) || !seen.insert(id) {
                continue;
            }
            let node = graph.node(id);
            for input in self.splitter.inputs(id) {
                let is_of_loop = pruned.frames.is_in(input.node, self.id);
                match self.value(input, fixed) {
                    Some(number) => drop(read.insert((input, number))),
                    None if pruned.is_fed(input) || !is_of_loop && !node.inputs.contains(&input) => {
                        let known = again.iter().position(|other| *other == input);
                        let position = known.unwrap_or_else(|| {
                            again.push(input);
                            again.len() - 1
                        });
                        read.insert((input, self.frame.rounds.len() + fixed.tensors.len() + fixed.stacks.len() + position));
                    }
                    None => open.push(input.node),
                }
            }
            // An iteration has what goes round before it has anything else.
            let is_value = |control: &NodeId| self.is_round(*control);
            over.extend(node.controls.iter().copied().filter(is_value));
            open.extend(node.controls.iter().copied().filter(|control| !is_value(control)));
        }
        over.extend(read.iter().map(|(tensor, _)| tensor.node).filter(|id| pruned.frames.is_in(*id, self.id)));
        let mut signature = Signature { is_stage: true, flows: self.splitter.flows(), ..Signature::default() };
        let mut feeds = Vec::with_capacity(read.len());
        let mut is_sized = true;
        for (tensor, number) in read {
            let fact = self.splitter.fact(tensor).ok_or_else(|| Error::internal("a tensor without facts"))?;
            let given = pruned.fed.get(&tensor).map(|position| self.splitter.request.signature.feeds[*position].clone());
            let mut feed = given.map_or_else(|| self.splitter.unsized_feed(tensor, fact), Ok)?;
            match fact.shape.complete().filter(|_| fact.list.is_none()) {
                Some(shape) => feed.shape = shape,
                None => is_sized = false,
            }
            signature.add(feed, fact.list.as_ref());
            feeds.push(number);
        }
        signature.fetches = fetches.iter().map(|fetch| graph.tensor_name(*fetch)).collect();
        let cut: Vec<usize> = (0..fetches.len()).filter(|index| self.splitter.needs_length(fetches[*index])).collect();
        for list in &cut {
            signature.lengths.push(signature.fetches.len());
            signature.fetches.push(signature.fetches[*list].clone());
        }
        let over = over.iter().map(|id| graph.node(*id).name.clone());
        signature.done = self.done.iter().cloned().chain(over).collect();
        signature.done.sort_unstable();
        Ok(LoopPart { signature, feeds, is_sized, cut })
    }

    /// The number of the value of the loop that a tensor is.
    fn value(&self, tensor: Output, fixed: &Fixed) -> Option<usize> {
        let rounds = &self.frame.rounds;
        if let Some(position) = fixed.tensors.iter().chain(&fixed.stacks).position(|fixed| *fixed == tensor) {
            return Some(rounds.len() + position);
        }
        let merge = match self.is_switch(tensor.node) {
            true if tensor.index == 1 => self.splitter.request.graph.node(tensor.node).inputs.first()?.node,
            true => return None,
            false => tensor.node,
        };
        rounds.iter().position(|round: &Round| round.merge == merge && (tensor.index == 0 || merge != tensor.node))
    }

    /// Whether a node hands on what goes round: a Merge of the loop, or a Switch behind it.
    fn is_round(&self, id: NodeId) -> bool {
        self.frame.rounds.iter().any(|round| round.merge == id) || self.is_switch(id)
    }

    fn is_switch(&self, id: NodeId) -> bool {
        let graph = self.splitter.request.graph;
        let is_test = |input: Option<&Output>| input.map(|input| input.node) == self.frame.test;
        self.frame.switches.contains(&id)
            && is_test(graph.node(id).inputs.get(1))
            && self.frame.rounds.iter().any(|round| graph.node(id).inputs.first().is_some_and(|input| input.node == round.merge))
    }
}
