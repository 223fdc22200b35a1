//! The report on towers: their waiting, the bytes moved for them, the age of the variables that they compute with.

use std::time::Duration;

/// How the towers fared in some steps.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Tower by tower.
    pub towers: Vec<TowerReport>,
    /// How old the variables were; none where all towers step together: then they never are.
    pub staleness: Option<Staleness>,
}

/// How one tower fared.
#[derive(Clone, Debug, PartialEq)]
pub struct TowerReport {
    /// The full name of its device.
    pub device: String,
    /// The steps in which it took part.
    pub steps: u64,
    /// The time of its runs, from asking to the end.
    pub running: Duration,
    /// The part of it in which nothing of the tower was computed: its variables were with another tower, its device waited for
    /// another, or for a thread.
    pub waiting: Duration,
    /// Bytes that a step copies to and from its device for it.
    pub moved_bytes_per_step: u64,
}

/// By how many steps of other towers the variables had changed when a tower applied its gradients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Staleness {
    /// Of all steps together.
    pub total: u64,
    /// How many steps.
    pub steps: u64,
    /// Of the worst step.
    pub max: u64,
}

impl Staleness {
    /// Takes a step in.
    pub fn add(&mut self, staleness: u64) {
        self.join(&Staleness { total: staleness, steps: 1, max: staleness });
    }

    /// Takes others' steps in.
    pub fn join(&mut self, other: &Staleness) {
        self.total += other.total;
        self.steps += other.steps;
        self.max = self.max.max(other.max);
    }

    /// The mean; 0 where there was no step.
    pub fn mean(&self) -> f64 {
        if self.steps == 0 { 0.0 } else { self.total as f64 / self.steps as f64 }
    }
}
