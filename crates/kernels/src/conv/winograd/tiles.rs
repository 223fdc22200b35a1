//! Results by blocks of tiles.

use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::{Error, Result};
use plimsoll_device::{Args, Cost, CpuKernel, Fault, Prepared};

use super::Shape;
use super::strips::Strip;
use super::transform::{Results, ResultsFn, results_of};
use crate::conv::tiles::{FEW, Panel, Rows, Tile, Wanted};
use crate::expr::{Bases, Changes, Functions, Links};
use crate::finish::Finish;
use crate::packing::part;
use crate::simd::Isa;
use plimsoll_request::anchor::Epilogue;

/// Bytes of a block's values that stay in the second cache beside the filter's.
const CACHED: usize = 1 << 20;
/// The most tiles of a block.
const MOST_TILES: usize = 96;
/// The most terms that are summed in registers before the sums are added to the values. Fixed, since the bits depend on it.
const TERMS: usize = 256;
/// More pieces help no number of threads that we expect.
const MOST_PIECES: usize = 64;
/// Where blocks are fewer, panels are divided among pieces, too. Each then evaluates the operand again.
const FEW_BLOCKS: usize = 8;

struct Tiles {
    shape: Arc<Shape>,
    results: ResultsFn,
    /// Spans of tiles that are divided into blocks, each by itself: all tiles, or those of an image.
    spans: usize,
    /// Tiles of a block at most, blocks of a span, and blocks of a piece.
    block: usize,
    blocks: usize,
    piece_blocks: usize,
    block_pieces: usize,
    /// Panels of a piece.
    piece_panels: usize,
    /// From point to point of the operand's values, and of the results'.
    operand_point: usize,
    result_point: usize,
    epilogue: Option<Finish>,
    /// Where in the worker's scratch the operand's values and the results' are.
    operand_place: usize,
    result_place: usize,
    /// Indices of the arguments.
    from: usize,
    values: usize,
}

impl std::fmt::Debug for Tiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tiles").field("block", &self.block).field("blocks", &self.blocks).field("panels", &self.piece_panels).finish()
    }
}

/// Of the result's shape. With `by_images` a piece is an image.
pub(super) fn prepare(isa: Isa, shape: &Arc<Shape>, result: &[u64], epilogue: Option<Epilogue>, by_images: bool) -> Result<Prepared> {
    let (tiles, step, planes) = (shape.tiles(), shape.step(), shape.planes());
    let spans = if by_images { shape.batch.max(1) } else { 1 };
    let width = shape.panels.iter().map(|panel| shape.width(panel)).max().unwrap_or(0);
    // Values of every point, such that two points do not fall onto the same cache sets.
    let point = |block: usize, channels: usize| block * channels + 16;
    let rows = shape.panels.iter().map(|panel| shape.code.rows[panel.vectors - 1]).max().unwrap_or(1);
    let mut finish = epilogue.map(|epilogue| Finish::new(isa, result, epilogue, Functions::Never)).transpose()?;
    let waits = finish.as_ref().is_some_and(Finish::waits);
    let of_tile = 4 * (planes * (shape.terms + width) + if waits { step * step * width } else { 0 });
    let most = (CACHED / of_tile / rows * rows).clamp(rows, MOST_TILES);
    let blocks = match (tiles / spans).div_ceil(most) {
        // Of a few blocks an even number: threads have as many each.
        few @ (3 | 5 | 7) if !by_images => few + 1,
        blocks => blocks,
    };
    let block = (tiles / spans).div_ceil(blocks.max(1)).max(1);
    let piece_blocks = if by_images { blocks } else { blocks.div_ceil(MOST_PIECES) }.max(1);
    let block_pieces = (spans * blocks).div_ceil(piece_blocks);
    let groups = if by_images { 1 } else { (FEW_BLOCKS / block_pieces.max(1)).clamp(1, shape.panels.len()) };
    let piece_panels = shape.panels.len().div_ceil(groups);
    let chunks = block_pieces * shape.panels.len().div_ceil(piece_panels);
    let chunks = u32::try_from(chunks).map_err(|_| Error::invalid_argument("a convolution with too many pieces"))?;

    let floats = |count: usize| (count * 4).next_multiple_of(64) + 64;
    let operand_place = finish.as_ref().map_or(0, Finish::scratch);
    let (operand_point, result_point) = (point(block, shape.terms), point(block, width));
    let operand_end = operand_place + floats(planes * operand_point);
    let result_place = if is_in_place(shape) { operand_place } else { operand_end };
    let mut scratch = operand_end.max(result_place + floats(planes * result_point));
    if let Some(finish) = &mut finish
        && waits
    {
        finish.place = scratch;
        scratch += floats(block * step * step * width);
    }
    let count = |sizes: &[usize]| sizes.iter().map(|size| *size as f64).product::<f64>();
    let operand = count(&[shape.batch, shape.axes[0].size, shape.axes[1].size, shape.terms]);
    let results = count(&[shape.batch, shape.axes[0].positions, shape.axes[1].positions, shape.columns]);
    // A value of the operand takes about four operations, one of the result about three, by whole vectors.
    let [terms, columns] = [shape.terms, shape.columns].map(|channels| channels.next_multiple_of(shape.code.lanes) as f64);
    let flops = shape.multiplications() + count(&[planes, tiles]) * (4.0 * terms + 3.0 * columns);
    // Each block reads the filter's values.
    let bytes = 4.0 * (operand * groups as f64 + results + shape.values() as f64 * (spans * blocks) as f64);
    let results_of = results_of(isa, shape.points, shape.taps).ok_or_else(|| Error::internal(format!("tiles of {} taps", shape.taps)))?;
    let kernel = Tiles {
        shape: Arc::clone(shape),
        results: results_of,
        spans,
        block,
        blocks,
        piece_blocks,
        block_pieces,
        piece_panels,
        operand_point,
        result_point,
        epilogue: finish,
        operand_place,
        result_place,
        from: usize::from(shape.is_gradient),
        values: usize::from(!shape.is_gradient),
    };
    let kernel = Arc::new(kernel);
    let cost = Cost { flops, bytes };
    let mut prepared = Prepared { chunks, scratch: 0, per_worker: scratch as u64, cost, in_place: Vec::new(), kernel: kernel.clone() };
    if let Some(finish) = &kernel.epilogue {
        finish.describe(&mut prepared);
    }
    Ok(prepared)
}

/// Whether the results' values take the place of the operand's. They are as many, and a few tiles' results are summed in registers before they
/// are written: the nearest cache has them already, and the second has room for other things.
fn is_in_place(shape: &Shape) -> bool {
    let [panel] = &shape.panels[..] else { return false };
    shape.width(panel) == shape.terms && shape.terms <= TERMS
}

impl CpuKernel for Tiles {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        let tiles = self.shape.tiles() / self.spans;
        for chunk in chunks {
            let (piece, group) = (chunk as usize % self.block_pieces, chunk as usize / self.block_pieces);
            let panels = group * self.piece_panels..((group + 1) * self.piece_panels).min(self.shape.panels.len());
            for block in piece * self.piece_blocks..((piece + 1) * self.piece_blocks).min(self.spans * self.blocks) {
                let (before, of_span) = (block / self.blocks * tiles, part(tiles, self.blocks, block % self.blocks));
                // SAFETY: the arguments are the caller's promise; these results are written by this piece only.
                unsafe { self.block(before + of_span.start..before + of_span.end, panels.clone(), args)? };
            }
        }
        Ok(())
    }
}

impl Tiles {
    unsafe fn block(&self, tiles: Range<usize>, panels: Range<usize>, args: &Args<'_>) -> Result<(), Fault> {
        let shape = &*self.shape;
        let count = tiles.len();
        // SAFETY: offsets into scratch that `prepare` asked for.
        let [operand, results] = unsafe { [self.operand_place, self.result_place].map(|place| args.worker.add(place).cast::<f32>()) };
        let from = args.pointers[self.from].cast::<f32>().cast_const();
        // SAFETY: the operand is the caller's, and scratch has room for the values.
        unsafe { shape.evaluate(tiles.clone(), &(0..shape.terms), from, (operand, self.operand_point)) };
        let values = args.pointers[self.values].cast::<f32>().cast_const();
        // Results that wait are those of one panel.
        let waits = self.epilogue.as_ref().is_some_and(Finish::waits);
        for number in panels.clone() {
            let panel = &shape.panels[number];
            let width = shape.width(panel);
            let from = values.wrapping_add(shape.panel_start(panel));
            for point in 0..shape.planes() {
                let (a, b) = (operand.wrapping_add(point * self.operand_point), from.wrapping_add(point * shape.terms * width));
                // SAFETY: the values have been made: `count` rows of terms, and as many rows of the panel.
                unsafe { self.multiply(panel, count, a, b, results.add(point * self.result_point)) };
            }
            let together = if waits { number..number + 1 } else { panels.clone() };
            // SAFETY: these results are the caller's, or in scratch until they are finished.
            unsafe {
                self.interpolate(tiles.clone(), panel, &together, results, args);
                if waits {
                    self.finish(tiles.clone(), &together, args)?;
                }
            }
        }
        if waits {
            return Ok(());
        }
        // SAFETY: all results of these tiles and panels have been made.
        unsafe { self.finish(tiles, &panels, args) }
    }

    /// Multiplies `count` rows with the panel at one point. The results may lie where the rows do, if they are as wide and all terms are summed at
    /// once.
    unsafe fn multiply(&self, panel: &Panel, count: usize, a: *const f32, b: *const f32, c: *mut f32) {
        let Shape { code, terms, .. } = *self.shape;
        if let (Some(few), FEW, 1) = (code.few, terms, panel.vectors) {
            // SAFETY: as this function.
            return unsafe { few(a, b, c, count) };
        }
        let width = panel.vectors * code.lanes;
        let (parts, blocks) = (count.div_ceil(code.rows[panel.vectors - 1]), terms.div_ceil(TERMS));
        // The values of the next point lie behind these.
        let next = Wanted::new(b.wrapping_add(terms * width), width, terms, width);
        for block in 0..blocks {
            let terms_of = part(terms, blocks, block);
            for number in 0..parts {
                let rows = part(count, parts, number);
                let tile = Tile {
                    outer: 1,
                    inner: terms_of.len(),
                    a: a.wrapping_add(rows.start * terms + terms_of.start),
                    a_rows: Rows::new(terms),
                    a_term: 1,
                    a_outer: 0,
                    b: b.wrapping_add(terms_of.start * width),
                    b_term: width,
                    b_outer: 0,
                    c: c.wrapping_add(rows.start * width),
                    c_row: width,
                    last: code.lanes,
                    add: block > 0,
                    changes: Changes::NONE,
                    ahead: next.next(terms_of.len()),
                    fetches: false,
                };
                if let Some(compute) = code.packed[rows.len() - 1][panel.vectors - 1] {
                    // SAFETY: as this function.
                    unsafe { compute(&tile) };
                }
            }
        }
    }

    /// The first column of some panels, and how many columns they have.
    fn columns(&self, panels: &Range<usize>) -> (usize, usize) {
        let (first, last) = (&self.shape.panels[panels.start], &self.shape.panels[panels.end - 1]);
        (first.column, last.column + (last.vectors - 1) * self.shape.code.lanes + last.last - first.column)
    }

    /// The argument where results go; none where they wait in scratch.
    fn argument(&self) -> Option<usize> {
        match &self.epilogue {
            None => Some(2),
            Some(finish) if finish.chain.is_some() => Some(finish.result),
            Some(finish) => finish.in_result,
        }
    }

    /// Where the results of a strip go: the element of its row `y`, position `x` and column `c` of the panels is at
    /// `start + y * row + x * position + c`.
    fn target(&self, strip: &Strip, (column, columns): (usize, usize), args: &Args<'_>) -> (*mut f32, usize, usize) {
        let (shape, step) = (&*self.shape, self.shape.step());
        match (self.argument(), &self.epilogue) {
            (None, Some(finish)) => {
                let start = args.worker.wrapping_add(finish.place).cast::<f32>();
                let row = strip.columns.len() * step * columns;
                (start.wrapping_add(strip.before * step * step * columns), row, columns)
            }
            (argument, _) => {
                let result = args.pointers[argument.unwrap_or(2)].cast::<f32>();
                let first = self.position(strip, 0);
                (result.wrapping_add(first * shape.columns + column), shape.axes[1].positions * shape.columns, shape.columns)
            }
        }
    }

    /// The number of the first position of row `y` of a strip.
    fn position(&self, strip: &Strip, y: usize) -> usize {
        let (step, [rows, columns]) = (self.shape.step(), self.shape.axes);
        (strip.image * rows.positions + strip.row * step + y) * columns.positions + strip.columns.start * step
    }

    /// The results of a panel.
    unsafe fn interpolate(&self, tiles: Range<usize>, panel: &Panel, panels: &Range<usize>, from: *const f32, args: &Args<'_>) {
        let shape = &*self.shape;
        let (step, [y, x], width) = (shape.step(), shape.axes, shape.width(panel));
        let columns = self.columns(panels);
        let chain = self.epilogue.as_ref().and_then(|finish| finish.chain.as_ref());
        let links = chain.map(|chain| chain.bind(&args.pointers[2..]));
        let links = links.as_ref().map_or(&[][..], Links::get);
        // Results that are pooled stay in the cache.
        let result = self.argument().filter(|_| self.spans == 1).map(|argument| args.pointers[argument].cast::<f32>().cast_const());
        let mut ahead = shape.results_ahead(panel.column..panel.column + width - shape.code.lanes + panel.last, tiles.start);
        for strip in self.shape.strips(tiles) {
            let (start, row, position) = self.target(&strip, columns, args);
            let first = self.position(&strip, 0);
            for (number, column) in strip.columns.clone().enumerate() {
                let soon = ahead.next();
                if let Some(result) = result {
                    soon.fetch(result);
                }
                for link in links.iter().filter(|link| link.by_element == 1) {
                    soon.fetch(link.operand);
                }
                let element = (first + number * step) * shape.columns + panel.column;
                let tile = Results {
                    from: from.wrapping_add((strip.before + number) * width),
                    from_point: self.result_point,
                    to: start.wrapping_add(number * step * position + panel.column - columns.0),
                    row,
                    column: position,
                    rows: step.min(y.positions - strip.row * step),
                    columns: step.min(x.positions - column * step),
                    vectors: panel.vectors,
                    last: panel.last,
                    changes: Changes { links, element, column: panel.column },
                };
                // SAFETY: the values of this tile have been made; the results within the two axes are the caller's or in scratch.
                unsafe { (self.results)(&tile) };
            }
        }
    }

    /// Applies the epilogue to the results of these tiles and panels.
    unsafe fn finish(&self, tiles: Range<usize>, panels: &Range<usize>, args: &Args<'_>) -> Result<(), Fault> {
        let Some(Finish { program, chain: None, .. }) = &self.epilogue else { return Ok(()) };
        let (shape, step) = (&*self.shape, self.shape.step());
        let [rows, positions] = shape.axes;
        let (column, columns) = self.columns(panels);
        let mut has_begun = false;
        for strip in self.shape.strips(tiles) {
            let (start, row, position) = self.target(&strip, (column, columns), args);
            let width = (strip.columns.len() * step).min(positions.positions - strip.columns.start * step);
            for y in 0..step.min(rows.positions - strip.row * step) {
                let first = self.position(&strip, y) * shape.columns + column;
                let line = start.wrapping_add(y * row);
                // Whole rows of columns follow each other.
                let (runs, run) = if columns == shape.columns { (1, width * columns) } else { (width, columns) };
                for number in 0..runs {
                    let element = first + number * shape.columns;
                    let at = line.wrapping_add(number * position).wrapping_sub(element);
                    let bases = Bases { first: at.cast::<u8>(), rest: &args.pointers[2..] };
                    // SAFETY: operand 0 is found where it has been computed; the others and the results are the caller's.
                    unsafe {
                        if !has_begun {
                            program.begin(&bases, args.worker);
                            has_begun = true;
                        }
                        program.run(element..element + run, &bases, args.worker)?;
                    }
                }
            }
        }
        Ok(())
    }
}
