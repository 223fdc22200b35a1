//! Puts the parts of a computation on devices, so that it ends as early as possible and no device holds more than its line.
//!
//! A [`Model`] is the computation as the search sees it: parts in an order, the devices of each, and a rating of every assignment.
//! [`improve`] changes an assignment by moves that the model rates. [`clusters`] joins parts that exchange much, so that they
//! move together, and [`improve_joined`] moves these. [`cut`] begins with stretches of an order. What an assignment costs is the
//! model's own affair: the planner's runs the queues of a step on paper, published instances have models of their own.
//!
//! Effort is counted in ratings, never in seconds: the same model gives the same assignments.

#![forbid(unsafe_code)]

mod choices;
mod cluster;
mod cut;
mod search;

pub use choices::Choices;
pub use cluster::{Clusters, clusters, improve_joined};
pub use cut::{Cuttable, cut, depth_first};
pub use search::{Effort, improve};

use std::cmp::Ordering;

/// A device of a model, by its position.
pub type Device = u16;

/// What an assignment of parts to devices is worth.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rating {
    /// How far devices are above their lines, as a part of these lines, added up; 0 where all lines hold. Infinite for an assignment
    /// that cannot be.
    pub over: f64,
    /// Seconds, or another unit of the model: less is better.
    pub seconds: f64,
}

impl Rating {
    /// Lines first, then time.
    pub fn is_better_than(&self, other: &Rating) -> bool {
        self.over.total_cmp(&other.over).then(self.seconds.total_cmp(&other.seconds)) == Ordering::Less
    }
}

/// A computation that is put on devices.
pub trait Model {
    /// The parts, numbered so that a part mostly reads from parts before it, each with its devices.
    fn choices(&self) -> &Choices;

    /// Parts that exchange something with a part, each once.
    fn beside(&self, part: usize) -> &[u32];

    /// Rates an assignment: a device for each part.
    fn rate(&mut self, devices: &[Device]) -> Rating;

    /// As [`Model::rate`]; none where the seconds are more than `most`. A model may find that out sooner than it rates.
    fn rate_within(&mut self, devices: &[Device], most: f64) -> Option<Rating> {
        Some(self.rate(devices)).filter(|rating| rating.seconds <= most)
    }

    /// The next assignments are like the one rated last: a model may rate them by what they differ in.
    fn keep(&mut self) {}
}
