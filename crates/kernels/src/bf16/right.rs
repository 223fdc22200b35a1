//! The right side, rounded once: the second operand of products, and filters.

use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::Result;
use plimsoll_device::{Args, Cost, CpuKernel, Fault, Prepared};

use super::convert;
use super::tiles::{LANES, PAIRED, Panel};
use crate::cut::{Cut, elements};
use crate::product::Matrices;

/// Matrices of so many terms and columns, and where the pairs of each go.
pub(super) struct Right {
    pub terms: usize,
    pub panels: Vec<Panel>,
    /// From row to row of a matrix, as it lies.
    pub row: usize,
    /// Whether columns lie as rows.
    pub is_transposed: bool,
    pub of: Of,
}

/// What the matrices are.
pub(super) enum Of {
    /// Second operands of so many products, each by itself.
    Products(Matrices, usize),
    /// Taps of a filter: some of them follow each other in the pairs of one side.
    Taps(Vec<Tap>),
}

/// A tap of a filter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tap {
    /// Its first element.
    pub from: usize,
    /// Where its side begins, in numbers, and how many pairs that has.
    pub side: usize,
    pub pairs: usize,
    /// The pairs of the side before it.
    pub before: usize,
}

impl Right {
    /// Pairs of a matrix.
    pub fn pairs(&self) -> usize {
        self.terms.div_ceil(2)
    }

    /// Numbers of a side of so many pairs.
    pub fn side(&self, pairs: usize) -> usize {
        self.panels.iter().map(|panel| panel.vectors).sum::<usize>() * PAIRED * pairs
    }

    fn count(&self) -> usize {
        match &self.of {
            Of::Products(_, count) => *count,
            Of::Taps(taps) => taps.len(),
        }
    }

    fn tap(&self, number: usize) -> Tap {
        match &self.of {
            Of::Products(matrices, _) => {
                Tap { from: matrices.of(number)[1], side: number * self.side(self.pairs()), pairs: self.pairs(), before: 0 }
            }
            Of::Taps(taps) => taps[number],
        }
    }

    /// The kernel. Arguments: the matrices, the pairs.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for more than memory holds.
    pub fn prepare(self) -> Result<Prepared> {
        let units = elements(&[self.count() as u64, self.panels.len() as u64])?;
        let numbers = elements(&[self.count() as u64, self.side(self.pairs()) as u64])?;
        let cut = Cut::at_most(64, units, 4 * (numbers / units.max(1)) as u64, 1);
        let cost = Cost { flops: numbers as f64, bytes: 6.0 * numbers as f64 };
        let kernel = Pack { right: self, cut };
        Ok(Prepared { chunks: cut.pieces(), scratch: 0, per_worker: 0, cost, in_place: Vec::new(), kernel: Arc::new(kernel) })
    }
}

struct Pack {
    right: Right,
    cut: Cut,
}

impl std::fmt::Debug for Pack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Right { terms, panels, row, is_transposed, .. } = &self.right;
        write!(f, "Pack({terms} terms, {} panels, rows of {row}, transposed: {is_transposed})", panels.len())
    }
}

impl CpuKernel for Pack {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        let (from, to) = (args.pointers[0].cast::<f32>().cast_const(), args.pointers[1].cast::<u16>());
        let panels = &self.right.panels;
        for unit in self.cut.units(chunks) {
            let (tap, panel) = (self.right.tap(unit / panels.len()), &panels[unit % panels.len()]);
            let width = panel.vectors * LANES;
            let to = to.wrapping_add(tap.side + panel.start(tap.pairs) + 2 * width * tap.before);
            let from = from.wrapping_add(tap.from);
            let Right { terms, row, is_transposed, .. } = self.right;
            // SAFETY: the matrix has these terms and columns, and the side has room for the pairs: the caller's promise.
            unsafe {
                match is_transposed {
                    true => convert::pairs_of_columns(from.add(panel.column * row), row, panel.width(), terms, width, to),
                    false => convert::pairs_of_terms(from.add(panel.column), row, panel.width(), terms, width, to),
                }
            }
        }
        Ok(())
    }
}
