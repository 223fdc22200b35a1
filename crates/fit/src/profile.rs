//! The bytes at each position of a schedule, in blocks of positions.

use std::ops::Range;

use crate::graph::{Key, stage};

/// A block of more positions is cut into two.
const MOST: usize = 96;

/// Less than any bytes.
const NONE: i64 = i64::MIN / 2;

#[derive(Clone, Debug)]
struct Block {
    keys: Vec<Key>,
    /// Without `added`.
    bytes: Vec<i64>,
    added: i64,
    /// Of `bytes`; none until it is asked for.
    most: Option<i64>,
    /// What all positions together are over the budget; none until it is asked for.
    over: Option<i64>,
}

impl Block {
    fn new(keys: Vec<Key>, bytes: Vec<i64>, added: i64) -> Block {
        Block { keys, bytes, added, most: None, over: None }
    }

    /// The most bytes of a position.
    fn most(&mut self) -> i64 {
        let bytes = &self.bytes;
        *self.most.get_or_insert_with(|| bytes.iter().copied().max().unwrap_or(NONE)) + self.added
    }

    /// What all positions together are over a budget. A block has few positions: their bytes together can be counted.
    fn over(&mut self, budget: i64) -> i64 {
        if let Some(over) = self.over {
            return over;
        }
        let line = budget - self.added;
        let over = if self.most() > budget { self.bytes.iter().map(|bytes| (bytes - line).max(0)).sum() } else { 0 };
        *self.over.insert(over)
    }

    /// What is over the budget is asked for again, unless nothing is.
    fn forget(&mut self, budget: i64) {
        let is_below = self.most.is_some_and(|most| most + self.added <= budget);
        self.over = is_below.then_some(0);
    }

    /// Adds bytes to all positions.
    fn add_to_all(&mut self, bytes: i64, budget: i64) {
        self.added += bytes;
        self.forget(budget);
    }

    /// Adds bytes to some positions.
    fn add(&mut self, range: Range<usize>, bytes: i64, budget: i64) {
        let mut is = NONE;
        for other in &mut self.bytes[range] {
            *other += bytes;
            is = is.max(*other);
        }
        // Where the most may have been one of these, the others are looked at.
        self.most = self.most.filter(|most| bytes > 0 || is - bytes < *most).map(|most| most.max(is));
        self.forget(budget);
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Profile {
    blocks: Vec<Block>,
    /// The first position of each block.
    firsts: Vec<Key>,
    /// For each stage, how many of `firsts` are in earlier ones. Up to the stage behind those that there were first.
    earlier: Vec<u32>,
    budget: i64,
    /// What all positions together are over the budget; none until it is asked for.
    over: Option<i128>,
}

impl Profile {
    /// Positions in order, with their bytes.
    pub fn new(positions: &[(Key, i64)], budget: i64) -> Profile {
        let chunks = || positions.chunks(MOST / 2);
        let block = |chunk: &[(Key, i64)]| {
            Block::new(chunk.iter().map(|position| position.0).collect(), chunk.iter().map(|position| position.1).collect(), 0)
        };
        let firsts: Vec<Key> = chunks().map(|chunk| chunk[0].0).collect();
        let stages = positions.last().map_or(0, |(last, _)| stage(*last) + 2);
        let mut earlier = vec![0; stages];
        for (stage, earlier) in earlier.iter_mut().enumerate() {
            *earlier = firsts.partition_point(|first| crate::graph::stage(*first) < stage) as u32;
        }
        Profile { blocks: chunks().map(block).collect(), firsts, earlier, budget, over: None }
    }

    /// How many blocks begin at or before a key.
    #[inline]
    fn begun(&self, key: Key) -> usize {
        let mut begun = self.earlier.get(stage(key)).or(self.earlier.last()).map_or(0, |earlier| *earlier as usize);
        while self.firsts.get(begun).is_some_and(|first| *first <= key) {
            begun += 1;
        }
        begun
    }

    /// The first position of a block is another one.
    fn set_first(&mut self, at: usize, key: Key) {
        let before = std::mem::replace(&mut self.firsts[at], key);
        let (from, to) = (stage(before), stage(key));
        self.between(from, to, |earlier| *earlier -= 1);
        self.between(to, from, |earlier| *earlier += 1);
    }

    /// Changes how many are earlier than the stages behind one and up to another.
    fn between(&mut self, one: usize, other: usize, change: impl Fn(&mut u32)) {
        let end = self.earlier.len();
        if one < other {
            self.earlier[(one + 1).min(end)..(other.saturating_add(1)).min(end)].iter_mut().for_each(change);
        }
    }

    fn insert_block(&mut self, at: usize, block: Block) {
        let first = block.keys[0];
        self.between(stage(first), usize::MAX, |earlier| *earlier += 1);
        self.firsts.insert(at, first);
        self.blocks.insert(at, block);
    }

    fn remove_block(&mut self, at: usize) {
        self.blocks.remove(at);
        let first = self.firsts.remove(at);
        self.between(stage(first), usize::MAX, |earlier| *earlier -= 1);
    }

    pub fn budget(&self) -> i64 {
        self.budget
    }

    pub fn set_budget(&mut self, budget: i64) {
        self.budget = budget;
        self.over = None;
        self.blocks.iter_mut().for_each(|block| block.over = None);
    }

    /// What all positions together are over the budget.
    pub fn over(&mut self) -> i128 {
        let (blocks, budget) = (&mut self.blocks, self.budget);
        *self.over.get_or_insert_with(|| blocks.iter_mut().map(|block| i128::from(block.over(budget))).sum())
    }

    pub fn peak(&mut self) -> i64 {
        self.blocks.iter_mut().map(Block::most).max().unwrap_or(0)
    }

    /// The first position with the most bytes.
    pub fn highest(&mut self) -> Option<Key> {
        let peak = self.peak();
        let block = self.blocks.iter_mut().find_map(|block| (block.most() == peak).then_some(block))?;
        let at = block.bytes.iter().position(|bytes| bytes + block.added == peak)?;
        Some(block.keys[at])
    }

    /// The first and the last position of a run of positions over the budget, about: by blocks.
    pub fn zone(&mut self, key: Key) -> (Key, Key) {
        let budget = self.budget;
        let (mut first, mut last) = (self.block(key), self.block(key));
        while first > 0 && self.blocks[first - 1].over(budget) > 0 {
            first -= 1;
        }
        while last + 1 < self.blocks.len() && self.blocks[last + 1].over(budget) > 0 {
            last += 1;
        }
        (self.firsts.get(first).copied().unwrap_or(0), self.blocks.get(last).and_then(|block| block.keys.last()).copied().unwrap_or(0))
    }

    /// The block where a key is or belongs.
    fn block(&self, key: Key) -> usize {
        self.begun(key).saturating_sub(1)
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
        self.over = None;
        if self.blocks.is_empty() {
            return self.insert_block(0, Block::new(vec![key], vec![bytes], 0));
        }
        let at = self.block(key);
        let block = &mut self.blocks[at];
        let index = block.keys.partition_point(|other| *other < key);
        let own = bytes - block.added;
        block.keys.insert(index, key);
        block.bytes.insert(index, own);
        block.most = block.most.map(|most| most.max(own));
        block.over = block.over.map(|over| over + (bytes - self.budget).max(0));
        let rest = (block.keys.len() > MOST).then(|| {
            let half = block.keys.len() / 2;
            (block.most, block.over) = (None, None);
            Block::new(block.keys.split_off(half), block.bytes.split_off(half), block.added)
        });
        if index == 0 {
            self.set_first(at, key);
        }
        if let Some(rest) = rest {
            self.insert_block(at + 1, rest);
        }
    }

    pub fn remove(&mut self, key: Key) {
        let at = self.block(key);
        let Some(block) = self.blocks.get_mut(at) else { return };
        let Ok(index) = block.keys.binary_search(&key) else { return };
        self.over = None;
        block.keys.remove(index);
        let own = block.bytes.remove(index);
        block.most = block.most.filter(|most| own < *most);
        block.over = block.over.map(|over| over - (own + block.added - self.budget).max(0));
        match block.keys.first().copied() {
            None => self.remove_block(at),
            Some(first) if index == 0 => self.set_first(at, first),
            Some(_) => {}
        }
    }

    /// Adds bytes to the positions from one key up to another, which is not one of them.
    pub fn add(&mut self, from: Key, to: Key, bytes: i64) {
        if from >= to || bytes == 0 {
            return;
        }
        self.over = None;
        let (budget, first) = (self.budget, self.block(from));
        let begun = self.begun(to);
        let behind = begun - usize::from(begun > 0 && self.firsts[begun - 1] == to);
        // All blocks between the first and the last are changed as a whole.
        let ends = [first, behind.saturating_sub(1)];
        for at in &ends[..usize::from(first < behind) + usize::from(first + 1 < behind)] {
            let range = self.part(*at, from, to);
            let block = &mut self.blocks[*at];
            match range {
                None => block.add_to_all(bytes, budget),
                Some(range) => block.add(range, bytes, budget),
            }
        }
        for block in self.blocks.get_mut(first + 1..behind.saturating_sub(1)).into_iter().flatten() {
            block.add_to_all(bytes, budget);
        }
    }

    /// The positions of a block from one key up to another: none for all.
    fn part(&self, at: usize, from: Key, to: Key) -> Option<Range<usize>> {
        let keys = &self.blocks[at].keys;
        let is_begun = self.firsts[at] < from;
        let is_ended = self.firsts.get(at + 1).is_none_or(|next| *next > to);
        let first = if is_begun { keys.partition_point(|key| *key < from) } else { 0 };
        let last = if is_ended { first + keys[first..].partition_point(|key| *key < to) } else { keys.len() };
        (is_begun || is_ended).then_some(first..last)
    }

    /// Whether a position from one key up to another, which is not one of them, has more than so many bytes.
    pub fn has_more(&mut self, from: Key, to: Key, bytes: i64) -> bool {
        for at in self.block(from)..self.blocks.len() {
            if self.firsts[at] >= to {
                break;
            }
            let range = self.part(at, from, to);
            let block = &mut self.blocks[at];
            let is_more = match range {
                None => block.most() > bytes,
                Some(range) => block.bytes[range].iter().any(|other| other + block.added > bytes),
            };
            if is_more {
                return true;
            }
        }
        false
    }

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
            // Some of a stage, and some stages without any.
            let key = |at: u64| crate::graph::key((at / 7) as usize, (at % 7) as u32);
            let mut map: BTreeMap<Key, i64> = (0..count).map(|at| (key(2 * at), (at % 7) as i64)).collect();
            let all: Vec<(Key, i64)> = map.iter().map(|(key, bytes)| (*key, *bytes)).collect();
            let mut profile = Profile::new(&all, budget);
            for (what, one, other, bytes) in changes {
                let (one, other) = (key(one), key(other));
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
                let (from, to) = (one.min(other), one.max(other));
                prop_assert_eq!(profile.has_more(from, to, bytes), map.range(from..to).any(|(_, at)| *at > bytes));
            }
            prop_assert_eq!(profile.positions().collect::<Vec<_>>(), map.into_iter().collect::<Vec<_>>());
        }
    }
}
