//! The operations that are one strided copy.

use plimsoll_base::{Error, Result};
use plimsoll_device::Prepared;

use super::strided::prepare;
use super::{check_rank, check_size};
use crate::cut::elements;
use crate::simd::Isa;

/// The elements between neighbours along each dimension of a dense tensor. The shape has been through [`elements`].
fn dense(shape: &[u64]) -> Vec<isize> {
    let mut step = 1isize;
    let mut steps: Vec<isize> = shape
        .iter()
        .rev()
        .map(|size| {
            let this = step;
            step *= (*size).max(1) as isize;
            this
        })
        .collect();
    steps.reverse();
    steps
}

fn sizes(shape: &[u64]) -> Vec<usize> {
    shape.iter().map(|size| *size as usize).collect()
}

/// `Transpose`: output dimension `i` is input dimension `perm[i]`. Arguments: input, output.
///
/// # Errors
/// INVALID_ARGUMENT where `perm` is not a permutation of the dimensions.
pub fn transpose(isa: Isa, size: usize, shape: &[u64], perm: &[usize]) -> Result<Prepared> {
    let len = elements(shape)?;
    check_rank("perm", perm.len(), shape)?;
    if (0..shape.len()).any(|axis| !perm.contains(&axis)) {
        return Err(Error::invalid_argument(format!("{perm:?} is not a permutation of the dimensions of {shape:?}")));
    }
    let steps = dense(shape);
    let (sizes, steps): (Vec<usize>, Vec<isize>) = perm.iter().map(|axis| (shape[*axis] as usize, steps[*axis])).unzip();
    prepare(isa, size, &sizes, &steps, 0, len)
}

/// `Tile`: the input repeated `multiples[i]` times along dimension `i`. Arguments: input, output.
///
/// # Errors
/// INVALID_ARGUMENT where the lengths differ or the output would be too large.
pub fn tile(isa: Isa, size: usize, shape: &[u64], multiples: &[u64]) -> Result<Prepared> {
    let len = elements(shape)?;
    check_rank("multiples", multiples.len(), shape)?;
    let both: Vec<u64> = multiples.iter().zip(shape).flat_map(|(times, size)| [*times, *size]).collect();
    elements(&both)?;
    let steps: Vec<isize> = dense(shape).into_iter().flat_map(|step| [0, step]).collect();
    prepare(isa, size, &sizes(&both), &steps, 0, len)
}

/// `BroadcastTo`: dimensions of 1, and missing ones on the left, are repeated. Arguments: input, output.
///
/// # Errors
/// INVALID_ARGUMENT where the shapes do not allow it.
pub fn broadcast_to(isa: Isa, size: usize, from: &[u64], to: &[u64]) -> Result<Prepared> {
    let len = elements(from)?;
    elements(to)?;
    let missing = to.len().checked_sub(from.len());
    let fits = |missing: &usize| from.iter().zip(&to[*missing..]).all(|(from, to)| from == to || *from == 1);
    let missing = missing.filter(fits).ok_or_else(|| {
        Error::invalid_argument(format!("Incompatible shapes: {from:?} vs. {to:?}: the first cannot be broadcast to the second"))
    })?;
    let steps = dense(from);
    let step = |axis: usize| match axis.checked_sub(missing) {
        Some(axis) if from[axis] != 1 => steps[axis],
        _ => 0,
    };
    prepare(isa, size, &sizes(to), &(0..to.len()).map(step).collect::<Vec<_>>(), 0, len)
}

/// `Fill`: `elements` copies of a scalar. Arguments: the scalar, output.
///
/// # Errors
/// INVALID_ARGUMENT where the output would be too large.
pub fn fill(isa: Isa, size: usize, elements: u64) -> Result<Prepared> {
    broadcast_to(isa, size, &[], &[elements])
}

/// `Slice`: the block of `out_shape` that starts at `begin`. Arguments: input, output.
///
/// # Errors
/// INVALID_ARGUMENT where the block is not inside.
pub fn slice(isa: Isa, size: usize, shape: &[u64], begin: &[u64], out_shape: &[u64]) -> Result<Prepared> {
    strided_slice(isa, size, shape, begin, &vec![1; begin.len()], out_shape)
}

/// `StridedSlice` with everything resolved: element `i` along a dimension is input element `begin + i * stride` (the stride
/// may be negative, not 0); `out_shape` still has the dimensions that are shrunk away, as 1. Arguments: input, output.
///
/// # Errors
/// INVALID_ARGUMENT where an element outside would be read.
pub fn strided_slice(isa: Isa, size: usize, shape: &[u64], begin: &[u64], strides: &[i64], out_shape: &[u64]) -> Result<Prepared> {
    let len = elements(shape)?;
    let out_len = elements(out_shape)?;
    for (what, rank) in [("begin", begin.len()), ("strides", strides.len()), ("the result's shape", out_shape.len())] {
        check_rank(what, rank, shape)?;
    }
    let (mut start, mut steps) = (0isize, Vec::new());
    for (axis, step) in dense(shape).into_iter().enumerate() {
        check_slice(shape[axis], begin[axis], strides[axis], out_shape[axis])?;
        // In range where there are elements at all; otherwise nothing is read.
        start = start.wrapping_add((begin[axis] as isize).wrapping_mul(step));
        steps.push((strides[axis] as isize).wrapping_mul(step));
    }
    prepare(isa, size, &sizes(out_shape), &steps, if out_len == 0 { 0 } else { start }, len)
}

/// Whether elements `begin + i * stride`, `i < count`, lie in `0..size`.
pub(crate) fn check_slice(size: u64, begin: u64, stride: i64, count: u64) -> Result<()> {
    let last = i128::from(begin) + i128::from(count.saturating_sub(1)) * i128::from(stride);
    if stride == 0 || count > 0 && (begin >= size || !(0..i128::from(size)).contains(&last)) {
        return Err(Error::invalid_argument(format!("a slice of {count} from {begin} by {stride} does not fit in {size}")));
    }
    Ok(())
}

/// `ReverseV2`: the order along `axes` turned round. Arguments: input, output.
///
/// # Errors
/// INVALID_ARGUMENT for an axis outside the rank.
pub fn reverse(isa: Isa, size: usize, shape: &[u64], axes: &[usize]) -> Result<Prepared> {
    check_size(size)?;
    let len = elements(shape)?;
    if let Some(axis) = axes.iter().find(|axis| **axis >= shape.len()) {
        return Err(Error::invalid_argument(format!("axis {axis} is out of the range [0, {})", shape.len())));
    }
    let (mut start, mut steps) = (0, dense(shape));
    for axis in (0..shape.len()).filter(|axis| axes.contains(axis)) {
        start += steps[axis] * shape[axis].saturating_sub(1) as isize;
        steps[axis] = -steps[axis];
    }
    prepare(isa, size, &sizes(shape), &steps, if len == 0 { 0 } else { start }, len)
}
