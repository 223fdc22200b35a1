//! The gradient by the filter: values of tiles of the operand and of the gradient by the result are multiplied at each point, and summed over
//! tiles ([`by_filter`]). What is interpolated from the sums are the taps ([`end_by_filter`]).
//!
//! A sum is made image after image, or group after group of images where these have few tiles: each adds what it has summed in registers. So
//! several calls can add to one sum, where each begins with a whole group, and the bits are those of one call.
//!
//! With a pooling, the gradient by the result is that of the pooling by its input. Rows of it are made in scratch, those of a row of tiles at
//! a time.

use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::{Error, Result};
use plimsoll_device::{Args, Cost, CpuKernel, Fault, Prepared};
use plimsoll_request::conv::ConvSpec;
use plimsoll_request::pool::PoolSpec;

use super::transform::{Sums, SumsFn, sums_of, transforms};
use super::{Shape, has_tiles};
use crate::conv::filter::images;
use crate::conv::tiles::{Ahead, Panel, Rows, Tile, code};
use crate::conv::{Sizes, may_unpool};
use crate::cut::{Cut, elements};
use crate::expr::Changes;
use crate::packing::part;
use crate::pool::UnpoolRows;
use crate::simd::Isa;

/// Bytes of the values of a block of tiles: these and the sums of a unit stay in the second cache.
const CACHED: usize = 768 << 10;
/// The least and the most tiles of a block.
const LEAST_TILES: usize = 16;
const MOST_TILES: usize = 96;
/// Tiles whose products are summed in registers, at least, where a power of two of the images has so many.
const WANTED_TILES: usize = 32;
/// Columns of the results that a unit has at most, and bytes of its sums: those of a point stay in the nearest cache.
const UNIT: usize = 64;
const UNIT_SUMS: usize = 576 << 10;
/// So many pieces are wanted, and so many sums of each point at most.
const PIECES: usize = 8;
/// Bytes of all sums. What has more has no such form.
const MOST_BYTES: u64 = 16 << 20;
/// Positions times channels, of which at most so many count: with fewer, errors of the largest result may be larger than promised.
const LEAST_SUMMED: u64 = 512;
const MOST_CHANNELS: u64 = 8;
/// So many sums of a term hide the time that an addition takes; with fewer, the products take as long.
const SUMS_IN_FLIGHT: f64 = 8.0;

struct Summed {
    shape: Shape,
    /// Images whose tiles are summed together, and into how many blocks these tiles are divided.
    images: usize,
    blocks: usize,
    /// Into how many parts channels and panels are divided.
    channel_parts: usize,
    panel_parts: usize,
    parts: usize,
    /// Whether sums are added to what is there.
    onto: bool,
    /// From point to point of the values of the operand, and of those of the gradient, which begin at a place in the worker's scratch.
    operand_point: usize,
    gradient_point: usize,
    gradient_place: usize,
    unpool: Option<Unpool>,
}

/// The pooling whose gradient the gradient by the result is, and where in the worker's scratch its rows are.
struct Unpool {
    rows: UnpoolRows,
    place: usize,
}

impl std::fmt::Debug for Summed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let units = (self.channel_parts, self.panel_parts, self.parts);
        f.debug_struct("Summed").field("images", &self.images).field("blocks", &self.blocks).field("units", &units).finish()
    }
}

/// The kernel that sums, and the work that tables of costs price.
pub(crate) struct ByFilter {
    /// How many sums there are of every point, points along each axis, and images whose tiles are summed together.
    pub sums: u64,
    pub points: u64,
    pub images: u64,
    /// Arguments: input, gradient by the result, sums. With a pooling: input, positions, gradient by the pooling's result, sums.
    pub summed: Prepared,
    /// Arithmetic operations of the products, with those of lanes and tiles that hold nothing.
    pub issued: f64,
    /// The other operations.
    pub elementwise: f64,
}

/// Whether there is such a form of a gradient by the filter at so many points along each axis.
fn has_form(spec: &ConvSpec, points: u64) -> bool {
    let bytes = spec.at_points(points).and_then(|values| values.checked_mul(4));
    has_tiles(spec) && bytes.is_some_and(|bytes| bytes <= MOST_BYTES)
}

/// Images whose tiles are summed together: a power of two that divides the batch.
fn images_of(spec: &ConvSpec, points: u64) -> u64 {
    let [_, rows, columns] = spec.axes.filled();
    let step = (points + 1).saturating_sub(rows.taps).max(1);
    let tiles = rows.positions.div_ceil(step).saturating_mul(columns.positions.div_ceil(step));
    let wanted = (WANTED_TILES as u64 / tiles.max(1)).max(1);
    1 << wanted.ilog2().min(spec.batch.trailing_zeros())
}

/// The most blocks that are added to a sum at so many points along each axis, by taps: with more, errors may be larger than promised.
fn most_added(points: u64, taps: u64) -> usize {
    match (points, taps) {
        (8, _) => 96,
        (_, 5) => 512,
        _ => 2048,
    }
}

/// Sums at the points, as many as pay; none where there is no such form. At eight points along each axis where few blocks are added to each.
/// With a pooling there is none where rows would be made several times.
///
/// # Errors
/// As [`crate::conv::conv_on`]; INVALID_ARGUMENT where the pooling does not fit.
pub(crate) fn by_filter(isa: Isa, spec: &ConvSpec, unpool: Option<&PoolSpec>) -> Result<Option<ByFilter>> {
    let [_, rows, columns] = spec.axes.filled();
    let summed_at = [rows.positions, columns.positions, spec.in_c.min(MOST_CHANNELS)];
    if summed_at.iter().fold(spec.batch, |all, size| all.saturating_mul(*size)) < LEAST_SUMMED {
        return Ok(None);
    }
    for points in [8, 6] {
        if let Some((made, added)) = summed(isa, (spec, unpool), (points, images_of(spec, points)), None)?
            && added <= most_added(points, rows.taps)
        {
            return Ok(Some(made));
        }
    }
    Ok(None)
}

/// So many sums at so many points along each axis, of so many images at once; with `onto` they are added to what is there. None where there is no such form.
///
/// # Errors
/// INVALID_ARGUMENT where the images are not of so many whole groups, and as [`by_filter`].
pub(crate) fn some_by_filter(
    isa: Isa,
    of: (&ConvSpec, Option<&PoolSpec>),
    form: (u64, u64),
    (sums, onto): (u64, bool),
) -> Result<Option<ByFilter>> {
    Ok(summed(isa, of, form, Some((sums, onto)))?.map(|(made, _)| made))
}

/// The kernel, and how many blocks are added to each sum.
fn summed(
    isa: Isa,
    (spec, unpool): (&ConvSpec, Option<&PoolSpec>),
    (points, images): (u64, u64),
    into: Option<(u64, bool)>,
) -> Result<Option<(ByFilter, usize)>> {
    if !has_form(spec, points) {
        return Ok(None);
    }
    spec.check()?;
    if let Some(pool) = unpool
        && !may_unpool(spec, pool)?
    {
        return Ok(None);
    }
    if images == 0 || !spec.batch.is_multiple_of(images) {
        return Err(Error::invalid_argument(format!("{images} of {} images at once", spec.batch)));
    }
    let [_, rows, columns] = spec.sides();
    let along = points as usize;
    let Some(transforms) = transforms(isa, along, (along + 1).saturating_sub(rows.taps)) else { return Ok(None) };
    let code = code(isa);
    let shape = Shape {
        code,
        transforms,
        is_gradient: false,
        batch: spec.batch as usize,
        axes: [rows, columns],
        taps: rows.taps,
        points: along,
        terms: spec.in_c as usize,
        columns: spec.out_c as usize,
        panels: code.panels(spec.out_c as usize),
    };
    let [grid_rows, grid_columns] = shape.grid();
    elements(&[spec.batch, grid_rows as u64, grid_columns as u64, points * points, spec.in_c.max(spec.out_c.next_multiple_of(16))])?;

    let planes = shape.planes();
    let channel_parts = shape.terms.div_ceil(UNIT_SUMS / (4 * planes * UNIT));
    let panel_parts = shape.panels.len().div_ceil((UNIT / code.width()).max(1));
    let (units, images) = (channel_parts * panel_parts, images as usize);
    if unpool.is_some() && units > 1 {
        return Ok(None);
    }
    let (groups, values) = (shape.batch / images, planes * shape.terms * shape.columns);
    let (parts, onto) = match into {
        None => {
            let most = (PIECES / units.min(PIECES)).min(groups).min(MOST_BYTES as usize / (4 * values));
            (1 << most.max(1).ilog2(), false)
        }
        Some((sums, onto)) if sums > 0 && sums <= groups as u64 => (sums as usize, onto),
        Some((sums, _)) => return Err(Error::invalid_argument(format!("{sums} sums over {groups} groups of images"))),
    };
    elements(&[parts as u64, values as u64])?;

    let channels = shape.terms.div_ceil(channel_parts);
    let widths = (0..panel_parts).map(|number| shape.width_of(part(shape.panels.len(), panel_parts, number)));
    let width = widths.max().unwrap_or(0);
    let tiles = grid_rows * grid_columns * images;
    let most = (CACHED / (4 * planes * (channels + width))).clamp(LEAST_TILES, MOST_TILES);
    let blocks = tiles.div_ceil(most);
    // Values of two points do not fall onto the same cache sets.
    let point = |channels: usize| tiles.div_ceil(blocks) * channels + 16;
    let floats = |count: usize| (count * 4).next_multiple_of(64) + 64;
    let (operand_point, gradient_point) = (point(channels), point(width));
    let gradient_place = floats(planes * operand_point);
    let mut scratch = gradient_place + floats(planes * gradient_point);
    let rows_place = scratch;
    if unpool.is_some() {
        scratch += floats(elements(&[shape.step() as u64, columns.positions as u64, spec.out_c])?);
    }

    let count = |sizes: &[usize]| sizes.iter().map(|size| *size as f64).product::<f64>();
    let operand = count(&[shape.batch, rows.size, columns.size, shape.terms, panel_parts]);
    let gradient = count(&[shape.batch, rows.positions, columns.positions, shape.columns, channel_parts]);
    let [terms, padded] = [shape.terms, shape.columns].map(|channels| channels.next_multiple_of(code.lanes));
    // Few sums wait for each other.
    let sums_of_a_term = count(&[shape.terms, padded / code.lanes]);
    let issued = 2.0 * count(&[planes, shape.tiles(), shape.terms, padded]) * (SUMS_IN_FLIGHT / sums_of_a_term).max(1.0);
    // A value of the operand takes about three operations, one of the gradient two, by whole vectors. Each block adds to every sum.
    let values_made = count(&[planes, shape.tiles()]) * count(&[terms, panel_parts]).mul_add(3.0, 2.0 * count(&[padded, channel_parts]));
    let mut elementwise = values_made + count(&[groups, blocks, values]);
    let mut cost = Cost { flops: shape.multiplications() + elementwise, bytes: 4.0 * (operand + gradient + count(&[parts, values])) };
    let unpool = unpool.map(|pool| UnpoolRows::new(isa, pool)).transpose()?.map(|rows| Unpool { rows, place: rows_place });
    if let Some(unpool) = &unpool {
        elementwise += unpool.rows.cost().flops;
        cost = cost + unpool.rows.cost();
        cost.bytes -= 8.0 * gradient;
    }
    let added = groups.div_ceil(parts) * blocks;
    let chunks = u32::try_from(units * parts).map_err(|_| Error::invalid_argument("a gradient by a filter with too many pieces"))?;
    let kernel =
        Summed { shape, images, blocks, channel_parts, panel_parts, parts, onto, operand_point, gradient_point, gradient_place, unpool };
    let summed = Prepared { chunks, scratch: 0, per_worker: scratch as u64, cost, in_place: Vec::new(), kernel: Arc::new(kernel) };
    Ok(Some((ByFilter { sums: parts as u64, points, images: images as u64, summed, issued, elementwise }, added)))
}

impl Shape {
    /// The elements of some panels, with those of their last vector that are not there.
    fn width_of(&self, panels: Range<usize>) -> usize {
        self.panels[panels].iter().map(|panel| self.width(panel)).sum()
    }
}

impl CpuKernel for Summed {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        let shape = &self.shape;
        let (groups, values) = (shape.batch / self.images, shape.planes() * shape.terms * shape.columns);
        for chunk in chunks {
            let (rest, channels) = (chunk as usize / self.channel_parts, chunk as usize % self.channel_parts);
            let (number, panels) = (rest / self.panel_parts, rest % self.panel_parts);
            let to = args.pointers[2 + usize::from(self.unpool.is_some())].cast::<f32>().wrapping_add(number * values);
            let channels = part(shape.terms, self.channel_parts, channels);
            let panels = &shape.panels[part(shape.panels.len(), self.panel_parts, panels)];
            // SAFETY: the arguments are the caller's promise; these sums are written by this piece only.
            unsafe { self.unit(images(groups, self.parts, number)..images(groups, self.parts, number + 1), &channels, panels, to, args) };
        }
        Ok(())
    }
}

impl Summed {
    /// The sums of some channels and panels over some groups of images.
    unsafe fn unit(&self, groups: Range<usize>, channels: &Range<usize>, panels: &[Panel], to: *mut f32, args: &Args<'_>) {
        let shape = &self.shape;
        let (Some(first), Some(last)) = (panels.first(), panels.last()) else { return };
        let (lanes, tiles) = (shape.code.lanes, shape.tiles() / shape.batch * self.images);
        let columns = first.column..last.column + (last.vectors - 1) * lanes + last.last;
        let input = args.pointers[0].cast::<f32>().cast_const();
        // SAFETY: a place in scratch that `by_filter` asked for.
        let (operand, results) = unsafe { (args.worker.cast::<f32>(), args.worker.add(self.gradient_place).cast::<f32>()) };
        let to = to.wrapping_add(channels.start * shape.columns);
        for group in groups.clone() {
            for block in 0..self.blocks {
                let block_tiles = part(tiles, self.blocks, block);
                let count = block_tiles.len();
                let block_tiles = group * tiles + block_tiles.start..group * tiles + block_tiles.end;
                // SAFETY: the operands are the caller's, and there is room for the values of a block.
                unsafe {
                    shape.evaluate(block_tiles.clone(), channels, input, (operand, self.operand_point));
                    self.evaluate_gradient(block_tiles, &columns, results, args);
                }
                let add = self.onto || group > groups.start || block > 0;
                for point in 0..shape.planes() {
                    let a = operand.wrapping_add(point * self.operand_point);
                    let c = to.wrapping_add(point * shape.terms * shape.columns);
                    for panel in panels {
                        let b = results.wrapping_add(point * self.gradient_point + panel.column - columns.start);
                        // SAFETY: the values have been made; the sums are the caller's.
                        unsafe { self.multiply((panel, &columns), channels.len(), count, (a, b), (c.wrapping_add(panel.column), add)) };
                    }
                }
            }
        }
    }

    /// The values at the points of some columns of the gradient by the result.
    ///
    /// # Safety
    /// The arguments are the caller's, and there is room for the values.
    unsafe fn evaluate_gradient(&self, tiles: Range<usize>, columns: &Range<usize>, to: *mut f32, args: &Args<'_>) {
        let shape = &self.shape;
        let gradient = args.pointers[1 + usize::from(self.unpool.is_some())].cast::<f32>().cast_const();
        let Some(Unpool { rows, place }) = &self.unpool else {
            // SAFETY: the caller's promise.
            unsafe { shape.evaluate_results(tiles, columns, (gradient, true), (to, self.gradient_point)) };
            return;
        };
        let ([y, x], step) = (shape.axes, shape.step());
        // SAFETY: a place in scratch that `summed` asked for.
        let made = unsafe { args.worker.add(*place).cast::<f32>() };
        let width = columns.len().next_multiple_of(shape.code.lanes);
        for strip in shape.strips(tiles.clone()) {
            let (image, top) = (strip.image * y.positions, strip.row * step);
            let wanted = image + top..image + (top + step).min(y.positions);
            let first = tiles.start + strip.before;
            // Where the first of all rows would be.
            let all = made.wrapping_sub(wanted.start * x.positions * shape.columns);
            // SAFETY: the rows of a row of tiles have room in scratch; they are made before they are read.
            unsafe {
                rows.run(wanted, args.pointers[1].cast_const(), gradient, all);
                let to = to.wrapping_add(strip.before * width);
                shape.evaluate_results(first..first + strip.columns.len(), columns, (all.cast_const(), false), (to, self.gradient_point));
            }
        }
    }

    /// Multiplies `channels` rows with the panel at one point, over `count` tiles.
    unsafe fn multiply(
        &self,
        (panel, columns): (&Panel, &Range<usize>),
        channels: usize,
        count: usize,
        (a, b): (*const f32, *const f32),
        (c, add): (*mut f32, bool),
    ) {
        let Shape { code, columns: c_row, .. } = self.shape;
        let parts = channels.div_ceil(code.rows[panel.vectors - 1]);
        for number in 0..parts {
            let rows = part(channels, parts, number);
            let tile = Tile {
                outer: 1,
                inner: count,
                a: a.wrapping_add(rows.start),
                a_rows: Rows::new(1),
                a_term: channels,
                a_outer: 0,
                b,
                b_term: columns.len().next_multiple_of(code.lanes),
                b_outer: 0,
                c: c.wrapping_add(rows.start * c_row),
                c_row,
                last: panel.last,
                add,
                changes: Changes::NONE,
                ahead: Ahead::NONE,
                fetches: false,
            };
            if let Some(compute) = code.packed[rows.len() - 1][panel.vectors - 1] {
                // SAFETY: as this function.
                unsafe { compute(&tile) };
            }
        }
    }
}

/// Makes the taps from the sums.
struct Taps {
    sums: SumsFn,
    planes: usize,
    lanes: usize,
    channels: usize,
    columns: usize,
    parts: usize,
    /// Of channels times vectors of columns.
    cut: Cut,
}

impl std::fmt::Debug for Taps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Taps").field("parts", &self.parts).field("cut", &self.cut).finish()
    }
}

/// The gradient by the filter from so many sums of every point. Arguments: sums, gradient by the filter.
///
/// # Errors
/// UNIMPLEMENTED where there is no such form, and as [`by_filter`].
pub(crate) fn end_by_filter(isa: Isa, spec: &ConvSpec, points: u64, sums: u64) -> Result<Prepared> {
    let [_, rows, _] = spec.axes.filled();
    let code_of = sums_of(isa, points as usize, rows.taps as usize).filter(|_| has_form(spec, points));
    let code_of = code_of.ok_or_else(|| Error::unimplemented(format!("sums at points of {spec:?}")))?;
    spec.check()?;
    let parts = elements(&[sums, spec.in_c, spec.out_c, points * points]).map(|_| sums as usize)?;
    if parts == 0 {
        return Err(Error::invalid_argument("a gradient by a filter from no sums"));
    }
    let planes = (points * points) as usize;
    let (lanes, channels, columns) = (code(isa).lanes, spec.in_c as usize, spec.out_c as usize);
    let vectors = columns.div_ceil(lanes);
    let cut = Cut::new(channels * vectors, (4 * lanes * planes * (parts + 1)) as u64, 1);
    let values = (planes * channels * columns) as f64;
    // A value takes about three operations, and one for every sum.
    let cost = Cost { flops: values * (3.0 + parts as f64), bytes: 4.0 * values * (1.0 + parts as f64) };
    let kernel = Taps { sums: code_of, planes, lanes, channels, columns, parts, cut };
    Ok(Prepared { chunks: cut.pieces(), scratch: 0, per_worker: 0, cost, in_place: Vec::new(), kernel: Arc::new(kernel) })
}

impl CpuKernel for Taps {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        let (from, to) = (args.pointers[0].cast::<f32>().cast_const(), args.pointers[1].cast::<f32>());
        let (vectors, values) = (self.columns.div_ceil(self.lanes), self.channels * self.columns);
        for unit in self.cut.units(chunks) {
            let (channel, column) = (unit / vectors, unit % vectors * self.lanes);
            let element = channel * self.columns + column;
            let sums = Sums {
                from: from.wrapping_add(element),
                from_point: values,
                parts: self.parts,
                from_part: self.planes * values,
                count: self.lanes.min(self.columns - column),
                to: to.wrapping_add(element),
                tap: values,
            };
            // SAFETY: the arguments are the caller's promise; these elements of the taps are written by this piece only.
            unsafe { (self.sums)(&sums) };
        }
        Ok(())
    }
}
