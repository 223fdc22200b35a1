//! Conditions that a step depends on.

use serde::{Deserialize, Serialize};

/// Conditions that have to hold, each with TensorFlow's error where it does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Requirement {
    /// An assertion.
    Assertion,
    /// A variable that is a reference has been assigned.
    ReferenceInitialized,
    /// A resource variable has been assigned.
    ResourceInitialized,
    /// Numbers that are counted are not negative.
    NotNegative,
    /// The ids of segments are not negative, and in ascending order.
    Ascending,
    /// The fetched tensor of that number is alive.
    Fetched(u32),
}
