//! Copies of operands as tiles of products and convolutions read them: floats, in whole vectors. Numbers of other types are widened on
//! the way.

use plimsoll_base::Panels;

use crate::element::InFloats;
use crate::simd::{Four, Isa, Lanes};

/// How a matrix of constants lies: the filter of a convolution, or the right operand of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Row by row.
    Rows,
    /// In the panels that [`panels_of`] says, without gaps.
    Panels,
}

/// The panels in which products and convolutions read a matrix of so many columns. None where they are one: that is row by row.
pub(crate) fn panels_of(isa: Isa, columns: u64) -> Option<Panels> {
    let (lanes, vectors) = match isa {
        Isa::Portable => (4, 2),
        Isa::Avx2 => (8, 2),
        Isa::Avx512 => (16, 4),
    };
    (columns > u64::from(lanes * vectors)).then_some(Panels { columns, lanes, vectors })
}

/// `(from, from_row, rows, vectors, last, to)`: copies so many vectors of each row, the last of them filled up with zeros.
pub(crate) type CopyFn<E> = unsafe fn(*const E, usize, usize, usize, usize, *mut f32);
/// `(from, from_row, terms, rows, tiles, to)`: cuts `rows` elements of each term into tiles, as [`part`] does. It puts the terms of a
/// tile one after the other, tile by tile.
pub(crate) type GatherFn<E> = unsafe fn(*const E, usize, usize, usize, usize, *mut f32);
/// See [`Lanes::transpose`].
pub(crate) type TransposeFn<E> = unsafe fn(*const E, usize, usize, usize, *mut f32, usize);

/// The code for an instruction set.
pub(crate) struct Packing<E> {
    /// Copies rows.
    pub copy: CopyFn<E>,
    /// Copies rows that lie as columns, for tiles of a few rows.
    pub gather: GatherFn<E>,
    /// Copies columns that lie as rows.
    pub transpose: TransposeFn<E>,
}

impl<E> Clone for Packing<E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E> Copy for Packing<E> {}

/// The code for `isa`.
pub(crate) fn packing<E: InFloats>(isa: Isa) -> Packing<E> {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => avx512::packing(),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => avx2::packing(),
        _ => portable::packing(),
    }
}

/// Part `number` of `count` that `all` is divided into as evenly as can be.
pub(crate) fn part(all: usize, count: usize, number: usize) -> std::ops::Range<usize> {
    let (each, more) = (all / count, all % count);
    let start = number * each + number.min(more);
    start..start + each + usize::from(number < more)
}

#[inline(always)]
unsafe fn copy<V: Lanes, E: InFloats>(from: *const E, from_row: usize, rows: usize, vectors: usize, last: usize, to: *mut f32) {
    let mut to = to;
    for row in 0..rows {
        // SAFETY: the caller's promise: the elements are there, and room for whole vectors.
        unsafe {
            let from = from.add(row * from_row);
            for v in 0..vectors - 1 {
                E::load::<V>(from.add(v * V::COUNT)).store(to.add(v * V::COUNT));
            }
            let at = (vectors - 1) * V::COUNT;
            E::load_first::<V>(from.add(at), last).store(to.add(at));
            to = to.add(at + V::COUNT);
        }
    }
}

#[inline(always)]
unsafe fn gather<V: Lanes, E: InFloats>(from: *const E, from_row: usize, terms: usize, rows: usize, tiles: usize, to: *mut f32) {
    let (each, more) = (rows / tiles, rows % tiles);
    for term in 0..terms {
        let (mut from, mut to) = (from.wrapping_add(term * from_row), to);
        for tile in 0..tiles {
            let count = each + usize::from(tile < more);
            // SAFETY: the caller's promise: `rows` elements in each term, room for `rows * terms`. No tile has more rows
            // than a vector has elements.
            unsafe {
                E::load_first::<V>(from, count).store_first(to.add(term * count), count);
                from = from.add(count);
                to = to.add(count * terms);
            }
        }
    }
}

/// A module with the code for one instruction set.
macro_rules! code {
    ($name:ident, $vector:ty, [$($feature:meta)?]) => {
        mod $name {
            use super::{InFloats, Packing};

            $(#[$feature])?
            unsafe fn copy<E: InFloats>(from: *const E, from_row: usize, rows: usize, vectors: usize, last: usize, to: *mut f32) {
                // SAFETY: the caller's promise.
                unsafe { super::copy::<$vector, E>(from, from_row, rows, vectors, last, to) }
            }

            $(#[$feature])?
            unsafe fn gather<E: InFloats>(from: *const E, from_row: usize, terms: usize, rows: usize, tiles: usize, to: *mut f32) {
                // SAFETY: the caller's promise.
                unsafe { super::gather::<$vector, E>(from, from_row, terms, rows, tiles, to) }
            }

            $(#[$feature])?
            unsafe fn transpose<E: InFloats>(from: *const E, from_row: usize, rows: usize, columns: usize, to: *mut f32, to_row: usize) {
                // SAFETY: the caller's promise.
                unsafe { E::transpose::<$vector>(from, from_row, rows, columns, to, to_row) }
            }

            pub(super) fn packing<E: InFloats>() -> Packing<E> {
                Packing { copy: copy::<E>, gather: gather::<E>, transpose: transpose::<E> }
            }
        }
    };
}

code!(portable, super::Four, []);
#[cfg(target_arch = "x86_64")]
code!(avx2, std::arch::x86_64::__m256, [target_feature(enable = "avx2,fma")]);
#[cfg(target_arch = "x86_64")]
code!(avx512, std::arch::x86_64::__m512, [target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]);
