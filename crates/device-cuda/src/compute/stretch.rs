//! The stretches of a queue that the card runs without the host, each made into a graph.
//!
//! A stretch ends before a command that waits for another queue, and before one that a loop of the host goes to. Work of cuDNN must not come
//! behind a fault: it is a body that the card begins where there is none, with all behind it that is the card's; where the card decides nothing,
//! the stretch ends before it. It ends at what only the host can do, too. That is a copy from or to another card, a guarded copy to
//! the host, and the decision of a loop that is no body ([`super::bodies`]). What cuDNN pushes is captured, and becomes a graph in the
//! graph. Copies between card and host go by pinned memory of the executable, so that no graph knows an address of the caller. What the
//! card reads of the host's memory is there when the stretch begins, since all its waits are before; what it writes there is handed on
//! when the stretch is over.

use std::ops::Range;

use super::drafts::Draft;
use super::graph_room::GraphShare;
use super::loaded::{Loaded, NONE};
use super::queue::{Kept, Shared, Side};
use crate::driver::{Function, GraphExec, Pinned, Trouble};

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
pub(super) struct Staged {
    pub buffer: u32,
    pub offset: u64,
    pub bytes: u64,
}

/// What the host does when a stretch is over, for a command of that number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    /// Takes bytes from pinned memory.
    Out(u32, Staged),
    /// Copies a buffer to another.
    Copy { number: u32, from: u32, to: u32, bytes: u64 },
}

impl Stretch {
    /// Whether the host has work when it is over.
    pub fn hands_on(&self) -> bool {
        !self.after.is_empty()
    }
}

impl Graphs {
    /// The graphs of a queue whose buffers are bound. None where the card, the host or the device has no room for one: then all is
    /// pushed by itself, as without graphs. Where the driver refuses bodies, the host decides, from then on; where there is no room for them, in
    /// these.
    pub fn new(shared: &Shared, loaded: &Loaded, kept: &Kept) -> Option<Graphs> {
        let decide = loaded.decide.filter(|_| !shared.context.refuses_bodies());
        let made = match Graphs::made(shared, loaded, kept, decide) {
            Err(trouble) if decide.is_some() && !trouble.ends_the_card() => {
                if trouble != Trouble::OUT_OF_MEMORY {
                    shared.context.without_bodies();
                }
                Graphs::made(shared, loaded, kept, None)
            }
            made => made,
        };
        made.inspect_err(|trouble| shared.context.note(*trouble)).ok()
    }

    fn made(shared: &Shared, loaded: &Loaded, kept: &Kept, decide: Option<Function>) -> Result<Graphs, Trouble> {
        let (staged, drafts) = Draft::all(loaded, kept, decide);
        let staging = if staged > 0 { Some(Pinned::new(&shared.context.driver, staged as usize)?) } else { None };
        let mut begins = vec![NONE; loaded.steps.len()];
        let mut stretches = Vec::with_capacity(drafts.len());
        for draft in drafts {
            let graph = draft.graph(shared, loaded, kept, staging.as_ref())?;
            let Some(share) = shared.graphs.take(graph.graphs(), graph.nodes()) else {
                if decide.is_some() {
                    return Err(Trouble::OUT_OF_MEMORY);
                }
                continue;
            };
            begins[draft.commands.start as usize] = stretches.len() as u32;
            let Draft { commands: Range { end, .. }, before, after, can_fail, .. } = draft;
            let graph = graph.instantiate(&shared.stream)?;
            stretches.push(Stretch { graph, end, can_fail, before, after, _share: share });
        }
        Ok(Graphs { stretches, begins, staging })
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
