//! The copy where the input is contiguous along another dimension than the output: in square tiles, so that every cache
//! line that is fetched is used up.

use std::marker::PhantomData;
use std::ops::Range;

use plimsoll_device::{Args, CpuKernel, Fault};

use super::Bits;
use super::strided::{Dim, Walk};
use crate::cut::Cut;
use crate::simd::Isa;

/// A tile has as many rows and columns: a cache line of 4-byte elements.
const TILE: usize = 16;

/// Tiles that a unit of work holds along the output's dimension.
const TILES_PER_UNIT: usize = 8;

/// Copies with tiles over `along_input` (step 1 in the input) and `along_output` (step 1 in the output).
#[derive(Debug)]
pub(super) struct Transposed<T> {
    outer: Vec<Dim>,
    along_input: Dim,
    along_output: Dim,
    start: isize,
    cut: Cut,
    isa: Isa,
    marker: PhantomData<T>,
}

impl<T: Bits> Transposed<T> {
    /// Where the copy is one of these.
    pub(super) fn new(isa: Isa, dims: &[Dim], start: isize) -> Option<Transposed<T>> {
        let (along_output, outer) = dims.split_last()?;
        let place = outer.iter().position(|dim| dim.from == 1)?;
        if matches!(along_output.from, 0 | 1) || dims.iter().any(|dim| dim.size == 0) {
            return None;
        }
        let mut outer = outer.to_vec();
        let along_input = outer.remove(place);
        let mut kernel =
            Transposed { outer, along_input, along_output: *along_output, start, cut: Cut::whole(0), isa, marker: PhantomData };
        let places: usize = kernel.outer.iter().map(|dim| dim.size).product();
        kernel.cut = Cut::new(places * kernel.units_per_place(), (2 * TILE * TILE * TILES_PER_UNIT * size_of::<T>()) as u64, 1);
        Some(kernel)
    }

    pub(super) fn pieces(&self) -> u32 {
        self.cut.pieces()
    }

    /// Units along the output, which follow each other faster, and along the input.
    fn units(&self) -> (usize, usize) {
        (self.along_output.size.div_ceil(TILE * TILES_PER_UNIT), self.along_input.size.div_ceil(TILE))
    }

    fn units_per_place(&self) -> usize {
        let (output, input) = self.units();
        output * input
    }
}

impl<T: Bits> CpuKernel for Transposed<T> {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        let (from, to) = (args.pointers[0].cast::<T>().cast_const(), args.pointers[1].cast::<T>());
        let (units_along_output, _) = self.units();
        let (mut place, mut walk) = (usize::MAX, Walk::at(&self.outer, 0));
        for unit in self.cut.units(chunks) {
            let (at, unit) = (unit / self.units_per_place(), unit % self.units_per_place());
            if at != place {
                (place, walk) = (at, Walk::at(&self.outer, at));
            }
            let p = unit / units_along_output * TILE;
            let ps = TILE.min(self.along_input.size - p);
            let first = unit % units_along_output * TILE * TILES_PER_UNIT;
            let last = (first + TILE * TILES_PER_UNIT).min(self.along_output.size);
            for q in (first..last).step_by(TILE) {
                let tile = Tile { rows: ps, columns: TILE.min(last - q), from: self.along_output.from, to: self.along_input.to };
                // SAFETY: the dimensions describe elements of the input and the output (checked when the copy was
                // prepared), and different tiles write different ones.
                unsafe {
                    let from = from.offset(self.start + walk.from + p as isize + q as isize * self.along_output.from);
                    let to = to.offset(walk.to + q as isize + p as isize * self.along_input.to);
                    tile.copy(self.isa, from, to);
                }
            }
        }
        Ok(())
    }
}

/// `to[row * to_step + column] = from[column * from_step + row]`.
struct Tile {
    rows: usize,
    columns: usize,
    from: isize,
    to: isize,
}

impl Tile {
    /// # Safety
    /// All elements of the tile lie in the input and in the output.
    #[inline(always)]
    unsafe fn copy<T: Bits>(&self, isa: Isa, from: *const T, to: *mut T) {
        #[cfg(target_arch = "x86_64")]
        if size_of::<T>() == 4 && isa >= Isa::Avx2 && self.rows == TILE && self.columns == TILE {
            // SAFETY: the processor has AVX2 (it was asked when the kernel was prepared), and the tile is whole.
            return unsafe { avx2::tile(from.cast(), self.from, to.cast(), self.to) };
        }
        let _ = isa;
        for row in 0..self.rows as isize {
            for column in 0..self.columns as isize {
                // SAFETY: as the caller promises.
                unsafe { *to.offset(row * self.to + column) = *from.offset(column * self.from + row) };
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    /// Transposes 16 x 16 elements of 4 bytes.
    ///
    /// # Safety
    /// All elements of the tile lie in the input and in the output.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn tile(from: *const f32, from_step: isize, to: *mut f32, to_step: isize) {
        for half in [0, 8] {
            for other in [0, 8] {
                // SAFETY: a quarter of the tile.
                unsafe { eight(from.offset(half * from_step + other), from_step, to.offset(other * to_step + half), to_step) };
            }
        }
    }

    /// # Safety
    /// As [`tile`], with 8 x 8 elements.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn eight(from: *const f32, from_step: isize, to: *mut f32, to_step: isize) {
        // SAFETY: the caller promises that the elements exist.
        let row = |number: isize| unsafe { _mm256_loadu_ps(from.offset(number * from_step)) };
        let rows = [row(0), row(1), row(2), row(3), row(4), row(5), row(6), row(7)];
        let mut pairs = rows;
        for n in 0..4 {
            pairs[2 * n] = _mm256_unpacklo_ps(rows[2 * n], rows[2 * n + 1]);
            pairs[2 * n + 1] = _mm256_unpackhi_ps(rows[2 * n], rows[2 * n + 1]);
        }
        let mut fours = pairs;
        for n in 0..2 {
            fours[4 * n] = _mm256_shuffle_ps::<0x44>(pairs[4 * n], pairs[4 * n + 2]);
            fours[4 * n + 1] = _mm256_shuffle_ps::<0xEE>(pairs[4 * n], pairs[4 * n + 2]);
            fours[4 * n + 2] = _mm256_shuffle_ps::<0x44>(pairs[4 * n + 1], pairs[4 * n + 3]);
            fours[4 * n + 3] = _mm256_shuffle_ps::<0xEE>(pairs[4 * n + 1], pairs[4 * n + 3]);
        }
        for n in 0..4 {
            let low = _mm256_permute2f128_ps::<0x20>(fours[n], fours[n + 4]);
            let high = _mm256_permute2f128_ps::<0x31>(fours[n], fours[n + 4]);
            // SAFETY: the caller promises that the elements exist.
            unsafe {
                _mm256_storeu_ps(to.offset(n as isize * to_step), low);
                _mm256_storeu_ps(to.offset((n + 4) as isize * to_step), high);
            }
        }
    }
}
