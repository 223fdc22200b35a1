//! Pooling of floats and doubles along one to three axes, channels last. Doubles have plain loops. Kernels have three axes; those that a pooling lacks have size 1.
//!
//! The first maxima remember where in its window each was found, in one byte as a rule. So the gradient needs neither the input nor the
//! output.

mod average;
mod doubles;
mod every;
mod grad_grad;
mod max;
#[cfg(test)]
mod tests;

use std::ops::Range;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_request::pool::PoolSpec;
use plimsoll_request::window::{Layout, WindowAxis};

use crate::conv::Axis;
use crate::cut::elements;

pub(crate) use max::{PoolImages, UnpoolRows};

pub use average::{avg_pool, avg_pool_grad, avg_pool_grad_on, avg_pool_on};
pub use grad_grad::max_pool_grad_grad_on;
pub use max::{
    max_pool, max_pool_grad, max_pool_grad_of_input, max_pool_grad_of_input_on, max_pool_grad_on, max_pool_on, max_pool_with_argmax,
    max_pool_with_argmax_on,
};

/// The kernels' view of the sizes.
trait Check {
    /// The windows over the input; refuses sizes that make no sense, or that no memory holds, and elements that are no floats.
    fn check(&self) -> Result<Sizes>;
    /// As [`Check::check`], of any elements.
    fn check_sizes(&self) -> Result<Sizes>;
}

impl Check for PoolSpec {
    fn check(&self) -> Result<Sizes> {
        if self.data_type != DataType::Float {
            return Err(Error::unimplemented(format!("pooling of {}", self.data_type)));
        }
        self.check_sizes()
    }

    fn check_sizes(&self) -> Result<Sizes> {
        let most = 1 << 15;
        if self.layout != Layout::ChannelsLast {
            return Err(Error::unimplemented("pooling with channels first on a processor"));
        }
        for axis in &*self.axes {
            for (name, value) in [("window", axis.taps), ("stride", axis.stride)] {
                if value == 0 || value > most {
                    return Err(Error::invalid_argument(format!("pooling with a {name} of {value}")));
                }
            }
            if axis.pad > most {
                return Err(Error::invalid_argument(format!("pooling padded by {}", axis.pad)));
            }
            if axis.dilation != 1 {
                return Err(Error::unimplemented(format!("pooling with a dilation of {}", axis.dilation)));
            }
        }
        elements(&self.input())?;
        elements(&self.output())?;
        for axis in &*self.axes {
            elements(&[axis.positions, axis.stride])?;
        }
        let [z, y, x] = self.axes.filled();
        let strides = self.axes.iter().fold(1u64, |product, axis| product.saturating_mul(axis.stride));
        let deep = z != WindowAxis::ONE;
        let [z, y, x] = [z, y, x].map(Axis::from);
        Ok(Sizes { batch: self.batch as usize, channels: self.channels as usize, deep, z, y, x, strides })
    }
}

/// A [`PoolSpec`] that has been checked: the results' windows over the input.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    batch: usize,
    channels: usize,
    /// Whether there is more than one plane, or a window of more than one.
    deep: bool,
    z: Axis,
    y: Axis,
    x: Axis,
    /// All strides, multiplied: how many elements of the input a result stands for.
    strides: u64,
}

impl Sizes {
    /// Elements of the input, and of the result.
    fn totals(&self) -> (f64, f64) {
        let of = |size: fn(&Axis) -> usize| {
            let positions = size(&self.y) as f64 * size(&self.x) as f64 * size(&self.z) as f64;
            self.batch as f64 * positions * self.channels as f64
        };
        (of(|axis| axis.size), of(|axis| axis.positions))
    }

    /// Operations of looking at every tap of every window.
    fn flops(&self) -> f64 {
        self.totals().1 * self.z.taps as f64 * self.y.taps as f64 * self.x.taps as f64
    }

    /// Bytes of a row of so many columns.
    fn row(&self, columns: usize) -> u64 {
        columns as u64 * self.channels as u64 * 4
    }

    /// Rows of all results, and of all inputs.
    fn rows(&self) -> (usize, usize) {
        (self.batch * self.z.positions * self.y.positions, self.batch * self.z.size * self.y.size)
    }

    /// Image, plane and row of a row that is counted over all images, of so many planes with so many rows.
    #[inline(always)]
    fn place<const DEEP: bool>(&self, row: usize, planes: usize, rows: usize) -> [usize; 3] {
        let plane = row / rows;
        if DEEP { [plane / planes, plane % planes, row % rows] } else { [plane, 0, row % rows] }
    }

    /// The taps that a position has on the input, along the planes.
    #[inline(always)]
    fn planes_at<const DEEP: bool>(&self, position: usize) -> Range<usize> {
        if DEEP { self.z.taps_at(position) } else { 0..1 }
    }

    /// The positions whose windows have a plane of the input.
    #[inline(always)]
    fn planes_over<const DEEP: bool>(&self, plane: usize) -> Range<usize> {
        if DEEP { self.z.positions_over(plane) } else { 0..1 }
    }

    /// Where the window at a position along the planes begins.
    #[inline(always)]
    fn plane_start<const DEEP: bool>(&self, position: usize) -> isize {
        if DEEP { self.z.start(position) } else { 0 }
    }
}

/// Runs code that knows whether there are planes: `deep!(sizes, DEEP => code)`.
macro_rules! deep {
    ($sizes:expr, $deep:ident => $code:expr) => {
        if $sizes.deep {
            const $deep: bool = true;
            $code
        } else {
            const $deep: bool = false;
            $code
        }
    };
}
use deep;
