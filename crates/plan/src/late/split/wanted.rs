//! What a run lacks: the elements, lengths and loops that sizes depend on.

use std::collections::{BTreeSet, HashMap};

use plimsoll_base::{DataType, Error};
use plimsoll_graph::{NodeId, Output, Shape};
use plimsoll_ops::Lower;

use super::Splitter;
use crate::alive::{Side, When};
use crate::frames::{FrameId, round, stays};

/// What a run lacks.
#[derive(Default)]
pub(super) struct Wanted {
    /// The first node that lacks something.
    pub(super) from: Option<NodeId>,
    /// Tensors whose elements are wanted.
    pub(super) values: BTreeSet<Output>,
    /// Nodes that are computed behind the first stage.
    pub(super) counted: BTreeSet<NodeId>,
    /// Loops that run behind the first stage.
    pub(super) loops: BTreeSet<FrameId>,
    /// Lists whose lengths are wanted: a stage hands them on.
    pub(super) lists: BTreeSet<Output>,
}

impl Wanted {
    pub(super) fn is_empty(&self) -> bool {
        self.values.is_empty() && self.counted.is_empty() && self.loops.is_empty() && self.lists.is_empty()
    }
}

impl Splitter<'_> {
    /// The first nodes whose sizes are not known, and what they lack.
    pub(super) fn wanted(&self, error: &Error) -> Option<Wanted> {
        let mut wanted = Wanted::default();
        let frames = &self.pruned.frames;
        let living = self.pruned.order.iter().copied().filter(|id| self.pruned.alive.node(*id) != When::Never);
        let order: Vec<NodeId> = living.collect();
        let open = self.open(&order);
        let mut is_behind: HashMap<FrameId, bool> = HashMap::new();
        for &id in order.iter().filter(|id| self.lacks(**id)) {
            let outermost = frames.outermost(id);
            // Of no use to a first stage is what comes after something else that lacks.
            let comes_after = |id: NodeId| {
                let outside = |before: &NodeId| outermost.is_none_or(|frame| !frames.is_in(*before, frame));
                self.before(id).iter().filter(|before| outside(before)).any(|before| open.contains(before))
            };
            let is_last = match outermost {
                Some(frame) => *is_behind.entry(frame).or_insert_with(|| frames.nodes(frame).any(comes_after)),
                None => comes_after(id),
            };
            if is_last {
                continue;
            }
            let more: Vec<Output> = self.wanted_by(id).into_iter().map(|tensor| self.origin(tensor)).collect();
            let from_outside = more.iter().copied().filter(|tensor| !frames.is_within(tensor.node) && !open.contains(&tensor.node));
            let before = wanted.values.len();
            wanted.values.extend(from_outside);
            match (outermost.filter(|_| frames.is_within(id)), self.lower(id)) {
                _ if wanted.values.len() > before => {}
                // What its iterations lack, no stage before has.
                (Some(frame), _) => drop(wanted.loops.insert(frame)),
                (None, Some(Lower::Counted(_))) => drop(wanted.counted.insert(id)),
                _ => {}
            }
            if !wanted.is_empty() {
                wanted.from.get_or_insert(id);
            }
        }
        wanted.loops.retain(|frame| self.comes_in(*frame).iter().all(|tensor| self.can_be_carried(*tensor)));
        if !wanted.values.is_empty() {
            // With these elements it may be a loop of one size.
            wanted.loops.clear();
        }
        if wanted.is_empty() {
            // All sizes are known: a kernel wants elements.
            let id = self.request.graph.find(error.node()?)?;
            let is_small = |input: &Output| {
                let fact = self.fact(*input)?;
                let is_of_sizes = fact.data_type.is_integer() || fact.data_type == DataType::Bool;
                Some(is_of_sizes && fact.value.is_none() && fact.shape.complete()?.elements().ok()? <= MOST_ELEMENTS)
            };
            let inputs = self.request.graph.node(id).inputs.iter().filter(|input| is_small(input) == Some(true));
            let inputs: Vec<Output> = inputs.map(|input| self.origin(*input)).collect();
            match self.pruned.frames.outermost(id) {
                Some(frame) if inputs.is_empty() || inputs.iter().any(|input| self.pruned.frames.is_within(input.node)) => {
                    wanted.loops.insert(frame);
                }
                _ => wanted.values.extend(inputs),
            }
            wanted.from = Some(id);
        }
        Some(wanted)
    }

    /// The loop that has what a plan cannot have in a loop. The session may drive it.
    pub(super) fn driven(&self, error: &Error) -> Option<Wanted> {
        let id = self.request.graph.find(error.node()?)?;
        let frame = self.pruned.frames.outermost(id)?;
        let is_sized = self.comes_in(frame).iter().all(|tensor| self.can_be_carried(*tensor));
        is_sized.then(|| Wanted { from: Some(id), loops: [frame].into(), ..Wanted::default() })
    }

    /// Where a tensor comes from that a loop hands on as it came.
    fn origin(&self, tensor: Output) -> Output {
        let graph = self.request.graph;
        let mut here = tensor;
        while self.pruned.frames.is_within(here.node) && !self.pruned.is_fed(here) {
            let node = graph.node(here.node);
            let stays = |(first, next)| stays(graph, here.node, next).then_some(first);
            let before = match node.op.as_str() {
                "Enter" | "RefEnter" | "Identity" | "Switch" | "RefSwitch" => node.inputs.first().copied(),
                _ => round(graph, here.node).and_then(stays),
            };
            match before {
                Some(before) => here = before,
                None => return tensor,
            }
        }
        here
    }

    /// The tensors whose elements a node lacks for the sizes of its results, where the sizes of its inputs are known.
    fn wanted_by(&self, id: NodeId) -> Vec<Output> {
        let node = self.request.graph.node(id);
        if let Some(bound) = self.pruned.bounds.get(&id) {
            return vec![*bound];
        }
        if self.pruned.refused.contains_key(&id) {
            return self.outer_predicates(&self.pruned.alive.node(id));
        }
        if self.is_whole(id) {
            return Vec::new();
        }
        let own = self.pruned.alive.node(id);
        let living = || node.inputs.iter().copied().filter(|input| self.when(*input) != When::Never);
        if round(self.request.graph, id).is_some() {
            return Vec::new();
        }
        if let Some(Lower::Merge) = self.lower(id) {
            let holds = |side: &Side| matches!(&own, When::Under(sides) if sides.contains(side));
            return living()
                .flat_map(|input| sides(&self.when(input)))
                .filter(|side| !holds(side))
                .map(|(predicate, _)| self.root(predicate))
                .collect();
        }
        self.pruned.unanswered.get(&id).map_or_else(Vec::new, |asked| asked.iter().map(|position| node.inputs[*position]).collect())
    }

    /// Puts the outer predicates in the place of what is not alive in any case, where nothing else can be done first.
    pub(super) fn come_outermost(&self, wanted: &mut Wanted) {
        let mut predicates = BTreeSet::new();
        let mut lives = |when: When| match when {
            When::Always => true,
            when => {
                predicates.extend(self.outer_predicates(&when));
                false
            }
        };
        wanted.values.retain(|tensor| lives(self.when(*tensor)));
        wanted.counted.retain(|id| lives(self.pruned.alive.node(*id)));
        let frames = &self.pruned.frames;
        wanted.loops.retain(|frame| frames.get(*frame).enters.iter().all(|enter| lives(self.pruned.alive.node(*enter))));
        // They may come after what is computed between the stages.
        if wanted.counted.is_empty() && wanted.loops.is_empty() {
            wanted.values.extend(predicates);
        }
    }

    /// Puts the lists that come into loops in the place of the loops that lack their lengths: those of gradients, whose flows begin as
    /// numbers and become as long as these.
    pub(super) fn lengths_come_first(&self, wanted: &mut Wanted) {
        let graph = self.request.graph;
        let lacks_length = |frame: &FrameId| {
            let rounds = self.pruned.frames.get(*frame).rounds.iter();
            let list = |tensor: Output| self.fact(tensor).and_then(|fact| fact.list.as_ref());
            let first = |first: Output| graph.node(first.node).inputs.first().copied().unwrap_or(first);
            let mut flows = rounds.filter(|round| list(first(round.first)).is_none());
            flows.any(|round| list(Output { node: round.merge, index: 0 }).is_some_and(|list| list.length.is_none()))
        };
        let mut lists = BTreeSet::new();
        for &frame in wanted.loops.iter().filter(|frame| lacks_length(frame)) {
            let comes_in = self.comes_in(frame).into_iter();
            lists.extend(comes_in.filter(|tensor| self.needs_length(*tensor) && !self.is_stack(*tensor) && !self.pruned.is_fed(*tensor)));
        }
        if !lists.is_empty() && lists.iter().all(|list| self.when(*list) == When::Always) {
            *wanted = Wanted { from: wanted.from, lists, ..Wanted::default() };
        }
    }

    pub(super) fn outer_predicates(&self, when: &When) -> Vec<Output> {
        let predicates = sides(when).into_iter().map(|(predicate, _)| predicate);
        predicates.filter(|predicate| self.when(*predicate) == When::Always).map(|predicate| self.root(predicate)).collect()
    }

    /// The bool that a predicate is: others may be the same one.
    fn root(&self, predicate: Output) -> Output {
        let is_bool = |tensor: Output| {
            self.fact(tensor).is_some_and(|fact| fact.data_type == DataType::Bool && fact.shape.complete() == Some(Shape::scalar()))
        };
        let mut here = predicate;
        while !self.pruned.is_fed(here) && !self.pruned.frames.is_within(here.node) {
            let node = self.request.graph.node(here.node);
            match (node.op.as_str(), &node.inputs[..]) {
                // A plan may be wanted for each value of what is fed: the node behind it has these.
                ("Identity" | "ToBool", [input, ..]) if self.pruned.is_fed(*input) => break,
                ("Identity" | "ToBool", [input, ..]) if is_bool(*input) && self.when(*input) == When::Always => here = *input,
                _ => break,
            }
        }
        here
    }
}

/// A kernel that wants more elements than this does not want sizes.
const MOST_ELEMENTS: u64 = 4096;

fn sides(when: &When) -> Vec<Side> {
    match when {
        When::Under(sides) => sides.to_vec(),
        _ => Vec::new(),
    }
}
