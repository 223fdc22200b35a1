//! A piece is computed: for each panel of columns, pass and block of the filter, tiles of positions that see the same taps.

use std::ops::Range;

use plimsoll_base::DataType;
use plimsoll_device::Args;

use super::super::pass::{Block, Pass};
use super::super::tiles::{self, Ahead, Panel, Tile, Wanted};
use super::widened::Strip;
use super::{Direct, Piece, Rows, Target};
use crate::element::InFloats;
use crate::expr::{Changes, Link};
use crate::packing::part;

/// How far ahead numbers of the operand are asked for, at least.
const AHEAD: usize = 2048;

impl<E: InFloats> Direct<E> {
    /// The links change results of which all blocks have been summed. Where a piece has several panels and results are
    /// written beyond the caches, all panels of some rows follow each other: so lines of results are there from the first part of them
    /// to the last.
    pub(super) unsafe fn compute(&self, piece: &Piece, target: Target, links: &[Link], args: &Args<'_>) {
        let Some(rows) = self.strip_rows.filter(|_| piece.panels.len() > 1) else {
            // SAFETY: as this function.
            return unsafe { self.compute_strip(piece, target, links, args) };
        };
        let height = self.shape.out[1].max(1);
        let planes = (rows / height).max(1);
        for plane in piece.planes.clone().step_by(planes) {
            for row in piece.rows.clone().step_by(rows) {
                let strip = Piece {
                    planes: plane..piece.planes.end.min(plane + planes),
                    rows: row..piece.rows.end.min(row + rows),
                    xs: piece.xs.clone(),
                    panels: piece.panels.clone(),
                };
                // SAFETY: as this function: the strip is a part of the piece.
                unsafe { self.compute_strip(&strip, target, links, args) };
            }
        }
    }

    unsafe fn compute_strip(&self, piece: &Piece, target: Target, links: &[Link], args: &Args<'_>) {
        let filter = args.pointers[self.shape.filter].cast::<E>().cast_const();
        for (at, panel) in self.panels.iter().enumerate().take(piece.panels.end).skip(piece.panels.start) {
            for pass in &self.shape.passes {
                for (number, block) in pass.blocks.iter().enumerate() {
                    // The rows of the filter behind these: of the next block, or of the first one of the next panel.
                    let next = match pass.blocks.get(number + 1) {
                        Some(next) => Some((panel, next)),
                        None => self.panels.get(at + 1).zip(pass.blocks.first()),
                    };
                    let next = next.filter(|_| self.streams).map(|(panel, block)| {
                        let there = self.filter_there(filter, block, panel);
                        Wanted::new(there.start, there.term, block.rows.len() * block.inner.len(), panel.vectors * self.code.lanes)
                    });
                    // SAFETY: the worker's scratch has room for every block.
                    let b = unsafe {
                        let scratch = args.worker.add(self.filter_place).cast::<f32>();
                        self.filter_rows(filter, pass, block, panel, scratch)
                    };
                    let links = if number + 1 == pass.blocks.len() { links } else { &[] };
                    let sum = Sum { next, ahead: self.ahead && at == piece.panels.start, add: number > 0, links };
                    // SAFETY: as this function.
                    unsafe { self.block(piece, target, pass, block, panel, &b, &sum, args) };
                }
            }
        }
    }

    /// The block's part of the filter as rows of B.
    unsafe fn filter_rows(&self, filter: *const E, pass: &Pass, block: &Block, panel: &Panel, scratch: *mut f32) -> FilterRows {
        if !self.shape.rows.are_copied() {
            return self.filter_there(filter, block, panel);
        }
        let (lanes, inner) = (self.code.lanes, block.inner.len());
        let width = panel.vectors * lanes;
        let [k_h, k_w] = self.taps;
        let filter_z = pass.z.tap_start + pass.z.tap_step * block.plane as isize;
        for (number, tap_y) in block.rows.clone().enumerate() {
            let to = scratch.wrapping_add(number * inner * width);
            let filter_y = (filter_z * k_h as isize + pass.y.tap_start + pass.y.tap_step * tap_y as isize) as usize;
            if self.shape.rows == Rows::Copied {
                let from = filter.wrapping_add((filter_y * k_w * self.shape.terms + block.inner.start) * self.shape.columns + panel.column);
                // SAFETY: rows of the filter, and room for a block.
                unsafe { (self.packing.copy)(from, self.shape.columns, inner, panel.vectors, panel.last, to) };
                continue;
            }
            let mut at = block.inner.start;
            while at < block.inner.end {
                let (tap_x, channel) = (at / self.shape.terms, at % self.shape.terms);
                let filter_x = (pass.x.tap_start + pass.x.tap_step * tap_x as isize) as usize;
                let count = lanes.min(self.shape.terms - channel).min(block.inner.end - at);
                let (group, column) = (panel.column / self.group_columns, panel.column % self.group_columns);
                let from =
                    ((filter_y * k_w + filter_x) * self.group_columns + column) * self.shape.channels + group * self.shape.terms + channel;
                for v in 0..panel.vectors {
                    let there = if v + 1 == panel.vectors { panel.last } else { lanes };
                    let to = to.wrapping_add((at - block.inner.start) * width + v * lanes);
                    // SAFETY: `there` rows of the filter's last two axes with `count` elements, and room for a block.
                    unsafe {
                        (self.packing.transpose)(
                            filter.add(from + v * lanes * self.shape.channels),
                            self.shape.channels,
                            there,
                            count,
                            to,
                            width,
                        )
                    };
                }
                at += count;
            }
        }
        FilterRows { start: scratch, term: width, outer: inner * width }
    }

    /// The block's part of a filter of rows of columns, or of panels, where it lies.
    fn filter_there(&self, filter: *const E, block: &Block, panel: &Panel) -> FilterRows {
        let [k_h, k_w] = self.taps;
        let rows = k_w * self.shape.terms;
        let first = (block.plane * k_h + block.rows.start) * rows + block.inner.start;
        let (before, term) = match self.shape.rows {
            Rows::Panels => (self.filter_rows * panel.column, (panel.vectors - 1) * self.code.lanes + panel.last),
            _ => (panel.column, self.shape.columns),
        };
        FilterRows { start: filter.wrapping_add(before + first * term).cast(), term, outer: rows * term }
    }

    #[expect(clippy::too_many_arguments, reason = "what is computed, from what, and where it goes")]
    unsafe fn block(
        &self,
        piece: &Piece,
        target: Target,
        pass: &Pass,
        block: &Block,
        panel: &Panel,
        b: &FilterRows,
        sum: &Sum<'_>,
        args: &Args<'_>,
    ) {
        let (z, y, x) = (&pass.z, &pass.y, &pass.x);
        // The positions of this pass that are rows of the piece.
        let (rows, xs) = (y.positions_in(&piece.rows), x.positions_in(&piece.xs));
        for (images, planes) in self.images(&piece.planes) {
            let planes = z.positions_in(&planes);
            for z_run in &z.runs {
                let zs = inside(&z_run.positions, &planes);
                if zs.is_empty() {
                    continue;
                }
                for y_run in &y.runs {
                    let ys = inside(&y_run.positions, &rows);
                    if ys.is_empty() {
                        continue;
                    }
                    let tap_rows = if z_run.taps.contains(&block.plane) { inside(&y_run.taps, &block.rows) } else { 0..0 };
                    for x_run in &x.runs {
                        let inner = inside(&(x_run.taps.start * self.shape.terms..x_run.taps.end * self.shape.terms), &block.inner);
                        let xs = inside(&x_run.positions, &xs);
                        if xs.is_empty() {
                            continue;
                        }
                        let nothing = tap_rows.is_empty() || inner.is_empty();
                        if nothing && sum.add && sum.links.is_empty() {
                            continue;
                        }
                        let box_ = Box_ { images: images.clone(), zs: zs.clone(), ys: ys.clone(), xs };
                        let taps = if nothing { None } else { Some((tap_rows.clone(), inner)) };
                        // SAFETY: as this function.
                        unsafe { self.tiles(&box_, target, pass, block, taps, panel, b, sum, args) };
                    }
                }
            }
        }
    }

    /// Images, and planes of each of them, that make up `planes` of all images.
    fn images(&self, planes: &Range<usize>) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
        let (depth, planes) = (self.shape.out[0], planes.clone());
        // Images of one plane are one box.
        let each = if depth == 1 { planes.len().max(1) } else { 1 };
        (planes.start / depth..planes.end.div_ceil(depth)).step_by(each).map(move |image| {
            let all = image * depth..(image + each) * depth;
            let within = inside(&all, &planes);
            if depth == 1 { (within, 0..1) } else { (image..image + 1, within.start - all.start..within.end - all.start) }
        })
    }

    /// Computes positions that see the same taps.
    ///
    /// # Safety
    /// All positions of the box see these taps on the operand; the results are the caller's.
    #[expect(clippy::too_many_arguments, reason = "what is computed, from what, and where it goes")]
    unsafe fn tiles(
        &self,
        box_: &Box_,
        target: Target,
        pass: &Pass,
        block: &Block,
        taps: Option<(Range<usize>, Range<usize>)>,
        panel: &Panel,
        b: &FilterRows,
        sum: &Sum<'_>,
        args: &Args<'_>,
    ) {
        let (z, y, x) = (&pass.z, &pass.y, &pass.x);
        let from = args.pointers[self.shape.from].cast::<E>().cast_const();
        let operand_row = self.shape.operand[2] * self.shape.channels;
        let operand_plane = self.shape.operand[1] * operand_row;
        // Each axis of the box: positions, from position to position in the operand, and in the result.
        let mut axes = [
            (box_.images.clone(), self.shape.operand[0] * operand_plane, self.shape.out[0] * self.shape.out[1] * self.shape.out[2]),
            (box_.zs.clone(), z.axis.stride * operand_plane, z.step * self.shape.out[1] * self.shape.out[2]),
            (box_.ys.clone(), y.axis.stride * operand_row, y.step * self.shape.out[2]),
            (box_.xs.clone(), x.axis.stride * self.shape.channels, x.step),
        ];
        // Positions of which each follows the one before in operand and result are one axis: those of a filter of one tap.
        if E::TYPE == DataType::Float {
            for outer in [2, 1, 0] {
                let (length, before) = (axes[3].0.len(), axes[3].0.start);
                let follows = |step: fn(&(Range<usize>, usize, usize)) -> usize| step(&axes[outer]) == length * step(&axes[3]);
                if before != 0 || axes[outer].0.len() < 2 || !follows(|axis| axis.1) || !follows(|axis| axis.2) {
                    continue;
                }
                axes[3].0 = axes[outer].0.start * length..axes[outer].0.end * length;
                axes[outer].0 = 0..1;
            }
        }
        // A tile runs along the columns, unless there are few.
        let mut along = 3;
        let others: &[usize] = if E::TYPE == DataType::Float { &[2, 1, 0] } else { &[] };
        for &other in others {
            if axes[along].0.len() < 3 && axes[other].0.len() > axes[along].0.len() {
                along = other;
            }
        }
        let [outer, middle, inmost] = [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]][along];
        let most = self.code.rows[panel.vectors - 1];
        let count = axes[along].0.len().div_ceil(most);
        let is_there = !self.shape.rows.are_copied();
        let table = if is_there && panel.last < self.code.lanes { &self.code.direct } else { &self.code.packed };
        let (tap_rows, inner) = taps.clone().unwrap_or((0..0, 0..0));
        // The first term's tap, and its channel of the panel's group.
        let (tap, channel) = (inner.start / self.shape.terms.max(1), inner.start % self.shape.terms.max(1));
        let first_term = tap * x.axis.dilation * self.shape.channels + panel.column / self.group_columns * self.shape.terms + channel;
        let a_first = (z.axis.start(0) + (block.plane * z.axis.dilation) as isize) * operand_plane as isize
            + (y.axis.start(0) + (tap_rows.start * y.axis.dilation) as isize) * operand_row as isize
            + x.axis.start(0) * self.shape.channels as isize
            + first_term as isize;
        let c_first = (z.start * self.shape.out[1] + y.start) * self.shape.out[2] + x.start;
        let b_first = tap_rows.start.wrapping_sub(block.rows.start).wrapping_mul(b.outer);
        let b_first = b_first.wrapping_add(inner.start.wrapping_sub(block.inner.start).wrapping_mul(b.term));
        let boxes = axes[outer].0.clone().flat_map(|first| axes[middle].0.clone().map(move |second| (first, second)));
        for (first, second) in boxes {
            for third in axes[inmost].0.clone() {
                let before = |step: fn(&(Range<usize>, usize, usize)) -> usize| {
                    first * step(&axes[outer]) + second * step(&axes[middle]) + third * step(&axes[inmost])
                };
                let (a_box, c_box) = (a_first + before(|axis| axis.1) as isize, c_first + before(|axis| axis.2));
                if E::TYPE != DataType::Float {
                    let strip = Strip {
                        xs: axes[along].0.clone(),
                        a: from.wrapping_offset(a_box),
                        step: axes[along].1,
                        round: y.axis.dilation * operand_row,
                        rounds: tap_rows.len(),
                        inner: inner.len(),
                        c: target.start.wrapping_add(c_box * target.row + panel.column),
                        c_row: axes[along].2 * target.row,
                        b: b.start.wrapping_add(b_first),
                    };
                    // SAFETY: as this function.
                    unsafe { self.widened(&strip, panel, b, sum.add, args) };
                    continue;
                }
                // Rows of A that follow each other are read as one.
                let follow = sum.ahead && tap_rows.len() == 1 && axes[along].1 == inner.len();
                for number in 0..count {
                    let part = part(axes[along].0.len(), count, number);
                    let start = axes[along].0.start + part.start;
                    let a = from.wrapping_offset(a_box + (start * axes[along].1) as isize).cast::<f32>();
                    let ahead = match &sum.next {
                        Some(next) => next.next(tap_rows.len() * inner.len()),
                        None if follow => Ahead { start: a.wrapping_add(AHEAD.max(part.len() * inner.len())), term: part.len() },
                        None => Ahead::NONE,
                    };
                    let element = (c_box + start * axes[along].2) * target.row + panel.column;
                    let tile = Tile {
                        outer: tap_rows.len(),
                        inner: inner.len(),
                        a,
                        a_rows: tiles::Rows::new(axes[along].1),
                        a_term: 1,
                        a_outer: y.axis.dilation * operand_row,
                        b: b.start.wrapping_add(b_first),
                        b_term: b.term,
                        b_outer: b.outer,
                        c: target.start.wrapping_add(element),
                        c_row: axes[along].2 * target.row,
                        last: panel.last,
                        add: sum.add,
                        changes: Changes { links: sum.links, element, column: panel.column },
                        ahead,
                        fetches: self.fetches,
                    };
                    if let Some(compute) = table[part.len() - 1][panel.vectors - 1] {
                        // SAFETY: all positions of the box see these taps on the operand; the results are the piece's.
                        unsafe { compute(&tile) };
                    }
                }
            }
        }
    }
}

/// What becomes of the sums of a block.
struct Sum<'a> {
    /// Rows of the filter that are wanted next.
    next: Option<Wanted>,
    /// Whether the operand's numbers are asked for ahead.
    ahead: bool,
    /// Whether they are added to those of the blocks before.
    add: bool,
    links: &'a [Link],
}

/// The intersection.
fn inside(range: &Range<usize>, within: &Range<usize>) -> Range<usize> {
    range.start.max(within.start)..range.end.min(within.end)
}

/// Rows of B: where they start, and from term to term, and from row of taps to row of taps.
pub(super) struct FilterRows {
    start: *const f32,
    pub(super) term: usize,
    pub(super) outer: usize,
}

/// Images, and planes, rows and columns of a pass's positions.
struct Box_ {
    images: Range<usize>,
    zs: Range<usize>,
    ys: Range<usize>,
    xs: Range<usize>,
}
