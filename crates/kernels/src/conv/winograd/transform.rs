//! The transforms of Winograd's minimal filtering, by vectors of channels.
//!
//! Along an axis, `m` results of a filter with `r` taps take `m + r - 1` multiplications: operand and filter are evaluated at as many
//! points, multiplied, and interpolated (Winograd, "Arithmetic Complexity of Computations", 1980; Lavin and Gray, 2015). The points are 0,
//! infinity, and two or three [`PAIRS`]: of those tried, they lose the fewest bits.

#![expect(clippy::needless_range_loop, reason = "arrays of registers, indexed alike")]

use std::mem::MaybeUninit;

use super::registers;
use crate::expr::{Changes, change};
use crate::simd::{Isa, Lanes};

/// Numbers that are points with both signs: for six points along an axis, and for eight.
const PAIRS: [[f32; 3]; 2] = [[5.0 / 8.0, 3.0 / 2.0, 0.0], [1.0 / 2.0, 1.0, 7.0 / 4.0]];
/// The most pairs.
pub(super) const MOST: usize = 3;

/// What the transforms of `P` points along an axis multiply with.
pub(super) struct At<const P: usize>;

impl<const P: usize> At<P> {
    pub(super) const COUNT: usize = P / 2 - 1;
    pub(super) const PAIRS: [f32; MOST] = PAIRS[P / 2 - 3];
    /// The product of `x * x - p * p` over all pairs `p`, by powers of `x * x`.
    pub(super) const ALL: [f32; MOST + 1] = product(&Self::PAIRS, Self::COUNT, MOST);
    /// The same without each of them.
    pub(super) const WITHOUT: [[f32; MOST + 1]; MOST] =
        [product(&Self::PAIRS, Self::COUNT, 0), product(&Self::PAIRS, Self::COUNT, 1), product(&Self::PAIRS, Self::COUNT, 2)];
    /// By the product of distances from the other finite points: what is evaluated at each pair, and at 0.
    const SCALES: [f32; MOST] =
        [scale(&Self::PAIRS, Self::COUNT, 0), scale(&Self::PAIRS, Self::COUNT, 1), scale(&Self::PAIRS, Self::COUNT, 2)];
    const ZERO: f32 = 1.0 / Self::ALL[0];
}

/// The product of `x * x - p * p` over the first `count` pairs without that one, by powers of `x * x`.
const fn product(pairs: &[f32; MOST], count: usize, without: usize) -> [f32; MOST + 1] {
    let mut made = [1.0, 0.0, 0.0, 0.0];
    let (mut pair, mut degree) = (0, 0);
    while pair < count {
        if pair != without {
            let square = pairs[pair] * pairs[pair];
            degree += 1;
            made[degree] = made[degree - 1];
            let mut power = degree - 1;
            while power > 0 {
                made[power] = made[power - 1] - square * made[power];
                power -= 1;
            }
            made[0] *= -square;
        }
        pair += 1;
    }
    made
}

/// 1 by the product of the distances of a pair's point from the other finite points.
const fn scale(pairs: &[f32; MOST], count: usize, of: usize) -> f32 {
    let square = pairs[of] * pairs[of];
    let mut made = 2.0 * square;
    let mut pair = 0;
    while pair < count {
        if pair != of {
            made *= square - pairs[pair] * pairs[pair];
        }
        pair += 1;
    }
    1.0 / made
}

/// A tile of the operand, as many positions high and wide as there are points, and where its values at the points go.
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
    /// The first tap, from row to row, and from column to column.
    pub from: *const f32,
    pub row: isize,
    pub column: isize,
    /// The rows and columns that there are; others are zeros.
    pub rows: usize,
    pub columns: usize,
    /// Elements of the vector that there are.
    pub count: usize,
    /// The first point, and from point to point.
    pub to: *mut f32,
    pub to_point: usize,
}

/// A vector of columns of sums of a filter's gradient at the points, and where the taps go.
pub(super) struct Sums {
    /// The first point, and from point to point.
    pub from: *const f32,
    pub from_point: usize,
    /// How many sums there are of each, added in their order, and from one to the next.
    pub parts: usize,
    pub from_part: usize,
    /// Elements of the vector that there are.
    pub count: usize,
    /// The first tap, and from tap to tap.
    pub to: *mut f32,
    pub tap: usize,
}

/// The evaluating code for an instruction set.
#[derive(Clone, Copy)]
pub(super) struct Transforms {
    pub operand: unsafe fn(&Operand),
    pub filter: unsafe fn(&Filter),
}

/// The interpolating code for an instruction set: of results, and of a filter's taps.
pub(super) type ResultsFn = unsafe fn(&Results<'_>);
pub(super) type SumsFn = unsafe fn(&Sums);

/// The sum of every other number from the first, times coefficients; that of the last is 1.
#[inline(always)]
unsafe fn weighed<V: Lanes, const P: usize>(d: &[V; P], first: usize, coefficients: &[f32; MOST + 1], count: usize) -> V {
    // SAFETY: the caller's promise of the instruction set.
    unsafe {
        let mut sum = d[first + 2 * count];
        for at in (0..count).rev() {
            sum = V::splat(coefficients[at]).madd(d[first + 2 * at], sum);
        }
        sum
    }
}

/// Values of `P` numbers at the points.
#[inline(always)]
pub(super) unsafe fn evaluate<V: Lanes, const P: usize>(d: [V; P]) -> [V; P] {
    let count = At::<P>::COUNT;
    // SAFETY: the caller's promise of the instruction set.
    unsafe {
        let mut made = [V::zero(); P];
        made[0] = weighed(&d, 0, &At::<P>::ALL, count);
        made[P - 1] = weighed(&d, 1, &At::<P>::ALL, count);
        for pair in 0..count {
            let (even, odd) = (weighed(&d, 2, &At::<P>::WITHOUT[pair], count - 1), weighed(&d, 1, &At::<P>::WITHOUT[pair], count - 1));
            let point = At::<P>::PAIRS[pair];
            made[1 + 2 * pair] = V::splat(point).madd(odd, even);
            made[2 + 2 * pair] = V::splat(-point).madd(odd, even);
        }
        made
    }
}

/// The first `M` coefficients of what has these values at the points; the last of them has that at infinity.
#[inline(always)]
pub(super) unsafe fn interpolate<V: Lanes, const P: usize, const M: usize>(v: [V; P]) -> [V; M] {
    let count = At::<P>::COUNT;
    // SAFETY: the caller's promise of the instruction set.
    unsafe {
        let mut made = [V::zero(); M];
        let mut powers = [1.0; MOST];
        for power in 0..M {
            let part =
                |pair: usize| if power % 2 == 0 { v[1 + 2 * pair].add(v[2 + 2 * pair]) } else { v[1 + 2 * pair].sub(v[2 + 2 * pair]) };
            let mut sum = if power == 0 { v[0] } else { V::splat(powers[count - 1]).mul(part(count - 1)) };
            if power == 0 {
                for pair in 0..count {
                    sum = sum.add(part(pair));
                }
            } else {
                for pair in (0..count - 1).rev() {
                    sum = V::splat(powers[pair]).madd(part(pair), sum);
                }
            }
            made[power] = sum;
            for pair in 0..count {
                powers[pair] *= At::<P>::PAIRS[pair];
            }
        }
        made[M - 1] = made[M - 1].add(v[P - 1]);
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
unsafe fn spread<V: Lanes, const P: usize, const R: usize>(w: [V; R]) -> [V; P] {
    // SAFETY: the caller's promise of the instruction set.
    unsafe {
        let mut made = [V::zero(); P];
        made[0] = V::splat(At::<P>::ZERO).mul(w[0]);
        for pair in 0..At::<P>::COUNT {
            (made[1 + 2 * pair], made[2 + 2 * pair]) = at(&w, At::<P>::PAIRS[pair], At::<P>::SCALES[pair]);
        }
        made[P - 1] = w[R - 1];
        made
    }
}

/// A tile that is transformed along its columns, column by column. It is written once, and not before.
struct Half<V, const Y: usize, const X: usize>(MaybeUninit<[[V; X]; Y]>);

impl<V: Lanes, const Y: usize, const X: usize> Half<V, Y, X> {
    #[inline(always)]
    fn new() -> Self {
        Half(MaybeUninit::uninit())
    }

    /// Column `x`, less than `X`.
    #[inline(always)]
    unsafe fn set(&mut self, x: usize, column: [V; Y]) {
        for y in 0..Y {
            // SAFETY: an element of the array.
            unsafe { self.0.as_mut_ptr().cast::<V>().add(y * X + x).write(column[y]) };
        }
    }

    /// The rows, when all columns are set.
    #[inline(always)]
    unsafe fn made(&self) -> &[[V; X]; Y] {
        // SAFETY: the caller's promise.
        unsafe { self.0.assume_init_ref() }
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
unsafe fn operand<V: Lanes, const P: usize>(tile: &Operand) {
    let (rows, columns) = (tile.rows, tile.columns);
    let mut channel = 0;
    while channel < tile.channels {
        let count = (tile.channels - channel).min(V::COUNT);
        // SAFETY: the caller's promise: the positions within the two ranges have so many channels, and there is room for them at
        // every point.
        unsafe {
            let mut half = Half::<V, P, P>::new();
            for x in 0..P {
                if x < columns.0 || x >= columns.1 {
                    half.set(x, [V::zero(); P]);
                    continue;
                }
                let mut d = [V::zero(); P];
                for y in 0..P {
                    // Asked of each row, such that all stay in registers.
                    if rows.0 <= y && y < rows.1 {
                        d[y] = position(tile, y, x, channel, count);
                    }
                }
                half.set(x, evaluate(d));
            }
            let half = half.made();
            for y in 0..P {
                let made = evaluate(half[y]);
                for x in 0..P {
                    let to = tile.to.add((y * P + x) * tile.to_point + channel);
                    if count == V::COUNT { made[x].store(to) } else { made[x].store_first(to, count) }
                }
            }
        }
        channel += V::COUNT;
    }
}

#[inline(always)]
unsafe fn results<V: Lanes, const P: usize, const M: usize>(tile: &Results<'_>) {
    for vector in 0..tile.vectors {
        let at = vector * V::COUNT;
        let count = if vector + 1 == tile.vectors { tile.last } else { V::COUNT };
        // SAFETY: the caller's promise: whole vectors at every point, and room for the rows and columns that there are.
        unsafe {
            let mut half = Half::<V, M, P>::new();
            for x in 0..P {
                let mut v = [V::zero(); P];
                for y in 0..P {
                    v[y] = V::load(tile.from.add((y * P + x) * tile.from_point + at));
                }
                half.set(x, interpolate::<V, P, M>(v));
            }
            let half = half.made();
            for y in 0..M.min(tile.rows) {
                let row = interpolate::<V, P, M>(half[y]);
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
unsafe fn filter<V: Lanes, const P: usize, const R: usize>(filter: &Filter) {
    // SAFETY: the caller's promise: so many elements of each tap, and room for a vector at every point.
    unsafe {
        let mut half = Half::<V, P, R>::new();
        for x in 0..R {
            if x >= filter.columns {
                half.set(x, [V::zero(); P]);
                continue;
            }
            let mut w = [V::zero(); R];
            for y in 0..R {
                if y < filter.rows {
                    let from = filter.from.wrapping_offset(y as isize * filter.row + x as isize * filter.column);
                    w[y] = if filter.count == V::COUNT { V::load(from) } else { V::load_first(from, filter.count) };
                }
            }
            half.set(x, spread::<V, P, R>(w));
        }
        let half = half.made();
        for y in 0..P {
            let made = spread::<V, P, R>(half[y]);
            for x in 0..P {
                made[x].store(filter.to.add((y * P + x) * filter.to_point));
            }
        }
    }
}

#[inline(always)]
unsafe fn sums<V: Lanes, const P: usize, const M: usize>(sums: &Sums) {
    let count = sums.count;
    // SAFETY: the caller's promise: so many elements of every sum at every point, and of each tap.
    unsafe {
        let mut half = Half::<V, M, P>::new();
        for x in 0..P {
            let mut v = [V::zero(); P];
            for y in 0..P {
                let from = sums.from.wrapping_add((y * P + x) * sums.from_point);
                let load = |part: usize| {
                    let from = from.wrapping_add(part * sums.from_part);
                    if count == V::COUNT { V::load(from) } else { V::load_first(from, count) }
                };
                v[y] = load(0);
                for part in 1..sums.parts {
                    v[y] = v[y].add(load(part));
                }
            }
            half.set(x, interpolate::<V, P, M>(v));
        }
        let half = half.made();
        for y in 0..M {
            let made = interpolate::<V, P, M>(half[y]);
            for x in 0..M {
                let to = sums.to.wrapping_add((y * M + x) * sums.tap);
                if count == V::COUNT { made[x].store(to) } else { made[x].store_first(to, count) }
            }
        }
    }
}

/// A module with the code for one instruction set.
macro_rules! code {
    ($name:ident, $vector:ty, [$($feature:meta)?]) => {
        mod $name {
            use super::{Filter, Lanes, Operand, Results, ResultsFn, Sums, SumsFn, Transforms, registers};

            $(#[$feature])?
            unsafe fn operand<const P: usize>(tile: &Operand) {
                if !registers::are_enough::<$vector>(P) {
                    // SAFETY: the caller's promise.
                    return unsafe { super::operand::<$vector, P>(tile) };
                }
                let lanes = <$vector>::COUNT;
                let has_rows = tile.rows == (0, P);
                for channel in (0..tile.channels).step_by(lanes) {
                    let count = (tile.channels - channel).min(lanes);
                    // SAFETY: the caller's promise.
                    unsafe {
                        match (has_rows, count == lanes) {
                            (true, true) => operand_vector::<P, true, true>(tile, channel, lanes),
                            (false, true) => operand_vector::<P, false, true>(tile, channel, lanes),
                            _ => operand_vector::<P, false, false>(tile, channel, count),
                        }
                    }
                }
            }

            // Not inlined: addresses would be computed for all vectors beforehand, and these are more than there are registers.
            $(#[$feature])?
            #[inline(never)]
            unsafe fn operand_vector<const P: usize, const ROWS: bool, const WHOLE: bool>(tile: &Operand, channel: usize, count: usize) {
                // SAFETY: the caller's promise.
                unsafe { registers::operand::<$vector, P, ROWS, WHOLE>(tile, channel, count) }
            }

            $(#[$feature])?
            unsafe fn results<const P: usize, const M: usize>(tile: &Results<'_>) {
                if !registers::are_enough::<$vector>(P) {
                    // SAFETY: the caller's promise.
                    return unsafe { super::results::<$vector, P, M>(tile) };
                }
                let lanes = <$vector>::COUNT;
                let is_plain = (tile.rows, tile.columns) == (M, M) && tile.changes.links.is_empty();
                for vector in 0..tile.vectors {
                    let count = if vector + 1 == tile.vectors { tile.last } else { lanes };
                    // SAFETY: the caller's promise.
                    unsafe {
                        if is_plain && count == lanes {
                            results_vector::<P, M, true>(tile, vector * lanes, lanes);
                        } else {
                            results_vector::<P, M, false>(tile, vector * lanes, count);
                        }
                    }
                }
            }

            $(#[$feature])?
            #[inline(never)]
            unsafe fn results_vector<const P: usize, const M: usize, const PLAIN: bool>(tile: &Results<'_>, at: usize, count: usize) {
                // SAFETY: the caller's promise.
                unsafe { registers::results::<$vector, P, M, PLAIN>(tile, at, count) }
            }

            $(#[$feature])?
            unsafe fn filter<const P: usize, const R: usize>(taps: &Filter) {
                // SAFETY: the caller's promise.
                unsafe { super::filter::<$vector, P, R>(taps) }
            }

            $(#[$feature])?
            unsafe fn sums<const P: usize, const M: usize>(points: &Sums) {
                // SAFETY: the caller's promise.
                unsafe { super::sums::<$vector, P, M>(points) }
            }

            pub(super) fn transforms<const P: usize, const R: usize>() -> Transforms {
                Transforms { operand: operand::<P>, filter: filter::<P, R> }
            }

            pub(super) fn results_of<const P: usize, const M: usize>() -> ResultsFn {
                results::<P, M>
            }

            pub(super) fn sums_of<const P: usize, const M: usize>() -> SumsFn {
                sums::<P, M>
            }
        }
    };
}

code!(portable, crate::simd::Four, []);
#[cfg(target_arch = "x86_64")]
code!(avx2, std::arch::x86_64::__m256, [target_feature(enable = "avx2,fma")]);
#[cfg(target_arch = "x86_64")]
code!(avx512, std::arch::x86_64::__m512, [target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]);

/// Calls a function of the module for `$isa`.
macro_rules! on {
    ($isa:expr, $($call:tt)+) => {
        match $isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => avx512::$($call)+(),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => avx2::$($call)+(),
            _ => portable::$($call)+(),
        }
    };
}

/// The code for `isa` that evaluates filters of so many taps along each axis at so many points, where there is any.
pub(super) fn transforms(isa: Isa, points: usize, taps: usize) -> Option<Transforms> {
    match (points, taps) {
        (6, 2) => Some(on!(isa, transforms::<6, 2>)),
        (6, 3) => Some(on!(isa, transforms::<6, 3>)),
        (6, 4) => Some(on!(isa, transforms::<6, 4>)),
        (6, 5) => Some(on!(isa, transforms::<6, 5>)),
        (8, 4) => Some(on!(isa, transforms::<8, 4>)),
        (8, 5) => Some(on!(isa, transforms::<8, 5>)),
        _ => None,
    }
}

/// The code for `isa` that makes the results of a filter of so many taps, where there is any.
pub(super) fn results_of(isa: Isa, points: usize, taps: usize) -> Option<ResultsFn> {
    match (points, taps) {
        (6, 3) => Some(on!(isa, results_of::<6, 4>)),
        (6, 5) => Some(on!(isa, results_of::<6, 2>)),
        (8, 5) => Some(on!(isa, results_of::<8, 4>)),
        _ => None,
    }
}

/// The code for `isa` that makes so many taps of a filter's gradient, where there is any.
pub(super) fn sums_of(isa: Isa, points: usize, taps: usize) -> Option<SumsFn> {
    match (points, taps) {
        (6, 3) => Some(on!(isa, sums_of::<6, 3>)),
        (6, 5) => Some(on!(isa, sums_of::<6, 5>)),
        (8, 5) => Some(on!(isa, sums_of::<8, 5>)),
        _ => None,
    }
}
