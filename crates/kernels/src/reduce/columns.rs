//! Reductions whose innermost dimension is kept: rows are folded into a row of results.

use std::marker::PhantomData;
use std::ops::Range;

use plimsoll_device::{Args, CpuKernel, Fault};

use super::WIDE;
use super::dims::{Dim, Walk, places};
use super::fold::Fold;
use crate::cut::Cut;
use crate::simd::{Isa, Vectorised};

/// Columns that are folded at a time: the arrays of accumulators stay in the first cache.
const MOST_COLUMNS: usize = 512;

/// Rows narrower than this are taken several at a time, as one wide row.
const NARROW: usize = 64;

/// Levels of accumulators: after `ROWS[n]` rows level `n` is joined into level `n + 1` and starts again, so that rounding
/// errors grow slowly.
const LEVELS: usize = 4;
const ROWS: [usize; LEVELS - 1] = [64, 64 * 32, 64 * 32 * 32];

/// Folds rows into `width` results under each outer kept place. `N` is as in `Rows`.
#[derive(Debug)]
pub(super) struct Columns<T, F, const N: usize> {
    kept: Vec<Dim>,
    /// The reduced dimensions but for the innermost.
    outer: Vec<Dim>,
    outer_places: usize,
    inner: Dim,
    width: usize,
    /// Columns that a unit of work folds.
    block: usize,
    blocks: usize,
    count: usize,
    input_len: usize,
    cut: Cut,
    isa: Isa,
    marker: PhantomData<fn(T) -> F>,
}

impl<T, F: Fold<T>, const N: usize> Columns<T, F, N> {
    /// `all` and `own`: this is a part of a tensor of so many rows, and has so many of them. The order of sums is that tensor's.
    pub(super) fn new(isa: Isa, mut kept: Vec<Dim>, mut reduced: Vec<Dim>, input_len: usize, (all, own): (usize, usize)) -> Self {
        let width = kept.pop().map_or(1, |dim| dim.size);
        let inner = reduced.pop().unwrap_or(Dim { size: 1, stride: width });
        let outer_places = places(&reduced);
        let count = inner.size * outer_places;
        let size = size_of::<T>();
        // Few results from many rows: the columns are all there is to share out, a cache line of them at least.
        let line = 64 / size;
        let large = count * width * size > (256 << 10);
        let block = if width > line && places(&kept).saturating_mul(all) / own.max(1) < 8 && large {
            width.div_ceil(16).next_multiple_of(line).min(MOST_COLUMNS)
        } else {
            width.clamp(1, MOST_COLUMNS)
        };
        let blocks = width.div_ceil(block).max(1);
        let units = if width == 0 { 0 } else { places(&kept) * blocks };
        let cut = Cut::new(units, (count * block * size) as u64 + 64, 1);
        Columns { kept, outer: reduced, outer_places, inner, width, block, blocks, count, input_len, cut, isa, marker: PhantomData }
    }

    pub(super) fn pieces(&self) -> u32 {
        self.cut.pieces()
    }

    /// The first result of unit `unit`.
    fn result(&self, unit: usize) -> usize {
        unit / self.blocks * self.width + unit % self.blocks * self.block
    }
}

impl<T: Copy + Send + Sync + std::fmt::Debug + 'static, F: Fold<T>, const N: usize> CpuKernel for Columns<T, F, N> {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        let units = self.cut.units(chunks);
        let results = self.result(units.start)..self.result(units.end);
        // SAFETY: argument 0 holds the input, argument 1 the results, of which pieces write different ones.
        let (input, output) = unsafe { (args.input::<T>(0, self.input_len), args.output::<T>(1, results)) };
        let piece = ColumnsPiece { kernel: self, input, output, units };
        if N == WIDE {
            // SAFETY: the processor has the instruction set: it was asked when the kernel was prepared.
            unsafe { self.isa.run(piece) };
        } else {
            piece.run::<false>();
        }
        Ok(())
    }
}

struct ColumnsPiece<'a, T, F, const N: usize> {
    kernel: &'a Columns<T, F, N>,
    input: &'a [T],
    output: &'a mut [T],
    units: Range<usize>,
}

impl<T: Copy, F: Fold<T>, const N: usize> Vectorised for ColumnsPiece<'_, T, F, N> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(mut self) {
        let kernel = self.kernel;
        let mut levels = Levels::<F::Acc> { sums: [[F::IDENTITY; MOST_COLUMNS]; LEVELS], rows: 0, wide: 0 };
        for unit in self.units {
            let offset = Walk::at(&kernel.kept, unit / kernel.blocks).offset + unit % kernel.blocks * kernel.block;
            let columns = kernel.block.min(kernel.width - unit % kernel.blocks * kernel.block);
            let (results, rest) = std::mem::take(&mut self.output).split_at_mut(columns);
            fold_unit::<T, F, N>(kernel, self.input, offset, results, &mut levels);
            self.output = rest;
        }
    }
}

/// Folds the columns at `offset` of all rows into `results`; `levels` are all identities before and after.
#[inline(always)]
fn fold_unit<T: Copy, F: Fold<T>, const N: usize>(
    kernel: &Columns<T, F, N>,
    input: &[T],
    offset: usize,
    results: &mut [T],
    levels: &mut Levels<F::Acc>,
) {
    let columns = results.len();
    // Contiguous narrow rows: `together` of them make one wide row, and a column of results is many of its columns.
    let together = if kernel.inner.stride == columns { (NARROW / columns.max(1)).max(1) } else { 1 };
    let wide = columns * together;
    (levels.rows, levels.wide) = (0, wide);
    let mut walk = Walk::at(&kernel.outer, 0);
    for _ in 0..kernel.outer_places {
        let start = offset + walk.offset;
        let (stride, rows) = (kernel.inner.stride * together, kernel.inner.size / together);
        let mut row = 0;
        while row + 4 <= rows {
            let at = |number: usize| &input[start + (row + number) * stride..][..wide];
            levels.add_four::<T, F>(at(0), at(1), at(2), at(3));
            row += 4;
        }
        while row < rows {
            levels.add::<T, F>(&input[start + row * stride..][..wide]);
            row += 1;
        }
        for row in rows * together..kernel.inner.size {
            levels.add::<T, F>(&input[start + row * kernel.inner.stride..][..columns]);
        }
        walk.step();
    }
    for level in 1..LEVELS {
        levels.flush::<T, F>(level);
    }
    for (column, result) in results.iter_mut().enumerate() {
        let mut acc = levels.sums[LEVELS - 1][column];
        for part in 1..together {
            acc = F::join(acc, levels.sums[LEVELS - 1][part * columns + column]);
        }
        *result = F::finish(acc, kernel.count);
    }
    levels.sums[LEVELS - 1][..wide].fill(F::IDENTITY);
}

/// Accumulators for a row, in levels.
struct Levels<A> {
    sums: [[A; MOST_COLUMNS]; LEVELS],
    rows: usize,
    wide: usize,
}

impl<A: Copy> Levels<A> {
    #[inline(always)]
    fn add_four<T: Copy, F: Fold<T, Acc = A>>(&mut self, a: &[T], b: &[T], c: &[T], d: &[T]) {
        let (len, sums) = (a.len(), &mut self.sums[0]);
        let (sums, b, c, d) = (&mut sums[..len], &b[..len], &c[..len], &d[..len]);
        for column in 0..len {
            let first = F::join(F::lift(a[column]), F::lift(b[column]));
            let second = F::join(F::lift(c[column]), F::lift(d[column]));
            sums[column] = F::join(sums[column], F::join(first, second));
        }
        self.count::<T, F>(4);
    }

    #[inline(always)]
    fn add<T: Copy, F: Fold<T, Acc = A>>(&mut self, row: &[T]) {
        for (sum, value) in self.sums[0][..row.len()].iter_mut().zip(row) {
            *sum = F::join(*sum, F::lift(*value));
        }
        self.count::<T, F>(1);
    }

    #[inline(always)]
    fn count<T: Copy, F: Fold<T, Acc = A>>(&mut self, rows: usize) {
        let before = self.rows;
        self.rows += rows;
        for (level, rows) in ROWS.into_iter().enumerate() {
            if before / rows == self.rows / rows {
                break;
            }
            self.flush::<T, F>(level + 1);
        }
    }

    /// Joins the level below into `level`.
    #[inline(always)]
    fn flush<T: Copy, F: Fold<T, Acc = A>>(&mut self, level: usize) {
        let (low, high) = self.sums.split_at_mut(level);
        for (sum, part) in high[0][..self.wide].iter_mut().zip(&mut low[level - 1][..self.wide]) {
            *sum = F::join(*sum, *part);
            *part = F::IDENTITY;
        }
    }
}
