//! One axis of a sliding window: which taps of the window each position sees.

use std::ops::Range;

use plimsoll_request::window::WindowAxis;

/// Position `p` sees with tap `t` the operand's index `p * stride - pad + t * dilation`, if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Axis {
    /// How many positions the window takes.
    pub positions: usize,
    /// How many taps it has.
    pub taps: usize,
    /// From position to position.
    pub stride: usize,
    /// From tap to tap; not 0.
    pub dilation: usize,
    /// How far before the operand the first position begins; negative if it begins inside.
    pub pad: isize,
    /// The operand's size.
    pub size: usize,
}

/// Of sizes that have been checked.
impl From<WindowAxis> for Axis {
    fn from(axis: WindowAxis) -> Axis {
        Axis {
            positions: axis.positions as usize,
            taps: axis.taps as usize,
            stride: axis.stride as usize,
            dilation: axis.dilation as usize,
            pad: axis.pad as isize,
            size: axis.size as usize,
        }
    }
}

/// Neighbouring positions that see the same taps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub positions: Range<usize>,
    pub taps: Range<usize>,
}

impl Axis {
    /// The operand's index of tap 0; negative in the padding.
    pub(crate) fn start(&self, position: usize) -> isize {
        position as isize * self.stride as isize - self.pad
    }

    /// The taps that lie on the operand.
    pub(crate) fn taps_at(&self, position: usize) -> Range<usize> {
        let (start, taps, dilation) = (self.start(position), self.taps as isize, self.dilation as isize);
        // The taps before an index.
        let before = |index: isize| if dilation == 1 { index } else { (index + dilation - 1).div_euclid(dilation) };
        let first = before(-start).clamp(0, taps);
        first as usize..before(self.size as isize - start).clamp(first, taps) as usize
    }

    /// How many indices the window covers from its first tap to its last.
    pub(crate) fn extent(&self) -> isize {
        (self.taps as isize - 1) * self.dilation as isize + 1
    }

    /// All positions, in runs. Takes time by the number of runs, which is at most about twice the number of taps.
    pub(crate) fn runs(&self) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        let mut position = 0;
        while position < self.positions {
            let taps = self.taps_at(position);
            let start = self.start(position);
            // How many positions can be known at once to see the same.
            let stride = self.stride as isize;
            let same = if start >= self.size as isize {
                self.positions as isize
            } else if taps.is_empty() && start < 0 {
                (-start - self.extent()) / stride + 1
            } else if taps.len() == self.taps {
                (self.size as isize - self.extent() - start) / stride + 1
            } else {
                1
            };
            let end = position.saturating_add(same.max(1) as usize).min(self.positions);
            match runs.last_mut() {
                Some(run) if run.taps == taps || run.taps.is_empty() && taps.is_empty() => run.positions.end = end,
                _ => runs.push(Run { positions: position..end, taps }),
            }
            position = end;
        }
        runs
    }

    /// The positions whose windows reach over the operand's `index`, which they see with tap `(index + pad - position * stride) / dilation`
    /// where that is whole.
    pub(crate) fn positions_over(&self, index: usize) -> Range<usize> {
        let (stride, offset) = (self.stride as isize, index as isize + self.pad);
        if offset < 0 {
            return 0..0;
        }
        let first = (offset - self.extent() + 1).max(0);
        let end = ((offset / stride + 1) as usize).min(self.positions);
        (((first + stride - 1) / stride) as usize).min(end)..end
    }

    /// The positions that see tap `tap` on the operand.
    pub(crate) fn positions_of(&self, tap: usize) -> Range<usize> {
        let stride = self.stride as isize;
        let offset = tap as isize * self.dilation as isize - self.pad;
        let first = if offset >= 0 { 0 } else { (-offset + stride - 1) / stride };
        let last = self.size as isize - 1 - offset;
        let end = if last < 0 { 0 } else { last / stride + 1 };
        let end = (end as usize).min(self.positions);
        (first as usize).min(end)..end
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn runs_and_positions_agree_with_each_position(
            positions in 0usize..20,
            taps in 1usize..7,
            stride in 1usize..4,
            pad in -3isize..9,
            size in 0usize..20,
            dilation in 1usize..4,
        ) {
            let axis = Axis { positions, taps, stride, dilation, pad, size };
            let index = |position: usize, tap: usize| axis.start(position) + (tap * dilation) as isize;
            let runs = axis.runs();
            let mut next = 0;
            for run in &runs {
                prop_assert_eq!(run.positions.start, next);
                prop_assert!(!run.positions.is_empty());
                next = run.positions.end;
                for position in run.positions.clone() {
                    let expected: Vec<usize> =
                        (0..taps).filter(|tap| (0..size as isize).contains(&index(position, *tap))).collect();
                    prop_assert_eq!(run.taps.clone().collect::<Vec<_>>(), expected);
                }
            }
            prop_assert_eq!(next, positions);
            for tap in 0..taps {
                let expected: Vec<usize> =
                    (0..positions).filter(|position| (0..size as isize).contains(&index(*position, tap))).collect();
                prop_assert_eq!(axis.positions_of(tap).collect::<Vec<_>>(), expected);
            }
            for index in 0..size {
                let extent = ((taps - 1) * dilation + 1) as isize;
                let expected: Vec<usize> =
                    (0..positions).filter(|position| (0..extent).contains(&(index as isize - axis.start(*position)))).collect();
                prop_assert_eq!(axis.positions_over(index).collect::<Vec<_>>(), expected);
            }
        }
    }

    #[test]
    fn long_axes_take_no_time() {
        let axis = Axis { positions: 1 << 50, taps: 3, stride: 1, dilation: 1, pad: 1 << 30, size: 1 << 49 };
        assert_eq!(axis.runs().len(), 7);
    }
}
