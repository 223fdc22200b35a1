//! Reductions whose innermost dimension is reduced: a result is made of whole contiguous rows.

use std::marker::PhantomData;
use std::ops::Range;

use plimsoll_device::{Args, CpuKernel, Fault};

use super::WIDE;
use super::dims::{Dim, Walk, places};
use super::fold::{Cascade, Fold, join_lanes};
use crate::cut::Cut;
use crate::simd::{Isa, Vectorised};

/// Vectors of lanes that are joined into one before the cascade takes over.
const GROUPS_PER_BLOCK: usize = 64;

/// Folds the rows under each kept place. `N` is the number of lanes.
#[derive(Debug)]
pub(super) struct Rows<T, F, const N: usize> {
    kept: Vec<Dim>,
    /// The reduced dimensions but for the innermost.
    outer: Vec<Dim>,
    row: usize,
    rows_per_result: usize,
    count: usize,
    input_len: usize,
    cut: Cut,
    isa: Isa,
    marker: PhantomData<fn(T) -> F>,
}

impl<T, F: Fold<T>, const N: usize> Rows<T, F, N> {
    pub(super) fn new(isa: Isa, kept: Vec<Dim>, mut reduced: Vec<Dim>, input_len: usize) -> Self {
        let row = reduced.pop().map_or(1, |dim| dim.size);
        let rows_per_result = places(&reduced);
        let count = row * rows_per_result;
        // A row has a cost of its own beside its bytes.
        let bytes = (count * size_of::<T>()) as u64 + 16 * rows_per_result as u64;
        let cut = Cut::new(places(&kept), bytes, 1);
        Rows { kept, outer: reduced, row, rows_per_result, count, input_len, cut, isa, marker: PhantomData }
    }

    pub(super) fn pieces(&self) -> u32 {
        self.cut.pieces()
    }
}

impl<T: Copy + Send + Sync + std::fmt::Debug + 'static, F: Fold<T>, const N: usize> CpuKernel for Rows<T, F, N> {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        let results = self.cut.units(chunks);
        // SAFETY: argument 0 holds the input, argument 1 the results, of which pieces write different ones.
        let (input, output) = unsafe { (args.input::<T>(0, self.input_len), args.output::<T>(1, results.clone())) };
        let piece = RowsPiece { kernel: self, input, output, first: results.start };
        if N == WIDE {
            // SAFETY: the processor has the instruction set: it was asked when the kernel was prepared.
            unsafe { self.isa.run(piece) };
        } else {
            piece.run::<false>();
        }
        Ok(())
    }
}

struct RowsPiece<'a, T, F, const N: usize> {
    kernel: &'a Rows<T, F, N>,
    input: &'a [T],
    output: &'a mut [T],
    first: usize,
}

impl<T: Copy, F: Fold<T>, const N: usize> Vectorised for RowsPiece<'_, T, F, N> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let kernel = self.kernel;
        let mut place = Walk::at(&kernel.kept, self.first);
        for result in self.output {
            let acc = if kernel.rows_per_result == 1 {
                fold_row::<T, F, N>(&self.input[place.offset..place.offset + kernel.row])
            } else {
                let mut cascade = Cascade::new(F::IDENTITY);
                let mut row = Walk::at(&kernel.outer, 0);
                for _ in 0..kernel.rows_per_result {
                    let start = place.offset + row.offset;
                    cascade.push(fold_row::<T, F, N>(&self.input[start..start + kernel.row]), F::join);
                    row.step();
                }
                cascade.finish(F::join).unwrap_or(F::IDENTITY)
            };
            *result = F::finish(acc, kernel.count);
            place.step();
        }
    }
}

/// Folds a row; the order depends on its length alone.
#[inline(always)]
pub(super) fn fold_row<T: Copy, F: Fold<T>, const N: usize>(row: &[T]) -> F::Acc {
    if row.len() < N {
        return fold_short::<T, F>(row);
    }
    let block = N * GROUPS_PER_BLOCK;
    if row.len() < 2 * block {
        return fold_block::<T, F, N>(row);
    }
    let mut cascade = Cascade::new(F::IDENTITY);
    let mut blocks = row.chunks_exact(block);
    for block in &mut blocks {
        cascade.push(fold_block::<T, F, N>(block), F::join);
    }
    let rest = fold_block::<T, F, N>(blocks.remainder());
    F::join(cascade.finish(F::join).unwrap_or(F::IDENTITY), rest)
}

/// Lanes that the compiler keeps in a vector: of more it makes an array in memory.
const GROUP: usize = 16;
/// Groups of the most lanes.
const MOST_GROUPS: usize = WIDE / GROUP;

#[inline(always)]
fn fold_block<T: Copy, F: Fold<T>, const N: usize>(values: &[T]) -> F::Acc {
    const { assert!(N.is_multiple_of(GROUP) && N / GROUP <= MOST_GROUPS) };
    let mut lanes = [[F::IDENTITY; GROUP]; MOST_GROUPS];
    let (blocks, rest) = values.as_chunks::<N>();
    for block in blocks {
        let (groups, _) = block.as_chunks::<GROUP>();
        for number in 0..N / GROUP {
            let group = groups[number];
            for lane in 0..GROUP {
                lanes[number][lane] = F::join(lanes[number][lane], F::lift(group[lane]));
            }
        }
    }
    // The tree over all lanes, down to those of one group.
    let mut width = N / GROUP;
    while width > 1 {
        width /= 2;
        let (low, high) = lanes.split_at_mut(width);
        for (low, high) in low.iter_mut().zip(high).take(width) {
            *low = std::array::from_fn(|lane| F::join(low[lane], high[lane]));
        }
    }
    F::join(join_group::<T, F>(&lanes[0]), fold_short::<T, F>(rest))
}

/// As [`join_lanes`]. What is in between lies in memory, or the compiler would make the tree of scalars.
#[inline(always)]
fn join_group<T, F: Fold<T>>(lanes: &[F::Acc; GROUP]) -> F::Acc {
    let eight: [F::Acc; 8] = std::hint::black_box(std::array::from_fn(|lane| F::join(lanes[lane], lanes[lane + 8])));
    let four: [F::Acc; 4] = std::hint::black_box(std::array::from_fn(|lane| F::join(eight[lane], eight[lane + 4])));
    join_lanes::<T, F, 4>(four)
}

#[inline(always)]
fn fold_short<T: Copy, F: Fold<T>>(values: &[T]) -> F::Acc {
    let (groups, rest) = values.as_chunks::<8>();
    let mut acc = F::IDENTITY;
    if !groups.is_empty() {
        let mut lanes = [F::IDENTITY; 8];
        for group in groups {
            for lane in 0..8 {
                lanes[lane] = F::join(lanes[lane], F::lift(group[lane]));
            }
        }
        acc = join_lanes::<T, F, 8>(lanes);
    }
    for value in rest {
        acc = F::join(acc, F::lift(*value));
    }
    acc
}
