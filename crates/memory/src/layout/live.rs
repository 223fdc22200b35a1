//! How much is live when, and the orders that follow from it.

use std::cmp::Reverse;

use super::Buffer;

/// Buffers that are live at every step at which any is, the most strictly aligned first; and the rest, without those of no
/// bytes.
pub(super) fn split(buffers: &[Buffer]) -> (Vec<u32>, Vec<u32>) {
    let solid = || (0u32..).zip(buffers).filter(|(_, buffer)| buffer.bytes > 0);
    let first = solid().map(|(_, buffer)| buffer.first).min();
    let last = solid().map(|(_, buffer)| buffer.last.max(buffer.first)).max();
    let (mut always, rest): (Vec<u32>, Vec<u32>) = solid()
        .map(|(index, _)| index)
        .partition(|&index| (Some(buffers[index as usize].first), Some(buffers[index as usize].last)) == (first, last));
    always.sort_by_key(|&index| Reverse(buffers[index as usize].align));
    (always, rest)
}

/// The bytes live between events: step `times[i]` and those after it, up to the next event.
pub(super) struct Live {
    times: Vec<u32>,
    /// A table of maxima: row `k` holds at `i` the most of `2^k` loads from `i` on.
    most: Vec<Vec<u64>>,
}

impl Live {
    pub fn new(buffers: &[Buffer], of: &[u32]) -> Live {
        let mut times: Vec<u32> = of.iter().map(|&index| buffers[index as usize].first).collect();
        times.sort_unstable();
        times.dedup();
        // The load only grows at beginnings, so that loads there are enough to know every maximum.
        let mut change = vec![(0u64, 0u64); times.len() + 1];
        for &index in of {
            let buffer = &buffers[index as usize];
            let (from, to) = span(&times, buffer);
            change[from].0 = change[from].0.saturating_add(buffer.bytes);
            change[to].1 = change[to].1.saturating_add(buffer.bytes);
        }
        let mut load = 0u64;
        let loads = change[..times.len()].iter().map(|&(more, less)| {
            load = load.saturating_sub(less).saturating_add(more);
            load
        });
        let mut most = vec![loads.collect::<Vec<u64>>()];
        while 1 << most.len() <= times.len() {
            let (row, reach) = (&most[most.len() - 1], 1 << (most.len() - 1));
            most.push((0..=times.len() - 2 * reach).map(|i| row[i].max(row[i + reach])).collect());
        }
        Live { times, most }
    }

    /// The most bytes live at once.
    pub fn peak(&self) -> u64 {
        self.most[0].iter().copied().max().unwrap_or(0)
    }

    /// The most bytes live at once while the buffer is.
    fn beside(&self, buffer: &Buffer) -> u64 {
        let (from, to) = span(&self.times, buffer);
        let row = (to - from).ilog2() as usize;
        self.most[row][from].max(self.most[row][to - (1 << row)])
    }

    /// Orders in which to place buffers, the most promising first.
    pub fn orders(&self, buffers: &[Buffer], of: &[u32]) -> impl Iterator<Item = Vec<u32>> {
        let beside: Vec<u64> = of.iter().map(|&index| self.beside(&buffers[index as usize])).collect();
        let sorted = move |kind: u32| {
            let mut keyed: Vec<_> = of
                .iter()
                .zip(&beside)
                .map(|(&index, &beside)| {
                    let Buffer { first, last, bytes, .. } = buffers[index as usize];
                    let lifetime = u64::from(last.max(first) - first) + 1;
                    let area = u128::from(bytes) * u128::from(lifetime);
                    let (bytes, lifetime, area, beside) =
                        (Reverse(bytes.into()), Reverse(lifetime.into()), Reverse(area), Reverse(u128::from(beside)));
                    let key: (Reverse<u128>, Reverse<u128>) = match kind {
                        0 => (bytes, lifetime),
                        1 => (area, bytes),
                        2 => (beside, bytes),
                        3 => (beside, area),
                        4 => (lifetime, bytes),
                        5 => (Reverse(u128::from(u32::MAX - first)), bytes),
                        _ => (Reverse(u128::from(last)), bytes),
                    };
                    (key, index)
                })
                .collect();
            keyed.sort_unstable();
            keyed.into_iter().map(|(_, index)| index).collect()
        };
        (0..7).map(sorted)
    }
}

/// The events at which the buffer is live, as a range.
fn span(times: &[u32], buffer: &Buffer) -> (usize, usize) {
    (times.partition_point(|&time| time < buffer.first), times.partition_point(|&time| time <= buffer.last.max(buffer.first)))
}
