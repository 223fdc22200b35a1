//! How operands are laid over the shape that is iterated: broadcasting as strides, with dimensions merged where no operand
//! tells them apart.

use plimsoll_base::{Error, Result};

/// How one operand is read. Distances are in elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// One element for each of the shape, in order.
    Full,
    /// One element for all.
    Scalar,
    /// Row by row.
    Rows {
        /// Whether a row has an element for each column, or one for all.
        along: bool,
        /// From row to row, for each outer dimension.
        strides: Vec<usize>,
        /// How many rows in succession are the same.
        period: usize,
    },
}

/// The merged shape, and each operand's access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Elements.
    pub total: usize,
    /// Elements of a row: the innermost merged dimension. 1 for a scalar shape.
    pub row: usize,
    /// The merged dimensions outside of a row.
    pub outer: Vec<usize>,
    /// One for each operand.
    pub operands: Vec<Access>,
}

/// The number of elements of a shape.
///
/// # Errors
/// INVALID_ARGUMENT where it, times 16 bytes, is more than an address space holds.
pub(crate) fn elements(shape: &[u64]) -> Result<usize> {
    if shape.contains(&0) {
        return Ok(0);
    }
    let product = shape.iter().try_fold(1u64, |product, size| product.checked_mul(*size));
    match product {
        Some(count) if count <= isize::MAX as u64 / 16 => Ok(count as usize),
        _ => Err(Error::invalid_argument(format!("a shape of {shape:?} has too many elements"))),
    }
}

impl Layout {
    /// Lays `operands` over `shape` by NumPy's rules.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where an operand does not broadcast to the shape.
    pub(crate) fn new(shape: &[u64], operands: &[Vec<u64>]) -> Result<Layout> {
        let total = elements(shape)?;
        let mut strides: Vec<Vec<usize>> = Vec::with_capacity(operands.len());
        for operand in operands {
            strides.push(broadcast_strides(shape, operand)?);
        }
        if total == 0 {
            return Ok(Layout { total, row: 1, outer: Vec::new(), operands: vec![Access::Scalar; operands.len()] });
        }
        // Merge: dimensions of size 1 vanish, and a dimension joins the one inside it if that holds for every operand.
        let mut dims: Vec<usize> = Vec::new();
        let mut merged: Vec<Vec<usize>> = vec![Vec::new(); operands.len()];
        for at in (0..shape.len()).rev() {
            let size = shape[at] as usize;
            if size == 1 {
                continue;
            }
            let joins = dims.last().is_some_and(|inner| {
                merged
                    .iter()
                    .zip(&strides)
                    .all(|(merged, strides)| merged.last().is_some_and(|last| last.wrapping_mul(*inner) == strides[at]))
            });
            if joins {
                if let Some(inner) = dims.last_mut() {
                    *inner = inner.wrapping_mul(size);
                }
            } else {
                dims.push(size);
                for (merged, strides) in merged.iter_mut().zip(&strides) {
                    merged.push(strides[at]);
                }
            }
        }
        // From the innermost outwards so far.
        let row = dims.first().copied().unwrap_or(1);
        let outer: Vec<usize> = dims.iter().skip(1).rev().copied().collect();
        let operands = merged.iter().map(|strides| access(&dims, strides)).collect();
        Ok(Layout { total, row, outer, operands })
    }
}

/// `dims` and `strides` from the innermost outwards.
fn access(dims: &[usize], strides: &[usize]) -> Access {
    let mut dense = 1usize;
    let mut full = true;
    for (size, stride) in dims.iter().zip(strides) {
        full &= *stride == dense;
        dense = dense.wrapping_mul(*size);
    }
    if full {
        return Access::Full;
    }
    if strides.iter().all(|stride| *stride == 0) {
        return Access::Scalar;
    }
    let period = dims.iter().zip(strides).skip(1).take_while(|(_, stride)| **stride == 0).map(|(size, _)| *size).product();
    Access::Rows { along: strides[0] == 1, strides: strides.iter().skip(1).rev().copied().collect(), period }
}

fn broadcast_strides(shape: &[u64], operand: &[u64]) -> Result<Vec<usize>> {
    let error = || Error::invalid_argument(format!("Incompatible shapes: {operand:?} does not broadcast to {shape:?}"));
    if operand.len() > shape.len() {
        return Err(error());
    }
    let missing = shape.len() - operand.len();
    let mut strides = vec![0usize; shape.len()];
    let mut dense = 1usize;
    for at in (0..operand.len()).rev() {
        let (size, wanted) = (operand[at], shape[missing + at]);
        if size == wanted {
            strides[missing + at] = dense;
        } else if size != 1 {
            return Err(error());
        }
        dense = dense.wrapping_mul(size as usize);
    }
    Ok(strides)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_merge_where_no_operand_tells_them_apart() {
        let layout = Layout::new(&[4, 5, 6], &[vec![4, 5, 6], vec![], vec![1, 1, 1]]).unwrap();
        assert_eq!(layout, Layout { total: 120, row: 120, outer: vec![], operands: vec![Access::Full, Access::Scalar, Access::Scalar] });

        let layout = Layout::new(&[4, 5, 1, 6], &[vec![4, 5, 1, 6], vec![6], vec![4, 1, 1, 1]]).unwrap();
        let row = Access::Rows { along: true, strides: vec![0, 0], period: 20 };
        let column = Access::Rows { along: false, strides: vec![1, 0], period: 5 };
        assert_eq!(layout, Layout { total: 120, row: 6, outer: vec![4, 5], operands: vec![Access::Full, row, column] });

        let layout = Layout::new(&[2, 7, 7, 8], &[vec![2, 1, 1, 8]]).unwrap();
        let operands = vec![Access::Rows { along: true, strides: vec![8, 0], period: 49 }];
        assert_eq!(layout, Layout { total: 784, row: 8, outer: vec![2, 49], operands });
    }

    #[test]
    fn one_element_is_full_whatever_its_rank() {
        assert_eq!(Layout::new(&[1, 1], &[vec![], vec![1, 1]]).unwrap().operands, [Access::Full, Access::Full]);
        assert_eq!(Layout::new(&[], &[vec![]]).unwrap(), Layout { total: 1, row: 1, outer: vec![], operands: vec![Access::Full] });
        assert_eq!(Layout::new(&[3, 0], &[vec![3, 0]]).unwrap().total, 0);
    }

    #[test]
    fn what_does_not_broadcast_is_refused() {
        assert!(Layout::new(&[2, 3], &[vec![2]]).is_err());
        assert!(Layout::new(&[3], &[vec![1, 3]]).is_err());
        assert!(Layout::new(&[1], &[vec![3]]).is_err());
        assert!(Layout::new(&[1 << 40, 1 << 40], &[]).is_err());
    }
}
