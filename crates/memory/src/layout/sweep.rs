//! In the order of time, from a list of gaps: cheap however many buffers live at the same time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use super::problem::{Item, Problem};
use super::{Packed, align_up};

/// Gives each item, when it begins, the smallest gap that holds it.
pub(super) fn pack(problem: &Problem) -> Packed {
    let Problem { items, base, .. } = problem;
    let mut order: Vec<u32> = (0..items.len() as u32).collect();
    order.sort_by_key(|&number| (items[number as usize].from, Reverse(items[number as usize].bytes)));
    let mut offsets = vec![0u64; items.len()];
    let mut ending: BinaryHeap<Reverse<(u32, u32)>> = BinaryHeap::new();
    // Gaps from their beginning to their end; the last reaches to the end of all numbers.
    let mut gaps = Gaps { unit: problem.unit, by_start: BTreeMap::new(), by_size: BTreeSet::new() };
    gaps.insert(*base, u64::MAX);
    let mut peak = *base;
    for number in order {
        let item = &items[number as usize];
        while let Some(&Reverse((_, ended))) = ending.peek().filter(|Reverse((to, _))| *to <= item.from) {
            ending.pop();
            let mut start = offsets[ended as usize];
            let mut end = start.saturating_add(items[ended as usize].bytes);
            if let Some(before) = gaps.ending_at(start) {
                start = before;
            }
            if let Some(after) = gaps.by_start.get(&end).copied() {
                gaps.remove(end, after);
                end = after;
            }
            if start < offsets[ended as usize] {
                gaps.remove(start, offsets[ended as usize]);
            }
            gaps.insert(start, end);
        }
        let Some((start, end, offset, top)) = gaps.smallest(item) else {
            // More than can be counted: no arena is that large.
            return Packed { offsets, peak: u64::MAX };
        };
        gaps.remove(start, end);
        if start < offset {
            gaps.insert(start, offset);
        }
        if top < end {
            gaps.insert(top, end);
        }
        offsets[number as usize] = offset;
        peak = peak.max(top);
        ending.push(Reverse((item.to, number)));
    }
    Packed { offsets, peak }
}

/// Gaps between buffers.
struct Gaps {
    /// Items begin at multiples of this.
    unit: u64,
    /// From their beginning to their end.
    by_start: BTreeMap<u64, u64>,
    /// Their sizes and beginnings, without those that are left between an end and the next place where a buffer may begin.
    by_size: BTreeSet<(u64, u64)>,
}

impl Gaps {
    fn insert(&mut self, start: u64, end: u64) {
        self.by_start.insert(start, end);
        if align_up(start, self.unit) < end {
            self.by_size.insert((end - start, start));
        }
    }

    fn remove(&mut self, start: u64, end: u64) {
        self.by_start.remove(&start);
        self.by_size.remove(&(end - start, start));
    }

    /// The beginning of the gap that ends there.
    fn ending_at(&self, end: u64) -> Option<u64> {
        self.by_start.range(..end).next_back().filter(|(_, other)| **other == end).map(|(start, _)| *start)
    }

    /// The smallest gap that holds the item, of equal ones the lowest; and the item's extent in it.
    fn smallest(&self, item: &Item) -> Option<(u64, u64, u64, u64)> {
        self.by_size.range((item.bytes, 0)..).find_map(|&(size, start)| {
            let (end, offset) = (start + size, align_up(start, item.align));
            offset.checked_add(item.bytes).filter(|&top| top <= end).map(|top| (start, end, offset, top))
        })
    }
}
