//! Windows that slide over tensors: the common part of convolutions and poolings of any rank.

use std::fmt;
use std::ops::{Deref, DerefMut};

use plimsoll_base::{Error, Result};
use serde::{Deserialize, Serialize};

/// One axis that a window slides along.
///
/// Position `p` sees with tap `t` the input's index `p * stride - pad + t * dilation`. Indices outside the input are padding: they count
/// as zero in a convolution, and not at all in a pooling. Padding at the end follows from the number of positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowAxis {
    /// Size of the input.
    pub size: u64,
    /// Size of the result.
    pub positions: u64,
    /// Size of the window; not 0.
    pub taps: u64,
    /// From position to position; not 0.
    pub stride: u64,
    /// From tap to tap; not 0.
    pub dilation: u64,
    /// How far before the input the first position begins.
    pub pad: u64,
}

impl WindowAxis {
    /// An axis of size 1 with a window of size 1: one that could as well be left out.
    pub const ONE: WindowAxis = WindowAxis { size: 1, positions: 1, taps: 1, stride: 1, dilation: 1, pad: 0 };
}

/// The most axes of a window.
pub const MOST_AXES: usize = 3;

/// The axes of a window, the outermost first: rows and columns, say, or planes, rows and columns.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Vec<WindowAxis>", try_from = "Vec<WindowAxis>")]
pub struct Axes {
    count: usize,
    /// Those beyond the count are [`WindowAxis::ONE`].
    axes: [WindowAxis; MOST_AXES],
}

impl Axes {
    /// These axes.
    ///
    /// # Errors
    /// UNIMPLEMENTED for none, and for more than [`MOST_AXES`].
    pub fn new(axes: &[WindowAxis]) -> Result<Axes> {
        if axes.is_empty() || axes.len() > MOST_AXES {
            return Err(Error::unimplemented(format!("a window that slides along {} axes", axes.len())));
        }
        let mut all = [WindowAxis::ONE; MOST_AXES];
        all[..axes.len()].copy_from_slice(axes);
        Ok(Axes { count: axes.len(), axes: all })
    }

    /// The axes with others of size 1 before them, so that there are [`MOST_AXES`].
    pub fn filled(&self) -> [WindowAxis; MOST_AXES] {
        let mut all = [WindowAxis::ONE; MOST_AXES];
        all[MOST_AXES - self.count..].copy_from_slice(self);
        all
    }
}

impl Deref for Axes {
    type Target = [WindowAxis];

    fn deref(&self) -> &[WindowAxis] {
        &self.axes[..self.count]
    }
}

impl DerefMut for Axes {
    fn deref_mut(&mut self) -> &mut [WindowAxis] {
        &mut self.axes[..self.count]
    }
}

impl fmt::Debug for Axes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl From<Axes> for Vec<WindowAxis> {
    fn from(axes: Axes) -> Vec<WindowAxis> {
        axes.to_vec()
    }
}

impl TryFrom<Vec<WindowAxis>> for Axes {
    type Error = Error;

    fn try_from(axes: Vec<WindowAxis>) -> Result<Axes> {
        Axes::new(&axes)
    }
}

/// Where the channels of a tensor of images are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Layout {
    /// `NHWC`, `NDHWC`.
    ChannelsLast,
    /// `NCHW`, `NCDHW`.
    ChannelsFirst,
}

impl Layout {
    /// The dimensions of a tensor of images.
    pub fn shape<T: Copy>(self, batch: T, sizes: impl IntoIterator<Item = T>, channels: T) -> Vec<T> {
        let sizes = sizes.into_iter();
        match self {
            Layout::ChannelsLast => [batch].into_iter().chain(sizes).chain([channels]).collect(),
            Layout::ChannelsFirst => [batch, channels].into_iter().chain(sizes).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_are_written_as_a_list_and_read_with_a_check() {
        let axes = Axes::new(&[WindowAxis { size: 5, positions: 3, taps: 2, stride: 2, dilation: 1, pad: 1 }, WindowAxis::ONE]).unwrap();
        let text = serde_json::to_string(&axes).unwrap();
        assert_eq!(serde_json::from_str::<Axes>(&text).unwrap(), axes);
        assert_eq!(axes.filled()[1..], axes[..]);
        assert!(serde_json::from_str::<Axes>("[]").is_err());
        assert!(Axes::new(&[WindowAxis::ONE; 4]).is_err());
    }

    #[test]
    fn a_layout_says_where_channels_are() {
        assert_eq!(Layout::ChannelsLast.shape(2, [3, 4, 5], 6), [2, 3, 4, 5, 6]);
        assert_eq!(Layout::ChannelsFirst.shape(2, [3, 4], 6), [2, 6, 3, 4]);
    }
}
