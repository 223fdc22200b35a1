//! In the order of time, from a list of gaps: cheap however many buffers live at the same time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::{Buffer, Packed, align_up};

/// Gives each buffer, when it begins, the smallest gap that holds it.
pub(super) fn pack(buffers: &[Buffer], of: &[u32], base: u64) -> Packed {
    let mut order = of.to_vec();
    order.sort_by_key(|&index| (buffers[index as usize].first, Reverse(buffers[index as usize].bytes)));
    let mut offsets = vec![0u64; buffers.len()];
    let mut ending: BinaryHeap<Reverse<(u32, u32)>> = BinaryHeap::new();
    // Gaps from their beginning to their end; the last reaches to the end of all numbers.
    let mut gaps = BTreeMap::from([(base, u64::MAX)]);
    let mut peak = base;
    for index in order {
        let buffer = &buffers[index as usize];
        while let Some(&Reverse((last, ended))) = ending.peek().filter(|Reverse((last, _))| *last < buffer.first) {
            debug_assert!(last < buffer.first);
            ending.pop();
            let mut start = offsets[ended as usize];
            let mut end = start.saturating_add(buffers[ended as usize].bytes);
            if let Some((&before, _)) = gaps.range(..start).next_back().filter(|(_, before)| **before == start) {
                start = before;
            }
            if let Some(after) = gaps.remove(&end) {
                end = after;
            }
            gaps.insert(start, end);
        }
        let fits = |(&start, &end): (&u64, &u64)| {
            let offset = align_up(start, buffer.align);
            offset.checked_add(buffer.bytes).filter(|&top| top <= end).map(|top| (end - start, start, end, offset, top))
        };
        let Some((_, start, end, offset, top)) = gaps.iter().filter_map(fits).min() else {
            // More than can be counted: no arena is that large.
            return Packed { offsets, peak: u64::MAX };
        };
        gaps.remove(&start);
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
