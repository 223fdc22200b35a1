//! Rows of results: tiles over all panels, then the epilogue.

use std::ops::Range;

use plimsoll_device::{Args, Fault};

use super::tiles::{LANES, Panel, ROWS, Run, Tile, tile};
use crate::expr::{Bases, Changes, Link};
use crate::finish::Finish;
use crate::packing::part;

/// The argument that is the result, where there is no epilogue.
const RESULT: usize = 2;
/// Floats that wait in the worker's scratch for an epilogue: they stay in the second cache.
const WAITING: usize = 64 << 10;

/// How rows of results are computed.
pub(super) struct Results {
    /// Columns of the result, in panels.
    pub columns: usize,
    pub panels: Vec<Panel>,
    pub finish: Option<Finish>,
    /// Panels whose results wait together for the epilogue.
    pub together: usize,
}

/// The left side of some rows.
#[derive(Clone, Copy)]
pub(super) struct Left<'a> {
    pub start: *const u16,
    /// Where each row begins.
    pub rows: &'a [u32],
    /// From pair to pair, in numbers.
    pub term: usize,
}

/// The right side: its panels, and the pairs that are added.
#[derive(Clone, Copy)]
pub(super) struct Side<'a> {
    pub start: *const u16,
    pub runs: &'a [Run],
    /// Pairs of each panel.
    pub pairs: usize,
}

/// Where rows of results go.
#[derive(Clone, Copy)]
pub(super) struct Target {
    /// The element of the first row's column 0, among all of the result.
    pub first: usize,
    /// From row to row, in elements.
    pub row: usize,
}

impl Results {
    /// Results of so many columns, of pieces that have so many rows and panels at most. Also the bytes of the worker's scratch that
    /// the epilogue takes, from the beginning.
    pub fn new(columns: usize, panels: Vec<Panel>, mut finish: Option<Finish>, piece: (usize, usize)) -> (Results, usize) {
        let width = panels.iter().map(Panel::width).max().unwrap_or(0);
        let (mut together, mut scratch) = (piece.1.max(1), 0);
        if let Some(finish) = &mut finish {
            finish.place = finish.scratch();
            scratch = finish.place;
            if finish.waits() {
                together = (WAITING / (piece.0 * width).max(1)).clamp(1, together);
                scratch += (4 * piece.0 * width * together).next_multiple_of(64) + 64;
            }
        }
        (Results { columns, panels, finish, together }, scratch)
    }

    /// Computes the panels of some rows, and their epilogue.
    ///
    /// # Safety
    /// The sides hold what their runs say; the arguments are those of the kernel, and nobody else writes these results.
    pub unsafe fn compute(
        &self,
        left: Left<'_>,
        right: Side<'_>,
        panels: Range<usize>,
        target: Target,
        args: &Args<'_>,
    ) -> Result<(), Fault> {
        let to = |argument: usize| args.pointers[argument].cast::<f32>();
        let Some(Finish { program, chain, result, in_result, place }) = &self.finish else {
            // SAFETY: the caller's promise.
            unsafe { self.multiply(left, right, panels, to(RESULT).wrapping_add(target.first), target, &[]) };
            return Ok(());
        };
        let rest = &args.pointers[2..];
        if let Some(chain) = chain {
            // SAFETY: the caller's promise.
            unsafe { self.multiply(left, right, panels, to(*result).wrapping_add(target.first), target, chain.bind(rest).get()) };
            return Ok(());
        }
        let mut has_begun = false;
        for first in panels.clone().step_by(self.together) {
            let panels = first..(first + self.together).min(panels.end);
            let (column, end) = (self.panels[panels.start].column, &self.panels[panels.end - 1]);
            let columns = end.column + end.width() - column;
            let (start, row) = match in_result {
                Some(result) => (to(*result).wrapping_add(target.first), target.row),
                None => (args.worker.wrapping_add(*place).cast::<f32>().wrapping_sub(column), columns),
            };
            // SAFETY: the caller's promise; scratch has been asked for. Operand 0 is found where it has been computed.
            unsafe {
                self.multiply(left, right, panels, start, Target { first: target.first, row }, &[]);
                let is_whole = columns == self.columns && target.row == columns;
                let runs = if is_whole { 1 } else { left.rows.len() };
                for number in 0..runs {
                    let element = target.first + number * target.row + column;
                    let at = start.wrapping_add(number * row + column).wrapping_sub(element);
                    let bases = Bases { first: at.cast::<u8>(), rest };
                    if !has_begun {
                        program.begin(&bases, args.worker);
                        has_begun = true;
                    }
                    let count = if is_whole { left.rows.len() * columns } else { columns };
                    program.run(element..element + count, &bases, args.worker)?;
                }
            }
        }
        Ok(())
    }

    /// Computes the panels of some rows. The first row's column 0 goes to `start`; rows are `target.row` elements apart.
    unsafe fn multiply(&self, left: Left<'_>, right: Side<'_>, panels: Range<usize>, start: *mut f32, target: Target, links: &[Link]) {
        for panel in &self.panels[panels] {
            let to = Place { start: start.wrapping_add(panel.column), row: target.row, add: false };
            let changes = Changes { links, element: target.first + panel.column, column: panel.column };
            // SAFETY: the caller's promise.
            unsafe { multiply(left, right, panel, to, changes) };
        }
    }
}

/// Where rows of a panel go.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub start: *mut f32,
    /// From row to row, in elements.
    pub row: usize,
    /// Whether they are added to what is there.
    pub add: bool,
}

/// Computes one panel of some rows. The changes are those of the first row.
///
/// # Safety
/// The sides hold what their runs say, and the rows are there.
pub(super) unsafe fn multiply(left: Left<'_>, right: Side<'_>, panel: &Panel, to: Place, changes: Changes<'_>) {
    let rows = left.rows.len();
    let parts = rows.div_ceil(ROWS[panel.vectors - 1]);
    for number in 0..parts {
        let part = part(rows, parts, number);
        let tile_of = Tile {
            runs: right.runs,
            left: left.start,
            rows: &left.rows[part.clone()],
            term: left.term,
            right: right.start.wrapping_add(panel.start(right.pairs)),
            to: to.start.wrapping_add(part.start * to.row),
            to_row: to.row,
            last: panel.last,
            add: to.add,
            changes: Changes { element: changes.element + part.start * to.row, ..changes },
        };
        debug_assert!(panel.last <= LANES);
        if let Some(compute) = tile(part.len(), panel.vectors) {
            // SAFETY: the caller's promise; a specification has these instructions where the processor has them.
            unsafe { compute(&tile_of) };
        }
    }
}
