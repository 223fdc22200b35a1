//! The innermost code: tiles of results that stay in registers while pairs of terms are multiplied and added.

use crate::expr::Changes;
#[cfg(target_arch = "x86_64")]
use crate::expr::change;

/// Floats of a vector, and columns of a vector of pairs.
pub(super) const LANES: usize = 16;
/// Numbers of bf16 in a vector of pairs.
pub(super) const PAIRED: usize = 2 * LANES;
/// The most vectors that a tile has.
pub(super) const VECTORS: usize = 4;
/// The most rows of a tile of `[vectors - 1]`.
pub(super) const ROWS: [usize; VECTORS] = [8, 8, 8, 6];

/// Columns of the right side that lie together: `[pair][column][2]`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Panel {
    /// The first column.
    pub column: usize,
    /// Vectors, and how many columns of the last one there are; the others are zeros.
    pub vectors: usize,
    pub last: usize,
}

impl Panel {
    /// The panels of so many columns, all of about the same width.
    pub fn all(columns: usize) -> Vec<Panel> {
        let vectors = columns.div_ceil(LANES);
        let count = vectors.div_ceil(VECTORS);
        let panel = |number| {
            let part = crate::packing::part(vectors, count, number);
            let end = (part.end * LANES).min(columns);
            Panel { column: part.start * LANES, vectors: part.len(), last: end - (part.end - 1) * LANES }
        };
        (0..count).map(panel).collect()
    }

    /// How many columns it has.
    pub fn width(&self) -> usize {
        (self.vectors - 1) * LANES + self.last
    }

    /// Its first number in a right side of so many pairs.
    pub fn start(&self, pairs: usize) -> usize {
        2 * self.column * pairs
    }
}

/// Vectors of panels, counted as the time of tiles goes: those of narrow panels wait for their operands.
pub(super) fn time_of(panels: &[Panel]) -> f64 {
    const OF: [f64; VECTORS] = [1.75, 1.1, 1.0, 1.0];
    panels.iter().map(|panel| OF[panel.vectors - 1] * panel.vectors as f64).sum()
}

/// Pairs of terms that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// Where the left side's first pair is, from the first pair of a row, in numbers.
    pub left: usize,
    /// The number of the right side's first pair.
    pub right: usize,
    /// How many pairs.
    pub pairs: usize,
    /// Whether the last of them has one term: the second number of the left side does not count.
    pub is_odd: bool,
}

/// A tile of results and its operands.
pub(super) struct Tile<'a> {
    pub runs: &'a [Run],
    /// The left side. A row begins where `rows` says, and pairs are `term` numbers apart.
    pub left: *const u16,
    pub rows: &'a [u32],
    pub term: usize,
    /// The panel's first pair.
    pub right: *const u16,
    /// The first row of results, and from row to row.
    pub to: *mut f32,
    pub to_row: usize,
    /// How many columns of the last vector there are.
    pub last: usize,
    /// Whether the results are added to, not written.
    pub add: bool,
    /// How the results are changed before they are written.
    pub changes: Changes<'a>,
}

pub(super) type TileFn = unsafe fn(&Tile<'_>);

/// The code for tiles of so many rows and vectors. It runs on processors with AVX512-BF16.
pub(super) fn tile(rows: usize, vectors: usize) -> Option<TileFn> {
    #[cfg(target_arch = "x86_64")]
    return *code::TILES.get(vectors.checked_sub(1)?)?.get(rows.checked_sub(1)?)?;
    #[cfg(not(target_arch = "x86_64"))]
    return None.filter(|_: &TileFn| rows > 0 && vectors > 0);
}

#[cfg(target_arch = "x86_64")]
mod code {
    #![expect(clippy::needless_range_loop, reason = "arrays of registers, indexed alike")]

    use std::arch::x86_64::{__m512, __m512bh, __m512i, _mm512_dpbf16_ps, _mm512_loadu_ps, _mm512_set1_epi32};

    use super::{LANES, PAIRED, ROWS, Tile, TileFn, VECTORS, change};
    use crate::simd::Lanes;

    /// Only the first number of a pair.
    const FIRST: i32 = 0xffff;

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
    unsafe fn tile<const M: usize, const N: usize>(tile: &Tile<'_>) {
        // SAFETY: the caller's promise: M rows and N vectors, whose pairs the runs say. The results are there. Any bits are a vector
        // of numbers.
        unsafe {
            let (to_row, last) = (tile.to_row, tile.last);
            let to = |r: usize, v: usize| tile.to.wrapping_add(r * to_row + v * LANES);
            let is_part = |v: usize| v + 1 == N && last < LANES;
            let mut sums = [[__m512::zero(); N]; M];
            if tile.add {
                for r in 0..M {
                    for v in 0..N {
                        sums[r][v] = if is_part(v) { __m512::load_first(to(r, v), last) } else { __m512::load(to(r, v)) };
                    }
                }
            }
            let mut rows = [tile.left; M];
            for r in 0..M {
                rows[r] = tile.left.wrapping_add(*tile.rows.get_unchecked(r) as usize);
            }
            for run in tile.runs {
                let mut right = tile.right.wrapping_add(run.right * N * PAIRED);
                let mut left = run.left;
                macro_rules! add {
                    ($mask:expr) => {
                        let mut columns = [std::mem::transmute::<__m512, __m512bh>(__m512::zero()); N];
                        for v in 0..N {
                            columns[v] = std::mem::transmute::<__m512, __m512bh>(_mm512_loadu_ps(right.add(v * PAIRED).cast()));
                        }
                        for r in 0..M {
                            let pair = rows[r].wrapping_add(left).cast::<i32>().read_unaligned();
                            let pair = std::mem::transmute::<__m512i, __m512bh>(_mm512_set1_epi32(pair & $mask));
                            for v in 0..N {
                                sums[r][v] = _mm512_dpbf16_ps(sums[r][v], pair, columns[v]);
                            }
                        }
                    };
                }
                for _ in 0..run.pairs - usize::from(run.is_odd) {
                    add!(-1);
                    right = right.wrapping_add(N * PAIRED);
                    left += tile.term;
                }
                if run.is_odd {
                    add!(FIRST);
                }
            }
            change!(__m512, sums, tile.changes, M, to_row, last);
            for r in 0..M {
                for v in 0..N {
                    if is_part(v) {
                        sums[r][v].store_first(to(r, v), last);
                    } else {
                        sums[r][v].store(to(r, v));
                    }
                }
            }
        }
    }

    const MOST: usize = 8;

    macro_rules! tiles {
        ($($v:literal: [$($r:literal),*]),*) => {
            pub(super) static TILES: [[Option<TileFn>; MOST]; VECTORS] = {
                let mut tiles = [[None; MOST]; VECTORS];
                $($(
                    assert!($r <= ROWS[$v - 1]);
                    tiles[$v - 1][$r - 1] = Some(tile::<$r, $v> as TileFn);
                )*)*
                tiles
            };
        };
    }
    tiles!(1: [1, 2, 3, 4, 5, 6, 7, 8], 2: [1, 2, 3, 4, 5, 6, 7, 8], 3: [1, 2, 3, 4, 5, 6, 7, 8], 4: [1, 2, 3, 4, 5, 6]);
}
