//! The innermost code of the product: tiles of C that stay in registers.

#![expect(clippy::needless_range_loop, reason = "arrays of registers, indexed alike")]

use crate::element::InFloats;
use crate::expr::{Changes, change};
use crate::simd::{Four, Isa, Lanes};

/// A tile of C and its operands. Distances are in elements.
pub(super) struct Tile<'a> {
    /// How many terms.
    pub k: usize,
    /// The first row of A.
    pub a: *const f32,
    /// From row to row of A.
    pub a_row: usize,
    /// From term to term of A.
    pub a_term: usize,
    /// The first term's row of B.
    pub b: *const f32,
    /// From term to term of B.
    pub b_term: usize,
    /// The first row of C.
    pub c: *mut f32,
    /// From row to row of C.
    pub c_row: usize,
    /// How many columns of the last vector there are.
    pub last: usize,
    /// Whether C is added to, not written.
    pub add: bool,
    /// How the results are changed before they are written.
    pub changes: Changes<'a>,
}

pub(super) type TileFn = unsafe fn(&Tile<'_>);
/// `(k, x, y, y_row, rows, out)`: the products of the vector `x` with `rows` rows.
pub(super) type DotFn<E> = unsafe fn(usize, *const E, *const E, usize, usize, *mut f32);

/// The most rows and vectors that a tile has.
pub(super) const ROWS: usize = 6;
pub(super) const VECTORS: usize = 4;

/// The code for an instruction set.
pub(super) struct Code {
    /// Elements of a vector.
    pub lanes: usize,
    /// Most rows of a tile here.
    pub rows: usize,
    /// Most vectors of a tile here.
    pub vectors: usize,
    /// Tiles of `[rows - 1][vectors - 1]`; B has whole vectors.
    pub packed: [[Option<TileFn>; VECTORS]; ROWS],
    /// The same, for B that ends within the last vector.
    pub direct: [[Option<TileFn>; VECTORS]; ROWS],
}

/// The code for `isa`.
pub(super) fn code(isa: Isa) -> &'static Code {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => &avx512::CODE,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => &avx2::CODE,
        _ => &portable::CODE,
    }
}

/// The code for `isa` that multiplies one row with many.
pub(super) fn dot_of<E: InFloats>(isa: Isa) -> DotFn<E> {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => avx512::dot::<E>,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => avx2::dot::<E>,
        _ => portable::dot::<E>,
    }
}

#[inline(always)]
unsafe fn tile<V: Lanes, const M: usize, const N: usize, const DIRECT: bool>(tile: &Tile<'_>) {
    // SAFETY: the caller's promise. There are `k` terms of `M` rows of A, and as many rows of B with `N` vectors (of which the last
    // has `last` elements if `DIRECT`). There is a tile of C.
    unsafe {
        let mut sums = [[V::zero(); N]; M];
        let (mut a, mut b) = (tile.a, tile.b);
        let (a_row, last) = (tile.a_row, tile.last);
        for _ in 0..tile.k {
            let mut columns = [V::zero(); N];
            for v in 0..N {
                let from = b.add(v * V::COUNT);
                columns[v] = if DIRECT && v + 1 == N { V::load_first(from, last) } else { V::load(from) };
            }
            for r in 0..M {
                let x = V::splat(a.add(r * a_row).read());
                for v in 0..N {
                    sums[r][v] = x.madd(columns[v], sums[r][v]);
                }
            }
            a = a.wrapping_add(tile.a_term);
            b = b.wrapping_add(tile.b_term);
        }
        let to = |r: usize, v: usize| tile.c.wrapping_add(r * tile.c_row + v * V::COUNT);
        if tile.add {
            for r in 0..M {
                for v in 0..N {
                    let there = if v + 1 == N && last < V::COUNT { V::load_first(to(r, v), last) } else { V::load(to(r, v)) };
                    sums[r][v] = there.add(sums[r][v]);
                }
            }
        }
        change!(V, sums, tile.changes, M, tile.c_row, last);
        for r in 0..M {
            for v in 0..N {
                if v + 1 == N && last < V::COUNT {
                    sums[r][v].store_first(to(r, v), last);
                } else {
                    sums[r][v].store(to(r, v));
                }
            }
        }
    }
}

/// The sum of all elements, always in the same order.
#[inline(always)]
unsafe fn total<V: Lanes>(vector: V) -> f32 {
    let mut elements = [0f32; 16];
    // SAFETY: a vector has at most 16 elements.
    unsafe { vector.store(elements.as_mut_ptr()) };
    let mut half = V::COUNT / 2;
    while half > 0 {
        for at in 0..half {
            elements[at] += elements[at + half];
        }
        half /= 2;
    }
    elements[0]
}

#[inline(always)]
unsafe fn dot<V: Lanes, E: InFloats>(k: usize, x: *const E, y: *const E, y_row: usize, rows: usize, out: *mut f32) {
    const TOGETHER: usize = 4;
    let (whole, rest) = (k / V::COUNT * V::COUNT, k % V::COUNT);
    let mut row = 0;
    // SAFETY: the caller's promise: `k` elements at `x` and in each of `rows` rows, room for `rows` sums. In the last
    // group a row may be counted more than once; its sum is written once.
    unsafe {
        while row < rows {
            let mut pointers = [y; TOGETHER];
            for (at, pointer) in pointers.iter_mut().enumerate() {
                *pointer = y.add((row + at).min(rows - 1) * y_row);
            }
            // Two sums a row: more additions under way at once.
            let mut sums = [[V::zero(); 2]; TOGETHER];
            let mut at = 0;
            while at + 2 * V::COUNT <= whole {
                let (x0, x1) = (E::load::<V>(x.add(at)), E::load::<V>(x.add(at + V::COUNT)));
                for r in 0..TOGETHER {
                    sums[r][0] = x0.madd(E::load::<V>(pointers[r].add(at)), sums[r][0]);
                    sums[r][1] = x1.madd(E::load::<V>(pointers[r].add(at + V::COUNT)), sums[r][1]);
                }
                at += 2 * V::COUNT;
            }
            if at < whole {
                let x0 = E::load::<V>(x.add(at));
                for r in 0..TOGETHER {
                    sums[r][0] = x0.madd(E::load::<V>(pointers[r].add(at)), sums[r][0]);
                }
            }
            if rest > 0 {
                let x0 = E::load_first::<V>(x.add(whole), rest);
                for r in 0..TOGETHER {
                    sums[r][1] = x0.madd(E::load_first::<V>(pointers[r].add(whole), rest), sums[r][1]);
                }
            }
            for r in 0..TOGETHER.min(rows - row) {
                out.add(row + r).write(total(sums[r][0].add(sums[r][1])));
            }
            row += TOGETHER;
        }
    }
}

/// A module with the code for one instruction set. `masked` says whether tiles of whole vectors load the last one through a mask as well:
/// where masks have registers of their own, that costs nothing, and the compiler keeps all sums of the largest tile in registers.
macro_rules! code {
    ($name:ident, $vector:ty, [$($feature:meta)?], masked $masked:literal, rows $rows:literal, vectors $vectors:literal, [$(($r:literal, [$($v:literal),*])),*]) => {
        mod $name {
            use super::*;

            $(#[$feature])?
            unsafe fn packed<const M: usize, const N: usize>(tile: &Tile<'_>) {
                // SAFETY: the caller's promise.
                unsafe { super::tile::<$vector, M, N, $masked>(tile) }
            }

            $(#[$feature])?
            unsafe fn direct<const M: usize, const N: usize>(tile: &Tile<'_>) {
                // SAFETY: the caller's promise.
                unsafe { super::tile::<$vector, M, N, true>(tile) }
            }

            $(#[$feature])?
            pub(super) unsafe fn dot<E: InFloats>(k: usize, x: *const E, y: *const E, y_row: usize, rows: usize, out: *mut f32) {
                // SAFETY: the caller's promise.
                unsafe { super::dot::<$vector, E>(k, x, y, y_row, rows, out) }
            }

            pub(super) static CODE: Code = {
                let mut code = Code {
                    lanes: <$vector as Lanes>::COUNT,
                    rows: $rows,
                    vectors: $vectors,
                    packed: [[None; VECTORS]; ROWS],
                    direct: [[None; VECTORS]; ROWS],
                };
                $($(
                    code.packed[$r - 1][$v - 1] = Some(packed::<$r, $v>);
                    code.direct[$r - 1][$v - 1] = Some(direct::<$r, $v>);
                )*)*
                code
            };
        }
    };
}

code!(portable, Four, [], masked false, rows 4, vectors 2, [(1, [1, 2]), (2, [1, 2]), (3, [1, 2]), (4, [1, 2])]);
#[cfg(target_arch = "x86_64")]
code!(
    avx2,
    std::arch::x86_64::__m256,
    [target_feature(enable = "avx2,fma")],
    masked false,
    rows 6,
    vectors 2,
    [(1, [1, 2]), (2, [1, 2]), (3, [1, 2]), (4, [1, 2]), (5, [1, 2]), (6, [1, 2])]
);
#[cfg(target_arch = "x86_64")]
code!(
    avx512,
    std::arch::x86_64::__m512,
    [target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")],
    masked true,
    rows 6,
    vectors 4,
    [(1, [1, 2, 3, 4]), (2, [1, 2, 3, 4]), (3, [1, 2, 3, 4]), (4, [1, 2, 3, 4]), (5, [1, 2, 3, 4]), (6, [1, 2, 3, 4])]
);
