//! Large reductions to few results, in two steps: parts of the outermost dimensions first, for threads to share, then the parts.
//!
//! Of at least 16 rows (the outermost dimension) each part has whole rows, as evenly as can be: so what makes the rows may make some of them
//! at a time, whatever their number.

use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_device::{Args, Cost, CpuKernel, Fault, Prepared};
use plimsoll_request::Rows;
use plimsoll_request::reduce::ReduceOp;

use super::{l2_loss, reduce, reduce_some, squares};
use crate::library::Made;
use crate::simd::Isa;

/// Bytes that one thread reduces.
const WHOLE: u64 = 256 << 10;
/// Bytes of results that a part may have: beyond, results are enough to share.
const RESULTS: u64 = 4 << 10;
/// How many parts.
const PARTS: std::ops::RangeInclusive<u64> = 8..=16;
/// How many, where they are of whole rows.
const OF_ROWS: [u64; 2] = [16, 8];

/// A shape whose outermost dimension is one of equal parts, and the axes to reduce each part over.
struct Divided {
    shape: Vec<u64>,
    axes: Vec<usize>,
    parts: u64,
    results: u64,
}

/// How a large reduction is divided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Division {
    /// How many parts there are, and the elements of the result of each.
    pub parts: u64,
    pub results: u64,
    /// The shape of a part, or of several, where the second dimension is that many rows, or all that a part has.
    shape: Vec<u64>,
    /// The axes to reduce it over.
    pub axes: Vec<usize>,
    /// Of parts that are not equal, all rows: part number `p` begins with row `p * rows / parts`, rounded down.
    pub rows: Option<u64>,
}

impl Division {
    /// The shape of so many equal parts.
    pub fn of_parts(&self, parts: u64) -> Vec<u64> {
        [&[parts], &self.shape[1..]].concat()
    }

    /// The shape of a part of so many rows.
    pub fn of_rows(&self, rows: u64) -> Vec<u64> {
        [&[1, rows], &self.shape[2..]].concat()
    }
}

/// The product; `None` where it is too large.
fn count(mut sizes: impl Iterator<Item = u64>) -> Option<u64> {
    sizes.try_fold(1u64, |count, size| count.checked_mul(size))
}

/// What is known of a reduction that is worth dividing.
struct Large {
    /// How many of the outermost dimensions are reduced, and their places.
    leading: usize,
    first: u64,
    results: u64,
    /// Elements of each result.
    each: u64,
}

/// None where it is not worth it, or the reduced dimensions do not come first.
fn large(data_type: DataType, shape: &[u64], axes: &[usize]) -> Option<Large> {
    let is_reduced = |axis: &usize| axes.contains(axis);
    let leading = (0..shape.len()).take_while(is_reduced).count();
    let results = count((0..shape.len()).filter(|axis| !is_reduced(axis)).map(|axis| shape[axis]))?;
    let elements = count(shape.iter().copied())?;
    let bytes = |count: u64| data_type.bytes_of(count);
    if leading == 0 || results == 0 || bytes(elements)? < WHOLE || bytes(results)? > RESULTS {
        return None;
    }
    Some(Large { leading, first: count(shape[..leading].iter().copied())?, results, each: elements / results })
}

/// How to divide evenly; `None` where it is not worth it, or the reduced dimensions do not come first or cannot be divided so.
fn divide(data_type: DataType, shape: &[u64], axes: &[usize]) -> Option<Divided> {
    let Large { leading, first, results, each } = large(data_type, shape, axes)?;
    let parts = PARTS.rev().find(|parts| first.is_multiple_of(*parts) && each >= 64 * parts)?;
    let divided = [parts, first / parts].into_iter().chain(shape[leading..].iter().copied()).collect();
    let inner = (leading..shape.len()).filter(|axis| axes.contains(axis)).map(|axis| axis - leading + 2);
    Some(Divided { shape: divided, axes: std::iter::once(1).chain(inner).collect(), parts, results })
}

/// How [`reduction`] divides a tensor. None where it reduces the tensor at once.
pub(crate) fn divided(op: ReduceOp, data_type: DataType, shape: &[u64], axes: &[usize]) -> Option<Division> {
    // A mean of means would round twice.
    let Large { results, each, .. } = large(data_type, shape, axes).filter(|_| op != ReduceOp::Mean)?;
    let rows = shape[0];
    let inner = || std::iter::once(1).chain((1..shape.len()).filter(|axis| axes.contains(axis)).map(|axis| axis + 1)).collect();
    // Few rows are shared more evenly by fewer parts.
    let most = if rows < 2 * OF_ROWS[0] && rows.is_multiple_of(OF_ROWS[1]) { OF_ROWS[1] } else { OF_ROWS[0] };
    if rows >= OF_ROWS[0]
        && let Some(parts) = OF_ROWS.into_iter().find(|parts| *parts <= most && each >= 64 * parts)
    {
        let is_even = rows.is_multiple_of(parts);
        let shape = [&[parts, rows / parts], &shape[1..]].concat();
        return Some(Division { parts, results, shape, axes: inner(), rows: (!is_even).then_some(rows) });
    }
    let Divided { shape, axes, parts, results } = divide(data_type, shape, axes)?;
    Some(Division { parts, results, shape, axes, rows: None })
}

/// A tensor of that type and shape, reduced over the axes.
///
/// # Errors
/// As [`reduce`].
pub(crate) fn reduction(isa: Isa, op: ReduceOp, data_type: DataType, shape: &[u64], axes: &[usize]) -> Result<Made> {
    match divided(op, data_type, shape, axes) {
        Some(division) => {
            let parts = division.parts;
            let first = match division.rows {
                None => reduce(isa, op, data_type, &division.of_parts(parts), &division.axes)?,
                Some(rows) => Uneven::prepare(isa, (op, data_type), &division, rows)?,
            };
            let then = reduce(isa, op, data_type, &[parts, division.results], &[0])?;
            Made::in_parts(first, &[0], then, data_type, parts.saturating_mul(division.results))
        }
        None => Ok(reduce(isa, op, data_type, shape, axes)?.into()),
    }
}

/// Parts of rows of which some have one more than others. Each is a piece.
#[derive(Debug)]
struct Uneven {
    rows: Rows,
    /// Bytes of a row, and of a result.
    row: usize,
    result: usize,
    /// The reduction of a part with the fewest rows, and of one with one more.
    less: Prepared,
    more: Prepared,
}

impl Uneven {
    fn prepare(isa: Isa, (op, data_type): (ReduceOp, DataType), division: &Division, all: u64) -> Result<Prepared> {
        let rows = Rows { all, parts: division.parts };
        let of = |count: u64| reduce_some(isa, op, data_type, &division.of_rows(count), &division.axes, division.parts);
        let bytes = |count: Option<u64>| {
            let bytes = count.and_then(|count| data_type.bytes_of(count)).and_then(|bytes| usize::try_from(bytes).ok());
            bytes.ok_or_else(|| Error::invalid_argument(format!("{all} rows of {:?}", division.shape)))
        };
        let elements = count(division.shape[2..].iter().copied());
        let (row, result) = (bytes(elements)?, bytes(Some(division.results))?);
        let whole = row.saturating_mul(all as usize).saturating_add(result.saturating_mul(division.parts as usize));
        let cost = Cost { flops: elements.unwrap_or(0).saturating_mul(all) as f64, bytes: whole as f64 };
        let kernel = Uneven { rows, row, result, less: of(rows.least())?, more: of(rows.most())? };
        Ok(Prepared { chunks: division.parts as u32, scratch: 0, per_worker: 0, cost, in_place: Vec::new(), kernel: Arc::new(kernel) })
    }
}

impl CpuKernel for Uneven {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        for part in chunks {
            let (first, next) = (self.rows.first(part.into()), self.rows.first(u64::from(part) + 1));
            let of = if next - first == self.rows.least() { &self.less } else { &self.more };
            let from = args.pointers[0].wrapping_add(first as usize * self.row);
            let to = args.pointers[1].wrapping_add(part as usize * self.result);
            // SAFETY: the caller's promise: the rows of the part are there, and its result, which this piece alone writes.
            unsafe { of.kernel.run(0..of.chunks, &Args { pointers: &[from, to], ..*args })? };
        }
        Ok(())
    }
}

/// Half the sum of the squares of a tensor.
///
/// # Errors
/// As [`l2_loss`].
pub(crate) fn half_squares(isa: Isa, data_type: DataType, shape: &[u64]) -> Result<Made> {
    let axes: Vec<usize> = (0..shape.len()).collect();
    match divide(data_type, shape, &axes) {
        Some(divided) => {
            let first = squares(isa, data_type, &divided.shape, &divided.axes)?;
            let then = reduce(isa, ReduceOp::Sum, data_type, &[divided.parts, divided.results], &[0])?;
            Made::in_parts(first, &[0], then, data_type, divided.count())
        }
        None => Ok(l2_loss(isa, data_type, shape)?.into()),
    }
}

impl Divided {
    /// Elements of all parts' results.
    fn count(&self) -> u64 {
        self.parts.saturating_mul(self.results)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_large_reductions_to_few_results_are_divided() {
        let divided = |shape: &[u64], axes: &[usize]| {
            let divided = divided(ReduceOp::Sum, DataType::Float, shape, axes)?;
            Some((divided.shape, divided.axes, divided.parts, divided.results, divided.rows))
        };
        assert_eq!(divided(&[128, 24, 24, 64], &[0, 1, 2]), Some((vec![16, 8, 24, 24, 64], vec![1, 2, 3], 16, 64, None)));
        assert_eq!(divided(&[8, 72, 24, 64], &[0, 1, 2]), Some((vec![16, 864, 64], vec![1], 16, 64, None)));
        assert_eq!(divided(&[24, 72, 24, 64], &[0, 1, 2]), Some((vec![8, 3, 72, 24, 64], vec![1, 2, 3], 8, 64, None)));
        assert_eq!(divided(&[99, 30, 7, 100], &[0, 2]), None);
        assert_eq!(divided(&[1100, 4, 7, 10], &[0, 2]), Some((vec![16, 68, 4, 7, 10], vec![1, 3], 16, 40, Some(1100))));
        assert_eq!(divided(&[512, 300], &[0]), Some((vec![8, 64, 300], vec![1], 8, 300, None)));
        assert_eq!(divided(&[1024, 300], &[0]), Some((vec![16, 64, 300], vec![1], 16, 300, None)));
        assert_eq!(divided(&[104_729], &[0]), Some((vec![16, 6545], vec![1], 16, 1, Some(104_729))));
        // Few elements, many results, results outermost, few rows of a prime number, nothing.
        let whole = [(&[64, 64][..], &[0][..]), (&[256, 2048], &[0]), (&[64, 40960], &[1]), (&[7, 104_729], &[0, 1]), (&[0, 64], &[0])];
        for (shape, axes) in whole {
            assert_eq!(divided(shape, axes), None, "{shape:?} {axes:?}");
        }
    }
}
