//! What of an arena is occupied, in each section.

/// Ranges of bytes that do not touch, in ascending order.
#[derive(Clone, Default)]
struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    /// Returns how much there was to do, in steps.
    fn insert(&mut self, mut start: u64, mut end: u64) -> u64 {
        let ranges = &mut self.0;
        let at = ranges.partition_point(|range| range.1 < start);
        let mut after = at;
        while let Some(range) = ranges.get(after).filter(|range| range.0 <= end) {
            (start, end) = (start.min(range.0), end.max(range.1));
            after += 1;
        }
        if at == after {
            ranges.insert(at, (start, end));
        } else {
            ranges[at] = (start, end);
            ranges.drain(at + 1..after);
        }
        // Ranges behind it may have moved, many of them in a step.
        1 + (ranges.len() - at) as u64 / 64
    }
}

/// A tree of sections. What is placed in a run of sections is noted at the few nodes that make up the run, and above them.
///
/// Buffers that lie one behind another are one range, so that a question about many sections looks at few ranges.
pub(super) struct Occupied {
    leaves: usize,
    /// For each node, what is placed in all of its sections, as far as it is not noted above the node.
    all: Vec<Ranges>,
    /// For each node, what is placed in any of its sections, as far as it is not noted above the node.
    any: Vec<Ranges>,
    /// The nodes at which something is noted.
    touched: Vec<u32>,
    /// The lists that a question is about: whether one is of `any`, the node, and how many ranges have been passed.
    lists: Vec<(bool, u32, u32)>,
    ranges: Vec<(u64, u64)>,
    /// How many ranges and nodes were looked at.
    pub steps: u64,
}

impl Occupied {
    pub fn new(sections: usize) -> Occupied {
        let leaves = sections.next_power_of_two();
        let nodes = || vec![Ranges::default(); 2 * leaves];
        Occupied { leaves, all: nodes(), any: nodes(), touched: Vec::new(), lists: Vec::new(), ranges: Vec::new(), steps: 0 }
    }

    pub fn clear(&mut self) {
        for node in self.touched.drain(..) {
            self.all[node as usize].0.clear();
            self.any[node as usize].0.clear();
            self.steps += 1;
        }
    }

    /// Places something in some sections, at least one.
    pub fn insert(&mut self, sections: std::ops::Range<usize>, start: u64, end: u64) {
        let (mut left, mut right) = (sections.start + self.leaves, sections.end + self.leaves);
        while left < right {
            if left % 2 == 1 {
                self.steps += self.all[left].insert(start, end);
                self.note(left, start, end);
                left += 1;
            }
            if right % 2 == 1 {
                right -= 1;
                self.steps += self.all[right].insert(start, end);
                self.note(right, start, end);
            }
            (left, right) = (left / 2, right / 2);
        }
        let (mut left, mut right) = self.above(&sections);
        while left > 0 {
            self.note(left, start, end);
            if right != left {
                self.note(right, start, end);
            }
            (left, right) = (left / 2, right / 2);
        }
    }

    /// Notes something in a section of a node.
    fn note(&mut self, node: usize, start: u64, end: u64) {
        let any = &mut self.any[node];
        if any.0.is_empty() {
            self.touched.push(node as u32);
        }
        self.steps += any.insert(start, end);
    }

    /// The lowest place, at or above a base, where so many bytes are free in all of these sections.
    pub fn lowest(&mut self, sections: std::ops::Range<usize>, base: u64, bytes: u64, align: u64) -> u64 {
        self.gather(sections);
        let mut offset = super::align_up(base, align);
        let (mut still, mut turn) = (0, 0);
        // A place is free if no list has had to move it since each was asked.
        while still < self.lists.len() {
            let (any, node, passed) = &mut self.lists[turn];
            let ranges = if *any { &self.any[*node as usize].0 } else { &self.all[*node as usize].0 };
            let mut at = *passed as usize;
            if ranges.get(at).is_some_and(|range| range.1 <= offset) {
                at += 1 + ranges[at + 1..].partition_point(|range| range.1 <= offset);
            }
            let before = offset;
            while let Some(range) = ranges.get(at).filter(|range| range.0 < offset.saturating_add(bytes) && offset < range.1) {
                offset = super::align_up(range.1, align);
                at += 1;
                self.steps += 1;
                at += ranges[at..].iter().take_while(|range| range.1 <= offset).count();
            }
            *passed = at as u32;
            still = if offset == before { still + 1 } else { 1 };
            turn = if turn + 1 == self.lists.len() { 0 } else { turn + 1 };
            self.steps += 1;
        }
        offset
    }

    /// The place in the smallest gap that holds so many bytes, of equal ones the lowest.
    pub fn tightest(&mut self, sections: std::ops::Range<usize>, base: u64, bytes: u64, align: u64) -> u64 {
        self.gather(sections);
        self.ranges.clear();
        for &(any, node, _) in &self.lists {
            self.ranges.extend_from_slice(if any { &self.any[node as usize].0 } else { &self.all[node as usize].0 });
        }
        self.ranges.sort_unstable();
        self.steps += 2 * self.ranges.len() as u64;
        let (mut free, mut best) = (base, None);
        for &(start, end) in &self.ranges {
            let offset = super::align_up(free, align);
            if start > free && offset.saturating_add(bytes) <= start {
                let gap = (start - free, offset);
                best = Some(best.map_or(gap, |best: (u64, u64)| best.min(gap)));
            }
            free = free.max(end);
        }
        best.map_or_else(|| super::align_up(free, align), |(_, offset)| offset)
    }

    /// Lists that together have all that is placed in the sections.
    fn gather(&mut self, sections: std::ops::Range<usize>) {
        self.lists.clear();
        let (mut left, mut right) = (sections.start + self.leaves, sections.end + self.leaves);
        while left < right {
            if left % 2 == 1 {
                self.list(true, left);
                left += 1;
            }
            if right % 2 == 1 {
                right -= 1;
                self.list(true, right);
            }
            (left, right) = (left / 2, right / 2);
        }
        let (mut left, mut right) = self.above(&sections);
        while left > 0 {
            self.list(false, left);
            if right != left {
                self.list(false, right);
            }
            (left, right) = (left / 2, right / 2);
        }
    }

    fn list(&mut self, any: bool, node: usize) {
        if !(if any { &self.any[node].0 } else { &self.all[node].0 }).is_empty() {
            self.lists.push((any, node as u32, 0));
        }
    }

    /// The nodes above the first and the last of the sections: all nodes above those that make up the run are above one of these.
    fn above(&self, sections: &std::ops::Range<usize>) -> (usize, usize) {
        ((sections.start + self.leaves) / 2, (sections.end - 1 + self.leaves) / 2)
    }
}
