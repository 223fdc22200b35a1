//! The plan: queues of commands with their memory, and the sum of it.

use std::sync::Arc;

use plimsoll_base::{Bytes, DataType, Panels};
use plimsoll_device::{DeviceKind, Program};
use plimsoll_graph::{HostTensor, NodeId, Output, Shape, define_id};
use serde::{Deserialize, Serialize};

use crate::buffers::PlanBuffer;
use crate::fit::Fitting;
use crate::late::Later;
use crate::request::ListTraits;

define_id!(
    /// A device, by its position in the request.
    pub struct DeviceId
);

/// How sure a predicted peak is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Certainty {
    /// To the byte.
    Exact,
    /// Never more.
    AtMost,
    /// Unknown from this node on.
    OpenFrom(NodeId),
}

impl Certainty {
    /// The certainty of the greater of two peaks.
    #[must_use]
    pub(crate) fn or(self, other: Certainty) -> Certainty {
        match (&self, &other) {
            (Certainty::OpenFrom(_), _) | (Certainty::AtMost, Certainty::Exact) => self,
            _ => other,
        }
    }
}

/// The parts of a device's peak, in bytes. The parts add up to the peak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeakParts {
    /// Variables. The states of random generators, a few bytes each, are the process's overhead.
    pub variables: Bytes,
    /// Constants that kernels read.
    pub constants: Bytes,
    /// Values between operations, at the moment when most memory is used, with the bytes that packing leaves unused.
    pub activations: Bytes,
    /// Scratch of kernels at that moment, and of workers.
    pub workspace: Bytes,
    /// Fed and fetched tensors, and copies from other devices at that moment.
    pub transfer: Bytes,
    /// The device's own overhead.
    pub overhead: Bytes,
}

impl PeakParts {
    /// The peak.
    pub fn total(&self) -> Bytes {
        [self.variables, self.constants, self.activations, self.workspace, self.transfer, self.overhead].into_iter().sum()
    }

    /// Both, part by part.
    pub fn plus(&self, other: &PeakParts) -> PeakParts {
        PeakParts {
            variables: self.variables + other.variables,
            constants: self.constants + other.constants,
            activations: self.activations + other.activations,
            workspace: self.workspace + other.workspace,
            transfer: self.transfer + other.transfer,
            overhead: self.overhead + other.overhead,
        }
    }
}

/// Something that takes memory at the peak.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The node whose value it is, or its kind.
    pub name: String,
    /// How much it takes.
    pub bytes: Bytes,
}

/// The bytes of a device that a plan takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DevicePlan {
    /// The full name.
    pub name: String,
    /// Its kind.
    #[serde(skip, default = "processor")]
    pub kind: DeviceKind,
    /// The line, where there is one.
    pub limit: Option<Bytes>,
    /// The memory of the machine, where the device takes its part of that.
    pub machine: Option<Bytes>,
    /// The predicted peak.
    pub peak: PeakParts,
    /// How sure it is.
    pub certainty: Certainty,
    /// The arena of one run: values, scratch of kernels and of workers.
    pub arena: Bytes,
    /// The bytes of the arena that buffers take, gaps between them included; the arena is at least that.
    pub packed: Bytes,
    /// The most bytes that are live in the arena at once, each buffer with the gap that the alignment of the next one leaves. No
    /// packing takes less.
    pub live: Bytes,
    /// No plan of these commands takes less of the device, in whatever order, and whatever runs again or waits elsewhere: what stays, and what
    /// one command reads, writes and needs beside.
    #[serde(default)]
    pub least: Bytes,
    /// The largest holders at the peak, largest first; some entries only.
    pub holders: Vec<Holder>,
}

/// The kind of a device of a plan from a file, until it is known.
fn processor() -> DeviceKind {
    DeviceKind::Cpu
}

impl DevicePlan {
    /// The bytes that packing leaves unused between buffers at the peak of the arena.
    pub fn unused(&self) -> Bytes {
        self.packed - self.live
    }
}

/// How a variable came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum VariableKind {
    /// VariableV2.
    Reference,
    /// VarHandleOp.
    Resource,
    /// State of an operation, a random generator's.
    State,
}

/// A variable that the plan touches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanVariable {
    /// Its identity in the session: container and shared name, or the node's name.
    pub key: String,
    /// The node's name.
    pub name: String,
    /// How it came to be.
    pub kind: VariableKind,
    /// The element type.
    pub data_type: DataType,
    /// The shape.
    pub shape: Shape,
    /// Bytes of its elements.
    pub bytes: Bytes,
    /// Where it lives.
    pub device: DeviceId,
    /// Its bytes before the first write, where they are defined from the start.
    pub initial: Option<Vec<u8>>,
    /// The node that reads it before the plan writes it: it must have been initialised.
    pub read_first_by: Option<NodeId>,
    /// The command that initialises it in every run, as `(queue, number of the command)`.
    pub assigned_by: Option<(u32, u32)>,
    /// Whether the plan writes it at all.
    pub written: bool,
    /// Where the session reads its value from a file before the plan runs: bytes of the buffer that this takes.
    pub stored: Option<Bytes>,
}

/// A constant that the plan reads: the value of a tensor of the graph. The graph and the feeds decide it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanConstant {
    /// The tensor.
    pub tensor: Output,
    /// The name of its node.
    pub name: String,
    /// Its element type.
    pub data_type: DataType,
    /// Its shape.
    pub shape: Shape,
    /// Bytes of its elements.
    pub bytes: Bytes,
    /// The device whose kernels read it; none where it is only copied somewhere from the graph.
    pub device: Option<DeviceId>,
    /// The panels in which these kernels read it; none where it is row-major. It takes as many bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub panels: Option<Panels>,
}

/// A fed tensor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanFeed {
    /// The tensor that it replaces.
    pub tensor: Output,
    /// Its element type.
    pub data_type: DataType,
    /// Its shape.
    pub shape: Shape,
    /// Bytes of its elements.
    pub bytes: Bytes,
}

/// A fetched tensor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanFetch {
    /// The name that was asked for.
    pub name: String,
    /// Its element type.
    pub data_type: DataType,
    /// Its shape.
    pub shape: Shape,
    /// Bytes of its elements.
    pub bytes: Bytes,
    /// What it is beside its rows, where it is a list of lists that a stage hands on. It is not written with the plan.
    #[serde(skip)]
    pub traits: Option<Arc<ListTraits>>,
}

/// The access of a command to a file, by the number of its [`plimsoll_device::Work::Outside`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum PlanCall {
    /// Sees that tensors can be restored. Through the command's scratch.
    Check(PlanCheck),
    /// Restores a tensor. Through the command's scratch.
    Restore(PlanRestore),
    /// Writes a checkpoint. Through the command's scratch.
    Save(PlanSave),
}

/// Tensors that a checkpoint has to have, whole: a RestoreV2 reads them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanCheck {
    /// The checkpoint.
    pub prefix: String,
    /// Their names there, and their element types.
    pub tensors: Vec<(String, DataType)>,
    /// The RestoreV2.
    pub node: NodeId,
}

/// A tensor of a checkpoint that becomes a variable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanRestore {
    /// The checkpoint.
    pub prefix: String,
    /// The tensor's name there.
    pub name: String,
    /// The variable, among those of the plan. It says the element type and the shape.
    pub variable: u32,
    /// The RestoreV2.
    pub node: NodeId,
}

/// Tensors that become a checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanSave {
    /// The checkpoint.
    pub prefix: String,
    /// Its tensors.
    pub tensors: Vec<SavedTensor>,
    /// The SaveV2.
    pub node: NodeId,
}

/// A tensor of a [`PlanSave`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SavedTensor {
    /// Its name in the checkpoint.
    pub name: String,
    /// Its element type.
    pub data_type: DataType,
    /// Its shape.
    pub shape: Shape,
    /// The variable that it is, among those of the plan; none where it is the command's next argument.
    pub variable: Option<u32>,
}

/// A node whose device cannot compute it: the host does, under soft placement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Softened {
    /// The node.
    pub node: NodeId,
    /// The device that it is placed on.
    pub device: DeviceId,
    /// The reason, as the device's library gives it. It is not written with the plan.
    #[serde(skip)]
    pub why: String,
}

/// The commands of one device in order, or its copies beside these: where a device has two queues, the second has the copies.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Queue {
    /// The device.
    pub device: DeviceId,
    /// Its program.
    pub program: Arc<Program>,
    /// For each command, the predicted seconds.
    pub seconds: Vec<f64>,
    /// For each command, the nodes that it does, the one that it is named after first.
    pub nodes: Vec<Vec<NodeId>>,
    /// For each command, bytes of its inputs and of its outputs.
    pub bytes: Vec<(u64, u64)>,
}

/// How a signature runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// Fed tensors, in the signature's order.
    pub feeds: Vec<PlanFeed>,
    /// Fetched tensors, in the signature's order.
    pub fetches: Vec<PlanFetch>,
    /// The accesses of commands to files.
    pub calls: Vec<PlanCall>,
    /// Variables, in the order of `Place::Variable`.
    pub variables: Vec<PlanVariable>,
    /// Constants, in the order of `Place::Constant`.
    pub constants: Vec<PlanConstant>,
    /// The elements of the constants, maybe compressed. They are not written with the plan: the graph has them.
    #[serde(skip)]
    pub values: Vec<HostTensor>,
    /// The bytes that it takes of each device of the request.
    pub devices: Vec<DevicePlan>,
    /// The device that holds feeds and fetches.
    pub host: DeviceId,
    /// Its commands: queues that run side by side.
    pub queues: Vec<Queue>,
    /// The buffers of the arenas, for reports. They are not written with the plan.
    #[serde(skip)]
    pub buffers: Arc<[PlanBuffer]>,
    /// The nodes that run (or became part of something that does), with their devices, in the graph's order.
    pub nodes: Vec<(NodeId, DeviceId)>,
    /// Those of them that the host computes in place of their device, all or in part. In the graph's order.
    pub softened: Vec<Softened>,
    /// Plans that compute the folded variables that it reads, before its first run and where those are out of date: see
    /// [`crate::Freeze`]. They are not written with the plan.
    #[serde(skip)]
    pub before: Vec<Arc<Plan>>,
    /// The costs that it was made with: see [`plimsoll_device::Costs::fingerprint`].
    pub costs: String,
    /// Predicted seconds of a step in which nothing is passed over: see [`Plan::on_the_clock`].
    pub seconds: f64,
    /// Whether it is known how often each of its loops runs: else `seconds` has one iteration of those that nothing bounds.
    #[serde(default)]
    pub loops_are_counted: bool,
    /// The rest of the run, where this is a first stage of it. It is not written with the plan.
    #[serde(skip)]
    pub later: Option<Arc<Later>>,
    /// How it was made to fit the lines of its request, where it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fitting: Option<Fitting>,
}

impl Plan {
    /// Types and shapes of `Place::Feed`, in order.
    pub fn sources(&self) -> impl Iterator<Item = (DataType, &Shape)> {
        self.feeds.iter().map(|feed| (feed.data_type, &feed.shape))
    }

    /// Bytes of every tensor that is fed and fetched: they count on the host while a run uses them.
    pub fn ends(&self) -> impl Iterator<Item = Bytes> {
        self.feeds.iter().map(|feed| feed.bytes).chain(self.fetches.iter().map(|fetch| fetch.bytes))
    }

    /// Types and shapes of `Place::Fetch`, in order.
    pub fn sinks(&self) -> impl Iterator<Item = (DataType, &Shape)> {
        self.fetches.iter().map(|fetch| (fetch.data_type, &fetch.shape))
    }

    /// Name, type and shape of every tensor that the run fetches; of a run in stages, all of them. Where only the run knows the shape,
    /// that of an empty vector.
    pub fn results(&self) -> impl Iterator<Item = (&str, DataType, &Shape)> {
        let later = self.later.iter().flat_map(|later| &later.fetches);
        let later = later.map(|(name, data_type, shape)| (name.as_str(), *data_type, shape));
        let own = self.fetches.iter().filter(|_| self.later.is_none());
        own.map(|fetch| (fetch.name.as_str(), fetch.data_type, &fetch.shape)).chain(later)
    }
}
