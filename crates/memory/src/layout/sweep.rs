//! In the order of time, from a list of gaps: cheap however many buffers live at the same time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use super::{Buffer, Packed, align_up};

/// Gives each buffer, when it begins, the smallest gap that holds it.
pub(super) fn pack(buffers: &[Buffer], of: &[u32], base: u64) -> Packed {
    let mut order = of.to_vec();
    order.sort_by_key(|&index| (buffers[index as usize].first, Reverse(buffers[index as usize].bytes)));
    let mut offsets = vec![0u64; buffers.len()];
    let mut ending: BinaryHeap<Reverse<(u32, u32)>> = BinaryHeap::new();
    // Gaps from their beginning to their end; the last reaches to the end of all numbers.
    let align = of.iter().map(|&index| buffers[index as usize].align.max(1)).fold(0, divisor);
    let mut gaps = Gaps { align, by_start: BTreeMap::new(), by_size: BTreeSet::new() };
    gaps.insert(base, u64::MAX);
    let mut peak = base;
    for index in order {
        let buffer = &buffers[index as usize];
        while let Some(&Reverse((last, ended))) = ending.peek().filter(|Reverse((last, _))| *last < buffer.first) {
            debug_assert!(last < buffer.first);
            ending.pop();
            let mut start = offsets[ended as usize];
            let mut end = start.saturating_add(buffers[ended as usize].bytes);
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
        let Some((start, end, offset, top)) = gaps.smallest(buffer) else {
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
        offsets[index as usize] = offset;
        peak = peak.max(top);
        ending.push(Reverse((buffer.last.max(buffer.first), index)));
    }
    Packed { offsets, peak }
}

/// The greatest common divisor.
fn divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { divisor(b, a % b) }
}

/// Gaps between buffers.
struct Gaps {
    /// The common divisor of the alignments of all buffers.
    align: u64,
    /// From their beginning to their end.
    by_start: BTreeMap<u64, u64>,
    /// Their sizes and beginnings, without those that are left between an end and the next place where a buffer may begin.
    by_size: BTreeSet<(u64, u64)>,
}

impl Gaps {
    fn insert(&mut self, start: u64, end: u64) {
        self.by_start.insert(start, end);
        if align_up(start, self.align) < end {
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

    /// The smallest gap that holds the buffer, of equal ones the lowest; and the buffer's extent in it.
    fn smallest(&self, buffer: &Buffer) -> Option<(u64, u64, u64, u64)> {
        self.by_size.range((buffer.bytes, 0)..).find_map(|&(size, start)| {
            let (end, offset) = (start + size, align_up(start, buffer.align));
            offset.checked_add(buffer.bytes).filter(|&top| top <= end).map(|top| (start, end, offset, top))
        })
    }
}
