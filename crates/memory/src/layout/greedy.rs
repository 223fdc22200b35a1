//! One item after the other, each into a gap between those placed before that live at the same time.

use std::cmp::Reverse;

use super::occupied::Occupied;
use super::problem::{Item, Problem};
use super::steps::Steps;
use super::{Packed, align_up};

/// Which gap an item gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// The lowest that holds it.
    Lowest,
    /// The smallest that holds it; of equal ones the lowest.
    Tightest,
}

/// Why not all items were placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The item at this place of the order would end too high.
    TooHigh(usize),
    OutOfSteps,
}

/// Places items in any order, again and again.
pub(super) struct Greedy<'a> {
    problem: &'a Problem,
    occupied: Occupied,
}

impl<'a> Greedy<'a> {
    pub fn new(problem: &'a Problem) -> Greedy<'a> {
        Greedy { problem, occupied: Occupied::new(problem.sections) }
    }

    /// The steps that the next packing takes to clear away what the last one left.
    pub fn to_clear(&self) -> u64 {
        self.occupied.touched()
    }

    /// Places the items in this order.
    pub fn pack(&mut self, order: &[u32], fit: Fit, most: u64, steps: &mut Steps) -> Result<Packed, Stop> {
        let Problem { items, base, unit, .. } = self.problem;
        self.occupied.clear();
        let mut packed = Packed { offsets: vec![0; items.len()], peak: *base };
        let mut done = Ok(());
        for (at, &number) in order.iter().enumerate() {
            let item = &items[number as usize];
            let offset = match fit {
                Fit::Lowest => self.occupied.lowest(item.sections(), *base, item.bytes, item.align),
                Fit::Tightest => self.occupied.tightest(item.sections(), *base, item.bytes, item.align),
            };
            let end = offset.saturating_add(item.bytes);
            if end > most {
                done = Err(Stop::TooHigh(at));
                break;
            }
            if self.occupied.steps > steps.left() {
                done = Err(Stop::OutOfSteps);
                break;
            }
            packed.offsets[number as usize] = offset;
            packed.peak = packed.peak.max(end);
            // Nothing begins between the end and the next multiple of the unit.
            self.occupied.insert(item.sections(), offset, align_up(end, *unit));
        }
        // Never none, so that every sequence of packings ends.
        steps.spend(std::mem::take(&mut self.occupied.steps) + 1);
        done.map(|()| packed)
    }
}

/// How many orders [`order`] knows.
pub(super) const ORDERS: usize = 11;

/// An order in which to place the items. What is in the way of much comes early: large items, long ones, and those of full
/// sections. `beside` has for each item the most bytes live in one of its sections.
pub(super) fn order(problem: &Problem, beside: &[u64], kind: usize) -> Vec<u32> {
    let most = u128::from(beside.iter().copied().max().unwrap_or(0)).max(1);
    let key = |(item, &beside): (&Item, &u64)| {
        let (from, to, lifetime, bytes) = (u128::from(item.from), u128::from(item.to), u128::from(item.lifetime), u128::from(item.bytes));
        let (area, beside) = (bytes * lifetime, u128::from(beside));
        match kind {
            0 => (beside, bytes),
            1 => (bytes, lifetime),
            2 => (beside * 32 / most, lifetime),
            3 => (beside + 4 * bytes, bytes),
            4 => (beside + bytes, bytes),
            5 => (beside * 8 / most, bytes),
            6 => (beside, area),
            7 => (area, bytes),
            8 => (lifetime, bytes),
            9 => (u128::MAX - from, bytes),
            _ => (to, bytes),
        }
    };
    let mut keyed: Vec<_> = (0u32..).zip(problem.items.iter().zip(beside).map(key)).map(|(number, key)| (Reverse(key), number)).collect();
    keyed.sort_unstable();
    keyed.into_iter().map(|(_, number)| number).collect()
}
