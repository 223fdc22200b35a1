//! Batch normalization and its gradient, channels last: two kernels each, which read their operands once.
//!
//! The first gathers sums of each channel: rows are cut by shape alone into parts, and each part leaves its own numbers. The second
//! puts the parts together, in their order, and walks over the elements. What is computed behind a normalization happens in registers there.

mod apply;
mod coefficients;
mod counted;
mod isa;
mod parts;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_device::{Cost, Prepared};
use plimsoll_request::anchor::Epilogue;
use plimsoll_request::norm::BatchNormSpec;

use crate::cut::{Cut, elements};
use crate::expr::{Chain, Functions};
use crate::simd::Isa;
use apply::{Apply, Behind};
use coefficients::Statistics;
use parts::{Gather, Parts};

/// The shape of the first kernel's results for the second: for each part, two numbers of each channel.
pub fn between(spec: &BatchNormSpec) -> [u64; 3] {
    [Parts::new(spec).count() as u64, 2, spec.channels]
}

/// The first kernel of training: of each part and channel the mean, and the sum of the squared differences from it. Arguments: x,
/// [`between`].
///
/// A block of rows is read into the nearest cache, its mean taken, and then the differences: nothing is lost where a mean is large
/// beside its deviation.
///
/// # Errors
/// INVALID_ARGUMENT for sizes that no memory holds; UNIMPLEMENTED for images of other types than float.
pub(crate) fn moments_on(isa: Isa, spec: BatchNormSpec) -> Result<Prepared> {
    gather(isa, spec, Gather::Moments)
}

/// The second kernel of training. Arguments: the buffer in between, x, scale, offset, mean, variance; y, and of each channel: the
/// running mean and variance, the batch's mean and variance, and with `reserve_3` one number that is 0. Mean and variance are read
/// where `exponential_avg_factor` is not 1. With an epilogue its further operands are behind the variance, and its result is in y's place.
///
/// Running variances are of a sample (divided by one less than the rows), the batch's own is not. Without rows, running
/// statistics are NaN and the batch's are 0.
///
/// # Errors
/// As [`moments_on`]; UNIMPLEMENTED for an epilogue that is no chain of changes of floats.
pub(crate) fn batch_norm_on(isa: Isa, spec: BatchNormSpec, reserve_3: bool, epilogue: Option<&Epilogue>) -> Result<Prepared> {
    normalize_on(isa, spec, Statistics::Batch, reserve_3, epilogue)
}

/// Normalization by given statistics. Arguments: as [`batch_norm_on`], without the buffer in between. The running statistics are
/// those given, or NaN without rows; the batch's are 0.
///
/// # Errors
/// As [`batch_norm_on`].
pub(crate) fn batch_norm_inference_on(isa: Isa, spec: BatchNormSpec, reserve_3: bool, epilogue: Option<&Epilogue>) -> Result<Prepared> {
    normalize_on(isa, spec, Statistics::Given, reserve_3, epilogue)
}

/// The first kernel of the gradient: of each part and channel the sum of dy, and that of dy times the difference of x from the
/// mean. Arguments: dy, x, mean, [`between`]. With `relu` dy counts where y is above 0, and is 0 elsewhere; arguments: dy, x, scale, mean,
/// variance, offset, [`between`]. There y has the bits that [`batch_norm_on`] gives it.
///
/// # Errors
/// As [`moments_on`].
pub(crate) fn grad_sums_on(isa: Isa, spec: BatchNormSpec, relu: bool) -> Result<Prepared> {
    gather(isa, spec, if relu { Gather::OfPositive } else { Gather::Gradients })
}

/// The second kernel of the gradient. Arguments: the buffer in between, dy, x, scale, mean, variance, with `relu` the offset; gradients by
/// x, scale and offset, and two tensors without elements. `training` says that mean and variance are x's own, else they are constants.
/// With `relu` dy is as for [`grad_sums_on`].
///
/// # Errors
/// As [`moments_on`]; UNIMPLEMENTED for `relu` where statistics are constants.
pub(crate) fn batch_norm_grad_on(isa: Isa, spec: BatchNormSpec, training: bool, relu: bool) -> Result<Prepared> {
    if relu && !training {
        return Err(Error::unimplemented("the gradient of a batch normalization by given statistics and a relu"));
    }
    grad_on(isa, spec, if training { Statistics::Batch } else { Statistics::Given }, relu)
}

fn gather(isa: Isa, spec: BatchNormSpec, gather: Gather) -> Result<Prepared> {
    let total = require(&spec)? as f64;
    let parts = Parts::new(&spec);
    elements(&between(&spec))?;
    let (flops, read) = match gather {
        Gather::Moments => (4.0, 1.0),
        Gather::Gradients => (4.0, 2.0),
        Gather::OfPositive => (7.0, 2.0),
    };
    // A factor of each channel.
    let per_worker = if gather == Gather::OfPositive { elements(&[4, spec.channels])? as u64 } else { 0 };
    Ok(Prepared {
        chunks: parts.pieces(),
        scratch: 0,
        per_worker,
        cost: Cost { flops: flops * total, bytes: 4.0 * read * total },
        in_place: Vec::new(),
        kernel: Arc::new(parts::Kernel { gather, parts, epsilon: spec.epsilon, isa }),
    })
}

fn normalize_on(isa: Isa, spec: BatchNormSpec, statistics: Statistics, reserve_3: bool, epilogue: Option<&Epilogue>) -> Result<Prepared> {
    let x = usize::from(statistics == Statistics::Batch);
    let behind = epilogue.map(|epilogue| behind(&spec, epilogue)).transpose()?;
    let operands = behind.as_ref().map_or(0, |behind| behind.operands);
    // The result may lie where x does, or an operand of the epilogue.
    let in_place = std::iter::once((x, 0)).chain((0..operands).map(|operand| (x + 5 + operand, 0))).collect();
    let mut prepared = apply(isa, spec, statistics, (Apply::Forward { reserve_3 }, behind), in_place)?;
    if let Some(epilogue) = epilogue {
        let total = spec.rows as f64 * spec.channels as f64;
        let cost = Cost { flops: epilogue.expr.flops() * total, bytes: 4.0 * operands as f64 * total };
        prepared.cost = prepared.cost + cost;
    }
    Ok(prepared)
}

/// # Errors
/// UNIMPLEMENTED for an epilogue that is no chain.
fn behind(spec: &BatchNormSpec, Epilogue { expr, operands }: &Epilogue) -> Result<Behind> {
    // Operands are as large as the images: their elements are in the same order.
    let shape = [spec.rows, spec.channels];
    let chain = Chain::of(expr, &shape, &vec![shape.to_vec(); operands.len()], Functions::Never);
    let chain = chain.ok_or_else(|| Error::unimplemented("a batch normalization with what is computed behind it, but for chains"))?;
    Ok(Behind { chain, operands: operands.len() })
}

fn grad_on(isa: Isa, spec: BatchNormSpec, statistics: Statistics, relu: bool) -> Result<Prepared> {
    apply(isa, spec, statistics, (Apply::Gradient { relu }, None), vec![(1, 0), (2, 0)])
}

fn apply(
    isa: Isa,
    spec: BatchNormSpec,
    statistics: Statistics,
    (apply, behind): (Apply, Option<Behind>),
    in_place: Vec<(usize, usize)>,
) -> Result<Prepared> {
    let total = require(&spec)? as f64;
    let read = if matches!(apply, Apply::Gradient { .. }) && statistics == Statistics::Batch { 2.0 } else { 1.0 };
    // Each piece puts the parts together for itself: it should have more rows than there are parts.
    let rows = if spec.channels == 0 { 0 } else { spec.rows as usize };
    let cut = Cut::at_most(parts::MOST, rows, spec.channels.saturating_mul(8).min(parts::MOST_ROW_BYTES), 1);
    let parts = Parts::new(&spec);
    Ok(Prepared {
        chunks: cut.pieces(),
        scratch: 0,
        per_worker: elements(&[coefficients::LINES as u64, 4, spec.channels])? as u64,
        cost: Cost { flops: 3.0 * total, bytes: 4.0 * (read + 1.0) * total },
        in_place,
        kernel: Arc::new(apply::Kernel { spec, statistics, apply, behind, parts, cut, isa }),
    })
}

/// The number of elements, which are floats.
fn require(spec: &BatchNormSpec) -> Result<usize> {
    if spec.data_type != DataType::Float {
        return Err(Error::unimplemented(format!("a batch normalization of {}", spec.data_type)));
    }
    elements(&[spec.rows, spec.channels])
}
