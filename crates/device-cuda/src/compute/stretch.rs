//! The stretches of a queue that the card runs without the host, each made into a graph.
//!
//! A stretch ends before a command that waits for another queue, and before one that a loop goes to. It ends before work of cuDNN that must
//! not come behind a fault, and at what only the host can do. That is a loop's decision, a copy from or to another card, a guarded copy to
//! the host, or guarded work of cuDNN. What cuDNN pushes is captured, and becomes a graph in the graph. Copies between card and host go by pinned memory of
//! the executable, so that no graph knows an address of the caller. What the card reads of the host's memory is there when the
//! stretch begins, since all its waits are before; what it writes there is handed on when the stretch is over.

use std::ops::Range;
use std::sync::Arc;

use plimsoll_device::{BufferRef, Place};

use super::graph_room::GraphShare;
use super::loaded::{Action, Launch, LaunchArg, LaunchCode, Loaded, NONE, Step};
use super::queue::{Kept, Shared, Side};
use crate::cudnn::ReadyConvolution;
use crate::driver::{Captured, Function, Graph, GraphExec, LONGEST_COPY, Pinned, Spot, Trouble};
use crate::emit;

/// The most bytes of pinned memory that the stretches of a queue have. A copy that finds none goes in pieces instead.
const MOST_STAGED: u64 = 16 << 20;
/// A shorter stretch is pushed by itself.
const FEWEST_NODES: usize = 2;
/// Pieces of pinned memory begin at multiples of this.
const STEP: u64 = 256;

/// The graphs of a queue of a run.
#[derive(Debug)]
pub(super) struct Graphs {
    stretches: Vec<Stretch>,
    /// For each command the stretch that begins there, or [`NONE`].
    begins: Vec<u32>,
    staging: Option<Pinned>,
}

/// Commands that are one graph.
#[derive(Debug)]
pub(super) struct Stretch {
    graph: GraphExec,
    /// The command behind them.
    pub end: u32,
    /// Whether a kernel of them finds faults: then the fault word comes with the results.
    pub can_fail: bool,
    before: Vec<Staged>,
    after: Vec<After>,
    _share: GraphShare,
}

/// Bytes of a buffer of the host, and where they lie in pinned memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Staged {
    buffer: u32,
    offset: u64,
    bytes: u64,
}

/// What the host does when a stretch is over, for a command of that number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    /// Takes bytes from pinned memory.
    Out(u32, Staged),
    /// Copies a buffer to another.
    Copy { number: u32, from: u32, to: u32, bytes: u64 },
}

/// A node of a graph.
#[derive(Clone, Debug)]
enum Node {
    Kernel { entry: Function, blocks: u32, arguments: Vec<Value> },
    Convolution { of: Arc<ReadyConvolution>, addresses: Vec<u64> },
    Copy { to: Spot, from: Spot, bytes: u64 },
    In { to: u64, staged: u64, bytes: u64 },
    Out { staged: u64, from: u64, bytes: u64 },
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
struct Draft {
    commands: Range<u32>,
    nodes: Vec<Node>,
    before: Vec<Staged>,
    after: Vec<After>,
    /// Buffers of the host that it writes.
    written: Vec<BufferRef>,
    can_fail: bool,
}

impl Stretch {
    /// Whether the host has work when it is over.
    pub fn hands_on(&self) -> bool {
        !self.after.is_empty()
    }
}

impl Graphs {
    /// The graphs of a queue whose buffers are bound. None where the card, the host or the device has no room for one: then all is
    /// pushed by itself, as without graphs.
    pub fn new(shared: &Shared, loaded: &Loaded, kept: &Kept) -> Option<Graphs> {
        let mut drafts = Drafts { loaded, kept, staged: 0, done: Vec::new() };
        drafts.run();
        let Drafts { staged, done, .. } = drafts;
        let made = || {
            let mut staging = if staged > 0 { Some(Pinned::new(&shared.context.driver, staged as usize)?) } else { None };
            let mut begins = vec![NONE; loaded.steps.len()];
            let mut stretches = Vec::with_capacity(done.len());
            for draft in done {
                let graph = draft.graph(shared, loaded, kept, &mut staging)?;
                let Some(share) = shared.graphs.take(graph.nodes()) else { continue };
                begins[draft.commands.start as usize] = stretches.len() as u32;
                let Draft { commands: Range { end, .. }, before, after, can_fail, .. } = draft;
                let graph = graph.instantiate(&shared.stream)?;
                stretches.push(Stretch { graph, end, can_fail, before, after, _share: share });
            }
            Ok::<_, Trouble>(Graphs { stretches, begins, staging })
        };
        made().inspect_err(|trouble| shared.context.note(*trouble)).ok()
    }

    /// The stretch that begins with a command.
    pub fn at(&self, number: u32) -> Option<u32> {
        self.begins.get(number as usize).copied().filter(|at| *at != NONE)
    }

    pub fn stretch(&self, at: u32) -> &Stretch {
        &self.stretches[at as usize]
    }

    /// Takes what a stretch reads of the host's memory, and launches it. Its launch before has run: between two of them there is a loop's
    /// condition, or another run.
    pub fn launch(&mut self, at: u32, shared: &Shared, bound: &[(u64, Side)]) -> Result<(), Trouble> {
        let stretch = &self.stretches[at as usize];
        if let Some(staging) = &mut self.staging {
            for staged in &stretch.before {
                // SAFETY: the run keeps so many bytes there, and no other command writes them meanwhile.
                let bytes = unsafe { std::slice::from_raw_parts(bound[staged.buffer as usize].0 as *const u8, staged.bytes as usize) };
                staging.write(staged.offset as usize, bytes);
            }
        }
        stretch.graph.launch(&shared.stream)
    }

    /// Hands on what commands of a stretch that has run have written to the host's memory: those before `end`.
    pub fn finish(&self, at: u32, end: u32, bound: &[(u64, Side)]) {
        for after in &self.stretches[at as usize].after {
            match (*after, &self.staging) {
                (After::Out(number, staged), Some(staging)) if number < end => {
                    let to = bound[staged.buffer as usize].0 as *mut u8;
                    // SAFETY: the run keeps so many bytes there, and no other command uses them meanwhile.
                    staging.read(staged.offset as usize, unsafe { std::slice::from_raw_parts_mut(to, staged.bytes as usize) });
                }
                (After::Copy { number, from, to, bytes }, _) if number < end => {
                    let (from, to) = (bound[from as usize].0 as *const u8, bound[to as usize].0 as *mut u8);
                    // SAFETY: as above, for both.
                    unsafe { std::ptr::copy(from, to, bytes as usize) };
                }
                _ => {}
            }
        }
    }
}

/// The stretches of a queue, one after the other.
struct Drafts<'a> {
    loaded: &'a Loaded,
    kept: &'a Kept,
    /// Bytes of pinned memory that they need.
    staged: u64,
    done: Vec<Draft>,
}

impl Drafts<'_> {
    fn run(&mut self) {
        let steps = &self.loaded.steps;
        let mut targets: Vec<u32> =
            steps.iter().filter_map(|step| if let Action::Jump { to, .. } = step.action { Some(to) } else { None }).collect();
        targets.sort_unstable();
        let (mut draft, mut staged_before) = (Draft::default(), 0);
        for (number, step) in (0..).zip(steps) {
            let must_not_fail = draft.can_fail && step.convolves();
            if !step.waits.is_empty() || targets.binary_search(&number).is_ok() || must_not_fail || self.reads_what_is_written(step, &draft)
            {
                self.close(&mut draft, staged_before, number);
                staged_before = self.staged;
            }
            if self.add(number, step, &mut draft).is_none() {
                self.close(&mut draft, staged_before, number + 1);
                staged_before = self.staged;
            }
        }
        self.close(&mut draft, staged_before, steps.len() as u32);
    }

    /// Ends a stretch; the next one begins with a command.
    fn close(&mut self, draft: &mut Draft, staged_before: u64, next: u32) {
        let draft = std::mem::replace(draft, Draft { commands: next..next, ..Draft::default() });
        if draft.nodes.len() >= FEWEST_NODES {
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
        let written = self.loaded.buffers[to as usize];
        match (self.side(from).clone(), self.side(to).clone()) {
            (Side::Here, Side::Here) if may_be_a_node => {
                let [from, to] = [from, to].map(|buffer| Spot::Card(self.address(buffer)));
                draft.nodes.push(Node::Copy { to, from, bytes });
            }
            (Side::Here, Side::Here) => {
                let node = self.copying(number, step, draft.can_fail, Value::Number(self.address(from)), bytes)?;
                draft.nodes.push(node);
            }
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
    /// The graph; the fault word is set before, and read behind.
    fn graph(&self, shared: &Shared, loaded: &Loaded, kept: &Kept, staging: &mut Option<Pinned>) -> Result<Graph, Trouble> {
        let mut graph = Graph::new(&shared.context)?;
        let staged =
            |offset: u64, bytes: u64| staging.as_ref().map_or(std::ptr::null_mut(), |pinned| pinned.at(offset as usize, bytes as usize));
        if self.commands.start == 0 && loaded.can_fail {
            graph.set_bytes(kept.word.address(), 0xFF, 8)?;
        }
        for node in &self.nodes {
            match node {
                Node::Kernel { entry, blocks, arguments } => {
                    let value = |value: &Value| match *value {
                        Value::Number(number) => number,
                        Value::Staged(offset) => staged(offset, 0) as u64,
                    };
                    let mut arguments: Vec<u64> = arguments.iter().map(value).collect();
                    graph.kernel(*entry, *blocks, emit::THREADS, &mut arguments)?;
                }
                Node::Convolution { of, addresses } => {
                    graph.child(&Captured::of(&shared.context, |stream| of.push(stream, addresses))?)?;
                }
                Node::Copy { to, from, bytes } => graph.copy(*to, *from, *bytes)?,
                Node::In { to, staged: at, bytes } => graph.copy(Spot::Card(*to), Spot::Pinned(staged(*at, *bytes)), *bytes)?,
                Node::Out { staged: at, from, bytes } => graph.copy(Spot::Pinned(staged(*at, *bytes)), Spot::Card(*from), *bytes)?,
            }
        }
        if self.can_fail {
            graph.copy(Spot::Pinned(kept.fault_place()), Spot::Card(kept.word.address()), 8)?;
        }
        Ok(graph)
    }
}
