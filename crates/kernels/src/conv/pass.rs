//! Positions of a result that see a filter in the same way, and the taps that are summed together.

use std::ops::Range;

use super::axis::{Axis, Run};
use super::tiles::part;

/// The most terms that are summed in registers before the sums are added to the result. Fixed, since the bits depend on it.
const TERMS: usize = 1024;

/// One axis of a pass.
#[derive(Debug)]
pub(super) struct Side {
    pub axis: Axis,
    pub runs: Vec<Run>,
    /// Position `p` is the result's `start + step * p`.
    pub start: usize,
    pub step: usize,
    /// Tap `t` is the filter's `tap_start + tap_step * t`.
    pub tap_start: isize,
    pub tap_step: isize,
}

impl Side {
    pub(super) fn forward(axis: Axis) -> Side {
        Side { runs: axis.runs(), axis, start: 0, step: 1, tap_start: 0, tap_step: 1 }
    }

    /// For the positions of `axis`'s operand whose remainder is `start`.
    pub(super) fn backward(axis: Axis, start: usize) -> Side {
        let stride = axis.stride as isize;
        // The operand's index `start` is met by taps `first`, `first + stride` and so on.
        let from_start = start as isize + axis.pad;
        let first = from_start % stride;
        let taps = if (first as usize) < axis.taps { (axis.taps - first as usize).div_ceil(axis.stride) } else { 0 };
        let back = Axis {
            positions: axis.size.saturating_sub(start).div_ceil(axis.stride),
            taps,
            stride: 1,
            pad: taps as isize - 1 - from_start / stride,
            size: axis.positions,
        };
        Side { runs: back.runs(), axis: back, start, step: axis.stride, tap_start: first + stride * (taps as isize - 1), tap_step: -stride }
    }
}

/// Taps that are summed in registers: rows of the filter, and of each row the terms of `inner`, which count taps times channels.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub rows: Range<usize>,
    pub inner: Range<usize>,
}

/// Positions of the result that see the filter with one stride.
#[derive(Debug)]
pub(super) struct Pass {
    pub y: Side,
    pub x: Side,
    /// At least one, the first of which writes and the others add.
    pub blocks: Vec<Block>,
}

impl Pass {
    pub(super) fn new(y: Side, x: Side, channels: usize) -> Pass {
        let (rows, inner) = (y.axis.taps, x.axis.taps * channels);
        let mut blocks = Vec::new();
        if rows == 0 || inner == 0 {
            blocks.push(Block { rows: 0..0, inner: 0..0 });
        } else if inner > TERMS {
            let count = inner.div_ceil(TERMS);
            for row in 0..rows {
                blocks.extend((0..count).map(|number| Block { rows: row..row + 1, inner: part(inner, count, number) }));
            }
        } else {
            let count = rows.div_ceil(TERMS / inner);
            blocks.extend((0..count).map(|number| Block { rows: part(rows, count, number), inner: 0..inner }));
        }
        Pass { y, x, blocks }
    }
}
