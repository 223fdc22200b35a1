//! Complete search for a layout of at most so many bytes.
//!
//! A layout can be pushed down until each piece lies on another one or on the ground. So it is built from the bottom up: a
//! *valley* is a run of sections of one height between higher ones, and a piece that lies on its ground is live in sections of
//! the valley only. For one section of a valley all possibilities are tried: each such piece, or none of them, which leaves
//! bytes empty up to where the next piece can begin. A section whose pieces have no room left ends a branch.
//!
//! - Of all valleys, the section with the fewest possibilities is taken: often there is but one.
//! - Where no piece is live on both sides of a step, the two sides are separate searches.
//! - Heights and pieces that are known to lead nowhere are remembered, and of equal pieces only one is tried.
//! - A search that starts badly takes very long, and most that start well are over soon. So there are many short ones, of
//!   lengths as Luby, Sinclair and Zuckerman (1993) give them, each with other preferences. All share what is remembered.
//!
//! MiniMalloc (Moffitt 2023) places buffers from the bottom up, too, but tries all buffers at each height.

mod descent;
mod state;

use descent::{Descent, End, Preference};

use super::problem::Problem;
use super::steps::Steps;
use super::{Packed, align_up};

/// The most items and the most sections of items, all together, of a search.
const ITEMS: usize = 2000;
const SECTIONS: u64 = 1 << 20;

/// The length of the shortest searches, or twice the number of items: how many times a possibility is chosen.
const SHORTEST: u64 = 500;

/// Where searches aim, one after the other, as eighths of the way up from what is enough to the best peak.
const AIMS: [u64; 4] = [4, 6, 7, 0];

/// Searches for ever lower layouts.
pub(super) struct Search<'a> {
    problem: &'a Problem,
    descent: Descent,
    /// The numbers of the items, in the order of the pieces.
    order: Vec<u32>,
    /// The ground: the lowest offset of an item.
    ground: u64,
    /// No layout has a peak as low as this.
    impossible: Option<u64>,
    /// Which of the aims is next.
    aim: usize,
    restarts: u64,
    random: u64,
}

impl<'a> Search<'a> {
    /// None if the items are too many, or not all aligned alike. Adds what it took to `steps`.
    pub fn new(problem: &'a Problem, steps: &mut Steps) -> Option<Search<'a>> {
        let Problem { items, unit, base, .. } = problem;
        let sections = items.iter().map(|item| u64::from(item.to - item.from)).sum::<u64>();
        let most = items.iter().fold(*base, |sum, item| sum.saturating_add(align_up(item.bytes, *unit)));
        let alike = items.iter().all(|item| item.align == *unit);
        if items.is_empty() || items.len() > ITEMS || sections > SECTIONS.min(steps.left() / 4) || most > u64::MAX / 4 || !alike {
            return None;
        }
        let mut order: Vec<u32> = (0..items.len() as u32).collect();
        order.sort_by_key(|&number| {
            let item = &items[number as usize];
            (item.from, item.to, item.bytes)
        });
        let ordered: Vec<_> = order.iter().map(|&number| items[number as usize]).collect();
        let descent = Descent::new(&ordered, *unit, problem.sections);
        steps.spend(2 * sections);
        let ground = align_up(*base, *unit);
        Some(Search { problem, descent, order, ground, impossible: None, aim: 0, restarts: 0, random: 1 })
    }

    /// Looks for layouts below the best one until one is `enough`, or nothing is left to try, or the steps are done.
    ///
    /// With `only`, nothing but a layout of `enough` is looked for. Returns the steps, and whether nothing is left to try.
    pub fn run(&mut self, best: &mut Packed, enough: u64, only: bool, steps: Steps) -> (u64, bool) {
        let mut left = steps;
        while best.peak > enough && left.left() > 0 {
            let lowest = self.impossible.map_or(enough, |bytes| enough.max(bytes + 1));
            if lowest >= best.peak || (only && lowest > enough) {
                return (left.done(), true);
            }
            let eighths = if only { 0 } else { AIMS[self.aim] };
            let aim = lowest + (best.peak - 1 - lowest) / 8 * eighths;
            match self.restart(aim, &mut left) {
                End::Found => *best = self.found(),
                End::Stopped => self.aim = (self.aim + 1) % AIMS.len(),
                End::Impossible => self.impossible = Some(aim),
            }
        }
        (left.done(), false)
    }

    /// The next one of the short searches.
    fn restart(&mut self, aim: u64, steps: &mut Steps) -> End {
        self.restarts += 1;
        let preference = self.preference();
        self.descent.prefer(preference, |piece| {
            // The first few searches keep to an order by size; later ones shake it.
            let item = &self.problem.items[self.order[piece] as usize];
            let by = match self.restarts % 3 {
                0 => u128::from(item.lifetime),
                1 => u128::from(item.bytes),
                _ => u128::from(item.bytes) * u128::from(item.lifetime),
            };
            let shake = if self.restarts > 3 { 512 + mix(self.random.wrapping_add(piece as u64)) % 512 } else { 512 };
            by.saturating_mul(u128::from(shake))
        });
        let most = SHORTEST.max(2 * self.order.len() as u64) * luby(self.restarts);
        self.descent.run(aim.saturating_sub(self.ground), most, steps)
    }

    /// Which section is taken, and which piece first: something else in each search.
    fn preference(&mut self) -> Preference {
        self.random = mix(self.random.wrapping_add(0x9e37_79b9_7f4a_7c15));
        let section = match self.random % 3 {
            0 => descent::Section::Fullest,
            1 => descent::Section::Lowest,
            _ => descent::Section::First,
        };
        let piece = match self.random >> 32 & 3 {
            0 => descent::Match::None,
            1 => descent::Match::Edges,
            _ => descent::Match::Corners,
        };
        Preference { section, piece }
    }

    /// What was found.
    fn found(&self) -> Packed {
        let mut found = Packed { offsets: vec![0; self.order.len()], peak: self.problem.base };
        for (&number, height) in self.order.iter().zip(self.descent.places()) {
            let offset = self.ground + height * self.problem.unit;
            found.offsets[number as usize] = offset;
            found.peak = found.peak.max(offset + self.problem.items[number as usize].bytes);
        }
        found
    }
}

/// The sequence 1, 1, 2, 1, 1, 2, 4, 1, ..., from 1 on.
fn luby(at: u64) -> u64 {
    let bits = (at + 1).ilog2();
    if (at + 1).is_power_of_two() { 1 << (bits - 1) } else { luby(at + 1 - (1 << bits)) }
}

/// A number that looks random.
fn mix(mut number: u64) -> u64 {
    number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

#[cfg(test)]
mod tests {
    #[test]
    fn lengths_are_as_luby_gives_them() {
        assert_eq!((1..=15).map(super::luby).collect::<Vec<u64>>(), [1, 1, 2, 1, 1, 2, 4, 1, 1, 2, 1, 1, 2, 4, 8]);
    }
}
