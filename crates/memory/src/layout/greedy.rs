//! One buffer after the other, each into a gap between those placed before that live at the same time.

use super::{Buffer, Packed, align_up};

/// Which gap a buffer gets.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fit {
    /// The lowest that holds it.
    Lowest,
    /// The smallest that holds it; of equal ones the lowest.
    Tightest,
}

/// Places buffers in any order, again and again.
pub(super) struct Greedy<'a> {
    buffers: &'a [Buffer],
    base: u64,
    /// The buffers by their first step.
    by_first: Vec<u32>,
    /// For each buffer its position in `by_first`.
    position: Vec<u32>,
    /// For each buffer how many of `by_first` begin before it has ended.
    reach: Vec<u32>,
    /// A tree of maxima over `by_first`: one more than the last step of those that are placed, else 0.
    tree: Vec<u64>,
    leaves: usize,
    beside: Vec<(u64, u64)>,
}

impl<'a> Greedy<'a> {
    pub fn new(buffers: &'a [Buffer], of: &[u32], base: u64) -> Greedy<'a> {
        let mut by_first = of.to_vec();
        by_first.sort_by_key(|&index| buffers[index as usize].first);
        let (mut position, mut reach) = (vec![0; buffers.len()], vec![0; buffers.len()]);
        for (at, &index) in by_first.iter().enumerate() {
            let buffer = &buffers[index as usize];
            position[index as usize] = at as u32;
            let begun = by_first.partition_point(|&other| buffers[other as usize].first <= buffer.last.max(buffer.first));
            reach[index as usize] = begun as u32;
        }
        let leaves = by_first.len().next_power_of_two();
        Greedy { buffers, base, by_first, position, reach, tree: vec![0; 2 * leaves], leaves, beside: Vec::new() }
    }

    /// The number of pairs of buffers that live at the same time: [`Greedy::pack`] looks at each.
    pub fn pairs(&self) -> u64 {
        let later = |&index: &u32| u64::from(self.reach[index as usize] - self.position[index as usize]);
        self.by_first.iter().map(later).sum()
    }

    /// Places the buffers in this order.
    ///
    /// # Errors
    /// The place in the order of the first buffer that would end above `most`.
    pub fn pack(&mut self, order: &[u32], fit: Fit, most: u64) -> Result<Packed, usize> {
        self.tree.fill(0);
        let mut packed = Packed { offsets: vec![0; self.buffers.len()], peak: self.base };
        for (at, &index) in order.iter().enumerate() {
            let buffer = &self.buffers[index as usize];
            self.beside.clear();
            self.collect(1, 0, self.leaves, self.reach[index as usize] as usize, u64::from(buffer.first), &packed.offsets);
            self.beside.sort_unstable();
            let offset = self.gap(buffer, fit);
            let end = offset.saturating_add(buffer.bytes);
            if end > most {
                return Err(at);
            }
            packed.offsets[index as usize] = offset;
            packed.peak = packed.peak.max(end);
            self.place(index);
        }
        Ok(packed)
    }

    /// The offset for a buffer among `beside`.
    fn gap(&self, buffer: &Buffer, fit: Fit) -> u64 {
        let mut floor = self.base;
        let mut tightest: Option<(u64, u64)> = None;
        for &(start, end) in &self.beside {
            if start > floor {
                let offset = align_up(floor, buffer.align);
                if offset.saturating_add(buffer.bytes) <= start {
                    match fit {
                        Fit::Lowest => return offset,
                        Fit::Tightest => {
                            tightest = Some(tightest.map_or((start - floor, offset), |best| best.min((start - floor, offset))))
                        }
                    }
                }
            }
            floor = floor.max(end);
        }
        tightest.map_or_else(|| align_up(floor, buffer.align), |(_, offset)| offset)
    }

    /// Collects the extents of placed buffers among the first `reach` that end at step `first` or later.
    fn collect(&mut self, node: usize, from: usize, to: usize, reach: usize, first: u64, offsets: &[u64]) {
        if from >= reach || self.tree[node] <= first {
            return;
        }
        if node >= self.leaves {
            let index = self.by_first[from] as usize;
            self.beside.push((offsets[index], offsets[index].saturating_add(self.buffers[index].bytes)));
            return;
        }
        let middle = from.midpoint(to);
        self.collect(2 * node, from, middle, reach, first, offsets);
        self.collect(2 * node + 1, middle, to, reach, first, offsets);
    }

    fn place(&mut self, index: u32) {
        let buffer = &self.buffers[index as usize];
        let end = u64::from(buffer.last.max(buffer.first)) + 1;
        let mut node = self.leaves + self.position[index as usize] as usize;
        while node > 0 && self.tree[node] < end {
            self.tree[node] = end;
            node /= 2;
        }
    }
}
