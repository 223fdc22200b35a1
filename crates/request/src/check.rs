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
    /// The lengths of sequences are not negative, and no larger than the dimension that they are of.
    SequenceLengths,
    /// The indices of a sparse tensor are in its shape.
    InBounds,
    /// The indices of a sparse tensor are in lexicographic order, each once.
    InOrder,
    /// The least number of a range is no larger than its largest.
    QuantizedRange,
    /// The first number of a range is less than its second.
    ValueRange,
    /// Numbers that are sorted into a histogram are numbers.
    HistogramValues,
    /// A list that a tensor is taken from has one.
    ListNotEmpty,
    /// An optional has a value.
    Present,
    /// No tensor of a TensorArray that is written has been written before.
    Unwritten,
    /// The fetched tensor of that number is alive.
    Fetched(u32),
}
