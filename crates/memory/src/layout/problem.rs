//! The buffers of a packing, as intervals of sections.

use super::{Buffer, align_up};

/// A buffer that has bytes and is not live all the time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    /// Its number among all buffers.
    pub index: u32,
    /// The sections in which it is live: from this one
    pub from: u32,
    /// up to the one before this one.
    pub to: u32,
    /// The steps during which it is live.
    pub lifetime: u64,
    pub bytes: u64,
    pub align: u64,
}

impl Item {
    pub fn sections(&self) -> std::ops::Range<usize> {
        self.from as usize..self.to as usize
    }
}

/// What is left to pack when the buffers that are always live lie at the bottom.
///
/// A section stands for the steps between two changes. There is one for each largest set of buffers that are live at once, so
/// that two buffers live at the same step if and only if they share a section.
pub(super) struct Problem {
    pub items: Vec<Item>,
    /// How many sections there are.
    pub sections: usize,
    /// No item lies below.
    pub base: u64,
    /// All offsets of items are multiples of this.
    pub unit: u64,
    /// The bytes live in each section, without what is below the base.
    pub loads: Vec<u64>,
    /// No layout that has these items above the base has a lower peak.
    pub floor: u64,
    /// The most bytes of all buffers that are live at one step.
    pub most_live: u64,
}

impl Problem {
    /// Puts the buffers that are live at every step at the bottom, the most strictly aligned first, and writes their offsets.
    pub fn new(buffers: &[Buffer], offsets: &mut [u64]) -> Problem {
        let solid = || (0u32..).zip(buffers).filter(|(_, buffer)| buffer.bytes > 0);
        let first = solid().map(|(_, buffer)| buffer.first).min();
        let last = solid().map(|(_, buffer)| end(buffer)).max();
        let (mut always, rest) = solid().partition::<Vec<_>, _>(|(_, buffer)| (Some(buffer.first), Some(end(buffer))) == (first, last));
        always.sort_by_key(|(_, buffer)| std::cmp::Reverse(buffer.align));
        let (mut base, mut below) = (0u64, 0u64);
        for (index, buffer) in always {
            offsets[index as usize] = align_up(base, buffer.align);
            base = offsets[index as usize].saturating_add(buffer.bytes);
            below = below.saturating_add(buffer.bytes);
        }
        let times = sections(&rest);
        let items: Vec<Item> = rest
            .iter()
            .map(|(index, buffer)| Item {
                index: *index,
                from: times.partition_point(|&time| time < buffer.first) as u32,
                to: times.partition_point(|&time| time <= end(buffer)) as u32,
                lifetime: u64::from(end(buffer) - buffer.first) + 1,
                bytes: buffer.bytes,
                align: buffer.align.max(1),
            })
            .collect();
        let unit = items.iter().map(|item| item.align).fold(0, divisor).max(1);
        let loads = loads(&items, times.len(), |item| item.bytes);
        let most = loads.iter().copied().max().unwrap_or(0);
        // Items begin at multiples of the unit, so that only the highest one of a section may end before such a multiple.
        let gap = |item: &Item| align_up(item.bytes, unit) - item.bytes;
        let rounded = self::loads(&items, times.len(), |item| align_up(item.bytes, unit)).into_iter().max().unwrap_or(0);
        let least = most.max(rounded.saturating_sub(items.iter().map(gap).max().unwrap_or(0)));
        let floor = if items.is_empty() { base } else { align_up(base, unit).saturating_add(least) };
        Problem { items, sections: times.len(), base, unit, loads, floor, most_live: below.saturating_add(most) }
    }

    /// For each item the most bytes that are live in one of its sections.
    pub fn beside(&self) -> Vec<u64> {
        let mut most = vec![self.loads.clone()];
        while 1 << most.len() <= self.sections {
            let (row, reach) = (&most[most.len() - 1], 1 << (most.len() - 1));
            most.push((0..=self.sections - 2 * reach).map(|i| row[i].max(row[i + reach])).collect());
        }
        let beside = |item: &Item| {
            let row = (item.to - item.from).ilog2() as usize;
            most[row][item.from as usize].max(most[row][item.to as usize - (1 << row)])
        };
        self.items.iter().map(beside).collect()
    }
}

/// The last step of a buffer: a lifetime that ends before it begins is one of a single step.
fn end(buffer: &Buffer) -> u32 {
    buffer.last.max(buffer.first)
}

/// For each section a step in it: the last beginning before one or more buffers end.
fn sections(buffers: &[(u32, &Buffer)]) -> Vec<u32> {
    let mut begins: Vec<u32> = buffers.iter().map(|(_, buffer)| buffer.first).collect();
    let mut ends: Vec<u32> = buffers.iter().map(|(_, buffer)| end(buffer)).collect();
    begins.sort_unstable();
    ends.sort_unstable();
    let (mut sections, mut begun) = (Vec::new(), 0);
    for last in ends {
        let before = begun;
        begun += begins[begun..].partition_point(|&first| first <= last);
        if begun > before {
            sections.push(begins[begun - 1]);
        }
    }
    sections
}

/// The sum of something over the items of each section.
fn loads(items: &[Item], sections: usize, of: impl Fn(&Item) -> u64) -> Vec<u64> {
    let mut changes = vec![(0u64, 0u64); sections + 1];
    for item in items {
        let (begun, ended) = (item.from as usize, item.to as usize);
        changes[begun].0 = changes[begun].0.saturating_add(of(item));
        changes[ended].1 = changes[ended].1.saturating_add(of(item));
    }
    let mut load = 0u64;
    let loads = changes[..sections].iter().map(|&(more, less)| {
        load = load.saturating_sub(less).saturating_add(more);
        load
    });
    loads.collect()
}

/// The greatest common divisor.
fn divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { divisor(b, a % b) }
}
