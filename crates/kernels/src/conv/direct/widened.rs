//! Operands of other types than floats: their numbers are widened before tiles read them.

use std::ops::Range;

use plimsoll_device::Args;

use super::super::tiles::{self, Panel, Tile};
use super::Direct;
use super::blocks::FilterRows;
use crate::element::InFloats;
use crate::expr::Changes;
use crate::packing::part;

/// Floats of the operand that are widened at once, and stay in the first cache. As many as the least: a block of one position, filled up
/// to whole vectors.
pub(super) const WIDENED: usize = 16 << 10;

/// Positions of one row of the result, and the operands of their tiles.
pub(super) struct Strip<E> {
    pub(super) xs: Range<usize>,
    /// Numbers that position 0 sees in the first round.
    pub(super) a: *const E,
    /// From position to position, and from round to round, of the operand.
    pub(super) step: usize,
    pub(super) round: usize,
    pub(super) rounds: usize,
    /// Numbers of a round, one after the other.
    pub(super) inner: usize,
    /// The result of position 0, and from position to position.
    pub(super) c: *mut f32,
    pub(super) c_row: usize,
    pub(super) b: *const f32,
}

impl<E: InFloats> Direct<E> {
    /// Computes positions of one row, and widens the operand's numbers that they see beforehand.
    ///
    /// # Safety
    /// As [`Direct::tiles`].
    pub(super) unsafe fn widened(&self, strip: &Strip<E>, panel: &Panel, b: &FilterRows, add: bool, args: &Args<'_>) {
        let Strip { step, rounds, inner, .. } = *strip;
        let (lanes, most) = (self.code.lanes, self.code.rows[panel.vectors - 1]);
        let padded = |numbers: usize| numbers.next_multiple_of(lanes);
        // Positions whose numbers overlap share them.
        let is_shared = step < inner;
        let span = |positions: usize| if is_shared { padded((positions - 1) * step + inner) } else { positions * padded(inner) };
        let room = WIDENED / rounds.max(1);
        let fitting = if is_shared { room.saturating_sub(inner + lanes) / step.max(1) + 1 } else { room / padded(inner).max(1) };
        let fitting = if fitting > most { fitting / most * most } else { fitting.max(1) };
        // SAFETY: an offset into scratch that `prepare` asked for.
        let operand = unsafe { args.worker.add(self.operand_place).cast::<f32>() };
        let table = &self.code.packed;
        let mut first = strip.xs.start;
        while first < strip.xs.end {
            let positions = if rounds == 0 { strip.xs.len() } else { fitting.min(strip.xs.end - first) };
            let span = span(positions);
            for round in 0..rounds {
                let from = strip.a.wrapping_add(round * strip.round + first * step);
                let (rows, numbers) = if is_shared { (1, (positions - 1) * step + inner) } else { (positions, inner) };
                let vectors = numbers.div_ceil(lanes);
                let last = numbers - (vectors - 1) * lanes;
                // SAFETY: all these positions see the taps of this round; `WIDENED` floats are room for all rounds.
                unsafe { (self.packing.copy)(from, step, rows, vectors, last, operand.add(round * span)) };
            }
            let row = if is_shared { step } else { padded(inner) };
            let count = positions.div_ceil(most);
            for number in 0..count {
                let part = part(positions, count, number);
                let tile = Tile {
                    outer: rounds,
                    inner,
                    a: operand.wrapping_add(part.start * row),
                    a_rows: tiles::Rows::new(row),
                    a_term: 1,
                    a_outer: span,
                    b: strip.b,
                    b_term: b.term,
                    b_outer: b.outer,
                    c: strip.c.wrapping_add((first + part.start) * strip.c_row),
                    c_row: strip.c_row,
                    last: panel.last,
                    add,
                    changes: Changes::NONE,
                    ahead: tiles::Ahead::NONE,
                    fetches: false,
                };
                if let Some(compute) = table[part.len() - 1][panel.vectors - 1] {
                    // SAFETY: the operand's numbers have been widened, and those of the filter; the results are the piece's.
                    unsafe { compute(&tile) };
                }
            }
            first += positions;
        }
    }
}
