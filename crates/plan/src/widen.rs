//! What the iterations of loops say of what goes round in them: shapes, and the facts about lists.

use std::collections::{HashMap, HashSet};

use plimsoll_base::Result;
use plimsoll_graph::{Graph, IdVec, NodeId, Output, PartialShape};
use plimsoll_ops::control::common_shape;
use plimsoll_ops::{Each, Fact, ListFact, Said};

use crate::frames::{FrameId, Frames, round};
use crate::trips::{Most, first_of_count, most, round_of};

/// By Merge of a loop: the shape of what goes round, and what is known of it if it is a list. By StackV2: the list that it is.
pub(crate) type Rounds = HashMap<NodeId, (Option<PartialShape>, Option<ListFact>)>;

/// The facts of one pass, and what the next pass is to begin with.
pub(crate) struct Widening<'a> {
    pub graph: &'a Graph,
    pub frames: &'a Frames,
    pub facts: &'a IdVec<NodeId, Vec<Fact>>,
    pub rounds: &'a mut Rounds,
    /// See [`crate::infer::Pruned::bounds`].
    pub bounds: &'a mut HashMap<NodeId, Output>,
    /// How often loops run at most, as far as that was asked for.
    pub trips: HashMap<FrameId, Most>,
}

impl Widening<'_> {
    /// What the next iterations of loops say of what goes round in them. First what is known of lists, since it decides shapes: a body
    /// says the shape of the tensors that it puts into a list. Then the shapes, which are taken back where the next iteration is given
    /// another one. Whether something was changed.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for a list that becomes another kind of list.
    pub fn widen(&mut self, order: &[NodeId]) -> Result<bool> {
        let (mut more, mut less) = (Vec::new(), Vec::new());
        let mut shapes: Vec<(NodeId, PartialShape)> = Vec::new();
        for &id in order {
            let Some((first, next)) = round(self.graph, id) else { continue };
            let ([here, ..], [given, ..]) = (&self.facts[id][..], &self.facts[next][..]) else { continue };
            match (&here.list, &given.list) {
                (Some(here), Some(given)) => {
                    let mut both = here.and(given).map_err(|error| error.at_node(&self.graph.node(id).name))?;
                    if both.length != here.length || given.most > here.most {
                        // The room after one iteration is not that after all.
                        both.room = here.room;
                    }
                    let (most, least) = self.list(first).map_or((here.most, here.least), |first| (first.most, first.least));
                    both.most = self.most(id, most, (here.most, given.most));
                    both.least = self.least(id, least, (here.least, given.least));
                    if both.is_sum && self.list(first).is_none() {
                        // The flow of a gradient, which began as a number: writes do not make it longer.
                        (both.length, both.room, both.most, both.least) = (given.length, given.room, given.most, given.least);
                    }
                    let is_first = here.each == Each::Nothing && matches!(both.each, Each::Known(_));
                    if (&both.item, both.room) != (&here.item, here.room) || is_first {
                        more.push((id, both));
                    } else if both != *here {
                        less.push((id, both));
                    }
                }
                // The flow of a gradient begins as a number.
                (None, Some(given)) if here.value.is_none() => more.push((id, given.clone())),
                _ => {}
            }
            let both = common_shape([&here.shape, &given.shape]);
            if both != here.shape {
                shapes.push((id, both));
            }
        }
        let changed = !more.is_empty() || !less.is_empty() || !shapes.is_empty();
        if !more.is_empty() {
            // It may decide shapes and elements that were taken back.
            more.into_iter().for_each(|(id, list)| self.rounds.entry(id).or_default().1 = Some(list));
            let (graph, facts) = (self.graph, self.facts);
            for (id, (shape, list)) in self.rounds.iter_mut() {
                *shape = None;
                let first = round(graph, *id).and_then(|(first, _)| facts[first.node].get(first.index as usize)?.list.as_ref());
                if let (Some(list), Some(first)) = (list, first) {
                    (list.length, list.most, list.least) = (first.length, first.most, first.least);
                    if list.each == Each::Unknown {
                        list.each = Each::Nothing;
                    }
                    list.forget_lists();
                }
            }
        } else if !less.is_empty() {
            less.into_iter().for_each(|(id, list)| self.rounds.entry(id).or_default().1 = Some(list));
        } else {
            shapes.into_iter().for_each(|(id, shape)| self.rounds.entry(id).or_default().0 = Some(shape));
        }
        Ok(changed)
    }

    fn trips_of(&mut self, frame: FrameId) -> Most {
        let Widening { graph, frames, facts, .. } = *self;
        self.trips.entry(frame).or_insert_with(|| most(graph, facts, frames.get(frame))).clone()
    }

    fn list(&self, tensor: Output) -> Option<&ListFact> {
        self.facts[tensor.node].get(tensor.index as usize)?.list.as_ref()
    }

    /// How long a list becomes at most that goes round: it comes in with `first`, and an iteration is given and hands on these. An
    /// iteration is taken to make each list longer by the same number. The bound of a pass is never less than that of the pass before.
    fn most(&mut self, merge: NodeId, first: Option<u64>, (here, given): (Option<u64>, Option<u64>)) -> Option<u64> {
        let trips = self.frames.of(merge).map_or(Most::Open, |frame| self.trips_of(frame));
        let (Some(first), Some(now), Some(given)) = (first, here, given) else {
            if let Most::Said(tensor) = trips {
                self.bounds.insert(merge, tensor);
            }
            return None;
        };
        let growth = given.saturating_sub(now);
        let most = match trips {
            _ if growth == 0 => Some(first),
            Most::Known { trips, .. } => growth.checked_mul(trips).and_then(|more| more.checked_add(first)),
            Most::Said(tensor) => {
                self.bounds.insert(merge, tensor);
                None
            }
            Most::Open => None,
        };
        most.map(|most| most.max(now))
    }

    /// How long a list is at least when the loop is over.
    fn least(&mut self, merge: NodeId, first: u64, (here, given): (u64, u64)) -> u64 {
        let trips = self.frames.of(merge).map_or(Most::Open, |frame| self.trips_of(frame));
        match trips {
            // An iteration makes it shorter, or has been seen to do so.
            _ if given < here || (here == 0 && first > 0) => 0,
            Most::Known { trips, exactly: true } => first.saturating_add((given - here).saturating_mul(trips)),
            _ => first,
        }
    }

    /// Gives the first list that lacks it the room for all tensors that it may have. Whether there was one.
    pub fn make_room(&mut self, order: &[NodeId]) -> bool {
        for &id in order {
            let (Some(_), Some(list)) = (round(self.graph, id), self.facts[id].first().and_then(|fact| fact.list.as_ref())) else {
                continue;
            };
            if list.limit.is_none() && list.most.is_some() && list.room < list.most {
                let list = ListFact { room: list.most, is_enough: true, ..list.clone() };
                self.rounds.entry(id).or_default().1 = Some(list);
                return true;
            }
        }
        false
    }

    /// Says of stacks what is pushed on them, as often as loops do it. Whether something was changed. Shapes of what goes round may have been
    /// taken back only because nothing was known of a stack: where one is new, they are found again.
    pub fn stacks(&mut self, stacks: &Stacks) -> bool {
        let (mut changed, mut is_new) = (false, false);
        for &(stack, push) in &stacks.pushes {
            let [_, item, ..] = self.graph.node(push).inputs[..] else { continue };
            let Some(item) = self.facts[item.node].get(item.index as usize) else { continue };
            if item.list.is_some() || item.data_type.size().is_none() {
                // The flow or the handle of a TensorArray: an order, and no value.
                continue;
            }
            let mut most = self.pushes(stack, self.frames.of(push));
            let limit = self.graph.node(stack).inputs.first().and_then(|size| {
                let size = self.facts[size.node].get(size.index as usize)?.value.as_ref()?.to_i64s()?;
                u64::try_from(*size.first()?).ok()
            });
            if let (Some(now), Some(limit)) = (most, limit) {
                most = Some(now.min(limit));
            }
            // What earlier stages have pushed lies below.
            let before = stacks.fed.get(&stack).and_then(|list| list.length).unwrap_or(0);
            let most = most.and_then(|most| most.checked_add(before));
            let list = ListFact {
                data_type: item.data_type,
                said: Said::NOTHING,
                item: item.shape.clone(),
                room: most,
                limit: None,
                length: Some(before),
                most,
                least: 0,
                is_enough: true,
                each: Each::Unknown,
                grows: false,
                is_sum: false,
                is_full: false,
                has_list: false,
                inner: None,
            };
            let known = &mut self.rounds.entry(stack).or_default().1;
            if known.as_ref() != Some(&list) {
                is_new |= known.is_none();
                *known = Some(list);
                changed = true;
            }
        }
        if is_new {
            self.rounds.values_mut().for_each(|(shape, _)| *shape = None);
        }
        changed
    }

    /// How often a node of a loop pushes on a stack at most.
    fn pushes(&mut self, stack: NodeId, within: Option<FrameId>) -> Option<u64> {
        let (end, mut here, mut times) = (self.frames.of(stack), within, Some(1u64));
        while here != end {
            let within = here?;
            match self.trips_of(within) {
                Most::Known { trips, .. } => times = times.and_then(|times| times.checked_mul(trips)),
                Most::Said(tensor) => {
                    self.bounds.insert(stack, tensor);
                    times = None;
                }
                Most::Open => times = None,
            }
            here = self.frames.get(within).parent;
        }
        times
    }
}

/// Whether a node writes behind the last tensor of a list in each iteration of its loop: at an index that counts from the length
/// that the list comes in with.
pub(crate) fn appends(graph: &Graph, frames: &Frames, facts: &IdVec<NodeId, Vec<Fact>>, id: NodeId) -> bool {
    let node = graph.node(id);
    let list = match (node.op.as_str(), &node.inputs[..]) {
        ("TensorListSetItem", [list, ..]) | ("TensorArrayWriteV3", [_, _, _, list]) => *list,
        _ => return false,
    };
    let Some(frame) = frames.of(id).map(|frame| frames.get(frame)) else { return false };
    let first = round_of(graph, facts, frame, list).and_then(|round| {
        let first = round.first;
        facts[first.node].get(first.index as usize)?.list.as_ref()?.length
    });
    first.is_some() && first == first_of_count(graph, facts, frame, node.inputs[1])
}

/// Whether the loop that an Exit is of writes each tensor of a TensorArray, in order.
pub(crate) fn fills(graph: &Graph, frames: &Frames, facts: &IdVec<NodeId, Vec<Fact>>, exit: NodeId, list: &ListFact) -> bool {
    let (Some(frame), Some(length)) = (frames.of(exit).map(|frame| frames.get(frame)), list.length) else { return false };
    let merge = graph.node(exit).inputs.first().and_then(|switch| graph.node(switch.node).inputs.first()).map(|merge| merge.node);
    let Some(round) = frame.rounds.iter().find(|round| Some(round.merge) == merge) else { return false };
    let Some(write) = graph.node(round.next).inputs.first().and_then(|next| source_of(graph, *next)) else { return false };
    let (node, trips) = (graph.node(write), most(graph, facts, frame));
    let ("TensorArrayWriteV3", [_, index, _, flow]) = (node.op.as_str(), &node.inputs[..]) else { return false };
    let is_it = round_of(graph, facts, frame, *flow).is_some_and(|of| of.merge == round.merge);
    let is_each = first_of_count(graph, facts, frame, *index) == Some(0) && trips == Most::Known { trips: length, exactly: true };
    is_it && is_each && !list.is_sum && !list.grows
}

/// The stacks of a graph that are pushed on once, and popped from or handed on to the next stage of a run.
pub(crate) struct Stacks {
    /// StackV2 and StackPushV2.
    pushes: Vec<(NodeId, NodeId)>,
    /// For StackV2 that earlier stages have made, what the stack has by now.
    fed: HashMap<NodeId, ListFact>,
    /// For StackPopV2 whose result is the flow of a TensorArray: the TensorArray's first flow.
    arrays: HashMap<NodeId, Output>,
}

impl Stacks {
    pub fn new(graph: &Graph, order: &[NodeId], fetches: &[Output], facts: &IdVec<NodeId, Vec<Fact>>) -> Stacks {
        let of = |op: &'static str| {
            let nodes = order.iter().copied().filter(move |id| graph.node(*id).op == op);
            nodes.filter_map(|id| Some((stack_of(graph, *graph.node(id).inputs.first()?)?, id)))
        };
        let fetched = fetches.iter().map(|fetch| fetch.node).filter(|id| graph.node(*id).op == "StackV2");
        let popped: HashSet<NodeId> = of("StackPopV2").map(|(stack, _)| stack).chain(fetched).collect();
        let mut counts: HashMap<NodeId, usize> = HashMap::new();
        of("StackPushV2").for_each(|(stack, _)| *counts.entry(stack).or_default() += 1);
        let is_plain = |(stack, _): &(NodeId, NodeId)| popped.contains(stack) && counts.get(stack) == Some(&1);
        let state = |stack: NodeId| Some((stack, facts[stack].first()?.list.clone()?));
        let fed = popped.iter().chain(counts.keys()).filter_map(|stack| state(*stack)).collect();
        let gradients = order.iter().filter(|id| graph.node(**id).op == "TensorArrayGradV3");
        let array = |id: &NodeId| {
            let [handle, flow] = graph.node(*id).inputs[..] else { return None };
            let (pop, array) = (source_of(graph, flow)?, source_of(graph, handle)?);
            let is_of = graph.node(pop).op == "StackPopV2" && graph.node(array).op == "TensorArrayV3";
            is_of.then_some((pop, Output { node: array, index: 1 }))
        };
        Stacks { pushes: of("StackPushV2").filter(is_plain).collect(), fed, arrays: gradients.filter_map(array).collect() }
    }

    /// The stacks that earlier stages have made.
    pub fn fed(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.fed.keys().copied()
    }

    /// The first flow of the TensorArray whose flow a node pops.
    pub fn array(&self, pop: NodeId) -> Option<Output> {
        self.arrays.get(&pop).copied()
    }

    /// The tensor that a node pops from a stack, where it is the only one that is pushed on it: as it was pushed.
    pub fn popped(&self, graph: &Graph, pop: NodeId) -> Option<Output> {
        let stack = stack_of(graph, *graph.node(pop).inputs.first()?)?;
        let (_, push) = self.pushes.iter().find(|(pushed, _)| *pushed == stack)?;
        graph.node(*push).inputs.get(1).copied()
    }
}

/// The StackV2 that a handle stands for; none where the graph does not say.
pub(crate) fn stack_of(graph: &Graph, handle: Output) -> Option<NodeId> {
    source_of(graph, handle).filter(|source| graph.node(*source).op == "StackV2")
}

/// The node that a tensor comes from through Enter, Identity and Switch.
pub(crate) fn source_of(graph: &Graph, tensor: Output) -> Option<NodeId> {
    let mut here = tensor;
    for _ in 0..graph.nodes().len() {
        let node = graph.node(here.node);
        match node.op.as_str() {
            "Enter" | "Identity" | "Switch" => here = *node.inputs.first()?,
            _ => return Some(here.node),
        }
    }
    None
}
