//! What of an arena is occupied, in each section.

/// So many ranges are moved in a step.
const MANY: usize = 64;

/// Ranges of bytes that do not touch, in ascending order.
#[derive(Clone, Default)]
struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    /// Returns how much there was to do, in steps, and whether the range was there.
    fn insert(&mut self, mut start: u64, mut end: u64) -> (u64, bool) {
        let ranges = &mut self.0;
        let at = ranges.partition_point(|range| range.1 < start);
        if ranges.get(at).is_some_and(|range| range.0 <= start && end <= range.1) {
            return (1 + (ranges.len() - at) as u64 / MANY as u64, true);
        }
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
        (1 + (ranges.len() - at) as u64 / MANY as u64, false)
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

    /// At how many nodes something is noted.
    pub fn touched(&self) -> u64 {
        self.touched.len() as u64
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
        let (mut left, mut right) = self.above(&sections);
        // What was there at a node was there at those above it.
        let (mut was_left, mut was_right) = (false, false);
        while left > 0 {
            was_left = self.note_above(left, start, end, was_left);
            if right != left {
                was_right = self.note_above(right, start, end, was_right);
            }
            (left, right) = (left / 2, right / 2);
        }
        let (mut left, mut right) = (sections.start + self.leaves, sections.end + self.leaves);
        while left < right {
            if left % 2 == 1 {
                self.steps += self.all[left].insert(start, end).0;
                self.note(left, start, end);
                left += 1;
            }
            if right % 2 == 1 {
                right -= 1;
                self.steps += self.all[right].insert(start, end).0;
                self.note(right, start, end);
            }
            (left, right) = (left / 2, right / 2);
        }
    }

    /// Notes something in a section of a node. Whether it was there.
    fn note(&mut self, node: usize, start: u64, end: u64) -> bool {
        let any = &mut self.any[node];
        if any.0.is_empty() {
            self.touched.push(node as u32);
        }
        let (steps, was_there) = any.insert(start, end);
        self.steps += steps;
        was_there
    }

    /// The same where it may be known to be there: that takes the same steps.
    fn note_above(&mut self, node: usize, start: u64, end: u64, is_there: bool) -> bool {
        if is_there && self.any[node].0.len() < MANY {
            self.steps += 1;
            return true;
        }
        self.note(node, start, end)
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
        // Of ranges that begin together the order does not matter.
        self.ranges.sort_unstable_by_key(|range| range.0);
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn places_are_free_in_all_sections(items in prop::collection::vec((0usize..70, 1usize..70, 1u64..9, any::<bool>()), 1..120)) {
            let mut occupied = Occupied::new(70);
            let mut placed: Vec<(std::ops::Range<usize>, u64, u64)> = Vec::new();
            for (from, count, bytes, is_lowest) in items {
                let (sections, bytes) = (from..(from + count).min(70), bytes * 64);
                let is_free = |offset: u64| {
                    let is_apart = |other: &(std::ops::Range<usize>, u64, u64)| {
                        other.0.end <= sections.start || sections.end <= other.0.start || other.2 <= offset || offset + bytes <= other.1
                    };
                    placed.iter().all(is_apart)
                };
                let lowest = (0..).map(|at| 64 * at).find(|offset| is_free(*offset)).unwrap();
                let found = match is_lowest {
                    true => occupied.lowest(sections.clone(), 0, bytes, 64),
                    false => occupied.tightest(sections.clone(), 0, bytes, 64),
                };
                prop_assert!(is_free(found));
                prop_assert!(found == lowest || (!is_lowest && found > lowest));
                occupied.insert(sections.clone(), found, found + bytes);
                placed.push((sections, found, found + bytes));
            }
        }
    }
}
