//! A plan as a picture: see [`plimsoll_page`].

use std::collections::{BTreeMap, HashSet};

use plimsoll_base::Bytes;
use plimsoll_device::{DeviceName, Place, Work};
use plimsoll_graph::NodeId;
use plimsoll_graph::id::Id;
use plimsoll_page::picture::{
    Band, Buffer, Command, Curve, Device, Fitting, Kind, Model, Need, Picture, Point, Queue, Size, Sizes, Stage, Value, Work as Kinds,
};
use plimsoll_plan::{Growth, Holds, PlanBuffer, SignatureInN, node_of, shape_in_n};

use crate::fit::CurvePoint;
use crate::{Devices, Footprint, Plan, Profile, Result, Session, Signature};

/// So many later stages of a run are shown: there may be a plan for every way through its conditions.
const MOST_STAGES: usize = 16;

impl Plan {
    /// The picture of the plan of a model.
    pub fn picture(&self, name: &str) -> Picture {
        Picture { title: name.to_string(), models: vec![self.picture_of_model(name, &[])], ..Picture::default() }
    }

    /// The part of a picture that shows a model with this plan. `curves` are those of [`crate::Session::curves`].
    pub fn picture_of_model(&self, name: &str, curves: &[(String, Vec<CurvePoint>)]) -> Model {
        let mut drawn = Drawn { plan: self, nodes: Vec::new(), positions: BTreeMap::new() };
        let stages = self.stages_of_picture().into_iter().map(|(name, plan)| drawn.stage(name, plan)).collect();
        let fitting = self.fitting().map(|fitting| Fitting {
            recomputed: self.recomputed().map(str::to_string).collect(),
            offloaded: self.offloaded(),
            masked: fitting.masked.len(),
            parts: fitting.parts.len(),
            segments: fitting.segments.len(),
            saved: fitting.unfitted.iter().zip(self.devices()).map(|(before, device)| *before - device.arena).sum(),
        });
        Model {
            name: name.to_string(),
            fits: self.fits(),
            shortfall: self.shortfall(),
            minimum_limit: self.minimum_limit(),
            seconds: self.predicted_seconds(),
            is_modelled: self.is_modelled(),
            measured: None,
            costs: self.costs().to_string(),
            text: self.to_string(),
            needs: self.needs_of_picture(),
            nodes: drawn.nodes,
            stages,
            fitting,
            curves: curves.iter().filter_map(|(device, points)| self.curve_of_picture(device, points)).collect(),
        }
    }

    fn stages_of_picture(&self) -> Vec<(String, &plimsoll_plan::Plan)> {
        let inner = self.inner();
        let Some(later) = inner.later.as_deref() else { return vec![(String::new(), inner)] };
        let mut stages = vec![("first stage".to_string(), inner)];
        let within = (1..).zip(&later.within).map(|(number, plan)| (format!("loop, part {number}"), &**plan));
        let ways = (1..).zip(&later.plans).map(|(number, plan)| (format!("way {number}"), &**plan));
        stages.extend(within.chain(ways).take(MOST_STAGES));
        stages
    }

    fn needs_of_picture(&self) -> Vec<Need> {
        let of = |(need, certainty): (&crate::Need, String)| {
            let parts = need.parts;
            Need {
                name: need.name.clone(),
                short: DeviceName::parse(&need.name).map_or_else(|_| need.name.clone(), |name| name.short()),
                limit: need.limit,
                peak: need.peak,
                measured: None,
                certainty,
                parts: [parts.variables, parts.constants, parts.activations, parts.workspace, parts.transfer, parts.overhead],
                holders: need.holders.iter().map(|holder| (holder.name.clone(), holder.bytes)).collect(),
            }
        };
        self.footprint().needs().iter().zip(self.certainties()).map(of).collect()
    }

    fn curve_of_picture(&self, device: &str, points: &[CurvePoint]) -> Option<Curve> {
        let need = self.devices().iter().position(|of| of.name == device)?;
        let point = |point: &CurvePoint| Point {
            limit: point.limit,
            peak: point.peak,
            seconds: point.seconds,
            recomputed: point.recomputed,
            offloaded: point.offloaded,
            masked: point.masked,
            parts: point.parts,
            segments: point.segments,
            profile: point.profile.clone(),
        };
        Some(Curve { need, points: points.iter().map(point).collect() })
    }
}

impl Devices {
    /// The picture of a growth ([`Devices::growth`]): plans for at most three of its sizes ([`Growth::three`]), and the peaks of all.
    /// The peaks of a plan are those that the growth has for its N. `feed` names a feed.
    ///
    /// # Errors
    /// The errors of planning.
    pub fn picture_of_growth(
        &self,
        name: &str,
        session: &Session,
        init: Option<&Signature>,
        signature: &SignatureInN,
        growth: &Growth,
        feed: impl Fn(&str) -> String,
    ) -> Result<Picture> {
        let drawn = growth.three();
        let mut models = Vec::with_capacity(drawn.len());
        for n in &drawn {
            let Some(footprint) = growth.at(*n) else { continue };
            let run = signature.at(*n)?;
            let runs: Vec<Signature> = init.cloned().into_iter().chain([run.clone()]).collect();
            let session = self.place(session, &runs, &[])?.session;
            let plan = session.plan_signature(&run)?.with_minimum(footprint.minimum_limit());
            let curves = if plan.stages().is_none() { session.curves(&run)? } else { Vec::new() };
            let plan = plan.with_footprint(&Footprint(footprint.clone()));
            models.push(plan.picture_of_model(&format!("{name}, N = {n}"), &curves));
        }
        let short = |name: &str| DeviceName::parse(name).map_or_else(|_| name.to_string(), |name| name.short());
        let size = |(n, footprint): &(u64, plimsoll_plan::Footprint)| Size {
            n: *n,
            fits: footprint.check().is_ok(),
            minimum_limit: footprint.minimum_limit(),
            needs: footprint.needs().iter().map(|need| (short(&need.name), need.limit, need.peak)).collect(),
        };
        let feeds = signature.sized.iter().map(|of| (feed(node_of(&of.name)), shape_in_n(&of.shape)));
        let sizes = Sizes {
            feeds: feeds.collect(),
            sampled: growth.sizes.iter().map(size).collect(),
            largest: growth.largest,
            text: growth.to_string(),
            drawn,
        };
        Ok(Picture { title: name.to_string(), models, notes: Vec::new(), sizes: Some(sizes) })
    }
}

/// Adds what was measured of the run of a plan to its picture: the times of commands, and the peak of each device by its full name.
pub fn measured(model: &mut Model, profile: &Profile, step: [f64; 3], peaks: &[(String, Bytes)]) {
    model.measured = Some(step);
    let Some(stage) = model.stages.first_mut() else { return };
    for command in &profile.commands {
        let queue = stage.queues.get_mut(command.queue as usize);
        if let Some(drawn) = queue.and_then(|queue| queue.commands.get_mut(command.position as usize)) {
            drawn.measured = Some((command.start.as_secs_f64(), (command.start + command.duration).as_secs_f64()));
        }
    }
    for need in &mut model.needs {
        need.measured = peaks.iter().find(|(name, _)| *name == need.name).map(|(_, peak)| *peak);
    }
}

/// A plan that is drawn, with the nodes that were met.
struct Drawn<'a> {
    plan: &'a Plan,
    nodes: Vec<(String, String)>,
    positions: BTreeMap<NodeId, u32>,
}

impl Drawn<'_> {
    fn node(&mut self, id: NodeId) -> u32 {
        *self.positions.entry(id).or_insert_with(|| {
            self.nodes.push(self.plan.node_of_picture(id));
            self.nodes.len() as u32 - 1
        })
    }

    fn stage(&mut self, name: String, plan: &plimsoll_plan::Plan) -> Stage {
        let again = again(plan);
        let timeline = plan.on_the_clock(self.plan.footprint().0.specs(), |_, _| true);
        let mut queues = Vec::new();
        for ((queue, spans), again) in plan.queues.iter().zip(&timeline.spans).zip(&again) {
            let mut commands = Vec::with_capacity(spans.len());
            for (number, command) in queue.program.commands.iter().enumerate() {
                let (work, detail) = match &command.work {
                    Work::Kernel(call) => (if again[number] { Kinds::Again } else { Kinds::Kernel }, call.variant.name.to_string()),
                    Work::Copy => (Kinds::Copy, way(plan, command)),
                    Work::Outside { .. } => (Kinds::File, String::new()),
                    Work::Loop { .. } => (Kinds::Loop, "begins".to_string()),
                    Work::Again { .. } => (Kinds::Loop, "ends".to_string()),
                };
                commands.push(Command {
                    nodes: queue.nodes[number].iter().map(|id| self.node(*id)).collect(),
                    work,
                    detail,
                    predicted: spans.get(number).copied().unwrap_or_default(),
                    measured: None,
                    waits: command.waits.iter().map(|wait| (wait.queue, wait.commands)).collect(),
                    traffic: queue.bytes[number],
                });
            }
            queues.push(Queue { need: queue.device.index(), commands });
        }
        let devices = (0..plan.devices.len()).filter_map(|index| self.device(plan, index, &again)).collect();
        Stage { name, devices, queues, seconds: timeline.makespan }
    }

    /// The memory of a device; none where the plan takes none of it.
    fn device(&mut self, plan: &plimsoll_plan::Plan, index: usize, again: &[Vec<bool>]) -> Option<Device> {
        let device = &plan.devices[index];
        let peak = device.peak.total();
        let queue = plan.queues.iter().position(|queue| queue.device.index() == index);
        if peak == device.peak.overhead && queue.is_none() {
            return None;
        }
        let here = |place: usize| place == index;
        let variables = plan.variables.iter().filter(|variable| here(variable.device.index()));
        let constants = plan.constants.iter().filter(|constant| constant.device.is_some_and(|device| here(device.index())));
        let ends = plan.feeds.iter().map(|feed| (self.plan.node_of_picture(feed.tensor.node).0, feed.bytes));
        let ends = ends.chain(plan.fetches.iter().map(|fetch| (fetch.name.clone(), fetch.bytes))).filter(|_| here(plan.host.index()));
        let around = device.peak.variables + device.peak.constants + device.peak.overhead + device.arena;
        let band = |name: &str, bytes: Bytes, mut entries: Vec<(String, Bytes)>| {
            entries.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
            Band { name: name.to_string(), bytes, entries }
        };
        let bands = [
            band("overhead", device.peak.overhead, Vec::new()),
            band("variables", device.peak.variables, variables.map(|variable| (variable.name.clone(), variable.bytes)).collect()),
            band("constants", device.peak.constants, constants.map(|constant| (constant.name.clone(), constant.bytes)).collect()),
            band("fed and fetched", peak - around, ends.collect()),
        ];
        let buffers = plan.buffers.iter().filter(|buffer| here(buffer.device.index()));
        Some(Device {
            need: index,
            queue,
            peak,
            bands: bands.into_iter().filter(|band| band.bytes > Bytes::ZERO).collect(),
            arena: device.arena,
            packed: device.packed,
            live: device.live,
            buffers: buffers.map(|buffer| self.buffer(plan, buffer, again)).collect(),
        })
    }

    fn buffer(&mut self, plan: &plimsoll_plan::Plan, buffer: &PlanBuffer, again: &[Vec<bool>]) -> Buffer {
        let is_again = |(queue, number): (u32, u32)| again.get(queue as usize).and_then(|queue| queue.get(number as usize)) == Some(&true);
        let (kind, values) = match &buffer.holds {
            Holds::Scratch((queue, number)) => {
                let node = plan.queues.get(*queue as usize).and_then(|queue| queue.nodes.get(*number as usize)?.first().copied());
                let value = node.map(|node| Value { node: self.node(node), writer: (*queue, *number), readers: Vec::new() });
                (Kind::Scratch, value.into_iter().collect())
            }
            Holds::Values(held) => {
                let kind = match held.first() {
                    Some(value) if value.is_copy => Kind::Copy,
                    Some(value) if is_again(value.writer) => Kind::Again,
                    _ => Kind::Value,
                };
                let value = |value: &plimsoll_plan::HeldValue| Value {
                    node: self.node(value.node),
                    writer: value.writer,
                    readers: value.readers.clone(),
                };
                (kind, held.iter().map(value).collect())
            }
        };
        Buffer {
            offset: buffer.offset,
            bytes: buffer.bytes,
            slot: buffer.slot,
            commands: buffer.commands,
            depth: buffer.depth,
            kind,
            values,
        }
    }
}

/// For each command of each queue, whether it does a second time what a command before it does.
fn again(plan: &plimsoll_plan::Plan) -> Vec<Vec<bool>> {
    let recomputed: HashSet<NodeId> = plan.fitting.iter().flat_map(|fitting| fitting.recomputed.iter().copied()).collect();
    let of = |queue: &plimsoll_plan::Queue| {
        let mut seen: HashSet<(&[NodeId], u32)> = HashSet::new();
        let mut again = Vec::with_capacity(queue.nodes.len());
        for (nodes, command) in queue.nodes.iter().zip(&queue.program.commands) {
            again.push(match &command.work {
                Work::Kernel(call) if nodes.first().is_some_and(|node| recomputed.contains(node)) => !seen.insert((nodes, call.step)),
                _ => false,
            });
        }
        again
    };
    plan.queues.iter().map(of).collect()
}

/// From where to where a copy goes.
fn way(plan: &plimsoll_plan::Plan, command: &plimsoll_device::Command) -> String {
    let name = |place: Place| {
        let index = match place {
            Place::Arena(index) => Some(index as usize),
            Place::Variable(index) | Place::VariableFlag(index) => {
                plan.variables.get(index as usize).map(|variable| variable.device.index())
            }
            Place::Constant(index) => plan.constants.get(index as usize).and_then(|constant| constant.device).map(Id::index),
            Place::Feed(_) | Place::Fetch(_) => Some(plan.host.index()),
        };
        let device = index.and_then(|index| plan.devices.get(index));
        device.map_or_else(
            || "the graph".to_string(),
            |device| DeviceName::parse(&device.name).map_or_else(|_| device.name.clone(), |name| name.short()),
        )
    };
    match command.args[..] {
        [from, to] => format!("{} to {}", name(from.place), name(to.place)),
        _ => String::new(),
    }
}
