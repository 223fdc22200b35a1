//! Convolutions along one to three axes, channels last. Direct: nothing is laid out anew but filters, and taps on the padding are
//! skipped. Kernels have three axes; those that a convolution lacks have size 1. Floats of two bytes are summed as floats, and each sum
//! is rounded once. Doubles have plain loops.

mod axis;
pub(crate) mod bands;
mod depthwise;
mod direct;
mod doubles;
mod filter;
pub(crate) mod groups;
pub(crate) mod pass;
pub(crate) mod pooled;
#[cfg(test)]
mod tests;
mod tiles;
pub(crate) mod winograd;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_device::Prepared;
use plimsoll_request::conv::ConvSpec;
use plimsoll_request::window::{Layout, WindowAxis};

use crate::cut::elements;
use crate::element::of_type;
use crate::narrow::cast;
use crate::packing::{Order, panels_of};
use crate::simd::Isa;
use plimsoll_request::anchor::Epilogue;
use plimsoll_request::pool::{PoolSpec, Pooling};

pub use depthwise::{
    depthwise_conv, depthwise_conv_backprop_filter, depthwise_conv_backprop_filter_on, depthwise_conv_backprop_input,
    depthwise_conv_backprop_input_on, depthwise_conv_on,
};

use filter::Images;

pub(crate) use axis::Axis;
pub(crate) use groups::{GROUP, get, groups, put};

/// The most that a stride or padding, and a row or column of a filter, may be.
const MOST: u64 = 1 << 31;
const MOST_TAPS: u64 = 1 << 15;
/// Kernels keep a few bytes for each group of channels.
const MOST_CHANNELS: u64 = 1 << 24;
/// The most that lies between the first and the last row or column of a filter.
const MOST_EXTENT: u64 = 1 << 16;

/// A tensor of more bytes comes from beyond the caches of a core: to read or write it line by line waits for each.
const FAR: usize = 4 << 20;

/// The kernels' view of the sizes.
pub(crate) trait Sizes {
    /// Refuses sizes that make no sense, or that no memory holds, and elements that are not computed as floats.
    fn check(&self) -> Result<()>;
    /// As [`Sizes::check`], of any elements.
    fn check_sizes(&self) -> Result<()>;
    /// Planes, rows and columns of results over those of the input.
    fn sides(&self) -> [Axis; 3];
    /// Multiplications and additions, without those on the padding.
    fn flops(&self) -> f64;
    /// Bytes of the three tensors.
    fn bytes(&self) -> f64;
}

impl Sizes for ConvSpec {
    fn check(&self) -> Result<()> {
        if self.data_type.compute_type() != DataType::Float {
            return Err(refused(self));
        }
        self.check_sizes()
    }

    fn check_sizes(&self) -> Result<()> {
        if self.layout != Layout::ChannelsLast {
            return Err(Error::unimplemented("a convolution with channels first on a processor"));
        }
        for axis in &*self.axes {
            for (name, value, most) in [("filter", axis.taps, MOST_TAPS), ("stride", axis.stride, MOST)] {
                if value == 0 || value > most {
                    return Err(Error::invalid_argument(format!("a convolution with a {name} of {value}")));
                }
            }
        }
        for axis in &*self.axes {
            let (taps, dilation) = (axis.taps, axis.dilation);
            if dilation == 0 || dilation > MOST || (taps - 1).checked_mul(dilation).is_none_or(|extent| extent > MOST_EXTENT) {
                return Err(Error::invalid_argument(format!("a convolution with {taps} taps and a dilation of {dilation}")));
            }
            if axis.pad > MOST {
                return Err(Error::invalid_argument(format!("a convolution padded by {}", axis.pad)));
            }
        }
        if self.in_c > MOST_CHANNELS || self.out_c > MOST_CHANNELS {
            return Err(Error::invalid_argument(format!("a convolution of {} and {} channels", self.in_c, self.out_c)));
        }
        if self.groups == 0 || !self.in_c.is_multiple_of(self.groups) || !self.out_c.is_multiple_of(self.groups) {
            let channels = (self.in_c, self.out_c);
            return Err(Error::invalid_argument(format!("a convolution of {channels:?} channels in {} groups", self.groups)));
        }
        elements(&self.input())?;
        elements(&self.filter())?;
        elements(&self.output())?;
        // Positions times strides are computed too.
        for axis in &*self.axes {
            elements(&[axis.positions, axis.stride])?;
        }
        Ok(())
    }

    fn sides(&self) -> [Axis; 3] {
        self.axes.filled().map(Axis::from)
    }

    fn flops(&self) -> f64 {
        let taps = |axis: Axis| axis.runs().iter().map(|run| run.positions.len() as f64 * run.taps.len() as f64).sum::<f64>();
        let taps: f64 = self.sides().into_iter().map(taps).product();
        2.0 * self.batch as f64 * taps * self.in_c as f64 * self.out_c as f64 / self.groups as f64
    }

    fn bytes(&self) -> f64 {
        let size = self.data_type.size().unwrap_or(0) as f64;
        [self.input(), self.filter(), self.output()].iter().map(|shape| size * shape.iter().map(|size| *size as f64).product::<f64>()).sum()
    }
}

fn refused(spec: &ConvSpec) -> Error {
    Error::unimplemented(format!("a convolution of {}", spec.data_type))
}

/// Refuses all but floats.
fn floats_only(spec: &ConvSpec) -> Result<()> {
    match spec.data_type {
        DataType::Float => Ok(()),
        _ => Err(Error::unimplemented(format!("a convolution of {} that is pooled at once", spec.data_type))),
    }
}

/// The expression that rounds results to their type, where they are not floats.
fn rounded(spec: &ConvSpec, epilogue: Option<Epilogue>) -> Result<Option<Epilogue>> {
    match (spec.data_type, epilogue) {
        (DataType::Float, epilogue) => Ok(epilogue),
        (data_type, None) => Ok(Some(Epilogue { expr: cast(DataType::Float, data_type)?, operands: Vec::new() })),
        (data_type, Some(_)) => Err(Error::unimplemented(format!("an epilogue on a convolution of {data_type}"))),
    }
}

/// `Conv2D` and `Conv3D`. Arguments: input, filter, output; with an epilogue over the output's shape: input, filter, its
/// further operands, its results.
///
/// Each result is a sum in an order that depends on the filter's shape alone. So results are the same bits however the work is cut.
///
/// # Errors
/// INVALID_ARGUMENT for sizes that make no sense or that no memory holds, and as [`crate::expr::elementwise`] for the epilogue.
pub fn conv(spec: ConvSpec, epilogue: Option<Epilogue>) -> Result<Prepared> {
    conv_on(Isa::best(), spec, epilogue)
}

/// As [`conv`], with the code for that instruction set. It runs where the processor has it.
///
/// # Errors
/// As [`conv`].
pub fn conv_on(isa: Isa, spec: ConvSpec, epilogue: Option<Epilogue>) -> Result<Prepared> {
    conv_of(isa, spec, epilogue, Order::Rows)
}

/// As [`conv_on`], with a filter of that order.
pub(crate) fn conv_of(isa: Isa, spec: ConvSpec, epilogue: Option<Epilogue>, order: Order) -> Result<Prepared> {
    require_order(isa, &spec, order)?;
    if spec.data_type == DataType::Double {
        return doubles::prepare(&spec, doubles::Work::Forward, epilogue.as_ref());
    }
    spec.check()?;
    let epilogue = rounded(&spec, epilogue)?;
    of_type!(
        spec.data_type,
        [Float, Half, Bfloat16],
        E => Ok(direct::forward::<E>(isa, &spec, epilogue, false, order)?.0),
        _ => Err(refused(&spec)),
    )
}

/// [`conv`] whose results are pooled while they are in the cache, and go nowhere else. Arguments: input, filter, the epilogue's
/// further operands, the pooling's results. The epilogue has one result, of floats.
///
/// # Errors
/// As [`conv`] and [`crate::pool::max_pool`]; INVALID_ARGUMENT where the two do not fit.
pub fn conv_pooled(spec: ConvSpec, epilogue: Option<Epilogue>, pooling: Pooling) -> Result<Prepared> {
    conv_pooled_on(Isa::best(), spec, epilogue, pooling)
}

/// As [`conv_pooled`], with the code for that instruction set. It runs where the processor has it.
///
/// # Errors
/// As [`conv_pooled`].
pub fn conv_pooled_on(isa: Isa, spec: ConvSpec, epilogue: Option<Epilogue>, pooling: Pooling) -> Result<Prepared> {
    conv_pooled_of(isa, spec, epilogue, pooling, Order::Rows)
}

/// As [`conv_pooled_on`], with a filter of that order.
pub(crate) fn conv_pooled_of(isa: Isa, spec: ConvSpec, epilogue: Option<Epilogue>, pooling: Pooling, order: Order) -> Result<Prepared> {
    require_order(isa, &spec, order)?;
    spec.check()?;
    floats_only(&spec)?;
    pooled::prepare(isa, &spec, epilogue, &pooling, order)
}

/// Whether a convolution can have its filter in panels: floats of one group, in more than one panel.
pub(crate) fn reads_panels(isa: Isa, spec: &ConvSpec) -> bool {
    spec.data_type == DataType::Float && spec.groups == 1 && panels_of(isa, spec.out_c).is_some()
}

/// # Errors
/// UNIMPLEMENTED for a filter in panels where there can be none.
fn require_order(isa: Isa, spec: &ConvSpec, order: Order) -> Result<()> {
    match order {
        Order::Panels if !reads_panels(isa, spec) => Err(Error::unimplemented(format!("a filter in panels of {spec:?}"))),
        _ => Ok(()),
    }
}

/// `Conv2DBackpropInput` and `Conv3DBackpropInputV2`: the gradient by the input, given the one by the result. Arguments: filter, gradient by the
/// result, gradient by the input; with an epilogue over the input's shape: filter, gradient by the result, its further operands, its
/// results.
///
/// # Errors
/// INVALID_ARGUMENT for sizes that make no sense or that no memory holds, and as [`crate::expr::elementwise`] for the epilogue.
pub fn conv_backprop_input(spec: ConvSpec, epilogue: Option<Epilogue>) -> Result<Prepared> {
    conv_backprop_input_on(Isa::best(), spec, epilogue)
}

/// As [`conv_backprop_input`], with the code for that instruction set. It runs where the processor has it.
///
/// # Errors
/// As [`conv_backprop_input`].
pub fn conv_backprop_input_on(isa: Isa, spec: ConvSpec, epilogue: Option<Epilogue>) -> Result<Prepared> {
    if spec.data_type == DataType::Double {
        return doubles::prepare(&spec, doubles::Work::Input, epilogue.as_ref());
    }
    spec.check()?;
    let epilogue = rounded(&spec, epilogue)?;
    of_type!(
        spec.data_type,
        [Float, Half, Bfloat16],
        E => direct::backprop_input::<E>(isa, &spec, epilogue),
        _ => Err(refused(&spec)),
    )
}

/// `Conv2DBackpropFilter` and `Conv3DBackpropFilterV2`: the gradient by the filter. Arguments: input, gradient by the result, gradient by the filter.
///
/// Sums run image after image, in blocks of rows that depend on the shape alone; the work is cut over elements of the filter.
///
/// # Errors
/// INVALID_ARGUMENT for sizes that make no sense or that no memory holds.
pub fn conv_backprop_filter(spec: ConvSpec) -> Result<Prepared> {
    conv_backprop_filter_on(Isa::best(), spec)
}

/// As [`conv_backprop_filter`], with the code for that instruction set. It runs where the processor has it.
///
/// # Errors
/// As [`conv_backprop_filter`].
pub fn conv_backprop_filter_on(isa: Isa, spec: ConvSpec) -> Result<Prepared> {
    Ok(filter_gradient(isa, &spec, Images::Together)?.1)
}

fn filter_gradient(isa: Isa, spec: &ConvSpec, images: Images) -> Result<(u64, Prepared)> {
    if spec.data_type == DataType::Double {
        return Ok((1, doubles::prepare(spec, doubles::Work::Filter, None)?));
    }
    spec.check()?;
    of_type!(
        spec.data_type,
        [Float, Half, Bfloat16],
        E => filter::prepare::<E>(isa, spec, images, None),
        _ => Err(refused(spec)),
    )
}

/// As [`conv_backprop_filter`], with the images divided into parts where every piece would else read much for its results: `(parts,
/// kernel)`. The result is so many filters, which the caller sums over the first axis; the number of parts depends on the sizes and
/// the instruction set. It is a power of two, and 1 where dividing does not pay. Several parts are floats, whatever the elements are.
///
/// # Errors
/// As [`conv_backprop_filter`].
pub fn conv_backprop_filter_in_parts(spec: ConvSpec) -> Result<(u64, Prepared)> {
    conv_backprop_filter_in_parts_on(Isa::best(), spec)
}

/// As [`conv_backprop_filter_in_parts`], with the code for that instruction set. It runs where the processor has it.
///
/// # Errors
/// As [`conv_backprop_filter_in_parts`].
pub fn conv_backprop_filter_in_parts_on(isa: Isa, spec: ConvSpec) -> Result<(u64, Prepared)> {
    let (parts, prepared) = filter_gradient(isa, &spec, Images::AsPays)?;
    elements(&[&[parts], &spec.filter()[..]].concat())?;
    Ok((parts, prepared))
}

/// [`conv_backprop_filter_in_parts`] of a convolution that is max-pooled: the gradient by its result is that by the pooling's
/// input, which is made row by row and never as a whole. Arguments: input, positions (see [`crate::pool::max_pool_with_argmax`]),
/// gradient by the pooling's result, gradient by the filter. None where that would be made several times, and for more than two axes.
///
/// # Errors
/// As [`conv_backprop_filter_in_parts`]; INVALID_ARGUMENT where the pooling does not fit.
pub fn conv_backprop_filter_unpooled(spec: ConvSpec, pool: PoolSpec) -> Result<Option<(u64, Prepared)>> {
    conv_backprop_filter_unpooled_on(Isa::best(), spec, pool)
}

/// As [`conv_backprop_filter_unpooled`], with the code for that instruction set. It runs where the processor has it.
///
/// # Errors
/// As [`conv_backprop_filter_unpooled`].
pub fn conv_backprop_filter_unpooled_on(isa: Isa, spec: ConvSpec, pool: PoolSpec) -> Result<Option<(u64, Prepared)>> {
    if !may_unpool(&spec, &pool)? {
        return Ok(None);
    }
    let (parts, prepared) = filter::prepare::<f32>(isa, &spec, Images::AsPays, Some(&pool))?;
    elements(&[&[parts], &spec.filter()[..]].concat())?;
    Ok((u64::from(prepared.chunks) == parts).then_some((parts, prepared)))
}

/// Whether the gradient by a convolution's result can be made from that by a pooling's.
///
/// # Errors
/// As [`conv_backprop_filter_unpooled`].
pub(crate) fn may_unpool(spec: &ConvSpec, pool: &PoolSpec) -> Result<bool> {
    spec.check()?;
    floats_only(spec)?;
    if pool.input() != spec.output() {
        return Err(Error::invalid_argument(format!("results {:?} of a convolution pooled as {pool:?}", spec.output())));
    }
    Ok(spec.axes.filled()[0] == WindowAxis::ONE)
}

/// Into how many parts [`conv_backprop_filter_in_parts`] and [`conv_backprop_filter_unpooled`] divide images, a power of two; none where they
/// do not answer. Part number `p` begins with image `p * batch / parts`, rounded down.
pub(crate) fn filter_parts(isa: Isa, spec: &ConvSpec, unpool: Option<&PoolSpec>) -> Option<u64> {
    let parts = match unpool {
        Some(pool) => conv_backprop_filter_unpooled_on(isa, *spec, *pool).ok()?.map(|(parts, _)| parts),
        None => conv_backprop_filter_in_parts_on(isa, *spec).ok().map(|(parts, _)| parts),
    };
    parts.filter(|_| spec.data_type == DataType::Float)
}

/// So many sums of the gradient by the filter, each over as many images, as parts of [`conv_backprop_filter_in_parts`] and
/// [`conv_backprop_filter_unpooled`] are. With `onto` they are added to what is there, image by image. Arguments: as there.
///
/// # Errors
/// As there; UNIMPLEMENTED for other types than floats.
pub(crate) fn filter_sums(isa: Isa, spec: &ConvSpec, unpool: Option<&PoolSpec>, (sums, onto): (u64, bool)) -> Result<Prepared> {
    spec.check()?;
    if spec.data_type != DataType::Float {
        return Err(Error::unimplemented(format!("sums of a gradient by a filter of {}", spec.data_type)));
    }
    if !(1..=filter::PARTS as u64).contains(&sums) || !spec.batch.is_multiple_of(sums) {
        return Err(Error::invalid_argument(format!("{sums} sums over {} images", spec.batch)));
    }
    if let Some(pool) = unpool
        && !may_unpool(spec, pool)?
    {
        return Err(Error::unimplemented("a gradient that is better unpooled first"));
    }
    elements(&[&[sums], &spec.filter()[..]].concat())?;
    Ok(filter::prepare::<f32>(isa, spec, Images::Into { parts: sums as usize, onto }, unpool)?.1)
}
