//! The loops of a graph: nodes between Enter and Exit belong to a frame, and run once for each of its iterations.
//!
//! Source of the rules: TensorFlow's executor. Enter takes a tensor into the frame of its name, below the frame that it comes from.
//! Exit takes one out. Merge gives on the first value from Enter, and later ones from NextIteration. Switch ends the loop where
//! LoopCond says so.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

use plimsoll_base::{Error, Result};
use plimsoll_graph::{AttrsExt, Graph, IdVec, NodeId, Output, define_id};

define_id!(
    /// A frame of a graph.
    pub(crate) struct FrameId
);

/// Frames deeper in each other are refused.
pub(crate) const MOST_DEPTH: usize = 64;

/// A loop.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub parent: Option<FrameId>,
    depth: usize,
    /// What comes in.
    pub enters: Vec<NodeId>,
    /// The values that go round.
    pub rounds: Vec<Round>,
    pub switches: Vec<NodeId>,
    /// What goes out.
    pub exits: Vec<NodeId>,
    /// The LoopCond.
    pub test: Option<NodeId>,
    /// What its own nodes and the frames in it are, each behind what it needs.
    pub items: Vec<Item>,
}

/// A value that goes round in a loop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    pub merge: NodeId,
    /// Its value in the first iteration.
    pub first: Output,
    /// The NextIteration.
    pub next: NodeId,
}

/// A node, or a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Item {
    Node(NodeId),
    Loop(FrameId),
}

/// The loops of the nodes that run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Frames {
    frames: IdVec<FrameId, Frame>,
    of: HashMap<NodeId, FrameId>,
    /// By loop: the nodes in it and in those in it, in their order.
    within: IdVec<FrameId, Vec<NodeId>>,
    /// The names of frames in which something goes round.
    turning: HashSet<String>,
    /// What is in no loop, and the outermost loops, each behind what it needs.
    pub items: Vec<Item>,
}

impl Frames {
    /// The loops of nodes, which are in an order without back edges.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for frames that TensorFlow could not run. UNIMPLEMENTED for frames too deep in each other.
    pub fn new(graph: &Graph, order: &[NodeId]) -> Result<Frames> {
        if !order.iter().any(|id| is_enter(graph, *id)) {
            return Ok(Frames { items: order.iter().copied().map(Item::Node).collect(), ..Frames::default() });
        }
        let mut frames = Frames { turning: turning(graph, order), ..Frames::default() };
        let mut named: HashMap<(Option<FrameId>, String), FrameId> = HashMap::new();
        for &id in order {
            let frame = frames.frame(graph, id, &mut named).map_err(|error| error.at_node(&graph.node(id).name))?;
            if let Some(frame) = frame {
                frames.of.insert(id, frame);
                frames.note(graph, id, frame)?;
            }
        }
        frames.within = IdVec::filled(Vec::new(), frames.frames.len());
        for &id in order {
            let mut around = frames.of(id);
            while let Some(frame) = around {
                frames.within[frame].push(id);
                around = frames.frames[frame].parent;
            }
        }
        let mut levels: HashMap<Option<FrameId>, Vec<Item>> = HashMap::new();
        for (level, items) in frames.levels(graph, order)? {
            levels.insert(level, items);
        }
        frames.items = levels.remove(&None).unwrap_or_default();
        for (id, frame) in frames.frames.iter_mut() {
            frame.items = levels.remove(&Some(id)).unwrap_or_default();
        }
        Ok(frames)
    }

    /// Whether there is a loop.
    pub fn has_loops(&self) -> bool {
        !self.of.is_empty()
    }

    /// A loop.
    pub fn get(&self, id: FrameId) -> &Frame {
        &self.frames[id]
    }

    /// The innermost loop of a node.
    pub fn of(&self, id: NodeId) -> Option<FrameId> {
        self.of.get(&id).copied()
    }

    /// Whether a node's results belong to an iteration.
    pub fn is_within(&self, id: NodeId) -> bool {
        self.of(id).is_some_and(|frame| self.frames[frame].parent.is_some() || !self.frames[frame].exits.contains(&id))
    }

    /// The outermost loop that a node is in.
    pub fn outermost(&self, id: NodeId) -> Option<FrameId> {
        self.path(self.of(id)).last()
    }

    /// The nodes in a loop and in those in it, in their order.
    pub fn nodes(&self, frame: FrameId) -> impl Iterator<Item = NodeId> + '_ {
        self.within[frame].iter().copied()
    }

    /// Whether a node is in a loop, or in one of the loops in it.
    pub fn is_in(&self, id: NodeId, frame: FrameId) -> bool {
        self.path(self.of(id)).any(|outer| outer == frame)
    }

    /// A loop and those around it, the innermost first.
    fn path(&self, frame: Option<FrameId>) -> impl Iterator<Item = FrameId> + '_ {
        std::iter::successors(frame, |frame| self.frames[*frame].parent)
    }

    fn frame(&mut self, graph: &Graph, id: NodeId, named: &mut HashMap<(Option<FrameId>, String), FrameId>) -> Result<Option<FrameId>> {
        let node = graph.node(id);
        let mut inner: Option<FrameId> = None;
        for before in before(graph, id) {
            let from = match self.of(before) {
                Some(frame) if self.frames[frame].exits.contains(&before) => self.frames[frame].parent,
                other => other,
            };
            let depth = |frame: Option<FrameId>| frame.map_or(0, |frame| self.frames[frame].depth);
            let (deep, shallow) = if depth(from) > depth(inner) { (from, inner) } else { (inner, from) };
            if shallow.is_some_and(|shallow| !self.path(deep).any(|outer| outer == shallow)) {
                return Err(Error::invalid_argument("its inputs come from different loops"));
            }
            inner = deep;
        }
        // In other frames everything runs once, as what is around them does.
        if !is_enter(graph, id) || !self.turning.contains(node.attrs.text("frame_name")?) {
            return Ok(inner);
        }
        let depth = inner.map_or(0, |frame| self.frames[frame].depth) + 1;
        if depth > MOST_DEPTH {
            return Err(Error::unimplemented(format!("not yet: loops more than {MOST_DEPTH} deep in each other")));
        }
        let key = (inner, node.attrs.text("frame_name")?.to_string());
        Ok(Some(*named.entry(key).or_insert_with(|| {
            let (enters, rounds, switches) = (Vec::new(), Vec::new(), Vec::new());
            self.frames.push(Frame { parent: inner, depth, enters, rounds, switches, exits: Vec::new(), test: None, items: Vec::new() })
        })))
    }

    /// Notes what a node is to its loop.
    fn note(&mut self, graph: &Graph, id: NodeId, frame: FrameId) -> Result<()> {
        let node = graph.node(id);
        let frame = &mut self.frames[frame];
        match node.op.as_str() {
            "Enter" | "RefEnter" => frame.enters.push(id),
            "Exit" | "RefExit" => frame.exits.push(id),
            "LoopCond" if frame.test.replace(id).is_some() => {
                return Err(Error::invalid_argument("its loop has two conditions").at_node(&node.name));
            }
            "Switch" | "RefSwitch" => frame.switches.push(id),
            "Merge" | "RefMerge" => {
                let is_back = |input: &&Output| is_next(graph, input.node);
                let back = node.inputs.iter().find(is_back).map(|input| input.node);
                let first = node.inputs.iter().find(|input| !is_back(input)).copied();
                if let (Some(next), Some(first), 2) = (back, first, node.inputs.len()) {
                    frame.rounds.push(Round { merge: id, first, next });
                } else if back.is_some() {
                    return Err(Error::invalid_argument("it has to have one input from outside, and one NextIteration").at_node(&node.name));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// What is in each loop, and in none, each behind what it needs; the graph's order among equals.
    fn levels(&self, graph: &Graph, order: &[NodeId]) -> Result<Vec<(Option<FrameId>, Vec<Item>)>> {
        // By level: its items in the order in which they are met first, and what each needs.
        let mut found: HashMap<Option<FrameId>, Level> = HashMap::new();
        let runs: HashSet<NodeId> = order.iter().copied().collect();
        for &id in order {
            for (level, item) in self.seen(id) {
                let level_items = found.entry(level).or_default();
                let number = level_items.number(item);
                for before in before(graph, id).filter(|before| runs.contains(before)) {
                    if let Some((_, other)) = self.seen(before).find(|(other, _)| *other == level)
                        && other != item
                    {
                        let other = level_items.number(other);
                        level_items.needs[number].insert(other);
                    }
                }
            }
        }
        found.into_iter().map(|(level, items)| Ok((level, items.sorted()?))).collect()
    }

    /// For each level that a node is in, what it is a part of there: the innermost first.
    fn seen(&self, id: NodeId) -> impl Iterator<Item = (Option<FrameId>, Item)> + '_ {
        let mut item = Item::Node(id);
        let mut level = Some(self.of(id));
        std::iter::from_fn(move || {
            let here = level?;
            let seen = (here, item);
            (level, item) = match here {
                Some(frame) => (Some(self.frames[frame].parent), Item::Loop(frame)),
                None => (None, item),
            };
            Some(seen)
        })
    }
}

#[derive(Default)]
struct Level {
    numbers: HashMap<Item, usize>,
    items: Vec<Item>,
    needs: Vec<HashSet<usize>>,
}

impl Level {
    fn number(&mut self, item: Item) -> usize {
        let (items, needs) = (&mut self.items, &mut self.needs);
        *self.numbers.entry(item).or_insert_with(|| {
            items.push(item);
            needs.push(HashSet::new());
            items.len() - 1
        })
    }

    fn sorted(self) -> Result<Vec<Item>> {
        let mut followers: Vec<Vec<usize>> = vec![Vec::new(); self.items.len()];
        let mut waiting: Vec<usize> = self.needs.iter().map(HashSet::len).collect();
        for (number, needs) in self.needs.iter().enumerate() {
            needs.iter().for_each(|before| followers[*before].push(number));
        }
        let mut ready: BinaryHeap<Reverse<usize>> = (0..waiting.len()).filter(|at| waiting[*at] == 0).map(Reverse).collect();
        let mut sorted = Vec::with_capacity(self.items.len());
        while let Some(Reverse(at)) = ready.pop() {
            sorted.push(self.items[at]);
            for &follower in &followers[at] {
                waiting[follower] -= 1;
                if waiting[follower] == 0 {
                    ready.push(Reverse(follower));
                }
            }
        }
        if sorted.len() != self.items.len() {
            return Err(Error::invalid_argument("a value that leaves a loop goes into it again"));
        }
        Ok(sorted)
    }
}

/// The nodes that a node comes after, without back edges.
fn before(graph: &Graph, id: NodeId) -> impl Iterator<Item = NodeId> + '_ {
    let node = graph.node(id);
    let is_merge = matches!(node.op.as_str(), "Merge" | "RefMerge");
    let all = node.inputs.iter().map(|input| input.node).chain(node.controls.iter().copied());
    all.filter(move |source| !(is_merge && is_next(graph, *source)))
}

/// The names of the frames of Merges that close a loop.
fn turning(graph: &Graph, order: &[NodeId]) -> HashSet<String> {
    let firsts = order.iter().filter_map(|id| round(graph, *id).map(|(first, _)| graph.node(first.node)));
    firsts.filter_map(|enter| enter.attrs.text("frame_name").ok().map(str::to_string)).collect()
}

fn is_enter(graph: &Graph, id: NodeId) -> bool {
    matches!(graph.node(id).op.as_str(), "Enter" | "RefEnter")
}

pub(crate) fn is_exit(graph: &Graph, id: NodeId) -> bool {
    matches!(graph.node(id).op.as_str(), "Exit" | "RefExit")
}

/// Whether an edge from the node to a Merge goes back to the next iteration.
pub(crate) fn is_next(graph: &Graph, id: NodeId) -> bool {
    matches!(graph.node(id).op.as_str(), "NextIteration" | "RefNextIteration")
}

/// The Merge's value in the first iteration, and where the next ones come from, if it is a loop's.
pub(crate) fn round(graph: &Graph, merge: NodeId) -> Option<(Output, NodeId)> {
    let inputs = &graph.node(merge).inputs;
    let back = inputs.iter().position(|input| is_next(graph, input.node))?;
    Some((*inputs.iter().enumerate().find(|(index, _)| *index != back)?.1, inputs[back].node))
}

/// Whether every iteration hands a value on as it came.
pub(crate) fn stays(graph: &Graph, merge: NodeId, next: NodeId) -> bool {
    let mut here = graph.node(next).inputs.first().copied();
    while let Some(output) = here {
        let node = graph.node(output.node);
        match node.op.as_str() {
            "Identity" => here = node.inputs.first().copied(),
            "Switch" => return output.index == 1 && node.inputs.first().is_some_and(|input| input.node == merge),
            _ => return false,
        }
    }
    false
}
