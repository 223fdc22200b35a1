//! Convolutions. Filters have their taps first, then the channels of the input, then those of the result.

use plimsoll_base::DataType;
use serde::{Deserialize, Serialize};

use crate::window::{Axes, Layout};

/// How the gradient by a filter is summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FilterForm {
    /// Tap by tap: sums have the filter's shape.
    Taps,
    /// By Winograd's minimal filtering: sums are `[along * along, in_c, out_c]`, and the taps are interpolated from them.
    Points {
        /// Points along each of two axes.
        along: u64,
        /// Images that are added at once. It divides the batch.
        images: u64,
    },
}

/// The sizes of a convolution of `batch` images.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConvSpec {
    /// The elements of all three tensors.
    pub data_type: DataType,
    /// Images.
    pub batch: u64,
    /// Channels of the input.
    pub in_c: u64,
    /// Channels of the result.
    pub out_c: u64,
    /// The axes that the filter slides along.
    pub axes: Axes,
    /// Where the channels of input and result are.
    pub layout: Layout,
    /// Into how many groups of equal size the channels are divided; not 0. Each group of the result is made of one of the input.
    pub groups: u64,
}

impl ConvSpec {
    /// The input's shape.
    pub fn input(&self) -> Vec<u64> {
        self.layout.shape(self.batch, self.axes.iter().map(|axis| axis.size), self.in_c)
    }

    /// The filter's shape: it has the channels of one group of the input.
    pub fn filter(&self) -> Vec<u64> {
        self.axes.iter().map(|axis| axis.taps).chain([self.in_c.checked_div(self.groups).unwrap_or(0), self.out_c]).collect()
    }

    /// Numbers of a filter at the points of [`FilterForm::Points`]; none where they cannot be counted.
    pub fn at_points(&self, along: u64) -> Option<u64> {
        self.in_c.checked_mul(self.out_c)?.checked_mul(along.checked_mul(along)?)
    }

    /// The result's shape.
    pub fn output(&self) -> Vec<u64> {
        self.layout.shape(self.batch, self.axes.iter().map(|axis| axis.positions), self.out_c)
    }

    /// How many taps the filter has.
    pub fn taps(&self) -> u64 {
        self.axes.iter().fold(1, |taps, axis| taps.saturating_mul(axis.taps))
    }
}
