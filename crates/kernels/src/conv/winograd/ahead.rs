//! Tiles that the memory is asked for before they are wanted: rows of a tile lie far apart, which a processor does not foresee.

use std::ops::Range;

use super::Shape;
use crate::simd::fetch_ahead;

/// Bytes between what is wanted and what is asked for, and the most tiles: about what comes from memory meanwhile.
const BYTES: usize = 32 << 10;
const MOST_TILES: usize = 16;
/// Floats that the memory brings at once.
const LINE: usize = 16;

/// Some channels of images, in tiles.
pub(super) struct TilesAhead {
    /// From position to position, and the floats of each that are wanted.
    position: usize,
    channels: Range<usize>,
    /// Rows and columns of an image.
    sizes: [usize; 2],
    /// The row and the column where the first tile begins, and from tile to tile.
    starts: [isize; 2],
    step: usize,
    /// Rows and columns of tiles of an image, and images.
    grid: [usize; 2],
    images: usize,
    /// The image, the row and the column of the tile that is asked for next.
    next: (usize, usize, usize),
}

impl Shape {
    /// The tiles of the operand, without the positions around them that their neighbours have, while those from `tile` on are wanted.
    pub fn operand_ahead(&self, channels: Range<usize>, tile: usize) -> TilesAhead {
        let around = (self.taps / 2) as isize;
        self.ahead(self.terms, channels, (self.axes.map(|axis| axis.size), self.axes.map(|axis| axis.start(0) + around)), tile)
    }

    /// The tiles of the results, as [`Shape::operand_ahead`].
    pub fn results_ahead(&self, columns: Range<usize>, tile: usize) -> TilesAhead {
        self.ahead(self.columns, columns, (self.axes.map(|axis| axis.positions), [0; 2]), tile)
    }

    fn ahead(&self, position: usize, channels: Range<usize>, (sizes, starts): ([usize; 2], [isize; 2]), tile: usize) -> TilesAhead {
        let (step, grid) = (self.step(), self.grid());
        // Tiles between the one that is wanted and the one that is asked for.
        let distance = (BYTES / (4 * step * step * channels.len()).max(1)).clamp(1, MOST_TILES);
        let [rows, columns] = grid.map(|count| count.max(1));
        let (line, column) = ((tile + distance) / columns, (tile + distance) % columns);
        let next = (line / rows, line % rows, column);
        TilesAhead { position, channels, sizes, starts, step, grid, images: self.batch, next }
    }
}

impl TilesAhead {
    /// What is asked for with the next tile that is wanted; nothing where no tile is that far.
    pub fn next(&mut self) -> Lines {
        let (image, row, column) = self.next;
        if image >= self.images {
            return Lines { first: 0, row: 0, rows: 0, run: 0, runs: 0, from_run: 0 };
        }
        // Counted, not divided: this is done for every tile.
        self.next = match (row + 1 == self.grid[0], column + 1 == self.grid[1]) {
            (_, false) => (image, row, column + 1),
            (false, true) => (image, row + 1, 0),
            (true, true) => (image + 1, 0, 0),
        };
        let there = |axis: usize, number: usize| {
            let start = self.starts[axis] + (number * self.step) as isize;
            let bound = |index: isize| index.clamp(0, self.sizes[axis] as isize) as usize;
            bound(start)..bound(start + self.step as isize)
        };
        let (rows, columns) = (there(0, row), there(1, column));
        // Whole positions follow each other.
        let is_whole = self.channels.len() == self.position;
        let (runs, run) = if is_whole { (1, columns.len() * self.position) } else { (columns.len(), self.channels.len()) };
        let first = ((image * self.sizes[0] + rows.start) * self.sizes[1] + columns.start) * self.position + self.channels.start;
        Lines { first, row: self.sizes[1] * self.position, rows: rows.len(), run, runs, from_run: self.position }
    }
}

/// Floats of a tensor, by the rows of a tile.
pub(super) struct Lines {
    /// The first, and from row to row.
    first: usize,
    row: usize,
    rows: usize,
    /// Floats that follow each other, how many such runs a row has, and from one to the next.
    run: usize,
    runs: usize,
    from_run: usize,
}

impl Lines {
    /// Asks for them, in the tensor that begins there.
    pub fn fetch(&self, tensor: *const f32) {
        for row in 0..self.rows {
            for number in 0..self.runs {
                let from = tensor.wrapping_add(self.first + row * self.row + number * self.from_run);
                (0..self.run).step_by(LINE).for_each(|element| fetch_ahead(from.wrapping_add(element)));
            }
        }
    }
}
