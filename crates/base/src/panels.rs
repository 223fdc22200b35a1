//! Matrices in panels of columns: the order in which kernels read them.

use std::fmt;
use std::ops::Range;

/// How the columns of a matrix are divided into panels. A panel has whole vectors, but for the last one of all, and at most so many;
/// the panels are as even as can be. In memory the panels lie one behind the other without gaps, and in each panel the rows.
///
/// ```
/// # use plimsoll_base::Panels;
/// let panels = Panels { columns: 80, lanes: 16, vectors: 4 };
/// assert_eq!(panels.ranges().collect::<Vec<_>>(), [0..48, 48..80]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Panels {
    /// Columns of the matrix.
    pub columns: u64,
    /// Columns of a vector.
    pub lanes: u32,
    /// Vectors of a panel, at most.
    pub vectors: u32,
}

impl Panels {
    /// The columns of each panel; none where the numbers make no sense.
    pub fn ranges(self) -> impl Iterator<Item = Range<u64>> {
        let Panels { columns, lanes, vectors } = self;
        let all = if lanes == 0 || vectors == 0 { 0 } else { columns.div_ceil(lanes.into()) };
        let count = if all == 0 { 0 } else { all.div_ceil(vectors.into()) };
        (0..count).map(move |number| {
            let first = |number: u64| number * (all / count) + number.min(all % count);
            first(number) * u64::from(lanes)..first(number + 1).saturating_mul(lanes.into()).min(columns)
        })
    }

    /// Whether so many elements are rows of such a matrix, in at least one panel.
    pub fn divide(self, elements: u64) -> bool {
        self.columns > 0 && self.lanes > 0 && self.vectors > 0 && elements.is_multiple_of(self.columns)
    }
}

/// The most columns of a panel.
impl fmt::Display for Panels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "panels of {}", u64::from(self.lanes) * u64::from(self.vectors))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panels_are_all_columns_once() {
        for (lanes, vectors) in [(16, 4), (8, 2), (4, 2), (1, 1), (16, 1)] {
            for columns in 1..300 {
                let panels = Panels { columns, lanes, vectors };
                let mut next = 0;
                let (mut least, mut most) = (u64::MAX, 0);
                for range in panels.ranges() {
                    assert_eq!(range.start, next);
                    assert!(range.end > range.start && range.start.is_multiple_of(lanes.into()));
                    let held = (range.end - range.start).div_ceil(lanes.into());
                    (least, most, next) = (least.min(held), most.max(held), range.end);
                }
                assert_eq!(next, columns);
                assert!(most <= vectors.into() && most - least <= 1, "{panels:?}");
            }
        }
    }

    #[test]
    fn numbers_without_sense_make_no_panels() {
        for panels in [
            Panels { columns: 0, lanes: 16, vectors: 4 },
            Panels { columns: 8, lanes: 0, vectors: 4 },
            Panels { columns: 8, lanes: 4, vectors: 0 },
        ] {
            assert!(panels.ranges().next().is_none() && !panels.divide(8));
        }
        assert!(Panels { columns: 8, lanes: 16, vectors: 4 }.divide(24));
        assert!(!Panels { columns: 8, lanes: 16, vectors: 4 }.divide(25));
        assert_eq!(Panels { columns: 8, lanes: 16, vectors: 4 }.to_string(), "panels of 64");
        // The most that numbers from a file can be.
        assert!(Panels { columns: u64::MAX, lanes: u32::MAX, vectors: u32::MAX }.ranges().last().is_some());
    }
}
