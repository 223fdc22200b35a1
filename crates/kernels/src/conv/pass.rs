//! Positions of a result that see a filter in the same way, and the taps that are summed together.

use std::ops::Range;

use super::axis::{Axis, Run};
use crate::packing::part;

/// The most terms that are summed in registers before the sums are added to the result. Fixed, since the bits depend on it.
const TERMS: usize = 1024;

/// One axis of a pass.
#[derive(Debug)]
pub(crate) struct Side {
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
    pub(crate) fn forward(axis: Axis) -> Side {
        Side { runs: axis.runs(), axis, start: 0, step: 1, tap_start: 0, tap_step: 1 }
    }

    /// For the positions of `axis`'s operand whose remainder is `start`.
    pub(crate) fn backward(axis: Axis, start: usize) -> Side {
        // The operand's index `start` is met by taps `first`, `first + step` and so on, if there are any.
        let from_start = start as isize + axis.pad;
        let (stride, dilation) = (axis.stride as isize, axis.dilation as isize);
        let common = gcd(axis.stride, axis.dilation);
        let step = axis.stride / common;
        let meets = |tap: &usize| (from_start - *tap as isize * dilation) % stride == 0;
        let first = if dilation == 1 { Some(from_start as usize % axis.stride) } else { (0..step.min(axis.taps)).find(meets) };
        let taps = first.map_or(0, |first| axis.taps.saturating_sub(first).div_ceil(step));
        let first = first.unwrap_or(0) as isize;
        let back = Axis {
            positions: axis.size.saturating_sub(start).div_ceil(axis.stride),
            taps,
            stride: 1,
            dilation: axis.dilation / common,
            pad: (taps as isize - 1) * (dilation / common as isize) - (from_start - first * dilation) / stride,
            size: axis.positions,
        };
        let (last, step) = (first + step as isize * (taps as isize - 1), step as isize);
        Side { runs: back.runs(), axis: back, start, step: axis.stride, tap_start: last, tap_step: -step }
    }
}

impl Side {
    /// The positions of this side that are among these of the result.
    pub(crate) fn positions_in(&self, range: &Range<usize>) -> Range<usize> {
        let before = |bound: usize| bound.saturating_sub(self.start).div_ceil(self.step);
        before(range.start)..before(range.end)
    }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Taps that are summed in registers: rows of one plane of the filter, and of each row the terms of `inner`, which count taps times channels and
/// follow each other in the operand.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub plane: usize,
    pub rows: Range<usize>,
    pub inner: Range<usize>,
}

/// Positions of the result that see the filter with one stride.
#[derive(Debug)]
pub(super) struct Pass {
    pub z: Side,
    pub y: Side,
    pub x: Side,
    /// At least one, the first of which writes and the others add.
    pub blocks: Vec<Block>,
}

impl Pass {
    /// Of so many channels; `follow` says whether those of neighbouring positions follow each other.
    pub(super) fn new([z, y, x]: [Side; 3], channels: usize, follow: bool) -> Pass {
        // Numbers that follow each other in the operand: those of all taps of a row, or of one.
        let (groups, inner) =
            if x.axis.dilation == 1 && follow { (x.axis.taps.min(1), x.axis.taps * channels) } else { (x.axis.taps, channels) };
        let rows = y.axis.taps;
        let mut blocks = Vec::new();
        let planes = if inner == 0 { 0 } else { z.axis.taps };
        for (plane, group) in (0..planes).flat_map(|plane| (0..groups).map(move |group| (plane, group))) {
            let of_group = |range: Range<usize>| group * inner + range.start..group * inner + range.end;
            if inner > TERMS {
                let count = inner.div_ceil(TERMS);
                for row in 0..rows {
                    blocks.extend((0..count).map(|number| Block {
                        plane,
                        rows: row..row + 1,
                        inner: of_group(part(inner, count, number)),
                    }));
                }
            } else {
                let count = rows.div_ceil(TERMS / inner);
                blocks.extend((0..count).map(|number| Block { plane, rows: part(rows, count, number), inner: of_group(0..inner) }));
            }
        }
        if blocks.is_empty() {
            blocks.push(Block { plane: 0, rows: 0..0, inner: 0..0 });
        }
        Pass { z, y, x, blocks }
    }
}
