//! How a product is cut into pieces, and what of its operands is copied. Bits depend on the terms that are summed at once, which only their number decides.

use super::blocked::Sides;
use super::tiles::Code;

/// The most terms that are summed in registers before the sums are added to C. Fixed, since the bits depend on it.
const TERMS: usize = 320;

/// How the work is cut; a `None` is chosen by shape. For measuring and for tests: bits do not depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tuning {
    /// Rows of C in a piece.
    pub rows: Option<usize>,
    /// Columns of C in a piece.
    pub columns: Option<usize>,
    /// Whether B is copied to scratch first where it could be read where it lies.
    pub pack_b: Option<bool>,
    /// Whether a transposed A is copied to scratch first.
    pub pack_a: Option<bool>,
}

/// The cut of a product.
pub(super) struct Cut {
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) by_strips: bool,
    pub(super) terms: usize,
    pub(super) pack_a: bool,
    pub(super) pack_b: bool,
}

/// The least time of a piece, in nanoseconds, where there is more to do: much more than handing it to another thread.
const PIECE: f64 = 10_000.0;
/// The same for a piece that copies its part of B first, where others copy it, too.
const PACKED_PIECE: f64 = 40_000.0;
/// Work that takes less is one piece.
const WHOLE: f64 = 7_000.0;
/// The most rows of a piece that copies its part of B first.
const TALL: usize = 256;
/// Floats of B that do not stay in the second cache beside the other operands.
const LARGE: usize = 192 << 10;
/// Floats of B that stay in the second cache of each core: rows of A and C stay with the thread that made them.
const SMALL: usize = 64 << 10;
/// Columns that are worth a strip of their own.
const STRIP: usize = 96;
/// The same where an expression takes results from scratch, row by row, and there are many pieces: each row costs as much as some columns.
const WIDE: usize = 256;
const MANY: usize = 16;
/// The most rows of such a piece that copies its part of B first: its results stay in the second cache.
const LOW: usize = 128;
/// Rows that lie this many floats apart fall onto the same few cache sets.
const BAD_STRIDE: usize = 1024;

/// `all` in as many parts as parts of `most` give, each a multiple of `unit` except perhaps the last.
pub(super) fn evenly(all: usize, most: usize, unit: usize) -> usize {
    let parts = all.div_ceil(most.max(1)).max(1);
    all.div_ceil(parts).next_multiple_of(unit).clamp(1, all.max(1))
}

/// How many terms are summed in registers.
pub(super) fn terms(k: usize) -> usize {
    k.div_ceil(k.div_ceil(TERMS).max(1)).max(1)
}

/// `waits`: results wait in scratch for an expression.
pub(super) fn cut(sides: &Sides, code: &Code, tuning: &Tuning, waits: bool) -> Cut {
    let Sides { m, n, k, .. } = *sides;
    let terms = terms(k);
    if sides.is_dot() {
        let columns = tuning.columns.unwrap_or((4.0 * PIECE / (k as f64 / 8.0).max(1.0)) as usize);
        return Cut { rows: 1, columns: evenly(n, columns.max(4), 4), by_strips: true, terms, pack_a: false, pack_b: false };
    }
    let width = code.vectors * code.lanes;
    let pack_b = sides.b_transposed || tuning.pack_b.unwrap_or(m >= 32 && sides.b.1.is_multiple_of(BAD_STRIDE));
    // Nanoseconds: the arithmetic, with the wasted lanes of a row's last vector, or reading B.
    let padded = n.next_multiple_of(code.lanes) as f64 * if n <= code.lanes { 1.5 } else { 1.0 };
    let total = k as f64 * padded * (m as f64 / 128.0).max(1.0 / 8.0);
    let least = if pack_b && m > TALL { PACKED_PIECE } else { PIECE };
    let wanted = if total < WHOLE { 1 } else { ((total / (total / 64.0).clamp(least, PACKED_PIECE)) as usize).max(2) };
    // A thread gets pieces that follow each other. Where B is much larger than C, or than the cache, threads had better read
    // different columns of it. Elsewhere each had better stay in its own rows of A and C.
    let is_small = k.saturating_mul(n) <= SMALL;
    let by_strips = (k > 2 * m && !is_small) || k.saturating_mul(n) > LARGE;
    let strips = if wanted == 1 || n < STRIP || !by_strips { 1 } else { (2 * (n / (4 * STRIP)).max(1)).min(wanted) };
    let is_wide = waits && wanted >= MANY;
    let most_strips = if is_wide { (n / WIDE).max(1) } else { n / width };
    let strips = if is_wide { strips.min(most_strips) } else { strips };
    let tall = if is_wide { LOW } else { TALL };
    // Pieces of a few rows read B too often; a copy of B should serve many.
    let least_tiles = if is_small { 2 } else { 3 };
    let row_pieces = if pack_b { m.div_ceil(tall) } else { (wanted / strips).clamp(1, (m / (least_tiles * code.rows)).max(1)) };
    let strips = strips.max((wanted / row_pieces.max(1)).min(most_strips));
    // Where they are few, an even number of them: most machines have an even number of threads.
    let of = |pieces: usize| evenly(m, m.div_ceil(pieces.max(1)), code.rows);
    let is_even = |rows: &usize| m.div_ceil(*rows).is_multiple_of(2);
    let few = if strips == 1 && (2..=16).contains(&row_pieces) { row_pieces } else { 0 };
    let rows = (few / 2..=few).rev().filter(|pieces| *pieces > 1).map(of).find(is_even).unwrap_or_else(|| of(row_pieces));
    let rows = tuning.rows.map_or(rows, |rows| rows.clamp(1, m.max(1)));
    let columns = tuning.columns.unwrap_or_else(|| n.div_ceil(strips.max(1)));
    Cut {
        rows,
        columns: evenly(n, columns.next_multiple_of(code.lanes), code.lanes),
        by_strips,
        terms,
        pack_a: sides.a.1 == 1 && m > 1 && tuning.pack_a.unwrap_or(m.is_multiple_of(BAD_STRIDE) && n > 2 * width),
        pack_b,
    }
}
