//! Convolutions of two dimensions, in TensorFlow's layouts: activations NHWC, filters HWIO.

use serde::{Deserialize, Serialize};

/// The sizes of a convolution `[batch, in_h, in_w, in_c] x [k_h, k_w, in_c, out_c] -> [batch, out_h, out_w, out_c]`.
///
/// Result `(y, x)` sees with tap `(i, j)` the input's `(y * stride_h - pad_top + i * dilation_h, x * stride_w - pad_left + j *
/// dilation_w)`. Elements outside count as zero, so `out_h` and `out_w` alone express padding at the bottom and right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConvSpec {
    /// Images.
    pub batch: u64,
    /// Rows of an input image.
    pub in_h: u64,
    /// Columns of an input image.
    pub in_w: u64,
    /// Channels of the input.
    pub in_c: u64,
    /// Rows of a result.
    pub out_h: u64,
    /// Columns of a result.
    pub out_w: u64,
    /// Channels of the result.
    pub out_c: u64,
    /// Rows of the filter; not 0.
    pub k_h: u64,
    /// Columns of the filter; not 0.
    pub k_w: u64,
    /// Rows from result to result; not 0.
    pub stride_h: u64,
    /// Columns from result to result; not 0.
    pub stride_w: u64,
    /// Rows from tap to tap; not 0.
    pub dilation_h: u64,
    /// Columns from tap to tap; not 0.
    pub dilation_w: u64,
    /// Rows of padding at the top.
    pub pad_top: u64,
    /// Columns of padding on the left.
    pub pad_left: u64,
}

impl ConvSpec {
    /// The input's shape.
    pub fn input(&self) -> [u64; 4] {
        [self.batch, self.in_h, self.in_w, self.in_c]
    }

    /// The filter's shape.
    pub fn filter(&self) -> [u64; 4] {
        [self.k_h, self.k_w, self.in_c, self.out_c]
    }

    /// The result's shape.
    pub fn output(&self) -> [u64; 4] {
        [self.batch, self.out_h, self.out_w, self.out_c]
    }
}
