//! A reduction's dimensions, collapsed.

use plimsoll_base::{Error, Result};

/// More dimensions than this, once neighbours are merged, are refused.
pub(super) const MOST_DIMS: usize = 16;

/// A dimension: how many steps, and how many elements lie between two of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dim {
    pub(super) size: usize,
    pub(super) stride: usize,
}

/// A dense row-major shape split in kept and reduced dimensions; sizes of 1 are gone and neighbours of one kind merged.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Collapsed {
    pub(super) kept: Vec<Dim>,
    pub(super) reduced: Vec<Dim>,
    /// Whether the innermost dimension is a reduced one.
    pub(super) rows: bool,
}

/// `axes` may come in any order and more than once.
pub(super) fn collapse(shape: &[u64], axes: &[usize]) -> Result<Collapsed> {
    if let Some(axis) = axes.iter().find(|axis| **axis >= shape.len()) {
        return Err(Error::invalid_argument(format!("Invalid reduction dimension ({axis} for input with {} dimension(s)", shape.len())));
    }
    let mut result = Collapsed { kept: Vec::new(), reduced: Vec::new(), rows: true };
    let mut stride = 1usize;
    let mut last = None;
    for (axis, size) in shape.iter().enumerate().rev().filter(|(_, size)| **size != 1) {
        let (size, is_reduced) = (*size as usize, axes.contains(&axis));
        let dims = if is_reduced { &mut result.reduced } else { &mut result.kept };
        if last == Some(is_reduced) {
            // Inside a tensor without elements any product of sizes serves.
            let inner = dims.last_mut().expect("the dimension before was of this kind");
            inner.size = inner.size.saturating_mul(size);
        } else {
            result.rows = if last.is_none() { is_reduced } else { result.rows };
            dims.push(Dim { size, stride });
        }
        last = Some(is_reduced);
        stride = stride.saturating_mul(size);
    }
    result.kept.reverse();
    result.reduced.reverse();
    if result.kept.len().max(result.reduced.len()) > MOST_DIMS {
        return Err(Error::unimplemented(format!("a reduction over {} separate groups of dimensions", result.reduced.len())));
    }
    Ok(result)
}

/// Walks over the index space of some dimensions in row-major order, keeping the offset.
#[derive(Clone, Copy)]
pub(super) struct Walk<'a> {
    dims: &'a [Dim],
    index: [usize; MOST_DIMS],
    pub(super) offset: usize,
}

impl<'a> Walk<'a> {
    /// Starts at place number `at`.
    #[inline(always)]
    pub(super) fn at(dims: &'a [Dim], mut at: usize) -> Walk<'a> {
        let mut walk = Walk { dims, index: [0; MOST_DIMS], offset: 0 };
        for (number, dim) in dims.iter().enumerate().rev() {
            walk.index[number] = at % dim.size.max(1);
            at /= dim.size.max(1);
            walk.offset += walk.index[number] * dim.stride;
        }
        walk
    }

    /// To the next place; from the last one to the first.
    #[inline(always)]
    pub(super) fn step(&mut self) {
        for (number, dim) in self.dims.iter().enumerate().rev() {
            self.index[number] += 1;
            self.offset += dim.stride;
            if self.index[number] < dim.size {
                return;
            }
            self.index[number] = 0;
            self.offset -= dim.size * dim.stride;
        }
    }
}

/// How many places the dimensions have.
pub(super) fn places(dims: &[Dim]) -> usize {
    dims.iter().map(|dim| dim.size).product()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merges_neighbours_of_a_kind() {
        let dim = |size, stride| Dim { size, stride };
        assert_eq!(collapse(&[2, 3, 4], &[1, 2]).unwrap(), Collapsed { kept: vec![dim(2, 12)], reduced: vec![dim(12, 1)], rows: true });
        assert_eq!(
            collapse(&[2, 3, 1, 4], &[0, 1, 1]).unwrap(),
            Collapsed { kept: vec![dim(4, 1)], reduced: vec![dim(6, 4)], rows: false }
        );
        let mixed = collapse(&[2, 3, 4, 1, 5], &[3, 0, 2]).unwrap();
        assert_eq!(mixed, Collapsed { kept: vec![dim(3, 20), dim(5, 1)], reduced: vec![dim(2, 60), dim(4, 5)], rows: false });
        assert_eq!(collapse(&[], &[]).unwrap(), Collapsed { kept: vec![], reduced: vec![], rows: true });
        assert!(collapse(&[2], &[1]).is_err());
        assert!(collapse(&[2; 40], &(0..40).step_by(2).collect::<Vec<_>>()).is_err());
    }

    #[test]
    fn walks_in_row_major_order() {
        let dims = [Dim { size: 2, stride: 60 }, Dim { size: 3, stride: 5 }];
        let mut walk = Walk::at(&dims, 0);
        for offset in [0, 5, 10, 60, 65, 70, 0] {
            assert_eq!(walk.offset, offset);
            walk.step();
        }
        assert_eq!(Walk::at(&dims, 4).offset, 65);
    }
}
