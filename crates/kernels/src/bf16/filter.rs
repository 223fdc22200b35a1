//! Gradients by filters: sums over positions, two at a time.
//!
//! The gradient by the result becomes pairs of neighbouring positions, as the right side. The input becomes pairs of the positions that two
//! neighbouring results see with one tap: `[position][channel][2]`. So every tap is a place in one region.

use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::{DataType, Result};
use plimsoll_device::{Args, Cost, CpuKernel, Fault, Prepared};
use plimsoll_request::conv::ConvSpec;
use plimsoll_request::window::{Layout, WindowAxis};

use super::results::{Left, Place, Side, multiply};
use super::tiles::{LANES, PAIRED, Panel, Run, VECTORS, time_of};
use super::{PIECES, convert};
use crate::conv::{Axis, Sizes};
use crate::cut::elements;
use crate::expr::Changes;
use crate::packing::part;

/// The fewest channels of a result.
const LEAST: u64 = 16;
/// The most rows of the filter: taps and channels of the input.
const MOST_ROWS: u64 = 1 << 18;
/// Channels of the input that a piece takes.
const CHANNELS: usize = 64;
/// Positions whose pairs are there at a time.
const POSITIONS: usize = 512;
/// Pieces that keep a few threads busy, and the most parts of the images.
const PIECES_WANTED: usize = 8;
const MOST_PARTS: usize = 16;
/// Bytes of pairs that stay in the first cache, about.
const NEAR: usize = 16 << 10;
/// Operations that take as long as making a vector of pairs.
const PAIRS: f64 = 900.0;
/// The fewest pairs that are added before sums go to memory.
const TOGETHER: usize = 64;
/// The most numbers of a region.
const MOST_REGION: usize = 1 << 24;

/// The kernel, and the work that tables of costs price.
pub(super) struct Gradient {
    /// Arguments: input, gradient by the result, as many gradients by the filter as there are parts.
    pub sums: Prepared,
    /// Parts of the images.
    pub parts: u64,
    /// Arithmetic operations of the products, with those of lanes that hold nothing, and more where panels are narrow; and
    /// those that take as long as making the pairs.
    pub issued: f64,
}

struct Kernel {
    batch: usize,
    /// Rows and columns.
    axes: [Axis; 2],
    channels: usize,
    columns: usize,
    panels: Vec<Panel>,
    /// Parts of the images, and of the input's channels.
    parts: usize,
    groups: usize,
    /// Images and rows of results whose pairs are there at a time.
    images: usize,
    lines: usize,
    /// Columns of the region, and channels of a position there.
    width: usize,
    wide: usize,
    /// The pairs of all rows of results of these images, and those of a row.
    runs: Vec<Run>,
    pairs: usize,
    /// Rows of results whose pairs are multiplied with all rows of the filter in turn.
    together: usize,
    /// Where each tap's channels begin in the region.
    rows: Vec<u32>,
    /// Channels of a group at most.
    group: usize,
    /// Where in the worker's scratch the pairs of the gradient are; those of the input are before.
    place: usize,
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Gradient({} parts, {} groups, {} images of {} rows)", self.parts, self.groups, self.images, self.lines)
    }
}

/// The gradient by the filter of a convolution along two axes: none where there is no such form.
///
/// # Errors
/// As [`crate::conv::conv_backprop_filter_on`].
pub(super) fn prepare(spec: &ConvSpec) -> Result<Option<Gradient>> {
    let has_form = spec.data_type == DataType::Float
        && spec.layout == Layout::ChannelsLast
        && spec.groups == 1
        && spec.axes.filled()[0] == WindowAxis::ONE
        && spec.out_c >= LEAST
        && spec.batch > 0
        && spec.filter()[..spec.filter().len() - 1].iter().fold(1, |rows: u64, size| rows.saturating_mul(*size)) <= MOST_ROWS;
    if !has_form {
        return Ok(None);
    }
    spec.check()?;
    let [_, y, x] = spec.sides();
    let [batch, channels, columns] = [spec.batch, spec.in_c, spec.out_c].map(|size| size as usize);
    if y.positions == 0 || x.positions == 0 || channels == 0 {
        return Ok(None);
    }
    let panels = Panel::all(columns);
    let groups = channels.div_ceil(CHANNELS);
    let group = channels.div_ceil(groups);
    let filter = elements(&spec.filter())?;
    let is_small = spec.flops() / 2.0 < 2.0 * super::product::RATE * super::product::PIECE;
    let wanted = if is_small { 1 } else { PIECES_WANTED.div_ceil(groups).next_power_of_two() };
    let parts = wanted.min(MOST_PARTS).min(1 << batch.ilog2());
    debug_assert!(parts <= PIECES);

    let positions = y.positions.saturating_mul(x.positions);
    let most_images = (POSITIONS / positions.max(1)).max(1);
    let images = most_images.min(batch.div_ceil(parts));
    let lines = if positions <= POSITIONS { y.positions } else { (POSITIONS / x.positions).clamp(1, y.positions) };
    let seen = |axis: &Axis, positions: usize| ((positions - 1) * axis.stride).saturating_add_signed(axis.extent());
    let (width, high, wide) = (seen(&x, x.positions), seen(&y, lines), group.next_multiple_of(LANES));
    // Of as many images as there may be together.
    let largest = [most_images, high, width, 2 * wide].iter().fold(1, |all: usize, size| all.saturating_mul(*size));
    if largest > MOST_REGION {
        return Ok(None);
    }
    let region = images * high * width * 2 * wide;
    let pairs = x.positions.div_ceil(2);
    let run = |number: usize| Run {
        left: (number / lines * high + number % lines * y.stride) * width * 2 * wide,
        right: number * pairs,
        pairs,
        is_odd: !x.positions.is_multiple_of(2),
    };
    let right = panels.iter().map(|panel| panel.vectors).sum::<usize>() * PAIRED * pairs * lines * images;
    let tap = |row: usize, column: usize| (row * y.dilation * width + column * x.dilation) * 2 * wide;
    let taps = (0..y.taps).flat_map(|row| (0..x.taps).map(move |column| tap(row, column)));
    let rows = taps.flat_map(|tap| (0..group).map(move |channel| (tap + 2 * channel) as u32)).collect();
    let place = (2 * region).next_multiple_of(64) + 64;
    let per_worker = (place + 2 * right).next_multiple_of(64) + 64;
    let chunks = (parts * groups) as u32;
    let vectors = panels.iter().map(|panel| panel.vectors).sum::<usize>();
    let sums = 2.0 * (batch * y.positions) as f64 * (pairs * PAIRED) as f64 * (filter / columns) as f64 * time_of(&panels);
    let made = y.positions.div_ceil(lines) as f64 * (high * width * wide / LANES) as f64 + y.positions as f64 * (pairs * vectors) as f64;
    let issued = sums + PAIRS * (batch * groups) as f64 * made;
    let kernel = Kernel {
        batch,
        axes: [y, x],
        channels,
        columns,
        panels,
        parts,
        groups,
        images,
        lines,
        width,
        wide,
        runs: (0..images * lines).map(run).collect(),
        pairs,
        together: (NEAR / (4 * width * wide * y.stride + 2 * PAIRED * VECTORS.min(vectors) * pairs)).max(TOGETHER.div_ceil(pairs)),
        rows,
        group,
        place,
    };
    let cost = Cost { flops: spec.flops(), bytes: spec.bytes() };
    let sums = Prepared { chunks, scratch: 0, per_worker: per_worker as u64, cost, in_place: Vec::new(), kernel: Arc::new(kernel) };
    elements(&[parts as u64, filter as u64])?;
    Ok(Some(Gradient { sums, parts: parts as u64, issued }))
}

impl CpuKernel for Kernel {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        for chunk in chunks {
            let (number, group) = (chunk as usize / self.groups, chunk as usize % self.groups);
            let images = number * self.batch / self.parts..(number + 1) * self.batch / self.parts;
            let channels = part(self.channels, self.groups, group);
            let taps = self.axes[0].taps * self.axes[1].taps;
            let to = args.pointers[2].cast::<f32>().wrapping_add(number * taps * self.channels * self.columns);
            let mut is_first = true;
            for first in images.clone().step_by(self.images) {
                let images = first..(first + self.images).min(images.end);
                for line in (0..self.axes[0].positions).step_by(self.lines) {
                    let lines = line..(line + self.lines).min(self.axes[0].positions);
                    // SAFETY: the arguments are the caller's; these elements of the result are this piece's.
                    unsafe { self.add(images.clone(), lines, channels.clone(), to, !is_first, args) };
                    is_first = false;
                }
            }
        }
        Ok(())
    }
}

impl Kernel {
    /// Adds the sums of these rows of results, or writes the first ones.
    unsafe fn add(&self, images: Range<usize>, lines: Range<usize>, channels: Range<usize>, to: *mut f32, add: bool, args: &Args<'_>) {
        let (region, gradient) = (args.worker.cast::<u16>(), args.worker.wrapping_add(self.place).cast::<u16>());
        let high = self.high(self.lines);
        let pairs = images.len() * lines.len() * self.pairs;
        for (number, image) in images.clone().enumerate() {
            // SAFETY: scratch that `prepare` asked for; images and lines that are there.
            unsafe {
                self.input(image, &lines, &channels, region.wrapping_add(number * high * self.width * 2 * self.wide), args);
                self.gradient(image, &lines, (gradient, number * lines.len() * self.pairs, pairs), args);
            }
        }
        let runs = &self.runs[..images.len() * lines.len()];
        let taps = self.axes[0].taps * self.axes[1].taps;
        // Rows of the filter that follow each other.
        let (stretches, rows) = if self.groups == 1 { (1, taps * self.group) } else { (taps, channels.len()) };
        for (number, runs) in runs.chunks(self.together).enumerate() {
            let right = Side { start: gradient, runs, pairs };
            for (panel, stretch) in self.panels.iter().flat_map(|panel| (0..stretches).map(move |stretch| (panel, stretch))) {
                let start = stretch * self.group;
                let left = Left { start: region, rows: &self.rows[start..start + rows], term: 4 * self.axes[1].stride * self.wide };
                let first = (stretch * self.channels + channels.start) * self.columns + panel.column;
                let place = Place { start: to.wrapping_add(first), row: self.columns, add: add || number > 0 };
                // SAFETY: the pairs have been made; the rows of the result are this piece's.
                unsafe { multiply(left, right, panel, place, Changes::NONE) };
            }
        }
    }

    /// Rows of the region that so many rows of results see.
    fn high(&self, lines: usize) -> usize {
        ((lines - 1) * self.axes[0].stride).saturating_add_signed(self.axes[0].extent())
    }

    /// The pairs of an image's input that these rows of results see.
    unsafe fn input(&self, image: usize, lines: &Range<usize>, channels: &Range<usize>, to: *mut u16, args: &Args<'_>) {
        let [y, x] = &self.axes;
        let from = args.pointers[0].cast::<f32>().cast_const().wrapping_add(image * y.size * x.size * self.channels + channels.start);
        let first = y.start(lines.start);
        for row in 0..self.high(lines.len()) {
            let to = to.wrapping_add(row * self.width * 2 * self.wide);
            let line = usize::try_from(first + row as isize).ok().filter(|line| *line < y.size);
            let Some(line) = line else {
                // SAFETY: room for a row.
                unsafe { to.write_bytes(0, self.width * 2 * self.wide) };
                continue;
            };
            let at = |position: usize| {
                let column = usize::try_from(x.start(0) + position as isize).ok().filter(|column| *column < x.size);
                column.map_or(std::ptr::null(), |column| from.wrapping_add((line * x.size + column) * self.channels))
            };
            // Both positions of a pair are on the input here.
            let inside = |index: isize| index.clamp(0, self.width as isize) as usize;
            let begin = inside(-x.start(0));
            let end = inside(x.size as isize - x.stride as isize - x.start(0)).max(begin);
            let to = |position: usize| to.wrapping_add(position * 2 * self.wide);
            // SAFETY: these channels of both positions are there; room for the pairs of each position.
            unsafe {
                let apart = x.stride * self.channels;
                convert::pairs_of_neighbours(at(begin), self.channels, apart, end - begin, channels.len(), self.wide, to(begin));
                for position in (0..begin).chain(end..self.width) {
                    convert::pairs_of_rows([at(position), at(position + x.stride)], channels.len(), self.wide, to(position));
                }
            }
        }
    }

    /// The pairs of the gradient by an image's result, of these rows: `before` pairs of other images are before them.
    unsafe fn gradient(&self, image: usize, lines: &Range<usize>, (to, before, pairs): (*mut u16, usize, usize), args: &Args<'_>) {
        let [y, x] = &self.axes;
        let from = args.pointers[1].cast::<f32>().cast_const();
        for panel in &self.panels {
            let width = panel.vectors * LANES;
            for (number, line) in lines.clone().enumerate() {
                let from = from.wrapping_add((image * y.positions + line) * x.positions * self.columns + panel.column);
                let to = to.wrapping_add(panel.start(pairs) + 2 * width * (before + number * self.pairs));
                // SAFETY: a row of the gradient is there; room for its pairs.
                unsafe { convert::pairs_of_terms(from, self.columns, panel.width(), x.positions, width, to) };
            }
        }
    }
}
