//! The innermost code of convolutions: tiles of sums that stay in registers.

#![expect(clippy::needless_range_loop, reason = "arrays of registers, indexed alike")]

use std::cell::Cell;

use crate::expr::{Changes, change};
use crate::packing::part;
use crate::simd::{Four, Isa, Lanes};

/// A tile of results and its operands: `outer` rounds of `inner` terms, each a number for every row times a row of B. Distances are
/// in elements.
pub(super) struct Tile<'a> {
    /// Rounds; none makes zeros.
    pub outer: usize,
    /// Terms of a round.
    pub inner: usize,
    /// The first row's first number.
    pub a: *const f32,
    /// From row to row.
    pub a_rows: Rows,
    /// From term to term, from round to round.
    pub a_term: usize,
    pub a_outer: usize,
    /// The first term's row of B.
    pub b: *const f32,
    /// From term to term, from round to round.
    pub b_term: usize,
    pub b_outer: usize,
    /// The first row of results.
    pub c: *mut f32,
    /// From row to row of the results.
    pub c_row: usize,
    /// How many elements of the last vector there are.
    pub last: usize,
    /// Whether the results are added to, not written. Without rounds they stay.
    pub add: bool,
    /// How the results are changed before they are written.
    pub changes: Changes<'a>,
    /// The numbers that are wanted soon.
    pub ahead: Ahead,
    /// Whether the results' lines are asked for before the sums are made.
    pub fetches: bool,
}

/// Numbers that a tile asks for while it computes: a line for each of its terms. What comes from beyond the second cache is there then when
/// its turn comes.
#[derive(Clone, Copy)]
pub(super) struct Ahead {
    /// The first.
    pub start: *const f32,
    /// From term to term, in elements; 0 asks for nothing.
    pub term: usize,
}

impl Ahead {
    /// Nothing.
    pub const NONE: Ahead = Ahead { start: std::ptr::null(), term: 0 };
}

/// Rows of B that are wanted soon, of which tiles ask for a part each.
pub(super) struct Wanted {
    /// The first row, and from row to row.
    pub start: *const f32,
    pub term: usize,
    pub rows: usize,
    /// Lines of a row.
    pub lines: usize,
    /// How many lines have been asked for: those of a column of lines follow each other.
    asked: Cell<usize>,
}

impl Wanted {
    /// So many rows of a panel's columns.
    pub fn new(start: *const f32, term: usize, rows: usize, columns: usize) -> Wanted {
        // A line has 16 numbers.
        Wanted { start, term, rows, lines: columns.div_ceil(16), asked: Cell::new(0) }
    }

    /// What a tile of so many terms asks for.
    pub fn next(&self, terms: usize) -> Ahead {
        let asked = self.asked.get();
        if asked >= self.rows * self.lines {
            return Ahead::NONE;
        }
        let (line, row) = (asked / self.rows, asked % self.rows);
        self.asked.set(asked + terms.min(self.rows - row));
        Ahead { start: self.start.wrapping_add(line * 16 + row * self.term), term: self.term }
    }
}

/// Where rows begin, such that each is found from the first by one addition: multiples of the distance that an address cannot
/// have are kept.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    /// Bytes of 1, 3, 5, 7, 9 and 11 rows.
    odd: [usize; 6],
}

impl Rows {
    /// Rows `distance` elements apart.
    pub(super) fn new(distance: usize) -> Rows {
        let row = distance.wrapping_mul(size_of::<f32>());
        Rows { odd: [1usize, 3, 5, 7, 9, 11].map(|rows| row.wrapping_mul(rows)) }
    }

    /// Bytes before row `row`, at most 11.
    #[inline(always)]
    fn before(&self, row: usize) -> usize {
        if row == 0 {
            return 0;
        }
        let twos = row.trailing_zeros();
        self.odd[(row >> twos) / 2] << twos
    }
}

pub(super) type TileFn = unsafe fn(&Tile<'_>);

/// Rows of A, from row to row of [`FEW`] terms, times as many rows of B, one vector wide: A, B, the sums, and how many rows. The bits are those of
/// tiles.
pub(super) type FewFn = unsafe fn(*const f32, *const f32, *mut f32, usize);

/// Terms whose rows of B stay in registers.
pub(super) const FEW: usize = 16;
/// Rows of A whose sums are in registers beside them: enough to hide the time that a multiplication takes.
const FEW_ROWS: usize = 8;

/// The most rows and vectors that a tile has.
pub(super) const ROWS: usize = 12;
pub(super) const VECTORS: usize = 4;

/// The code for an instruction set.
pub(super) struct Code {
    /// Elements of a vector.
    pub lanes: usize,
    /// Most vectors of a tile here.
    pub vectors: usize,
    /// Most rows of a tile of so many vectors (less one).
    pub rows: [usize; VECTORS],
    /// Tiles of `[rows - 1][vectors - 1]`; B has whole vectors.
    pub packed: [[Option<TileFn>; VECTORS]; ROWS],
    /// The same, for B that ends within the last vector.
    pub direct: [[Option<TileFn>; VECTORS]; ROWS],
    /// Products of few terms, where there are registers enough: one vector of B for each row of A would be one load too many.
    pub few: Option<FewFn>,
}

impl Code {
    /// The columns of a result in panels of whole vectors, as even as can be: the first vector, how many, and the elements of
    /// the last.
    pub(super) fn panels(&self, columns: usize) -> Vec<Panel> {
        let all = columns.div_ceil(self.lanes);
        let count = all.div_ceil(self.vectors);
        let panel = |number| {
            let vectors = part(all, count, number);
            let column = vectors.start * self.lanes;
            Panel { column, vectors: vectors.len(), last: self.lanes.min(columns - column - (vectors.len() - 1) * self.lanes) }
        };
        (0..count).map(panel).collect()
    }

    /// The panels of each group of so many columns, one group after the other.
    pub(super) fn panels_of_groups(&self, columns: usize, group: usize) -> Vec<Panel> {
        let of_group = self.panels(group);
        let shifted = |start: usize| of_group.iter().map(move |panel| Panel { column: start + panel.column, ..*panel });
        (0..columns).step_by(group.max(1)).flat_map(shifted).collect()
    }

    /// Columns of the widest panel.
    pub(super) fn width(&self) -> usize {
        self.lanes * self.vectors
    }
}

/// Columns of a result that are computed together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Panel {
    pub column: usize,
    pub vectors: usize,
    pub last: usize,
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

/// The sums of a tile; with `AHEAD` it asks for what is wanted soon meanwhile.
#[inline(always)]
unsafe fn sum<V: Lanes, const M: usize, const N: usize, const DIRECT: bool, const AHEAD: bool>(tile: &Tile<'_>, sums: &mut [[V; N]; M]) {
    let (a_rows, last) = (tile.a_rows, tile.last);
    let mut ahead = tile.ahead.start;
    // SAFETY: as `tile`.
    unsafe {
        for round in 0..tile.outer {
            let mut a = tile.a.wrapping_add(round * tile.a_outer);
            let mut b = tile.b.wrapping_add(round * tile.b_outer);
            for _ in 0..tile.inner {
                if AHEAD {
                    V::fetch_ahead(ahead);
                    ahead = ahead.wrapping_add(tile.ahead.term);
                }
                let mut columns = [V::zero(); N];
                for v in 0..N {
                    let from = b.add(v * V::COUNT);
                    columns[v] = if DIRECT && v + 1 == N { V::load_first(from, last) } else { V::load(from) };
                }
                for r in 0..M {
                    let x = V::splat(a.wrapping_byte_add(a_rows.before(r)).read());
                    for v in 0..N {
                        sums[r][v] = x.madd(columns[v], sums[r][v]);
                    }
                }
                a = a.wrapping_add(tile.a_term);
                b = b.wrapping_add(tile.b_term);
            }
        }
    }
}

#[inline(always)]
unsafe fn tile<V: Lanes, const M: usize, const N: usize, const DIRECT: bool>(tile: &Tile<'_>) {
    // SAFETY: the caller's promise. There are `outer` rounds of `inner` terms. A has `M` rows of them, and B as many rows
    // of `N` vectors. The last vector has `last` elements if `DIRECT`. There is a tile of results.
    unsafe {
        let mut sums = [[V::zero(); N]; M];
        let last = tile.last;
        let to = |r: usize, v: usize| tile.c.wrapping_add(r * tile.c_row + v * V::COUNT);
        if tile.fetches {
            for r in 0..M {
                (0..N).for_each(|v| V::fetch_to_write(to(r, v)));
            }
        }
        if N > 1 && tile.ahead.term > 0 {
            sum::<V, M, N, DIRECT, true>(tile, &mut sums);
        } else {
            sum::<V, M, N, DIRECT, false>(tile, &mut sums);
        }
        if tile.add {
            for r in 0..M {
                for v in 0..N {
                    let there = if v + 1 == N && last < V::COUNT { V::load_first(to(r, v), last) } else { V::load(to(r, v)) };
                    sums[r][v] = if tile.outer == 0 { there } else { there.add(sums[r][v]) };
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

#[inline(always)]
unsafe fn few<V: Lanes>(a: *const f32, b: *const f32, c: *mut f32, rows: usize) {
    let mut row = 0;
    // SAFETY: the caller's promise: so many rows of A and of sums, and `FEW` vectors of B.
    unsafe {
        let mut terms = [V::zero(); FEW];
        for (term, vector) in terms.iter_mut().enumerate() {
            *vector = V::load(b.add(term * V::COUNT));
        }
        while row + FEW_ROWS <= rows {
            few_rows::<V, FEW_ROWS>(a.add(row * FEW), &terms, c.add(row * V::COUNT));
            row += FEW_ROWS;
        }
        while row < rows {
            few_rows::<V, 1>(a.add(row * FEW), &terms, c.add(row * V::COUNT));
            row += 1;
        }
    }
}

#[inline(always)]
unsafe fn few_rows<V: Lanes, const M: usize>(a: *const f32, b: &[V; FEW], c: *mut f32) {
    // SAFETY: as `few`.
    unsafe {
        let mut sums = [V::zero(); M];
        // Written out, so that B stays in registers.
        macro_rules! terms {
            ($($term:literal),*) => {
                $(for (r, sum) in sums.iter_mut().enumerate() {
                    *sum = V::splat(a.add(r * FEW + $term).read()).madd(b[$term], *sum);
                })*
            };
        }
        terms!(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        for (r, sum) in sums.iter().enumerate() {
            sum.store(c.add(r * V::COUNT));
        }
    }
}

/// Sets the tiles of `$v` vectors and the named numbers of rows.
macro_rules! tiles {
    ($code:ident, $v:literal, [$($r:literal),*]) => {
        $(
            $code.packed[$r - 1][$v - 1] = Some(packed::<$r, $v>);
            $code.direct[$r - 1][$v - 1] = Some(direct::<$r, $v>);
            $code.rows[$v - 1] = $r;
        )*
    };
}

/// A module with the code for one instruction set.
macro_rules! code {
    ($name:ident, $vector:ty, [$($feature:meta)?], vectors $vectors:literal, [$($v:literal: $rows:tt),*]) => {
        mod $name {
            use super::*;

            $(#[$feature])?
            unsafe fn packed<const M: usize, const N: usize>(tile: &Tile<'_>) {
                // SAFETY: the caller's promise.
                unsafe { super::tile::<$vector, M, N, false>(tile) }
            }

            $(#[$feature])?
            unsafe fn direct<const M: usize, const N: usize>(tile: &Tile<'_>) {
                // SAFETY: the caller's promise.
                unsafe { super::tile::<$vector, M, N, true>(tile) }
            }

            $(#[$feature])?
            unsafe fn few(a: *const f32, b: *const f32, c: *mut f32, rows: usize) {
                // SAFETY: the caller's promise.
                unsafe { super::few::<$vector>(a, b, c, rows) }
            }

            pub(super) static CODE: Code = {
                let mut code = Code {
                    lanes: <$vector as Lanes>::COUNT,
                    vectors: $vectors,
                    rows: [0; VECTORS],
                    packed: [[None; VECTORS]; ROWS],
                    direct: [[None; VECTORS]; ROWS],
                    // The set with such vectors has 32 of them.
                    few: if <$vector as Lanes>::COUNT == FEW { Some(few) } else { None },
                };
                $(tiles!(code, $v, $rows);)*
                code
            };
        }
    };
}

code!(portable, Four, [], vectors 2, [1: [1, 2, 3, 4, 5, 6], 2: [1, 2, 3, 4]]);
#[cfg(target_arch = "x86_64")]
code!(
    avx2,
    std::arch::x86_64::__m256,
    [target_feature(enable = "avx2,fma")],
    vectors 2,
    [1: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10], 2: [1, 2, 3, 4, 5, 6]]
);
#[cfg(target_arch = "x86_64")]
code!(
    avx512,
    std::arch::x86_64::__m512,
    [target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")],
    vectors 4,
    [
        1: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12],
        2: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12],
        3: [1, 2, 3, 4, 5, 6, 7, 8],
        4: [1, 2, 3, 4, 5, 6]
    ]
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_of_few_terms_have_the_bits_of_tiles() {
        for code in Isa::available().into_iter().map(code) {
            let (Some(few), Some(one)) = (code.few, code.packed[0][0]) else { continue };
            let number = |at: usize| ((at * 7919 + 13) % 1009) as f32 / 97.0 - 5.0;
            for rows in 0..20 {
                let a: Vec<f32> = (0..rows * FEW).map(number).collect();
                let b: Vec<f32> = (3..3 + FEW * code.lanes).map(number).collect();
                let [mut got, mut expected] = [0, 1].map(|_| vec![0f32; rows * code.lanes]);
                for row in 0..rows {
                    let tile = Tile {
                        outer: 1,
                        inner: FEW,
                        a: a[row * FEW..].as_ptr(),
                        a_rows: Rows::new(FEW),
                        a_term: 1,
                        a_outer: 0,
                        b: b.as_ptr(),
                        b_term: code.lanes,
                        b_outer: 0,
                        c: expected[row * code.lanes..].as_mut_ptr(),
                        c_row: code.lanes,
                        last: code.lanes,
                        add: false,
                        changes: Changes::NONE,
                        ahead: Ahead::NONE,
                        fetches: row % 2 == 0,
                    };
                    // SAFETY: the processor has the set; there is a row of A, a vector of B for each term, and a vector of sums.
                    unsafe { one(&tile) };
                }
                // SAFETY: as above, of all rows.
                unsafe { few(a.as_ptr(), b.as_ptr(), got.as_mut_ptr(), rows) };
                assert!(got.iter().zip(&expected).all(|(got, expected)| got.to_bits() == expected.to_bits()), "{rows} rows");
            }
        }
    }
}
