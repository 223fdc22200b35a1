//! From an order to queues: addresses for what is live, and commands.

use std::collections::HashMap;
use std::sync::Arc;

use plimsoll_base::{Bytes, Result};
use plimsoll_device::{DeviceSpec, Partner, Program, Wait, Work};
use plimsoll_graph::id::Id;
use plimsoll_graph::{Graph, IdVec, NodeId};

use crate::Request;
use crate::buffers::{Buffers, PlanBuffer, Spans};
use crate::emit::{Emit, Emitted, Regions, Until};
use crate::fit::{Fitting, Lines};
use crate::lir::{Arg, ConstantId, Home, Lir, Trips, ValueId, WorkId, WorkKind};
use crate::live::{Arena, Lane, Live, Slot};
use crate::plan::{Certainty, DeviceId, DevicePlan, Plan, Queue};
use crate::report::{PeakMoment, outside_arena, peak_parts};
use crate::whole::leave_out;

/// The plan of a schedule. `floors` say what no schedule of its works can do without, by device; `fitting` how it was made to fit.
pub(crate) fn pack(request: &Request<'_>, mut lir: Lir, floors: &[Bytes], fitting: Option<Fitting>) -> Result<Plan> {
    settle_constants(&mut lir);
    let mut regions = Regions::new(request, &mut lir);
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
            least: Bytes::ZERO,
            holders: Vec::new(),
        })
        .collect();
    let mut moments: Vec<PeakMoment> = vec![PeakMoment::default(); devices.len()];
    let mut packed = Vec::with_capacity(lanes.len());
    for (lane, arena) in lanes.iter().zip(&arenas) {
        let (index, spec) = (lane.device.index(), &request.devices[lane.device.index()]);
        let addresses = addresses(request.lines, arena, spec, &mut offsets);
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
        regions.place(&lir, lane, addresses);
    }
    let emit = Emit { request, lir: &lir, regions: &regions, lanes: &lanes };
    let emitted: Vec<Vec<Emitted>> = lanes.iter().zip(&packed).map(|(lane, addresses)| emit.lane(lane, addresses)).collect();
    let of_commands: Vec<Vec<WorkId>> = emitted.iter().map(|commands| commands.iter().map(|command| command.work).collect()).collect();
    let spans = Spans::new(lir.works.len(), of_commands.iter().map(Vec::as_slice));
    let begins = begins(&emitted);
    for (lane, commands) in lanes.iter().zip(emitted) {
        let mut queue = Queue { device: lane.device, program: Arc::default(), seconds: Vec::new(), nodes: Vec::new(), bytes: Vec::new() };
        let mut program = Program::default();
        for Emitted { mut command, work, waits, with, seconds, nodes, bytes } in commands {
            let last = |queue, work| spans.on(work, queue).map_or(0, |span| span.last);
            for (queue, until) in waits {
                let commands = match until {
                    Until::Over(work) => last(queue as u32, work) + 1,
                    Until::Come(work) => begins.get(&(queue, work)).map_or(0, |begin| begin.0),
                    Until::Begun(work) => begins.get(&(queue, work)).map_or(0, |begin| begin.0 + 1),
                    // All but the last command, which is the end of the body.
                    Until::Through(work) => last(queue as u32, work),
                };
                match command.waits.iter_mut().find(|wait| wait.queue == queue as u32) {
                    Some(wait) => wait.commands = wait.commands.max(commands),
                    None if commands > 0 => command.waits.push(Wait { queue: queue as u32, commands }),
                    None => {}
                }
            }
            command.waits.sort_by_key(|wait| wait.queue);
            if let Work::Loop { with: partners, .. } = &mut command.work {
                let partner = |queue: usize| {
                    let (first, body) = *begins.get(&(queue, work))?;
                    Some(Partner { queue: queue as u32, first, body })
                };
                *partners = with.into_iter().filter_map(partner).collect();
            }
            program.commands.push(command);
            queue.seconds.push(seconds);
            queue.nodes.push(nodes);
            queue.bytes.push(bytes);
        }
        queue.program = Arc::new(program);
        queues.push(queue);
    }
    let collected = Buffers::new(&lir, &regions, request.devices, &spans);
    let in_lane =
        |(queue, (lane, (arena, addresses))): (u32, (&Lane, (&Arena, &Addresses)))| collected.of_lane((queue, lane), arena, addresses);
    let buffers: Vec<PlanBuffer> = (0..).zip(lanes.iter().zip(arenas.iter().zip(&packed))).flat_map(in_lane).collect();
    let mut loops = lir.regions.values().flat_map(|region| &region.works).filter_map(|id| lir.works[*id].trips());
    let loops_are_counted = loops.all(Trips::are_counted);
    note_assignments(&mut lir, &slots, &spans);
    for (index, device) in devices.iter_mut().enumerate() {
        let id = DeviceId::from_index(index);
        peak_parts(request, &lir, id, &moments[index], device);
        let spec = &request.devices[index];
        let floor = floors.get(index).copied().unwrap_or_default();
        device.least = outside_arena(request, &lir, id).total() + spec.reserved(spec.slot(floor));
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
    leave_out(&mut plan, request.libraries);
    plan.seconds = plan.on_the_clock(request.devices, |_, _| true).makespan;
    Ok(plan)
}

/// Keeps the constants that works read; those that are only copied somewhere stay in the graph's memory. What the graph has in panels and
/// is copied from is there twice.
pub(crate) fn settle_constants(lir: &mut Lir) {
    let mut kept: HashMap<ConstantId, bool> = HashMap::new();
    for work in lir.works.values() {
        for view in &work.inputs {
            if let Home::Constant(index) = lir.values[view.value].home {
                let is_spread = lir.constants[index].panels.is_none() && lir.constant_values[index].panels().is_some();
                *kept.entry(index).or_default() |= is_spread || !matches!(work.kind, WorkKind::Copy | WorkKind::Outside { .. });
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

pub(crate) fn addresses(lines: &Lines, arena: &Arena, spec: &DeviceSpec, offsets: &mut IdVec<ValueId, u64>) -> Addresses {
    let layout = lines.pack(&arena.buffers);
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
fn note_assignments(lir: &mut Lir, slots: &IdVec<WorkId, Slot>, spans: &Spans) {
    let definitions = lir.definitions();
    for (variable, version) in std::mem::take(&mut lir.initialized) {
        let at = |work: WorkId| spans.on(work, slots[work].0 as u32).map(|span| (span.queue, span.last));
        lir.variables[variable].assigned_by = definitions[version].and_then(at);
    }
}

/// For each queue and loop in it, the number of its beginning and how many commands its body has.
fn begins(queues: &[Vec<Emitted>]) -> HashMap<(usize, WorkId), (u32, u32)> {
    let mut begins = HashMap::new();
    for (queue, commands) in queues.iter().enumerate() {
        for (number, Emitted { command, work, .. }) in (0..).zip(commands) {
            if let Work::Loop { body, .. } = command.work {
                begins.insert((queue, *work), (number, body));
            }
        }
    }
    begins
}
