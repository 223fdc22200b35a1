//! Simulated annealing (Kirkpatrick, Gelatt and Vecchi 1983) over assignments, with moves of one part, of parts beside each other and of
//! stretches of the order.

use std::collections::VecDeque;

use plimsoll_base::Random;

use crate::{Device, Model, Rating};

/// How long a search goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// How many assignments are rated.
    pub ratings: u64,
    /// Where the numbers come from that choose moves.
    pub seed: u64,
}

/// At the beginning a move that makes the step longer by this part of it, divided by the root of the number of parts, is taken once in e
/// times. The more parts there are, the less each changes.
const HOT: f64 = 0.2;

/// How much colder it is at the end.
const COLD: f64 = 1e-3;

/// How much a byte above a line counts against a second: being above by the whole line is as bad as this many times the step.
const OVER: f64 = 3.0;

/// The best assignment found from one to begin with. It is no worse than that.
pub fn improve(model: &mut dyn Model, start: &[Device], effort: Effort) -> (Vec<Device>, Rating) {
    let rating = model.rate(start);
    model.keep();
    let parts = model.choices().len();
    let mut search = Search {
        random: Random::new(effort.seed),
        now: start.to_vec(),
        rating,
        best: start.to_vec(),
        best_rating: rating,
        free: (0..parts as u32).filter(|part| model.choices().of(*part as usize).len() > 1).collect(),
        marked: vec![0; parts],
        mark: 0,
        moved: Vec::new(),
    };
    if search.can_try_all(model, effort.ratings) {
        search.try_all(model);
    } else {
        let hot = HOT / (search.free.len() as f64).sqrt();
        for step in 0..effort.ratings {
            let progress = step as f64 / effort.ratings as f64;
            search.step(model, hot * COLD.powf(progress));
            // Late, and now and then, on from the best.
            if step % 1024 == 1023 && search.random.below(8) == 0 {
                search.now.clone_from(&search.best);
                search.rating = model.rate(&search.best);
                model.keep();
            }
        }
    }
    (search.best, search.best_rating)
}

struct Search {
    random: Random,
    now: Vec<Device>,
    rating: Rating,
    best: Vec<Device>,
    best_rating: Rating,
    /// Parts with a choice.
    free: Vec<u32>,
    /// Parts that a move has reached, by the number of the move.
    marked: Vec<u32>,
    mark: u32,
    /// Parts of the move at hand, and where they were.
    moved: Vec<(u32, Device)>,
}

/// A number to minimise.
fn cost(rating: &Rating) -> f64 {
    rating.seconds * (1.0 + OVER * rating.over)
}

impl Search {
    /// Whether there are no more assignments than so many.
    fn can_try_all(&self, model: &dyn Model, most: u64) -> bool {
        let choices = self.free.iter().map(|part| model.choices().of(*part as usize).len() as u64);
        choices.fold(1, u64::saturating_mul) <= most
    }

    /// Rates every assignment.
    fn try_all(&mut self, model: &mut dyn Model) {
        let mut turns = vec![0; self.free.len()];
        let mut turning = Some(0);
        while turning.is_some() {
            for (turn, part) in turns.iter().zip(&self.free) {
                self.now[*part as usize] = model.choices().of(*part as usize)[*turn];
            }
            let rating = model.rate(&self.now);
            self.keep(rating);
            turning = (0..turns.len()).find(|at| turns[*at] + 1 < model.choices().of(self.free[*at] as usize).len());
            if let Some(at) = turning {
                turns[..at].fill(0);
                turns[at] += 1;
            }
        }
    }

    /// Keeps the assignment at hand where it is the best so far.
    fn keep(&mut self, rating: Rating) {
        if rating.is_better_than(&self.best_rating) {
            self.best.clone_from(&self.now);
            self.best_rating = rating;
        }
    }

    /// Tries a move; takes it where that is better, or not much worse.
    fn step(&mut self, model: &mut dyn Model, heat: f64) {
        self.moved.clear();
        self.propose(model);
        if self.moved.is_empty() {
            return;
        }
        // What is longer by a part of the time is taken once in so many times: how much longer it may be is drawn before.
        let most = cost(&self.rating) * (1.0 - heat * self.random.unit().ln());
        let rating = model.rate_within(&self.now, most).filter(|rating| rating.over.is_finite() && cost(rating) <= most);
        let Some(rating) = rating else {
            self.moved.iter().for_each(|(part, device)| self.now[*part as usize] = *device);
            return;
        };
        model.keep();
        self.rating = rating;
        self.keep(rating);
    }

    fn propose(&mut self, model: &dyn Model) {
        let part = self.free[self.random.below(self.free.len())] as usize;
        let from = self.now[part];
        match self.random.below(16) {
            // Where a neighbour is.
            0..4 => {
                let Some(to) = self.of_neighbour(model, part) else { return };
                self.put(model, part, to);
            }
            4..6 => {
                let to = self.any(model, part);
                self.put(model, part, to);
            }
            // With neighbours on the same device.
            6..11 => {
                let to = if self.random.below(4) == 0 { Some(self.any(model, part)) } else { self.of_neighbour(model, part) };
                let Some(to) = to.filter(|to| *to != from) else { return };
                let most = 1 << self.random.below(8);
                self.grow(model, part, from, to, most);
            }
            // A stretch of the order, of what is on the same device.
            11..14 => {
                let to = if self.random.below(2) == 0 { Some(self.any(model, part)) } else { self.of_neighbour(model, part) };
                let Some(to) = to.filter(|to| *to != from) else { return };
                let most = 1 << self.random.below(9);
                let most = 1 + self.random.below(most);
                let mut left = most;
                for next in part..model.choices().len() {
                    if self.now[next] == from {
                        self.put(model, next, to);
                        left -= 1;
                    }
                    if left == 0 {
                        break;
                    }
                }
            }
            // Two parts change places.
            14 => {
                let other = self.free[self.random.below(self.free.len())] as usize;
                let there = self.now[other];
                if there != from {
                    self.put(model, part, there);
                    self.put(model, other, from);
                }
            }
            // From here on two devices change places.
            _ => {
                let to = self.any(model, part);
                for next in if to == from { 0..0 } else { part..model.choices().len() } {
                    if self.now[next] == from {
                        self.put(model, next, to);
                    } else if self.now[next] == to {
                        self.put(model, next, from);
                    }
                }
            }
        }
    }

    /// Moves a part where it may be.
    fn put(&mut self, model: &dyn Model, part: usize, to: Device) {
        let from = self.now[part];
        if from != to && model.choices().allows(part, to) {
            self.moved.push((part as u32, from));
            self.now[part] = to;
        }
    }

    /// Any device of the part.
    fn any(&mut self, model: &dyn Model, part: usize) -> Device {
        let choices = model.choices().of(part);
        choices[self.random.below(choices.len())]
    }

    /// The device of a part beside it that is elsewhere.
    fn of_neighbour(&mut self, model: &dyn Model, part: usize) -> Option<Device> {
        let beside = model.beside(part);
        let first = self.random.below(beside.len());
        let turned = beside.iter().cycle().skip(first).take(beside.len());
        turned.map(|other| self.now[*other as usize]).find(|device| *device != self.now[part])
    }

    /// Moves a part and others that hang together with it and are on the same device, nearest first.
    fn grow(&mut self, model: &dyn Model, part: usize, from: Device, to: Device, most: usize) {
        self.mark += 1;
        let mut queue = VecDeque::from([part as u32]);
        self.marked[part] = self.mark;
        let mut left = most;
        while let Some(next) = queue.pop_front() {
            self.put(model, next as usize, to);
            left -= 1;
            if left == 0 {
                return;
            }
            for &other in model.beside(next as usize) {
                if self.marked[other as usize] != self.mark && self.now[other as usize] == from {
                    self.marked[other as usize] = self.mark;
                    queue.push_back(other);
                }
            }
        }
    }
}
