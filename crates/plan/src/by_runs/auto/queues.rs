//! Rates an assignment: the queues of the devices, run on paper, and the bytes that are live.
//!
//! Queues take works in their order, as [`crate::Plan::on_the_clock`] says: devices of one card share its processors and its link, and
//! the processors' devices share theirs. A copy is in the queue of the card that carries it, or beside its works ([`overlap`]). From card to
//! card it has the links of both.

use plimsoll_device::{DeviceKind, DeviceSpec};
use plimsoll_placer::{Choices, Device, Model, Rating};

use super::super::{Least, Objective};
use super::bounds::{Bounds, least};
use super::moments::{Moment, NEVER, Readers, Times};
use super::problem::{Place, Problem};
use crate::overlap;

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
        value * (self.is_card.len() + 1) + device
    }

    /// Where the time is kept at which a value is made.
    fn slot_made(&self, value: usize) -> usize {
        self.slot(value, self.is_card.len())
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
        if let Some(time) = self.times.get(slot) {
            return time;
        }
        let carrier = if self.is_card[from] && !self.is_card[to] { from } else { to };
        let leaves = self.cards[from] != self.cards[to];
        let engine = if leaves { self.engines[carrier].1 } else { self.engines[carrier].0 };
        let other = if carrier == from { to } else { from };
        let sender = Some(self.engines[other].1).filter(|_| leaves && self.has_link[carrier] && self.has_link[other]);
        let seconds = self.problem.copy(value, from, to);
        // A copy of a card that takes its time runs beside its works.
        let is_beside = leaves && self.is_card[carrier] && seconds >= overlap::LEAST && !self.problem.values[value].is_in_body;
        let queue = if is_beside { 0.0 } else { self.now.queue[carrier] };
        let is_free = self.now.engine[engine].max(sender.map_or(0.0, |sender| self.now.engine[sender]));
        let start = queue.max(is_free).max(self.made(value));
        let end = start + seconds;
        if let Some(work) = work {
            for engine in sender.into_iter().chain([engine]) {
                self.now.busy[engine] += seconds;
                self.now.engine[engine] = end;
            }
            if !is_beside {
                self.now.queue[carrier] = end;
            }
            self.times.set(slot, work, end);
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
        self.now = Moment::new(self.is_card.len(), self.now.engine.len());
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
                        let mut start = self.now.queue[at].max(self.now.engine[self.engines[at].0]).max(load[at]);
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
        let engine = self.engines[device].0;
        let seconds = if is_fused { 0.0 } else { self.problem.seconds(work, device) };
        let end = self.now.queue[device].max(self.now.engine[engine]).max(ready) + seconds;
        self.now.busy[engine] += seconds;
        if self.problem.works[work].fused_into.is_none() {
            self.now.done[engine] += seconds;
        }
        (self.now.queue[device], self.now.engine[engine]) = (end, end);
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
            let mut ready = 0.0f64;
            let (mut read, mut made) = (0, 0);
            for &value in &problem.reads[work.reads.clone()] {
                let value = value as usize;
                let bytes = problem.values[value].bytes;
                let slot = self.slot(value, at);
                let Some(from) = self.home(value, devices) else {
                    if self.times.get(slot).is_none() {
                        self.times.set(slot, index as u32, 0.0);
                        self.now.constants[at] += bytes;
                    }
                    continue;
                };
                if from != at || problem.values[value].place == Place::Made {
                    read += bytes;
                }
                let is_new = from != at && self.times.get(slot).is_none();
                ready = ready.max(self.arrives(value, from, at, Some(index as u32)));
                if is_new {
                    self.now.live[at] += bytes;
                    self.now.peaks[at] = self.now.peaks[at].max(self.now.live[at]);
                    if self.readers.free(value) == index as u32 {
                        self.now.live[from] = self.now.live[from].saturating_sub(bytes);
                    }
                }
            }
            let is_fused = work.fused_into.is_some_and(|part| usize::from(devices[part as usize]) == at);
            let end = self.run(index, at, ready, is_fused);
            self.now.makespan = self.now.makespan.max(end);
            if self.at_least(index, at, end) > most {
                return false;
            }
            if work.is_in_place {
                self.free_read(index, at, devices);
            }
            for &value in &problem.writes[work.writes.clone()] {
                self.times.set(self.slot_made(value as usize), index as u32, end);
                if problem.values[value as usize].place == Place::Made {
                    self.now.live[at] += problem.values[value as usize].bytes;
                    made += problem.values[value as usize].bytes;
                }
            }
            let there = if work.is_in_place { read.max(made) } else { read + made };
            self.now.of_works[at] = self.now.of_works[at].max(there + work.scratch);
            self.now.peaks[at] = self.now.peaks[at].max(self.now.live[at] + work.scratch);
            if !work.is_in_place {
                self.free_read(index, at, devices);
            }
            for &value in &problem.writes[work.writes.clone()] {
                if problem.values[value as usize].place == Place::Made && self.readers.free(value as usize) == NEVER {
                    self.now.live[at] = self.now.live[at].saturating_sub(problem.values[value as usize].bytes);
                }
            }
        }
        true
    }

    /// Seconds that the rating is not below, after a work that ends then.
    fn at_least(&self, work: usize, device: usize, end: f64) -> f64 {
        let engine = self.engines[device].0;
        let left = self.bounds.loads[engine] - self.now.done[engine];
        match self.objective {
            Objective::Latency => (self.now.engine[engine] + left).max(end + self.bounds.tails[work]),
            Objective::Throughput => self.now.busy[engine] + left,
        }
    }

    /// For each device the bytes that it holds at most, in any run, with the assignment that was run last.
    pub fn held(&self, devices: &[Device]) -> Vec<u64> {
        self.beside_variables(devices, &self.now.peaks)
    }

    /// The same of its largest work alone: no schedule holds less, unless it does works in parts.
    pub fn held_by_works(&self, devices: &[Device]) -> Vec<u64> {
        self.beside_variables(devices, &self.now.of_works)
    }

    /// For each device the bytes of its variables, and of what is beside them in the last run or in one before.
    fn beside_variables(&self, devices: &[Device], last: &[u64]) -> Vec<u64> {
        let (mut kept, mut before) = (vec![0u64; self.is_card.len()], vec![0u64; self.is_card.len()]);
        for ((device, bytes), most) in devices.iter().map(|device| usize::from(*device)).zip(&self.problem.kept).zip(&self.problem.before) {
            kept[device] += bytes;
            before[device] = before[device].max(*most);
        }
        let of_device = |device: usize| kept[device] + before[device].max(last[device] + self.now.constants[device]);
        (0..kept.len()).map(of_device).collect()
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
        match self.problem.values[value].place {
            Place::Kept(part) => Some(usize::from(devices[part as usize])),
            Place::Host => Some(self.problem.host),
            Place::Made => Some(usize::from(devices[self.problem.makers[value] as usize])),
            Place::Everywhere => None,
        }
    }

    /// Frees what a work reads for the last time on its device.
    fn free_read(&mut self, work: usize, at: usize, devices: &[Device]) {
        for &value in &self.problem.reads[self.problem.works[work].reads.clone()] {
            let value = value as usize;
            let is_free = match self.home(value, devices) {
                Some(from) if from == at => self.readers.free(value) == work as u32,
                Some(_) => self.readers.last(value, at) == work as u32,
                None => false,
            };
            if is_free {
                self.now.live[at] = self.now.live[at].saturating_sub(self.problem.values[value].bytes);
            }
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
                Objective::Throughput => self.now.busy.iter().copied().fold(0.0, f64::max) + self.now.makespan * STEP,
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
