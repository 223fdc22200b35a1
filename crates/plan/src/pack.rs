//! From an order to queues: addresses for what is live, and commands.

use std::collections::HashMap;
use std::sync::Arc;

use plimsoll_base::{Bytes, Result};
use plimsoll_device::{BufferRef, Command, DeviceSpec, Place, Program, Work as Call};
use plimsoll_graph::id::Id;
use plimsoll_graph::{Graph, IdVec, NodeId};
use plimsoll_memory::layout;

use crate::Request;
use crate::lir::{Arg, ConstantId, Home, Lir, ValueId, WorkId, WorkKind};
use crate::live::{Arena, Lane, Live, Slot};
use crate::plan::{Certainty, DeviceId, DevicePlan, Plan, Queue, Region};
use crate::report::{PeakMoment, peak_parts};

pub(crate) fn pack(request: &Request<'_>, mut lir: Lir) -> Result<Plan> {
    settle_constants(&mut lir);
    let Live { lanes, slots, arenas } = Live::new(&lir, &lir.top().works, request.devices);
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
            packed: Bytes::ZERO,
            live: Bytes::ZERO,
            holders: Vec::new(),
        })
        .collect();
    let mut moments: Vec<PeakMoment> = vec![PeakMoment::default(); devices.len()];
    let mut packed = Vec::with_capacity(lanes.len());
    for (lane, arena) in lanes.iter().zip(&arenas) {
        let (index, spec) = (lane.device.index(), &request.devices[lane.device.index()]);
        let addresses = addresses(arena, spec, &mut offsets);
        (devices[index].packed, devices[index].live) = (addresses.bytes, arena.peak());
        devices[index].arena = spec.reserved(addresses.bytes);
        moments[index] = PeakMoment::find(&lir, arena);
        packed.push(addresses);
    }
    for (lane, addresses) in lanes.iter().zip(&packed) {
        let program = program(request, &lir, lane, addresses, &offsets);
        let seconds = lane.works.iter().map(|id| lir.works[*id].seconds()).collect();
        let nodes = lane.works.iter().map(|id| lir.works[*id].nodes.clone()).collect();
        let bytes = lane.works.iter().map(|id| traffic(&lir, *id)).collect();
        queues.push(Queue { device: lane.device, program: Arc::new(program), seconds, nodes, bytes });
    }
    note_assignments(&mut lir, &slots);
    for (index, device) in devices.iter_mut().enumerate() {
        peak_parts(request, &lir, DeviceId::from_index(index), &moments[index], device);
    }
    let mut plan = Plan {
        feeds: lir.feeds.into_values(),
        fetches: lir.fetches.into_values(),
        calls: lir.calls.into_values(),
        variables: lir.variables.into_values(),
        constants: lir.constants.into_values(),
        values: lir.constant_values.into_values(),
        devices,
        host: request.placement.host,
        region: Region::Static(queues),
        nodes: lir.nodes,
        softened: lir.softened,
        costs: request.costs.fingerprint().to_string(),
        seconds: 0.0,
        later: None,
    };
    plan.seconds = plan.on_the_clock(request.devices, |_, _| true).makespan;
    Ok(plan)
}

/// Keeps the constants that works read; those that are only copied somewhere stay in the graph's memory.
fn settle_constants(lir: &mut Lir) {
    let mut kept: HashMap<ConstantId, bool> = HashMap::new();
    for (_, work) in lir.all() {
        for view in &work.inputs {
            if let Home::Constant(index) = lir.values[view.value].home {
                *kept.entry(index).or_default() |= !matches!(work.kind, WorkKind::Copy | WorkKind::Outside { .. });
            }
        }
    }
    let mut renumbered: HashMap<ConstantId, ConstantId> = HashMap::new();
    let (mut constants, mut values) = (IdVec::new(), IdVec::new());
    for (index, constant) in lir.constants.iter() {
        let Some(is_read) = kept.get(&index) else { continue };
        let mut constant = constant.clone();
        constant.device = constant.device.filter(|_| *is_read);
        renumbered.insert(index, constants.push(constant));
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

/// The addresses of an arena.
struct Addresses {
    /// Bytes of values and scratch.
    bytes: Bytes,
    /// For each work, where its scratch begins.
    scratch: Vec<Option<u64>>,
}

fn addresses(arena: &Arena, spec: &DeviceSpec, offsets: &mut IdVec<ValueId, u64>) -> Addresses {
    let layout = layout::pack(&arena.buffers);
    for (value, buffer) in &arena.values {
        offsets[*value] = layout.offsets[*buffer];
    }
    let scratch = arena.scratch.iter().map(|buffer| buffer.map(|buffer| layout.offsets[buffer])).collect();
    Addresses { bytes: spec.slot(Bytes(layout.peak)), scratch }
}

fn program(request: &Request<'_>, lir: &Lir, lane: &Lane, addresses: &Addresses, offsets: &IdVec<ValueId, u64>) -> Program {
    let device = lane.device.index() as u32;
    let buffer = |id: ValueId| {
        let value = &lir.values[id];
        let place = match value.home {
            Home::Arena => Place::Arena(value.device.index() as u32),
            Home::Variable(index) => Place::Variable(index.index() as u32),
            Home::Flag(index) => Place::VariableFlag(index.index() as u32),
            Home::Constant(index) => Place::Constant(index.index() as u32),
            Home::Feed(index) => Place::Feed(index.index() as u32),
            Home::Fetch(index) => Place::Fetch(index.index() as u32),
        };
        BufferRef { place, offset: if value.home == Home::Arena { offsets[id] } else { 0 }, bytes: value.bytes }
    };
    let mut commands = Vec::with_capacity(lane.works.len());
    for (position, &id) in lane.works.iter().enumerate() {
        let work = &lir.works[id];
        let inputs = work.inputs.iter().map(|view| buffer(view.value));
        let outputs = work.outputs.iter().map(|output| buffer(*output));
        let prepare = work.prepared.as_ref();
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
            WorkKind::Outside { call, .. } => Call::Outside { call: call.index() as u32, inputs: args.len() as u32 },
            _ => kernel.map_or(Call::Copy, Call::Kernel),
        };
        let scratch = |skipped: u64, bytes: u64| {
            let offset = addresses.scratch[position].filter(|_| bytes > 0)? + skipped;
            Some(BufferRef { place: Place::Arena(device), offset, bytes })
        };
        commands.push(Command {
            work: call,
            args,
            scratch: scratch(0, shared),
            worker_scratch: scratch(shared, slices),
            guard: work.guard.map(buffer),
            waits: lane.waits[position].clone(),
            label: label(request.graph, &work.nodes),
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

/// The name of a command: its first node's, with the number of further ones.
pub(crate) fn label(graph: &Graph, nodes: &[NodeId]) -> Arc<str> {
    match nodes {
        [] => "".into(),
        [node] => graph.node(*node).name.as_str().into(),
        [node, more @ ..] => format!("{} (+{})", graph.node(*node).name, more.len()).into(),
    }
}

/// Fills in which commands initialise variables.
fn note_assignments(lir: &mut Lir, slots: &IdVec<WorkId, Slot>) {
    let definitions = lir.definitions();
    for (variable, version) in std::mem::take(&mut lir.initialized) {
        let work = definitions[version];
        lir.variables[variable].assigned_by = work.map(|work| (slots[work].0 as u32, slots[work].1 as u32));
    }
}
