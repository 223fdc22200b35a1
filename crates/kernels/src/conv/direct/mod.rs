//! Convolutions and their gradients by the input: how they are cut, and how a piece is computed.
//!
//! Both are the same work. The gradient by an input splits by the remainder of a position by the strides. For each remainder it is
//! a convolution with stride 1 over the gradient by the result, with those taps of the filter that meet this remainder, in reverse.
//!
//! Floats are read where they lie. Numbers of other types are widened, a few positions of the operand and a block of the filter at a
//! time. Their results wait as floats in the worker's scratch until an expression has rounded them.

mod blocks;
mod widened;

use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_device::{Args, Cost, CpuKernel, Fault, Prepared};

use super::bands::{ByRows, Near, RowsOf};
use super::pass::{Pass, Side};
use super::tiles::{self, Code, Panel, code};
use super::{FAR, Sizes};
use crate::element::InFloats;
use crate::expr::{Bases, Chain, Functions};
use crate::finish::Finish;
use crate::packing::{Order, Packing, packing};
use crate::simd::Isa;
use plimsoll_request::anchor::Epilogue;
use plimsoll_request::conv::ConvSpec;

/// How the filter becomes rows of B.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rows {
    /// They lie so already, in one panel.
    There,
    /// They lie so already, panel by panel without gaps.
    Panels,
    /// They are copied.
    Copied,
    /// Columns are copied.
    Transposed,
}

/// What is computed: all that tells a convolution from a gradient.
struct Shape {
    passes: Vec<Pass>,
    rows: Rows,
    /// Images, and planes, rows and columns of each result.
    batch: usize,
    out: [usize; 3],
    /// Planes, rows and columns of each operand's image.
    operand: [usize; 3],
    /// Channels that are summed over, and those of a position of the operand.
    terms: usize,
    channels: usize,
    /// Channels of the result.
    columns: usize,
    /// Indices of the arguments.
    from: usize,
    filter: usize,
    /// The result's shape.
    result: Vec<u64>,
    /// Whether pieces are whole images.
    images: bool,
    /// Whether results lie where no operand does.
    apart: bool,
}

struct Direct<E> {
    code: &'static Code,
    packing: Packing<E>,
    shape: Shape,
    /// Channels of a group of the result.
    group_columns: usize,
    /// Rows and columns of the filter.
    taps: [usize; 2],
    /// Its rows as a matrix: taps and channels.
    filter_rows: usize,
    /// Whether the filter comes from beyond the second cache each time, so that its rows are asked for ahead.
    streams: bool,
    /// Whether the operand comes from beyond the second cache, so that it is asked for ahead.
    ahead: bool,
    /// Whether results are written beyond it, so that their lines are asked for before.
    fetches: bool,
    /// Rows of which all panels follow each other; none where panels are computed one after the other.
    strip_rows: Option<usize>,
    panels: Vec<Panel>,
    /// Planes of a piece, counted over all images; or if that is one, rows of it.
    piece_planes: usize,
    piece_rows: usize,
    /// Positions along a row of a piece: all, unless they wait in scratch and are many.
    piece_xs: usize,
    /// Panels of a piece.
    piece_panels: usize,
    epilogue: Option<Finish>,
    /// Where in the worker's scratch the filter goes.
    filter_place: usize,
    /// Where in the worker's scratch the operand's numbers go that are widened.
    operand_place: usize,
}

impl<E> std::fmt::Debug for Direct<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Direct")
            .field("passes", &self.shape.passes.len())
            .field("rows", &self.shape.rows)
            .field("result", &(self.shape.batch, self.shape.out, self.shape.columns))
            .field("piece", &(self.piece_planes, self.piece_rows, self.piece_panels))
            .finish()
    }
}

impl Rows {
    /// Whether pieces copy them to scratch.
    fn are_copied(self) -> bool {
        matches!(self, Rows::Copied | Rows::Transposed)
    }
}

/// With `images`, a piece is whole images of one plane with all channels. Also how many it is. A filter in panels is one of floats and of one
/// group: see [`super::reads_panels`].
pub(super) fn forward<E: InFloats>(
    isa: Isa,
    spec: &ConvSpec,
    epilogue: Option<Epilogue>,
    images: bool,
    order: Order,
) -> Result<(Prepared, usize)> {
    Ok(build::<E>(isa, spec, forward_shape::<E>(isa, spec, images, order), epilogue)?.prepared())
}

/// A convolution of floats by rows. A filter in panels as for [`forward`].
///
/// # Errors
/// As [`super::conv_on`]; UNIMPLEMENTED for results that wait for their epilogue, and for planes.
pub(super) fn by_rows(isa: Isa, spec: &ConvSpec, epilogue: Option<Epilogue>, order: Order, near: Near) -> Result<RowsOf> {
    let shape = Shape { apart: true, ..forward_shape::<f32>(isa, spec, false, order) };
    let Built { mut kernel, scratch, cost, .. } = build::<f32>(isa, spec, shape, epilogue)?;
    if kernel.epilogue.as_ref().is_some_and(|finish| finish.chain.is_none()) || kernel.shape.out[0] != 1 {
        return Err(Error::unimplemented("a convolution by rows whose results wait"));
    }
    kernel.ahead &= !near.operand;
    kernel.fetches &= !near.results;
    kernel.strip_rows = None;
    Ok(RowsOf { kernel: Arc::new(kernel), scratch, cost })
}

fn forward_shape<E: InFloats>(isa: Isa, spec: &ConvSpec, images: bool, order: Order) -> Shape {
    let code = code(isa);
    let sides = spec.sides();
    let terms = (spec.in_c / spec.groups) as usize;
    let pass = Pass::new(sides.map(Side::forward), terms, spec.groups == 1);
    let is_there = E::TYPE == DataType::Float && spec.groups == 1 && (spec.out_c as usize) <= code.width();
    let rows = match order {
        _ if is_there => Rows::There,
        Order::Panels => Rows::Panels,
        Order::Rows => Rows::Copied,
    };
    Shape {
        passes: vec![pass],
        rows,
        batch: spec.batch as usize,
        out: sides.map(|side| side.positions),
        operand: sides.map(|side| side.size),
        terms,
        channels: spec.in_c as usize,
        columns: spec.out_c as usize,
        from: 0,
        filter: 1,
        result: spec.output(),
        images,
        apart: false,
    }
}

pub(super) fn backprop_input<E: InFloats>(isa: Isa, spec: &ConvSpec, epilogue: Option<Epilogue>) -> Result<Prepared> {
    let mut passes = Vec::new();
    let sides = spec.sides();
    let starts = sides.map(|side| side.size.min(side.stride));
    // Every remainder has a pass of its own: a few, or a stride that no network has.
    if starts.iter().fold(1usize, |passes, starts| passes.saturating_mul(*starts)) > 1 << 12 {
        let strides: Vec<String> = spec.axes.iter().map(|axis| axis.stride.to_string()).collect();
        return Err(Error::unimplemented(format!("the gradient of a convolution with strides of {}", strides.join(" and "))));
    }
    let [planes, rows, columns] = sides;
    for (z, y) in (0..starts[0]).flat_map(|z| (0..starts[1]).map(move |y| (z, y))) {
        for x in 0..starts[2] {
            let backward = [Side::backward(planes, z), Side::backward(rows, y), Side::backward(columns, x)];
            passes.push(Pass::new(backward, (spec.out_c / spec.groups) as usize, spec.groups == 1));
        }
    }
    let shape = Shape {
        passes,
        rows: Rows::Transposed,
        batch: spec.batch as usize,
        out: sides.map(|side| side.size),
        operand: sides.map(|side| side.positions),
        terms: (spec.out_c / spec.groups) as usize,
        channels: spec.out_c as usize,
        columns: spec.in_c as usize,
        from: 1,
        filter: 0,
        result: spec.input(),
        images: false,
        apart: false,
    };
    Ok(build::<E>(isa, spec, shape, epilogue)?.prepared().0)
}

/// Operations that a piece should have, and how many pieces help no number of threads that we expect.
const PIECE: f64 = 8e6;
const MOST_PIECES: f64 = 32.0;
/// Bytes that a piece should move, if it computes little for them.
const PIECE_BYTES: f64 = 1e6;
/// A piece that copies the filter should have so many positions.
const POSITIONS: usize = 256;
/// Bytes that stay in the second cache beside their operands.
const CACHED: usize = 256 << 10;
/// A filter of more bytes does not stay in the second cache.
const STREAMED: usize = 1 << 20;
/// Bytes of results of which all panels follow each other, and the most that their part of the filter has: it is read for each strip.
const STRIP: usize = 64 << 10;
const SMALL: usize = 128 << 10;
/// Floats of results that wait to be rounded: they stay in the second cache.
const WAITING: usize = CACHED / 4;

/// A kernel, its pieces, bytes of scratch for each worker, and its cost without the epilogue.
struct Built<E> {
    kernel: Direct<E>,
    chunks: u32,
    scratch: usize,
    cost: Cost,
}

impl<E: InFloats> Built<E> {
    /// Also how many planes a piece is.
    fn prepared(self) -> (Prepared, usize) {
        let Built { kernel, chunks, scratch, cost } = self;
        let piece_planes = kernel.piece_planes;
        let kernel = Arc::new(kernel);
        let mut prepared = Prepared { chunks, scratch: 0, per_worker: scratch as u64, cost, in_place: Vec::new(), kernel: kernel.clone() };
        if let Some(finish) = &kernel.epilogue {
            finish.describe(&mut prepared);
        }
        (prepared, piece_planes)
    }
}

fn build<E: InFloats>(isa: Isa, spec: &ConvSpec, shape: Shape, epilogue: Option<Epilogue>) -> Result<Built<E>> {
    let code = code(isa);
    let is_widened = E::TYPE != DataType::Float;
    let (cost, sides) = (Cost { flops: spec.flops(), bytes: spec.bytes() }, spec.sides());
    let filter_bytes = 4.0 * spec.filter().iter().map(|size| *size as f64).product::<f64>();
    let Shape { ref passes, rows, batch, out, columns, ref result, images, .. } = shape;
    let group_columns = columns / spec.groups as usize;
    let panels = code.panels_of_groups(columns, group_columns);

    let planes = batch.checked_mul(out[0]).ok_or_else(|| Error::invalid_argument("a convolution with too many planes"))?;
    let (plane, positions) = ((cost.flops / (planes.max(1) as f64)).max(1.0), (out[1] * out[2]).max(1));
    let target = PIECE.max(cost.flops / MOST_PIECES);
    let by_bytes = PIECE_BYTES.max(cost.bytes / MOST_PIECES) * planes as f64 / cost.bytes.max(1.0);
    let (mut piece_planes, mut piece_rows) =
        ((target / plane).min(by_bytes).ceil().clamp(1.0, planes.max(1) as f64) as usize, out[1].max(1));
    if rows != Rows::There {
        piece_planes = piece_planes.max(POSITIONS.div_ceil(positions));
    }
    if images {
        // The results of a piece should stay in the cache.
        piece_planes = piece_planes.min((CACHED / (4 * out[1] * out[2] * columns).max(1)).max(1));
    } else if piece_planes == 1 && plane > target {
        piece_rows = out[1].div_ceil((plane / target).ceil() as usize).max(1);
        if rows != Rows::There {
            piece_rows = piece_rows.max(POSITIONS.div_ceil(out[2].max(1)));
        }
    }
    let mut finish = epilogue.map(|epilogue| Finish::new(isa, result, epilogue, Functions::Of(isa))).transpose()?;
    if let Some(finish) = &mut finish {
        // Sums of several blocks wait in the result, which may lie where an operand does.
        let is_safe = |chain: &Chain| shape.apart || !chain.has_elements() || passes.iter().all(|pass| pass.blocks.len() == 1);
        finish.chain = finish.chain.take().filter(|chain| !is_widened && is_safe(chain));
    }
    let waits = finish.as_ref().is_some_and(Finish::waits);
    let (mut piece_xs, mut most_panels) = (out[2].max(1), panels.len().max(1));
    if is_widened {
        // Rows are cut where one is too long, and channels where one vector of positions is too large.
        most_panels = (WAITING / (tiles::ROWS * code.width())).clamp(1, most_panels);
        let position = columns.min(most_panels * code.width()).max(1);
        let row = out[2].saturating_mul(position).max(1);
        piece_planes = piece_planes.min(WAITING / row.saturating_mul(out[1].max(1))).max(1);
        if piece_planes == 1 {
            piece_rows = piece_rows.min(WAITING / row).max(1);
            piece_xs = if piece_rows == 1 { even(out[2], piece_xs.min(WAITING / position).max(1)) } else { piece_xs };
        }
    } else if waits {
        // As many positions as else where they wait, with as many panels as they leave room for.
        let positions = piece_planes.saturating_mul(piece_rows).saturating_mul(out[2]);
        if !images {
            most_panels = (WAITING / positions.saturating_mul(code.width()).max(1)).clamp(1, most_panels);
        }
        let row = out[2].saturating_mul(columns.min(most_panels * code.width())).max(1);
        piece_planes = piece_planes.min(WAITING / row.saturating_mul(out[1].max(1))).max(1);
        if piece_planes == 1 && !images {
            piece_rows = piece_rows.min(WAITING / row).max(1);
        }
    }
    piece_planes = even(planes, piece_planes);
    piece_rows = if piece_planes == 1 { even(out[1], piece_rows) } else { out[1].max(1) };
    let pieces = planes.div_ceil(piece_planes) * out[1].div_ceil(piece_rows) * out[2].div_ceil(piece_xs);
    // Few pieces of many panels are cut by panels too.
    let groups = if panels.is_empty() || images { 1 } else { (16 / pieces.max(1)).clamp(1, panels.len()) };
    let piece_panels = panels.len().div_ceil(groups).max(1).min(most_panels);
    let chunks = pieces.checked_mul(panels.len().div_ceil(piece_panels)).and_then(|pieces| u32::try_from(pieces).ok());
    let chunks = chunks.ok_or_else(|| Error::invalid_argument("a convolution with too many pieces"))?.max(1);

    let floats = |count: usize| (count * 4).next_multiple_of(64) + 64;
    let mut scratch = finish.as_ref().map_or(0, Finish::scratch);
    let filter_place = scratch;
    if rows.are_copied() {
        let most = passes.iter().flat_map(|pass| &pass.blocks).map(|block| block.rows.len() * block.inner.len()).max().unwrap_or(0);
        scratch += floats(most * panels.iter().map(|panel| panel.vectors * code.lanes).max().unwrap_or(0));
    }
    if let Some(finish) = &mut finish
        && waits
    {
        finish.place = scratch;
        scratch += floats(piece_planes * piece_rows * piece_xs * columns.min(piece_panels * code.width()));
    }
    let operand_place = scratch;
    if is_widened {
        scratch += floats(widened::WIDENED);
    }
    let piece_columns = columns.min(piece_panels * code.width());
    let (piece_row, piece_rows_all) = (4 * piece_xs * piece_columns, piece_planes * piece_rows);
    let panels_bytes = filter_bytes * piece_columns as f64 / columns.max(1) as f64;
    let is_one = rows != Rows::Transposed && passes.iter().all(|pass| pass.blocks.len() == 1) && !is_widened && !waits && !images;
    let operand_bytes = 4 * batch * shape.operand.iter().product::<usize>() * shape.channels;
    let is_far = 4 * batch * out.iter().product::<usize>() * columns > FAR;
    let pays = is_far && piece_row.saturating_mul(piece_rows_all) > CACHED && panels_bytes <= SMALL as f64;
    let strip_rows = (is_one && pays).then(|| (STRIP / piece_row.max(1)).max(1));
    let kernel = Direct {
        ahead: !is_widened && operand_bytes > STREAMED,
        fetches: !is_widened && !waits && is_far,
        strip_rows,
        code,
        packing: packing::<E>(isa),
        group_columns,
        taps: [sides[1].taps, sides[2].taps],
        filter_rows: sides.map(|side| side.taps).iter().product::<usize>() * shape.terms,
        streams: matches!(E::TYPE, DataType::Float) && shape.rows != Rows::Transposed && filter_bytes > STREAMED as f64,
        shape,
        panels,
        piece_planes,
        piece_rows,
        piece_xs,
        piece_panels,
        epilogue: finish,
        filter_place,
        operand_place,
    };
    Ok(Built { kernel, chunks, scratch, cost })
}

/// Pieces of at most `most` units divide `all` into parts, as evenly as can be. The most units of one of these parts.
fn even(all: usize, most: usize) -> usize {
    all.div_ceil(all.div_ceil(most.max(1)).max(1)).max(1)
}

/// The part of the result that a piece computes.
struct Piece {
    planes: Range<usize>,
    rows: Range<usize>,
    /// All, unless it is one row of one plane.
    xs: Range<usize>,
    panels: Range<usize>,
}

/// Where a piece's results go: the element of position `p` and column `c` to `start + p * row + c`.
#[derive(Clone, Copy)]
struct Target {
    start: *mut f32,
    row: usize,
}

impl<E: InFloats> CpuKernel for Direct<E> {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        if self.shape.batch == 0 || self.shape.out.contains(&0) || self.shape.columns == 0 {
            return Ok(());
        }
        let planes = self.shape.batch * self.shape.out[0];
        let (plane_pieces, row_pieces) = (planes.div_ceil(self.piece_planes), self.shape.out[1].div_ceil(self.piece_rows));
        let x_pieces = self.shape.out[2].div_ceil(self.piece_xs);
        for chunk in chunks {
            let chunk = chunk as usize;
            let pieces = plane_pieces * row_pieces * x_pieces;
            let (number, group) = (chunk % pieces, chunk / pieces);
            let (number, x) = (number / x_pieces, number % x_pieces * self.piece_xs);
            let (plane, row) = (number / row_pieces * self.piece_planes, number % row_pieces * self.piece_rows);
            let piece = Piece {
                planes: plane..(plane + self.piece_planes).min(planes),
                rows: row..(row + self.piece_rows).min(self.shape.out[1]),
                xs: x..(x + self.piece_xs).min(self.shape.out[2]),
                panels: group * self.piece_panels..((group + 1) * self.piece_panels).min(self.panels.len()),
            };
            // SAFETY: the piece lies within the result, for which the caller of `CpuKernel::run` answers.
            unsafe { self.piece(&piece, args)? };
        }
        Ok(())
    }
}

impl ByRows for Direct<f32> {
    unsafe fn rows(&self, image: usize, rows: Range<usize>, args: &Args<'_>) {
        let piece = Piece { planes: image..image + 1, rows, xs: 0..self.shape.out[2], panels: 0..self.panels.len() };
        // SAFETY: the caller's promise. A chain has no faults, and results without epilogue none either.
        let made = unsafe { self.piece(&piece, args) };
        debug_assert!(made.is_ok(), "a chain with a fault");
    }
}

impl<E: InFloats> Direct<E> {
    unsafe fn piece(&self, piece: &Piece, args: &Args<'_>) -> Result<(), Fault> {
        // A piece's positions follow each other: it has all rows, or one plane; and whole rows, or one.
        let first = (piece.planes.start * self.shape.out[1] + piece.rows.start) * self.shape.out[2] + piece.xs.start;
        let positions = piece.planes.len() * piece.rows.len() * piece.xs.len();
        let columns = {
            let last = self.panels[piece.panels.end - 1];
            self.panels[piece.panels.start].column..last.column + (last.vectors - 1) * self.code.lanes + last.last
        };
        let Some(Finish { program, chain, result, in_result, place }) = &self.epilogue else {
            // SAFETY: argument 2 is the result, of floats: others have an expression that rounds them.
            unsafe { self.compute(piece, Target { start: args.pointers[2].cast(), row: self.shape.columns }, &[], args) };
            return Ok(());
        };
        let rest = &args.pointers[2..];
        if let Some(chain) = chain {
            let target = Target { start: args.pointers[*result].cast(), row: self.shape.columns };
            // SAFETY: the result and the operands are the caller's.
            unsafe { self.compute(piece, target, chain.bind(rest).get(), args) };
            return Ok(());
        }
        let target = match in_result {
            Some(result) => Target { start: args.pointers[*result].cast(), row: self.shape.columns },
            None => {
                let row = columns.len();
                // The address may lie before the scratch: only this piece's elements are used.
                let start = args.worker.wrapping_add(*place).cast::<f32>().wrapping_sub(first * row + columns.start);
                Target { start, row }
            }
        };
        // SAFETY: operand 0 is found where it has been computed; the others and the results are the caller's.
        unsafe {
            self.compute(piece, target, &[], args);
            let bases = |position: usize| Bases {
                // Such that element `position * self.shape.columns + columns.start` is the target's.
                first: target
                    .start
                    .wrapping_add(position * target.row + columns.start)
                    .wrapping_sub(position * self.shape.columns + columns.start)
                    .cast::<u8>(),
                rest,
            };
            program.begin(&bases(first), args.worker);
            if columns.len() == self.shape.columns {
                return program.run(first * self.shape.columns..(first + positions) * self.shape.columns, &bases(first), args.worker);
            }
            for position in first..first + positions {
                let start = position * self.shape.columns + columns.start;
                program.run(start..start + columns.len(), &bases(position), args.worker)?;
            }
        }
        Ok(())
    }
}
