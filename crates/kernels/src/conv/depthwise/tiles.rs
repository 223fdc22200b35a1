//! The innermost code of convolutions of each channel by itself: results of neighbouring positions that stay in registers.

#![expect(clippy::needless_range_loop, reason = "arrays of registers, indexed alike")]

use crate::expr::{Changes, change};
use crate::simd::{Isa, Lanes};

/// Positions that see the same taps, and all of their channels. Distances are in elements.
pub(super) struct Tile<'a> {
    /// What the first position sees through the first tap; from row to row of taps, from tap to tap, from position to position.
    pub input: *const f32,
    pub input_row: usize,
    pub input_tap: usize,
    pub input_position: usize,
    /// The first tap's weights; from row to row of taps, from tap to tap.
    pub filter: *const f32,
    pub filter_row: usize,
    pub filter_tap: usize,
    /// Rows of taps, and taps of a row.
    pub taps: [usize; 2],
    /// Whether the first position does not see the first tap of a row, and the last position not the last one: they are on padding. Only
    /// where positions share what they see.
    pub misses: [bool; 2],
    /// The first position's results. Positions are `channels` apart.
    pub results: *mut f32,
    pub channels: usize,
    /// The first of so many rows and columns of the input that the next row of results sees and this one does not. They are asked for
    /// while this tile is computed.
    pub ahead: *const f32,
    pub ahead_rows: usize,
    pub ahead_columns: usize,
    /// From column to column of the input.
    pub input_column: usize,
    /// Whether results' lines are asked for some vectors before they are written.
    pub fetches: bool,
    /// How the results are changed before they are written.
    pub changes: Changes<'a>,
}

pub(super) type TileFn = unsafe fn(&Tile<'_>);

/// The most positions of a tile: as many sums as are under way at once.
pub(super) const POSITIONS: usize = 8;

/// Taps of a row of which neighbouring positions share what they see.
const TAPS: usize = 3;

/// Whether neighbouring positions share what they see: the taps of a row, from tap to tap, from position to position.
pub(super) fn shares(taps: usize, tap: usize, position: usize) -> bool {
    taps == TAPS && tap == position
}

/// How many vectors before they are written results' lines are asked for.
const SOON: usize = 4;

/// The code for `isa`, of tiles of `[positions - 1]`.
pub(super) fn code(isa: Isa) -> &'static [TileFn; POSITIONS] {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => &avx512::CODE,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => &avx2::CODE,
        _ => &portable::CODE,
    }
}

#[inline(always)]
unsafe fn tile<V: Lanes, const P: usize>(tile: &Tile<'_>) {
    let [rows, columns] = tile.taps;
    let mut channel = 0;
    while channel < tile.channels {
        let count = V::COUNT.min(tile.channels - channel);
        let is_part = count < V::COUNT;
        // SAFETY: the caller's promise: `P` positions see these taps of the input, and there is room for their results.
        unsafe {
            let mut sums = [[V::zero(); 1]; P];
            for row in 0..tile.ahead_rows {
                let line = tile.ahead.wrapping_add(row * tile.input_row + channel);
                (0..tile.ahead_columns).for_each(|column| V::fetch_ahead(line.wrapping_add(column * tile.input_column)));
            }
            if shares(columns, tile.input_tap, tile.input_position) {
                for row in 0..rows {
                    let input = tile.input.wrapping_add(row * tile.input_row + channel);
                    let filter = tile.filter.wrapping_add(row * tile.filter_row + channel);
                    let (input, filter) = ((input, tile.input_position), (filter, tile.filter_tap));
                    match (is_part, tile.misses.contains(&true)) {
                        (false, false) => neighbours::<V, P, false, false>(&mut sums, input, filter, tile.misses, count),
                        (false, true) => neighbours::<V, P, false, true>(&mut sums, input, filter, tile.misses, count),
                        (true, _) => neighbours::<V, P, true, true>(&mut sums, input, filter, tile.misses, count),
                    }
                }
            } else {
                for row in 0..rows {
                    let mut input = tile.input.wrapping_add(row * tile.input_row + channel);
                    let mut filter = tile.filter.wrapping_add(row * tile.filter_row + channel);
                    for _ in 0..columns {
                        let weights = if is_part { V::load_first(filter, count) } else { V::load(filter) };
                        for p in 0..P {
                            let from = input.wrapping_add(p * tile.input_position);
                            let values = if is_part { V::load_first(from, count) } else { V::load(from) };
                            sums[p][0] = values.madd(weights, sums[p][0]);
                        }
                        input = input.wrapping_add(tile.input_tap);
                        filter = filter.wrapping_add(tile.filter_tap);
                    }
                }
            }
            if tile.fetches {
                (0..P).for_each(|p| V::fetch_to_write(tile.results.wrapping_add(p * tile.channels + channel + SOON * V::COUNT)));
            }
            let Changes { links, element, column } = tile.changes;
            let changes = Changes { links, element: element + channel, column: column + channel };
            change!(V, sums, changes, P, tile.channels, count);
            for p in 0..P {
                let to = tile.results.wrapping_add(p * tile.channels + channel);
                if is_part { sums[p][0].store_first(to, count) } else { sums[p][0].store(to) }
            }
        }
        channel += V::COUNT;
    }
}

/// A row of [`TAPS`] taps of neighbouring positions: what several of them see is read once. Each sum has its terms in the order of the taps.
/// `misses` counts with `MISSES` only.
#[inline(always)]
unsafe fn neighbours<V: Lanes, const P: usize, const PART: bool, const MISSES: bool>(
    sums: &mut [[V; 1]; P],
    (input, position): (*const f32, usize),
    (filter, tap): (*const f32, usize),
    [misses_first, misses_last]: [bool; 2],
    count: usize,
) {
    // SAFETY: the caller's promise: positions see so many taps of the input, but for those that are missed.
    unsafe {
        let load = |from: *const f32| if PART { V::load_first(from, count) } else { V::load(from) };
        let mut weights = [V::zero(); TAPS];
        for t in 0..TAPS {
            weights[t] = load(filter.wrapping_add(t * tap));
        }
        let mut values = [V::zero(); TAPS];
        for t in 0..TAPS - 1 {
            if !(MISSES && t == 0 && misses_first) {
                values[t] = load(input.wrapping_add(t * position));
            }
        }
        for p in 0..P {
            let is_missed = |t: usize| MISSES && (p == 0 && t == 0 && misses_first || p == P - 1 && t == TAPS - 1 && misses_last);
            if !is_missed(TAPS - 1) {
                values[(p + TAPS - 1) % TAPS] = load(input.wrapping_add((p + TAPS - 1) * position));
            }
            for t in 0..TAPS {
                if !is_missed(t) {
                    sums[p][0] = values[(p + t) % TAPS].madd(weights[t], sums[p][0]);
                }
            }
        }
    }
}

/// A module with the code for one instruction set.
macro_rules! code {
    ($name:ident, $vector:ty, [$($feature:meta)?]) => {
        mod $name {
            use super::{POSITIONS, Tile, TileFn};

            $(#[$feature])?
            unsafe fn tile<const P: usize>(tile: &Tile<'_>) {
                // SAFETY: the caller's promise.
                unsafe { super::tile::<$vector, P>(tile) }
            }

            pub(super) static CODE: [TileFn; POSITIONS] =
                [tile::<1>, tile::<2>, tile::<3>, tile::<4>, tile::<5>, tile::<6>, tile::<7>, tile::<8>];
        }
    };
}

code!(portable, crate::simd::Four, []);
#[cfg(target_arch = "x86_64")]
code!(avx2, std::arch::x86_64::__m256, [target_feature(enable = "avx2,fma")]);
#[cfg(target_arch = "x86_64")]
code!(avx512, std::arch::x86_64::__m512, [target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]);
