//! Graphs before they are made: which commands are one, and their nodes.

use std::ops::Range;
use std::sync::Arc;

use plimsoll_device::{BufferRef, Place};

use super::bodies::Body;
use super::loaded::{Action, Launch, LaunchArg, LaunchCode, Loaded, NONE, Step};
use super::queue::{Kept, Shared, Side};
use super::stretch::{After, Staged};
use crate::cudnn::ReadyConvolution;
use crate::driver::{Captured, Function, Graph, LONGEST_COPY, Pinned, Spot, Trouble};
use crate::emit;

/// The most bytes of pinned memory that the stretches of a queue have. A copy that finds none goes in pieces instead.
const MOST_STAGED: u64 = 16 << 20;
/// A shorter stretch is pushed by itself, where the host decides nothing in it.
const FEWEST_NODES: usize = 2;
/// Pieces of pinned memory begin at multiples of this.
const STEP: u64 = 256;

/// A node of a graph.
#[derive(Clone, Debug)]
enum Node {
    Kernel {
        entry: Function,
        blocks: u32,
        arguments: Vec<Value>,
    },
    Convolution {
        of: Arc<ReadyConvolution>,
        addresses: Vec<u64>,
    },
    Copy {
        to: Spot,
        from: Spot,
        bytes: u64,
    },
    In {
        to: u64,
        staged: u64,
        bytes: u64,
    },
    Out {
        staged: u64,
        from: u64,
        bytes: u64,
    },
    /// Nodes that the card decides about.
    Body(Deciding),
}

/// A body, and the decisions on it: arguments of the kernel without the last, which is the condition.
#[derive(Clone, Debug)]
struct Deciding {
    decide: Function,
    before: Vec<u64>,
    /// Of a loop: behind its last node.
    again: Option<Vec<u64>>,
    nodes: Vec<Node>,
}

/// An argument of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    Number(u64),
    /// The address of pinned memory.
    Staged(u64),
}

/// A stretch that is not a graph yet.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub commands: Range<u32>,
    nodes: Vec<Node>,
    pub before: Vec<Staged>,
    pub after: Vec<After>,
    /// Buffers of the host that it writes.
    written: Vec<BufferRef>,
    /// Whether a kernel writes the fault word.
    pub can_fail: bool,
}

/// The stretches of a queue, one after the other.
struct Drafts<'a> {
    loaded: &'a Loaded,
    kept: &'a Kept,
    /// The kernel of decisions, where the card takes them.
    decide: Option<Function>,
    /// Bytes of pinned memory that they need.
    staged: u64,
    done: Vec<Draft>,
}

impl Drafts<'_> {
    fn run(&mut self) {
        let steps = &self.loaded.steps;
        let targets = self.targets();
        let (mut draft, mut staged_before, mut number) = (Draft::default(), 0, 0);
        while let Some(step) = steps.get(number as usize) {
            let body = self.body(number);
            let is_cut = !step.waits.is_empty() || targets.binary_search(&number).is_ok() || self.reads_what_is_written(step, &draft);
            if is_cut {
                self.close(&mut draft, staged_before, number);
                staged_before = self.staged;
            }
            // cuDNN's work reads no fault word. A body is not begun behind a fault.
            if draft.can_fail && body.is_none() && step.convolves() {
                if let Some((node, end)) = self.unless_failed(number..steps.len() as u32, &targets, false) {
                    draft.nodes.push(node);
                    draft.commands.end = end;
                    number = end;
                    continue;
                }
                self.close(&mut draft, staged_before, number);
                staged_before = self.staged;
            }
            let end = match body {
                Some((body, decide)) => {
                    let node = self.deciding(&body, decide, &mut draft.can_fail);
                    draft.nodes.push(node);
                    draft.commands.end = body.end;
                    body.end
                }
                None => {
                    if self.add(number, step, &mut draft).is_none() {
                        self.close(&mut draft, staged_before, number + 1);
                        staged_before = self.staged;
                    }
                    number + 1
                }
            };
            number = end;
        }
        self.close(&mut draft, staged_before, steps.len() as u32);
    }

    /// The commands that the host goes to, in order.
    fn targets(&self) -> Vec<u32> {
        let (mut targets, mut number) = (Vec::new(), 0);
        while let Some(step) = self.loaded.steps.get(number as usize) {
            let body = self.body(number);
            if let (None, Action::Jump { to, .. }) = (&body, &step.action) {
                targets.push(*to);
            }
            number = body.map_or(number + 1, |(body, _)| body.end);
        }
        targets.sort_unstable();
        targets
    }

    /// The body that begins with a command, if the card has all that it uses.
    fn body(&self, number: u32) -> Option<(Body, Function)> {
        let decide = self.decide?;
        let bodies = &self.loaded.bodies;
        let body = bodies[bodies.binary_search_by_key(&number, |body| body.first).ok()?];
        self.steps(&body).iter().all(|step| self.is_of_the_card(step)).then_some((body, decide))
    }

    fn steps(&self, body: &Body) -> &[Step] {
        &self.loaded.steps[body.first as usize..body.end as usize]
    }

    /// Whether the card can do a command of a body.
    fn is_of_the_card(&self, step: &Step) -> bool {
        let is_here = |buffer: u32| matches!(self.side(buffer), Side::Here);
        let args = step.args.0..step.args.0 + step.args.1;
        self.is_reached(step.guard)
            && match step.action {
                Action::Launch(..) => args.chain([step.scratch]).all(|buffer| self.is_reached(buffer)),
                Action::Copy => {
                    args.clone().all(is_here) && self.loaded.copy.is_some() || self.loaded.buffers[args.start as usize].bytes == 0
                }
                Action::Jump { .. } => is_here(args.start),
            }
    }

    /// A body that the card decides about. It is not begun behind a fault: in it none is there until one of its own commands finds it.
    fn deciding(&self, body: &Body, decide: Function, can_fail: &mut bool) -> Node {
        let Body { first, end, repeats } = *body;
        let step = &self.loaded.steps[first as usize];
        let (mut nodes, mut may_have_failed) = (Vec::new(), false);
        if !repeats {
            let before = self.decision(first, [step.guard, NONE], *can_fail, false);
            self.fill(first..end, true, &mut nodes, &mut may_have_failed);
            *can_fail |= may_have_failed;
            return Node::Body(Deciding { decide, before, again: None, nodes });
        }
        let before = self.decision(first, [step.guard, step.args.0], *can_fail, false);
        self.fill(first + 1..end - 1, false, &mut nodes, &mut may_have_failed);
        let last = &self.loaded.steps[end as usize - 1];
        let again = self.decision(end - 1, [NONE, last.args.0], may_have_failed, true);
        // What is behind is passed over where the run is given up in the loop.
        *can_fail = true;
        Node::Body(Deciding { decide, before, again: Some(again), nodes })
    }

    /// The arguments of a decision, for a command: by its guard and a bool, where there are any, and by the host's byte where it may end a
    /// loop.
    fn decision(&self, number: u32, [guard, bool]: [u32; 2], may_have_failed: bool, may_halt: bool) -> Vec<u64> {
        let word = self.kept.word.address();
        let (stop, base) = (if may_have_failed { word } else { 0 }, emit::fault_base(number));
        let halt = if may_halt { self.kept.halt_place() as u64 } else { 0 };
        vec![self.address(guard), stop, base, word, base, self.address(bool), halt]
    }

    /// A body of the first of these commands, and of those behind it that the card can do by itself: it is not begun behind a fault. With the
    /// command behind it, which works by cuDNN behind a fault of the body, or is none that the card can do. None where the card decides nothing.
    fn unless_failed(&self, commands: Range<u32>, targets: &[u32], is_guarded: bool) -> Option<(Node, u32)> {
        let decide = self.decide?;
        let (first, mut end, mut can_fail) = (commands.start, commands.start, false);
        while end < commands.end {
            let step = &self.loaded.steps[end as usize];
            let body = self.body(end).filter(|_| !is_guarded).map(|(body, _)| body);
            let is_cut = !step.waits.is_empty() || targets.binary_search(&end).is_ok() || can_fail && step.convolves() && body.is_none();
            let is_of_the_card = body.is_some() || !matches!(step.action, Action::Jump { .. }) && self.is_of_the_card(step);
            if !is_of_the_card || is_cut && end > first {
                break;
            }
            let behind = body.map_or(end + 1, |body| body.end);
            can_fail |=
                self.loaded.steps[end as usize..behind as usize].iter().any(Step::can_fail) || body.is_some_and(|body| body.repeats);
            end = behind;
        }
        let before = self.decision(first, [NONE; 2], true, false);
        let mut nodes = Vec::new();
        self.fill(first..end, is_guarded, &mut nodes, &mut false);
        (end > first).then_some((Node::Body(Deciding { decide, before, again: None, nodes }), end))
    }

    /// Adds the nodes of a body's commands, all of which have the guard of the body where it `is_guarded`.
    fn fill(&self, commands: Range<u32>, is_guarded: bool, nodes: &mut Vec<Node>, can_fail: &mut bool) {
        let mut number = commands.start;
        while number < commands.end {
            let step = &self.loaded.steps[number as usize];
            if let Some((body, decide)) = self.body(number).filter(|_| !is_guarded) {
                nodes.push(self.deciding(&body, decide, can_fail));
                number = body.end;
                continue;
            }
            if *can_fail
                && step.convolves()
                && let Some((node, end)) = self.unless_failed(number..commands.end, &[], is_guarded)
            {
                nodes.push(node);
                number = end;
                continue;
            }
            match &step.action {
                Action::Launch(launches, faults) => {
                    *can_fail |= !faults.is_empty();
                    nodes.extend(launches.iter().map(|launch| self.kernel(number, step, launch, *can_fail)));
                }
                Action::Copy => nodes.extend(self.copy_here(number, step, *can_fail)),
                // The end of a loop is its decision, and its beginning the body's.
                Action::Jump { .. } => {}
            }
            number += 1;
        }
    }

    /// Ends a stretch; the next one begins with a command.
    fn close(&mut self, draft: &mut Draft, staged_before: u64, next: u32) {
        let draft = std::mem::replace(draft, Draft { commands: next..next, ..Draft::default() });
        if draft.nodes.len() >= FEWEST_NODES || draft.nodes.iter().any(|node| matches!(node, Node::Body(_))) {
            self.done.push(draft);
        } else {
            self.staged = staged_before;
        }
    }

    fn side(&self, buffer: u32) -> &Side {
        &self.kept.bound[buffer as usize].1
    }

    fn address(&self, buffer: u32) -> u64 {
        if buffer == NONE { 0 } else { self.kept.bound[buffer as usize].0 }
    }

    fn is_reached(&self, buffer: u32) -> bool {
        buffer == NONE || matches!(self.side(buffer), Side::Here | Side::Nowhere)
    }

    /// Whether a copy reads memory of the host that comes only when the stretch is over.
    fn reads_what_is_written(&self, step: &Step, draft: &Draft) -> bool {
        if !matches!((&step.action, self.side_of(step)), (Action::Copy, Some(Side::Host))) {
            return false;
        }
        let from = self.loaded.buffers[step.args.0 as usize];
        let overlaps =
            |to: &BufferRef| to.place == from.place && to.offset < from.offset + from.bytes && from.offset < to.offset + to.bytes;
        draft.written.iter().any(overlaps)
    }

    fn side_of(&self, step: &Step) -> Option<&Side> {
        (step.args.1 > 0).then(|| self.side(step.args.0))
    }

    /// Pinned memory for a buffer, if there is as much.
    fn stage(&mut self, buffer: u32, bytes: u64) -> Option<Staged> {
        let offset = self.staged.next_multiple_of(STEP);
        let end = offset.checked_add(bytes).filter(|end| *end <= MOST_STAGED)?;
        self.staged = end;
        Some(Staged { buffer, offset, bytes })
    }

    /// Adds a command; none where it is no part of a graph.
    fn add(&mut self, number: u32, step: &Step, draft: &mut Draft) -> Option<()> {
        match &step.action {
            Action::Launch(launches, faults) => {
                let args = step.args.0..step.args.0 + step.args.1;
                let is_reached = args.chain([step.scratch, step.guard]).all(|buffer| self.is_reached(buffer));
                if !is_reached || step.guard != NONE && step.convolves() {
                    return None;
                }
                draft.can_fail |= !faults.is_empty();
                draft.nodes.extend(launches.iter().map(|launch| self.kernel(number, step, launch, draft.can_fail)));
            }
            Action::Copy => self.copy(number, step, draft)?,
            Action::Jump { .. } => return None,
        }
        draft.commands.end = number + 1;
        Some(())
    }

    fn kernel(&self, number: u32, step: &Step, launch: &Launch, may_have_failed: bool) -> Node {
        let word = self.kept.word.address();
        let value = |arg: &LaunchArg| match *arg {
            LaunchArg::Argument(index) => self.address(step.args.0 + index),
            LaunchArg::Scratch(offset) => self.address(step.scratch) + offset,
            LaunchArg::Value(value) => value,
            LaunchArg::Guard => self.address(step.guard),
            LaunchArg::Stop if !may_have_failed => 0,
            LaunchArg::Stop | LaunchArg::Fault => word,
            LaunchArg::FaultBase => emit::fault_base(number),
        };
        match &launch.code {
            LaunchCode::Kernel(entry, blocks) => {
                let arguments = launch.args.iter().map(|arg| Value::Number(value(arg))).collect();
                Node::Kernel { entry: *entry, blocks: *blocks, arguments }
            }
            LaunchCode::Convolution(of) => Node::Convolution { of: of.clone(), addresses: launch.args.iter().map(value).collect() },
        }
    }

    fn copy(&mut self, number: u32, step: &Step, draft: &mut Draft) -> Option<()> {
        let (from, to) = (step.args.0, step.args.0 + 1);
        let bytes = self.loaded.buffers[from as usize].bytes;
        if bytes == 0 {
            return Some(());
        }
        let always = step.guard == NONE;
        let may_be_a_node = always && !draft.can_fail && bytes <= LONGEST_COPY;
        if let (Side::Here, Side::Here) = (self.side(from), self.side(to)) {
            draft.nodes.push(self.copy_here(number, step, draft.can_fail)?);
            return Some(());
        }
        let written = self.loaded.buffers[to as usize];
        match (self.side(from).clone(), self.side(to).clone()) {
            (Side::Host, Side::Here) => {
                let staged = self.stage(from, bytes)?;
                let node = match may_be_a_node {
                    true => Node::In { to: self.address(to), staged: staged.offset, bytes },
                    false => self.copying(number, step, draft.can_fail, Value::Staged(staged.offset), bytes)?,
                };
                draft.nodes.push(node);
                draft.before.push(staged);
            }
            // Behind a fault pinned memory is written, and not handed on.
            (Side::Here, Side::Host) if always && !matches!(written.place, Place::Feed(_)) => {
                let staged = self.stage(to, bytes)?;
                draft.nodes.push(Node::Out { staged: staged.offset, from: self.address(from), bytes });
                draft.after.push(After::Out(number, staged));
                draft.written.push(written);
            }
            (Side::Host, Side::Host) if always && !matches!(written.place, Place::Feed(_)) => {
                draft.after.push(After::Copy { number, from, to, bytes });
                draft.written.push(written);
            }
            _ => return None,
        }
        Some(())
    }

    /// A copy in the card's memory; none where there is nothing to copy, or no kernel for it.
    fn copy_here(&self, number: u32, step: &Step, may_have_failed: bool) -> Option<Node> {
        let [from, to] = [step.args.0, step.args.0 + 1];
        let bytes = self.loaded.buffers[from as usize].bytes;
        if bytes == 0 {
            return None;
        }
        if step.guard != NONE || may_have_failed || bytes > LONGEST_COPY {
            return self.copying(number, step, may_have_failed, Value::Number(self.address(from)), bytes);
        }
        let [from, to] = [from, to].map(|buffer| Spot::Card(self.address(buffer)));
        Some(Node::Copy { to, from, bytes })
    }

    /// A copy by a kernel, which may be passed over.
    fn copying(&self, number: u32, step: &Step, may_have_failed: bool, from: Value, bytes: u64) -> Option<Node> {
        let function = self.loaded.copy.filter(|_| self.is_reached(step.guard))?;
        let stop = if may_have_failed { self.kept.word.address() } else { 0 };
        let [guard, stop, base, to, bytes_] =
            [self.address(step.guard), stop, emit::fault_base(number), self.address(step.args.0 + 1), bytes].map(Value::Number);
        let arguments = vec![guard, stop, base, from, to, bytes_];
        Some(Node::Kernel { entry: function, blocks: emit::copy_blocks(bytes), arguments })
    }
}

impl Draft {
    /// The stretches of a queue whose buffers are bound, and the bytes of pinned memory that they need. With a kernel for decisions, loops
    /// and branches are bodies where the card has all that they use.
    pub fn all(loaded: &Loaded, kept: &Kept, decide: Option<Function>) -> (u64, Vec<Draft>) {
        let mut drafts = Drafts { loaded, kept, decide, staged: 0, done: Vec::new() };
        drafts.run();
        (drafts.staged, drafts.done)
    }

    /// The graph; the fault word is set before, and read behind.
    pub fn graph(&self, shared: &Shared, loaded: &Loaded, kept: &Kept, staging: Option<&Pinned>) -> Result<Graph, Trouble> {
        let mut graph = Graph::new(&shared.context)?;
        if self.commands.start == 0 && loaded.can_fail {
            graph.set_bytes(kept.word.address(), 0xFF, 8)?;
        }
        self.nodes.iter().try_for_each(|node| node.add_to(&mut graph, shared, staging))?;
        if self.can_fail {
            graph.copy(Spot::Pinned(kept.fault_place()), Spot::Card(kept.word.address()), 8)?;
        }
        Ok(graph)
    }
}

impl Node {
    fn add_to(&self, graph: &mut Graph, shared: &Shared, staging: Option<&Pinned>) -> Result<(), Trouble> {
        let staged = |offset: u64, bytes: u64| staging.map_or(std::ptr::null_mut(), |pinned| pinned.at(offset as usize, bytes as usize));
        match self {
            Node::Kernel { entry, blocks, arguments } => {
                let value = |value: &Value| match *value {
                    Value::Number(number) => number,
                    Value::Staged(offset) => staged(offset, 0) as u64,
                };
                let mut arguments: Vec<u64> = arguments.iter().map(value).collect();
                graph.kernel(*entry, *blocks, emit::THREADS, &mut arguments)
            }
            Node::Convolution { of, addresses } => graph.child(&Captured::of(&shared.context, |stream| of.push(stream, addresses))?),
            Node::Copy { to, from, bytes } => graph.copy(*to, *from, *bytes),
            Node::In { to, staged: at, bytes } => graph.copy(Spot::Card(*to), Spot::Pinned(staged(*at, *bytes)), *bytes),
            Node::Out { staged: at, from, bytes } => graph.copy(Spot::Pinned(staged(*at, *bytes)), Spot::Card(*from), *bytes),
            Node::Body(Deciding { decide, before, again, nodes }) => {
                let condition = graph.condition()?;
                let decision = |graph: &mut Graph, arguments: &[u64]| {
                    let mut arguments = arguments.to_vec();
                    arguments.push(condition.handle());
                    graph.kernel(*decide, 1, 1, &mut arguments)
                };
                decision(graph, before)?;
                graph.body(condition, again.is_some(), |body| {
                    nodes.iter().try_for_each(|node| node.add_to(body, shared, staging))?;
                    again.iter().try_for_each(|again| decision(body, again))
                })
            }
        }
    }
}
