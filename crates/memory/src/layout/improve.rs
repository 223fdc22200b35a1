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

#[derive(Clone)]
struct Lane {
    order: Vec<u32>,
    fit: Fit,
    by: Move,
    /// The lowest peak that it has found.
    peak: u64,
}

/// Of more items than these, lanes have their rounds side by side: fewer are placed before a thread has begun.
const MANY: usize = 1000;

/// Where rounds come from, and where they lead.
#[derive(Clone, Copy)]
struct Goal {
    floor: u64,
    enough: u64,
    /// The lowest peak so far.
    peak: u64,
}

impl Goal {
    /// Whether the lowest peak is low enough.
    fn is_done(self) -> bool {
        self.peak <= self.enough.max(self.floor)
    }
}

impl Lane {
    /// Has some rounds. Returns the last layout that was found: each is lower than all before.
    fn rounds(&mut self, greedy: &mut Greedy, mut goal: Goal, rounds: usize, steps: &mut Steps) -> Option<Packed> {
        let (strides, fraction) = match self.by {
            Move::Half => (STRIDES, 2),
            Move::Front => (2, self.order.len()),
        };
        let mut last = None;
        for _ in 0..rounds {
            if goal.is_done() || steps.left() == 0 {
                break;
            }
            let aim = goal.peak - ((goal.peak - goal.floor) / strides).max(1);
            match greedy.pack(&self.order, self.fit, aim, steps) {
                Ok(found) => {
                    (self.peak, goal.peak) = (found.peak, found.peak);
                    last = Some(found);
                }
                Err(Stop::TooHigh(at)) => self.order[at / fraction..=at].rotate_right(1),
                Err(Stop::OutOfSteps) => break,
            }
        }
        last
    }
}

/// The best layout that was found, and lanes to better it.
pub(super) struct Improve<'a> {
    problem: &'a Problem,
    greedy: Greedy<'a>,
    /// For what is done beside it.
    other: Option<Greedy<'a>>,
    enough: u64,
    lanes: Vec<Lane>,
    turn: usize,
    pub best: Packed,
}

impl<'a> Improve<'a> {
    /// Places the items in several orders, with a few rounds of each. Ends as soon as a peak is `enough`.
    pub fn new(problem: &'a Problem, best: Packed, enough: u64, steps: &mut Steps) -> Improve<'a> {
        let other = (problem.items.len() > MANY).then(|| Greedy::new(problem));
        let mut this = Improve { problem, greedy: Greedy::new(problem), other, enough, lanes: Vec::new(), turn: 0, best };
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
                if peak < this.best.peak {
                    this.best = found;
                }
                this.lanes.push(Lane { order: order.clone(), fit, by: Move::Front, peak });
                let mut lane = Lane { order, fit, by: Move::Half, peak };
                // An order that is far from the best so far is seldom the one that gets there.
                if peak.saturating_sub(problem.floor) / 2 <= this.best.peak.saturating_sub(problem.floor) {
                    let mut first = steps.part(spent.saturating_mul(if fit == Fit::Lowest { 3 } else { 2 }));
                    let goal = this.goal();
                    this.best.lower(lane.rounds(&mut this.greedy, goal, FIRST_ROUNDS, &mut first));
                    steps.spend(first.done());
                }
                this.lanes.push(lane);
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
            let (lane, next) = (self.lane(self.turn), self.lane(self.turn + 1));
            if self.other.is_some() && lane != next {
                self.two_turns(lane, next, &mut steps);
            } else {
                let goal = self.goal();
                self.best.lower(self.lanes[lane].rounds(&mut self.greedy, goal, ROUNDS, &mut steps));
            }
            self.lanes.sort_by_key(|lane| lane.peak);
        }
        steps.done()
    }

    /// The lane of a turn.
    fn lane(&self, turn: usize) -> usize {
        (turn.trailing_zeros() as usize).min(self.lanes.len() - 1)
    }

    /// Has the rounds of a turn and, in a thread beside it, those of the next one as they are where the first finds nothing and enough steps
    /// are left. Otherwise the next turn is not had: so the same rounds are had as one turn after the other.
    fn two_turns(&mut self, lane: usize, next: usize, steps: &mut Steps) {
        let (goal, left) = (self.goal(), *steps);
        let mut ahead = self.lanes[next].clone();
        let Improve { greedy, other: Some(other), lanes, .. } = self else { return };
        let to_clear = other.to_clear();
        let (found, beside) = std::thread::scope(|scope| {
            let beside = || {
                let mut steps = left.part(u64::MAX);
                let found = ahead.rounds(other, goal, ROUNDS, &mut steps);
                (found, steps.done())
            };
            let thread = std::thread::Builder::new().spawn_scoped(scope, beside);
            let found = lanes[lane].rounds(greedy, goal, ROUNDS, steps);
            (found, thread.ok().map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))))
        });
        // Its first round would have cleared away what the first turn left.
        let as_next = |spent: u64| spent.saturating_sub(to_clear).saturating_add(greedy.to_clear());
        match beside {
            Some((also, spent)) if found.is_none() && spent.max(as_next(spent)) <= steps.left() => {
                steps.spend(as_next(spent));
                self.turn += 1;
                lanes[next] = ahead;
                std::mem::swap(greedy, other);
                self.best.lower(also);
            }
            _ => self.best.lower(found),
        }
    }

    fn goal(&self) -> Goal {
        Goal { floor: self.problem.floor, enough: self.enough, peak: self.best.peak }
    }

    /// Whether the best layout is low enough.
    pub fn is_done(&self) -> bool {
        self.goal().is_done()
    }
}

impl Packed {
    /// Takes the place of a higher one.
    fn lower(&mut self, found: Option<Packed>) {
        if let Some(found) = found {
            *self = found;
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_base::Random;

    use super::*;
    use crate::layout::{Buffer, sweep};

    #[test]
    fn rounds_side_by_side_are_those_of_one_turn_after_the_other() {
        let mut random = Random::new(7);
        let (mut found, mut pairs) = (0, 0);
        for count in 0..60 {
            let mut buffer = || {
                let first = random.below(60) as u32;
                Buffer { first, last: first + random.below(25) as u32, bytes: 64 * (1 + random.below(40) as u64), align: 64 }
            };
            let buffers: Vec<Buffer> = (0..40 + count).map(|_| buffer()).collect();
            let problem = Problem::new(&buffers, &mut vec![0; buffers.len()]);
            for most in [2_000, 20_000, 200_000 + 997 * count] {
                let run = |other: Option<Greedy>| {
                    let mut steps = Steps::new(1 << 20);
                    let mut improve = Improve { other, ..Improve::new(&problem, sweep::pack(&problem), problem.floor, &mut steps) };
                    let before = (improve.best.peak, improve.lanes.len());
                    let spent = improve.run(Steps::new(most as u64));
                    let lanes: Vec<_> = improve.lanes.into_iter().map(|lane| (lane.order, lane.peak)).collect();
                    (before, spent, improve.turn, improve.best.offsets, improve.best.peak, lanes)
                };
                let (alone, beside) = (run(None), run(Some(Greedy::new(&problem))));
                found += usize::from(alone.4 < alone.0.0);
                pairs += usize::from(alone.2 > 1);
                assert_eq!(alone, beside);
            }
        }
        assert!(found > 20 && pairs > 20, "{found} were lowered, {pairs} had two turns");
    }
}
