//! Commands of works. A loop becomes copies of what it carries, its beginning, the commands of its body, and its end.

use plimsoll_base::Bytes;
use plimsoll_device::{BufferRef, Command, DeviceSpec, Place, Wait, Work as Call};
use plimsoll_graph::id::Id;
use plimsoll_graph::{IdVec, NodeId};

use crate::Request;
use crate::lir::{Arg, Home, Lir, RegionId, ValueId, Work, WorkId, WorkKind};
use crate::live::{Arena, Lane, Live};
use crate::pack::{Addresses, addresses, label, traffic};

/// Where the values of all regions lie. Those that a work holds lie in its scratch.
pub(crate) struct Regions {
    /// Of values in arenas: where they begin, counted from the beginning of what their region takes.
    pub offsets: IdVec<ValueId, u64>,
    /// Where in the arena that begins.
    bases: IdVec<RegionId, u64>,
    /// The work that holds a region.
    holders: IdVec<RegionId, Option<WorkId>>,
    /// Of the regions that works hold: their works in order, and where these have their buffers.
    bodies: IdVec<RegionId, Option<Body>>,
}

/// The works of a region that a work holds.
pub(crate) struct Body {
    works: Vec<WorkId>,
    /// Their arena; none of a region without works.
    pub held: Option<(Lane, Arena)>,
    /// Counted from the beginning of the scratch of the work that holds the region.
    pub addresses: Addresses,
}

impl Regions {
    /// Packs the regions that works hold. Nothing is known of their beginnings.
    pub fn new(lir: &mut Lir, devices: &[DeviceSpec]) -> Regions {
        let count = lir.regions.len();
        let mut regions = Regions {
            offsets: IdVec::filled(0, lir.values.len()),
            bases: IdVec::filled(0, count),
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
            let Live { lanes, arenas, .. } = Live::new(lir, &works, devices);
            let none = || Addresses { bytes: Bytes::ZERO, scratch: vec![None; works.len()], buffers: Vec::new() };
            let held = lanes.into_iter().zip(arenas).next();
            let packed = held.as_ref().map(|(lane, arena)| addresses(arena, &devices[lane.device.index()], &mut regions.offsets));
            let addresses = packed.unwrap_or_else(none);
            regions.bodies.push(Some(Body { works, held, addresses }));
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

    /// The body of a work's region, and where in the arena it begins.
    pub fn body(&self, region: RegionId) -> Option<(&Body, u64)> {
        Some((self.bodies[region].as_ref()?, self.bases[region]))
    }

    /// Notes where the regions of these works begin, whose own begins at `base`.
    pub fn place(&mut self, lir: &Lir, works: &[WorkId], addresses: &Addresses, base: u64) {
        let mut held: Vec<(RegionId, u64)> = Vec::new();
        for (work, scratch) in works.iter().zip(&addresses.scratch) {
            held.extend(lir.works[*work].regions().iter().map(|region| (*region, base + scratch.unwrap_or(0))));
        }
        while let Some((region, base)) = held.pop() {
            self.bases[region] = base;
            let Some(body) = &self.bodies[region] else { continue };
            for (work, scratch) in body.works.iter().zip(&body.addresses.scratch) {
                held.extend(lir.works[*work].regions().iter().map(|region| (*region, base + scratch.unwrap_or(0))));
            }
        }
    }
}

/// A command, and what the plan says of it.
pub(crate) struct Emitted {
    pub command: Command,
    /// Of a body's commands, the work of the body.
    pub work: WorkId,
    pub seconds: f64,
    pub nodes: Vec<NodeId>,
    pub bytes: (u64, u64),
}

/// Makes commands of works.
pub(crate) struct Emit<'a> {
    pub request: &'a Request<'a>,
    pub lir: &'a Lir,
    pub regions: &'a Regions,
}

impl Emit<'_> {
    /// For each work of a lane its commands. Their waits count works.
    pub fn lane(&self, lane: &Lane, addresses: &Addresses) -> Vec<Vec<Emitted>> {
        let emit = |(position, id): (usize, &WorkId)| self.work(*id, addresses.scratch[position], lane.waits[position].clone(), 1.0);
        lane.works.iter().enumerate().map(emit).collect()
    }

    /// The commands of a work; its scratch begins at `scratch`, counted from the beginning of its region. It runs so many times.
    fn work(&self, id: WorkId, scratch: Option<u64>, waits: Vec<Wait>, times: f64) -> Vec<Emitted> {
        match &self.lir.works[id].kind {
            WorkKind::Loop { body, carried, trips } => self.repeat(id, *body, *carried, waits, times * trips.predicted()),
            _ => vec![self.plain(id, scratch, waits, times)],
        }
    }

    fn plain(&self, id: WorkId, scratch: Option<u64>, waits: Vec<Wait>, times: f64) -> Emitted {
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
        let base = region.map_or(0, |region| self.regions.bases[region]);
        let scratch = |skipped: u64, bytes: u64| {
            let offset = scratch.filter(|_| bytes > 0)? + base + skipped;
            Some(BufferRef { place: Place::Arena(work.device.index() as u32), offset, bytes })
        };
        let (scratch, worker_scratch) = (scratch(0, shared), scratch(shared, slices));
        let command = Command { scratch, worker_scratch, ..self.command(work, call, args, waits) };
        Emitted { command, work: id, seconds: work.seconds() * times, nodes: work.nodes.clone(), bytes: traffic(self.lir, id) }
    }

    /// The commands of a loop whose body runs so many times.
    fn repeat(&self, id: WorkId, body: RegionId, carried: usize, waits: Vec<Wait>, times: f64) -> Vec<Emitted> {
        let work = &self.lir.works[id];
        let emitted = |call: Call, args: Vec<BufferRef>| {
            let bytes = if call == Call::Copy { (args[0].bytes, args[1].bytes) } else { (0, 0) };
            Emitted { command: self.command(work, call, args, Vec::new()), work: id, seconds: 0.0, nodes: work.nodes.clone(), bytes }
        };
        let mut commands = Vec::new();
        for (input, output) in work.inputs[..carried].iter().zip(&work.outputs) {
            let (from, to) = (self.buffer(input.value), self.buffer(*output));
            if from != to && to.bytes > 0 {
                commands.push(emitted(Call::Copy, vec![from, to]));
            }
        }
        let inner: Vec<Emitted> = match &self.regions.bodies[body] {
            Some(Body { works, addresses, .. }) => {
                let emit = |(work, scratch): (&WorkId, &Option<u64>)| self.work(*work, *scratch, Vec::new(), times);
                works.iter().zip(&addresses.scratch).flat_map(emit).collect()
            }
            None => Vec::new(),
        };
        let (length, condition) = (inner.len() as u32, self.buffer(work.outputs[0]));
        commands.push(emitted(Call::Loop { body: length, with: Vec::new() }, vec![condition]));
        commands.extend(inner);
        let mut again = emitted(Call::Again { body: length }, vec![condition]);
        again.command.guard = None;
        commands.push(again);
        commands[0].command.waits = waits;
        commands
    }

    fn command(&self, work: &Work, call: Call, args: Vec<BufferRef>, waits: Vec<Wait>) -> Command {
        let (guard, label) = (work.guard.map(|guard| self.buffer(guard)), label(self.request.graph, &work.nodes));
        Command { work: call, args, scratch: None, worker_scratch: None, guard, waits, label }
    }

    fn buffer(&self, id: ValueId) -> BufferRef {
        let value = &self.lir.values[id];
        let at = |place| BufferRef { place, offset: 0, bytes: value.bytes };
        match value.home {
            Home::Arena => {
                let offset = self.regions.bases[value.region] + self.regions.offsets[id];
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
