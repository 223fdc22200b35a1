//! Convolutions of two dimensions, in TensorFlow's layouts: activations NHWC, filters HWIO. Direct: nothing is laid out anew but
//! filters, and taps on the padding are skipped.

mod axis;
mod depthwise;
mod direct;
mod filter;
mod finish;
mod groups;
mod pass;
mod pooled;
#[cfg(test)]
mod tests;
mod tiles;

use plimsoll_base::{Error, Result};
use plimsoll_device::Prepared;
use plimsoll_request::conv::ConvSpec;

use crate::cut::elements;
use crate::simd::Isa;
use plimsoll_request::anchor::Epilogue;
use plimsoll_request::pool::{PoolSpec, Pooling};

pub use depthwise::{
    depthwise_conv2d, depthwise_conv2d_backprop_filter, depthwise_conv2d_backprop_filter_on, depthwise_conv2d_backprop_input,
    depthwise_conv2d_backprop_input_on, depthwise_conv2d_on,
};

pub(crate) use axis::Axis;
pub(crate) use groups::{GROUP, get, groups, put};

/// The most that a stride or padding, and a row or column of a filter, may be.
const MOST: u64 = 1 << 31;
const MOST_TAPS: u64 = 1 << 15;
/// The most that lies between the first and the last row or column of a filter.
const MOST_EXTENT: u64 = 1 << 16;

/// The kernels' view of the sizes.
pub(crate) trait Sizes {
    /// Refuses what makes no sense, or what no memory holds.
    fn check(&self) -> Result<()>;
    /// Rows of results over rows of the input.
    fn rows(&self) -> Axis;
    /// Columns of results over columns of the input.
    fn columns(&self) -> Axis;
    /// Multiplications and additions, without those on the padding.
    fn flops(&self) -> f64;
    /// Bytes of the three tensors.
    fn bytes(&self) -> f64;
}

impl Sizes for ConvSpec {
    fn check(&self) -> Result<()> {
        let (k_h, k_w) = ((self.k_h, MOST_TAPS), (self.k_w, MOST_TAPS));
        let (stride_h, stride_w) = ((self.stride_h, MOST), (self.stride_w, MOST));
        for (name, (value, most)) in [("filter", k_h), ("filter", k_w), ("stride", stride_h), ("stride", stride_w)] {
            if value == 0 || value > most {
                return Err(Error::invalid_argument(format!("a convolution with a {name} of {value}")));
            }
        }
        for (taps, dilation) in [(self.k_h, self.dilation_h), (self.k_w, self.dilation_w)] {
            if dilation == 0 || (taps - 1).checked_mul(dilation).is_none_or(|extent| extent > MOST_EXTENT) {
                return Err(Error::invalid_argument(format!("a convolution with {taps} taps and a dilation of {dilation}")));
            }
        }
        if self.pad_top > MOST || self.pad_left > MOST {
            return Err(Error::invalid_argument(format!("a convolution padded by {} and {}", self.pad_top, self.pad_left)));
        }
        elements(&self.input())?;
        elements(&self.filter())?;
        elements(&self.output())?;
        // Positions times strides are computed too.
        elements(&[self.out_h, self.stride_h])?;
        elements(&[self.out_w, self.stride_w])?;
        Ok(())
    }

    fn rows(&self) -> Axis {
        Axis {
            positions: self.out_h as usize,
            taps: self.k_h as usize,
            stride: self.stride_h as usize,
            dilation: self.dilation_h as usize,
            pad: self.pad_top as isize,
            size: self.in_h as usize,
        }
    }

    fn columns(&self) -> Axis {
        Axis {
            positions: self.out_w as usize,
            taps: self.k_w as usize,
            stride: self.stride_w as usize,
            dilation: self.dilation_w as usize,
            pad: self.pad_left as isize,
            size: self.in_w as usize,
        }
    }

    fn flops(&self) -> f64 {
        let taps = |axis: Axis| axis.runs().iter().map(|run| run.positions.len() as f64 * run.taps.len() as f64).sum::<f64>();
        2.0 * self.batch as f64 * taps(self.rows()) * taps(self.columns()) * self.in_c as f64 * self.out_c as f64
    }

    fn bytes(&self) -> f64 {
        [self.input(), self.filter(), self.output()].iter().map(|shape| 4.0 * shape.iter().map(|size| *size as f64).product::<f64>()).sum()
    }
}

/// `Conv2D` of floats. Arguments: input, filter, output; with an epilogue over the output's shape: input, filter, its
/// further operands, its results.
///
/// Each result is a sum in an order that depends on the filter's shape alone. So results are the same bits however the work is cut.
///
/// # Errors
/// INVALID_ARGUMENT for sizes that make no sense or that no memory holds, and as [`crate::expr::elementwise`] for the epilogue.
pub fn conv2d(spec: ConvSpec, epilogue: Option<Epilogue>) -> Result<Prepared> {
    conv2d_on(Isa::best(), spec, epilogue)
}

/// As [`conv2d`], with the code for that instruction set. It runs where the processor has it.
///
/// # Errors
/// As [`conv2d`].
pub fn conv2d_on(isa: Isa, spec: ConvSpec, epilogue: Option<Epilogue>) -> Result<Prepared> {
    spec.check()?;
    Ok(direct::forward(isa, &spec, epilogue, false)?.0)
}

/// [`conv2d`] whose results are pooled while they are in the cache, and go nowhere else. Arguments: input, filter, the epilogue's
/// further operands, the pooling's results. The epilogue has one result, of floats.
///
/// # Errors
/// As [`conv2d`] and [`crate::pool::max_pool`]; INVALID_ARGUMENT where the two do not fit.
pub fn conv2d_pooled(spec: ConvSpec, epilogue: Option<Epilogue>, pooling: Pooling) -> Result<Prepared> {
    conv2d_pooled_on(Isa::best(), spec, epilogue, pooling)
}

/// As [`conv2d_pooled`], with the code for that instruction set. It runs where the processor has it.
///
/// # Errors
/// As [`conv2d_pooled`].
pub fn conv2d_pooled_on(isa: Isa, spec: ConvSpec, epilogue: Option<Epilogue>, pooling: Pooling) -> Result<Prepared> {
    spec.check()?;
    pooled::prepare(isa, &spec, epilogue, &pooling)
}

/// `Conv2DBackpropInput` of floats: the gradient by the input, given the one by the result. Arguments: filter, gradient by the
/// result, gradient by the input; with an epilogue over the input's shape: filter, gradient by the result, its further operands, its
/// results.
///
/// # Errors
/// INVALID_ARGUMENT for sizes that make no sense or that no memory holds, and as [`crate::expr::elementwise`] for the epilogue.
pub fn conv2d_backprop_input(spec: ConvSpec, epilogue: Option<Epilogue>) -> Result<Prepared> {
    conv2d_backprop_input_on(Isa::best(), spec, epilogue)
}

/// As [`conv2d_backprop_input`], with the code for that instruction set. It runs where the processor has it.
///
/// # Errors
/// As [`conv2d_backprop_input`].
pub fn conv2d_backprop_input_on(isa: Isa, spec: ConvSpec, epilogue: Option<Epilogue>) -> Result<Prepared> {
    spec.check()?;
    direct::backprop_input(isa, &spec, epilogue)
}

/// `Conv2DBackpropFilter` of floats: the gradient by the filter. Arguments: input, gradient by the result, gradient by the filter.
///
/// Sums run image after image, in blocks of rows that depend on the shape alone; the work is cut over elements of the filter.
///
/// # Errors
/// INVALID_ARGUMENT for sizes that make no sense or that no memory holds.
pub fn conv2d_backprop_filter(spec: ConvSpec) -> Result<Prepared> {
    conv2d_backprop_filter_on(Isa::best(), spec)
}

/// As [`conv2d_backprop_filter`], with the code for that instruction set. It runs where the processor has it.
///
/// # Errors
/// As [`conv2d_backprop_filter`].
pub fn conv2d_backprop_filter_on(isa: Isa, spec: ConvSpec) -> Result<Prepared> {
    spec.check()?;
    Ok(filter::prepare(isa, &spec, false, None)?.1)
}

/// As [`conv2d_backprop_filter`], with the images divided into parts where every piece would else read much for what it computes:
/// `(parts, kernel)`. The result is `[parts, k_h, k_w, in_c, out_c]`, which the caller sums over the first axis; the number of
/// parts depends on the sizes and the instruction set, and is 1 where dividing does not pay.
///
/// # Errors
/// As [`conv2d_backprop_filter`].
pub fn conv2d_backprop_filter_in_parts(spec: ConvSpec) -> Result<(u64, Prepared)> {
    conv2d_backprop_filter_in_parts_on(Isa::best(), spec)
}

/// As [`conv2d_backprop_filter_in_parts`], with the code for that instruction set. It runs where the processor has it.
///
/// # Errors
/// As [`conv2d_backprop_filter_in_parts`].
pub fn conv2d_backprop_filter_in_parts_on(isa: Isa, spec: ConvSpec) -> Result<(u64, Prepared)> {
    spec.check()?;
    let (parts, prepared) = filter::prepare(isa, &spec, true, None)?;
    elements(&[parts, spec.k_h, spec.k_w, spec.in_c, spec.out_c])?;
    Ok((parts, prepared))
}

/// [`conv2d_backprop_filter_in_parts`] of a convolution that is max-pooled: the gradient by its result is that by the pooling's
/// input, which is made row by row and never as a whole. Arguments: input, positions (see [`crate::pool::max_pool_with_argmax`]),
/// gradient by the pooling's result, gradient by the filter. None where that would be made several times.
///
/// # Errors
/// As [`conv2d_backprop_filter_in_parts`]; INVALID_ARGUMENT where the pooling does not fit.
pub fn conv2d_backprop_filter_unpooled(spec: ConvSpec, pool: PoolSpec) -> Result<Option<(u64, Prepared)>> {
    conv2d_backprop_filter_unpooled_on(Isa::best(), spec, pool)
}

/// As [`conv2d_backprop_filter_unpooled`], with the code for that instruction set. It runs where the processor has it.
///
/// # Errors
/// As [`conv2d_backprop_filter_unpooled`].
pub fn conv2d_backprop_filter_unpooled_on(isa: Isa, spec: ConvSpec, pool: PoolSpec) -> Result<Option<(u64, Prepared)>> {
    spec.check()?;
    if pool.input() != spec.output() {
        return Err(Error::invalid_argument(format!("results {:?} of a convolution pooled as {pool:?}", spec.output())));
    }
    let (parts, prepared) = filter::prepare(isa, &spec, true, Some(&pool))?;
    elements(&[parts, spec.k_h, spec.k_w, spec.in_c, spec.out_c])?;
    Ok((u64::from(prepared.chunks) == parts).then_some((parts, prepared)))
}
