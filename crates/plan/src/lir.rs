//! The form between the graph and the queues: values with a home, and works that read and define them.
//!
//! Every value is defined once. A variable has a value for each of its versions, all with the same home. Version 0 is its value
//! when the run starts, and every write defines the next.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use plimsoll_base::{Bytes, DataType, Error, Result};
use plimsoll_device::KernelCall;
use plimsoll_graph::{HostTensor, IdVec, NodeId, Output, Shape, define_id};
use plimsoll_request::anchor::Anchor;
use plimsoll_request::expr::Expr;
use plimsoll_request::pool::Pooling;

use crate::plan::{DeviceId, PlanCall, PlanConstant, PlanFeed, PlanFetch, PlanVariable};

define_id!(
    /// A value.
    pub struct ValueId
);
define_id!(
    /// A work.
    pub struct WorkId
);

/// Where a value's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Home {
    /// Somewhere in the arena of its device.
    Arena,
    Variable(u32),
    Flag(u32),
    Constant(u32),
    Feed(u32),
    Fetch(u32),
}

#[derive(Clone, Debug)]
pub(crate) struct Value {
    pub device: DeviceId,
    pub home: Home,
    pub bytes: u64,
    /// The node that it comes from, for reports.
    pub node: NodeId,
    /// Whether it is a copy of another device's value.
    pub is_copy: bool,
}

/// A value, seen in some type and shape.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct View {
    pub value: ValueId,
    pub data_type: DataType,
    pub shape: Shape,
}

impl View {
    pub fn elements(&self) -> u64 {
        self.shape.elements().unwrap_or(0)
    }
}

/// An argument of a kernel, by position in the work's inputs or outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arg {
    Input(usize),
    Output(usize),
}

#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "a work of any kind becomes one of another by fusing")]
pub(crate) enum WorkKind {
    /// The expression over every element of the shape. Operands are the inputs, results the outputs.
    Expr { expr: Expr, shape: Shape },
    /// Computed from the first inputs. With an epilogue, the further inputs are its further operands and its results the outputs.
    /// With a pooling, that follows, and its results are the outputs.
    Anchor { anchor: Anchor, epilogue: Option<Expr>, pooling: Option<Pooling> },
    /// A step of a request, with its arguments.
    Kernel { call: KernelCall, args: Vec<Arg> },
    /// Output 0 is input 0, byte for byte.
    Copy,
    /// The access to a file of the plan's call of this number, on the host, through so many bytes of scratch. Variables among
    /// inputs and outputs are no arguments: they are reached where they are.
    Outside { call: u32, scratch: u64 },
}

#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub kind: WorkKind,
    pub device: DeviceId,
    /// The nodes that it does, the one that it is named after first.
    pub nodes: Vec<NodeId>,
    pub inputs: Vec<View>,
    pub outputs: Vec<ValueId>,
    /// A bool: where it is false when the work's turn comes, the work is passed over. Its results are undefined then, but for
    /// variables, which keep their contents.
    pub guard: Option<ValueId>,
    /// Works that have to be done before, beyond those that define its inputs.
    pub after: Vec<WorkId>,
    /// Fused into another: it is none any more.
    pub gone: bool,
    /// Whether it runs even if its results have no reader.
    pub is_root: bool,
    /// Where it stands among the works in the graph's order; equal ranks go by id.
    pub rank: u32,
}

impl Work {
    /// Whether some elements make it fail.
    pub fn can_fail(&self) -> bool {
        match &self.kind {
            WorkKind::Expr { expr, .. } => expr.can_fail(),
            WorkKind::Anchor { epilogue, .. } => epilogue.as_ref().is_some_and(Expr::can_fail),
            WorkKind::Kernel { call, .. } => call.request.can_fail(),
            WorkKind::Copy => false,
            WorkKind::Outside { .. } => true,
        }
    }

    /// The values that it reads, some of them more than once.
    pub fn reads(&self) -> impl Iterator<Item = ValueId> + '_ {
        self.inputs.iter().map(|view| view.value).chain(self.guard)
    }
}

/// Everything about a signature but order and addresses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lir {
    pub values: IdVec<ValueId, Value>,
    pub works: IdVec<WorkId, Work>,
    pub variables: Vec<PlanVariable>,
    pub constants: Vec<PlanConstant>,
    /// Their elements.
    pub constant_values: Vec<HostTensor>,
    /// The constants of a name on a device.
    constants_by_name: HashMap<(DeviceId, String), Vec<u32>>,
    pub feeds: Vec<PlanFeed>,
    pub fetches: Vec<PlanFetch>,
    pub calls: Vec<PlanCall>,
    pub nodes: Vec<(NodeId, DeviceId)>,
    /// For each value, the version that its variable has next.
    pub next_version: Vec<(ValueId, ValueId)>,
    /// Variables that are initialised by a write that no condition guards, with the version that it defines.
    pub initialized: Vec<(u32, ValueId)>,
}

impl Lir {
    pub fn value(&mut self, device: DeviceId, home: Home, bytes: u64, node: NodeId) -> ValueId {
        self.values.push(Value { device, home, bytes, node, is_copy: false })
    }

    /// A new work, last in rank.
    pub fn work(&mut self, kind: WorkKind, device: DeviceId, nodes: Vec<NodeId>, inputs: Vec<View>, outputs: Vec<ValueId>) -> &mut Work {
        let rank = self.works.len() as u32;
        let (guard, after) = (None, Vec::new());
        let id = self.works.push(Work { kind, device, nodes, inputs, outputs, guard, after, gone: false, is_root: false, rank });
        &mut self.works[id]
    }

    /// The known value of a tensor on `device`.
    pub fn constant(&mut self, value: &HostTensor, device: DeviceId, tensor: Output, name: &str) -> Result<ValueId> {
        let of_name = self.constants_by_name.entry((device, name.to_string())).or_default();
        let same = |index: &&u32| self.constant_values[**index as usize] == *value;
        let bytes = Bytes(value.byte_len());
        let index = match of_name.iter().find(same) {
            Some(index) => *index as usize,
            None => {
                const MAX_DENSE: Bytes = Bytes(1 << 40);
                if bytes > MAX_DENSE {
                    return Err(Error::resource_exhausted(format!("a constant of {} bytes", bytes.0)));
                }
                of_name.push(self.constants.len() as u32);
                let (name, data_type, shape) = (name.to_string(), value.data_type(), value.shape().clone());
                self.constants.push(PlanConstant { tensor, name, data_type, shape, bytes, device: Some(device) });
                self.constant_values.push(value.clone());
                self.constants.len() - 1
            }
        };
        Ok(self.value(device, Home::Constant(index as u32), bytes.0, tensor.node))
    }

    /// For each value, the work that defines it.
    pub fn definitions(&self) -> IdVec<ValueId, Option<WorkId>> {
        let mut definitions = IdVec::filled(None, self.values.len());
        for (id, work) in self.live() {
            for &output in &work.outputs {
                definitions[output] = Some(id);
            }
        }
        definitions
    }

    /// For each value, the works that read it, each once.
    pub fn uses(&self) -> IdVec<ValueId, Vec<WorkId>> {
        let mut uses: IdVec<ValueId, Vec<WorkId>> = IdVec::filled(Vec::new(), self.values.len());
        for (id, work) in self.live() {
            for value in work.reads() {
                if uses[value].last() != Some(&id) {
                    uses[value].push(id);
                }
            }
        }
        uses
    }

    /// Whether the work changes memory that outlives the run.
    pub fn has_effect(&self, work: &Work) -> bool {
        let writes_file = match work.kind {
            WorkKind::Outside { call, .. } => matches!(self.calls[call as usize], PlanCall::Save(_)),
            _ => false,
        };
        writes_file || work.outputs.iter().any(|output| matches!(self.values[*output].home, Home::Variable(_) | Home::Flag(_)))
    }

    /// The works that are still there, in the order of their ids.
    pub fn live(&self) -> impl Iterator<Item = (WorkId, &Work)> {
        self.works.iter().filter(|(_, work)| !work.gone)
    }

    /// Drops works that cannot fail and whose results have no reader.
    pub fn drop_dead(&mut self) {
        let definitions = self.definitions();
        let mut needed: IdVec<WorkId, bool> = IdVec::filled(false, self.works.len());
        let mut stack: Vec<WorkId> = self.live().filter(|(_, work)| work.is_root || work.can_fail()).map(|(id, _)| id).collect();
        while let Some(id) = stack.pop() {
            if !std::mem::replace(&mut needed[id], true) {
                stack.extend(self.works[id].reads().filter_map(|value| definitions[value]));
                stack.extend(&self.works[id].after);
            }
        }
        for (id, work) in self.works.iter_mut() {
            work.gone |= !needed[id];
        }
    }

    /// Every work after those that it needs; among those that are ready the first by rank comes first.
    ///
    /// # Errors
    /// INTERNAL where works form a cycle.
    pub fn topological(&self) -> Result<Vec<WorkId>> {
        let definitions = self.definitions();
        let mut waiting: IdVec<WorkId, usize> = IdVec::filled(0, self.works.len());
        let mut followers: IdVec<WorkId, Vec<WorkId>> = IdVec::filled(Vec::new(), self.works.len());
        for (id, work) in self.live() {
            for before in self.predecessors(work, &definitions) {
                waiting[id] += 1;
                followers[before].push(id);
            }
        }
        let mut ready: BinaryHeap<Reverse<(u32, WorkId)>> =
            self.live().filter(|(id, _)| waiting[*id] == 0).map(|(id, work)| Reverse((work.rank, id))).collect();
        let mut order = Vec::with_capacity(self.works.len());
        while let Some(Reverse((_, id))) = ready.pop() {
            order.push(id);
            for &follower in &followers[id] {
                waiting[follower] -= 1;
                if waiting[follower] == 0 {
                    ready.push(Reverse((self.works[follower].rank, follower)));
                }
            }
        }
        if order.len() != self.live().count() {
            return Err(Error::internal("works of a plan form a cycle"));
        }
        Ok(order)
    }

    /// The works that `work` has to wait for, some of them more than once.
    pub fn predecessors<'a>(
        &'a self,
        work: &'a Work,
        definitions: &'a IdVec<ValueId, Option<WorkId>>,
    ) -> impl Iterator<Item = WorkId> + 'a {
        work.reads().filter_map(|value| definitions[value]).chain(work.after.iter().copied())
    }
}
