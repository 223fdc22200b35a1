//! Tiles in the order of their positions, and their values at the points.

use std::ops::Range;

use super::Shape;
use super::transform::{Filter, Operand};

/// Neighbouring tiles of one row of an image.
pub(super) struct Strip {
    pub image: usize,
    /// The row of tiles, and the tiles of it.
    pub row: usize,
    pub columns: Range<usize>,
    /// Tiles of the block before these.
    pub before: usize,
}

impl Shape {
    /// The tiles of a block, strip by strip.
    pub fn strips(&self, tiles: Range<usize>) -> impl Iterator<Item = Strip> + use<> {
        let [rows, columns] = self.grid();
        let mut next = tiles.start;
        std::iter::from_fn(move || {
            if next >= tiles.end {
                return None;
            }
            let (line, column) = (next / columns, next % columns);
            let count = (columns - column).min(tiles.end - next);
            let before = next - tiles.start;
            next += count;
            Some(Strip { image: line / rows, row: line % rows, columns: column..column + count, before })
        })
    }

    /// The values at the points of some channels of the operand's tiles. `to` is the first point, and the distance from point to point.
    ///
    /// # Safety
    /// The operand is there, and room for a row of the channels for every tile at every point.
    pub unsafe fn evaluate(&self, tiles: Range<usize>, channels: &Range<usize>, from: *const f32, to: (*mut f32, usize)) {
        let ([y, x], step, points) = (self.axes, self.step(), self.points);
        let row = x.size * self.terms;
        let mut ahead = self.operand_ahead(channels.clone(), tiles.start);
        // The part of a tile that lies on the operand.
        let there = |start: isize, size: usize| {
            let bound = |at: isize| at.clamp(0, points as isize) as usize;
            let first = bound(-start);
            (first, bound(size as isize - start).max(first))
        };
        for strip in self.strips(tiles) {
            let top = y.start(strip.row * step);
            for (number, column) in strip.columns.enumerate() {
                ahead.next().fetch(from);
                let left = x.start(column * step);
                let line = (strip.image * y.size) as isize + top;
                let position = line * row as isize + left * self.terms as isize;
                let tile = Operand {
                    from: from.wrapping_offset(position).wrapping_add(channels.start),
                    row,
                    column: self.terms,
                    rows: there(top, y.size),
                    columns: there(left, x.size),
                    channels: channels.len(),
                    to: to.0.wrapping_add((strip.before + number) * channels.len()),
                    to_point: to.1,
                };
                // SAFETY: the positions of the two ranges are the operand's; there is room for the values of every tile.
                unsafe { (self.transforms.operand)(&tile) };
            }
        }
    }

    /// As [`Shape::evaluate`], of some columns of the results: tiles of them are what filters are elsewhere. A row has whole vectors. Where
    /// results come from memory, all of them are there, and the memory is asked for them ahead.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn evaluate_results(
        &self,
        tiles: Range<usize>,
        columns: &Range<usize>,
        (from, from_memory): (*const f32, bool),
        to: (*mut f32, usize),
    ) {
        let ([y, x], step, lanes) = (self.axes, self.step(), self.code.lanes);
        let width = columns.len().next_multiple_of(lanes);
        let mut ahead = from_memory.then(|| self.results_ahead(columns.clone(), tiles.start));
        for strip in self.strips(tiles) {
            let top = strip.row * step;
            for (number, column) in strip.columns.enumerate() {
                if let Some(ahead) = &mut ahead {
                    ahead.next().fetch(from);
                }
                let left = column * step;
                let position = (strip.image * y.positions + top) * x.positions + left;
                for vector in 0..width / lanes {
                    let at = vector * lanes;
                    let tile = Filter {
                        from: from.wrapping_add(position * self.columns + columns.start + at),
                        row: (x.positions * self.columns) as isize,
                        column: self.columns as isize,
                        rows: step.min(y.positions - top),
                        columns: step.min(x.positions - left),
                        count: lanes.min(columns.len() - at),
                        to: to.0.wrapping_add((strip.before + number) * width + at),
                        to_point: to.1,
                    };
                    // SAFETY: these positions are there, and so many channels; there is room for a vector at every point.
                    unsafe { (self.transforms.filter)(&tile) };
                }
            }
        }
    }
}
