//! The bytes at each position of a schedule, in blocks of positions.

use std::ops::Range;

use crate::graph::Key;

/// A block of more positions is cut into two.
const MOST: usize = 96;

#[derive(Clone, Debug)]
struct Block {
    keys: Vec<Key>,
    /// Without `added`.
    bytes: Vec<i64>,
    added: i64,
    /// Of `bytes`.
    most: i64,
    /// What all positions together are over the budget.
    over: i64,
}

impl Block {
    fn refresh(&mut self, budget: i64) -> i128 {
        self.most = self.bytes.iter().copied().max().unwrap_or(i64::MIN / 2);
        self.recount(budget)
    }

    /// Adds bytes to some positions. Returns the change of what is over the budget. The others are looked at only where the most may have been
    /// one of these.
    fn add(&mut self, range: Range<usize>, bytes: i64, budget: i64) -> i128 {
        let (line, before) = (budget - self.added, self.over);
        let (mut was, mut is) = (i64::MIN / 2, i64::MIN / 2);
        for other in &mut self.bytes[range] {
            was = was.max(*other);
            self.over -= (*other - line).max(0);
            *other += bytes;
            self.over += (*other - line).max(0);
            is = is.max(*other);
        }
        if bytes > 0 || was < self.most {
            self.most = self.most.max(is);
        } else {
            self.most = self.bytes.iter().copied().max().unwrap_or(i64::MIN / 2);
        }
        i128::from(self.over - before)
    }

    /// The change of what is over the budget. A block has few positions: their bytes together can be counted.
    fn recount(&mut self, budget: i64) -> i128 {
        let (line, before) = (budget - self.added, self.over);
        self.over = if self.most > line { self.bytes.iter().map(|bytes| (bytes - line).max(0)).sum() } else { 0 };
        i128::from(self.over - before)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Profile {
    blocks: Vec<Block>,
    firsts: Vec<Key>,
    budget: i64,
    over: i128,
}

impl Profile {
    /// Positions in order, with their bytes.
    pub fn new(positions: &[(Key, i64)], budget: i64) -> Profile {
        let mut profile = Profile { blocks: Vec::new(), firsts: Vec::new(), budget, over: 0 };
        for chunk in positions.chunks(MOST / 2) {
            let mut block = Block {
                keys: chunk.iter().map(|position| position.0).collect(),
                bytes: chunk.iter().map(|position| position.1).collect(),
                added: 0,
                most: 0,
                over: 0,
            };
            profile.over += block.refresh(budget);
            profile.firsts.push(chunk[0].0);
            profile.blocks.push(block);
        }
        profile
    }

    pub fn budget(&self) -> i64 {
        self.budget
    }

    pub fn set_budget(&mut self, budget: i64) {
        self.budget = budget;
        self.over = 0;
        for block in &mut self.blocks {
            block.recount(budget);
            self.over += i128::from(block.over);
        }
    }

    /// What all positions together are over the budget.
    pub fn over(&self) -> i128 {
        self.over
    }

    pub fn peak(&self) -> i64 {
        self.blocks.iter().map(|block| block.most + block.added).max().unwrap_or(0)
    }

    /// The first position with the most bytes.
    pub fn highest(&self) -> Option<Key> {
        let peak = self.peak();
        let block = self.blocks.iter().find(|block| block.most + block.added == peak)?;
        let at = block.bytes.iter().position(|bytes| bytes + block.added == peak)?;
        Some(block.keys[at])
    }

    /// The first and the last position of a run of positions over the budget, about: by blocks.
    pub fn zone(&self, key: Key) -> (Key, Key) {
        let (mut first, mut last) = (self.block(key), self.block(key));
        while first > 0 && self.blocks[first - 1].over > 0 {
            first -= 1;
        }
        while last + 1 < self.blocks.len() && self.blocks[last + 1].over > 0 {
            last += 1;
        }
        (self.firsts.get(first).copied().unwrap_or(0), self.blocks.get(last).and_then(|block| block.keys.last()).copied().unwrap_or(0))
    }

    /// The block where a key is or belongs.
    fn block(&self, key: Key) -> usize {
        self.firsts.partition_point(|first| *first <= key).saturating_sub(1)
    }

    /// The last position before a key, with its bytes.
    pub fn before(&self, key: Key) -> Option<(Key, i64)> {
        let at = self.block(key);
        let block = self.blocks.get(at)?;
        let index = block.keys.partition_point(|other| *other < key);
        if index > 0 {
            return Some((block.keys[index - 1], block.bytes[index - 1] + block.added));
        }
        let block = self.blocks.get(at.checked_sub(1)?)?;
        Some((*block.keys.last()?, block.bytes.last()? + block.added))
    }

    pub fn bytes_at(&self, key: Key) -> i64 {
        let block = &self.blocks[self.block(key)];
        block.keys.binary_search(&key).map_or(0, |at| block.bytes[at] + block.added)
    }

    pub fn insert(&mut self, key: Key, bytes: i64) {
        if self.blocks.is_empty() {
            self.blocks.push(Block { keys: Vec::new(), bytes: Vec::new(), added: 0, most: 0, over: 0 });
            self.firsts.push(key);
        }
        let at = self.block(key);
        let block = &mut self.blocks[at];
        let index = block.keys.partition_point(|other| *other < key);
        block.keys.insert(index, key);
        block.bytes.insert(index, bytes - block.added);
        self.over += block.refresh(self.budget);
        self.firsts[at] = block.keys[0];
        if block.keys.len() > MOST {
            let half = block.keys.len() / 2;
            let mut rest =
                Block { keys: block.keys.split_off(half), bytes: block.bytes.split_off(half), added: block.added, most: 0, over: 0 };
            self.over += block.refresh(self.budget) + rest.refresh(self.budget);
            self.firsts.insert(at + 1, rest.keys[0]);
            self.blocks.insert(at + 1, rest);
        }
    }

    pub fn remove(&mut self, key: Key) {
        let at = self.block(key);
        let Some(block) = self.blocks.get_mut(at) else { return };
        let Ok(index) = block.keys.binary_search(&key) else { return };
        block.keys.remove(index);
        block.bytes.remove(index);
        self.over += block.refresh(self.budget);
        if block.keys.is_empty() {
            self.blocks.remove(at);
            self.firsts.remove(at);
        } else {
            self.firsts[at] = block.keys[0];
        }
    }

    /// Adds bytes to the positions from one key up to another, which is not one of them.
    pub fn add(&mut self, from: Key, to: Key, bytes: i64) {
        if from >= to || bytes == 0 {
            return;
        }
        for at in self.block(from)..self.blocks.len() {
            if self.firsts[at] >= to {
                break;
            }
            let last = self.firsts.get(at + 1).is_some_and(|next| *next <= to);
            let block = &mut self.blocks[at];
            if last && self.firsts[at] >= from {
                block.added += bytes;
                self.over += block.recount(self.budget);
                continue;
            }
            let range = block.keys.partition_point(|key| *key < from)..block.keys.partition_point(|key| *key < to);
            self.over += block.add(range, bytes, self.budget);
        }
    }

    /// The most bytes of the positions from one key up to another, which is not one of them.
    pub fn most(&self, from: Key, to: Key) -> i64 {
        let mut most = i64::MIN / 2;
        for at in self.block(from)..self.blocks.len() {
            if self.firsts[at] >= to {
                break;
            }
            let last = self.firsts.get(at + 1).is_some_and(|next| *next <= to);
            let block = &self.blocks[at];
            if last && self.firsts[at] >= from {
                most = most.max(block.most + block.added);
                continue;
            }
            let range = block.keys.partition_point(|key| *key < from)..block.keys.partition_point(|key| *key < to);
            most = block.bytes[range].iter().fold(most, |most, bytes| most.max(bytes + block.added));
        }
        most
    }

    /// All positions in order, with their bytes.
    pub fn positions(&self) -> impl Iterator<Item = (Key, i64)> {
        self.blocks.iter().flat_map(|block| block.keys.iter().zip(&block.bytes).map(|(key, bytes)| (*key, bytes + block.added)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_profile_is_a_map_of_positions(
            changes in prop::collection::vec((0u8..4, 0u64..600, 0u64..600, -40i64..40), 1..400), budget in -20i64..80, count in 1u64..300
        ) {
            let mut map: BTreeMap<Key, i64> = (0..count).map(|at| (2 * at, (at % 7) as i64)).collect();
            let all: Vec<(Key, i64)> = map.iter().map(|(key, bytes)| (*key, *bytes)).collect();
            let mut profile = Profile::new(&all, budget);
            for (what, one, other, bytes) in changes {
                match what {
                    0 if !map.contains_key(&one) => {
                        map.insert(one, bytes);
                        profile.insert(one, bytes);
                    }
                    1 => {
                        map.remove(&one);
                        profile.remove(one);
                    }
                    _ => {
                        let (from, to) = (one.min(other), one.max(other));
                        map.range_mut(from..to).for_each(|(_, at)| *at += bytes);
                        profile.add(from, to, bytes);
                    }
                }
                let over: i64 = map.values().map(|at| (at - budget).max(0)).sum();
                prop_assert_eq!(profile.over(), i128::from(over));
                prop_assert_eq!(profile.peak(), map.values().copied().max().unwrap_or(0));
            }
            prop_assert_eq!(profile.positions().collect::<Vec<_>>(), map.into_iter().collect::<Vec<_>>());
        }
    }
}
