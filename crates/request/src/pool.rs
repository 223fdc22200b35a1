//! Pooling.

use plimsoll_base::DataType;
use serde::{Deserialize, Serialize};

use crate::window::{Axes, Layout};

/// The sizes of pooling. Dilations are 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolSpec {
    /// The elements of input and result.
    pub data_type: DataType,
    /// Images.
    pub batch: u64,
    /// Channels.
    pub channels: u64,
    /// The axes that the window slides along.
    pub axes: Axes,
    /// Where the channels of input and result are.
    pub layout: Layout,
}

impl PoolSpec {
    /// The input's shape.
    pub fn input(&self) -> Vec<u64> {
        self.layout.shape(self.batch, self.axes.iter().map(|axis| axis.size), self.channels)
    }

    /// The result's shape.
    pub fn output(&self) -> Vec<u64> {
        self.layout.shape(self.batch, self.axes.iter().map(|axis| axis.positions), self.channels)
    }

    /// How many elements a window has.
    pub fn taps(&self) -> u64 {
        self.axes.iter().fold(1, |taps, axis| taps.saturating_mul(axis.taps))
    }
}

/// How positions in windows are kept: elements of a window are counted in row-major order. All ones is none of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ArgMax {
    /// One byte, for windows of less than 256.
    U8,
    /// Four bytes.
    U32,
}

impl ArgMax {
    /// The form that `spec` needs.
    pub fn of(spec: &PoolSpec) -> ArgMax {
        if spec.taps() < 256 { ArgMax::U8 } else { ArgMax::U32 }
    }

    /// Bytes of one.
    pub fn size(self) -> u64 {
        match self {
            ArgMax::U8 => 1,
            ArgMax::U32 => 4,
        }
    }

    /// The type of a tensor of positions.
    pub fn data_type(self) -> DataType {
        match self {
            ArgMax::U8 => DataType::Uint8,
            ArgMax::U32 => DataType::Uint32,
        }
    }
}

/// Where TensorFlow's max poolings differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Maxima {
    /// `MaxPool`: a NaN does not count, and a window without anything else is the lowest float. The first of equal elements has the
    /// gradient.
    First,
    /// `MaxPool3D`: an element replaces the maximum of those before it unless that is larger, so that a NaN stays only at the end.
    /// Every element that differs from the maximum by less than 1e-5 has the gradient.
    Every,
}

/// The positions that a max pooling leaves for its gradient. Other than [`Positions::None`] only where the first maximum has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Positions {
    /// Nothing.
    None,
    /// Where every maximum is.
    All,
    /// Where every maximum above 0 is.
    Positive,
}

/// A max pooling that is done to images where another kernel has just made them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pooling {
    /// The sizes.
    pub spec: PoolSpec,
    /// The kind of maximum.
    pub maxima: Maxima,
    /// The positions that are left.
    pub positions: Positions,
}
