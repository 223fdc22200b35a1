//! Convolutions along two axes, and their gradients by the input, as products of windows.
//!
//! A piece rounds the rows and columns of the operand that its results see to a region, with zeros for the padding. Where a window begins in the
//! region is where a row of the left side begins: nothing is laid out anew. The gradient by the input is a convolution for each remainder of a position by the
//! strides, as in [`crate::conv`].

use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_device::{Args, Cost, CpuKernel, Fault, Prepared};
use plimsoll_request::anchor::Epilogue;
use plimsoll_request::conv::ConvSpec;
use plimsoll_request::window::{Layout, WindowAxis};

use super::results::{Left, Results, Side as Right, Target};
use super::right::{Of, Right as Packed, Tap};
use super::tiles::{PAIRED, Panel, Run, time_of};
use super::{Kernels, PIECES, convert};
use crate::conv::{Sizes, pass};
use crate::cut::elements;
use crate::expr::Functions;
use crate::finish::Finish;
use crate::packing::part;
use crate::simd::Isa;

/// The fewest channels of a result, and terms of a sum.
const LEAST: u64 = 16;
/// The most terms of a sum: each is added to a float.
const MOST_TERMS: u64 = 1 << 16;
/// The most remainders of a position by the strides.
const MOST_PASSES: usize = 64;
/// The most numbers of a region.
const MOST_REGION: usize = 1 << 24;
/// Positions of a piece: a panel is read once for each.
const POSITIONS: usize = 192;

/// Results whose windows see the filter in the same way.
struct Pass {
    y: pass::Side,
    x: pass::Side,
    /// Columns of the region.
    width: usize,
    runs: Vec<Run>,
    /// The filter's side: where it begins, and its pairs.
    side: usize,
    pairs: usize,
    /// Where each window of a piece begins in the region.
    rows: Vec<u32>,
}

impl Pass {
    /// Rows of the region that so many rows of results see.
    fn height(&self, rows: usize) -> usize {
        height(&self.y, rows)
    }
}

fn height(side: &pass::Side, positions: usize) -> usize {
    match positions {
        0 => 0,
        _ => ((positions - 1) * side.axis.stride).saturating_add_signed(side.axis.extent()),
    }
}

struct Conv {
    results: Results,
    passes: Vec<Pass>,
    batch: usize,
    /// Rows and columns of a result, and of an operand's image.
    out: [usize; 2],
    operand: [usize; 2],
    /// Channels that are summed; a region has an even number of them.
    terms: usize,
    /// Images of a piece, or if that is one, rows of results.
    piece_images: usize,
    piece_rows: usize,
    piece_panels: usize,
    panel_pieces: usize,
    from: usize,
    filter: usize,
    /// Where in the worker's scratch the region is.
    place: usize,
}

impl std::fmt::Debug for Conv {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let piece = (self.piece_images, self.piece_rows, self.piece_panels);
        write!(f, "Conv({} passes, results {:?}, pieces {piece:?})", self.passes.len(), (self.batch, self.out, self.results.columns))
    }
}

/// Whether there is such a form of a convolution, or of its gradient by the input. It does not depend on how many images there are.
fn has_form(spec: &ConvSpec, is_gradient: bool) -> bool {
    let [planes, rows, columns] = spec.axes.filled();
    let (terms, channels) = if is_gradient { (spec.out_c, spec.in_c) } else { (spec.in_c, spec.out_c) };
    let taps = rows.taps.saturating_mul(columns.taps);
    spec.data_type == DataType::Float
        && spec.layout == Layout::ChannelsLast
        && spec.groups == 1
        && planes == WindowAxis::ONE
        && channels >= LEAST
        && (LEAST..=MOST_TERMS).contains(&taps.saturating_mul(terms))
}

/// The kernels of a convolution, or of its gradient by the input. With `by_images` a piece of the second is an image with all channels.
///
/// # Errors
/// As [`crate::conv::conv_on`].
pub(super) fn prepare(spec: &ConvSpec, is_gradient: bool, epilogue: Option<Epilogue>, by_images: bool) -> Result<Option<Kernels>> {
    if !has_form(spec, is_gradient) {
        return Ok(None);
    }
    spec.check()?;
    let (terms, columns) = if is_gradient { (spec.out_c, spec.in_c) } else { (spec.in_c, spec.out_c) };
    let (terms, columns, batch) = (terms as usize, columns as usize, spec.batch as usize);
    let panels = Panel::all(columns);
    let even = terms.next_multiple_of(2);
    let [_, rows, line] = spec.sides();
    let (out, operand) = if is_gradient {
        ([rows.size, line.size], [rows.positions, line.positions])
    } else {
        ([rows.positions, line.positions], [rows.size, line.size])
    };
    let sides: Vec<(pass::Side, pass::Side)> = if is_gradient {
        let starts = [rows, line].map(|axis| axis.size.min(axis.stride));
        if starts[0].saturating_mul(starts[1]) > MOST_PASSES {
            return Ok(None);
        }
        let of = |y: usize, x: usize| (pass::Side::backward(rows, y), pass::Side::backward(line, x));
        (0..starts[0]).flat_map(|y| (0..starts[1]).map(move |x| of(y, x))).collect()
    } else {
        vec![(pass::Side::forward(rows), pass::Side::forward(line))]
    };

    // Pieces, by shape alone.
    let multiplications = spec.flops() / 2.0;
    let positions = (out[0] * out[1]).max(1);
    let wanted = (multiplications / super::product::RATE / super::product::PIECE).clamp(1.0, PIECES as f64) as usize;
    let images = if by_images { 1 } else { POSITIONS.div_ceil(positions).min(batch.div_ceil(wanted)).max(1) };
    let image_pieces = batch.div_ceil(images);
    let most_rows = if by_images || images > 1 { out[0] } else { out[0].div_ceil(wanted.div_ceil(image_pieces.max(1))) };
    let lines = (2 * POSITIONS).div_ceil(out[1].max(1));
    let piece_rows = if by_images || images > 1 { out[0].max(1) } else { most_rows.min(lines).max(1) };
    let row_pieces = out[0].div_ceil(piece_rows).max(1);
    let panel_pieces = if by_images { 1 } else { (wanted / (image_pieces * row_pieces).max(1)).clamp(1, panels.len().max(1)) };
    let piece_panels = panels.len().div_ceil(panel_pieces).max(1);
    let panel_pieces = panels.len().div_ceil(piece_panels);
    let chunks = image_pieces.checked_mul(row_pieces).and_then(|pieces| pieces.checked_mul(panel_pieces));
    let chunks = chunks.and_then(|chunks| u32::try_from(chunks).ok());
    let chunks = chunks.ok_or_else(|| Error::invalid_argument("a convolution with too many pieces"))?.max(1);

    // Passes, and the taps of each.
    let (filter_line, filter_rows) = (line.taps, rows.taps);
    let mut packed = Packed {
        terms,
        panels: panels.clone(),
        row: if is_gradient { terms } else { columns },
        is_transposed: is_gradient,
        of: Of::Taps(Vec::new()),
    };
    let (mut taps, mut passes, mut numbers, mut region, mut issued) = (Vec::new(), Vec::new(), 0, 0, 0.0);
    for (y, x) in sides {
        let is_seen = y.axis.taps > 0 && x.axis.taps > 0;
        let width = if is_seen { height(&x, x.axis.positions) } else { 0 };
        // Of the largest piece that there may be, however many images there are.
        let (most_lines, most_images) = if by_images { (out[0], 1) } else { (lines.min(out[0]), POSITIONS.div_ceil(positions)) };
        let sizes = [height(&y, most_lines).max(1), width.max(x.axis.positions), even, most_images];
        let largest = sizes.iter().fold(1, |all: usize, size| all.saturating_mul(*size));
        if largest > MOST_REGION {
            return Ok(None);
        }
        let pairs = y.axis.taps * x.axis.taps * even / 2;
        let tap_of = |side: &pass::Side, tap: usize| (side.tap_start + side.tap_step * tap as isize) as usize;
        for (row, column) in (0..y.axis.taps).flat_map(|row| (0..x.axis.taps).map(move |column| (row, column))) {
            let tap = tap_of(&y, row) * filter_line + tap_of(&x, column);
            let before = (row * x.axis.taps + column) * even / 2;
            taps.push(Tap { from: tap * terms * columns, side: numbers, pairs, before });
        }
        let runs = runs(&y, &x, width, even);
        let most = if images > 1 || by_images { y.axis.positions } else { most_positions(&y, piece_rows, out[0]) };
        let high = if is_seen { height(&y, most) } else { 0 };
        region = region.max(high * width * even * images);
        let window = |at: [usize; 3]| {
            let [number, row, column] = at;
            let line = number * high + row * y.axis.stride;
            if is_seen { ((line * width + column * x.axis.stride) * even) as u32 } else { 0 }
        };
        let all = (0..images).flat_map(|number| (0..most).map(move |row| (number, row)));
        let rows = all.flat_map(|(number, row)| (0..x.axis.positions).map(move |column| [number, row, column])).map(window).collect();
        let positions = batch as f64 * y.axis.positions as f64 * x.axis.positions as f64;
        issued += 2.0 * positions * (pairs * PAIRED) as f64 * time_of(&panels);
        passes.push(Pass { width, runs, side: numbers, pairs, rows, y, x });
        numbers += packed.side(pairs);
    }
    debug_assert!(taps.iter().all(|tap| tap.from < (filter_rows * filter_line * terms * columns).max(1)));
    packed.of = Of::Taps(taps);

    let result = if is_gradient { spec.input() } else { spec.output() };
    let finish = epilogue.map(|epilogue| Finish::new(Isa::Avx512, &result, epilogue, Functions::Of(Isa::Avx512))).transpose()?;
    let most_rows = passes.iter().map(|pass| pass.rows.len()).max().unwrap_or(0);
    let (results, place) = Results::new(columns, panels, finish, (most_rows, piece_panels));
    let kernel = Conv {
        passes,
        batch,
        out,
        operand,
        terms,
        piece_images: images,
        piece_rows,
        piece_panels,
        panel_pieces,
        from: usize::from(is_gradient),
        filter: usize::from(!is_gradient),
        place,
        results,
    };
    let kernel = Arc::new(kernel);
    let per_worker = (place + 2 * region).next_multiple_of(64) + 64;
    let cost = Cost { flops: spec.flops(), bytes: spec.bytes() };
    let mut product = Prepared { chunks, scratch: 0, per_worker: per_worker as u64, cost, in_place: Vec::new(), kernel: kernel.clone() };
    if let Some(finish) = &kernel.results.finish {
        finish.describe(&mut product);
    }
    let elementwise = product.cost.flops - cost.flops;
    let bytes = DataType::Bfloat16.bytes_of(elements(&[numbers as u64])? as u64);
    Ok(Some(Kernels { right: packed.prepare()?, product, bytes, issued, elementwise }))
}

/// The most positions of a side among so many rows of results that a piece has.
fn most_positions(side: &pass::Side, rows: usize, all: usize) -> usize {
    (0..all).step_by(rows.max(1)).map(|first| side.positions_in(&(first..(first + rows).min(all))).len()).max().unwrap_or(0)
}

/// The pairs of a window in a region of so many columns: those of a row of taps follow each other, or those of a tap.
fn runs(y: &pass::Side, x: &pass::Side, width: usize, terms: usize) -> Vec<Run> {
    let (groups, pairs) = if x.axis.dilation == 1 { (x.axis.taps.min(1), x.axis.taps * terms / 2) } else { (x.axis.taps, terms / 2) };
    let run = |row: usize, group: usize| Run {
        left: (row * y.axis.dilation * width + group * x.axis.dilation) * terms,
        right: (row * groups + group) * pairs,
        pairs,
        is_odd: false,
    };
    (0..y.axis.taps).flat_map(|row| (0..groups).map(move |group| run(row, group))).collect()
}

impl CpuKernel for Conv {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        if self.batch == 0 || self.out.contains(&0) {
            return Ok(());
        }
        let (image_pieces, row_pieces) = (self.batch.div_ceil(self.piece_images), self.out[0].div_ceil(self.piece_rows));
        for chunk in chunks {
            let (piece, group) = (chunk as usize % (image_pieces * row_pieces), chunk as usize / (image_pieces * row_pieces));
            let (image, row) = (piece / row_pieces * self.piece_images, piece % row_pieces * self.piece_rows);
            let images = image..(image + self.piece_images).min(self.batch);
            let rows = row..(row + self.piece_rows).min(self.out[0]);
            let panels = part(self.results.panels.len(), self.panel_pieces, group);
            for pass in &self.passes {
                // SAFETY: the piece lies within the result, for which the caller answers.
                unsafe { self.piece(pass, images.clone(), rows.clone(), panels.clone(), args)? };
            }
        }
        Ok(())
    }
}

impl Conv {
    unsafe fn piece(
        &self,
        pass: &Pass,
        images: Range<usize>,
        rows: Range<usize>,
        panels: Range<usize>,
        args: &Args<'_>,
    ) -> Result<(), Fault> {
        let (ys, positions) = (pass.y.positions_in(&rows), pass.x.axis.positions);
        if ys.is_empty() || positions == 0 {
            return Ok(());
        }
        let columns = self.results.columns;
        let region = args.worker.wrapping_add(self.place).cast::<u16>();
        let high = if pass.runs.is_empty() { 0 } else { pass.height(ys.len()) };
        let even = self.terms.next_multiple_of(2);
        let from = args.pointers[self.from].cast::<f32>().cast_const();
        for (number, image) in images.clone().enumerate().filter(|_| high > 0) {
            let to = region.wrapping_add(number * high * pass.width * even);
            let image = from.wrapping_add(image * self.operand[0] * self.operand[1] * self.terms);
            let first = pass.y.axis.start(ys.start);
            for row in 0..high {
                let line = usize::try_from(first + row as isize).ok().filter(|line| *line < self.operand[0]);
                let line = line.map(|line| image.wrapping_add(line * self.operand[1] * self.terms));
                // SAFETY: scratch has room for the rows of the region; the operand has its lines.
                unsafe { self.line(line, pass.x.axis.start(0), pass.width, to.wrapping_add(row * pass.width * even)) };
            }
        }
        let start = args.pointers[self.filter].cast::<u16>().cast_const().wrapping_add(pass.side);
        let right = Right { start, runs: &pass.runs, pairs: pass.pairs };
        let at = |image: usize, y: usize| {
            let row = image * self.out[0] + pass.y.start + pass.y.step * y;
            (row * self.out[1] + pass.x.start) * columns
        };
        // Rows of results that lie equally far apart: all, or those of a line.
        let lines = if pass.y.step == 1 && pass.x.step == 1 { 1 } else { images.len() * ys.len() };
        let each = images.len() * ys.len() / lines * positions;
        for line in 0..lines {
            let windows = &pass.rows[line * each..(line + 1) * each];
            let left = Left { start: region, rows: windows, term: 2 };
            let target = Target { first: at(images.start + line / ys.len(), ys.start + line % ys.len()), row: pass.x.step * columns };
            // SAFETY: the windows lie in the region, and the filter's side has been made.
            unsafe { self.results.compute(left, right, panels.clone(), target, args)? };
        }
        Ok(())
    }

    /// Rounds `width` positions of a line of the operand, from position `first` on; those beyond it are zeros, and so are all of no line.
    unsafe fn line(&self, line: Option<*const f32>, first: isize, width: usize, to: *mut u16) {
        let (terms, even) = (self.terms, self.terms.next_multiple_of(2));
        let size = self.operand[1] as isize;
        let (begin, end) = (first.clamp(0, size), (first + width as isize).clamp(0, size));
        // SAFETY: the caller's promise: room for `width` positions, and a line of `size`.
        unsafe {
            let zeros = |range: Range<isize>| to.offset(range.start * even as isize).write_bytes(0, range.len() * even);
            let Some(line) = line.filter(|_| begin < end) else { return zeros(0..width as isize) };
            zeros(0..begin - first);
            zeros(end - first..width as isize);
            let (from, to) = (line.offset(begin * terms as isize), to.offset((begin - first) * even as isize));
            let positions = (end - begin) as usize;
            match terms == even {
                true => convert::rows(from, 0, positions * terms, 1, to, 0),
                false => convert::rows(from, terms, terms, positions, to, even),
            }
        }
    }
}
