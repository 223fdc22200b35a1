//! What a rating keeps of a run on paper, so that the next one begins at the first moment that differs: the state of the queues now and
//! then, when values were where, and which work reads what last.
//!
//! Each has a part that holds for the assignment kept, and one for the assignment that is tried. Moments are works, by their number.

use std::ops::Range;

use plimsoll_placer::Device;

use super::problem::{Place, Problem};

/// No work.
pub(super) const NEVER: u32 = u32::MAX;

/// The state of the queues between two works.
#[derive(Default)]
pub(super) struct Moment {
    pub devices: Vec<OfDevice>,
    pub engines: Vec<OfEngine>,
    pub makespan: f64,
}

/// The state of a device.
#[derive(Clone, Copy, Default)]
pub(super) struct OfDevice {
    /// When its queue is free.
    pub queue: f64,
    /// The bytes that are live, the most so far, the most that a work reads and makes, and those of constants.
    pub live: u64,
    pub peak: u64,
    pub of_works: u64,
    pub constants: u64,
}

/// The state of an engine.
#[derive(Clone, Copy, Default)]
pub(super) struct OfEngine {
    /// When it is free.
    pub free: f64,
    /// The seconds of all it does, and of works alone that are fused nowhere.
    pub busy: f64,
    pub done: f64,
}

impl Moment {
    /// The beginning.
    pub fn new(devices: usize, engines: usize) -> Moment {
        Moment { devices: vec![OfDevice::default(); devices], engines: vec![OfEngine::default(); engines], makespan: 0.0 }
    }

    /// Becomes another, without an allocation where it has been one before.
    pub fn copy(&mut self, other: &Moment) {
        self.devices.clone_from(&other.devices);
        self.engines.clone_from(&other.engines);
        self.makespan = other.makespan;
    }
}

/// When values are where: a time for each slot, which a work sets.
pub(super) struct Times {
    slots: Vec<Slot>,
    number: u32,
    /// The first work of the try.
    first: u32,
    kept_order: Vec<(u32, u32)>,
    tried_order: Vec<(u32, u32)>,
}

/// Both times of a slot lie side by side: what is looked at is mostly far from what was looked at before.
#[derive(Clone, Copy)]
struct Slot {
    /// The work that set it in what is kept, and the time.
    work: u32,
    /// The number of the try that set it, and the time.
    number: u32,
    kept: f64,
    tried: f64,
}

impl Times {
    pub fn new(slots: usize) -> Times {
        let slots = vec![Slot { work: NEVER, number: 0, kept: 0.0, tried: 0.0 }; slots];
        Times { slots, number: 0, first: 0, kept_order: Vec::new(), tried_order: Vec::new() }
    }

    /// A try from a work on: what this and later ones set in what is kept does not hold.
    pub fn begin(&mut self, first: u32) {
        self.number += 1;
        self.first = first;
        self.tried_order.clear();
    }

    pub fn get(&self, slot: usize) -> Option<f64> {
        let Slot { work, number, kept, tried } = self.slots[slot];
        if number == self.number {
            return Some(tried);
        }
        (work < self.first).then_some(kept)
    }

    pub fn set(&mut self, slot: usize, work: u32, time: f64) {
        let number = self.number;
        let slot_of = &mut self.slots[slot];
        (slot_of.number, slot_of.tried) = (number, time);
        self.tried_order.push((work, slot as u32));
    }

    /// Keeps what the try set.
    pub fn keep(&mut self) {
        while let Some(&(_, slot)) = self.kept_order.last().filter(|(work, _)| *work >= self.first) {
            self.kept_order.pop();
            self.slots[slot as usize].work = NEVER;
        }
        for &(work, slot) in &self.tried_order {
            let of = &mut self.slots[slot as usize];
            (of.work, of.kept) = (work, of.tried);
        }
        self.kept_order.append(&mut self.tried_order);
        // Nothing of it is tried any more.
        self.first = NEVER;
        self.number += 1;
    }
}

/// For each value which work of each device reads it last, and when a made one is free where it was made.
pub(super) struct Readers {
    devices: usize,
    /// Where the readers of a value end in `works`.
    ends: Vec<u32>,
    /// Works that read a value, ascending, and the part of each.
    works: Vec<u32>,
    parts: Vec<u32>,
    /// For each value, for each device: the last.
    last: Vec<Last>,
    of_value: Vec<OfValue>,
    number: u32,
    /// Values that the try looked at.
    values: Vec<u32>,
    firsts: Vec<u32>,
}

/// A work in what is kept, and in the try.
#[derive(Clone, Copy)]
struct Last {
    kept: u32,
    tried: u32,
}

#[derive(Clone, Copy)]
struct OfValue {
    /// The number of the try that looked at it.
    looked: u32,
    /// With which work it is free where it was made.
    free: Last,
}

impl Readers {
    pub fn new(problem: &Problem, devices: usize) -> Readers {
        let values = problem.values.len();
        // Where those of each value begin: each puts its next one there, so that this is where they end.
        let mut ends = vec![0u32; values];
        problem.works.iter().flat_map(|work| &problem.reads[work.reads.clone()]).for_each(|value| ends[*value as usize] += 1);
        let mut sum = 0;
        for end in &mut ends {
            sum += std::mem::replace(end, sum);
        }
        let (mut works, mut parts) = (vec![0; sum as usize], vec![0; sum as usize]);
        for (index, work) in problem.works.iter().enumerate() {
            for &value in &problem.reads[work.reads.clone()] {
                let end = &mut ends[value as usize];
                (works[*end as usize], parts[*end as usize]) = (index as u32, work.part);
                *end += 1;
            }
        }
        let none = Last { kept: NEVER, tried: NEVER };
        Readers {
            devices,
            ends,
            works,
            parts,
            last: vec![none; values * devices],
            of_value: vec![OfValue { looked: 0, free: none }; values],
            number: 0,
            values: Vec::new(),
            firsts: vec![NEVER; devices],
        }
    }

    fn range(&self, value: usize) -> Range<usize> {
        let start = if value == 0 { 0 } else { self.ends[value - 1] };
        start as usize..self.ends[value] as usize
    }

    /// The works that read a value, ascending.
    pub fn of(&self, value: usize) -> &[u32] {
        &self.works[self.range(value)]
    }

    pub fn begin(&mut self) {
        self.number += 1;
        self.values.clear();
    }

    /// Looks at a value again, once in a try. The first work for which it differs from what is kept.
    pub fn look(&mut self, problem: &Problem, value: usize, devices: &[Device]) -> u32 {
        if std::mem::replace(&mut self.of_value[value].looked, self.number) == self.number {
            return NEVER;
        }
        self.values.push(value as u32);
        let range = self.range(value);
        let row = &mut self.last[value * self.devices..(value + 1) * self.devices];
        self.firsts.fill(NEVER);
        row.iter_mut().for_each(|last| last.tried = NEVER);
        for (&work, &part) in self.works[range.clone()].iter().zip(&self.parts[range]) {
            let device = usize::from(devices[part as usize]);
            self.firsts[device] = self.firsts[device].min(work);
            row[device].tried = work;
        }
        // Where it was made it is free when it has been copied to all other devices, and read there for the last time.
        let mut free = NEVER;
        if problem.values[value].place == Place::Made {
            let home = usize::from(devices[problem.makers[value] as usize]);
            let works = row.iter().zip(&self.firsts).enumerate();
            let works = works.map(|(device, (last, first))| if device == home { last.tried } else { *first });
            free = works.filter(|work| *work != NEVER).max().unwrap_or(NEVER);
        }
        let of_value = &mut self.of_value[value];
        of_value.free.tried = free;
        let differs = |last: &Last| if last.kept == last.tried { NEVER } else { last.kept.min(last.tried) };
        row.iter().map(differs).fold(differs(&of_value.free), u32::min)
    }

    /// Which work of a device reads a value last.
    pub fn last(&self, value: usize, device: usize) -> u32 {
        let Last { kept, tried } = self.last[value * self.devices + device];
        if self.of_value[value].looked == self.number { tried } else { kept }
    }

    /// With which work a value is free where it was made.
    pub fn free(&self, value: usize) -> u32 {
        let OfValue { looked, free } = self.of_value[value];
        if looked == self.number { free.tried } else { free.kept }
    }

    /// Keeps what the try found.
    pub fn keep(&mut self) {
        for &value in &self.values {
            let value = value as usize;
            self.last[value * self.devices..(value + 1) * self.devices].iter_mut().for_each(|last| last.kept = last.tried);
            let free = &mut self.of_value[value].free;
            free.kept = free.tried;
        }
        self.begin();
    }
}
