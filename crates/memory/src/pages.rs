//! A set of ranges of bytes: which pages of a mapping are away.

use std::collections::BTreeMap;
use std::ops::Range;

/// Disjoint ranges that do not touch, by start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageSet(BTreeMap<u64, u64>);

impl PageSet {
    /// The parts of `range` that are in the set.
    pub fn overlap(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let touching = self.touching(range).map(|found| found.start.max(range.start)..found.end.min(range.end));
        touching.filter(|found| !found.is_empty()).collect()
    }

    /// The parts of `range` that are not in the set.
    pub fn gaps(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        let mut at = range.start;
        for found in self.overlap(range) {
            gaps.push(at..found.start);
            at = found.end;
        }
        gaps.push(at..range.end);
        gaps.retain(|gap| !gap.is_empty());
        gaps
    }

    /// Adds `range`.
    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let mut whole = range.clone();
        for found in self.touching(&range).collect::<Vec<_>>() {
            self.0.remove(&found.start);
            whole = whole.start.min(found.start)..whole.end.max(found.end);
        }
        self.0.insert(whole.start, whole.end);
    }

    /// Takes `range` out.
    pub fn remove(&mut self, range: &Range<u64>) {
        for found in self.touching(range).collect::<Vec<_>>() {
            self.0.remove(&found.start);
            for rest in [found.start..found.end.min(range.start), found.start.max(range.end)..found.end] {
                self.insert(rest);
            }
        }
    }

    /// Ranges that share a byte or an end with `range`, by start.
    fn touching(&self, range: &Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let before = self.0.range(..range.start).next_back().filter(|&(_, &end)| end >= range.start);
        let from = before.map_or(range.start, |(&start, _)| start);
        let range = from..=range.end.max(from);
        self.0.range(range).map(|(&start, &end)| start..end)
    }
}

/// How many bytes ranges have together.
pub fn total(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn members(ranges: &[Range<u64>]) -> Vec<u64> {
        ranges.iter().cloned().flatten().collect()
    }

    proptest! {
        /// Against a vector of bools.
        #[test]
        fn is_a_set(steps in prop::collection::vec((0u64..40, 0u64..12, any::<bool>()), 1..40)) {
            let (mut set, mut plain) = (PageSet::default(), [false; 64]);
            for (start, length, insert) in steps {
                let range = start..start + length;
                let inside = |wanted: bool| range.clone().filter(|&i| plain[i as usize] == wanted).collect::<Vec<_>>();
                prop_assert_eq!(members(&set.overlap(&range)), inside(true));
                prop_assert_eq!(members(&set.gaps(&range)), inside(false));
                prop_assert_eq!(total(&set.gaps(&range)) + total(&set.overlap(&range)), length);
                if insert { set.insert(range.clone()) } else { set.remove(&range) }
                range.for_each(|i| plain[i as usize] = insert);
                let ends: Vec<(u64, u64)> = set.0.iter().map(|(&start, &end)| (start, end)).collect();
                prop_assert!(ends.windows(2).all(|pair| pair[0].1 < pair[1].0) && ends.iter().all(|(start, end)| start < end));
            }
        }
    }
}
