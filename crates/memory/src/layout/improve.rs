//! Lower and lower peaks by squeaky wheel optimization (Joslin and Clements 1999).
//!
//! A lane is an order of the items. A round aims at a peak below the best one known: the items are placed in the order of the
//! lane, and the first one that would end above the aim moves forward. The order so made is tried next, good or bad.

use super::Packed;
use super::greedy::{Fit, Greedy, ORDERS, Stop, order};
use super::problem::Problem;
use super::steps::Steps;

/// A round of a lane that moves items by halves aims at this fraction of the way down to the floor.
const STRIDES: u64 = 20;

/// How many rounds a lane has at first, and how many when it is its turn.
const FIRST_ROUNDS: usize = 4;
const ROUNDS: usize = 16;

/// How an order changes.
#[derive(Clone, Copy)]
enum Move {
    /// The item goes to half its place, and the next aim is a little lower.
    Half,
    /// The item goes to the front, and the next aim is halfway to the floor.
    Front,
}

struct Lane {
    order: Vec<u32>,
    fit: Fit,
    by: Move,
    /// The lowest peak that it has found.
    peak: u64,
}

/// The best layout that was found, and lanes to better it.
pub(super) struct Improve<'a> {
    greedy: Greedy<'a>,
    floor: u64,
    enough: u64,
    lanes: Vec<Lane>,
    turn: usize,
    pub best: Packed,
}

impl<'a> Improve<'a> {
    /// Places the items in several orders, with a few rounds of each. Ends as soon as a peak is `enough`.
    pub fn new(problem: &'a Problem, best: Packed, enough: u64, steps: &mut Steps) -> Improve<'a> {
        let mut this = Improve { greedy: Greedy::new(problem), floor: problem.floor, enough, lanes: Vec::new(), turn: 0, best };
        let beside = problem.beside();
        let mut lowest = 0;
        for fit in [Fit::Lowest, Fit::Tightest] {
            for kind in 0..ORDERS {
                // To find the tightest gap takes longer: where there are many gaps, the steps are better spent otherwise.
                if this.is_done() || steps.left() == 0 || (fit == Fit::Tightest && lowest > steps.left() / 16) {
                    break;
                }
                let order = order(problem, &beside, kind);
                let before = steps.done();
                steps.spend(order.len() as u64);
                let found = this.greedy.pack(&order, fit, u64::MAX, steps);
                let spent = steps.done() - before;
                if fit == Fit::Lowest {
                    lowest = spent.max(lowest);
                }
                let Ok(found) = found else { continue };
                let peak = found.peak;
                this.better(found);
                this.lanes.push(Lane { order: order.clone(), fit, by: Move::Front, peak });
                this.lanes.push(Lane { order, fit, by: Move::Half, peak });
                // An order that is far from the best so far is seldom the one that gets there.
                if peak.saturating_sub(this.floor) / 2 > this.best.peak.saturating_sub(this.floor) {
                    continue;
                }
                let mut first = steps.part(spent.saturating_mul(if fit == Fit::Lowest { 3 } else { 2 }));
                this.rounds(this.lanes.len() - 1, FIRST_ROUNDS, &mut first);
                steps.spend(first.done());
            }
        }
        this.lanes.sort_by_key(|lane| lane.peak);
        this
    }

    /// Has so many steps of rounds, at least one round.
    pub fn run(&mut self, mut steps: Steps) -> u64 {
        while !self.is_done() && !self.lanes.is_empty() && steps.left() > 0 {
            // The lane that found the lowest peak has every second turn, the next one every fourth, and so on.
            self.turn += 1;
            let lane = (self.turn.trailing_zeros() as usize).min(self.lanes.len() - 1);
            self.rounds(lane, ROUNDS, &mut steps);
            self.lanes.sort_by_key(|lane| lane.peak);
        }
        steps.done()
    }

    /// Has some rounds of a lane.
    fn rounds(&mut self, lane: usize, rounds: usize, steps: &mut Steps) {
        for _ in 0..rounds {
            if self.is_done() || steps.left() == 0 {
                return;
            }
            let Lane { order, fit, by, peak } = &mut self.lanes[lane];
            let (strides, fraction) = match by {
                Move::Half => (STRIDES, 2),
                Move::Front => (2, order.len()),
            };
            let aim = self.best.peak - ((self.best.peak - self.floor) / strides).max(1);
            match self.greedy.pack(order, *fit, aim, steps) {
                Ok(found) => {
                    *peak = found.peak;
                    self.best = found;
                }
                Err(Stop::TooHigh(at)) => order[at / fraction..=at].rotate_right(1),
                Err(Stop::OutOfSteps) => return,
            }
        }
    }

    pub fn better(&mut self, found: Packed) {
        if found.peak < self.best.peak {
            self.best = found;
        }
    }

    /// Whether the best layout is low enough.
    pub fn is_done(&self) -> bool {
        self.best.peak <= self.enough.max(self.floor)
    }
}
