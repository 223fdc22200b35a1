//! A sequence in which elements are moved, with the largest sum of a prefix known at any time. It is a treap by position (Seidel and
//! Aragon, Randomized search trees, 1996). Its priorities follow from the elements' numbers.

use std::cmp::Ordering;

/// What an element, or a part of the sequence, does to the bytes that are live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Load {
    /// By how much it changes them.
    pub net: i64,
    /// The most that are live within, counted from what was live before.
    pub peak: i64,
    /// At how many elements it is that much.
    pub times: u32,
}

impl Load {
    /// Of no element.
    const NONE: Load = Load { net: 0, peak: i64::MIN, times: 0 };

    /// Of one element.
    pub fn new(net: i64, peak: i64) -> Load {
        Load { net, peak, times: 1 }
    }

    /// This part, then that.
    fn then(self, other: Load) -> Load {
        let theirs = other.peak.saturating_add(self.net);
        let times = match self.peak.cmp(&theirs) {
            Ordering::Greater => self.times,
            Ordering::Equal => self.times + other.times,
            Ordering::Less => other.times,
        };
        Load { net: self.net.saturating_add(other.net), peak: self.peak.max(theirs), times }
    }
}

/// No node.
const NIL: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Node {
    left: u32,
    right: u32,
    parent: u32,
    size: u32,
    own: Load,
    all: Load,
}

/// Elements by number, in some order.
#[derive(Clone, Debug)]
pub(super) struct Sequence {
    nodes: Vec<Node>,
    root: u32,
}

impl Sequence {
    /// The elements 0, 1, ... in this order.
    pub fn new(loads: &[Load]) -> Sequence {
        let node = |load: &Load| Node { left: NIL, right: NIL, parent: NIL, size: 1, own: *load, all: *load };
        let mut sequence = Sequence { nodes: loads.iter().map(node).collect(), root: NIL };
        for element in 0..loads.len() as u32 {
            sequence.root = sequence.merge(sequence.root, element);
        }
        sequence
    }

    /// Of the whole sequence.
    pub fn load(&self) -> Load {
        self.all(self.root)
    }

    /// The first position at which most is live; none of an empty sequence.
    pub fn highest(&self) -> Option<u32> {
        let peak = self.load().peak;
        let (mut at, mut before, mut position) = (self.root, Load::NONE, 0);
        while at != NIL {
            let Node { left, right, own, .. } = self.nodes[at as usize];
            let up_to_left = before.then(self.all(left));
            let up_to_own = up_to_left.then(own);
            if up_to_left.peak == peak {
                at = left;
            } else if up_to_own.peak == peak {
                return Some(position + self.size(left));
            } else {
                (at, before, position) = (right, up_to_own, position + self.size(left) + 1);
            }
        }
        None
    }

    /// Where an element stands.
    pub fn position(&self, element: u32) -> u32 {
        let mut position = self.size(self.nodes[element as usize].left);
        let (mut at, mut parent) = (element, self.nodes[element as usize].parent);
        while parent != NIL {
            if self.nodes[parent as usize].right == at {
                position += self.size(self.nodes[parent as usize].left) + 1;
            }
            (at, parent) = (parent, self.nodes[parent as usize].parent);
        }
        position
    }

    /// The element at a position.
    pub fn element(&self, mut position: u32) -> Option<u32> {
        let mut at = self.root;
        while at != NIL {
            let node = &self.nodes[at as usize];
            let left = self.size(node.left);
            match position.cmp(&left) {
                Ordering::Less => at = node.left,
                Ordering::Equal => return Some(at),
                Ordering::Greater => (at, position) = (node.right, position - left - 1),
            }
        }
        None
    }

    /// Gives an element another load.
    pub fn set(&mut self, element: u32, load: Load) {
        self.nodes[element as usize].own = load;
        let mut at = element;
        while at != NIL {
            self.update(at);
            at = self.nodes[at as usize].parent;
        }
    }

    /// Puts an element where another position is; those between move by one.
    pub fn shift(&mut self, element: u32, to: u32) {
        let from = self.position(element);
        let (before, rest) = self.split(self.root, from);
        let (one, after) = self.split(rest, 1);
        let rest = self.merge(before, after);
        let (before, after) = self.split(rest, to);
        let before = self.merge(before, one);
        self.root = self.merge(before, after);
    }

    fn size(&self, at: u32) -> u32 {
        if at == NIL { 0 } else { self.nodes[at as usize].size }
    }

    fn all(&self, at: u32) -> Load {
        if at == NIL { Load::NONE } else { self.nodes[at as usize].all }
    }

    /// Priorities look random and are the same every time.
    fn priority(at: u32) -> u64 {
        let mut bits = u64::from(at).wrapping_add(0x9e37_79b9_7f4a_7c15);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb)
    }

    fn update(&mut self, at: u32) {
        let Node { left, right, own, .. } = self.nodes[at as usize];
        let size = self.size(left) + 1 + self.size(right);
        let all = self.all(left).then(own).then(self.all(right));
        (self.nodes[at as usize].size, self.nodes[at as usize].all) = (size, all);
    }

    fn set_child(&mut self, at: u32, left: Option<u32>, right: Option<u32>) {
        if let Some(left) = left {
            self.nodes[at as usize].left = left;
        }
        if let Some(right) = right {
            self.nodes[at as usize].right = right;
        }
        for child in [left, right].into_iter().flatten().filter(|child| *child != NIL) {
            self.nodes[child as usize].parent = at;
        }
        self.update(at);
    }

    /// The first `count` elements, and the others.
    fn split(&mut self, at: u32, count: u32) -> (u32, u32) {
        if at == NIL {
            return (NIL, NIL);
        }
        let Node { left, right, .. } = self.nodes[at as usize];
        let before = self.size(left);
        let (first, second) = if count <= before {
            let (first, second) = self.split(left, count);
            self.set_child(at, Some(second), None);
            (first, at)
        } else {
            let (first, second) = self.split(right, count - before - 1);
            self.set_child(at, None, Some(first));
            (at, second)
        };
        for root in [first, second].into_iter().filter(|root| *root != NIL) {
            self.nodes[root as usize].parent = NIL;
        }
        (first, second)
    }

    fn merge(&mut self, first: u32, second: u32) -> u32 {
        if first == NIL || second == NIL {
            return if first == NIL { second } else { first };
        }
        if Sequence::priority(first) > Sequence::priority(second) {
            let merged = self.merge(self.nodes[first as usize].right, second);
            self.set_child(first, None, Some(merged));
            first
        } else {
            let merged = self.merge(first, self.nodes[second as usize].left);
            self.set_child(second, Some(merged), None);
            second
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_moved_as_in_a_list() {
        let mut seed = 1u64;
        let mut random = |most: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as usize % most
        };
        let mut loads: Vec<Load> = (0..60).map(|_| Load::new(random(20) as i64 - 10, random(30) as i64)).collect();
        let mut list: Vec<u32> = (0..60).collect();
        let mut sequence = Sequence::new(&loads);
        for _ in 0..2000 {
            let (from, to) = (random(60), random(60));
            let element = list.remove(from);
            list.insert(to, element);
            sequence.shift(element, to as u32);
            let changed = random(60);
            loads[changed].net = random(20) as i64 - 10;
            sequence.set(changed as u32, loads[changed]);
            let all = list.iter().fold(Load::NONE, |all, element| all.then(loads[*element as usize]));
            assert_eq!(sequence.load(), all);
            let ups = list.iter().scan(Load::NONE, |all, element| {
                *all = all.then(loads[*element as usize]);
                Some(all.peak)
            });
            assert_eq!(sequence.highest(), { ups }.position(|peak| peak == all.peak).map(|position| position as u32));
            let probe = random(60);
            assert_eq!((sequence.position(list[probe]), sequence.element(probe as u32)), (probe as u32, Some(list[probe])));
        }
        assert_eq!((sequence.element(60), Sequence::new(&[]).load(), Sequence::new(&[]).highest()), (None, Load::NONE, None));
    }
}
