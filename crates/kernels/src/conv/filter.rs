//! The gradient of a convolution by its filter: for each tap a product of the input's channels and the gradient's, summed over
//! positions. Taps of a row are one product where the input has few channels, since their numbers follow each other.

use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::Result;
use plimsoll_device::{Args, Cost, CpuKernel, Fault, Prepared};

use super::Sizes;
use super::axis::{Axis, Run};
use super::tiles::{Code, Panel, Rows, Tile, code, part};
use crate::cut::elements;
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
const PARTS: usize = 16;

#[derive(Debug)]
struct FilterGradient {
    code: &'static Code,
    batch: usize,
    in_c: usize,
    out_c: usize,
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
    /// The pooling whose gradient the gradient by the result is, made in scratch for each block.
    unpool: Option<UnpoolRows>,
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

/// With `divide`, images may be divided into parts, whose number comes first. With a pooling, the gradient by the result is that of
/// the pooling by its input, made as it is needed. That pays for kernels of one piece for each part.
pub(super) fn prepare(isa: Isa, spec: &ConvSpec, divide: bool, unpool: Option<&PoolSpec>) -> Result<(u64, Prepared)> {
    let code = code(isa);
    let [z, y, x] = spec.sides();
    let panels = code.panels(spec.out_c as usize);
    let (in_c, out_c) = (spec.in_c as usize, spec.out_c as usize);
    let row = x.positions * out_c.min(code.width()) * 4;
    let block_rows = (BLOCK / row.max(1)).clamp(1, y.positions.max(1));
    let block_rows = y.positions.div_ceil(y.positions.div_ceil(block_rows).max(1)).max(1);
    // A unit is a tap, or some taps of a row, with some channels of the input and some panels.
    let group_count = if in_c >= 6 || x.dilation > 1 { x.taps } else { (x.taps * in_c).div_ceil(ROWS).clamp(1, x.taps) };
    let groups: Vec<Group> = (0..group_count).map(|number| group(&x, part(x.taps, group_count, number))).collect();
    let channel_parts = in_c.div_ceil(256).max(1);
    let unit_panels = (RESULT / 4 / in_c.div_ceil(channel_parts).max(1) / code.width()).clamp(1, panels.len().max(1));
    let panel_parts = panels.len().div_ceil(unit_panels);
    let units = z.taps * y.taps * group_count * channel_parts * panel_parts;
    let (unit_in, unit_out) =
        (in_c.div_ceil(channel_parts) as f64 * x.taps as f64 / group_count as f64, out_c.min(unit_panels * code.width()) as f64);
    let intensity = 2.0 * unit_in * unit_out / (4.0 * (unit_in + unit_out).max(1.0));
    let together = (INTENSITY / intensity.max(0.01)).ceil() as usize;
    let unhindered = units / together.max(1);
    let work = 4e6 / spec.flops().max(1.0);
    let parts = if divide && unhindered < PIECES { PARTS.min((1.0 / work) as usize).clamp(1, (spec.batch as usize).max(1)) } else { 1 };
    let pieces = if parts > 1 {
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
    let kernel = FilterGradient {
        code,
        batch: spec.batch as usize,
        in_c,
        out_c,
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
        unpool,
    };
    let chunks = (pieces * parts) as u32;
    Ok((parts as u64, Prepared { chunks, scratch: 0, per_worker, cost, in_place: Vec::new(), kernel: Arc::new(kernel) }))
}

impl CpuKernel for FilterGradient {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        if self.in_c == 0 || self.out_c == 0 {
            return Ok(());
        }
        let all_units = self.z.taps * self.y.taps * self.groups.len() * self.channel_parts * self.panel_parts;
        for chunk in chunks {
            let (number, piece) = (chunk as usize / self.pieces, chunk as usize % self.pieces);
            let units = part(all_units, self.pieces, piece);
            let size = self.z.taps * self.y.taps * self.x.taps * self.in_c * self.out_c;
            let to = args.pointers[2 + usize::from(self.unpool.is_some())].cast::<f32>().wrapping_add(number * size);
            for unit in units.clone() {
                // SAFETY: the unit's elements are written by this piece only.
                unsafe { self.clear(&self.unit(unit), to) };
            }
            let (planes, rows) = (self.z.positions, self.y.positions);
            let images = part(self.batch, self.parts, number);
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

impl FilterGradient {
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

    unsafe fn clear(&self, unit: &Unit<'_>, to: *mut f32) {
        let (Some(first), Some(last)) = (unit.panels.first(), unit.panels.last()) else {
            return;
        };
        let columns = last.column + (last.vectors - 1) * self.code.lanes + last.last - first.column;
        for tap_x in unit.group.taps.clone() {
            for channel in unit.channels.clone() {
                let row = ((unit.tap_z * self.y.taps + unit.tap_y) * self.x.taps + tap_x) * self.in_c + channel;
                // SAFETY: elements of the unit.
                unsafe { to.add(row * self.out_c + first.column).write_bytes(0, columns) };
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

    /// Adds the terms of rows of a plane, counted over all images, to a unit.
    unsafe fn add(&self, unit: &Unit<'_>, plane: usize, block: &Range<usize>, grad: *const f32, to: *mut f32, args: &Args<'_>) {
        let (in_c, out_c) = (self.in_c, self.out_c);
        let (in_w, out_w) = (self.x.size, self.x.positions);
        let (image, position) = (plane / self.z.positions, plane % self.z.positions);
        let rows = block.start.max(self.ys[unit.tap_y].start)..block.end.min(self.ys[unit.tap_y].end);
        if rows.is_empty() || !self.zs[unit.tap_z].contains(&position) {
            return;
        }
        let z = (image * self.z.size) as isize + self.z.start(position) + (unit.tap_z * self.z.dilation) as isize;
        let y = z * self.y.size as isize + self.y.start(rows.start) + (unit.tap_y * self.y.dilation) as isize;
        for run in unit.group.runs.iter().filter(|run| !run.positions.is_empty()) {
            // Numbers of the input that follow each other: channels of a tap, or of several taps.
            let numbers = if run.taps.len() == 1 { unit.channels.clone() } else { 0..run.taps.len() * in_c };
            let x = self.x.start(run.positions.start) + (run.taps.start * self.x.dilation) as isize;
            let input_position = y * in_w as isize + x;
            let a = args.pointers[0].cast::<f32>().cast_const().wrapping_offset(input_position * in_c as isize);
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
                        a: a.wrapping_add(first),
                        a_rows: Rows::new(1),
                        a_term: self.x.stride * in_c,
                        a_outer: self.y.stride * in_w * in_c,
                        b: b.wrapping_add(panel.column),
                        b_term: out_c,
                        b_outer: out_w * out_c,
                        c: c.wrapping_add(first * out_c + panel.column),
                        c_row: out_c,
                        last: panel.last,
                        add: true,
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
