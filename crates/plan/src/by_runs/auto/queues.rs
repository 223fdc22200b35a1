//! Rates an assignment: the queues of the devices, run on paper, and the bytes that are live.
//!
//! Queues take works in their order, as [`crate::Plan::on_the_clock`] says: devices of one card share its processors and its link, and
//! the processors' devices share theirs. A copy is in the queue of the card that carries it.

use plimsoll_device::{DeviceKind, DeviceSpec};
use plimsoll_placer::{Choices, Device, Model, Rating};

use super::super::Objective;
use super::problem::{Place, Problem};

/// Seconds that no step takes.
const NO_ROOM: f64 = 1e9;

/// Of two assignments for a stream that are alike, the one with the shorter step is better: this part of its time counts.
const STEP: f64 = 1e-4;

/// The paper of a problem.
pub(super) struct Queues<'a> {
    pub problem: &'a Problem,
    pub objective: Objective,
    /// For each device, the engine of its works, and that of copies that leave or enter its card.
    engines: Vec<(usize, usize)>,
    pub is_card: Vec<bool>,
    cards: Vec<Option<u32>>,
    /// Bytes that a device may hold: the lines, made tighter where plans took more than this model says.
    pub lines: Vec<Option<u64>>,
    beside: Vec<Vec<u32>>,
    state: State,
    /// For each device the most bytes at once, of the last rating.
    peaks: Vec<u64>,
}

/// What is known at a moment of a run. Numbers of values on devices hold where their stamp is that of the rating.
#[derive(Default)]
struct State {
    stamp: u32,
    /// For each device when its queue is free; for each engine when it is.
    queue: Vec<f64>,
    engine: Vec<f64>,
    /// For each engine, the seconds of all it does.
    busy: Vec<f64>,
    live: Vec<u64>,
    /// For each value on each device: since when, and by which rating.
    since: Vec<(u32, f64)>,
    /// For each value, when its work ends, and how many devices will read it yet.
    made: Vec<f64>,
    pending: Vec<u32>,
    last: Vec<u32>,
    /// For each read, whether it is the last on its device.
    is_last: Vec<bool>,
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
        let all = problem.values.len() * devices.len();
        let state = State {
            queue: vec![0.0; devices.len()],
            engine: vec![0.0; count],
            busy: vec![0.0; count],
            live: vec![0; devices.len()],
            since: vec![(0, 0.0); all],
            made: vec![0.0; problem.values.len()],
            pending: vec![0; problem.values.len()],
            last: vec![0; all],
            is_last: vec![false; problem.reads.len()],
            stamp: 0,
        };
        Queues {
            problem,
            objective,
            engines,
            is_card: devices.iter().map(|spec| spec.kind == DeviceKind::Gpu).collect(),
            cards: devices.iter().map(|spec| spec.card.as_ref().map(|card| card.card)).collect(),
            lines: problem.lines.clone(),
            beside,
            state,
            peaks: vec![0; devices.len()],
        }
    }

    /// For each part, the seconds of its works where they take the least.
    pub fn loads(&self) -> Vec<f64> {
        let mut loads = vec![0.0; self.problem.choices.len()];
        self.problem.works.iter().enumerate().for_each(|(index, work)| loads[work.part as usize] += self.problem.least_seconds(index));
        loads
    }

    /// A new rating: nothing is anywhere.
    fn begin(&mut self) {
        let state = &mut self.state;
        state.stamp += 1;
        state.queue.fill(0.0);
        state.engine.fill(0.0);
        state.busy.fill(0.0);
        state.live.fill(0);
        state.made.fill(0.0);
    }

    /// When a value is on a device, with a copy if it has to be; `copies` says whether that takes place.
    fn arrives(&mut self, value: usize, from: usize, to: usize, copies: bool) -> f64 {
        let devices = self.is_card.len();
        let state = &mut self.state;
        if from == to {
            return state.made[value];
        }
        let slot = value * devices + to;
        if state.since[slot].0 == state.stamp {
            return state.since[slot].1;
        }
        let carrier = if self.is_card[from] && !self.is_card[to] { from } else { to };
        let leaves = self.cards[from] != self.cards[to];
        let engine = if leaves { self.engines[carrier].1 } else { self.engines[carrier].0 };
        let start = state.queue[carrier].max(state.engine[engine]).max(state.made[value]);
        let seconds = self.problem.copy(value, from, to);
        let end = start + seconds;
        if copies {
            state.busy[engine] += seconds;
            (state.queue[carrier], state.engine[engine]) = (end, end);
            state.since[slot] = (state.stamp, end);
        }
        end
    }

    /// Gives each group of parts, when the first of its works comes, the device where that ends first; what is on its way to that
    /// device counts. A variable goes where it is read first.
    pub fn earliest(&mut self, group_of: &[u32], choices: &Choices, loads: &[f64]) -> Vec<Device> {
        self.begin();
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
                        let mut start = self.state.queue[at].max(self.state.engine[self.engines[at].0]).max(load[at]);
                        for &value in &problem.reads[work.reads.clone()] {
                            if let Some(from) = from(value, &device_of, &location) {
                                start = start.max(self.arrives(value as usize, usize::from(from), at, false));
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
                    ready = ready.max(self.arrives(value as usize, usize::from(from), at, true));
                }
            }
            let is_fused = work.fused_into.is_some_and(|part| device_of[group_of[part as usize] as usize] == Some(device));
            let end = self.run(index, at, ready, is_fused);
            for &value in &problem.writes[work.writes.clone()] {
                self.state.made[value as usize] = end;
                location[value as usize] = Some(device);
            }
        }
        device_of.iter().enumerate().map(|(group, device)| device.unwrap_or(choices.of(group)[0])).collect()
    }

    /// Runs a work, which takes no time where it is fused into another. When it ends.
    fn run(&mut self, work: usize, device: usize, ready: f64, is_fused: bool) -> f64 {
        let engine = self.engines[device].0;
        let state = &mut self.state;
        let seconds = if is_fused { 0.0 } else { self.problem.seconds(work, device) };
        let end = state.queue[device].max(state.engine[engine]).max(ready) + seconds;
        state.busy[engine] += seconds;
        (state.queue[device], state.engine[engine]) = (end, end);
        end
    }

    /// Which reads are the last on their devices, and for each value how many devices read it.
    fn count_readers(&mut self, devices: &[Device]) {
        let (problem, state) = (self.problem, &mut self.state);
        let count = self.is_card.len();
        state.pending.fill(0);
        for work in problem.works.iter().rev() {
            let device = usize::from(devices[work.part as usize]);
            for position in work.reads.clone() {
                let value = problem.reads[position] as usize;
                let last = &mut state.last[value * count + device];
                state.is_last[position] = *last != state.stamp;
                if *last != state.stamp {
                    *last = state.stamp;
                    state.pending[value] += 1;
                }
            }
        }
    }

    /// A device has read a made value for the last time: where no other will, its bytes are free.
    fn release(&mut self, value: usize, home: usize) {
        self.state.pending[value] = self.state.pending[value].saturating_sub(1);
        if self.state.pending[value] == 0 && self.problem.values[value].place == Place::Made {
            self.state.live[home] = self.state.live[home].saturating_sub(self.problem.values[value].bytes);
        }
    }
}

impl Model for Queues<'_> {
    fn choices(&self) -> &Choices {
        &self.problem.choices
    }

    fn beside(&self, part: usize) -> &[u32] {
        &self.beside[part]
    }

    fn rate(&mut self, devices: &[Device]) -> Rating {
        self.begin();
        self.count_readers(devices);
        let problem = self.problem;
        let count = self.is_card.len();
        self.peaks.fill(0);
        let mut base = vec![0u64; count];
        problem.kept.iter().zip(devices).for_each(|(bytes, device)| base[usize::from(*device)] += bytes);
        let mut makespan = 0.0f64;
        for (index, work) in problem.works.iter().enumerate() {
            let at = usize::from(devices[work.part as usize]);
            let mut ready = 0.0f64;
            for position in work.reads.clone() {
                let value = problem.reads[position] as usize;
                let bytes = problem.values[value].bytes;
                let Some(from) = self.home(value, devices) else {
                    let slot = value * count + at;
                    if self.state.since[slot].0 != self.state.stamp {
                        self.state.since[slot] = (self.state.stamp, 0.0);
                        base[at] += bytes;
                    }
                    continue;
                };
                let is_new = from != at && self.state.since[value * count + at].0 != self.state.stamp;
                ready = ready.max(self.arrives(value, from, at, true));
                if is_new {
                    self.state.live[at] += bytes;
                    self.peaks[at] = self.peaks[at].max(self.state.live[at]);
                    self.release(value, from);
                }
            }
            let is_fused = work.fused_into.is_some_and(|part| usize::from(devices[part as usize]) == at);
            let end = self.run(index, at, ready, is_fused);
            makespan = makespan.max(end);
            let early = work.is_in_place;
            if early {
                self.free_read(work.reads.clone(), at, devices);
            }
            for &value in &problem.writes[work.writes.clone()] {
                self.state.made[value as usize] = end;
                if problem.values[value as usize].place == Place::Made {
                    self.state.live[at] += problem.values[value as usize].bytes;
                }
            }
            self.peaks[at] = self.peaks[at].max(self.state.live[at] + work.scratch);
            if !early {
                self.free_read(work.reads.clone(), at, devices);
            }
            for &value in &problem.writes[work.writes.clone()] {
                if problem.values[value as usize].place == Place::Made && self.state.pending[value as usize] == 0 {
                    self.state.live[at] = self.state.live[at].saturating_sub(problem.values[value as usize].bytes);
                }
            }
        }
        let mut over = 0.0;
        for ((peak, base), line) in self.peaks.iter_mut().zip(base).zip(&self.lines) {
            *peak += base;
            if let Some(line) = line.filter(|line| *line < *peak) {
                over += (*peak - line) as f64 / line.max(1) as f64;
            }
        }
        let seconds = match self.objective {
            Objective::Latency => makespan,
            Objective::Throughput => self.state.busy.iter().copied().fold(0.0, f64::max) + makespan * STEP,
        };
        Rating { over, seconds }
    }
}

impl Queues<'_> {
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
    fn free_read(&mut self, reads: std::ops::Range<usize>, at: usize, devices: &[Device]) {
        for position in reads {
            if !self.state.is_last[position] {
                continue;
            }
            let value = self.problem.reads[position] as usize;
            match self.home(value, devices) {
                Some(from) if from == at => self.release(value, from),
                Some(_) => self.state.live[at] = self.state.live[at].saturating_sub(self.problem.values[value].bytes),
                None => {}
            }
        }
    }
}
