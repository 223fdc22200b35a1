//! Conditions that a step depends on.

use plimsoll_base::Code;
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

impl Requirement {
    /// TensorFlow's error where it does not hold: code, message, and the number that `{0}` stands for.
    pub fn refusal(self) -> (Code, &'static str, i64) {
        let invalid = |message| (Code::InvalidArgument, message, 0);
        match self {
            Requirement::Assertion => invalid("assertion failed"),
            Requirement::NotNegative => invalid("Input arr must be non-negative!"),
            Requirement::Ascending => invalid("segment ids are not increasing"),
            Requirement::SequenceLengths => invalid("seq_lens must be at least 0 and at most input.dims(seq_dim)"),
            Requirement::InBounds => invalid("Indices are not valid (out of bounds)."),
            Requirement::InOrder => invalid(
                "indices are out of order or repeated. Many sparse ops require sorted indices. \
                 Use `tf.sparse.reorder` to create a correctly ordered copy.",
            ),
            Requirement::QuantizedRange => invalid("Invalid range: input_min > input_max"),
            Requirement::ValueRange => invalid("value_range should satisfy value_range[0] < value_range[1]"),
            Requirement::HistogramValues => invalid("Histogram values must not contain NaN"),
            Requirement::Present => invalid("The given optional does not have a value."),
            Requirement::ListNotEmpty => invalid("Trying to pop from an empty list."),
            Requirement::Unwritten => invalid("Could not write to TensorArray index because it has already been written to."),
            Requirement::Fetched(index) => (Code::InvalidArgument, "Retval[{0}] does not have value", index.into()),
            Requirement::ReferenceInitialized => (Code::FailedPrecondition, "Attempting to use uninitialized value", 0),
            Requirement::ResourceInitialized => (
                Code::FailedPrecondition,
                "Could not find variable. This could mean that the variable has been deleted. In TF1, it can also mean the variable is \
                 uninitialized.",
                0,
            ),
        }
    }
}
