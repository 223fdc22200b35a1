//! Large reductions to few results, in two steps: parts of the outermost dimensions first, for threads to share, then the parts.

use plimsoll_base::{DataType, Result};
use plimsoll_request::reduce::ReduceOp;

use super::{l2_loss, reduce, squares};
use crate::library::Made;
use crate::simd::Isa;

/// Bytes that one thread reduces.
const WHOLE: u64 = 256 << 10;
/// Bytes of results that a part may have: beyond, results are enough to share.
const RESULTS: u64 = 4 << 10;
/// How many parts.
const PARTS: std::ops::RangeInclusive<u64> = 8..=16;

/// A shape whose outermost dimension is one of parts, and the axes to reduce each part over.
struct Divided {
    shape: Vec<u64>,
    axes: Vec<usize>,
    parts: u64,
    results: u64,
}

/// The product; `None` where it is too large.
fn count(mut sizes: impl Iterator<Item = u64>) -> Option<u64> {
    sizes.try_fold(1u64, |count, size| count.checked_mul(size))
}

/// How to divide; `None` where it is not worth it, or the reduced dimensions do not come first or cannot be divided evenly.
fn divide(data_type: DataType, shape: &[u64], axes: &[usize]) -> Option<Divided> {
    let is_reduced = |axis: &usize| axes.contains(axis);
    let leading = (0..shape.len()).take_while(is_reduced).count();
    let results = count((0..shape.len()).filter(|axis| !is_reduced(axis)).map(|axis| shape[axis]))?;
    let elements = count(shape.iter().copied())?;
    let bytes = |count: u64| data_type.bytes_of(count);
    if results == 0 || bytes(elements)? < WHOLE || bytes(results)? > RESULTS {
        return None;
    }
    let first = count(shape[..leading].iter().copied())?;
    let parts = PARTS.rev().find(|parts| first.is_multiple_of(*parts) && elements / results >= 64 * parts)?;
    let divided = [parts, first / parts].into_iter().chain(shape[leading..].iter().copied()).collect();
    let inner = (leading..shape.len()).filter(is_reduced).map(|axis| axis - leading + 2);
    Some(Divided { shape: divided, axes: std::iter::once(1).chain(inner).collect(), parts, results })
}

/// A tensor of that type and shape, reduced over the axes.
///
/// # Errors
/// As [`reduce`].
pub(crate) fn reduction(isa: Isa, op: ReduceOp, data_type: DataType, shape: &[u64], axes: &[usize]) -> Result<Made> {
    match divided(op, data_type, shape, axes) {
        Some((divided, axes, results)) => {
            let (first, parts) = (reduce(isa, op, data_type, &divided, &axes)?, divided[0]);
            Made::in_parts(first, &[0], reduce(isa, op, data_type, &[parts, results], &[0])?, data_type, parts.saturating_mul(results))
        }
        None => Ok(reduce(isa, op, data_type, shape, axes)?.into()),
    }
}

/// The shape of a tensor whose first axis is one of the parts that [`reduction`] reduces first, the axes that it reduces of each, and the
/// elements of a result. None where it reduces the tensor at once.
pub(crate) fn divided(op: ReduceOp, data_type: DataType, shape: &[u64], axes: &[usize]) -> Option<(Vec<u64>, Vec<usize>, u64)> {
    // A mean of means would round twice.
    let divided = divide(data_type, shape, axes).filter(|_| op != ReduceOp::Mean)?;
    Some((divided.shape, divided.axes, divided.results))
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
            let divided = divide(DataType::Float, shape, axes)?;
            Some((divided.shape, divided.axes, divided.parts, divided.results))
        };
        assert_eq!(divided(&[128, 24, 24, 64], &[0, 1, 2]), Some((vec![16, 4608, 64], vec![1], 16, 64)));
        assert_eq!(divided(&[99, 30, 7, 100], &[0, 2]), None);
        assert_eq!(divided(&[1100, 4, 7, 10], &[0, 2]), Some((vec![11, 100, 4, 7, 10], vec![1, 3], 11, 40)));
        assert_eq!(divided(&[512, 300], &[0]), Some((vec![8, 64, 300], vec![1], 8, 300)));
        assert_eq!(divided(&[1024, 300], &[0]), Some((vec![16, 64, 300], vec![1], 16, 300)));
        // Few elements, many results, results outermost, a prime, nothing.
        let whole = [(&[64, 64][..], &[0][..]), (&[256, 2048], &[0]), (&[64, 40960], &[1]), (&[104_729], &[0]), (&[0, 64], &[0])];
        for (shape, axes) in whole {
            assert_eq!(divided(shape, axes), None, "{shape:?} {axes:?}");
        }
    }
}
