//! The gradient of a convolution by its filter: for each tap a product of the input's channels and the gradient's, summed over
//! positions. Taps of a row are one product where the input has few channels, since their numbers follow each other.
//!
//! Floats are read where they lie, and summed where the result lies. Numbers of other types are widened a block of positions at a time;
//! sums of a few taps and channels are in the worker's scratch until they are rounded.

use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_device::{Args, Cost, CpuKernel, Fault, Prepared};

use super::Sizes;
use super::axis::{Axis, Run};
use super::tiles::{Ahead, Code, Panel, Rows, Tile, code};
use crate::cut::elements;
use crate::element::InFloats;
use crate::expr::Changes;
use crate::packing::{Packing, packing, part};
use crate::pool::UnpoolRows;
use crate::simd::Isa;
use plimsoll_request::conv::ConvSpec;
use plimsoll_request::pool::PoolSpec;

/// Bytes of a panel of the gradient by the result that are walked for all taps of a piece: they should stay in the nearest cache.
const BLOCK: usize = 36 << 10;
/// Bytes of the gradient by the filter that a piece should have at most.
const RESULT: usize = 128 << 10;
/// Operations for each byte that a piece reads, such that it does not wait for reading.
const INTENSITY: f64 = 8.0;
/// Rows of a product that one tap should have; with fewer, taps are put together to have about so many.
const ROWS: usize = 10;
/// So many pieces are wanted even where that costs reading, and so many parts where images are divided.
const PIECES: usize = 8;
pub(super) const PARTS: usize = 16;

struct FilterGradient<E> {
    code: &'static Code,
    packing: Packing<E>,
    batch: usize,
    /// Channels of a group of the input, and of all of it.
    in_c: usize,
    all_in_c: usize,
    /// Channels of the result, and of a group of it.
    out_c: usize,
    group_out_c: usize,
    z: Axis,
    y: Axis,
    x: Axis,
    /// For each plane, and for each row, of the filter the positions that see it on the operand.
    zs: Vec<Range<usize>>,
    ys: Vec<Range<usize>>,
    /// For each group of taps of a row: runs of positions, with the taps of the group that they see.
    groups: Vec<Group>,
    /// Rows of the result in a block.
    block_rows: usize,
    /// Into how many parts the channels of the input are cut.
    channel_parts: usize,
    /// Panels of channels of the result, and how many of them a unit has.
    panels: Vec<Panel>,
    unit_panels: usize,
    panel_parts: usize,
    pieces: usize,
    /// Into how many parts the images are divided, each with a result of its own.
    parts: usize,
    /// Whether sums are added to what the result has.
    onto: bool,
    /// The pooling whose gradient the gradient by the result is, made in scratch for each block.
    unpool: Option<UnpoolRows>,
    /// How numbers that are not floats are widened and rounded.
    widening: Option<Widening>,
}

/// Where numbers that are widened lie in the worker's scratch.
#[derive(Debug)]
struct Widening {
    /// Positions of a row that are widened at once.
    positions: usize,
    /// The gradient by the result, and the sums; the input is first.
    grad_place: usize,
    sums_place: usize,
    /// Whether the result is of floats: it is one of several parts, which are summed before they are rounded.
    in_parts: bool,
}

impl<E> std::fmt::Debug for FilterGradient<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shape = (self.batch, self.in_c, self.out_c, self.z, self.y, self.x);
        f.debug_struct("FilterGradient").field("shape", &shape).field("pieces", &(self.pieces, self.parts)).finish()
    }
}

/// Taps of a row of the filter that are one product.
#[derive(Debug)]
struct Group {
    taps: Range<usize>,
    runs: Vec<Run>,
}

fn group(x: &Axis, taps: Range<usize>) -> Group {
    if taps.len() == 1 {
        let positions = x.positions_of(taps.start);
        return Group { runs: vec![Run { positions, taps: taps.clone() }], taps };
    }
    let seen = |run: Run| Run { taps: run.taps.start.max(taps.start)..run.taps.end.min(taps.end), positions: run.positions };
    let mut runs: Vec<Run> = Vec::new();
    for run in x.runs().into_iter().map(seen).filter(|run| !run.taps.is_empty()) {
        match runs.last_mut() {
            Some(last) if last.taps == run.taps && last.positions.end == run.positions.start => last.positions.end = run.positions.end,
            _ => runs.push(run),
        }
    }
    Group { taps, runs }
}

impl std::fmt::Debug for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} lanes", self.lanes)
    }
}

/// The first image of a part, or the first group of images: where parts begin of which there are half as many, parts of these begin.
pub(super) fn images(batch: usize, parts: usize, number: usize) -> usize {
    (number as u128 * batch as u128 / parts.max(1) as u128) as usize
}

/// The largest power of two that is not above a number; 1 at least.
fn power(number: usize) -> usize {
    1 << number.checked_ilog2().unwrap_or(0)
}

/// Into how many parts images are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Images {
    /// One.
    Together,
    /// As many as pay.
    AsPays,
    /// So many; with `onto`, sums are added to what the result has.
    Into { parts: usize, onto: bool },
}

/// With a pooling, the gradient by the result is that of the pooling by its input, made as it is needed. That pays for kernels of one piece
/// for each part. The number of parts comes first.
///
/// Of floats, results are in the type of the elements; of other types too, unless there are several parts: then they are floats.
pub(super) fn prepare<E: InFloats>(isa: Isa, spec: &ConvSpec, images: Images, unpool: Option<&PoolSpec>) -> Result<(u64, Prepared)> {
    let is_widened = E::TYPE != DataType::Float;
    if is_widened && unpool.is_some() {
        return Err(Error::unimplemented(format!("a gradient of {} that is unpooled", E::TYPE)));
    }
    let code = code(isa);
    let [z, y, x] = spec.sides();
    let (in_c, out_c, group_out_c) = ((spec.in_c / spec.groups) as usize, spec.out_c as usize, (spec.out_c / spec.groups) as usize);
    let panels = code.panels_of_groups(out_c, group_out_c);
    // Copies have whole vectors.
    let width = if is_widened { out_c.next_multiple_of(code.lanes).min(code.width()) } else { out_c.min(code.width()) };
    let row = x.positions * width * 4;
    let block_rows = (BLOCK / row.max(1)).clamp(1, y.positions.max(1));
    let block_rows = y.positions.div_ceil(y.positions.div_ceil(block_rows).max(1)).max(1);
    // A unit is a tap, or some taps of a row, with some channels of the input and some panels.
    let group_count = if in_c >= 6 || x.dilation > 1 || spec.groups > 1 { x.taps } else { (x.taps * in_c).div_ceil(ROWS).clamp(1, x.taps) };
    let groups: Vec<Group> = (0..group_count).map(|number| group(&x, part(x.taps, group_count, number))).collect();
    let channel_parts = in_c.div_ceil(256).max(1);
    // A unit is of one group of channels.
    let most_panels = if spec.groups > 1 { 1 } else { panels.len().max(1) };
    let unit_panels = (RESULT / 4 / in_c.div_ceil(channel_parts).max(1) / code.width()).clamp(1, most_panels);
    let panel_parts = panels.len().div_ceil(unit_panels);
    let units = z.taps * y.taps * group_count * channel_parts * panel_parts;
    let (unit_in, unit_out) =
        (in_c.div_ceil(channel_parts) as f64 * x.taps as f64 / group_count as f64, out_c.min(unit_panels * code.width()) as f64);
    let intensity = 2.0 * unit_in * unit_out / (4.0 * (unit_in + unit_out).max(1.0));
    let together = (INTENSITY / intensity.max(0.01)).ceil() as usize;
    let unhindered = units / together.max(1);
    let work = 4e6 / spec.flops().max(1.0);
    let (parts, onto) = match images {
        Images::AsPays if unhindered < PIECES => (power(PARTS.min((1.0 / work) as usize).min(spec.batch as usize)), false),
        Images::Together | Images::AsPays => (1, false),
        Images::Into { parts, onto } => (parts.max(1), onto),
    };
    let is_unpooled_once = unpool.is_some() && matches!(images, Images::Into { .. });
    let pieces = if parts > 1 || is_unpooled_once {
        1
    } else {
        let small = (work * units as f64).ceil() as usize;
        unhindered.max(units.min(PIECES + PIECES / 2)).min(units.div_ceil(small.max(1))).clamp(1, 256)
    };
    let mut cost = Cost { flops: spec.flops(), bytes: spec.bytes() };
    let unpool = unpool.map(|pool| UnpoolRows::new(isa, pool)).transpose()?;
    let mut per_worker = 0;
    if let Some(unpool) = &unpool {
        per_worker = elements(&[block_rows as u64, x.positions as u64, spec.out_c])? as u64 * 4;
        cost = cost + unpool.cost();
        cost.bytes -= 8.0 * spec.output().iter().map(|size| *size as f64).product::<f64>();
    }
    let widening = is_widened.then(|| {
        let positions = (BLOCK / (4 * width).max(1)).clamp(1, x.positions.max(1));
        let floats = |count: usize| (count * 4).next_multiple_of(64) + 64;
        let taps = groups.iter().map(|group| group.taps.len()).max().unwrap_or(0);
        let numbers = if taps > 1 { taps * in_c } else { in_c.div_ceil(channel_parts) };
        let all = block_rows * positions;
        let grad_place = floats(all * numbers.next_multiple_of(code.lanes));
        let sums_place = grad_place + floats(all * width);
        let sums = numbers * unit_panels.min(panels.len()) * code.width();
        per_worker = (sums_place + floats(sums)) as u64;
        Widening { positions, grad_place, sums_place, in_parts: parts > 1 }
    });
    let kernel = FilterGradient::<E> {
        code,
        packing: packing::<E>(isa),
        batch: spec.batch as usize,
        in_c,
        all_in_c: spec.in_c as usize,
        out_c,
        group_out_c,
        zs: (0..z.taps).map(|tap| z.positions_of(tap)).collect(),
        ys: (0..y.taps).map(|tap| y.positions_of(tap)).collect(),
        groups,
        z,
        y,
        x,
        block_rows,
        channel_parts,
        panels,
        unit_panels,
        panel_parts,
        pieces,
        parts,
        onto,
        unpool,
        widening,
    };
    let chunks = (pieces * parts) as u32;
    Ok((parts as u64, Prepared { chunks, scratch: 0, per_worker, cost, in_place: Vec::new(), kernel: Arc::new(kernel) }))
}

impl<E: InFloats> CpuKernel for FilterGradient<E> {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        if self.in_c == 0 || self.out_c == 0 {
            return Ok(());
        }
        let all_units = self.z.taps * self.y.taps * self.groups.len() * self.channel_parts * self.panel_parts;
        for chunk in chunks {
            let (number, piece) = (chunk as usize / self.pieces, chunk as usize % self.pieces);
            let units = part(all_units, self.pieces, piece);
            let size = self.z.taps * self.y.taps * self.x.taps * self.in_c * self.out_c;
            let images = images(self.batch, self.parts, number)..images(self.batch, self.parts, number + 1);
            if let Some(widening) = &self.widening {
                for unit in units {
                    // SAFETY: the unit's elements are written by this piece only.
                    unsafe { self.widened(widening, &self.unit(unit), images.clone(), number * size, args) };
                }
                continue;
            }
            let to = args.pointers[2 + usize::from(self.unpool.is_some())].cast::<f32>().wrapping_add(number * size);
            for unit in units.clone().filter(|_| !self.onto) {
                // SAFETY: the unit's elements are written by this piece only.
                unsafe { self.clear(&self.unit(unit), to) };
            }
            let (planes, rows) = (self.z.positions, self.y.positions);
            for plane in images.start * planes..images.end * planes {
                for block in (0..rows).step_by(self.block_rows) {
                    let block = block..(block + self.block_rows).min(rows);
                    // SAFETY: the rows of a block fit in scratch.
                    let grad = unsafe { self.gradient(plane * rows + block.start..plane * rows + block.end, args) };
                    for unit in units.clone() {
                        // SAFETY: the plane and the rows are there; the unit's elements are written by this piece only.
                        unsafe { self.add(&self.unit(unit), plane, &block, grad, to, args) };
                    }
                }
            }
        }
        Ok(())
    }
}

/// A part of the gradient by the filter.
struct Unit<'a> {
    tap_z: usize,
    tap_y: usize,
    group: &'a Group,
    channels: Range<usize>,
    panels: &'a [Panel],
}

impl Unit<'_> {
    /// The columns of its panels.
    fn columns(&self, code: &Code) -> Range<usize> {
        match (self.panels.first(), self.panels.last()) {
            (Some(first), Some(last)) => first.column..last.column + (last.vectors - 1) * code.lanes + last.last,
            _ => 0..0,
        }
    }
}

impl<E: InFloats> FilterGradient<E> {
    /// Taps of a row of the filter follow each other: they read the same rows.
    fn unit(&self, unit: usize) -> Unit<'_> {
        let (rest, channels) = (unit / self.channel_parts, unit % self.channel_parts);
        let (rest, group) = (rest / self.groups.len(), rest % self.groups.len());
        let (rest, tap_y) = (rest / self.y.taps, rest % self.y.taps);
        let (panels, tap_z) = (rest / self.z.taps * self.unit_panels, rest % self.z.taps);
        Unit {
            tap_z,
            tap_y,
            group: &self.groups[group],
            channels: part(self.in_c, self.channel_parts, channels),
            panels: &self.panels[panels..(panels + self.unit_panels).min(self.panels.len())],
        }
    }

    /// The first channel of the input that a unit reads.
    fn group_start(&self, unit: &Unit<'_>) -> usize {
        unit.panels.first().map_or(0, |panel| panel.column / self.group_out_c * self.in_c)
    }

    unsafe fn clear(&self, unit: &Unit<'_>, to: *mut f32) {
        let columns = unit.columns(self.code);
        for tap_x in unit.group.taps.clone() {
            for channel in unit.channels.clone() {
                let row = ((unit.tap_z * self.y.taps + unit.tap_y) * self.x.taps + tap_x) * self.in_c + channel;
                // SAFETY: elements of the unit.
                unsafe { to.add(row * self.out_c + columns.start).write_bytes(0, columns.len()) };
            }
        }
    }

    /// Where the gradient by the result would begin if all was there: the rows, counted over all images, are.
    unsafe fn gradient(&self, rows: Range<usize>, args: &Args<'_>) -> *const f32 {
        let Some(unpool) = &self.unpool else { return args.pointers[1].cast::<f32>().cast_const() };
        let row = self.x.positions * self.out_c;
        let grad = args.worker.cast::<f32>().wrapping_sub(rows.start * row);
        // SAFETY: the caller's promise; positions and the gradient by the pooling's result are arguments.
        unsafe { unpool.run(rows, args.pointers[1].cast_const(), args.pointers[2].cast::<f32>().cast_const(), grad) };
        grad.cast_const()
    }

    /// The rows of a block of a plane that see the unit's taps on the operand, and the row of the operand that the first sees. Planes
    /// and rows of the operand are counted over all images.
    fn rows(&self, unit: &Unit<'_>, plane: usize, block: &Range<usize>) -> Option<(Range<usize>, isize)> {
        let (image, position) = (plane / self.z.positions, plane % self.z.positions);
        let rows = block.start.max(self.ys[unit.tap_y].start)..block.end.min(self.ys[unit.tap_y].end);
        if rows.is_empty() || !self.zs[unit.tap_z].contains(&position) {
            return None;
        }
        let z = (image * self.z.size) as isize + self.z.start(position) + (unit.tap_z * self.z.dilation) as isize;
        let y = z * self.y.size as isize + self.y.start(rows.start) + (unit.tap_y * self.y.dilation) as isize;
        Some((rows, y))
    }

    /// Computes a unit from numbers that are widened, over all these images. The result begins at element `at`.
    ///
    /// # Safety
    /// The arguments are those that the kernel was prepared for, and the unit's elements are the caller's.
    unsafe fn widened(&self, widening: &Widening, unit: &Unit<'_>, images: Range<usize>, at: usize, args: &Args<'_>) {
        let (columns, channels) = (unit.columns(self.code), unit.channels.len());
        let width = columns.len();
        // SAFETY: places in the scratch that `prepare` asked for, here and below.
        let sums = unsafe { args.worker.add(widening.sums_place).cast::<f32>() };
        // SAFETY: a unit's sums are at most as many as there is room for.
        unsafe { sums.write_bytes(0, unit.group.taps.len() * channels * width) };
        let (planes, rows) = (self.z.positions, self.y.positions);
        for plane in images.start * planes..images.end * planes {
            for block in (0..rows).step_by(self.block_rows) {
                let block = block..(block + self.block_rows).min(rows);
                // SAFETY: as this function.
                unsafe { self.add_widened(widening, unit, plane, &block, sums, args) };
            }
        }
        for (number, tap_x) in unit.group.taps.clone().enumerate() {
            for channel in 0..channels {
                let row = ((unit.tap_z * self.y.taps + unit.tap_y) * self.x.taps + tap_x) * self.in_c + unit.channels.start + channel;
                let to = at + row * self.out_c + columns.start;
                let from = sums.wrapping_add((number * channels + channel) * width);
                for column in 0..width {
                    // SAFETY: elements of the unit; its sums have been made.
                    unsafe {
                        let sum = from.add(column).read();
                        if widening.in_parts {
                            args.pointers[2].cast::<f32>().add(to + column).write(sum);
                        } else {
                            args.pointers[2].cast::<E>().add(to + column).write(E::narrow(sum));
                        }
                    }
                }
            }
        }
    }

    /// As [`FilterGradient::add`], of numbers that are widened first; `sums` are the unit's alone.
    ///
    /// # Safety
    /// As there; there is room in the worker's scratch.
    unsafe fn add_widened(
        &self,
        widening: &Widening,
        unit: &Unit<'_>,
        plane: usize,
        block: &Range<usize>,
        sums: *mut f32,
        args: &Args<'_>,
    ) {
        let (in_c, all_in_c, out_c, lanes) = (self.in_c, self.all_in_c, self.out_c, self.code.lanes);
        let (in_w, out_w) = (self.x.size, self.x.positions);
        let Some((rows, y)) = self.rows(unit, plane, block) else { return };
        let (columns, channels) = (unit.columns(self.code), unit.channels.len());
        // SAFETY: places in the scratch that `prepare` asked for.
        let (wide_input, wide_grad) = unsafe { (args.worker.cast::<f32>(), args.worker.add(widening.grad_place).cast::<f32>()) };
        let (input, grad) = (args.pointers[0].cast::<E>().cast_const(), args.pointers[1].cast::<E>().cast_const());
        for run in unit.group.runs.iter().filter(|run| !run.positions.is_empty()) {
            let (first_number, numbers) = match run.taps.len() {
                1 => (unit.channels.start, channels),
                taps => (0, taps * in_c),
            };
            let (vectors, sums_row) = (numbers.div_ceil(lanes), (run.taps.start - unit.group.taps.start) * channels);
            if numbers == 0 {
                continue;
            }
            for start in run.positions.clone().step_by(widening.positions) {
                let positions = start..(start + widening.positions).min(run.positions.end);
                let x = self.x.start(positions.start) + (run.taps.start * self.x.dilation) as isize;
                let a =
                    input.wrapping_offset((y * in_w as isize + x) * all_in_c as isize).wrapping_add(self.group_start(unit) + first_number);
                let a_outer = positions.len() * vectors * lanes;
                for row in 0..rows.len() {
                    let from = a.wrapping_add(row * self.y.stride * in_w * all_in_c);
                    let last = numbers - (vectors - 1) * lanes;
                    // SAFETY: these positions see the taps on the operand; a block of them has room.
                    unsafe {
                        (self.packing.copy)(from, self.x.stride * all_in_c, positions.len(), vectors, last, wide_input.add(row * a_outer));
                    };
                }
                for panel in unit.panels {
                    let b_term = panel.vectors * lanes;
                    let b_outer = positions.len() * b_term;
                    for row in 0..rows.len() {
                        let position = (plane * self.y.positions + rows.start + row) * out_w + positions.start;
                        let from = grad.wrapping_add(position * out_c + panel.column);
                        // SAFETY: as above.
                        unsafe {
                            (self.packing.copy)(from, out_c, positions.len(), panel.vectors, panel.last, wide_grad.add(row * b_outer));
                        };
                    }
                    let count = numbers.div_ceil(self.code.rows[panel.vectors - 1]);
                    for number in 0..count {
                        let part = part(numbers, count, number);
                        let tile = Tile {
                            outer: rows.len(),
                            inner: positions.len(),
                            a: wide_input.wrapping_add(part.start).cast_const(),
                            a_rows: Rows::new(1),
                            a_term: vectors * lanes,
                            a_outer,
                            b: wide_grad.cast_const(),
                            b_term,
                            b_outer,
                            c: sums.wrapping_add((sums_row + part.start) * columns.len() + panel.column - columns.start),
                            c_row: columns.len(),
                            last: panel.last,
                            add: true,
                            changes: Changes::NONE,
                            ahead: Ahead::NONE,
                            fetches: false,
                        };
                        if let Some(compute) = self.code.packed[part.len() - 1][panel.vectors - 1] {
                            // SAFETY: all numbers of the block have been widened; the sums are the unit's.
                            unsafe { compute(&tile) };
                        }
                    }
                }
            }
        }
    }

    /// Adds the terms of rows of a plane, counted over all images, to a unit.
    unsafe fn add(&self, unit: &Unit<'_>, plane: usize, block: &Range<usize>, grad: *const f32, to: *mut f32, args: &Args<'_>) {
        let (in_c, all_in_c, out_c) = (self.in_c, self.all_in_c, self.out_c);
        let (in_w, out_w) = (self.x.size, self.x.positions);
        let Some((rows, y)) = self.rows(unit, plane, block) else { return };
        for run in unit.group.runs.iter().filter(|run| !run.positions.is_empty()) {
            // Numbers of the input that follow each other: channels of a tap, or of several taps.
            let numbers = if run.taps.len() == 1 { unit.channels.clone() } else { 0..run.taps.len() * in_c };
            let x = self.x.start(run.positions.start) + (run.taps.start * self.x.dilation) as isize;
            let input_position = y * in_w as isize + x;
            let a = args.pointers[0].cast::<f32>().cast_const().wrapping_offset(input_position * all_in_c as isize);
            let position = (plane * self.y.positions + rows.start) * out_w + run.positions.start;
            let b = grad.wrapping_add(position * out_c);
            let taps = (unit.tap_z * self.y.taps + unit.tap_y) * self.x.taps + run.taps.start;
            let c = to.wrapping_add(taps * in_c * out_c);
            for panel in unit.panels {
                let count = numbers.len().div_ceil(self.code.rows[panel.vectors - 1]);
                let table = if panel.last < self.code.lanes { &self.code.direct } else { &self.code.packed };
                for number in 0..count {
                    let part = part(numbers.len(), count, number);
                    let first = numbers.start + part.start;
                    let tile = Tile {
                        outer: rows.len(),
                        inner: run.positions.len(),
                        a: a.wrapping_add(self.group_start(unit) + first),
                        a_rows: Rows::new(1),
                        a_term: self.x.stride * all_in_c,
                        a_outer: self.y.stride * in_w * all_in_c,
                        b: b.wrapping_add(panel.column),
                        b_term: out_c,
                        b_outer: out_w * out_c,
                        c: c.wrapping_add(first * out_c + panel.column),
                        c_row: out_c,
                        last: panel.last,
                        add: true,
                        changes: Changes::NONE,
                        ahead: Ahead::NONE,
                        fetches: false,
                    };
                    if let Some(compute) = table[part.len() - 1][panel.vectors - 1] {
                        // SAFETY: every position of the block sees these taps on the operand; the elements of the gradient by
                        // the filter are this unit's.
                        unsafe { compute(&tile) };
                    }
                }
            }
        }
    }
}
