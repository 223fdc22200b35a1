//! Regions: works with the values that come in and go out.
//!
//! A region is closed. Its works read its parameters and values that its own works define. The plan's own region is static. Its
//! parameters are the values that exist when a run starts. Each of its works runs at most once.
//!
//! A loop is a work that holds a region ([`super::WorkKind::Loop`]). Where works of its body are on several devices, the loop is one
//! work all the same: it has a place in the queue of each of them, and a bool there that says whether there is another iteration. The sides of a condition are works of one region with guards
//! ([`super::Work::guard`]): one side behind the other, their values share memory, and a command that is passed over costs 0.05 us.

use super::{ValueId, WorkId};
use crate::plan::DeviceId;

/// Works with the values that come in and go out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Region {
    /// The values that are defined when the region starts.
    pub params: Vec<ValueId>,
    /// The works: in any order until they are scheduled, then in the order in which they run.
    pub works: Vec<WorkId>,
    /// The values that leave the region. The plan's own region has none: fetches and variables are homes.
    pub results: Vec<ValueId>,
    /// Of the body of a loop, once there are copies between devices: the devices beside that of the loop whose queues have it too,
    /// ascending. A queue with a part in a loop goes round as often as the others.
    pub partners: Vec<DeviceId>,
    /// Of a region that a work holds: the bytes that its values and scratch take of each of its devices, once it is scheduled.
    pub arena: Vec<(DeviceId, u64)>,
}

impl Region {
    /// The bytes that it takes of a device.
    pub fn takes(&self, device: DeviceId) -> u64 {
        self.arena.iter().find(|(other, _)| *other == device).map_or(0, |(_, bytes)| *bytes)
    }
}

impl Trips {
    /// Whether the number of iterations is known, of all runs of the loop together.
    pub fn are_counted(self) -> bool {
        matches!(self, Trips::Exactly(_) | Trips::InAll { .. })
    }

    /// How often it is taken to run where times are predicted.
    pub fn predicted(self) -> f64 {
        match self {
            Trips::Exactly(trips) | Trips::AtMost(trips) => trips as f64,
            Trips::InAll { trips, runs } => trips as f64 / runs.max(1) as f64,
            Trips::Open => 1.0,
        }
    }
}

/// How often the body of a loop runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trips {
    /// So often.
    Exactly(u64),
    /// Not more often.
    AtMost(u64),
    /// So often in so many runs of the loop together.
    InAll { trips: u64, runs: u64 },
    /// Unknown before it runs.
    Open,
}
