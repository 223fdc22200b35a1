//! A run as numbers: parts, works in their order, what they take on each kind of device, and the values between them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use plimsoll_base::{Bytes, Result};
use plimsoll_device::{DeviceKind, DeviceSpec};
use plimsoll_graph::NodeId;
use plimsoll_graph::id::Id;
use plimsoll_placer::{Choices, Device};
use plimsoll_request::KernelRequest;

use super::super::PlaceRequest;
use super::super::wholes::Wholes;
use super::before::{Before, before, followed};
use super::bodies::{Hand, Item, Order};
use super::parts::Groups;
use crate::Request;
use crate::lir::{Home, Lir, RegionId, ValueId, Work as LirWork, WorkId, WorkKind};
use crate::overlap;
use crate::plan::DeviceId;
use crate::prepare::{choose, copy_time, request_of};

/// A kernel, a copy within a device, or a fetch.
#[derive(Clone, Debug)]
pub(super) struct Work {
    pub part: u32,
    /// Its reads in [`Problem::reads`], each value once, and its results in [`Problem::writes`].
    pub reads: Range<usize>,
    pub writes: Range<usize>,
    /// Bytes that are there while it runs only.
    pub scratch: u64,
    /// Whether results may be written over what it reads.
    pub is_in_place: bool,
    /// Whether its results are parts of what it reads, of one size, and all of it: those of a batch, for instance.
    pub divides: bool,
    /// The part of the work into which it is fused where both are on one device: it takes no time there.
    pub fused_into: Option<u32>,
}

/// Seconds that a work adds to any plan at least: none where it may be fused, or not be needed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Floor {
    /// Of its device.
    pub busy: f64,
    /// Between what it reads and what it makes: those of the last step, since one before it may read what is there long before, such as
    /// the filter of a convolution.
    pub last: f64,
}

impl Floor {
    /// Of so many iterations.
    fn repeated(self, times: f64) -> Floor {
        Floor { busy: self.busy * times, last: self.last * times }
    }

    /// The lesser of both.
    fn min(self, other: Floor) -> Floor {
        Floor { busy: self.busy.min(other.busy), last: self.last.min(other.last) }
    }
}

/// Where a value's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In the arena of the device on which a work makes it.
    Made,
    /// In a variable, which is where this part is.
    Kept(u32),
    /// Fed, on the host.
    Host,
    /// On every device that reads it.
    Everywhere,
}

/// What works read and write.
#[derive(Clone, Copy, Debug)]
pub(super) struct Value {
    pub bytes: u64,
    pub place: Place,
    /// Whether it is made in each iteration of a loop: copies of it are among the works of its card.
    pub is_in_body: bool,
}

/// Which works are one part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Joins {
    /// Those that are fused where all is on one device.
    Fused,
    /// None: works are as they are before they are fused. Those that could be fused cost nothing on one device.
    Nothing,
    /// As [`Joins::Fused`], with the works of loops in place of the loops.
    InBodies,
}

/// A run, for every assignment of its parts.
pub(super) struct Problem {
    /// For each part its devices.
    pub choices: Choices,
    /// For each part the bytes of its variables.
    pub kept: Vec<u64>,
    /// For each part, the bytes that a work of a run before the last takes beside all variables.
    pub before: Vec<u64>,
    /// In the order in which queues take them.
    pub works: Vec<Work>,
    pub reads: Vec<u32>,
    pub writes: Vec<u32>,
    pub values: Vec<Value>,
    /// For each value that a work makes, that work's part.
    pub makers: Vec<u32>,
    /// For each work, for each kind of device: its seconds.
    pub seconds: Vec<f64>,
    /// For each work, for each kind of device, what it adds to any plan at least.
    pub floors: Vec<Floor>,
    pub kinds: usize,
    /// For each device its kind.
    pub kind_of: Vec<u16>,
    /// For each value, for each kind of pair of devices: the seconds of a copy.
    pub copies: Vec<f64>,
    /// For each kind of pair: the seconds of a copy of nothing, which are no reason to have it beside the works.
    pub always: Vec<f64>,
    pub pairs: usize,
    /// For each device to each device, the kind of the pair.
    pub pair_of: Vec<u16>,
    pub host: usize,
    /// For each device, the bytes that it may hold; none without a line.
    pub lines: Vec<Option<u64>>,
    /// For each unit of [`Wholes`], its part; none where nothing of it runs.
    pub part_of_unit: Vec<Option<u32>>,
    /// The same; of what does not run the part that it goes with, if there is one.
    pub followed: Vec<Option<u32>>,
}

/// The runs that a problem is made of, where the first device comes first.
pub(super) struct Runs {
    /// The last: its works before they are fused, and when they are.
    pub apart: Lir,
    pub fused: Lir,
    /// Those before it.
    pub before: Vec<Lir>,
}

/// Devices that are alike to those who ask for seconds: numbers for them, and one of each.
fn kinds<T: PartialEq>(of: impl Iterator<Item = T>) -> (Vec<u16>, Vec<usize>) {
    let (mut known, mut firsts): (Vec<T>, Vec<usize>) = (Vec::new(), Vec::new());
    let numbers = of.enumerate().map(|(index, one)| {
        let number = known.iter().position(|other| *other == one).unwrap_or_else(|| {
            known.push(one);
            firsts.push(index);
            known.len() - 1
        });
        number as u16
    });
    let numbers = numbers.collect();
    (numbers, firsts)
}

/// A specification without what does not change seconds.
pub(super) fn of_speed(spec: &DeviceSpec) -> DeviceSpec {
    let mut like = spec.clone();
    (like.name, like.memory_limit, like.machine, like.overhead) = (Default::default(), None, None, Bytes::ZERO);
    like.description.clear();
    if let Some(card) = &mut like.card {
        (card.card, card.priority) = (0, 0);
        card.modelled.iter_mut().for_each(|link| link.peers.clear());
    }
    like
}

impl Problem {
    /// The numbers of runs.
    ///
    /// # Errors
    /// Those of planning.
    pub fn new(request: &PlaceRequest<'_>, wholes: &Wholes, plan: &Request<'_>, runs: &Runs, joins: Joins) -> Result<Problem> {
        let fused = &runs.fused;
        let lir = match joins {
            Joins::Fused | Joins::InBodies => fused,
            Joins::Nothing => &runs.apart,
        };
        let order = Order::new(lir, (joins == Joins::InBodies).then_some(&runs.apart))?;
        let (kind_of, kind_firsts) = kinds(request.devices.iter().map(of_speed));
        let devices = request.devices;
        let pair = |from: &DeviceSpec, to: &DeviceSpec| [1.0, 1e6, 1e9].map(|bytes| request.costs.copy_seconds(from, to, bytes));
        let (pair_of, pair_firsts) = kinds(devices.iter().flat_map(|from| devices.iter().map(move |to| pair(from, to))));
        let groups = Groups::new(request, wholes, lir, &order);
        let mut builder = Builder { plan, lir, order: &order, aliases: order.aliases(lir), groups, kind_firsts: &kind_firsts };
        let (mut reads, mut writes, mut seconds, mut floors) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let variables = builder.variables();
        let (mut works, mut of_node): (Vec<Work>, HashMap<NodeId, Option<usize>>) = (Vec::new(), HashMap::new());
        for item in &order.items {
            let start = (reads.len(), writes.len());
            let handed = match item {
                Item::Hand(hand) => Some((builder.part_of(hand), hand.from, Some(hand.to))),
                Item::Reach(reader, region, value) => Some((builder.part_in(*reader, *region), *value, None)),
                Item::Work(..) => None,
            };
            // But for copies this takes no time.
            if let Some((part, from, to)) = handed {
                reads.push(builder.root(from));
                writes.extend(to.map(|to| to.index() as u32));
                seconds.extend(kind_firsts.iter().map(|_| 0.0));
                floors.extend(kind_firsts.iter().map(|_| Floor::default()));
                let (reads, writes) = (start.0..reads.len(), start.1..writes.len());
                works.push(Work { part, reads, writes, scratch: 0, is_in_place: true, divides: false, fused_into: None });
                continue;
            }
            let Item::Work(id, region) = *item else { continue };
            let work = &lir.works[id];
            if is_transfer(lir, work) {
                continue;
            }
            let part = builder.part(work).or_else(|| builder.moved(work, region));
            let mut read: Vec<u32> = work.reads().chain(order.test(region)).map(|value| builder.root(value)).collect();
            read.sort_unstable();
            read.dedup();
            reads.extend(read);
            let is_fetch = work.outputs.iter().all(|output| matches!(lir.values[*output].home, Home::Fetch(_)));
            writes.extend(
                work.outputs
                    .iter()
                    .filter(|output| !matches!(lir.values[**output].home, Home::Fetch(_)))
                    .map(|output| output.index() as u32),
            );
            let times = builder.seconds(lir, work);
            // What only some kinds of device have a kernel for stays on these; on others it would be the host's.
            if let Some(part) = part {
                builder.groups.narrow(part, |device| times[usize::from(kind_of[usize::from(device)])].is_some());
                // In a body the host computes nothing beside cards, unless it is asked to.
                let is_card = |device: &Device| devices[usize::from(*device)].kind == DeviceKind::Gpu;
                if region != lir.here() && builder.groups.choices[part as usize].iter().any(is_card) {
                    builder.groups.narrow(part, |device| usize::from(device) != plan.placement.host.index());
                }
            }
            let fixed = |builder: &mut Builder<'_>| builder.groups.fixed(if is_fetch { plan.placement.host } else { work.device });
            let part = part.unwrap_or_else(|| fixed(&mut builder));
            let runs = order.times[region];
            seconds.extend(times.iter().map(|time| time.unwrap_or(0.0) * runs));
            floors.extend(builder.floors(lir, work).into_iter().map(|floor| floor.repeated(runs)));
            let scratch = scratch(lir, work);
            let is_in_place = matches!(work.kind, WorkKind::Expr { .. });
            of_node.entry(work.nodes[0]).and_modify(|index| *index = None).or_insert(Some(works.len()));
            let (reads, writes) = (start.0..reads.len(), start.1..writes.len());
            works.push(Work { part, reads, writes, scratch, is_in_place, divides: divides(lir, work), fused_into: None });
        }
        for (_, whole) in fused.all().filter(|(_, work)| joins == Joins::Nothing && work.nodes.len() > 1) {
            let index = |node: &NodeId| of_node.get(node).copied().flatten();
            let Some(main) = index(&whole.nodes[0]) else { continue };
            let times = builder.seconds(fused, whole);
            let of_whole = builder.floors(fused, whole);
            times.iter().zip(of_whole).enumerate().for_each(|(kind, (time, whole))| {
                let own = &mut seconds[main * kind_firsts.len() + kind];
                *own = time.unwrap_or(*own);
                let floor = &mut floors[main * kind_firsts.len() + kind];
                *floor = floor.min(whole);
            });
            let into = works[main].part;
            for member in whole.nodes[1..].iter().filter_map(index) {
                works[member].fused_into = Some(into);
                floors[member * kind_firsts.len()..(member + 1) * kind_firsts.len()].fill(Floor::default());
            }
        }
        let values: Vec<Value> = lir.values.ids().map(|id| builder.value(id)).collect();
        let followed = followed(request, wholes, &builder.groups.unit_part);
        let seen = lir.values.values().filter(|value| matches!(value.home, Home::Variable(_))).map(|value| value.node).collect();
        let Before { mut kept, most } = before(request, &mut builder.groups, &followed, seen, &runs.before);
        let Groups { choices, unit_part, .. } = builder.groups;
        variables.iter().for_each(|(part, bytes)| kept[*part as usize] += bytes);
        let mut makers = vec![0; values.len()];
        works.iter().for_each(|work: &Work| writes[work.writes.clone()].iter().for_each(|value: &u32| makers[*value as usize] = work.part));
        let mut copies = Vec::with_capacity(values.len() * pair_firsts.len());
        for (value, of) in values.iter().zip(lir.values.values()) {
            let runs = order.times[of.region];
            let of_pair = |first: &usize| {
                runs * request.costs.copy_seconds(&devices[first / devices.len()], &devices[first % devices.len()], value.bytes as f64)
            };
            copies.extend(pair_firsts.iter().map(of_pair));
        }
        let always_of = |first: &usize| overlap::always(&devices[first / devices.len()], &devices[first % devices.len()]);
        let always = pair_firsts.iter().map(always_of).collect();
        let lines = (0..devices.len()).map(|device| request.left(device).map(|left| (left - devices[device].overhead).0)).collect();
        Ok(Problem {
            choices: Choices::new(choices),
            kept,
            before: most,
            works,
            reads,
            writes,
            values,
            makers,
            seconds,
            floors,
            kinds: kind_firsts.len(),
            kind_of,
            copies,
            always,
            pairs: pair_firsts.len(),
            pair_of,
            host: plan.placement.host.index(),
            lines,
            part_of_unit: unit_part,
            followed,
        })
    }

    /// The part that a value comes from; none of a feed or a constant.
    pub fn source(&self, value: usize) -> Option<u32> {
        match self.values[value].place {
            Place::Kept(part) => Some(part),
            Place::Made => Some(self.makers[value]),
            Place::Host | Place::Everywhere => None,
        }
    }

    /// The seconds of a work on a device.
    pub fn seconds(&self, work: usize, device: usize) -> f64 {
        self.seconds[work * self.kinds + usize::from(self.kind_of[device])]
    }

    /// What a work adds to any plan at least, on a device.
    pub fn floor(&self, work: usize, device: usize) -> Floor {
        self.floors[work * self.kinds + usize::from(self.kind_of[device])]
    }

    /// The seconds of a work where it takes the least; 0 of one that is fused.
    pub fn least_seconds(&self, work: usize) -> f64 {
        let Work { part, fused_into, .. } = self.works[work];
        let devices = self.choices.of(part as usize).iter();
        if fused_into.is_some() {
            0.0
        } else {
            devices.map(|device| self.seconds(work, usize::from(*device))).fold(f64::INFINITY, f64::min)
        }
    }

    /// Parts of which one reads what the other makes, with the seconds of moving that where it takes the most. Variables do not count.
    pub fn exchanges_of_results(&self) -> impl Iterator<Item = (u32, u32, f64)> + '_ {
        self.exchanges().filter(|(value, ..)| self.values[*value].place == Place::Made).map(|(_, one, other, dear)| (one, other, dear))
    }

    /// Values, from which part to which they go, and the seconds of moving them where that takes the most.
    pub fn exchanges(&self) -> impl Iterator<Item = (usize, u32, u32, f64)> + '_ {
        let dear = |value: usize| self.copies[value * self.pairs..(value + 1) * self.pairs].iter().copied().fold(0.0, f64::max);
        let reads = self.works.iter().flat_map(|work| self.reads[work.reads.clone()].iter().map(|value| (*value as usize, work.part)));
        reads.filter_map(move |(value, part)| {
            self.source(value).filter(|other| *other != part).map(|other| (value, other, part, dear(value)))
        })
    }

    /// The seconds of a copy of a value.
    pub fn copy(&self, value: usize, from: usize, to: usize) -> f64 {
        self.copies[value * self.pairs + self.pair(from, to)]
    }

    /// Whether a copy that takes so long can be beside the works of its card.
    pub fn is_long(&self, seconds: f64, from: usize, to: usize) -> bool {
        seconds - self.always[self.pair(from, to)] >= overlap::LEAST
    }

    fn pair(&self, from: usize, to: usize) -> usize {
        usize::from(self.pair_of[from * self.kind_of.len() + to])
    }
}

/// Whether a work is a copy from one device to another that another assignment may not need.
pub(super) fn is_transfer(lir: &Lir, work: &LirWork) -> bool {
    matches!(work.kind, WorkKind::Copy) && work.outputs.iter().all(|output| lir.values[*output].is_copy)
}

/// Whether a work's results are of one size, and together that of what it reads.
fn divides(lir: &Lir, work: &LirWork) -> bool {
    let mut bytes = work.outputs.iter().map(|output| lir.values[*output].bytes);
    let first = bytes.next().unwrap_or_default();
    let read = work.reads().map(|value| lir.values[value].bytes).max().unwrap_or_default();
    work.outputs.len() > 1 && bytes.all(|other| other == first) && first > 0 && first.checked_mul(work.outputs.len() as u64) == Some(read)
}

struct Builder<'a> {
    plan: &'a Request<'a>,
    lir: &'a Lir,
    order: &'a Order,
    aliases: HashMap<ValueId, ValueId>,
    groups: Groups,
    kind_firsts: &'a [usize],
}

impl Builder<'_> {
    fn root(&self, mut value: ValueId) -> u32 {
        while let Some(&other) = self.aliases.get(&value) {
            value = other;
        }
        value.index() as u32
    }

    /// The part of a work; none where its device is not free.
    fn part(&self, work: &LirWork) -> Option<u32> {
        let is_fetch = work.outputs.iter().any(|output| matches!(self.lir.values[*output].home, Home::Fetch(_)));
        if is_fetch && matches!(work.kind, WorkKind::Copy) {
            return None;
        }
        work.nodes.iter().find_map(|node| self.groups.part(*node))
    }

    /// The part of what a loop is given or hands out: where the loop has it.
    fn part_of(&mut self, hand: &Hand) -> u32 {
        let holder = &self.lir.works[hand.holder];
        self.groups.part(hand.node).or_else(|| self.part(holder)).unwrap_or_else(|| self.groups.fixed(holder.device))
    }

    /// The part of a work of a body.
    fn part_in(&mut self, work: WorkId, region: RegionId) -> u32 {
        let work = &self.lir.works[work];
        self.part(work).or_else(|| self.moved(work, region)).unwrap_or_else(|| self.groups.fixed(work.device))
    }

    /// The part of a work of a body that is elsewhere than its node, since it computes beside the rest of the body: that of the first work of
    /// the body that is free.
    fn moved(&self, work: &LirWork, region: RegionId) -> Option<u32> {
        if region == self.lir.here() || work.nodes.iter().all(|node| self.plan.placement.devices[*node] == work.device) {
            return None;
        }
        self.lir.regions[region].works.iter().find_map(|inner| self.part(&self.lir.works[*inner]))
    }

    /// For each variable, its part and its bytes.
    fn variables(&mut self) -> Vec<(u32, u64)> {
        let mut seen = HashSet::new();
        let mut found = Vec::new();
        for (_, value) in self.lir.values.iter() {
            if let Home::Variable(id) = value.home
                && seen.insert(id)
            {
                let part = self.groups.part(value.node).unwrap_or_else(|| self.groups.fixed(value.device));
                let spec = &self.plan.devices[value.device.index()];
                found.push((part, spec.slot(self.lir.variables[id].bytes).0));
            }
        }
        found
    }

    fn value(&self, id: ValueId) -> Value {
        let value = &self.lir.values[id];
        let place = self.place(id);
        let bytes = match value.home {
            Home::Fetch(_) => 0,
            _ => self.plan.devices[value.device.index()].slot(Bytes(value.bytes)).0,
        };
        Value { bytes, place, is_in_body: value.region != self.lir.here() }
    }

    /// Where a value is. Variables are where the first version of them is; a loop's output is named after its condition.
    fn place(&self, id: ValueId) -> Place {
        let value = &self.lir.values[id];
        match value.home {
            Home::Variable(_) | Home::Flag(_) => {
                let first = std::iter::successors(Some(id), |id| self.lir.values[*id].previous).last().unwrap_or(id);
                let node = self.lir.values[first].node;
                Place::Kept(self.groups.part(node).unwrap_or_else(|| self.groups.known(value.device)))
            }
            Home::Feed(_) => Place::Host,
            Home::Constant(_) => Place::Everywhere,
            Home::Given { .. } => self.order.around(self.lir, id).map_or(Place::Made, |around| self.place(around)),
            Home::Arena | Home::Fetch(_) => Place::Made,
        }
    }

    /// For each kind of device, the seconds of a work; none where it has no kernel.
    fn seconds(&self, lir: &Lir, work: &LirWork) -> Vec<Option<f64>> {
        self.kind_firsts.iter().map(|device| self.seconds_on(lir, work, DeviceId::from_index(*device))).collect()
    }

    /// For each kind of device, what a work adds to any plan at least: nothing where it has no kernel.
    fn floors(&self, lir: &Lir, work: &LirWork) -> Vec<Floor> {
        self.kind_firsts.iter().map(|device| self.floor_on(lir, work, DeviceId::from_index(*device)).unwrap_or_default()).collect()
    }

    /// Elementwise works may be fused, a convolution may take its pooling, copies may not be needed, and an anchor may be alone.
    fn floor_on(&self, lir: &Lir, work: &LirWork, device: DeviceId) -> Option<Floor> {
        let request = match &work.kind {
            WorkKind::Request { request, .. } if matches!(**request, KernelRequest::MaxPool(_)) => return Some(Floor::default()),
            WorkKind::Expr { .. } | WorkKind::Copy | WorkKind::Outside { .. } | WorkKind::Parts(_) => return Some(Floor::default()),
            WorkKind::Loop { body, trips, .. } => {
                let seconds = self.once_at_least(lir, work, *body, device)? * trips.predicted();
                return Some(Floor { busy: seconds, last: seconds });
            }
            WorkKind::Request { request, .. } => (**request).clone(),
            WorkKind::Kernel { call, .. } => (*call.request).clone(),
            WorkKind::Anchor { .. } => request_of(work)?,
        };
        let floor = self.variant_floor(device, &request).or_else(|| self.variant_floor(device, &request.without_sums()?))?;
        let bare = match request {
            KernelRequest::Anchor { anchor, .. } => Some(KernelRequest::Anchor { anchor, epilogue: None, pooling: None }),
            KernelRequest::ConvBackpropFilter { spec, .. } => Some(KernelRequest::ConvBackpropFilter { spec, unpooled: None }),
            // The convolution before it may sum for it.
            KernelRequest::BatchNorm { spec, training: true, reserve_3, summed: false, epilogue } => {
                Some(KernelRequest::BatchNorm { spec, training: true, reserve_3, summed: true, epilogue })
            }
            other => other.without_sums(),
        };
        let bare = bare.and_then(|bare| self.variant_floor(device, &bare));
        Some(bare.map_or(floor, |bare| bare.min(floor)))
    }

    /// Seconds of an iteration of a loop at least, with what is placed with it on a device: those of the device that has most to do.
    fn once_at_least(&self, lir: &Lir, work: &LirWork, body: RegionId, device: DeviceId) -> Option<f64> {
        let own = self.part(work);
        let mut of_seats: BTreeMap<Seat, f64> = BTreeMap::new();
        for inner in lir.regions[body].works.iter().map(|inner| &lir.works[*inner]) {
            let busy = |device: DeviceId| Some(self.floor_on(lir, inner, device)?.busy);
            let least = |devices: &[Device]| {
                let of = devices.iter().filter_map(|device| busy(DeviceId::from_index(usize::from(*device))));
                of.reduce(f64::min).unwrap_or_default()
            };
            let (seat, seconds) = match self.part(inner) {
                Some(part) if Some(part) == own => (Seat::Part(part), busy(device)?),
                Some(part) => (Seat::Part(part), least(&self.groups.choices[part as usize])),
                None => (Seat::Device(inner.device.index()), busy(inner.device).unwrap_or_default()),
            };
            *of_seats.entry(seat).or_default() += seconds;
        }
        Some(of_seats.into_values().fold(0.0, f64::max))
    }

    /// The seconds of a request on a device, of all its steps and of the last; none where it has no kernel.
    fn variant_floor(&self, device: DeviceId, request: &KernelRequest) -> Option<Floor> {
        let variant = choose(self.plan, device, request).ok()?;
        let step = |step| self.plan.costs.step_seconds(&self.plan.devices[device.index()], step);
        Some(Floor { busy: variant.steps.iter().map(step).sum(), last: variant.steps.last().map_or(0.0, step) })
    }

    fn seconds_on(&self, lir: &Lir, work: &LirWork, device: DeviceId) -> Option<f64> {
        // On a device without sums of convolutions it would be the same without them.
        let of = |request: &KernelRequest| {
            let floor = self.variant_floor(device, request).or_else(|| self.variant_floor(device, &request.without_sums()?));
            Some(floor?.busy)
        };
        match &work.kind {
            WorkKind::Request { request, .. } => of(request),
            WorkKind::Kernel { call, .. } => of(&call.request),
            WorkKind::Expr { .. } | WorkKind::Anchor { .. } => of(&request_of(work)?),
            WorkKind::Copy => Some(copy_time(self.plan, lir, work, device)),
            WorkKind::Outside { .. } => Some(0.0),
            WorkKind::Parts(parts) => Some(parts.seconds()),
            WorkKind::Loop { body, trips, .. } => {
                let inner = lir.regions[*body].works.iter().map(|inner| self.seconds_on(lir, &lir.works[*inner], device));
                Some(inner.sum::<Option<f64>>()? * trips.predicted())
            }
        }
    }
}

/// What a work of a body is placed with.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Seat {
    Part(u32),
    Device(usize),
}

/// Bytes while it runs: of a loop those of its body, all at once.
pub(super) fn scratch(lir: &Lir, work: &LirWork) -> u64 {
    match &work.kind {
        WorkKind::Outside { scratch, .. } => *scratch,
        WorkKind::Parts(parts) => parts.scratch,
        WorkKind::Loop { body, .. } => {
            let inner = lir.regions[*body].works.iter().map(|inner| &lir.works[*inner]);
            let made = |inner: &LirWork| inner.outputs.iter().map(|output| lir.values[*output].bytes).sum::<u64>();
            inner.map(|inner| made(inner) + scratch(lir, inner)).sum()
        }
        _ => 0,
    }
}
