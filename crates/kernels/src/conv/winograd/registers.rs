//! Transforms of a vector of channels whose values stay in registers, where there are enough.
//!
//! The operations are those of [`super::transform`] in the same order, so the bits are, too.

#![expect(clippy::needless_range_loop, reason = "arrays of registers, indexed alike")]

use super::transform::{At, MOST, Operand, Results, evaluate, interpolate};
use crate::expr::{Changes, change};
use crate::simd::Lanes;

/// Whether there are registers for so many points along each axis: instruction sets with vectors of sixteen have thirty-two.
#[inline(always)]
pub(super) const fn are_enough<V: Lanes>(points: usize) -> bool {
    points <= 6 && V::COUNT >= 16
}

/// What rows that are not there consist of.
static ZEROS: [f32; 16] = [0.0; 16];

/// A vector of channels of a tile's operand: where each row begins, and how far it is from column to column.
struct Columns<'a, const P: usize> {
    tile: &'a Operand,
    rows: [(*const f32, usize); P],
    to: *mut f32,
    count: usize,
}

impl<const P: usize> Columns<'_, P> {
    /// The values at the points of a column; zeros for one that is not there.
    #[inline(always)]
    unsafe fn evaluate<V: Lanes, const ROWS: bool, const WHOLE: bool>(&self, x: usize) -> [V; P] {
        // SAFETY: as `operand`.
        unsafe {
            if x < self.tile.columns.0 || x >= self.tile.columns.1 {
                return [V::zero(); P];
            }
            let mut d = [V::zero(); P];
            for y in 0..P {
                let from = if ROWS {
                    self.rows[0].0.wrapping_add(x * self.tile.column).wrapping_add(y * self.tile.row)
                } else {
                    self.rows[y].0.wrapping_add(x * self.rows[y].1)
                };
                d[y] = if WHOLE { V::load(from) } else { V::load_first(from, self.count) };
            }
            evaluate(d)
        }
    }

    #[inline(always)]
    unsafe fn put<V: Lanes, const WHOLE: bool>(&self, made: V, y: usize, x: usize) {
        let to = self.to.wrapping_add((y * P + x) * self.tile.to_point);
        // SAFETY: as `operand`.
        unsafe { if WHOLE { made.store(to) } else { made.store_first(to, self.count) } }
    }
}

/// The values at the points of a vector of channels, of which there are `count`; with `WHOLE` all. With `ROWS` all rows are there.
///
/// What [`evaluate`] makes of a row is made column by column. Columns of a parity follow each other: so few values wait.
///
/// # Safety
/// The processor has the instruction set of `V`. The positions within the tile's two ranges have these channels, and there is room for them
/// at every point.
#[inline(always)]
pub(super) unsafe fn operand<V: Lanes, const P: usize, const ROWS: bool, const WHOLE: bool>(tile: &Operand, channel: usize, count: usize) {
    let pairs = At::<P>::COUNT;
    let (start, to) = (tile.from.wrapping_add(channel), tile.to.wrapping_add(channel));
    let mut columns = Columns { tile, rows: [(start, tile.column); P], to, count };
    if !ROWS {
        for y in 0..P {
            let is_there = tile.rows.0 <= y && y < tile.rows.1;
            columns.rows[y] = if is_there { (start.wrapping_add(y * tile.row), tile.column) } else { (ZEROS.as_ptr(), 0) };
        }
    }
    // SAFETY: the caller's promise; a row that is not there is one of zeros, of which there are a whole vector.
    unsafe {
        // Of each row: the value at 0, and the even part of that at each pair.
        let mut end = columns.evaluate::<V, ROWS, WHOLE>(2 * pairs);
        let mut even = [end; MOST];
        for at in (0..pairs).rev() {
            let d = columns.evaluate::<V, ROWS, WHOLE>(2 * at);
            for y in 0..P {
                end[y] = V::splat(At::<P>::ALL[at]).madd(d[y], end[y]);
                for pair in 0..if at > 0 { pairs } else { 0 } {
                    even[pair][y] = V::splat(At::<P>::WITHOUT[pair][at - 1]).madd(d[y], even[pair][y]);
                }
            }
        }
        for y in 0..P {
            columns.put::<V, WHOLE>(end[y], y, 0);
        }
        // That at infinity, and the odd parts.
        let mut end = columns.evaluate::<V, ROWS, WHOLE>(2 * pairs + 1);
        let mut odd = [end; MOST];
        for at in (0..pairs).rev() {
            let d = columns.evaluate::<V, ROWS, WHOLE>(2 * at + 1);
            for y in 0..P {
                end[y] = V::splat(At::<P>::ALL[at]).madd(d[y], end[y]);
                for pair in 0..pairs {
                    let is_first = at + 1 == pairs;
                    odd[pair][y] = if is_first { d[y] } else { V::splat(At::<P>::WITHOUT[pair][at]).madd(d[y], odd[pair][y]) };
                }
            }
        }
        for y in 0..P {
            for pair in 0..pairs {
                let point = At::<P>::PAIRS[pair];
                columns.put::<V, WHOLE>(V::splat(point).madd(odd[pair][y], even[pair][y]), y, 1 + 2 * pair);
                columns.put::<V, WHOLE>(V::splat(-point).madd(odd[pair][y], even[pair][y]), y, 2 + 2 * pair);
            }
            columns.put::<V, WHOLE>(end[y], y, P - 1);
        }
    }
}

/// The results of a vector of channels, of which there are `count`. With `PLAIN` all channels, rows and columns are there, and nothing changes
/// results.
///
/// # Safety
/// The processor has the instruction set of `V`. There are whole vectors at every point, and room for the rows and columns that there are.
#[inline(always)]
pub(super) unsafe fn results<V: Lanes, const P: usize, const M: usize, const PLAIN: bool>(tile: &Results<'_>, at: usize, count: usize) {
    let (from, to) = (tile.from.wrapping_add(at), tile.to.wrapping_add(at));
    // SAFETY: the caller's promise.
    unsafe {
        let mut half = [[V::zero(); P]; M];
        for x in 0..P {
            let mut v = [V::zero(); P];
            for y in 0..P {
                v[y] = V::load(from.wrapping_add((y * P + x) * tile.from_point));
            }
            let made = interpolate::<V, P, M>(v);
            for y in 0..M {
                half[y][x] = made[y];
            }
        }
        let mut made = [[[V::zero(); 1]; M]; M];
        for y in 0..M {
            let row = interpolate::<V, P, M>(half[y]);
            for x in 0..M {
                made[y][x][0] = row[x];
            }
        }
        if PLAIN {
            for y in 0..M {
                for x in 0..M {
                    made[y][x][0].store(to.wrapping_add(y * tile.row + x * tile.column));
                }
            }
            return;
        }
        for (y, row) in made.iter().enumerate().take(tile.rows) {
            let Changes { links, element, column } = tile.changes;
            let changes = Changes { links, element: element + y * tile.row + at, column: column + at };
            let mut row = *row;
            change!(V, row, changes, tile.columns, tile.column, count);
            for x in 0..M {
                if x < tile.columns {
                    let to = to.wrapping_add(y * tile.row + x * tile.column);
                    if count == V::COUNT { row[x][0].store(to) } else { row[x][0].store_first(to, count) }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::conv::winograd::transform::{Operand, Results, results_of, transforms};
    use crate::expr::{Change, Changes, Link};
    use crate::simd::Isa;

    /// Instruction sets that round alike: of these some keep values in registers, and some do not.
    fn sets() -> Vec<Isa> {
        Isa::available().into_iter().filter(|isa| *isa > Isa::Portable).collect()
    }

    fn numbers(count: usize) -> Vec<f32> {
        (0..count).map(|at| (at * 7919 % 1009) as f32 / 504.0 - 1.0).collect()
    }

    fn bits(values: &[f32]) -> Vec<u32> {
        values.iter().map(|value| value.to_bits()).collect()
    }

    /// Tiles in the middle and at every edge, of whole vectors and of others.
    #[test]
    fn values_at_the_points_are_the_same_bits() {
        let ranges = [(0, 6), (1, 6), (0, 5), (2, 3), (0, 0)];
        for (rows, columns) in ranges.iter().flat_map(|rows| ranges.map(|columns| (*rows, columns))) {
            for channels in [1, 15, 16, 17, 40] {
                let from = numbers(36 * channels);
                let of = |isa: Isa| {
                    let mut to = vec![f32::NAN; 36 * (channels + 3)];
                    let (row, column, to_point) = (6 * channels, channels, channels + 3);
                    let tile = Operand { from: from.as_ptr(), row, column, rows, columns, channels, to: to.as_mut_ptr(), to_point };
                    // SAFETY: the processor has the set; a whole tile is there, and room for its values.
                    unsafe { (transforms(isa, 6, 3).unwrap().operand)(&tile) };
                    bits(&to)
                };
                assert!(sets().windows(2).all(|pair| of(pair[0]) == of(pair[1])), "{rows:?} {columns:?} {channels}");
            }
        }
    }

    /// Whole tiles and parts of them, as they are and changed.
    #[test]
    fn results_are_the_same_bits() {
        let operand = numbers(16 * 40);
        let add = Link { change: Change::Add, operand: operand.as_ptr(), by_column: 0, by_element: 1, function: std::ptr::null() };
        for (taps, step) in [(3, 4), (5, 2)] {
            for (rows, columns) in [(step, step), (1, step), (step, 1)] {
                for (channels, links) in [16, 32, 40, 5].into_iter().flat_map(|channels| [(channels, vec![]), (channels, vec![add])]) {
                    let width = usize::next_multiple_of(channels, 16);
                    let from = numbers(36 * width);
                    let of = |isa: Isa| {
                        let lanes = if isa == Isa::Avx512 { 16 } else { 8 };
                        let vectors = usize::div_ceil(channels, lanes);
                        let mut to = vec![f32::NAN; step * step * channels];
                        let tile = Results {
                            from: from.as_ptr(),
                            from_point: width,
                            to: to.as_mut_ptr(),
                            row: step * channels,
                            column: channels,
                            rows,
                            columns,
                            vectors,
                            last: channels - (vectors - 1) * lanes,
                            changes: Changes { links: &links, element: 0, column: 0 },
                        };
                        // SAFETY: the processor has the set; whole vectors are there, and room for the results and as many operands.
                        unsafe { (results_of(isa, 6, taps).unwrap())(&tile) };
                        bits(&to)
                    };
                    assert!(sets().windows(2).all(|pair| of(pair[0]) == of(pair[1])), "{taps} {rows} {columns} {channels}");
                }
            }
        }
    }
}
