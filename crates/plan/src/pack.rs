//! From an order to queues: addresses for what is live, and commands.

use std::collections::HashMap;
use std::sync::Arc;

use plimsoll_base::{Bytes, Result};
use plimsoll_device::{DeviceSpec, Program};
use plimsoll_graph::id::Id;
use plimsoll_graph::{Graph, IdVec, NodeId};
use plimsoll_memory::layout;

use crate::Request;
use crate::buffers::{Buffers, PlanBuffer, spans};
use crate::emit::{Emit, Emitted, Regions};
use crate::fit::Fitting;
use crate::lir::{Arg, ConstantId, Home, Lir, Trips, ValueId, WorkId, WorkKind};
use crate::live::{Arena, Lane, Live, Slot};
use crate::plan::{Certainty, DeviceId, DevicePlan, Plan, Queue};
use crate::report::{PeakMoment, peak_parts};

/// The plan of a schedule. `fitting` says how it was made to fit.
pub(crate) fn pack(request: &Request<'_>, mut lir: Lir, fitting: Option<Fitting>) -> Result<Plan> {
    settle_constants(&mut lir);
    let mut regions = Regions::new(&mut lir, request.devices);
    let Live { lanes, slots, arenas } = Live::new(&lir, &lir.region().works, request.devices);
    let mut offsets = std::mem::take(&mut regions.offsets);
    let mut queues = Vec::new();
    let mut devices: Vec<DevicePlan> = request
        .devices
        .iter()
        .map(|spec| DevicePlan {
            name: spec.name.to_string(),
            kind: spec.kind,
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
        if lane.is_beside {
            packed.push(addresses);
            continue;
        }
        (devices[index].packed, devices[index].live) = (addresses.bytes, arena.peak());
        devices[index].arena = spec.reserved(addresses.bytes);
        moments[index] = PeakMoment::find(&lir, arena);
        packed.push(addresses);
    }
    regions.offsets = offsets;
    for (lane, addresses) in lanes.iter().zip(&packed) {
        regions.place(&lir, &lane.works, addresses, 0);
    }
    let emit = Emit { request, lir: &lir, regions: &regions };
    let emitted: Vec<Vec<Vec<Emitted>>> = lanes.iter().zip(&packed).map(|(lane, addresses)| emit.lane(lane, addresses)).collect();
    // For each work of each queue, how many commands there are when it is over.
    let over: Vec<Vec<u32>> = emitted
        .iter()
        .map(|works| {
            let count = |sum: &mut u32, work: &Vec<Emitted>| {
                *sum += work.len() as u32;
                Some(*sum)
            };
            works.iter().scan(0, count).collect()
        })
        .collect();
    let of_commands: Vec<Vec<WorkId>> = emitted.iter().map(|works| works.iter().flatten().map(|command| command.work).collect()).collect();
    let spans = spans(lir.works.len(), of_commands.iter().map(Vec::as_slice));
    for (lane, works) in lanes.iter().zip(emitted) {
        let mut queue = Queue { device: lane.device, program: Arc::default(), seconds: Vec::new(), nodes: Vec::new(), bytes: Vec::new() };
        let mut program = Program::default();
        for Emitted { mut command, seconds, nodes, bytes, .. } in works.into_iter().flatten() {
            command.waits.iter_mut().for_each(|wait| wait.commands = over[wait.queue as usize][wait.commands as usize - 1]);
            program.commands.push(command);
            queue.seconds.push(seconds);
            queue.nodes.push(nodes);
            queue.bytes.push(bytes);
        }
        queue.program = Arc::new(program);
        queues.push(queue);
    }
    let collected = Buffers::new(&lir, &regions, request.devices, &spans);
    let in_lane = |(lane, (arena, addresses)): (&Lane, (&Arena, &Addresses))| collected.of_lane(lane, arena, addresses);
    let buffers: Vec<PlanBuffer> = lanes.iter().zip(arenas.iter().zip(&packed)).flat_map(in_lane).collect();
    let mut loops = lir.regions.values().flat_map(|region| &region.works).filter_map(|id| lir.works[*id].trips());
    let loops_are_counted = loops.all(|trips| matches!(trips, Trips::Exactly(_)));
    note_assignments(&mut lir, &slots, &over);
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
        queues,
        buffers: Arc::from(buffers),
        nodes: lir.nodes,
        softened: lir.softened,
        before: Vec::new(),
        costs: request.costs.fingerprint().to_string(),
        seconds: 0.0,
        loops_are_counted,
        later: None,
        fitting,
    };
    plan.seconds = plan.on_the_clock(request.devices, |_, _| true).makespan;
    Ok(plan)
}

/// Keeps the constants that works read; those that are only copied somewhere stay in the graph's memory.
pub(crate) fn settle_constants(lir: &mut Lir) {
    let mut kept: HashMap<ConstantId, bool> = HashMap::new();
    for work in lir.works.values() {
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
pub(crate) struct Addresses {
    /// Bytes of values and scratch.
    pub bytes: Bytes,
    /// For each work, where its scratch begins.
    pub scratch: Vec<Option<u64>>,
    /// For each buffer of the arena, where it begins.
    pub buffers: Vec<u64>,
}

pub(crate) fn addresses(arena: &Arena, spec: &DeviceSpec, offsets: &mut IdVec<ValueId, u64>) -> Addresses {
    let layout = layout::pack(&arena.buffers);
    for (value, buffer) in &arena.values {
        offsets[*value] = layout.offsets[*buffer];
    }
    let scratch = arena.scratch.iter().map(|buffer| buffer.map(|buffer| layout.offsets[buffer])).collect();
    Addresses { bytes: spec.slot(Bytes(layout.peak)), scratch, buffers: layout.offsets }
}

/// Bytes of a work's inputs, each value once, and of its outputs.
pub(crate) fn traffic(lir: &Lir, id: WorkId) -> (u64, u64) {
    let work = &lir.works[id];
    let mut read: Vec<ValueId> = work.inputs.iter().map(|view| view.value).collect();
    read.sort_unstable();
    read.dedup();
    let bytes = |values: &[ValueId]| values.iter().map(|value| lir.values[*value].bytes).sum();
    (bytes(&read), bytes(&work.outputs))
}

impl Arg {
    pub(crate) fn index(self) -> usize {
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
fn note_assignments(lir: &mut Lir, slots: &IdVec<WorkId, Slot>, over: &[Vec<u32>]) {
    let definitions = lir.definitions();
    for (variable, version) in std::mem::take(&mut lir.initialized) {
        let work = definitions[version];
        lir.variables[variable].assigned_by = work.map(|work| (slots[work].0 as u32, over[slots[work].0][slots[work].1] - 1));
    }
}
