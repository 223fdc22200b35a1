//! What a rating keeps of a run on paper, so that the next one begins at the first moment that differs: the state of the queues now and
//! then, when values were where, and which work reads what last.
//!
//! Each has a part that holds for the assignment kept, and one for the assignment that is tried. Moments are works, by their number.

use plimsoll_placer::Device;

use super::problem::{Place, Problem};

/// No work.
pub(super) const NEVER: u32 = u32::MAX;

/// The state of the queues between two works.
#[derive(Default)]
pub(super) struct Moment {
    /// For each device when its queue is free; for each engine when it is.
    pub queue: Vec<f64>,
    pub engine: Vec<f64>,
    /// For each engine, the seconds of all it does, and of works alone that are fused nowhere.
    pub busy: Vec<f64>,
    pub done: Vec<f64>,
    /// For each device the bytes that are live, the most so far, and those of constants; and the most that a work reads and makes.
    pub live: Vec<u64>,
    pub peaks: Vec<u64>,
    pub of_works: Vec<u64>,
    pub constants: Vec<u64>,
    pub makespan: f64,
}

impl Moment {
    /// The beginning.
    pub fn new(devices: usize, engines: usize) -> Moment {
        let [engine, busy, done] = [(); 3].map(|()| vec![0.0; engines]);
        Moment {
            queue: vec![0.0; devices],
            engine,
            busy,
            done,
            live: vec![0; devices],
            peaks: vec![0; devices],
            of_works: vec![0; devices],
            constants: vec![0; devices],
            makespan: 0.0,
        }
    }

    /// Becomes another, without an allocation where it has been one before.
    pub fn copy(&mut self, other: &Moment) {
        self.queue.clone_from(&other.queue);
        self.engine.clone_from(&other.engine);
        self.busy.clone_from(&other.busy);
        self.done.clone_from(&other.done);
        self.live.clone_from(&other.live);
        self.peaks.clone_from(&other.peaks);
        self.of_works.clone_from(&other.of_works);
        self.constants.clone_from(&other.constants);
        self.makespan = other.makespan;
    }
}

/// When values are where: a time for each slot, which a work sets.
pub(super) struct Times {
    /// For each slot, the work that set it in what is kept, and the time.
    kept: Vec<(u32, f64)>,
    /// For each slot, the number of the try that set it, and the time.
    tried: Vec<(u32, f64)>,
    number: u32,
    /// The first work of the try.
    first: u32,
    kept_order: Vec<(u32, u32)>,
    tried_order: Vec<(u32, u32)>,
}

impl Times {
    pub fn new(slots: usize) -> Times {
        let (kept, tried) = (vec![(NEVER, 0.0); slots], vec![(0, 0.0); slots]);
        Times { kept, tried, number: 0, first: 0, kept_order: Vec::new(), tried_order: Vec::new() }
    }

    /// A try from a work on: what this and later ones set in what is kept does not hold.
    pub fn begin(&mut self, first: u32) {
        self.number += 1;
        self.first = first;
        self.tried_order.clear();
    }

    pub fn get(&self, slot: usize) -> Option<f64> {
        let (number, time) = self.tried[slot];
        if number == self.number {
            return Some(time);
        }
        let (work, time) = self.kept[slot];
        (work < self.first).then_some(time)
    }

    pub fn set(&mut self, slot: usize, work: u32, time: f64) {
        self.tried[slot] = (self.number, time);
        self.tried_order.push((work, slot as u32));
    }

    /// Keeps what the try set.
    pub fn keep(&mut self) {
        while let Some(&(_, slot)) = self.kept_order.last().filter(|(work, _)| *work >= self.first) {
            self.kept_order.pop();
            self.kept[slot as usize].0 = NEVER;
        }
        for &(work, slot) in &self.tried_order {
            self.kept[slot as usize] = (work, self.tried[slot as usize].1);
            self.kept_order.push((work, slot));
        }
        // Nothing of it is tried any more.
        self.first = NEVER;
        self.number += 1;
        self.tried_order.clear();
    }
}

/// For each value which work of each device reads it last, and when a made one is free where it was made.
pub(super) struct Readers {
    devices: usize,
    /// Where the readers of a value end in `works`.
    ends: Vec<u32>,
    works: Vec<u32>,
    kept: Vec<u32>,
    kept_free: Vec<u32>,
    tried: Vec<u32>,
    tried_free: Vec<u32>,
    /// For each value, the number of the try that looked at it.
    looked: Vec<u32>,
    number: u32,
    values: Vec<u32>,
    firsts: Vec<u32>,
}

impl Readers {
    pub fn new(problem: &Problem, devices: usize) -> Readers {
        let values = problem.values.len();
        let mut of_value: Vec<Vec<u32>> = vec![Vec::new(); values];
        for (index, work) in problem.works.iter().enumerate() {
            problem.reads[work.reads.clone()].iter().for_each(|value| of_value[*value as usize].push(index as u32));
        }
        let mut ends = Vec::with_capacity(values);
        let mut works = Vec::with_capacity(problem.reads.len());
        for of_value in of_value {
            works.extend(of_value);
            ends.push(works.len() as u32);
        }
        let rows = vec![NEVER; values * devices];
        Readers {
            devices,
            ends,
            works,
            kept: rows.clone(),
            kept_free: vec![NEVER; values],
            tried: rows,
            tried_free: vec![NEVER; values],
            looked: vec![0; values],
            number: 0,
            values: Vec::new(),
            firsts: vec![NEVER; devices],
        }
    }

    /// The works that read a value, ascending.
    pub fn of(&self, value: usize) -> &[u32] {
        let start = if value == 0 { 0 } else { self.ends[value - 1] };
        &self.works[start as usize..self.ends[value] as usize]
    }

    pub fn begin(&mut self) {
        self.number += 1;
        self.values.clear();
    }

    /// Looks at a value again, once in a try. The first work for which it differs from what is kept.
    pub fn look(&mut self, problem: &Problem, value: usize, devices: &[Device]) -> u32 {
        if std::mem::replace(&mut self.looked[value], self.number) == self.number {
            return NEVER;
        }
        self.values.push(value as u32);
        let row = value * self.devices..(value + 1) * self.devices;
        let start = if value == 0 { 0 } else { self.ends[value - 1] };
        self.firsts.fill(NEVER);
        self.tried[row.clone()].fill(NEVER);
        for &work in &self.works[start as usize..self.ends[value] as usize] {
            let device = usize::from(devices[problem.works[work as usize].part as usize]);
            self.firsts[device] = self.firsts[device].min(work);
            self.tried[row.start + device] = work;
        }
        // Where it was made it is free when it has been copied to all other devices, and read there for the last time.
        let mut free = NEVER;
        if problem.values[value].place == Place::Made {
            let home = usize::from(devices[problem.makers[value] as usize]);
            let works = (0..self.devices).map(|device| if device == home { self.tried[row.start + device] } else { self.firsts[device] });
            free = works.filter(|work| *work != NEVER).max().unwrap_or(NEVER);
        }
        self.tried_free[value] = free;
        let differs = |one: u32, other: u32| if one == other { NEVER } else { one.min(other) };
        let of_devices = row.map(|slot| differs(self.kept[slot], self.tried[slot]));
        of_devices.fold(differs(self.kept_free[value], free), u32::min)
    }

    /// Which work of a device reads a value last.
    pub fn last(&self, value: usize, device: usize) -> u32 {
        let rows = if self.looked[value] == self.number { &self.tried } else { &self.kept };
        rows[value * self.devices + device]
    }

    /// With which work a value is free where it was made.
    pub fn free(&self, value: usize) -> u32 {
        let free = if self.looked[value] == self.number { &self.tried_free } else { &self.kept_free };
        free[value]
    }

    /// Keeps what the try found.
    pub fn keep(&mut self) {
        for &value in &self.values {
            let value = value as usize;
            let row = value * self.devices..(value + 1) * self.devices;
            self.kept[row.clone()].copy_from_slice(&self.tried[row]);
            self.kept_free[value] = self.tried_free[value];
        }
        self.begin();
    }
}
