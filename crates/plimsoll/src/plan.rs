//! A plan for people: whether it fits, and its peaks.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use plimsoll_base::{Bytes, DataType, Result, column_width, pad_left, pad_right};
use plimsoll_device::{DeviceName, Work};
use plimsoll_graph::id::Id;
use plimsoll_graph::{NodeId, Shape};
use plimsoll_plan::{Between, Certainty, ConstantValue, DeviceId, DevicePlan, Holds, Needs, Transfer};
use plimsoll_runtime::{CheckedPlan, Session};

use crate::fit::Fitting;
use crate::{Footprint, Signature};

/// How a signature would run, and the bytes of every device. Prints as a table.
#[derive(Clone)]
pub struct Plan {
    inner: plimsoll_plan::Plan,
    footprint: Footprint,
    /// The smallest limit, where plans are made to fit.
    minimum: Option<Bytes>,
    is_modelled: bool,
    /// Whether a table of costs prices every device that takes part.
    is_predicted: bool,
    /// Of each node of the plan and of the plans behind it: name, operation and device. The session itself is not held: it would keep
    /// its memory.
    nodes: BTreeMap<NodeId, (String, String, DeviceId)>,
    /// Of nodes that are not among these and that buffers or feeds come from: name and operation.
    others: BTreeMap<NodeId, (String, String)>,
    /// The nodes that the host computes, with their devices.
    softened: BTreeMap<NodeId, DeviceId>,
    /// The name of each node from which on peaks are open.
    open_from: BTreeMap<NodeId, String>,
}

/// How a run in stages goes on behind its first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stages<'a> {
    /// The first node whose size only the run knows.
    pub from: &'a str,
    /// The tensors that it depends on, which the first stage makes; or the nodes that are computed behind it.
    pub tensors: &'a [String],
    /// How many plans the rest may have, all of them made; 0 where only the run knows them.
    pub plans: usize,
    /// How many loops the session drives behind the first stage, an iteration behind another.
    pub loops: usize,
}

impl Plan {
    pub(crate) fn new(session: &Session, inner: plimsoll_plan::Plan) -> Plan {
        let node = |id| session.graph().node(id);
        let (mut nodes, mut softened, mut open_from) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let mut named: Vec<NodeId> = Vec::new();
        let mut stages = vec![&inner];
        while let Some(plan) = stages.pop() {
            let entry = |(id, device): &(NodeId, DeviceId)| (*id, (node(*id).name.clone(), node(*id).op.clone(), *device));
            nodes.extend(plan.nodes.iter().map(entry));
            named.extend(plan.feeds.iter().map(|feed| feed.tensor.node));
            named.extend(plan.queues.iter().flat_map(|queue| queue.nodes.iter().flatten()));
            for buffer in plan.buffers.iter() {
                if let Holds::Values(held) = &buffer.holds {
                    named.extend(held.iter().map(|value| value.node));
                }
            }
            softened.extend(plan.softened.iter().map(|softened| (softened.node, softened.device)));
            if let Some(later) = &plan.later {
                open_from.insert(later.from, node(later.from).name.clone());
                stages.extend(later.within.iter().chain(&later.plans).map(|plan| &**plan));
            }
        }
        named.retain(|id| !nodes.contains_key(id));
        let others = named.into_iter().map(|id| (id, (node(id).name.clone(), node(id).op.clone()))).collect();
        let specs = session.devices().specs();
        let mut footprint = plimsoll_plan::Footprint::new(specs);
        footprint.add(&inner);
        let footprint = Footprint(footprint);
        let is_modelled = inner.queues.iter().any(|queue| specs[queue.device.index()].is_modelled());
        let costs = session.devices().costs();
        let is_predicted = inner.queues.iter().all(|queue| costs.predicts(&specs[queue.device.index()]));
        Plan { inner, footprint, minimum: None, is_modelled, is_predicted, nodes, others, softened, open_from }
    }

    pub(crate) fn inner(&self) -> &plimsoll_plan::Plan {
        &self.inner
    }

    /// The name and the operation of a node.
    pub(crate) fn node_of_picture(&self, id: NodeId) -> (String, String) {
        let own = self.nodes.get(&id).map(|(name, op, _)| (name.clone(), op.clone()));
        own.or_else(|| self.others.get(&id).cloned()).unwrap_or_default()
    }

    pub(crate) fn is_modelled(&self) -> bool {
        self.is_modelled
    }

    /// The memory that it needs of each device.
    pub fn devices(&self) -> &[DevicePlan] {
        &self.inner.devices
    }

    /// The copies between devices of a run.
    pub fn transfers(&self) -> Vec<Transfer> {
        self.inner.transfers()
    }

    /// Name, type and shape of each fetched tensor, in order. Where only the run knows the shape, that of an empty vector.
    pub fn fetches(&self) -> impl Iterator<Item = (&str, DataType, &Shape)> {
        self.inner.results()
    }

    /// The same, as the last of several runs that take `footprint` together.
    pub fn with_footprint(&self, footprint: &Footprint) -> Plan {
        Plan { footprint: footprint.clone(), ..self.clone() }
    }

    /// The need of every device: to load the variables that are stored, and to run.
    pub fn footprint(&self) -> &Footprint {
        &self.footprint
    }

    /// The seconds of a step on the virtual clock; none where no device that takes part has one. Of a run in stages, those of the
    /// longest way; none where only the run knows its rest, or how often a loop runs.
    pub fn modelled_seconds(&self) -> Option<f64> {
        seconds(&self.inner).filter(|_| self.is_modelled)
    }

    /// The seconds that a step takes: on the virtual clock where a device has one, else as the table of costs predicts. None where a
    /// device that takes part has neither, and where only the run knows the time.
    pub fn predicted_seconds(&self) -> Option<f64> {
        seconds(&self.inner).filter(|_| self.is_modelled || self.is_predicted)
    }

    /// The name of the costs that it was made with: see [`crate::costs::Costs::fingerprint`].
    pub fn costs(&self) -> &str {
        &self.inner.costs
    }

    /// Whether every device's peak stays under its line.
    pub fn fits(&self) -> bool {
        self.shortfall() == Bytes::ZERO
    }

    /// Bytes that are missing: under the lines of all devices together or, where it is more, of the machine.
    pub fn shortfall(&self) -> Bytes {
        self.footprint.needs().shortfall()
    }

    /// The smallest limit with which it is loaded and runs, given to every device that has one; to every device, where none has. With
    /// [`crate::Options::fit`] a plan for that limit does more again than this one.
    pub fn minimum_limit(&self) -> Bytes {
        self.minimum.unwrap_or_else(|| self.footprint.minimum_limit())
    }

    /// No limit below this is enough, given as [`Plan::minimum_limit`]: a command's operands, results and scratch, and what stays beside them.
    pub fn least_limit(&self) -> Bytes {
        let given = self.footprint.needs().are_limited();
        self.inner.devices.iter().zip(given).filter(|(_, is_given)| *is_given).map(|(device, _)| device.least).max().unwrap_or_default()
    }

    /// The same, where the smallest limit is this.
    #[must_use]
    pub fn with_minimum(self, minimum: Bytes) -> Plan {
        Plan { minimum: Some(minimum), ..self }
    }

    /// For each command that runs again to make it fit: the node that it is named after.
    pub fn recomputed(&self) -> impl Iterator<Item = &str> {
        let nodes = self.fitting().map_or(&[][..], |fitting| &fitting.recomputed);
        nodes.iter().filter_map(|node| self.nodes.get(node).map(|(name, ..)| name.as_str()))
    }

    /// Bytes of values that wait in slower memory, the host's or a file, so that it fits.
    pub fn offloaded(&self) -> Bytes {
        self.fitting().map_or(Bytes::ZERO, |fitting| fitting.offloaded.iter().map(|(_, bytes)| *bytes).sum())
    }

    /// For each value of which a mask is kept in its place so that it fits: its node, and the bytes of the mask.
    pub fn masked(&self) -> impl Iterator<Item = (&str, Bytes)> {
        let masked = self.fitting().map_or(&[][..], |fitting| &fitting.masked);
        masked.iter().filter_map(|(node, bytes)| self.nodes.get(node).map(|(name, ..)| (name.as_str(), *bytes)))
    }

    /// For each chain of operations that is done part by part of its rows so that it fits: its node, and the number of parts.
    pub fn parts(&self) -> impl Iterator<Item = (&str, u64)> {
        let parts = self.fitting().map_or(&[][..], |fitting| &fitting.parts);
        parts.iter().filter_map(|(node, count)| self.nodes.get(node).map(|(name, ..)| (name.as_str(), *count)))
    }

    /// For each loop that keeps its state at every k-th iteration, in the place of lists, so that it fits: its node, and k.
    pub fn segments(&self) -> impl Iterator<Item = (&str, u64)> {
        let segments = self.fitting().map_or(&[][..], |fitting| &fitting.segments);
        segments.iter().filter_map(|(node, every)| self.nodes.get(node).map(|(name, ..)| (name.as_str(), *every)))
    }

    /// For each constant that kernels read in panels of columns and not row by row: its node, and its bytes. They are laid out once, with
    /// [`crate::Options::freeze`].
    pub fn laid_out(&self) -> impl Iterator<Item = (&str, Bytes)> {
        let laid_out = self.inner.constants.iter().filter(|constant| constant.panels.is_some());
        laid_out.map(|constant| (constant.name.as_str(), constant.bytes))
    }

    /// How it was made to fit, where it was.
    pub fn fitting(&self) -> Option<&Fitting> {
        self.inner.fitting.as_ref()
    }

    /// Whether every device's peak stays under its line.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED: the shortfall, the three largest holders by node, and a remedy.
    pub fn check(&self) -> Result<()> {
        self.footprint.check()
    }

    /// The nodes that run: name, operation, full name of the device. Of a run in stages those of all plans that are known.
    pub fn node_places(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        self.nodes.values().map(|(name, op, device)| {
            let device = self.inner.devices.get(device.index()).map_or("", |device| device.name.as_str());
            (name.as_str(), op.as_str(), device)
        })
    }

    /// The nodes that the host computes because their device cannot (see [`crate::Options::soft_placement`]): name, full name of the
    /// device.
    pub fn softened(&self) -> impl Iterator<Item = (&str, &str)> {
        let name = |id: &NodeId| self.nodes.get(id).map(|(name, ..)| name.as_str());
        self.softened.iter().filter_map(move |(id, device)| Some((name(id)?, self.inner.devices[device.index()].name.as_str())))
    }

    /// For each device, how sure its peak is, in words: `exact`, `at most`, `open from NODE`.
    pub fn certainties(&self) -> impl Iterator<Item = String> {
        self.footprint.needs().iter().map(|need| match &need.certainty {
            Certainty::Exact => "exact".to_string(),
            Certainty::AtMost => "at most".to_string(),
            Certainty::OpenFrom(id) => format!("open from {}", self.open_from.get(id).map_or("a run before", String::as_str)),
        })
    }

    /// How it goes on, where it runs in stages.
    pub fn stages(&self) -> Option<Stages<'_>> {
        let later = self.inner.later.as_deref()?;
        let from = self.open_from.get(&later.from).map_or("", String::as_str);
        let loops = later.between.iter().filter(|between| matches!(between, Between::Loop(_))).count();
        Some(Stages { from, tensors: &later.tensors, plans: later.plans.len(), loops })
    }
}

/// A plan from a file, checked: see [`crate::Session::open_plan`].
#[derive(Clone)]
pub struct OpenedPlan {
    checked: CheckedPlan,
    plan: Plan,
}

impl OpenedPlan {
    pub(crate) fn new(session: &Session, checked: CheckedPlan) -> OpenedPlan {
        let plan = Plan::new(session, checked.plan().clone());
        OpenedPlan { checked, plan }
    }

    /// The feeds, fetches and targets. Where a feed has elements, the plan holds for these elements only.
    pub fn signature(&self) -> &Signature {
        self.checked.signature()
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    pub(crate) fn checked(&self) -> &CheckedPlan {
        &self.checked
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rows = vec![
            ["device", "limit", "peak", "variables", "constants", "activations", "workspace", "transfer", "overhead", "certainty", ""]
                .map(str::to_string),
        ];
        for (need, certainty) in self.footprint.needs().iter().zip(self.certainties()) {
            let peak = &need.parts;
            let verdict = match (need.limit, need.shortfall()) {
                (None, _) => String::new(),
                (Some(_), Bytes::ZERO) => "fits".to_string(),
                (Some(_), short) => format!("{} short", bytes_and_size(short)),
            };
            let limit = need.limit.map_or("none".to_string(), |limit| limit.to_string());
            let sizes = [peak.total(), peak.variables, peak.constants, peak.activations, peak.workspace, peak.transfer, peak.overhead];
            let sizes = sizes.map(|size| size.to_string());
            let [total, variables, constants, activations, workspace, transfer, overhead] = sizes;
            rows.push([
                short(&need.name),
                limit,
                total,
                variables,
                constants,
                activations,
                workspace,
                transfer,
                overhead,
                certainty,
                verdict,
            ]);
        }
        write_table(f, &rows)?;
        for need in self.footprint.needs().iter().filter(|need| !need.holders.is_empty()) {
            let holders: Vec<String> = need.holders.iter().take(3).map(|holder| format!("{} {}", holder.name, holder.bytes)).collect();
            writeln!(f, "most of {}: {}", short(&need.name), holders.join(", "))?;
        }
        for ((from, to), (count, bytes)) in pairs(&self.inner) {
            let [from, to] = [from, to].map(|device| short(&self.inner.devices[device].name));
            writeln!(f, "copied from {from} to {to}: {count} {}, {bytes}", if count == 1 { "tensor" } else { "tensors" })?;
        }
        let softened: Vec<(&str, &str)> = self.softened().collect();
        if let [(first, device), more @ ..] = &softened[..] {
            let host = short(&self.inner.devices[self.inner.host.index()].name);
            let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
            writeln!(f, "computed by {host}: {first}{more}, which {} cannot compute", short(device))?;
        }
        if let Some(Stages { from, tensors, plans, loops }) = self.stages() {
            let more = if tensors.len() > 1 { format!(" and {} more", tensors.len() - 1) } else { String::new() };
            let first = tensors.first().map_or("", String::as_str);
            let rest = match plans {
                0 => "the rest is planned when they are known".to_string(),
                plans => format!("the peak is the greatest of its {plans} plans"),
            };
            match loops {
                0 => writeln!(f, "in stages: the size of {from} depends on {first}{more}; {rest}")?,
                _ => writeln!(f, "in stages: the session runs the iterations of {first}{more} one by one; {rest}")?,
            }
        }
        match self.laid_out().count() {
            0 => {}
            count => {
                // Equal ones are there once.
                let values = self.inner.constant_values().filter(|(constant, _)| constant.panels.is_some());
                let values: HashMap<ConstantValue, Bytes> =
                    values.map(|(constant, value)| (ConstantValue::new(constant, value), constant.bytes)).collect();
                let bytes: Bytes = values.into_values().sum();
                writeln!(f, "laid out once: {count} {}, {bytes}", if count == 1 { "constant" } else { "constants" })?;
            }
        }
        if let Some(fitting) = self.fitting() {
            let saved: Bytes = fitting.unfitted.iter().zip(self.devices()).map(|(before, device)| *before - device.arena).sum();
            let ops = match fitting.recomputed.len() {
                1 => "1 op runs again".to_string(),
                ops => format!("{ops} ops run again"),
            };
            let mut how = match self.offloaded() {
                Bytes::ZERO if fitting.recomputed.is_empty() => "ops have another order".to_string(),
                Bytes::ZERO => ops,
                bytes => format!("{ops} and {bytes} wait in slower memory"),
            };
            match fitting.masked.len() {
                0 => {}
                1 => how += " and a mask is kept of 1 value",
                values => how += &format!(" and masks are kept of {values} values"),
            }
            match fitting.parts.len() {
                0 => {}
                1 => how += " and 1 chain of ops runs in parts",
                chains => how += &format!(" and {chains} chains of ops run in parts"),
            }
            let every: BTreeSet<u64> = fitting.segments.iter().map(|(_, every)| *every).collect();
            if let (Some(least), Some(most)) = (every.first(), every.last()) {
                let every = if least == most { ordinal(*most) } else { format!("{} to {}", ordinal(*least), ordinal(*most)) };
                how += &match self.segments().map(|(node, _)| node).collect::<Vec<_>>()[..] {
                    [node] => format!(" and {node} keeps the state of every {every} iteration"),
                    _ => format!(" and {} loops keep the state of every {every} iteration", fitting.segments.len()),
                };
            }
            writeln!(f, "made to fit: {how}, which saves {saved}")?;
        }
        match self.predicted_seconds() {
            Some(seconds) if self.is_modelled => writeln!(f, "a step takes {} on the virtual clock", duration(seconds))?,
            Some(seconds) => writeln!(f, "a step is predicted to take {}", duration(seconds))?,
            None => {}
        }
        let mut minimum = bytes_and_size(self.minimum_limit());
        let is_changed = self.fitting().is_some() || self.shortfall() > Bytes::ZERO;
        if is_changed && (Bytes(1)..self.minimum_limit()).contains(&self.least_limit()) {
            minimum += &format!("; below {} none can", bytes_and_size(self.least_limit()));
        }
        match self.shortfall() {
            Bytes::ZERO if self.footprint.needs().iter().any(|need| matches!(need.certainty, Certainty::OpenFrom(_))) => {
                write!(f, "fits as far as it is known; no limit below {minimum} does")
            }
            Bytes::ZERO => write!(f, "fits; the smallest limit that does is {minimum}"),
            _ if self.footprint.needs().iter().all(|need| need.shortfall() == Bytes::ZERO) => match self.check() {
                Err(error) => write!(f, "does not fit the machine: {}", error.message()),
                Ok(()) => Ok(()),
            },
            shortfall => write!(f, "does not fit: {} short; the smallest limit that fits is {minimum}", bytes_and_size(shortfall)),
        }
    }
}

/// The seconds of the longest way through the stages of a run; none with a loop of which only the run knows the iterations.
fn seconds(plan: &plimsoll_plan::Plan) -> Option<f64> {
    let has_loop = |queue: &plimsoll_plan::Queue| queue.program.commands.iter().any(|command| matches!(command.work, Work::Loop { .. }));
    if !plan.loops_are_counted && plan.queues.iter().any(has_loop) {
        return None;
    }
    let Some(later) = &plan.later else { return Some(plan.seconds) };
    if later.between.iter().any(|between| matches!(between, Between::Loop(_))) {
        return None;
    }
    let rests: Option<Vec<f64>> = later.plans.iter().map(|plan| seconds(plan)).collect();
    Some(plan.seconds + rests?.into_iter().reduce(f64::max)?)
}

/// For each pair of devices, how many tensors a run copies from one to the other, and their sizes together.
fn pairs(plan: &plimsoll_plan::Plan) -> BTreeMap<(usize, usize), (usize, Bytes)> {
    let mut pairs: BTreeMap<(usize, usize), (usize, Bytes)> = BTreeMap::new();
    for transfer in plan.transfers() {
        let (count, bytes) = pairs.entry((transfer.from, transfer.to)).or_default();
        (*count, *bytes) = (*count + 1, *bytes + Bytes(transfer.bytes));
    }
    pairs
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.inner, f)
    }
}

/// `CPU:0` of a full name.
fn short(name: &str) -> String {
    DeviceName::parse(name).map_or_else(|_| name.to_string(), |name| name.short())
}

fn bytes_and_size(bytes: Bytes) -> String {
    match bytes.0 {
        1 => "1 byte".to_string(),
        0..1024 => format!("{} bytes", bytes.0),
        _ => format!("{} bytes ({bytes})", bytes.0),
    }
}

/// `10th`, `21st`.
fn ordinal(number: u64) -> String {
    let ending = match (number % 100, number % 10) {
        (11..=13, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}

fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.1} us", s * 1e6),
        s if s < 1.0 => format!("{:.2} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}

/// Columns as wide as their widest cell, the first to the left, the others to the right; the last two to the left again.
fn write_table<const N: usize>(f: &mut fmt::Formatter<'_>, rows: &[[String; N]]) -> fmt::Result {
    let width = |column: usize| column_width(rows.iter().map(|row| row[column].as_str()));
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = width(column);
            let is_text = column == 0 || column + 2 >= N;
            line += &if is_text { pad_right(cell, width) } else { pad_left(cell, width) };
            line += "  ";
        }
        writeln!(f, "{}", line.trim_end())?;
    }
    Ok(())
}
