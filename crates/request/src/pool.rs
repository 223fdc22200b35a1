//! Pooling over two dimensions of NHWC floats.

use plimsoll_base::DataType;
use serde::{Deserialize, Serialize};

/// The sizes of pooling `[batch, in_h, in_w, channels] -> [batch, out_h, out_w, channels]`.
///
/// The window of result `(y, x)` begins at the input's `(y * stride_h - pad_top, x * stride_w - pad_left)`. Elements outside the
/// input do not count. Padding at the bottom and right is said by `out_h` and `out_w`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolSpec {
    /// Images.
    pub batch: u64,
    /// Rows of an input image.
    pub in_h: u64,
    /// Columns of an input image.
    pub in_w: u64,
    /// Channels.
    pub channels: u64,
    /// Rows of a result.
    pub out_h: u64,
    /// Columns of a result.
    pub out_w: u64,
    /// Rows of a window; not 0.
    pub k_h: u64,
    /// Columns of a window; not 0.
    pub k_w: u64,
    /// Rows from window to window; not 0.
    pub stride_h: u64,
    /// Columns from window to window; not 0.
    pub stride_w: u64,
    /// Rows of padding at the top.
    pub pad_top: u64,
    /// Columns of padding on the left.
    pub pad_left: u64,
}

impl PoolSpec {
    /// The input's shape.
    pub fn input(&self) -> [u64; 4] {
        [self.batch, self.in_h, self.in_w, self.channels]
    }

    /// The result's shape.
    pub fn output(&self) -> [u64; 4] {
        [self.batch, self.out_h, self.out_w, self.channels]
    }
}

/// How positions in windows are kept: `row * k_w + column`. All ones is none of them.
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
        if spec.k_h.saturating_mul(spec.k_w) < 256 { ArgMax::U8 } else { ArgMax::U32 }
    }

    /// The type of a tensor of positions.
    pub fn data_type(self) -> DataType {
        match self {
            ArgMax::U8 => DataType::Uint8,
            ArgMax::U32 => DataType::Uint32,
        }
    }
}

/// The positions that a max pooling leaves for its gradient.
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
    /// The positions that are left.
    pub positions: Positions,
}
