//! The LIR: the form between the graph and the queues. Values have a home, and works read and define them.
//!
//! Every value is defined once: by a work, or as a parameter of its region. A variable has a value for each of its versions, all
//! of one home. Version 0 is a parameter, and every write defines the next version. [`verify`] holds the rules, [`text`] prints.

mod edges;
mod followers;
mod ids;
#[cfg(test)]
pub(crate) mod parse;
mod parts;
mod region;
mod sweep;
pub(crate) mod text;
pub(crate) mod verify;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

use plimsoll_base::{Bytes, Error, Panels, Result};
use plimsoll_device::KernelCall;
use plimsoll_graph::id::Id;
use plimsoll_graph::{HostTensor, IdVec, NodeId, Output, Shape};
use plimsoll_request::KernelRequest;
use plimsoll_request::anchor::Anchor;
use plimsoll_request::expr::Expr;

pub(crate) use self::edges::Edges;
pub(crate) use self::followers::Followers;
pub(crate) use self::ids::{CallId, ConstantId, FeedId, FetchId, RegionId, ValueId, VariableId, WorkId};
pub(crate) use self::parts::{PartArg, PartCall, PartCut, PartOf, PartStep, Parts, When};
pub(crate) use self::region::{Region, Trips};
use crate::plan::{DeviceId, PlanCall, PlanConstant, PlanFeed, PlanFetch, PlanVariable, Softened};
use crate::prepare::Prepare;
pub(crate) use plimsoll_ops::fusion::View;

/// Where a value's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Home {
    /// Somewhere in the arena of its device.
    Arena,
    Variable(VariableId),
    /// The byte that says whether a variable was initialised.
    Flag(VariableId),
    Constant(ConstantId),
    Feed(FeedId),
    Fetch(FetchId),
    /// Where the work that holds the region has what it passes as parameter `param`.
    Given {
        region: RegionId,
        param: u32,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct Value {
    pub device: DeviceId,
    /// The region that it belongs to.
    pub region: RegionId,
    pub home: Home,
    pub bytes: u64,
    /// The node that it comes from, for reports.
    pub node: NodeId,
    /// Whether it is a copy of another device's value.
    pub is_copy: bool,
    /// Of a variable, a flag or a value that a loop carries: the version that this one overwrites.
    pub previous: Option<ValueId>,
}

/// An argument of a kernel, by position in the work's inputs or outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arg {
    Input(usize),
    Output(usize),
}

impl Arg {
    /// All inputs, then all outputs.
    pub fn all(inputs: usize, outputs: usize) -> Vec<Arg> {
        (0..inputs).map(Arg::Input).chain((0..outputs).map(Arg::Output)).collect()
    }
}

#[derive(Clone, Debug)]
pub(crate) enum WorkKind {
    /// The expression over every element of the shape. Operands are the inputs, results the outputs.
    Expr { expr: Expr, shape: Shape },
    /// Computed from the first inputs. With an epilogue, the further inputs are its further operands and its results the outputs.
    Anchor { anchor: Anchor, epilogue: Option<Expr> },
    /// A request, with its arguments. No variant is chosen yet.
    Request { request: Arc<KernelRequest>, args: Vec<Arg> },
    /// A step of a variant, with its arguments.
    Kernel { call: KernelCall, args: Vec<Arg> },
    /// Output 0 is input 0, byte for byte.
    Copy,
    /// Reads or writes files on the host, through so many bytes of scratch. Variables among inputs and outputs are no arguments:
    /// they are reached where they are.
    Outside { call: CallId, scratch: u64 },
    /// Runs the body while a condition holds. The inputs are the body's parameters: `carried` values, of which the first is a bool
    /// that says whether there is a first iteration; then values that stay. The body's results are the carried values of the next
    /// iteration. The outputs are the carried values after the last iteration, then versions of variables that the body writes.
    Loop { body: RegionId, carried: usize, trips: Trips },
    /// Works that are done part by part of their rows.
    Parts(Arc<Parts>),
}

impl WorkKind {
    /// A request whose arguments are all inputs, then all outputs.
    pub fn request(request: KernelRequest, inputs: usize, outputs: usize) -> WorkKind {
        WorkKind::Request { request: Arc::new(request), args: Arg::all(inputs, outputs) }
    }
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
    /// Works of the same region that have to be done before, beyond those that define its inputs.
    pub after: Vec<WorkId>,
    /// Whether it runs even if its results have no reader.
    pub is_root: bool,
    /// Whether it is a copy in the device's queue of copies, beside its other works.
    pub is_beside: bool,
    /// Where it stands among the works in the graph's order; equal ranks go by id.
    pub rank: u32,
    /// Its kernel and what that takes, once it is scheduled.
    pub prepared: Option<Prepare>,
}

impl Work {
    /// Whether some elements make it fail.
    pub fn can_fail(&self) -> bool {
        match &self.kind {
            WorkKind::Expr { expr, .. } => expr.can_fail(),
            WorkKind::Anchor { epilogue, .. } => epilogue.as_ref().is_some_and(Expr::can_fail),
            WorkKind::Request { request, .. } => request.can_fail(),
            WorkKind::Kernel { call, .. } => call.request.can_fail(),
            WorkKind::Copy => false,
            WorkKind::Parts(parts) => parts.steps.iter().any(|step| step.call.request.can_fail()),
            WorkKind::Outside { .. } | WorkKind::Loop { .. } => true,
        }
    }

    /// The values that it reads, some of them more than once.
    pub fn reads(&self) -> impl Iterator<Item = ValueId> + '_ {
        self.inputs.iter().map(|view| view.value).chain(self.guard)
    }

    /// The values that it reads, each once, ascending.
    pub fn reads_once(&self) -> Vec<ValueId> {
        let mut values: Vec<ValueId> = self.reads().collect();
        values.sort_unstable();
        values.dedup();
        values
    }

    /// Bytes of scratch on its own device; 0 until it is scheduled.
    pub fn scratch(&self) -> u64 {
        self.prepared.as_ref().map_or(0, Prepare::scratch)
    }

    /// Predicted seconds; 0 until it is scheduled.
    pub fn seconds(&self) -> f64 {
        self.prepared.as_ref().map_or(0.0, |prepared| prepared.seconds)
    }

    /// Of a loop, how often its body runs.
    pub fn trips(&self) -> Option<Trips> {
        match self.kind {
            WorkKind::Loop { trips, .. } => Some(trips),
            _ => None,
        }
    }

    /// The regions that it holds.
    pub fn regions(&self) -> &[RegionId] {
        match &self.kind {
            WorkKind::Loop { body, .. } => std::slice::from_ref(body),
            _ => &[],
        }
    }
}

/// Everything about a signature but addresses.
#[derive(Clone, Debug)]
pub(crate) struct Lir {
    pub values: IdVec<ValueId, Value>,
    /// The works of all regions.
    pub works: IdVec<WorkId, Work>,
    /// The first is the plan's own.
    pub regions: IdVec<RegionId, Region>,
    /// The region at hand: what is added is added to it, and what is asked is asked of it.
    here: RegionId,
    pub variables: IdVec<VariableId, PlanVariable>,
    pub constants: IdVec<ConstantId, PlanConstant>,
    /// Their elements.
    pub constant_values: IdVec<ConstantId, HostTensor>,
    /// The constants of a name on a device.
    constants_by_name: HashMap<(DeviceId, String), Vec<ConstantId>>,
    pub feeds: IdVec<FeedId, PlanFeed>,
    pub fetches: IdVec<FetchId, PlanFetch>,
    pub calls: IdVec<CallId, PlanCall>,
    pub nodes: Vec<(NodeId, DeviceId)>,
    /// Variables that are initialised by a write that no condition guards, with the version that it defines.
    pub initialized: Vec<(VariableId, ValueId)>,
    /// Nodes that the host computes in place of their device, in the graph's order.
    pub softened: Vec<Softened>,
    /// The fusions so far, in order.
    pub fusions: Vec<Applied>,
}

/// A fusion that has been applied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Applied {
    pub name: &'static str,
    /// The node of the work where its pattern was found.
    pub node: NodeId,
}

impl Lir {
    /// A plan's own region without works.
    pub fn new() -> Lir {
        let mut regions = IdVec::new();
        regions.push(Region::default());
        Lir {
            values: IdVec::new(),
            works: IdVec::new(),
            regions,
            here: RegionId::from_index(0),
            variables: IdVec::new(),
            constants: IdVec::new(),
            constant_values: IdVec::new(),
            constants_by_name: HashMap::new(),
            feeds: IdVec::new(),
            fetches: IdVec::new(),
            calls: IdVec::new(),
            nodes: Vec::new(),
            initialized: Vec::new(),
            softened: Vec::new(),
            fusions: Vec::new(),
        }
    }

    /// The region at hand.
    pub fn region(&self) -> &Region {
        &self.regions[self.here]
    }

    /// The region at hand, to change.
    pub fn region_mut(&mut self) -> &mut Region {
        &mut self.regions[self.here]
    }

    /// The number of the region at hand.
    pub fn here(&self) -> RegionId {
        self.here
    }

    /// From now on another region is at hand. The one before.
    pub fn enter(&mut self, region: RegionId) -> RegionId {
        std::mem::replace(&mut self.here, region)
    }

    /// Calls `change` with each region at hand, those that works hold before the regions of these works.
    ///
    /// # Errors
    /// The first error of `change`.
    pub fn each_region(&mut self, mut change: impl FnMut(&mut Lir) -> Result<()>) -> Result<()> {
        let own = self.here;
        for region in self.regions.ids().rev() {
            self.enter(region);
            change(self)?;
        }
        self.enter(own);
        Ok(())
    }

    /// The ids of the region's works.
    pub fn ids(&self) -> Vec<WorkId> {
        self.region().works.clone()
    }

    /// The region's works, as it has them.
    pub fn all(&self) -> impl Iterator<Item = (WorkId, &Work)> {
        self.region().works.iter().map(|id| (*id, &self.works[*id]))
    }

    /// A value that a work will define.
    pub fn value(&mut self, device: DeviceId, home: Home, bytes: u64, node: NodeId) -> ValueId {
        self.values.push(Value { device, region: self.here, home, bytes, node, is_copy: false, previous: None })
    }

    /// A value that is there when the region starts.
    pub fn param(&mut self, device: DeviceId, home: Home, bytes: u64, node: NodeId) -> ValueId {
        let value = self.value(device, home, bytes, node);
        self.region_mut().params.push(value);
        value
    }

    /// The next version of a variable or a flag.
    pub fn next_version(&mut self, old: ValueId, node: NodeId) -> ValueId {
        let next = Value { node, region: self.here, previous: Some(old), ..self.values[old].clone() };
        self.values.push(next)
    }

    /// Pairs of versions of a variable or a flag: what is overwritten, and what overwrites it.
    pub fn versions(&self) -> impl Iterator<Item = (ValueId, ValueId)> {
        self.values.iter().filter_map(|(new, value)| Some((value.previous?, new)))
    }

    /// A new work of the region, last in rank.
    pub fn work(&mut self, kind: WorkKind, device: DeviceId, nodes: Vec<NodeId>, inputs: Vec<View>, outputs: Vec<ValueId>) -> WorkId {
        let rank = self.works.len() as u32;
        let (guard, after, prepared) = (None, Vec::new(), None);
        let id =
            self.works.push(Work { kind, device, nodes, inputs, outputs, guard, after, is_root: false, is_beside: false, rank, prepared });
        self.region_mut().works.push(id);
        id
    }

    /// The known value of a tensor on `device`.
    pub fn constant(&mut self, value: &HostTensor, device: DeviceId, tensor: Output, name: &str) -> Result<ValueId> {
        self.constant_in(None, value, device, tensor, name)
    }

    /// As [`Lir::constant`], for works that read it in panels.
    pub fn constant_in(
        &mut self,
        panels: Option<Panels>,
        value: &HostTensor,
        device: DeviceId,
        tensor: Output,
        name: &str,
    ) -> Result<ValueId> {
        let of_name = self.constants_by_name.entry((device, name.to_string())).or_default();
        let bytes = Bytes(value.byte_len());
        let is_it = |id: &&ConstantId| self.constants[**id].panels == panels && self.constant_values[**id] == *value;
        let id = match of_name.iter().find(is_it) {
            Some(id) => *id,
            None => {
                const MAX_DENSE: Bytes = Bytes(1 << 40);
                if bytes > MAX_DENSE {
                    return Err(Error::resource_exhausted(format!("a constant of {} bytes", bytes.0)));
                }
                let (name, data_type, shape) = (name.to_string(), value.data_type(), value.shape().clone());
                let id = self.constants.push(PlanConstant { tensor, name, data_type, shape, bytes, device: Some(device), panels });
                self.constant_values.push(value.clone());
                of_name.push(id);
                id
            }
        };
        Ok(self.param(device, Home::Constant(id), bytes.0, tensor.node))
    }

    /// The devices whose queues have a work: its own, and of a loop those of its body.
    pub fn devices<'a>(&'a self, work: &'a Work) -> impl Iterator<Item = DeviceId> + 'a {
        let partners = work.regions().iter().flat_map(|region| self.regions[*region].partners.iter().copied());
        std::iter::once(work.device).chain(partners)
    }

    /// Whether the queues of several devices have a work.
    pub fn is_shared(&self, work: &Work) -> bool {
        self.devices(work).nth(1).is_some()
    }

    /// Bytes of scratch that a work takes of a device; 0 until it is scheduled.
    pub fn scratch(&self, work: &Work, device: DeviceId) -> u64 {
        match work.kind {
            _ if device == work.device => work.scratch(),
            WorkKind::Loop { body, .. } => self.regions[body].takes(device),
            _ => 0,
        }
    }

    /// The work that holds a region.
    pub fn holder(&self, region: RegionId) -> Option<WorkId> {
        self.works.iter().find(|(_, work)| work.regions().contains(&region)).map(|(id, _)| id)
    }

    /// The works that hold a region, from the innermost one on.
    pub fn around(&self, region: RegionId) -> impl Iterator<Item = WorkId> + '_ {
        // The outputs of a work are values of its region.
        let outer = |holder: WorkId| self.works[holder].outputs.first().and_then(|output| self.holder(self.values[*output].region));
        std::iter::successors(self.holder(region), move |holder| outer(*holder))
    }

    /// The parameters of a region that the work that holds it passes, in order.
    pub fn passed(&self, region: RegionId) -> impl Iterator<Item = ValueId> + '_ {
        let params = self.regions[region].params.iter().copied();
        params.filter(|param| matches!(self.values[*param].home, Home::Given { .. }))
    }

    /// For each value of the region, the work that defines it.
    pub fn definitions(&self) -> IdVec<ValueId, Option<WorkId>> {
        self.definitions_in(self.here)
    }

    fn definitions_in(&self, region: RegionId) -> IdVec<ValueId, Option<WorkId>> {
        let mut definitions = IdVec::filled(None, self.values.len());
        for &id in &self.regions[region].works {
            for &output in &self.works[id].outputs {
                definitions[output] = Some(id);
            }
        }
        definitions
    }

    /// For each value of the region, the works that read it, each once.
    pub fn uses(&self) -> IdVec<ValueId, Vec<WorkId>> {
        let mut uses: IdVec<ValueId, Vec<WorkId>> = IdVec::filled(Vec::new(), self.values.len());
        for (id, work) in self.all() {
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
            WorkKind::Outside { call, .. } => matches!(self.calls[call], PlanCall::Save(_)),
            _ => false,
        };
        writes_file
            || work.outputs.iter().any(|output| matches!(self.values[*output].home, Home::Variable(_) | Home::Flag(_) | Home::Given { .. }))
    }

    /// Drops works that cannot fail and whose results have no reader.
    ///
    /// # Errors
    /// As [`Lir::retain`].
    pub fn drop_dead(&mut self) -> Result<()> {
        let definitions = self.definitions();
        let mut needed: IdVec<WorkId, bool> = IdVec::filled(false, self.works.len());
        let mut stack: Vec<WorkId> = self.all().filter(|(_, work)| work.is_root || work.can_fail()).map(|(id, _)| id).collect();
        while let Some(id) = stack.pop() {
            if !std::mem::replace(&mut needed[id], true) {
                stack.extend(self.works[id].reads().filter_map(|value| definitions[value]));
                stack.extend(&self.works[id].after);
            }
        }
        self.retain(|id| needed[id])
    }

    /// Removes the other works of the region, and values that are left without definition and reader. The works that
    /// stay keep their order and get new ids.
    ///
    /// # Errors
    /// INTERNAL where a work that stays waits for one that is removed.
    pub fn retain(&mut self, keep: impl Fn(WorkId) -> bool) -> Result<()> {
        let mut removed: IdVec<WorkId, bool> = IdVec::filled(false, self.works.len());
        self.region().works.iter().for_each(|id| removed[*id] = !keep(*id));
        if !removed.values().any(|removed| *removed) {
            return Ok(());
        }
        if self.works.iter().any(|(id, work)| !removed[id] && work.after.iter().any(|before| removed[*before])) {
            return Err(Error::internal("a work waits for one that is removed"));
        }
        let mut new_works: IdVec<WorkId, Option<WorkId>> = IdVec::new();
        let mut works: IdVec<WorkId, Work> = IdVec::new();
        for (id, work) in removed.ids().zip(std::mem::take(&mut self.works).into_values()) {
            new_works.push((!removed[id]).then(|| works.push(work)));
        }
        let renumbered = |ids: &[WorkId]| ids.iter().filter_map(|id| new_works[*id]).collect::<Vec<_>>();
        works.values_mut().for_each(|work| work.after = renumbered(&work.after));
        self.regions.values_mut().for_each(|region| region.works = renumbered(&region.works));
        self.works = works;
        self.drop_values();
        Ok(())
    }

    /// Removes constants that no work reads from the parameters of the region.
    pub fn drop_unread_constants(&mut self) {
        let (uses, values) = (self.uses(), &self.values);
        let is_needed = |param: &ValueId| !uses[*param].is_empty() || !matches!(values[*param].home, Home::Constant(_));
        self.regions[self.here].params.retain(is_needed);
        self.drop_values();
    }

    /// Removes values that nothing defines and nothing reads.
    fn drop_values(&mut self) {
        let mut named: IdVec<ValueId, bool> = IdVec::filled(false, self.values.len());
        let of_works = self.works.values().flat_map(|work| work.reads().chain(work.outputs.iter().copied()));
        let of_regions = self.regions.values().flat_map(|region| region.params.iter().chain(&region.results)).copied();
        of_works.chain(of_regions).for_each(|value| named[value] = true);
        let mut new: IdVec<ValueId, Option<ValueId>> = IdVec::new();
        let mut values: IdVec<ValueId, Value> = IdVec::new();
        for (id, value) in named.ids().zip(std::mem::take(&mut self.values).into_values()) {
            new.push(named[id].then(|| values.push(value)));
        }
        values.values_mut().for_each(|value| value.previous = value.previous.and_then(|previous| new[previous]));
        let at = |value: &mut ValueId| *value = new[*value].unwrap_or(*value);
        for work in self.works.values_mut() {
            work.inputs.iter_mut().map(|view| &mut view.value).chain(&mut work.outputs).chain(&mut work.guard).for_each(at);
        }
        self.regions.values_mut().for_each(|region| region.params.iter_mut().chain(&mut region.results).for_each(at));
        self.initialized = self.initialized.iter().filter_map(|(variable, version)| Some((*variable, new[*version]?))).collect();
        self.values = values;
    }

    /// Every work after those that it needs; among those that are ready the first by rank comes first.
    ///
    /// # Errors
    /// INTERNAL where works form a cycle.
    pub fn topological(&self) -> Result<Vec<WorkId>> {
        self.topological_in(self.here)
    }

    /// As [`Lir::topological`], of a region that need not be at hand.
    ///
    /// # Errors
    /// As [`Lir::topological`].
    pub fn topological_in(&self, region: RegionId) -> Result<Vec<WorkId>> {
        self.topological_of(&self.regions[region].works, &self.definitions_in(region))
    }

    /// As [`Lir::topological`], of these works of a region.
    ///
    /// # Errors
    /// As [`Lir::topological`].
    pub fn topological_of(&self, works: &[WorkId], definitions: &IdVec<ValueId, Option<WorkId>>) -> Result<Vec<WorkId>> {
        let all = || works.iter().map(|id| (*id, &self.works[*id]));
        let mut followers = Followers::new(self, works, definitions);
        let mut waiting = std::mem::take(&mut followers.waiting);
        let mut ready: BinaryHeap<Reverse<(u32, WorkId)>> =
            all().filter(|(id, _)| waiting[*id] == 0).map(|(id, work)| Reverse((work.rank, id))).collect();
        let mut order = Vec::with_capacity(works.len());
        while let Some(Reverse((_, id))) = ready.pop() {
            order.push(id);
            for &follower in followers.of(id) {
                waiting[follower] -= 1;
                if waiting[follower] == 0 {
                    ready.push(Reverse((self.works[follower].rank, follower)));
                }
            }
        }
        if order.len() != works.len() {
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
