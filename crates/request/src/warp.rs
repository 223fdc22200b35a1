//! Images that are seen through projective transforms.

use plimsoll_base::DataType;
use serde::{Deserialize, Serialize};

/// `ImageProjectiveTransformV3`: images `[batch, size.., channels]` that become `[batch, resized.., channels]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warp {
    /// Of the images: float or double.
    pub data_type: DataType,
    /// Images.
    pub batch: u64,
    /// Rows and columns.
    pub size: [u64; 2],
    /// Rows and columns of the results.
    pub resized: [u64; 2],
    /// Channels.
    pub channels: u64,
    /// Whether all images have one transform.
    pub is_shared: bool,
    /// Whether four neighbours are weighted; else it is the nearest one.
    pub bilinear: bool,
    /// What lies outside of an image.
    pub outside: Outside,
}

impl Warp {
    /// The shapes of input and output.
    pub fn shapes(&self) -> ([u64; 4], [u64; 4]) {
        let shape = |size: [u64; 2]| [self.batch, size[0], size[1], self.channels];
        (shape(self.size), shape(self.resized))
    }

    /// How many transforms there are.
    pub fn transforms(&self) -> u64 {
        if self.is_shared { 1 } else { self.batch }
    }
}

/// `fill_mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outside {
    /// The fill value.
    Constant,
    /// The image mirrored at its border, which is repeated.
    Reflect,
    /// The image again.
    Wrap,
    /// The nearest border.
    Nearest,
}
