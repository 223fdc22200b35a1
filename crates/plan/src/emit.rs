//! Commands of works. Works in parts have a command for each kernel and part. A loop becomes copies of what it carries, its beginning, the commands of its body, and its end. A loop of several
//! devices becomes these in the queue of each: their ends wait for one another.

use plimsoll_device::{BufferRef, Command, Place, Work as Call};
use plimsoll_graph::id::Id;
use plimsoll_graph::{IdVec, NodeId};

use crate::Request;
use crate::lir::{Arg, Home, Lir, PartArg, PartCall, PartCut, PartOf, PartStep, Parts, RegionId, ValueId, Work, WorkId, WorkKind};
use crate::live::{Arena, Lane, Live};
use crate::pack::{Addresses, addresses, label, traffic};
use crate::plan::DeviceId;

/// Where the values of all regions lie. Those that a work holds lie in its scratch.
pub(crate) struct Regions {
    /// Of values in arenas: where they begin, counted from the beginning of what their region takes.
    pub offsets: IdVec<ValueId, u64>,
    /// Where in the arena of a device that begins.
    bases: IdVec<RegionId, Vec<(DeviceId, u64)>>,
    /// The work that holds a region.
    holders: IdVec<RegionId, Option<WorkId>>,
    /// Of the regions that works hold: their works in order, and where these have their buffers.
    bodies: IdVec<RegionId, Option<Body>>,
}

/// The works of a region that a work holds: what each of its devices has of them.
pub(crate) struct Body(Vec<Held>);

/// What a device has of a body.
pub(crate) struct Held {
    pub lane: Lane,
    pub arena: Arena,
    /// Counted from the beginning of the scratch of the work that holds the region.
    pub addresses: Addresses,
}

impl Body {
    /// What a device has of it; none of a region without works.
    pub fn on(&self, device: DeviceId) -> Option<&Held> {
        self.0.iter().find(|held| held.lane.device == device)
    }
}

impl Regions {
    /// Packs the regions that works hold. Nothing is known of their beginnings.
    pub fn new(request: &Request<'_>, lir: &mut Lir) -> Regions {
        let count = lir.regions.len();
        let mut regions = Regions {
            offsets: IdVec::filled(0, lir.values.len()),
            bases: IdVec::filled(Vec::new(), count),
            holders: IdVec::filled(None, count),
            bodies: IdVec::new(),
        };
        for (id, work) in lir.works.iter() {
            work.regions().iter().for_each(|region| regions.holders[*region] = Some(id));
        }
        regions.bodies.push(None);
        let own = lir.here();
        for region in lir.regions.ids().skip(1) {
            lir.enter(region);
            let works = lir.region().works.clone();
            let Live { lanes, arenas, .. } = Live::new(lir, &works, request.devices);
            let held = lanes.into_iter().zip(arenas).map(|(lane, arena)| {
                let spec = &request.devices[lane.device.index()];
                let addresses = addresses(request.lines, &arena, spec, &mut regions.offsets);
                Held { lane, arena, addresses }
            });
            let body = Body(held.collect());
            regions.bodies.push(Some(body));
        }
        lir.enter(own);
        regions
    }

    /// The value that a region is given as a parameter: of a loop what it carries, else an operand of its work. Any other value is itself.
    pub fn given(&self, lir: &Lir, id: ValueId) -> Option<ValueId> {
        let Home::Given { region, param } = lir.values[id].home else { return Some(id) };
        // Regions are held by works of regions before them.
        let holder = &lir.works[self.holders[region]?];
        let value = match holder.kind {
            WorkKind::Loop { carried, .. } if (param as usize) < carried => holder.outputs[param as usize],
            _ => holder.inputs[param as usize].value,
        };
        self.given(lir, value)
    }

    /// What a device has of the body of a work's region, and where in the arena that begins.
    pub fn body(&self, region: RegionId, device: DeviceId) -> Option<(&Held, u64)> {
        Some((self.bodies[region].as_ref()?.on(device)?, self.base(region, device)))
    }

    /// Where in the arena of a device a region begins.
    fn base(&self, region: RegionId, device: DeviceId) -> u64 {
        self.bases[region].iter().find(|(other, _)| *other == device).map_or(0, |(_, base)| *base)
    }

    /// Notes where in the arena of a lane the regions of its works begin.
    pub fn place(&mut self, lir: &Lir, lane: &Lane, addresses: &Addresses) {
        let mut held: Vec<(RegionId, u64)> = Vec::new();
        let note = |held: &mut Vec<(RegionId, u64)>, works: &[WorkId], addresses: &Addresses, base: u64| {
            for (work, scratch) in works.iter().zip(&addresses.scratch) {
                held.extend(lir.works[*work].regions().iter().map(|region| (*region, base + scratch.unwrap_or(0))));
            }
        };
        note(&mut held, &lane.works, addresses, 0);
        while let Some((region, base)) = held.pop() {
            self.bases[region].push((lane.device, base));
            if let Some(body) = self.bodies[region].as_ref().and_then(|body| body.on(lane.device)) {
                note(&mut held, &body.lane.works, &body.addresses, base);
            }
        }
    }
}

/// A command, and what the plan says of it.
pub(crate) struct Emitted {
    /// Its waits and partners are not known yet.
    pub command: Command,
    /// Of a body's commands, the work of the body.
    pub work: WorkId,
    /// For each queue that it waits for, what it waits for there.
    pub waits: Vec<(usize, Until)>,
    /// Of the beginning of a loop, the queues that have it too.
    pub with: Vec<usize>,
    pub seconds: f64,
    pub nodes: Vec<NodeId>,
    pub bytes: (u64, u64),
}

/// Progress of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// The work is over.
    Over(WorkId),
    /// What is before the loop is over.
    Come(WorkId),
    /// An iteration of the loop has begun.
    Begun(WorkId),
    /// An iteration of the loop is over.
    Through(WorkId),
}

/// Makes commands of works.
pub(crate) struct Emit<'a> {
    pub request: &'a Request<'a>,
    pub lir: &'a Lir,
    pub regions: &'a Regions,
    /// The lanes of the plan.
    pub lanes: &'a [Lane],
}

/// Where works are emitted: a lane of the plan, or of a body.
struct Within<'a> {
    lane: &'a Lane,
    /// The lanes beside it, itself among them, which its waits name.
    beside: Vec<&'a Lane>,
    addresses: &'a Addresses,
    /// The loop whose body it is.
    holder: Option<WorkId>,
    /// How often it runs.
    times: f64,
}

impl Emit<'_> {
    /// The commands of a lane.
    pub fn lane(&self, lane: &Lane, addresses: &Addresses) -> Vec<Emitted> {
        self.works(&Within { lane, beside: self.lanes.iter().collect(), addresses, holder: None, times: 1.0 })
    }

    fn works(&self, within: &Within<'_>) -> Vec<Emitted> {
        let mut commands = Vec::new();
        for (position, id) in within.lane.works.iter().enumerate() {
            let waits = within.lane.waits[position].iter().filter_map(|wait| {
                let other = within.beside[wait.queue as usize];
                let until = match (wait.commands as usize).checked_sub(1) {
                    Some(last) => Until::Over(*other.works.get(last)?),
                    None => Until::Begun(within.holder?),
                };
                Some((self.queue(other.device, other.is_beside), until))
            });
            let first = commands.len();
            match &self.lir.works[*id].kind {
                WorkKind::Loop { body, carried, trips } => {
                    commands.extend(self.repeat(*id, (*body, *carried), within.lane.device, within.times * trips.predicted()));
                }
                WorkKind::Parts(parts) => commands.extend(self.parts(*id, parts, within.addresses.scratch[position], within.times)),
                _ => commands.push(self.plain(*id, within.addresses.scratch[position], within.times)),
            }
            commands[first].waits.extend(waits);
        }
        commands
    }

    /// The queue of a device, or that of its copies.
    fn queue(&self, device: DeviceId, is_beside: bool) -> usize {
        self.lanes.iter().position(|lane| (lane.device, lane.is_beside) == (device, is_beside)).unwrap_or_default()
    }

    /// The command of a work that is no loop. Its scratch begins at `scratch`, counted from the beginning of its region.
    fn plain(&self, id: WorkId, scratch: Option<u64>, times: f64) -> Emitted {
        let work = &self.lir.works[id];
        let inputs = work.inputs.iter().map(|view| self.buffer(view.value));
        let outputs = work.outputs.iter().map(|output| self.buffer(*output));
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
        let region = work.outputs.first().or(work.inputs.first().map(|view| &view.value)).map(|value| self.lir.values[*value].region);
        let base = region.map_or(0, |region| self.regions.base(region, work.device));
        let scratch = |skipped: u64, bytes: u64| {
            let offset = scratch.filter(|_| bytes > 0)? + base + skipped;
            Some(BufferRef { place: Place::Arena(work.device.index() as u32), offset, bytes })
        };
        let (scratch, worker_scratch) = (scratch(0, shared), scratch(shared, slices));
        let command = Command { scratch, worker_scratch, ..self.command(work, call, args) };
        let (seconds, nodes, bytes) = (work.seconds() * times, work.nodes.clone(), traffic(self.lir, id));
        Emitted { command, work: id, waits: Vec::new(), with: Vec::new(), seconds, nodes, bytes }
    }

    /// The commands of works in parts. Their scratch begins at `scratch`, counted from the beginning of their region.
    fn parts(&self, id: WorkId, parts: &Parts, scratch: Option<u64>, times: f64) -> Vec<Emitted> {
        let work = &self.lir.works[id];
        let base = scratch.unwrap_or(0) + self.regions.base(self.lir.values[work.outputs[0]].region, work.device);
        let inside = |offset: u64, bytes: u64| BufferRef { place: Place::Arena(work.device.index() as u32), offset: base + offset, bytes };
        let command = |(at, step): (PartCall, &PartStep)| {
            let arg = |arg: &PartArg| {
                let whole = match arg.of {
                    PartOf::Input(index) => self.buffer(work.inputs[index].value),
                    PartOf::Output(index) => self.buffer(work.outputs[index]),
                    PartOf::Between(index) => inside(parts.between[index].0, parts.between[index].1),
                };
                // Chains are made of slices that there are.
                let (begin, bytes) = step.slice(parts.rows, *arg, whole.bytes, at).unwrap_or((0, whole.bytes));
                BufferRef { offset: whole.offset + begin, bytes, ..whole }
            };
            let args: Vec<BufferRef> = step.args.iter().map(arg).collect();
            let (offset, shared, slices) = step.scratch;
            let scratch = (shared > 0).then(|| inside(offset, shared));
            let worker_scratch = (slices > 0).then(|| inside(offset + shared, slices));
            let bytes = step.args.iter().zip(&args).fold((0, 0), |(read, written), (arg, buffer)| match arg.of {
                PartOf::Output(_) if arg.cut != PartCut::Rows || parts.makes(step, arg.of) => (read, written + buffer.bytes),
                PartOf::Between(_) if parts.makes(step, arg.of) => (read, written + buffer.bytes),
                _ => (read + buffer.bytes, written),
            });
            let (kernel, seconds) = step.kernel(parts.rows, at);
            let call = Call::Kernel(kernel.clone());
            let label = label(self.request.graph, &step.nodes);
            let command = Command { work: call, args, scratch, worker_scratch, guard: None, waits: Vec::new(), label };
            let (seconds, nodes) = (seconds * times, step.nodes.clone());
            Emitted { command, work: id, waits: Vec::new(), with: Vec::new(), seconds, nodes, bytes }
        };
        parts.calls().map(command).collect()
    }

    /// The commands of a loop in the queue of a device. Its body runs so many times.
    fn repeat(&self, id: WorkId, (body, carried): (RegionId, usize), device: DeviceId, times: f64) -> Vec<Emitted> {
        let work = &self.lir.works[id];
        let emitted = |call: Call, args: Vec<BufferRef>| {
            let bytes = if call == Call::Copy { (args[0].bytes, args[1].bytes) } else { (0, 0) };
            let (command, nodes) = (self.command(work, call, args), work.nodes.clone());
            Emitted { command, work: id, waits: Vec::new(), with: Vec::new(), seconds: 0.0, nodes, bytes }
        };
        let mut commands = Vec::new();
        for (input, output) in work.inputs[..carried].iter().zip(&work.outputs) {
            let (from, to) = (self.buffer(input.value), self.buffer(*output));
            if self.lir.values[*output].device == device && from != to && to.bytes > 0 {
                commands.push(emitted(Call::Copy, vec![from, to]));
            }
        }
        let inner = match &self.regions.bodies[body] {
            Some(all) => all.on(device).map_or_else(Vec::new, |Held { lane, addresses, .. }| {
                let beside = all.0.iter().map(|held| &held.lane).collect();
                self.works(&Within { lane, beside, addresses, holder: Some(id), times })
            }),
            None => Vec::new(),
        };
        // Its own device has the first condition, the partners have the last ones.
        let partners = &self.lir.regions[body].partners;
        let own = partners.iter().position(|partner| *partner == device);
        let test = own.map_or(0, |index| carried - partners.len() + index);
        let others = self.lir.devices(work).filter(|other| *other != device);
        let mut with: Vec<usize> = others.map(|other| self.queue(other, false)).collect();
        with.sort_unstable();
        let (length, condition) = (inner.len() as u32, self.buffer(work.outputs[test]));
        let mut begin = emitted(Call::Loop { body: length, with: Vec::new() }, vec![condition]);
        // It may have no iteration: what is behind it relies on what is before it in the other queues.
        begin.waits = with.iter().map(|queue| (*queue, Until::Come(id))).collect();
        begin.with.clone_from(&with);
        commands.push(begin);
        commands.extend(inner);
        let mut again = emitted(Call::Again { body: length }, vec![condition]);
        again.command.guard = None;
        again.waits = with.into_iter().map(|queue| (queue, Until::Through(id))).collect();
        commands.push(again);
        commands
    }

    fn command(&self, work: &Work, call: Call, args: Vec<BufferRef>) -> Command {
        let (guard, label) = (work.guard.map(|guard| self.buffer(guard)), label(self.request.graph, &work.nodes));
        Command { work: call, args, scratch: None, worker_scratch: None, guard, waits: Vec::new(), label }
    }

    fn buffer(&self, id: ValueId) -> BufferRef {
        let value = &self.lir.values[id];
        let at = |place| BufferRef { place, offset: 0, bytes: value.bytes };
        match value.home {
            Home::Arena => {
                let offset = self.regions.base(value.region, value.device) + self.regions.offsets[id];
                BufferRef { offset, ..at(Place::Arena(value.device.index() as u32)) }
            }
            Home::Variable(index) => at(Place::Variable(index.index() as u32)),
            Home::Flag(index) => at(Place::VariableFlag(index.index() as u32)),
            Home::Constant(index) => at(Place::Constant(index.index() as u32)),
            Home::Feed(index) => at(Place::Feed(index.index() as u32)),
            Home::Fetch(index) => at(Place::Fetch(index.index() as u32)),
            Home::Given { .. } => match self.regions.given(self.lir, id) {
                Some(given) => self.buffer(given),
                None => at(Place::Arena(value.device.index() as u32)),
            },
        }
    }
}
