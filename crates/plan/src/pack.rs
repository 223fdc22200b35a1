//! From an order to queues: live ranges, offsets, waits.

use std::collections::HashMap;
use std::sync::Arc;

use plimsoll_base::{Bytes, Result};
use plimsoll_device::{BufferRef, Command, Place, Program, Wait, Work as Call};
use plimsoll_graph::IdVec;
use plimsoll_graph::id::Id;
use plimsoll_memory::layout::{self, Buffer};

use crate::Request;
use crate::lir::{Arg, Home, Lir, ValueId, WorkId, WorkKind};
use crate::order::Schedule;
use crate::plan::{Certainty, DeviceId, DevicePlan, Plan, Queue, Region};
use crate::report::{PeakMoment, peak_parts};

/// Where a work stands: `(queue, position in it)`.
type Slot = (usize, usize);

/// The works of one device, in order.
pub(crate) struct Lane {
    pub device: DeviceId,
    pub works: Vec<WorkId>,
    /// For each work, how many commands of every queue have finished when it starts.
    clocks: Vec<Vec<u32>>,
    waits: Vec<Vec<Wait>>,
}

pub(crate) fn pack(request: &Request<'_>, mut lir: Lir, schedule: Schedule) -> Result<Plan> {
    settle_constants(&mut lir);
    let (mut lanes, slots) = lanes(&lir, &schedule);
    set_waits(&lir, &schedule, &mut lanes, &slots);
    let lifetimes = lifetimes(&lir, &lanes, &slots);
    let mut offsets: IdVec<ValueId, u64> = IdVec::filled(0, lir.values.len());
    let mut queues = Vec::new();
    let mut devices: Vec<DevicePlan> = request
        .devices
        .iter()
        .map(|spec| DevicePlan {
            name: spec.name.to_string(),
            limit: spec.memory_limit,
            machine: spec.machine,
            peak: Default::default(),
            certainty: Certainty::Exact,
            arena: Bytes::ZERO,
            holders: Vec::new(),
        })
        .collect();
    let mut moments: Vec<PeakMoment> = vec![PeakMoment::default(); devices.len()];
    let mut packed = Vec::with_capacity(lanes.len());
    for lane in &lanes {
        let spec = &request.devices[lane.device.index()];
        let lane_packed = pack_lane(&lir, &schedule, lane, &lifetimes, spec.alignment, &mut offsets);
        devices[lane.device.index()].arena = spec.reserved(Bytes(lane_packed.bytes));
        moments[lane.device.index()] = lane_packed.moment.clone();
        packed.push(lane_packed);
    }
    for (lane, lane_packed) in lanes.iter().zip(&packed) {
        let program = program(request, &lir, &schedule, lane, lane_packed, &offsets);
        let seconds = lane.works.iter().map(|id| schedule.prepared[*id].as_ref().map_or(0.0, |prepare| prepare.seconds)).collect();
        let nodes = lane.works.iter().map(|id| lir.works[*id].nodes.clone()).collect();
        let bytes = lane.works.iter().map(|id| traffic(&lir, *id)).collect();
        queues.push(Queue { device: lane.device, program: Arc::new(program), seconds, nodes, bytes });
    }
    note_assignments(&mut lir, &slots);
    for (index, device) in devices.iter_mut().enumerate() {
        peak_parts(request, &lir, DeviceId::from_index(index), &moments[index], device);
    }
    let mut plan = Plan {
        feeds: lir.feeds,
        fetches: lir.fetches,
        calls: lir.calls,
        variables: lir.variables,
        constants: lir.constants,
        values: lir.constant_values,
        devices,
        host: request.placement.host,
        region: Region::Static(queues),
        nodes: lir.nodes,
        seconds: 0.0,
    };
    plan.seconds = plan.on_the_clock(request.devices, |_, _| true).makespan;
    Ok(plan)
}

/// Keeps the constants that works read; those that are only copied somewhere stay in the graph's memory.
fn settle_constants(lir: &mut Lir) {
    let mut kept: HashMap<u32, bool> = HashMap::new();
    for (_, work) in lir.live() {
        for view in &work.inputs {
            if let Home::Constant(index) = lir.values[view.value].home {
                *kept.entry(index).or_default() |= !matches!(work.kind, WorkKind::Copy | WorkKind::Outside { .. });
            }
        }
    }
    let mut renumbered: HashMap<u32, u32> = HashMap::new();
    let mut constants = Vec::with_capacity(kept.len());
    let mut values = Vec::with_capacity(kept.len());
    for (index, constant) in lir.constants.iter().enumerate() {
        let Some(is_read) = kept.get(&(index as u32)) else { continue };
        renumbered.insert(index as u32, constants.len() as u32);
        let mut constant = constant.clone();
        constant.device = constant.device.filter(|_| *is_read);
        constants.push(constant);
        values.push(lir.constant_values[index].clone());
    }
    for (_, value) in lir.values.iter_mut() {
        if let Home::Constant(index) = &mut value.home
            && let Some(new) = renumbered.get(index)
        {
            *index = *new;
        }
    }
    (lir.constants, lir.constant_values) = (constants, values);
}

fn lanes(lir: &Lir, schedule: &Schedule) -> (Vec<Lane>, IdVec<WorkId, Slot>) {
    let mut lanes: Vec<Lane> = Vec::new();
    let mut slots = IdVec::filled((0, 0), lir.works.len());
    let works = || schedule.order.iter().map(|id| &lir.works[*id]);
    let made = works().flat_map(|work| &work.outputs).map(|output| &lir.values[*output]).filter(|value| value.home == Home::Arena);
    let mut devices: Vec<DeviceId> = made.map(|value| value.device).chain(works().map(|work| work.device)).collect();
    devices.sort_unstable();
    devices.dedup();
    for device in devices {
        let works: Vec<WorkId> = schedule.order.iter().copied().filter(|id| lir.works[*id].device == device).collect();
        for (position, id) in works.iter().enumerate() {
            slots[*id] = (lanes.len(), position);
        }
        lanes.push(Lane { device, works, clocks: Vec::new(), waits: Vec::new() });
    }
    (lanes, slots)
}

/// Waits for values of other queues, left out where an earlier wait covers them.
fn set_waits(lir: &Lir, schedule: &Schedule, lanes: &mut [Lane], slots: &IdVec<WorkId, Slot>) {
    let definitions = lir.definitions();
    let count = lanes.len();
    let mut now: Vec<Vec<u32>> = vec![vec![0; count]; count];
    for &id in &schedule.order {
        let (queue, position) = slots[id];
        let mut clock = std::mem::take(&mut now[queue]);
        let mut needed = vec![0u32; count];
        for before in lir.predecessors(&lir.works[id], &definitions) {
            let (other, at) = slots[before];
            if other != queue {
                needed[other] = needed[other].max(at as u32 + 1);
            }
        }
        let mut waits = Vec::new();
        for (other, &commands) in needed.iter().enumerate() {
            if clock[other] < commands {
                waits.push(Wait { queue: other as u32, commands });
            }
        }
        for wait in &waits {
            let (other, at) = (wait.queue as usize, wait.commands as usize - 1);
            // When that command started, all this was done; and it has finished itself.
            let seen = lanes[other].clocks[at].clone();
            clock.iter_mut().zip(seen).for_each(|(mine, theirs)| *mine = (*mine).max(theirs));
            clock[other] = clock[other].max(wait.commands);
        }
        lanes[queue].clocks.push(clock.clone());
        lanes[queue].waits.push(waits);
        clock[queue] = position as u32 + 1;
        now[queue] = clock;
    }
}

/// When the bytes of a value in an arena are needed, in positions of its device's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lifetime {
    first: u32,
    last: u32,
    /// From this position on no other queue can be reading them.
    unread_elsewhere: u32,
}

fn lifetimes(lir: &Lir, lanes: &[Lane], slots: &IdVec<WorkId, Slot>) -> IdVec<ValueId, Option<Lifetime>> {
    let mut lifetimes: IdVec<ValueId, Option<Lifetime>> = IdVec::filled(None, lir.values.len());
    for (queue, lane) in lanes.iter().enumerate() {
        for (position, id) in lane.works.iter().enumerate() {
            for output in &lir.works[*id].outputs {
                if lir.values[*output].home == Home::Arena {
                    let owner = lanes.iter().position(|lane| lane.device == lir.values[*output].device).unwrap_or(queue);
                    // A buffer written by another queue is live from the last command of its owner's queue that is guaranteed to
                    // have finished before that write.
                    let first = if owner == queue { position as u32 } else { lane.clocks[position][owner].saturating_sub(1) };
                    lifetimes[*output] = Some(Lifetime { first, last: first, unread_elsewhere: 0 });
                }
            }
            debug_assert_eq!(slots[*id], (queue, position));
        }
    }
    for (queue, lane) in lanes.iter().enumerate() {
        for (position, id) in lane.works.iter().enumerate() {
            for value in lir.works[*id].reads() {
                let Some(mut lifetime) = lifetimes[value] else { continue };
                let owner = lanes.iter().position(|lane| lane.device == lir.values[value].device).expect("it is defined there");
                if owner == queue {
                    lifetime.last = lifetime.last.max(position as u32);
                } else {
                    // Until the owner's queue has waited for this one to be past the copy, or to the end.
                    let done = position as u32 + 1;
                    let free = lanes[owner].clocks.partition_point(|clock| clock[queue] < done) as u32;
                    lifetime.unread_elsewhere = lifetime.unread_elsewhere.max(free);
                    lifetime.last = lifetime.last.max(free.saturating_sub(1));
                }
                lifetimes[value] = Some(lifetime);
            }
        }
    }
    lifetimes
}

pub(crate) struct PackedLane {
    /// Bytes of values and scratch.
    bytes: u64,
    /// For each work, where its scratch begins.
    scratch: Vec<Option<u64>>,
    moment: PeakMoment,
}

fn pack_lane(
    lir: &Lir,
    schedule: &Schedule,
    lane: &Lane,
    lifetimes: &IdVec<ValueId, Option<Lifetime>>,
    align: u64,
    offsets: &mut IdVec<ValueId, u64>,
) -> PackedLane {
    let mut groups = InPlace::new(lir, schedule, lane, lifetimes);
    let mut buffers: Vec<Buffer> = Vec::new();
    let mut of_group: HashMap<ValueId, usize> = HashMap::new();
    let mut values: Vec<(ValueId, usize)> = Vec::new();
    for &id in &schedule.order {
        for &output in lir.works[id].outputs.iter().filter(|output| lir.values[**output].device == lane.device) {
            let Some(Lifetime { first, last, .. }) = lifetimes[output] else { continue };
            let root = groups.root(output);
            let buffer = *of_group.entry(root).or_insert_with(|| {
                buffers.push(Buffer { first, last, bytes: lir.values[output].bytes, align });
                buffers.len() - 1
            });
            buffers[buffer].first = buffers[buffer].first.min(first);
            buffers[buffer].last = buffers[buffer].last.max(last);
            values.push((output, buffer));
        }
    }
    let value_buffers = buffers.len();
    let mut scratch_buffers: Vec<Option<usize>> = Vec::with_capacity(lane.works.len());
    for (position, id) in lane.works.iter().enumerate() {
        let bytes = schedule.prepared[*id].as_ref().map_or(0, |prepare| prepare.scratch());
        scratch_buffers.push((bytes > 0).then(|| {
            buffers.push(Buffer { first: position as u32, last: position as u32, bytes, align });
            buffers.len() - 1
        }));
    }
    let layout = layout::pack(&buffers);
    for (value, buffer) in &values {
        offsets[*value] = layout.offsets[*buffer];
    }
    let moment = PeakMoment::find(lir, lane, &buffers, value_buffers, &values);
    PackedLane {
        bytes: Bytes(layout.peak).round_up(64).0,
        scratch: scratch_buffers.iter().map(|buffer| buffer.map(|buffer| layout.offsets[buffer])).collect(),
        moment,
    }
}

/// Values that share their bytes: a result is written where an operand lies, if this is the operand's last reader.
struct InPlace {
    parents: HashMap<ValueId, ValueId>,
}

impl InPlace {
    fn new(lir: &Lir, schedule: &Schedule, lane: &Lane, lifetimes: &IdVec<ValueId, Option<Lifetime>>) -> InPlace {
        let mut shared = InPlace { parents: HashMap::new() };
        for (position, id) in lane.works.iter().enumerate() {
            let work = &lir.works[*id];
            let plain = match &work.kind {
                WorkKind::Expr { .. } | WorkKind::Anchor { .. } => true,
                WorkKind::Kernel { args, .. } => args.first() != Some(&Arg::Output(0)),
                WorkKind::Copy | WorkKind::Outside { .. } => false,
            };
            let Some(kernel) = schedule.prepared[*id].as_ref().and_then(|prepare| prepare.kernel.as_ref()).filter(|_| plain) else {
                continue;
            };
            let inputs: Vec<usize> = match &work.kind {
                WorkKind::Kernel { args, .. } => {
                    args.iter().filter_map(|arg| if let Arg::Input(input) = arg { Some(*input) } else { None }).collect()
                }
                _ => (0..work.inputs.len()).collect(),
            };
            let mut taken: Vec<ValueId> = Vec::new();
            for &(input, output) in &kernel.step().in_place {
                let (source, target) = (work.inputs[inputs[input]].value, work.outputs[output]);
                let at = position as u32;
                let dies_here = lifetimes[source].is_some_and(|lifetime| lifetime.last == at && lifetime.unread_elsewhere <= at);
                let read_once = work.inputs.iter().filter(|view| view.value == source).count() == 1;
                let fits = lir.values[source].bytes == lir.values[target].bytes
                    && lifetimes[target].is_some()
                    && lir.values[source].device == lane.device;
                if dies_here && read_once && fits && !taken.contains(&source) && !taken.contains(&target) {
                    taken.extend([source, target]);
                    let root = shared.root(source);
                    shared.parents.insert(target, root);
                }
            }
        }
        shared
    }

    fn root(&mut self, value: ValueId) -> ValueId {
        let mut root = value;
        while let Some(parent) = self.parents.get(&root) {
            root = *parent;
        }
        root
    }
}

fn program(
    request: &Request<'_>,
    lir: &Lir,
    schedule: &Schedule,
    lane: &Lane,
    packed: &PackedLane,
    offsets: &IdVec<ValueId, u64>,
) -> Program {
    let device = lane.device.index() as u32;
    let buffer = |id: ValueId| {
        let value = &lir.values[id];
        let place = match value.home {
            Home::Arena => Place::Arena(value.device.index() as u32),
            Home::Variable(index) => Place::Variable(index),
            Home::Flag(index) => Place::VariableFlag(index),
            Home::Constant(index) => Place::Constant(index),
            Home::Feed(index) => Place::Feed(index),
            Home::Fetch(index) => Place::Fetch(index),
        };
        BufferRef { place, offset: if value.home == Home::Arena { offsets[id] } else { 0 }, bytes: value.bytes }
    };
    let mut commands = Vec::with_capacity(lane.works.len());
    for (position, &id) in lane.works.iter().enumerate() {
        let work = &lir.works[id];
        let inputs = work.inputs.iter().map(|view| buffer(view.value));
        let outputs = work.outputs.iter().map(|output| buffer(*output));
        let prepare = schedule.prepared[id].as_ref();
        let (kernel, shared, slices) = prepare.map_or((None, 0, 0), |prepare| (prepare.kernel.clone(), prepare.shared, prepare.slices));
        let args: Vec<BufferRef> = match &work.kind {
            WorkKind::Kernel { args, .. } => {
                let (inputs, outputs): (Vec<_>, Vec<_>) = (inputs.collect(), outputs.collect());
                args.iter().map(|arg| if let Arg::Input(input) = arg { inputs[*input] } else { outputs[arg.index()] }).collect()
            }
            WorkKind::Outside { .. } => inputs.chain(outputs).filter(|arg| !matches!(arg.place, Place::Variable(_))).collect(),
            _ => inputs.chain(outputs).collect(),
        };
        let call = match work.kind {
            // It writes variables alone.
            WorkKind::Outside { call, .. } => Call::Outside { call, inputs: args.len() as u32 },
            _ => kernel.map_or(Call::Copy, Call::Kernel),
        };
        let scratch = |skipped: u64, bytes: u64| {
            let offset = packed.scratch[position].filter(|_| bytes > 0)? + skipped;
            Some(BufferRef { place: Place::Arena(device), offset, bytes })
        };
        commands.push(Command {
            work: call,
            args,
            scratch: scratch(0, shared),
            worker_scratch: scratch(shared, slices),
            guard: work.guard.map(buffer),
            waits: lane.waits[position].clone(),
            label: label(request, work),
        });
    }
    Program { commands }
}

/// Bytes of a work's inputs, each value once, and of its outputs.
fn traffic(lir: &Lir, id: WorkId) -> (u64, u64) {
    let work = &lir.works[id];
    let mut read: Vec<ValueId> = work.inputs.iter().map(|view| view.value).collect();
    read.sort_unstable();
    read.dedup();
    let bytes = |values: &[ValueId]| values.iter().map(|value| lir.values[*value].bytes).sum();
    (bytes(&read), bytes(&work.outputs))
}

impl Arg {
    fn index(self) -> usize {
        match self {
            Arg::Input(index) | Arg::Output(index) => index,
        }
    }
}

fn label(request: &Request<'_>, work: &crate::lir::Work) -> Arc<str> {
    let name = &request.graph.node(work.nodes[0]).name;
    match work.nodes.len() {
        1 => name.as_str().into(),
        more => format!("{name} (+{})", more - 1).into(),
    }
}

/// Fills in which commands initialise variables.
fn note_assignments(lir: &mut Lir, slots: &IdVec<WorkId, Slot>) {
    let definitions = lir.definitions();
    for &(variable, version) in &lir.initialized {
        let work = definitions[version];
        lir.variables[variable as usize].assigned_by = work.map(|work| (slots[work].0 as u32, slots[work].1 as u32));
    }
}
