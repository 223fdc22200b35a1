//! The transforms of Winograd's minimal filtering, by vectors of channels.
//!
//! Along an axis, `m` results of a filter with `r` taps take `m + r - 1` = [`POINTS`] multiplications: operand and filter are
//! evaluated at as many points, multiplied, and interpolated (Winograd, "Arithmetic Complexity of Computations", 1980; Lavin and
//! Gray, 2015). The points are 0, ±[`NEAR`], ±[`FAR`] and infinity: of those tried, they lose the fewest bits.

#![expect(clippy::needless_range_loop, reason = "arrays of registers, indexed alike")]

use crate::expr::{Changes, change};
use crate::simd::{Isa, Lanes};

/// Numbers of an operand's tile along an axis, and points at which they are evaluated.
pub(super) const POINTS: usize = 6;
/// Points of a tile of two axes.
pub(super) const PLANES: usize = POINTS * POINTS;

const NEAR: f32 = 5.0 / 8.0;
const FAR: f32 = 3.0 / 2.0;
const NEAR2: f32 = NEAR * NEAR;
const FAR2: f32 = FAR * FAR;
const BOTH: f32 = NEAR2 * FAR2;
const SUM: f32 = NEAR2 + FAR2;

/// A tile of the operand, `POINTS` positions high and wide, and where its values at the points go.
pub(super) struct Operand {
    /// The first position's first channel, were it there.
    pub from: *const f32,
    /// From row to row, and from column to column.
    pub row: usize,
    pub column: usize,
    /// The rows and columns that there are; others are zeros.
    pub rows: (usize, usize),
    pub columns: (usize, usize),
    pub channels: usize,
    /// The first point, and from point to point.
    pub to: *mut f32,
    pub to_point: usize,
}

/// Values of a tile of results at the points, and where the results go.
pub(super) struct Results<'a> {
    /// The first point, and from point to point.
    pub from: *const f32,
    pub from_point: usize,
    /// The first result, from row to row, and from column to column.
    pub to: *mut f32,
    pub row: usize,
    pub column: usize,
    /// The rows and columns that there are.
    pub rows: usize,
    pub columns: usize,
    /// Vectors of channels, and the elements of the last.
    pub vectors: usize,
    pub last: usize,
    /// How results are changed before they are written. They lie in the result then.
    pub changes: Changes<'a>,
}

/// A vector of channels of all taps of a filter, and where its values at the points go.
pub(super) struct Filter {
    /// The first tap, and from tap to tap.
    pub from: *const f32,
    pub tap: isize,
    /// Elements of the vector that there are.
    pub count: usize,
    /// The first point, and from point to point.
    pub to: *mut f32,
    pub to_point: usize,
}

/// The code for an instruction set.
#[derive(Clone, Copy)]
pub(super) struct Transforms {
    pub operand: unsafe fn(&Operand),
    pub results: unsafe fn(&Results),
    pub filter: unsafe fn(&Filter),
}

/// Values of six numbers at the points.
#[inline(always)]
unsafe fn evaluate<V: Lanes>(d: [V; POINTS]) -> [V; POINTS] {
    // SAFETY: the caller's promise of the instruction set.
    unsafe {
        let [d0, d1, d2, d3, d4, d5] = d;
        let zero = V::splat(BOTH).madd(d0, V::splat(-SUM).madd(d2, d4));
        let infinity = V::splat(BOTH).madd(d1, V::splat(-SUM).madd(d3, d5));
        let (even, odd) = (V::splat(-FAR2).madd(d2, d4), V::splat(-FAR2).madd(d1, d3));
        let near = (V::splat(NEAR).madd(odd, even), V::splat(-NEAR).madd(odd, even));
        let (even, odd) = (V::splat(-NEAR2).madd(d2, d4), V::splat(-NEAR2).madd(d1, d3));
        let far = (V::splat(FAR).madd(odd, even), V::splat(-FAR).madd(odd, even));
        [zero, near.0, near.1, far.0, far.1, infinity]
    }
}

/// The first `M` coefficients of what has these values at the points; the last of them has that at infinity.
#[inline(always)]
unsafe fn interpolate<V: Lanes, const M: usize>(v: [V; POINTS]) -> [V; M] {
    // SAFETY: the caller's promise of the instruction set.
    unsafe {
        let mut made = [V::zero(); M];
        let (near_even, near_odd) = (v[1].add(v[2]), v[1].sub(v[2]));
        let (far_even, far_odd) = (v[3].add(v[4]), v[3].sub(v[4]));
        let (mut near, mut far) = (1.0, 1.0);
        for power in 0..M {
            let (near_part, far_part) = if power % 2 == 0 { (near_even, far_even) } else { (near_odd, far_odd) };
            made[power] = match power {
                0 => v[0].add(near_part).add(far_part),
                _ => V::splat(near).madd(near_part, V::splat(far).mul(far_part)),
            };
            (near, far) = (near * NEAR, far * FAR);
        }
        made[M - 1] = made[M - 1].add(v[5]);
        made
    }
}

/// A filter of `R` taps at a point and its opposite, times `scale`.
#[inline(always)]
unsafe fn at<V: Lanes, const R: usize>(w: &[V; R], point: f32, scale: f32) -> (V, V) {
    // SAFETY: the caller's promise of the instruction set.
    unsafe {
        let (mut even, mut odd) = (V::zero(), V::zero());
        let mut power = scale;
        for tap in 0..R {
            if tap % 2 == 0 {
                even = V::splat(power).madd(w[tap], even);
            } else {
                odd = V::splat(power).madd(w[tap], odd);
            }
            power *= point;
        }
        (even.add(odd), even.sub(odd))
    }
}

/// A filter of `R` taps at the points, each divided by the product of its distances from the other finite points.
#[inline(always)]
unsafe fn spread<V: Lanes, const R: usize>(w: [V; R]) -> [V; POINTS] {
    // SAFETY: the caller's promise of the instruction set.
    unsafe {
        let near = at(&w, NEAR, 1.0 / (2.0 * NEAR2 * (NEAR2 - FAR2)));
        let far = at(&w, FAR, 1.0 / (2.0 * FAR2 * (FAR2 - NEAR2)));
        [V::splat(1.0 / BOTH).mul(w[0]), near.0, near.1, far.0, far.1, w[R - 1]]
    }
}

/// Channels of a position, filled up with zeros.
#[inline(always)]
unsafe fn position<V: Lanes>(tile: &Operand, y: usize, x: usize, channel: usize, count: usize) -> V {
    let from = tile.from.wrapping_add(y * tile.row + x * tile.column + channel);
    // SAFETY: the caller's promise: the position has so many channels.
    unsafe { if count == V::COUNT { V::load(from) } else { V::load_first(from, count) } }
}

#[inline(always)]
unsafe fn operand<V: Lanes>(tile: &Operand) {
    let (rows, columns) = (tile.rows, tile.columns);
    let mut channel = 0;
    while channel < tile.channels {
        let count = (tile.channels - channel).min(V::COUNT);
        // SAFETY: the caller's promise: the positions within the two ranges have so many channels, and there is room for them at
        // every point.
        unsafe {
            let mut half = [[V::zero(); POINTS]; POINTS];
            for x in columns.0..columns.1 {
                let mut d = [V::zero(); POINTS];
                if rows == (0, POINTS) {
                    for y in 0..POINTS {
                        d[y] = position(tile, y, x, channel, count);
                    }
                } else {
                    for y in rows.0..rows.1 {
                        d[y] = position(tile, y, x, channel, count);
                    }
                }
                let made = evaluate(d);
                for y in 0..POINTS {
                    half[y][x] = made[y];
                }
            }
            for y in 0..POINTS {
                let made = evaluate(half[y]);
                for x in 0..POINTS {
                    let to = tile.to.add((y * POINTS + x) * tile.to_point + channel);
                    if count == V::COUNT { made[x].store(to) } else { made[x].store_first(to, count) }
                }
            }
        }
        channel += V::COUNT;
    }
}

#[inline(always)]
unsafe fn results<V: Lanes, const M: usize>(tile: &Results<'_>) {
    for vector in 0..tile.vectors {
        let at = vector * V::COUNT;
        let count = if vector + 1 == tile.vectors { tile.last } else { V::COUNT };
        // SAFETY: the caller's promise: whole vectors at every point, and room for the rows and columns that there are.
        unsafe {
            let mut half = [[V::zero(); POINTS]; M];
            for x in 0..POINTS {
                let mut v = [V::zero(); POINTS];
                for y in 0..POINTS {
                    v[y] = V::load(tile.from.add((y * POINTS + x) * tile.from_point + at));
                }
                let made = interpolate::<V, M>(v);
                for y in 0..M {
                    half[y][x] = made[y];
                }
            }
            for y in 0..M.min(tile.rows) {
                let row = interpolate::<V, M>(half[y]);
                let mut made = [[V::zero(); 1]; M];
                for x in 0..M {
                    made[x][0] = row[x];
                }
                let Changes { links, element, column } = tile.changes;
                let changes = Changes { links, element: element + y * tile.row + at, column: column + at };
                change!(V, made, changes, tile.columns, tile.column, count);
                for x in 0..M {
                    if x < tile.columns {
                        let to = tile.to.add(y * tile.row + x * tile.column + at);
                        if count == V::COUNT { made[x][0].store(to) } else { made[x][0].store_first(to, count) }
                    }
                }
            }
        }
    }
}

#[inline(always)]
unsafe fn filter<V: Lanes, const R: usize>(filter: &Filter) {
    // SAFETY: the caller's promise: so many elements of each tap, and room for a vector at every point.
    unsafe {
        let mut half = [[V::zero(); R]; POINTS];
        for x in 0..R {
            let mut w = [V::zero(); R];
            for y in 0..R {
                let from = filter.from.wrapping_offset((y * R + x) as isize * filter.tap);
                w[y] = if filter.count == V::COUNT { V::load(from) } else { V::load_first(from, filter.count) };
            }
            let made = spread::<V, R>(w);
            for y in 0..POINTS {
                half[y][x] = made[y];
            }
        }
        for y in 0..POINTS {
            let made = spread::<V, R>(half[y]);
            for x in 0..POINTS {
                made[x].store(filter.to.add((y * POINTS + x) * filter.to_point));
            }
        }
    }
}

/// A module with the code for one instruction set.
macro_rules! code {
    ($name:ident, $vector:ty, [$($feature:meta)?]) => {
        mod $name {
            use super::{Filter, Operand, Results, Transforms};

            $(#[$feature])?
            unsafe fn operand(tile: &Operand) {
                // SAFETY: the caller's promise.
                unsafe { super::operand::<$vector>(tile) }
            }

            $(#[$feature])?
            unsafe fn results<const M: usize>(tile: &Results<'_>) {
                // SAFETY: the caller's promise.
                unsafe { super::results::<$vector, M>(tile) }
            }

            $(#[$feature])?
            unsafe fn filter<const R: usize>(taps: &Filter) {
                // SAFETY: the caller's promise.
                unsafe { super::filter::<$vector, R>(taps) }
            }

            pub(super) fn of<const M: usize, const R: usize>() -> Transforms {
                Transforms { operand, results: results::<M>, filter: filter::<R> }
            }
        }
    };
}

code!(portable, crate::simd::Four, []);
#[cfg(target_arch = "x86_64")]
code!(avx2, std::arch::x86_64::__m256, [target_feature(enable = "avx2,fma")]);
#[cfg(target_arch = "x86_64")]
code!(avx512, std::arch::x86_64::__m512, [target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]);

fn of<const M: usize, const R: usize>(isa: Isa) -> Transforms {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => avx512::of::<M, R>(),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => avx2::of::<M, R>(),
        _ => portable::of::<M, R>(),
    }
}

/// The code for `isa` and a filter of so many taps along each axis, where there is any.
pub(super) fn transforms(isa: Isa, taps: usize) -> Option<Transforms> {
    match taps {
        3 => Some(of::<4, 3>(isa)),
        5 => Some(of::<2, 5>(isa)),
        _ => None,
    }
}
