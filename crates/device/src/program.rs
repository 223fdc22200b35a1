//! A program: the commands of one queue in order, with their arguments, waits and memory.
//!
//! Each logical device has one in-order queue. A queue counts the commands that it has finished, and a [`Wait`] names a queue and a
//! count. Every dependency across queues is a wait, also "that buffer may be reused". A copy with a card or a file at one end is
//! in the queue of that.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::KernelCall;

/// The block of memory that an argument lies in. The numbers index the tables of [`crate::Bindings`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Place {
    /// The run's arena on the device with this index in the plan.
    Arena(u32),
    /// A variable's storage.
    Variable(u32),
    /// The byte that says whether a variable was initialised.
    VariableFlag(u32),
    /// A constant.
    Constant(u32),
    /// A fed tensor, where the caller holds it.
    Feed(u32),
    /// A fetched tensor, where the caller will find it.
    Fetch(u32),
}

/// Bytes in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BufferRef {
    /// The block.
    pub place: Place,
    /// Where the bytes begin in it.
    pub offset: u64,
    /// How many there are.
    pub bytes: u64,
}

/// A command may start when the queue `queue` has finished its first `commands` commands of this run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Wait {
    /// The index of the queue in the plan.
    pub queue: u32,
    /// How many of its commands.
    pub commands: u32,
}

/// The work of a command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Work {
    /// Calls a kernel.
    Kernel(KernelCall),
    /// Copies argument 0 to argument 1, which is as long; they may be in the memory of different devices.
    Copy,
    /// Reads or writes memory that is no device's: a file. The run's [`crate::Outside`] does it, under this number. Only devices
    /// that compute in memory of the process have such commands.
    Outside {
        /// The number.
        call: u32,
        /// How many of the arguments are read; the others are written.
        inputs: u32,
    },
    /// Begins a loop. Argument 0 is a bool: where it is 0, or the command is passed over, so are the next `body` commands and the
    /// [`Work::Again`] behind them.
    Loop {
        /// How many commands the body has.
        body: u32,
        /// The same loop in other queues, if there are any. All of them go round equally often: each reads a bool of its own, and
        /// these are equal.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        with: Vec<Partner>,
    },
    /// Ends the body of a loop. Argument 0 is a bool: unless it is 0, the body's commands come next.
    Again {
        /// How many commands the body has.
        body: u32,
    },
}

/// The part of a loop that another queue has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Partner {
    /// The index of the queue in the plan.
    pub queue: u32,
    /// The number of its [`Work::Loop`] there.
    pub first: u32,
    /// How many commands its body has.
    pub body: u32,
}

/// One entry of a queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Command {
    /// The work.
    pub work: Work,
    /// Inputs, then outputs.
    pub args: Vec<BufferRef>,
    /// Scratch that all pieces share; in the arena.
    pub scratch: Option<BufferRef>,
    /// Scratch of the threads that take part, in the arena, where the kernel asks for some: a slice for each of them, one after the
    /// other (see [`crate::Step::worker_slices`]).
    pub worker_scratch: Option<BufferRef>,
    /// A bool in memory: where it is 0 when the command's turn comes, the command is passed over.
    pub guard: Option<BufferRef>,
    /// Progress of other queues that has to come first.
    pub waits: Vec<Wait>,
    /// For errors and profiles: the node that this mostly is, with how many were fused into it.
    pub label: Arc<str>,
}

/// The commands of one queue. Loops lie one behind the other or in each other.
///
/// A queue that has no part in a loop waits for no command in it, and the loop's commands do not wait for that queue. Within a loop
/// of several queues, a wait means the same iteration: it is over when the partner has finished so many commands in that iteration,
/// or is in a later one. A wait for the command behind the partner's [`Work::Loop`] says that the partner has begun the iteration.
/// The [`Work::Again`] of each queue waits for the bodies of all partners: no iteration begins anywhere before the one before it is
/// over everywhere. Loops of several queues that lie in each other are of the same queues.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Program {
    /// In the order in which they run.
    pub commands: Vec<Command>,
}
