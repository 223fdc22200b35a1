//! Blocks of a tensor: where they begin, and how far apart their elements are.

use plimsoll_base::DataType;
use serde::{Deserialize, Serialize};

/// Where a block begins along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Begin {
    /// At this element.
    At(u64),
    /// At the element that an integer says.
    Named {
        /// Its position among the names.
        position: usize,
        /// The meaning of a name outside.
        outside: Outside,
    },
}

/// The meaning of a name outside of the places where the block fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Outside {
    /// A fault: `Slice`.
    Fault,
    /// A negative name counts from the end, any other is a fault: an index of `StridedSlice`.
    FromEnd,
    /// A negative name counts from the end, then it is the nearest place: a range of `StridedSlice`.
    Range,
    /// The nearest place where the block fits: `XlaDynamicSlice`.
    Nearest,
}

/// A block of a tensor of `shape`: element `i` along an axis is the tensor's element `begin + i * stride`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// The tensor's shape.
    pub shape: Vec<u64>,
    /// The first element along each axis.
    pub begins: Vec<Begin>,
    /// The distance of elements along each axis: not 0, and 1 where the begin is named.
    pub strides: Vec<i64>,
    /// How many elements along each axis.
    pub sizes: Vec<u64>,
    /// Type and number of the names; none where all begins are known. Int32 or int64.
    pub names: Option<(DataType, u64)>,
}

impl Block {
    /// Whether some names make it fault.
    pub fn can_fail(&self) -> bool {
        self.begins.iter().any(|begin| matches!(begin, Begin::Named { outside: Outside::Fault | Outside::FromEnd, .. }))
    }
}
