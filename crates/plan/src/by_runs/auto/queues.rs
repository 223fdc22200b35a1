//! Rates an assignment: the queues of the devices, run on paper, and the bytes that are live.
//!
//! Queues take works in their order, as [`crate::Plan::on_the_clock`] says: devices of one card share its processors and its link, and
//! the processors' devices share theirs. A copy is in the queue of the card that carries it, or beside its works ([`crate::overlap`]). From card to
//! card it has the links of both.

use plimsoll_device::{DeviceKind, DeviceSpec};
use plimsoll_placer::{Choices, Device, Model, Rating};

use super::super::{Least, Objective};
use super::bounds::{Bounds, least};
use super::moments::{Moment, NEVER, OfDevice, Readers, Times};
use super::problem::{Place, Problem, Value};

/// Seconds that no step takes.
const NO_ROOM: f64 = 1e9;

/// Of two assignments for a stream that are alike, the one with the shorter step is better: this part of its time counts.
const STEP: f64 = 1e-4;

/// So many works after another there is a moment from which a rating can go on.
const STRIDE: usize = 32;

/// Parts of an assignment that are compared at once.
const STRETCH: usize = 64;

/// What bytes above the lines cost, where plans are made to fit: what waits elsewhere or is computed again takes its time.
#[derive(Clone, Debug)]
pub(super) struct Price {
    /// Seconds that each byte adds to a step, on the device that is the furthest above its line.
    pub per_byte: f64,
    /// For each device, the bytes that variables and its largest work may have: what that reads and makes is there in any case.
    pub walls: Vec<Option<u64>>,
}

/// Where the bytes of a value are before it is copied.
#[derive(Clone, Copy)]
struct Source {
    bytes: u64,
    /// The part whose device has it; none of what is on the host, or on all devices.
    part: u32,
    place: At,
    is_in_body: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Work,
    Variable,
    Host,
    Everyone,
}

impl Source {
    fn new(problem: &Problem, value: usize) -> Source {
        let Value { bytes, place, is_in_body } = problem.values[value];
        let (part, place) = match place {
            Place::Made => (problem.makers[value], At::Work),
            Place::Kept(part) => (part, At::Variable),
            Place::Host => (NEVER, At::Host),
            Place::Everywhere => (NEVER, At::Everyone),
        };
        Source { bytes, part, place, is_in_body }
    }
}

/// The paper of a problem.
pub(super) struct Queues<'a> {
    pub problem: &'a Problem,
    pub objective: Objective,
    /// For each device, the engine of its works, and that of copies that leave or enter its card.
    engines: Vec<(usize, usize)>,
    pub is_card: Vec<bool>,
    /// For each device, whether the link of its card is an engine of its own.
    has_link: Vec<bool>,
    cards: Vec<Option<u32>>,
    /// Bytes that a device may hold: the lines, made tighter where plans took more than this model says.
    pub lines: Vec<Option<u64>>,
    /// Where devices may be above their lines: at a price.
    pub price: Option<Price>,
    beside: Vec<Vec<u32>>,
    /// For each part the first work that is another one where the part is elsewhere, and values that it reads or makes.
    first: Vec<u32>,
    values_of: Vec<Vec<u32>>,
    bounds: Bounds,
    /// What a run asks of each value for each of its readers.
    sources: Vec<Source>,
    now: Moment,
    times: Times,
    readers: Readers,
    /// The assignment that is kept; none at first. Its moments, and those of the one tried, of which the first ones are not used.
    kept: Vec<Device>,
    moments: Vec<Moment>,
    tried: Vec<Device>,
    /// Parts that are elsewhere in it than in what is kept.
    differing: Vec<u32>,
    tried_moments: Vec<Moment>,
    tried_from: usize,
}

impl<'a> Queues<'a> {
    pub fn new(problem: &'a Problem, devices: &[DeviceSpec], objective: Objective) -> Queues<'a> {
        let mut known: Vec<(bool, Option<u32>, usize)> = Vec::new();
        let mut number = |key: (bool, Option<u32>, usize)| {
            known.iter().position(|other| *other == key).unwrap_or_else(|| {
                known.push(key);
                known.len() - 1
            })
        };
        let engines: Vec<(usize, usize)> = devices
            .iter()
            .enumerate()
            .map(|(index, spec)| match &spec.card {
                Some(card) => {
                    let own = number((false, Some(card.card), 0));
                    (own, if spec.is_modelled() { number((true, Some(card.card), 0)) } else { own })
                }
                None => {
                    let own = number((false, None, if spec.kind == DeviceKind::Cpu { usize::MAX } else { index }));
                    (own, own)
                }
            })
            .collect();
        let count = known.len();
        let parts = problem.choices.len();
        let mut beside = vec![Vec::new(); parts];
        for work in &problem.works {
            for &value in &problem.reads[work.reads.clone()] {
                if let Some(other) = problem.source(value as usize).filter(|other| *other != work.part) {
                    beside[other as usize].push(work.part);
                    beside[work.part as usize].push(other);
                }
            }
        }
        for beside in &mut beside {
            beside.sort_unstable();
            beside.dedup();
        }
        let readers = Readers::new(problem, devices.len());
        let (first, values_of) = by_part(problem, &readers);
        let moments = || (0..problem.works.len().div_ceil(STRIDE).max(1)).map(|_| Moment::new(devices.len(), count)).collect();
        Queues {
            problem,
            objective,
            engines,
            has_link: devices.iter().map(DeviceSpec::is_modelled).collect(),
            is_card: devices.iter().map(|spec| spec.kind == DeviceKind::Gpu).collect(),
            cards: devices.iter().map(|spec| spec.card.as_ref().map(|card| card.card)).collect(),
            lines: problem.lines.clone(),
            price: None,
            beside,
            first,
            values_of,
            bounds: Bounds::new(problem, &readers, count),
            sources: (0..problem.values.len()).map(|value| Source::new(problem, value)).collect(),
            now: Moment::new(devices.len(), count),
            times: Times::new(problem.values.len() * (devices.len() + 1)),
            readers,
            kept: Vec::new(),
            moments: moments(),
            tried: Vec::new(),
            differing: Vec::new(),
            tried_moments: moments(),
            tried_from: 0,
        }
    }

    /// For each part, the seconds of its works where they take the least.
    pub fn loads(&self) -> Vec<f64> {
        let mut loads = vec![0.0; self.problem.choices.len()];
        self.problem.works.iter().enumerate().for_each(|(index, work)| loads[work.part as usize] += self.problem.least_seconds(index));
        loads
    }

    /// What every assignment takes at least.
    pub fn least(&self) -> Least {
        least(self.problem, &self.readers, &self.engines)
    }

    /// Where the time is kept at which a value is on a device.
    fn slot(&self, value: usize, device: usize) -> usize {
        self.slot_made(value) + 1 + device
    }

    /// Where the time is kept at which a value is made.
    fn slot_made(&self, value: usize) -> usize {
        value * (self.is_card.len() + 1)
    }

    /// When a value is made: 0 of one that is there from the beginning.
    fn made(&self, value: usize) -> f64 {
        self.times.get(self.slot_made(value)).unwrap_or(0.0)
    }

    /// When a value is on a device, with a copy if it has to be, for a work; none of which takes place without `work`.
    fn arrives(&mut self, value: usize, from: usize, to: usize, work: Option<u32>) -> f64 {
        if from == to {
            return self.made(value);
        }
        let slot = self.slot(value, to);
        self.times.get(slot).unwrap_or_else(|| self.copied(value, from, to, work))
    }

    /// When a copy of a value ends that is not there yet, which takes place for a work.
    fn copied(&mut self, value: usize, from: usize, to: usize, work: Option<u32>) -> f64 {
        let carrier = if self.is_card[from] && !self.is_card[to] { from } else { to };
        let leaves = self.cards[from] != self.cards[to];
        let engine = if leaves { self.engines[carrier].1 } else { self.engines[carrier].0 };
        let other = if carrier == from { to } else { from };
        let sender = Some(self.engines[other].1).filter(|_| leaves && self.has_link[carrier] && self.has_link[other]);
        let seconds = self.problem.copy(value, from, to);
        // A copy of a card that takes its time runs beside its works.
        let is_long = self.problem.is_long(seconds, from, to);
        let is_beside = leaves && self.is_card[carrier] && is_long && !self.sources[value].is_in_body;
        let queue = if is_beside { 0.0 } else { self.now.devices[carrier].queue };
        let is_free = self.now.engines[engine].free.max(sender.map_or(0.0, |sender| self.now.engines[sender].free));
        let start = queue.max(is_free).max(self.made(value));
        let end = start + seconds;
        if let Some(work) = work {
            for engine in sender.into_iter().chain([engine]) {
                let engine = &mut self.now.engines[engine];
                engine.busy += seconds;
                engine.free = end;
            }
            if !is_beside {
                self.now.devices[carrier].queue = end;
            }
            self.times.set(self.slot(value, to), work, end);
        }
        end
    }

    /// Looks for parts that are elsewhere than in what is kept; stretches that are alike are compared as a whole.
    fn differing(&mut self, devices: &[Device]) {
        self.differing.clear();
        if self.kept.is_empty() {
            self.differing.extend(0..devices.len() as u32);
            return;
        }
        for (stretch, (new, old)) in devices.chunks(STRETCH).zip(self.kept.chunks(STRETCH)).enumerate().filter(|(_, (new, old))| new != old)
        {
            let parts = new.iter().zip(old).enumerate().filter(|(_, (new, old))| new != old);
            self.differing.extend(parts.map(|(part, _)| (stretch * STRETCH + part) as u32));
        }
    }

    /// Gives each group of parts, when the first of its works comes, the device where that ends first; what is on its way to that
    /// device counts. A variable goes where it is read first.
    pub fn earliest(&mut self, group_of: &[u32], choices: &Choices, loads: &[f64]) -> Vec<Device> {
        self.now = Moment::new(self.is_card.len(), self.now.engines.len());
        self.times.begin(0);
        self.tried.clear();
        let problem = self.problem;
        let mut device_of: Vec<Option<Device>> = vec![None; choices.len()];
        let mut load = vec![0.0; self.is_card.len()];
        let mut kept = vec![0u64; choices.len()];
        problem.kept.iter().enumerate().for_each(|(part, bytes)| kept[group_of[part] as usize] += bytes);
        let mut held = vec![0u64; self.is_card.len()];
        let mut location: Vec<Option<Device>> = vec![None; problem.values.len()];
        for (index, work) in problem.works.iter().enumerate() {
            let group = group_of[work.part as usize] as usize;
            let from = |value: u32, device_of: &[Option<Device>], location: &[Option<Device>]| match problem.values[value as usize].place {
                Place::Kept(part) => device_of[group_of[part as usize] as usize],
                Place::Host => Some(problem.host as Device),
                Place::Made => location[value as usize],
                Place::Everywhere => None,
            };
            let device = match device_of[group] {
                Some(device) => device,
                None => {
                    let mut best: Option<(f64, Device)> = None;
                    for &device in choices.of(group) {
                        let at = usize::from(device);
                        let mut start = self.now.devices[at].queue.max(self.now.engines[self.engines[at].0].free).max(load[at]);
                        for &value in &problem.reads[work.reads.clone()] {
                            if let Some(from) = from(value, &device_of, &location) {
                                start = start.max(self.arrives(value as usize, usize::from(from), at, None));
                            }
                        }
                        let has_room = self.lines[at].is_none_or(|line| held[at] + kept[group] <= line);
                        let end = start + problem.seconds(index, at) + if has_room { 0.0 } else { NO_ROOM };
                        if best.is_none_or(|(least, _)| end < least) {
                            best = Some((end, device));
                        }
                    }
                    let device = best.map_or(0, |(_, device)| device);
                    device_of[group] = Some(device);
                    load[usize::from(device)] += loads[group];
                    held[usize::from(device)] += kept[group];
                    device
                }
            };
            let at = usize::from(device);
            let mut ready = 0.0f64;
            for position in work.reads.clone() {
                let value = problem.reads[position];
                // A variable that is nowhere yet comes here, if it may.
                if let Place::Kept(part) = problem.values[value as usize].place {
                    let other = group_of[part as usize] as usize;
                    if device_of[other].is_none() {
                        let to = if choices.of(other).contains(&device) { device } else { choices.of(other)[0] };
                        device_of[other] = Some(to);
                        load[usize::from(to)] += loads[other];
                        held[usize::from(to)] += kept[other];
                    }
                }
                if let Some(from) = from(value, &device_of, &location) {
                    ready = ready.max(self.arrives(value as usize, usize::from(from), at, Some(index as u32)));
                }
            }
            let is_fused = work.fused_into.is_some_and(|part| device_of[group_of[part as usize] as usize] == Some(device));
            let end = self.run(index, at, ready, is_fused);
            for &value in &problem.writes[work.writes.clone()] {
                self.times.set(self.slot_made(value as usize), index as u32, end);
                location[value as usize] = Some(device);
            }
        }
        device_of.iter().enumerate().map(|(group, device)| device.unwrap_or(choices.of(group)[0])).collect()
    }

    /// Runs a work, which takes no time where it is fused into another. When it ends.
    fn run(&mut self, work: usize, device: usize, ready: f64, is_fused: bool) -> f64 {
        let engine = &mut self.now.engines[self.engines[device].0];
        let queue = &mut self.now.devices[device].queue;
        let seconds = if is_fused { 0.0 } else { self.problem.seconds(work, device) };
        let end = queue.max(engine.free).max(ready) + seconds;
        engine.busy += seconds;
        if self.problem.works[work].fused_into.is_none() {
            engine.done += seconds;
        }
        (*queue, engine.free) = (end, end);
        end
    }

    /// Runs the works from one on. Whether to the end: not where that is later than `most`.
    fn simulate(&mut self, from: usize, devices: &[Device], most: f64) -> bool {
        let problem = self.problem;
        for (index, work) in problem.works.iter().enumerate().skip(from) {
            if index % STRIDE == 0 {
                self.tried_moments[index / STRIDE].copy(&self.now);
            }
            let at = usize::from(devices[work.part as usize]);
            let number = index as u32;
            let mut ready = 0.0f64;
            // Bytes that the work reads and makes, and those that are free behind it.
            let (mut read, mut made, mut freed) = (0, 0, 0);
            for &value in &problem.reads[work.reads.clone()] {
                let value = value as usize;
                let Source { bytes, place, .. } = self.sources[value];
                let Some(from) = self.home(value, devices) else {
                    let slot = self.slot(value, at);
                    if self.times.get(slot).is_none() {
                        self.times.set(slot, number, 0.0);
                        self.now.devices[at].constants += bytes;
                    }
                    continue;
                };
                if from == at {
                    ready = ready.max(self.made(value));
                    if place == At::Work {
                        read += bytes;
                    }
                    if self.readers.free(value) == number {
                        freed += bytes;
                    }
                    continue;
                }
                read += bytes;
                if let Some(time) = self.times.get(self.slot(value, at)) {
                    ready = ready.max(time);
                } else {
                    ready = ready.max(self.copied(value, from, at, Some(number)));
                    let there = &mut self.now.devices[at];
                    there.live += bytes;
                    there.peak = there.peak.max(there.live);
                    if self.readers.free(value) == number {
                        let live = &mut self.now.devices[from].live;
                        *live = live.saturating_sub(bytes);
                    }
                }
                if self.readers.last(value, at) == number {
                    freed += bytes;
                }
            }
            let is_fused = work.fused_into.is_some_and(|part| usize::from(devices[part as usize]) == at);
            let end = self.run(index, at, ready, is_fused);
            self.now.makespan = self.now.makespan.max(end);
            if self.at_least(index, at, end) > most {
                return false;
            }
            let mut unread = 0;
            for &value in &problem.writes[work.writes.clone()] {
                let value = value as usize;
                self.times.set(self.slot_made(value), number, end);
                let Source { bytes, place, .. } = self.sources[value];
                if place == At::Work {
                    made += bytes;
                    if self.readers.free(value) == NEVER {
                        unread += bytes;
                    }
                }
            }
            let there = &mut self.now.devices[at];
            // What it reads for the last time is free before its results are there, or behind it.
            let (before, behind) = if work.is_in_place { (freed, 0) } else { (0, freed) };
            there.live = there.live.saturating_sub(before) + made;
            let of_work = if work.is_in_place { read.max(made) } else { read + made };
            there.of_works = there.of_works.max(of_work + work.scratch);
            there.peak = there.peak.max(there.live + work.scratch);
            there.live = there.live.saturating_sub(behind + unread);
        }
        true
    }

    /// Seconds that the rating is not below, after a work that ends then.
    fn at_least(&self, work: usize, device: usize, end: f64) -> f64 {
        let engine = self.engines[device].0;
        let now = &self.now.engines[engine];
        let left = self.bounds.loads[engine] - now.done;
        match self.objective {
            Objective::Latency => (now.free + left).max(end + self.bounds.tails[work]),
            Objective::Throughput => now.busy + left,
        }
    }

    /// For each device the bytes that it holds at most, in any run, with the assignment that was run last.
    pub fn held(&self, devices: &[Device]) -> Vec<u64> {
        self.beside_variables(devices, |device| device.peak)
    }

    /// The same of its largest work alone: no schedule holds less, unless it does works in parts.
    pub fn held_by_works(&self, devices: &[Device]) -> Vec<u64> {
        self.beside_variables(devices, |device| device.of_works)
    }

    /// For each device the bytes of its variables, and of what is beside them in the last run or in one before.
    fn beside_variables(&self, devices: &[Device], last: impl Fn(&OfDevice) -> u64) -> Vec<u64> {
        let (mut kept, mut before) = (vec![0u64; self.is_card.len()], vec![0u64; self.is_card.len()]);
        for ((device, bytes), most) in devices.iter().map(|device| usize::from(*device)).zip(&self.problem.kept).zip(&self.problem.before) {
            kept[device] += bytes;
            before[device] = before[device].max(*most);
        }
        let of_device = |(device, now): (usize, &OfDevice)| kept[device] + before[device].max(last(now) + now.constants);
        self.now.devices.iter().enumerate().map(of_device).collect()
    }

    /// For each device the bytes that it holds at most, in any run.
    pub fn peaks(&mut self, devices: &[Device]) -> Vec<u64> {
        self.rate(devices);
        self.held(devices)
    }

    /// How far an assignment is over the lines, or over the walls where there is a price, as [`Rating::over`]; and what it pays.
    fn over(&self, devices: &[Device]) -> (f64, f64) {
        if self.lines.iter().all(Option::is_none) {
            return (0.0, 0.0);
        }
        let above = |held: Vec<u64>, lines: &[Option<u64>]| -> Vec<(u64, u64)> {
            let above = held.into_iter().zip(lines).filter_map(|(held, line)| line.map(|line| (held.saturating_sub(line), line)));
            above.filter(|(above, _)| *above > 0).collect()
        };
        let parts = |above: Vec<(u64, u64)>| above.into_iter().map(|(above, line)| above as f64 / line.max(1) as f64).sum();
        let of_lines = above(self.held(devices), &self.lines);
        match &self.price {
            None => (parts(of_lines), 0.0),
            Some(price) => {
                let most = of_lines.into_iter().map(|(above, _)| above).max().unwrap_or_default();
                (parts(above(self.held_by_works(devices), &price.walls)), most as f64 * price.per_byte)
            }
        }
    }

    /// The devices that are over their lines, or walls, with the assignment that was run last.
    pub fn full(&self, devices: &[Device]) -> Vec<bool> {
        let (held, lines) = match &self.price {
            None => (self.held(devices), &self.lines),
            Some(price) => (self.held_by_works(devices), &price.walls),
        };
        lines.iter().zip(held).map(|(line, held)| line.is_some_and(|line| held > line)).collect()
    }

    /// Where a value is before it is copied; none of a constant.
    fn home(&self, value: usize, devices: &[Device]) -> Option<usize> {
        let Source { part, place, .. } = self.sources[value];
        match place {
            At::Work | At::Variable => Some(usize::from(devices[part as usize])),
            At::Host => Some(self.problem.host),
            At::Everyone => None,
        }
    }
}

/// For each part the first work that runs otherwise where the part is elsewhere, but for what [`Readers`] say; and the values that it reads
/// or makes.
fn by_part(problem: &Problem, readers: &Readers) -> (Vec<u32>, Vec<Vec<u32>>) {
    let parts = problem.choices.len();
    let (mut first, mut values_of) = (vec![NEVER; parts], vec![Vec::new(); parts]);
    for (index, work) in problem.works.iter().enumerate() {
        for part in [Some(work.part), work.fused_into].into_iter().flatten() {
            first[part as usize] = first[part as usize].min(index as u32);
        }
        values_of[work.part as usize].extend(&problem.reads[work.reads.clone()]);
        values_of[work.part as usize].extend(&problem.writes[work.writes.clone()]);
    }
    let mut is_made = vec![false; problem.values.len()];
    problem.writes.iter().for_each(|value| is_made[*value as usize] = true);
    for (index, value) in problem.values.iter().enumerate() {
        let part = match value.place {
            Place::Kept(part) => part as usize,
            Place::Made if !is_made[index] => problem.makers[index] as usize,
            _ => continue,
        };
        values_of[part].push(index as u32);
        first[part] = readers.of(index).first().map_or(first[part], |work| first[part].min(*work));
    }
    for values in &mut values_of {
        values.sort_unstable();
        values.dedup();
    }
    (first, values_of)
}

impl Model for Queues<'_> {
    fn choices(&self) -> &Choices {
        &self.problem.choices
    }

    fn beside(&self, part: usize) -> &[u32] {
        &self.beside[part]
    }

    fn rate(&mut self, devices: &[Device]) -> Rating {
        self.rate_within(devices, f64::INFINITY).unwrap_or_default()
    }

    /// Runs the works from the first on that differs from the assignment kept: those before it end as they did.
    fn rate_within(&mut self, devices: &[Device], most: f64) -> Option<Rating> {
        let problem = self.problem;
        // Sums are rounded: what is at the bound is rated.
        let bound = most * (1.0 + 1e-9);
        self.tried.clear();
        self.differing(devices);
        self.bounds.begin();
        for &part in &self.differing {
            let part = part as usize;
            self.bounds.shift(problem, part, self.kept.get(part).copied(), devices[part], &self.engines);
        }
        if self.bounds.loads.iter().any(|load| *load > bound) {
            return None;
        }
        self.readers.begin();
        let mut first = problem.works.len() as u32;
        for &part in &self.differing {
            first = first.min(self.first[part as usize]);
            for &value in &self.values_of[part as usize] {
                first = first.min(self.readers.look(problem, value as usize, devices));
            }
        }
        let from = (first as usize / STRIDE).min(self.moments.len() - 1);
        self.times.begin((from * STRIDE) as u32);
        self.now.copy(&self.moments[from]);
        if !self.simulate(from * STRIDE, devices, bound) {
            return None;
        }
        self.tried.extend_from_slice(devices);
        self.tried_from = from;
        let (over, price) = self.over(devices);
        let seconds = price
            + match self.objective {
                Objective::Latency => self.now.makespan,
                Objective::Throughput => self.now.engines.iter().map(|engine| engine.busy).fold(0.0, f64::max) + self.now.makespan * STEP,
            };
        Some(Rating { over, seconds }).filter(|rating| rating.seconds <= most)
    }

    fn keep(&mut self) {
        if self.tried.is_empty() {
            return;
        }
        std::mem::swap(&mut self.kept, &mut self.tried);
        self.tried.clear();
        self.bounds.keep(self.problem, &self.kept, &self.engines);
        self.times.keep();
        self.readers.keep();
        for index in self.tried_from..self.moments.len() {
            std::mem::swap(&mut self.moments[index], &mut self.tried_moments[index]);
        }
    }
}
