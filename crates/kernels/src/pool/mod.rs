//! Pooling over two dimensions of NHWC floats. Maxima remember where in its window each was found, in one byte as a rule. So the
//! gradient needs neither the input nor the output.

mod average;
mod max;
#[cfg(test)]
mod tests;

use plimsoll_base::{Error, Result};
use plimsoll_request::pool::PoolSpec;

use crate::conv::Axis;
use crate::cut::elements;

pub(crate) use max::{PoolImages, UnpoolRows};

pub use average::{avg_pool, avg_pool_grad, avg_pool_grad_on, avg_pool_on};
pub use max::{
    max_pool, max_pool_grad, max_pool_grad_of_input, max_pool_grad_of_input_on, max_pool_grad_on, max_pool_on, max_pool_with_argmax,
    max_pool_with_argmax_on,
};

/// The kernels' view of the sizes.
trait Check {
    /// The windows over the input; refuses what makes no sense, or what no memory holds.
    fn check(&self) -> Result<Sizes>;
}

impl Check for PoolSpec {
    fn check(&self) -> Result<Sizes> {
        let most = 1 << 15;
        for (name, value) in [("window", self.k_h), ("window", self.k_w), ("stride", self.stride_h), ("stride", self.stride_w)] {
            if value == 0 || value > most {
                return Err(Error::invalid_argument(format!("pooling with a {name} of {value}")));
            }
        }
        if self.pad_top > most || self.pad_left > most {
            return Err(Error::invalid_argument(format!("pooling padded by {} and {}", self.pad_top, self.pad_left)));
        }
        elements(&self.input())?;
        elements(&self.output())?;
        elements(&[self.out_h, self.stride_h])?;
        elements(&[self.out_w, self.stride_w])?;
        let axis = |positions: u64, taps: u64, stride: u64, pad: u64, size: u64| Axis {
            positions: positions as usize,
            taps: taps as usize,
            stride: stride as usize,
            dilation: 1,
            pad: pad as isize,
            size: size as usize,
        };
        Ok(Sizes {
            batch: self.batch as usize,
            channels: self.channels as usize,
            y: axis(self.out_h, self.k_h, self.stride_h, self.pad_top, self.in_h),
            x: axis(self.out_w, self.k_w, self.stride_w, self.pad_left, self.in_w),
        })
    }
}

/// A [`PoolSpec`] that has been checked: the results' windows over the input.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    batch: usize,
    channels: usize,
    y: Axis,
    x: Axis,
}

impl Sizes {
    /// Elements of the input, and of the result.
    fn totals(&self) -> (f64, f64) {
        let of = |rows: usize, columns: usize| self.batch as f64 * rows as f64 * columns as f64 * self.channels as f64;
        (of(self.y.size, self.x.size), of(self.y.positions, self.x.positions))
    }

    /// Operations of looking at every tap of every window.
    fn flops(&self) -> f64 {
        self.totals().1 * self.y.taps as f64 * self.x.taps as f64
    }
}
