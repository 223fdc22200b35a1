//! Reductions: sums and their kin over any axes, running sums, the place of the largest value, and whether a target is among
//! the top k.
//!
//! The order in which elements are combined depends on the shape alone: in blocks and pairwise. So rounding errors grow with the
//! logarithm of the length (rows) or slowly (columns).

mod arg;
mod columns;
mod dims;
mod fold;
mod largest;
mod parts;
mod rows;
mod scan;
mod top_k;

use std::sync::Arc;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_device::{Cost, Prepared};
use plimsoll_request::reduce::ReduceOp;

use crate::cut::{elements, size_of_type};
use crate::element::{Element, of_type};
use crate::simd::Isa;
use columns::Columns;
use dims::collapse;
use fold::Fold;
use rows::Rows;

pub use arg::{arg_max, arg_min};
pub use largest::top_k;
pub(crate) use parts::{divided, half_squares, reduction};
pub use scan::scan;
pub use top_k::in_top_k;

/// Reduces a dense tensor of `shape` over `axes` (each below the rank; order and repetition do not matter).
///
/// Arguments: input, output; the output has the elements of the axes that are kept, in their order.
/// Types: float, double, int32, int64, uint8 for the numeric operations, bool for `All` and `Any`.
///
/// # Errors
/// INVALID_ARGUMENT for an axis outside the rank; UNIMPLEMENTED for other types, and where more than 16 separate groups of
/// dimensions are reduced.
pub fn reduce(isa: Isa, op: ReduceOp, data_type: DataType, shape: &[u64], axes: &[usize]) -> Result<Prepared> {
    of_op(isa, op, data_type, (shape, (1, 1)), axes)
}

/// As [`reduce`], of rows of a tensor of `all` rows: elements are combined in the order of that. The first axis is kept.
///
/// # Errors
/// As [`reduce`]; INVALID_ARGUMENT where there are not as many rows.
pub(crate) fn reduce_some(isa: Isa, op: ReduceOp, data_type: DataType, shape: &[u64], axes: &[usize], all: u64) -> Result<Prepared> {
    let rows = shape.first().copied().filter(|rows| (1..=all).contains(rows) && !axes.contains(&0));
    let rows = rows.ok_or_else(|| Error::invalid_argument(format!("{shape:?} as a part of {all} rows")))?;
    of_op(isa, op, data_type, (shape, (all as usize, rows as usize)), axes)
}

/// A part of a tensor, of whose rows it has so many: all, and its own.
type Of<'a> = (&'a [u64], (usize, usize));

fn of_op(isa: Isa, op: ReduceOp, data_type: DataType, shape: Of<'_>, axes: &[usize]) -> Result<Prepared> {
    match op {
        ReduceOp::Sum => by_type::<fold::Sum>(isa, op, data_type, shape, axes),
        ReduceOp::Mean => by_type::<fold::Mean>(isa, op, data_type, shape, axes),
        ReduceOp::Prod => by_type::<fold::Prod>(isa, op, data_type, shape, axes),
        ReduceOp::Max => by_type::<fold::Max>(isa, op, data_type, shape, axes),
        ReduceOp::Min => by_type::<fold::Min>(isa, op, data_type, shape, axes),
        ReduceOp::All | ReduceOp::Any if data_type != DataType::Bool => Err(refused(op, data_type)),
        ReduceOp::All => prepare::<u8, fold::All, 64>(isa, data_type, shape, axes),
        ReduceOp::Any => prepare::<u8, fold::Any, 64>(isa, data_type, shape, axes),
    }
}

/// Half the sum of the squares of `shape`'s elements (`L2Loss`). Arguments: input, output (one element). Float or double.
///
/// # Errors
/// UNIMPLEMENTED for other types.
pub fn l2_loss(isa: Isa, data_type: DataType, shape: &[u64]) -> Result<Prepared> {
    squares(isa, data_type, &[elements(shape)? as u64], &[0])
}

/// As [`reduce`], half the sums of the squares. Float or double.
///
/// # Errors
/// As [`reduce`].
pub fn squares(isa: Isa, data_type: DataType, shape: &[u64], axes: &[usize]) -> Result<Prepared> {
    of_type!(
        data_type,
        [Float, Double],
        T => prepare::<T, fold::HalfSquares, { lanes(<T as Element>::TYPE) }>(isa, data_type, (shape, (1, 1)), axes),
        _ => Err(Error::unimplemented(format!("L2Loss of {data_type}"))),
    )
}

/// Lanes of the reductions that are compiled for every instruction set: floats, and bytes of bools. Others, which are rare and
/// small, are compiled once.
const WIDE: usize = 64;

/// Lanes of a reduction of numbers.
const fn lanes(data_type: DataType) -> usize {
    if matches!(data_type, DataType::Float) { WIDE } else { 32 }
}

fn refused(op: ReduceOp, data_type: DataType) -> Error {
    Error::unimplemented(format!("{op:?} of {data_type}"))
}

fn by_type<F>(isa: Isa, op: ReduceOp, data_type: DataType, shape: Of<'_>, axes: &[usize]) -> Result<Prepared>
where
    F: Fold<f32> + Fold<f64> + Fold<i32> + Fold<i64> + Fold<u8>,
{
    of_type!(
        data_type,
        [Float, Double, Int32, Int64, Uint8],
        T => prepare::<T, F, { lanes(<T as Element>::TYPE) }>(isa, data_type, shape, axes),
        _ => Err(refused(op, data_type)),
    )
}

fn prepare<T, F, const N: usize>(isa: Isa, data_type: DataType, (shape, part): Of<'_>, axes: &[usize]) -> Result<Prepared>
where
    T: Copy + Send + Sync + std::fmt::Debug + 'static,
    F: Fold<T>,
{
    let len = elements(shape)?;
    let dims = collapse(shape, axes)?;
    let results = dims::places(&dims.kept);
    let cost = Cost { flops: len as f64, bytes: ((len + results) * size_of_type(data_type)?) as f64 };
    let (chunks, kernel): (u32, Arc<dyn plimsoll_device::CpuKernel>) = if dims.rows {
        let kernel = Rows::<T, F, N>::new(isa, dims.kept, dims.reduced, len);
        (kernel.pieces(), Arc::new(kernel))
    } else {
        let kernel = Columns::<T, F, N>::new(isa, dims.kept, dims.reduced, len, part);
        (kernel.pieces(), Arc::new(kernel))
    };
    Ok(Prepared { chunks, scratch: 0, per_worker: 0, cost, in_place: Vec::new(), kernel })
}

#[cfg(test)]
mod tests;
