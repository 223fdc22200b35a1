//! Images that are resized: sums along rows and columns with weights that follow from sizes.

use plimsoll_base::DataType;
use serde::{Deserialize, Serialize};

/// Images `[batch, size.., channels]` that become `[batch, resized.., channels]`; or, transposed, the gradient by the first from that
/// by the second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Resample {
    /// Of all elements: float or double.
    pub data_type: DataType,
    /// Images.
    pub batch: u64,
    /// Rows and columns.
    pub size: [u64; 2],
    /// Rows and columns of resized images.
    pub resized: [u64; 2],
    /// Channels.
    pub channels: u64,
    /// How rows and columns are weighted.
    pub method: Method,
    /// Whether it is the gradient.
    pub transposed: bool,
}

impl Resample {
    /// The shape of the images.
    pub fn images(&self) -> [u64; 4] {
        [self.batch, self.size[0], self.size[1], self.channels]
    }

    /// The shape of resized images.
    pub fn resized_images(&self) -> [u64; 4] {
        [self.batch, self.resized[0], self.resized[1], self.channels]
    }

    /// The shapes of input and output.
    pub fn shapes(&self) -> ([u64; 4], [u64; 4]) {
        if self.transposed { (self.resized_images(), self.images()) } else { (self.images(), self.resized_images()) }
    }
}

/// The weights of a resized image. `align_corners` and `half_pixel_centers` are TensorFlow's attributes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields are TensorFlow's, or said above them")]
pub enum Method {
    /// `ResizeNearestNeighbor`: for its gradient.
    Nearest { align_corners: bool, half_pixel_centers: bool },
    /// `ResizeBilinear`.
    Bilinear { align_corners: bool, half_pixel_centers: bool },
    /// `ResizeBicubic`.
    Bicubic { align_corners: bool, half_pixel_centers: bool },
    /// `ResizeArea`.
    Area { align_corners: bool },
    /// `ScaleAndTranslate`; scale and translation of rows and columns.
    Translate { filter: Filter, antialias: bool, rows: Placing, columns: Placing },
}

/// Where the images lie along an axis of the result.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Placing {
    /// How much longer the result's image is.
    #[serde(with = "crate::bits")]
    pub scale: f32,
    /// How far from the start it begins.
    #[serde(with = "crate::bits")]
    pub translation: f32,
}

/// `kernel_type` of `ScaleAndTranslate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are TensorFlow's")]
pub enum Filter {
    Lanczos1,
    Lanczos3,
    Lanczos5,
    Gaussian,
    Box,
    Triangle,
    KeysCubic,
    MitchellCubic,
}

/// How many elements of an axis one element of the resized axis stands for (`CalculateResizeScale`).
#[inline(always)]
pub fn scale(size: u64, resized: u64, align_corners: bool) -> f32 {
    if align_corners && resized > 1 { (size as i64 - 1) as f32 / (resized - 1) as f32 } else { size as f32 / resized as f32 }
}
