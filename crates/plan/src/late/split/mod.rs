//! The split of a run in a first stage and the rest.

mod wanted;

use std::collections::{BTreeSet, HashSet};

use plimsoll_base::{Code, DataType, Error, Kind, Result};
use plimsoll_graph::{HostTensor, NodeId, Output, Shape};
use plimsoll_ops::{Fact, ListFact, ListOp, Lower};

use self::wanted::Wanted;
use super::repeat::Repeats;
use super::{Between, Counted, Late, Later, Numbers, Operand, Source, Split};
use crate::alive::When;
use crate::frames::{FrameId, Round};
use crate::infer::{Pruned, fed_instead, prune_and_infer};
use crate::request::{Feed, Flow, Request, Signature, unset_rows};
use crate::trips::round_of;
use crate::widen::{source_of, stack_of};

/// What a request lacks, whose planning ended with `error`; none where no stage would help.
///
/// # Errors
/// As [`crate::plan()`]. UNIMPLEMENTED for a reference or handle that nodes of the first stage make and the rest reads.
pub fn late(request: &Request<'_>, error: &Error) -> Result<Option<Late>> {
    let lacks = error.kind() == Kind::NeedsValues;
    let has_loops = || request.graph.nodes().iter().any(|(_, node)| matches!(node.op.as_str(), "Enter" | "RefEnter"));
    if !(lacks || error.code() == Code::Unimplemented && has_loops()) {
        return Ok(None);
    }
    let pruned = prune_and_infer(request)?;
    let splitter = Splitter { request, pruned: &pruned };
    let wanted = if lacks { splitter.wanted(error) } else { splitter.driven(error) };
    let Some(mut wanted) = wanted else { return Ok(None) };
    splitter.come_outermost(&mut wanted);
    splitter.lengths_come_first(&mut wanted);
    let position = |tensor: &Output| pruned.feeds.iter().position(|feed| feed == tensor);
    // Every round goes to predicates before those of the round before.
    loop {
        let fed: Vec<usize> = wanted.values.iter().filter_map(position).collect();
        if let Some(&first) = fed.first() {
            let from = wanted.from.unwrap_or(pruned.feeds[first].node);
            return Ok(Some(Late::Feeds(fed, from)));
        }
        if wanted.is_empty() {
            return Ok(None);
        }
        let stage = splitter.stage(&wanted);
        let behind = splitter.behind(&stage);
        if behind.predicates.is_empty() {
            return splitter.split(&wanted, &stage, &behind).map(|split| Some(Late::Stage(Box::new(split))));
        }
        if behind.predicates.iter().any(|tensor| pruned.frames.is_within(tensor.node)) {
            return Ok(None);
        }
        wanted = Wanted { values: behind.predicates, from: wanted.from, ..Wanted::default() };
    }
}

/// The nodes before late tensors.
struct Stage {
    /// Those that are done there and nowhere else.
    done: HashSet<NodeId>,
    /// The same, in order.
    order: Vec<NodeId>,
    /// Those that are computed behind it, with the nodes of loops.
    between: HashSet<NodeId>,
    /// The stacks that it changes.
    changed: HashSet<Output>,
    /// The stacks that the loops behind it change.
    changed_between: HashSet<Output>,
}

/// The part of a run behind a first stage.
#[derive(Default)]
struct Behind {
    /// Tensors of the first stage that it reads or that are fetched.
    carried: BTreeSet<Output>,
    /// Tensors computed between the two that it reads or that are fetched.
    between: BTreeSet<Output>,
    /// Predicates that have to be known before the first stage can be told from the rest.
    predicates: BTreeSet<Output>,
}

pub(super) struct Splitter<'a> {
    pub request: &'a Request<'a>,
    pub pruned: &'a Pruned,
}

impl Splitter<'_> {
    pub(super) fn fact(&self, tensor: Output) -> Option<&Fact> {
        self.pruned.facts[tensor.node].get(tensor.index as usize)
    }

    pub(super) fn lower(&self, id: NodeId) -> Option<Lower> {
        self.request.registry.get(&self.request.graph.node(id).op).map(|rules| rules.lower)
    }

    fn when(&self, tensor: Output) -> When {
        if self.pruned.is_fed(tensor) { When::Always } else { self.pruned.alive.output(tensor) }
    }

    /// Whether the size of a tensor is known; of a list in a loop, its room.
    fn is_sized(&self, tensor: Output) -> bool {
        let is_known = |fact: &Fact| match &fact.list {
            Some(list) => rows(list).is_some() || has_room(list) && self.pruned.frames.is_within(tensor.node),
            None => fact.shape.complete().is_some(),
        };
        self.fact(tensor).is_some_and(|fact| fact.data_type == DataType::Resource || is_known(fact))
    }

    /// Whether a stage can hand a tensor on.
    fn can_be_carried(&self, tensor: Output) -> bool {
        let list = |list: &ListFact| rows(list).is_some() || has_room(list) || self.is_stack(tensor);
        self.fact(tensor).and_then(|fact| fact.list.as_ref()).map_or_else(|| self.is_sized(tensor), list)
    }

    /// Whether a list's length is handed on beside all its room.
    pub(super) fn needs_length(&self, tensor: Output) -> bool {
        self.fact(tensor)
            .and_then(|fact| fact.list.as_ref())
            .is_some_and(|list| self.is_stack(tensor) || rows(list).is_none() && has_room(list))
    }

    /// Whether a tensor is the handle of a stack that keeps something.
    fn is_stack(&self, tensor: Output) -> bool {
        self.request.graph.node(tensor.node).op == "StackV2" && self.is_list(tensor)
    }

    /// The stacks that a loop pushes on or pops from.
    pub(super) fn stacks_of(&self, frame: FrameId) -> Vec<Output> {
        let stacks: BTreeSet<Output> = self.pruned.frames.nodes(frame).filter_map(|id| self.stack_at(id)).collect();
        stacks.into_iter().collect()
    }

    /// The stack that a node pushes on or pops from, where it keeps something.
    fn stack_at(&self, id: NodeId) -> Option<Output> {
        self.stack_of(id).map(|stack| Output { node: stack, index: 0 }).filter(|stack| self.is_stack(*stack))
    }

    /// The stack that a node pushes on or pops from.
    fn stack_of(&self, id: NodeId) -> Option<NodeId> {
        let node = self.request.graph.node(id);
        let is_change = matches!(node.op.as_str(), "StackPushV2" | "StackPopV2");
        stack_of(self.request.graph, *node.inputs.first().filter(|_| is_change)?)
    }

    /// Whether the sizes of all results of a node are known, and a plan can compute them.
    fn is_whole(&self, id: NodeId) -> bool {
        let is_known = || self.pruned.facts[id].iter().all(|fact| fact.value.is_some());
        if matches!(self.lower(id), Some(Lower::Counted(_))) && !is_known() {
            return false;
        }
        (0..self.pruned.facts[id].len()).all(|index| self.is_sized(Output { node: id, index: index as u32 }))
    }

    /// Whether a node lacks something: a size of its results, the number of tensors of a list, or room on a stack.
    fn lacks(&self, id: NodeId) -> bool {
        let is_refused = self.pruned.refused.contains_key(&id);
        !self.is_whole(id)
            || is_refused
            || self.pruned.bounds.contains_key(&id)
            || self.stack_at(id).is_some_and(|stack| !self.has_known_room(stack))
    }

    fn has_known_room(&self, stack: Output) -> bool {
        self.fact(stack).and_then(|fact| fact.list.as_ref()).is_some_and(has_room)
    }

    /// The nodes that lack something, and what comes after them. A loop is one: what lacks something in it is before all that it gives.
    fn open(&self, order: &[NodeId]) -> HashSet<NodeId> {
        let frames = &self.pruned.frames;
        let (mut open, mut loops): (HashSet<NodeId>, HashSet<FrameId>) = (HashSet::new(), HashSet::new());
        loop {
            let before = (open.len(), loops.len());
            for &id in order.iter().filter(|id| !self.is_new_stack(**id)) {
                let outermost = frames.outermost(id);
                let is_open = open.contains(&id)
                    || outermost.is_some_and(|frame| loops.contains(&frame))
                    || self.lacks(id)
                    || self.before(id).iter().any(|before| open.contains(before));
                if is_open {
                    open.insert(id);
                    loops.extend(outermost);
                }
            }
            if (open.len(), loops.len()) == before {
                return open;
            }
        }
    }

    /// An empty stack: it costs nothing.
    fn is_new_stack(&self, id: NodeId) -> bool {
        self.request.graph.node(id).op == "StackV2"
    }

    /// Whether a tensor stands for a variable.
    pub(super) fn is_handle(&self, tensor: Output) -> bool {
        self.fact(tensor).is_some_and(|fact| fact.is_ref || fact.data_type == DataType::Resource)
    }

    /// Whether a tensor is a list.
    pub(super) fn is_list(&self, tensor: Output) -> bool {
        self.fact(tensor).is_some_and(|fact| fact.list.is_some())
    }

    /// The tensors that a node reads. A flow that it pops says how many tensors a list has: it reads that, too.
    pub(super) fn inputs(&self, id: NodeId) -> impl Iterator<Item = Output> {
        let counted = self.flow(id).and_then(|(_, like)| like);
        self.request.graph.node(id).inputs.iter().copied().chain(counted)
    }

    /// The tensors from outside that a loop reads; handles of variables aside.
    pub(super) fn comes_in(&self, frame: FrameId) -> BTreeSet<Output> {
        let frames = &self.pruned.frames;
        let inputs = frames.nodes(frame).flat_map(|id| self.inputs(id));
        inputs.filter(|input| !frames.is_in(input.node, frame) && !self.is_handle(*input)).chain(self.stacks_of(frame)).collect()
    }

    /// Everything that comes before what is wanted.
    fn stage(&self, wanted: &Wanted) -> Stage {
        let frames = &self.pruned.frames;
        let in_loops = wanted.loops.iter().flat_map(|frame| frames.nodes(*frame));
        let between: HashSet<NodeId> = wanted.counted.iter().copied().chain(in_loops).collect();
        let (mut seen, mut joined) = (HashSet::new(), HashSet::new());
        let before_between = between.iter().flat_map(|id| self.before(*id)).filter(|id| !between.contains(id));
        let mut open: Vec<NodeId> = wanted.values.iter().chain(&wanted.lists).map(|tensor| tensor.node).chain(before_between).collect();
        while let Some(id) = open.pop() {
            if self.pruned.alive.node(id) == When::Never || !seen.insert(id) {
                continue;
            }
            open.extend(self.before(id));
            // A loop is in one stage, whichever of its results are read.
            if let Some(outermost) = frames.outermost(id).filter(|outermost| joined.insert(*outermost)) {
                open.extend(frames.nodes(outermost));
            }
        }
        let changed: HashSet<Output> = seen.iter().filter_map(|id| self.stack_at(*id)).collect();
        let changed_between: HashSet<Output> = wanted.loops.iter().flat_map(|frame| self.stacks_of(*frame)).collect();
        // An empty stack costs nothing, either.
        let is_untouched = |id: NodeId| {
            let stack = Output { node: id, index: 0 };
            self.request.graph.node(id).op == "StackV2" && !changed.contains(&stack)
        };
        let is_again = |id: NodeId| self.is_free(id) && !self.leaves_known(id);
        let is_done = |id: &NodeId| seen.contains(id) && !is_again(*id) && !is_untouched(*id);
        let order: Vec<NodeId> = self.pruned.order.iter().copied().filter(is_done).collect();
        Stage { done: order.iter().copied().collect(), order, between, changed, changed_between }
    }

    /// The nodes that a node waits for, but for those that are fed instead or were done before.
    fn before(&self, id: NodeId) -> Vec<NodeId> {
        let node = self.request.graph.node(id);
        let inputs = node.inputs.iter().filter(|input| !self.pruned.is_fed(**input)).map(|input| input.node);
        inputs.chain(self.controls(id)).collect()
    }

    fn controls(&self, id: NodeId) -> impl Iterator<Item = NodeId> {
        let graph = self.request.graph;
        let runs = |control: &NodeId| self.pruned.needed[*control] && fed_instead(graph, &self.pruned.fed, *control).is_none();
        graph.node(id).controls.iter().copied().filter(runs)
    }

    /// Whether a node costs nothing, and is done again by every stage that reads it.
    pub(super) fn is_free(&self, id: NodeId) -> bool {
        let (node, facts) = (self.request.graph.node(id), &self.pruned.facts[id]);
        let stands_for_variable = || facts.iter().all(|fact| fact.is_ref || fact.data_type == DataType::Resource);
        match self.lower(id) {
            Some(Lower::Variable | Lower::Const | Lower::Placeholder) => true,
            Some(Lower::List(ListOp::Absent)) => true,
            // A list in which nothing has been put.
            Some(Lower::List(ListOp::New { to })) => facts[to as usize].list.as_ref().is_some_and(|list| rows(list).is_some()),
            Some(Lower::Switch) if self.fact(node.inputs[1]).is_some_and(|predicate| predicate.value.is_some()) => true,
            Some(Lower::Alias | Lower::Switch | Lower::Merge) if !facts.is_empty() && facts[0].is_ref => stands_for_variable(),
            Some(Lower::Alias | Lower::Switch | Lower::Merge) if !facts.is_empty() => {
                facts[0].data_type == DataType::Resource || facts.iter().all(|fact| fact.value.is_some())
            }
            _ => !facts.is_empty() && facts.iter().all(|fact| fact.value.is_some()),
        }
    }

    /// Whether a node hands on what is known, from a loop. A stage behind the loop has it fed: else it would need the loop again.
    fn leaves_known(&self, id: NodeId) -> bool {
        let is_known = |fact: &Fact| fact.value.is_some() && !fact.is_ref && fact.data_type.size().is_some();
        self.request.graph.node(id).op == "Exit" && self.pruned.facts[id].iter().all(is_known)
    }

    /// The part of the run behind a stage.
    fn behind(&self, stage: &Stage) -> Behind {
        let mut behind = Behind::default();
        let mut seen: HashSet<NodeId> = HashSet::new();
        let mut open: Vec<NodeId> = Vec::new();
        for &fetch in &self.pruned.fetches {
            match stage.done.contains(&fetch.node) {
                _ if self.carry_stack(fetch, stage, &mut behind) || self.pruned.is_fed(fetch) => {}
                true => self.carry(fetch, &mut behind),
                false if stage.between.contains(&fetch.node) => drop(behind.between.insert(fetch)),
                false => open.push(fetch.node),
            }
        }
        let is_over = |id: &NodeId| stage.done.contains(id) || stage.between.contains(id);
        open.extend(self.pruned.targets.iter().filter(|target| !is_over(target)));
        while let Some(id) = open.pop() {
            if !seen.insert(id) {
                continue;
            }
            let is_dead = self.pruned.alive.node(id) == When::Never;
            if is_dead {
                // What it would read is of no use.
            } else if let Some(stack) = self.stack_at(id) {
                self.carry_stack(stack, stage, &mut behind);
            }
            for input in self.inputs(id).filter(|input| !self.pruned.is_fed(*input)) {
                match stage.done.contains(&input.node) {
                    true if self.is_stack(input) => {}
                    true if is_dead && self.when(input) != When::Always => {}
                    true => self.carry(input, &mut behind),
                    false if stage.between.contains(&input.node) => drop(behind.between.insert(input)),
                    false => open.push(input.node),
                }
            }
            for control in self.controls(id) {
                match stage.done.contains(&control) {
                    true if is_dead => {}
                    true => behind.predicates.extend(self.outer_predicates(&self.pruned.alive.node(control))),
                    false if stage.between.contains(&control) => {}
                    false => open.push(control),
                }
            }
        }
        behind
    }

    /// Carries the state of a stack, where this is one that has been changed.
    fn carry_stack(&self, tensor: Output, stage: &Stage, behind: &mut Behind) -> bool {
        if stage.changed_between.contains(&tensor) {
            behind.between.insert(tensor);
        } else if stage.changed.contains(&tensor) {
            behind.carried.insert(tensor);
        } else {
            return false;
        }
        true
    }

    fn carry(&self, tensor: Output, behind: &mut Behind) {
        match self.when(tensor) {
            When::Always => drop(behind.carried.insert(tensor)),
            When::Never => {}
            when => behind.predicates.extend(self.outer_predicates(&when)),
        }
    }

    fn split(&self, wanted: &Wanted, stage: &Stage, behind: &Behind) -> Result<Split> {
        let (graph, given) = (self.request.graph, self.request.signature);
        let made = self.made(wanted, stage, behind);
        let (lists, done) = (given.lists.clone(), given.done.clone());
        let flows = self.flows();
        let (feeds, lists_before) = (given.feeds.clone(), lists.clone());
        let mut signature =
            Signature { feeds, lists: lists_before, traits: given.traits.clone(), done, flows: flows.clone(), ..Signature::default() };
        for &tensor in &made {
            signature.add(self.feed(tensor)?, self.fact(tensor).and_then(|fact| fact.list.as_ref()));
        }
        signature.done.extend(stage.order.iter().map(|id| graph.node(*id).name.clone()));
        let numbers = Numbers { feeds: given.feeds.len(), late: wanted.values.len(), made: made.len() };
        let operand = |tensor: Output| self.operand(tensor, &made);
        let mut between: Vec<(Vec<Output>, Between)> = Vec::new();
        for &node in &wanted.counted {
            let inputs = graph.node(node).inputs.iter().map(|input| operand(*input)).collect::<Result<_>>()?;
            let results: Vec<Output> = behind.between.iter().copied().filter(|tensor| tensor.node == node).collect();
            let outputs = results.iter().map(|tensor| tensor.index).collect();
            between.push((results, Between::Counted(Counted { node, inputs, outputs })));
        }
        let done: HashSet<String> = signature.done.iter().cloned().collect();
        for &frame in &wanted.loops {
            let frames = &self.pruned.frames;
            let stacks = self.stacks_of(frame);
            let leaves = |tensor: &Output| frames.is_in(tensor.node, frame) || stacks.contains(tensor);
            let results: Vec<Output> = behind.between.iter().copied().filter(leaves).collect();
            let repeats = Repeats { splitter: self, frame: frames.get(frame), id: frame, done: &done };
            between.push((results.clone(), Between::Loop(Box::new(repeats.repeat(&results, operand)?))));
        }
        let results: Vec<Output> = between.iter().flat_map(|(results, _)| results.iter().copied()).collect();
        let mut most = Vec::with_capacity(results.len());
        for &tensor in &results {
            let fact = self.fact(tensor).ok_or_else(|| Error::internal("a tensor without facts"))?;
            most.push(match &fact.list {
                Some(_) if self.is_stack(tensor) => None,
                Some(list) => rows(list).filter(|_| list.item.0.is_some()),
                None => fact.shape.complete().or_else(|| fact.most.clone()),
            });
            // The shape is filled in when it is known.
            signature.add(self.unsized_feed(tensor, fact)?, fact.list.as_ref());
        }
        let mut over: Vec<NodeId> = stage.between.iter().copied().collect();
        over.sort_unstable();
        signature.done.extend(over.iter().map(|id| graph.node(*id).name.clone()));
        let is_done = |target: &&NodeId| stage.done.contains(*target);
        let is_left = |target: &&NodeId| !stage.done.contains(*target) && !stage.between.contains(*target);
        let name = |target: &NodeId| graph.node(*target).name.clone();
        signature.targets = self.pruned.targets.iter().filter(is_left).map(name).collect();
        let cut: Vec<usize> = (0..made.len()).filter(|index| self.needs_length(made[*index])).collect();
        let fetches: Vec<Output> = made.iter().copied().chain(cut.iter().map(|index| made[*index])).collect();
        let first = Signature {
            feeds: given.feeds.clone(),
            fetches: fetches.iter().map(|tensor| graph.tensor_name(*tensor)).collect(),
            lengths: (made.len()..fetches.len()).collect(),
            targets: self.ends(stage, &made).iter().chain(self.pruned.targets.iter().filter(is_done)).map(name).collect(),
            done: given.done.clone(),
            lists,
            traits: given.traits.clone(),
            flows,
            is_stage: true,
        };
        signature.is_stage = true;
        let made: Vec<Output> = made.into_iter().chain(results).collect();
        let mut sources = Vec::with_capacity(given.fetches.len());
        let mut wanted_fetches = Vec::with_capacity(given.fetches.len());
        for (tensor, name) in self.pruned.fetches.iter().zip(&given.fetches) {
            let fact = self.fact(*tensor).ok_or_else(|| Error::internal("a fetch without facts"))?;
            wanted_fetches.push((name.clone(), fact.data_type, fact.shape.complete().unwrap_or_else(|| Shape::from([0]))));
            let is_length = given.lengths.contains(&sources.len());
            sources.push(
                match made
                    .iter()
                    .position(|made| made == tensor)
                    .filter(|_| !given.lengths.iter().any(|at| self.pruned.fetches[*at] == *tensor))
                {
                    Some(position) => Source::Made(position),
                    None => {
                        if is_length {
                            signature.lengths.push(signature.fetches.len());
                        }
                        signature.fetches.push(name.clone());
                        Source::Rest(signature.fetches.len() - 1)
                    }
                },
            );
        }
        let tensors = match first.fetches[..numbers.late].to_vec() {
            late if late.is_empty() => {
                let loops = wanted.loops.iter().filter_map(|frame| self.pruned.frames.get(*frame).test);
                let lists = wanted.lists.iter().map(|list| list.node);
                wanted.counted.iter().copied().chain(loops).chain(lists).map(|node| graph.node(node).name.clone()).collect()
            }
            late => late,
        };
        let between = between.into_iter().map(|(_, between)| between).collect();
        let from = wanted.from.ok_or_else(|| Error::internal("a run in stages that lacks nothing"))?;
        let (plans, within, fetches) = (Vec::new(), Vec::new(), wanted_fetches);
        let later = Later { from, tensors, fetches, plans, within, between, sources, signature, numbers, most, cut };
        Ok(Split { first, later })
    }

    /// The flows of TensorArrays that are popped from stacks.
    pub(super) fn flows(&self) -> Vec<Flow> {
        let graph = self.request.graph;
        let flow = |id: &NodeId| {
            let (list, like) = self.flow(*id)?;
            let (node, like) = (graph.node(*id).name.clone(), like.map(|like| graph.tensor_name(like)));
            Some(Flow { node, data_type: list.data_type, length: list.length.unwrap_or(0), is_sum: list.is_sum, like })
        };
        self.pruned.order.iter().filter_map(flow).collect()
    }

    /// The TensorArray whose flow a node pops from a stack, and where its length is not known, the list that has the same.
    fn flow(&self, id: NodeId) -> Option<(&ListFact, Option<Output>)> {
        if self.request.graph.node(id).op != "StackPopV2" {
            return None;
        }
        let list = self.pruned.facts[id].first()?.list.as_ref()?;
        if list.length.is_some() { Some((list, None)) } else { Some((list, Some(self.array_behind(id)?))) }
    }

    /// The TensorArray as it leaves the loop that pushes the flow which a node pops.
    fn array_behind(&self, pop: NodeId) -> Option<Output> {
        let (graph, frames) = (self.request.graph, &self.pruned.frames);
        let stack = self.stack_of(pop)?;
        let push = self.pruned.order.iter().find(|id| graph.node(**id).op == "StackPushV2" && self.stack_of(**id) == Some(stack))?;
        let (frame, pushed) = (frames.get(frames.of(*push)?), *graph.node(*push).inputs.get(1)?);
        let is_it = |round: &&Round| {
            let next = graph.node(round.next).inputs.first().and_then(|next| source_of(graph, *next));
            next == Some(pushed.node) || round_of(graph, &self.pruned.facts, frame, pushed).is_some_and(|of| of.merge == round.merge)
        };
        let merge = frame.rounds.iter().find(is_it)?.merge;
        let leaves = |exit: &&NodeId| {
            let switch = graph.node(**exit).inputs.first().map(|switch| graph.node(switch.node));
            switch.and_then(|switch| switch.inputs.first()).is_some_and(|input| input.node == merge)
        };
        frame.exits.iter().find(leaves).map(|exit| Output { node: *exit, index: 0 })
    }

    /// What the first stage makes: the late tensors, what is read in between, and what is carried.
    fn made(&self, wanted: &Wanted, stage: &Stage, behind: &Behind) -> Vec<Output> {
        let graph = self.request.graph;
        let of_nodes = wanted.counted.iter().flat_map(|node| graph.node(*node).inputs.iter().copied());
        let of_loops = wanted.loops.iter().flat_map(|frame| self.comes_in(*frame));
        let is_made = |tensor: &Output| {
            let is_known = self.fact(*tensor).is_some_and(|fact| fact.value.is_some());
            if self.is_stack(*tensor) { stage.changed.contains(tensor) } else { !self.pruned.is_fed(*tensor) && !is_known }
        };
        let read: BTreeSet<Output> = of_nodes.chain(of_loops).filter(is_made).chain(behind.carried.iter().copied()).collect();
        wanted.values.iter().copied().chain(read.into_iter().filter(|tensor| !wanted.values.contains(tensor))).collect()
    }

    /// A tensor that something reads between the first stage, which makes these, and the rest.
    fn operand(&self, tensor: Output, made: &[Output]) -> Result<Operand> {
        let feeds = &self.pruned.feeds;
        // Of the states of a stack, the last one counts.
        let fed = || feeds.iter().rposition(|feed| *feed == tensor);
        let number = made.iter().position(|made| *made == tensor).map(|number| feeds.len() + number).or_else(fed);
        let empty = || Some(Operand::Known(self.fact(tensor).filter(|_| self.is_stack(tensor))?.list.as_ref().and_then(nothing)?));
        let known = || self.fact(tensor).and_then(|fact| fact.value.clone()).map(Operand::Known).or_else(empty);
        let lacking = || Error::internal(format!("nothing makes {} before it is read", self.request.graph.tensor_name(tensor)));
        number.map(Operand::Tensor).or_else(known).ok_or_else(lacking)
    }

    /// The last nodes of the first stage that none of what it makes comes after.
    fn ends(&self, stage: &Stage, made: &[Output]) -> Vec<NodeId> {
        let mut reached: HashSet<NodeId> = HashSet::new();
        let mut reach = |from: Vec<NodeId>| {
            let mut open = from;
            while let Some(id) = open.pop() {
                if reached.insert(id) {
                    open.extend(self.before(id));
                }
            }
            reached.len()
        };
        let mut count = reach(made.iter().map(|tensor| tensor.node).collect());
        let mut ends = Vec::new();
        for &id in stage.order.iter().rev().filter(|id| !self.pruned.frames.is_within(**id)) {
            let more = reach(vec![id]);
            if more > count {
                ends.push(id);
            }
            count = more;
        }
        ends
    }

    /// The feed that a tensor of the first stage is for the rest.
    pub(super) fn feed(&self, tensor: Output) -> Result<Feed> {
        let fact = self.fact(tensor).ok_or_else(|| Error::internal("a tensor without facts"))?;
        let graph = self.request.graph;
        let shape = match &fact.list {
            // Its length is known when the stage is over.
            Some(_) if self.needs_length(tensor) => Some(Shape::scalar()),
            Some(list) => rows(list),
            None => fact.shape.complete(),
        };
        let shape = shape.ok_or_else(|| Error::needs_values(format!("the shape of {} is late", graph.tensor_name(tensor))))?;
        Ok(Feed { shape, ..self.unsized_feed(tensor, fact)? })
    }

    /// A feed without a shape.
    ///
    /// # Errors
    /// UNIMPLEMENTED for a reference or handle.
    pub(super) fn unsized_feed(&self, tensor: Output, fact: &Fact) -> Result<Feed> {
        let graph = self.request.graph;
        if let Some(list) = fact.list.as_ref().filter(|_| fact.data_type != DataType::Resource || self.is_stack(tensor)) {
            return Ok(Feed { tensor: graph.tensor_name(tensor), data_type: list.stored_type(), shape: Shape::scalar(), value: None });
        }
        if fact.is_ref || fact.data_type.size().is_none() {
            let what = format!("not yet: {} is made in an earlier stage of the run than the one that reads it", fact_name(fact));
            return Err(Error::unimplemented(what).at_node(&graph.node(tensor.node).name));
        }
        Ok(Feed { tensor: graph.tensor_name(tensor), data_type: fact.data_type, shape: Shape::scalar(), value: None })
    }
}

/// No rows of a list.
fn nothing(list: &ListFact) -> Option<HostTensor> {
    HostTensor::zeros(list.stored_type(), list.rows(Some(0)).complete().unwrap_or_else(|| unset_rows(0))).ok()
}

/// The shape of all rows of a list, where it is known: see [`Signature::lists`].
pub(super) fn rows(list: &ListFact) -> Option<Shape> {
    let length = list.length?;
    match &list.item.0 {
        Some(_) if length > 0 => list.rows(Some(length)).complete(),
        Some(_) => Some(list.rows(Some(0)).complete().unwrap_or_else(|| unset_rows(0))),
        None => Some(unset_rows(length)),
    }
}

/// Whether the size of a list is known but for its length.
fn has_room(list: &ListFact) -> bool {
    list.room.is_some() && list.item.complete().is_some()
}

fn fact_name(fact: &Fact) -> String {
    match fact.is_ref {
        true => "a reference to a variable".to_string(),
        false => format!("a value of type {}", fact.data_type),
    }
}
