//! Regions and the chunks that tile them, as numbers.
//!
//! TensorFlow keeps free chunks in 21 bins by size and orders each by (size, address). One set ordered by (size, address)
//! visits the same chunks in the same order, so a bin is only a way to count ([`bin`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Sizes of chunks are multiples of this many bytes, and so are their distances from the start of their region.
pub const ROUNDING: u64 = 256;

/// How many bins there are.
pub const BINS: usize = 21;

/// The bin of a chunk: bin `b` has sizes from 256·2^b up to twice that, the last one everything from 256 MiB on.
pub fn bin(bytes: u64) -> usize {
    ((bytes / ROUNDING).max(1).ilog2() as usize).min(BINS - 1)
}

/// `bytes` rounded up to [`ROUNDING`]; `None` where that is more than an address space.
pub fn rounded(bytes: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(ROUNDING)
}

/// A piece of a region: handed out, or free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Its first byte.
    pub address: u64,
    /// The first byte of its region.
    pub region: u64,
    /// Its size, a multiple of [`ROUNDING`].
    pub bytes: u64,
    /// Its state.
    pub state: State,
}

/// Whether a chunk is handed out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Free.
    Free {
        /// The count at which it was given back, while the device may still be using it; 0 where that is over.
        freed_at: u64,
    },
    /// In use.
    Used {
        /// Which allocation it is: 1, 2, 3…
        id: u64,
        /// Bytes asked for.
        requested: u64,
        /// The owner that asked for it.
        owner: Arc<str>,
    },
}

impl Chunk {
    /// Whether it is handed out.
    pub fn in_use(&self) -> bool {
        matches!(self.state, State::Used { .. })
    }

    /// The count at which it was given back; `None` while it is handed out.
    pub fn freed_at(&self) -> Option<u64> {
        match self.state {
            State::Free { freed_at } => Some(freed_at),
            State::Used { .. } => None,
        }
    }

    /// The first byte after it.
    pub fn end(&self) -> u64 {
        self.address + self.bytes
    }
}

/// All regions and chunks of an arena. Chunks tile their regions; chunks of two regions are never merged, even if they touch.
#[derive(Clone, Debug, Default)]
pub(super) struct Chunks {
    regions: BTreeMap<u64, u64>,
    chunks: BTreeMap<u64, Chunk>,
    /// (size, address) of every free chunk.
    free: BTreeSet<(u64, u64)>,
}

impl Chunks {
    /// Start and size of every region, by address.
    pub fn regions(&self) -> impl Iterator<Item = (u64, u64)> {
        self.regions.iter().map(|(&start, &bytes)| (start, bytes))
    }

    /// The chunks of a region, by address.
    pub fn of_region(&self, region: u64) -> impl Iterator<Item = &Chunk> {
        let bytes = self.regions.get(&region).copied().unwrap_or(0);
        self.chunks.range(region..region.saturating_add(bytes)).map(|(_, chunk)| chunk)
    }

    /// Every chunk, by address.
    pub fn all(&self) -> impl Iterator<Item = &Chunk> {
        self.chunks.values()
    }

    /// The chunk that begins at `address`.
    pub fn at(&self, address: u64) -> Option<&Chunk> {
        self.chunks.get(&address)
    }

    /// Free chunks of at least `bytes`, by (size, address).
    pub fn free_from(&self, bytes: u64) -> impl Iterator<Item = &Chunk> {
        self.free.range((bytes, 0)..).filter_map(|(_, address)| self.chunks.get(address))
    }

    /// Size and address of every free chunk, in this order.
    pub fn free(&self) -> impl DoubleEndedIterator<Item = (u64, u64)> {
        self.free.iter().copied()
    }

    /// A new region: one free chunk.
    pub fn add_region(&mut self, start: u64, bytes: u64) {
        self.regions.insert(start, bytes);
        self.insert(Chunk { address: start, region: start, bytes, state: State::Free { freed_at: 0 } });
    }

    /// Regions without a chunk in use, with their sizes, by address.
    pub fn unused_regions(&self) -> Vec<(u64, u64)> {
        self.regions().filter(|&(start, _)| !self.of_region(start).any(Chunk::in_use)).collect()
    }

    /// Forgets a region and its chunks.
    pub fn remove_region(&mut self, start: u64) {
        let addresses: Vec<u64> = self.of_region(start).map(|chunk| chunk.address).collect();
        for address in addresses {
            self.remove(address);
        }
        self.regions.remove(&start);
    }

    /// Hands out the first `bytes` of the free chunk at `address`. The rest becomes a free chunk of the same age, which is
    /// returned.
    pub fn take(&mut self, address: u64, bytes: u64, state: State) -> Option<Chunk> {
        let whole = self.remove(address)?;
        let rest = (bytes < whole.bytes).then(|| Chunk { address: address + bytes, bytes: whole.bytes - bytes, ..whole.clone() });
        if let Some(rest) = &rest {
            self.insert(rest.clone());
        }
        self.insert(Chunk { bytes: bytes.min(whole.bytes), state, ..whole });
        rest
    }

    /// Makes a chunk free, or gives a free chunk another age. Merges nothing.
    pub fn set_free(&mut self, address: u64, freed_at: u64) {
        if let Some(chunk) = self.remove(address) {
            self.insert(Chunk { state: State::Free { freed_at }, ..chunk });
        }
    }

    /// Merges the free chunk at `address` with its next neighbour, then with the one before, where they are free. Unless `any_age`,
    /// the device has to be done with all of them. The larger age stays. Where the result begins, and its age.
    pub fn coalesce(&mut self, address: u64, any_age: bool) -> Option<(u64, u64)> {
        let ready = |chunk: &Chunk| chunk.freed_at().is_some_and(|freed_at| any_age || freed_at == 0);
        let chunk = self.chunks.get(&address)?;
        let age = chunk.freed_at()?;
        if !ready(chunk) {
            return Some((address, age));
        }
        let next = self.chunks.get(&chunk.end()).filter(|next| next.region == chunk.region && ready(next)).map(|next| next.address);
        let before = self.chunks.range(..address).next_back().map(|(_, before)| before);
        let before = before.filter(|before| before.region == chunk.region && ready(before)).map(|before| before.address);
        let merged = next.map_or((address, age), |next| self.merge(address, next));
        Some(before.map_or(merged, |before| self.merge(before, address)))
    }

    /// As [`Chunks::coalesce`] of chunks that the device is done with, until no neighbour is left to merge with. It makes a
    /// difference where several neighbours became ready at once.
    pub fn coalesce_all(&mut self, mut address: u64) {
        while let Some(before) = self.chunks.get(&address).map(|chunk| chunk.bytes) {
            address = self.coalesce(address, false).map_or(address, |(address, _)| address);
            if self.chunks.get(&address).is_none_or(|chunk| chunk.bytes == before) {
                break;
            }
        }
    }

    /// Makes one free chunk of two that touch.
    fn merge(&mut self, first: u64, second: u64) -> (u64, u64) {
        let (Some(first), Some(second)) = (self.remove(first), self.remove(second)) else { return (first, 0) };
        let freed_at = first.freed_at().max(second.freed_at()).unwrap_or(0);
        let address = first.address;
        self.insert(Chunk { bytes: first.bytes + second.bytes, state: State::Free { freed_at }, ..first });
        (address, freed_at)
    }

    fn insert(&mut self, chunk: Chunk) {
        if !chunk.in_use() {
            self.free.insert((chunk.bytes, chunk.address));
        }
        self.chunks.insert(chunk.address, chunk);
    }

    fn remove(&mut self, address: u64) -> Option<Chunk> {
        let chunk = self.chunks.remove(&address)?;
        self.free.remove(&(chunk.bytes, address));
        Some(chunk)
    }

    /// A flaw of the structure, which never has one.
    pub fn defect(&self) -> Option<String> {
        let mut tiled = 0;
        for (start, bytes) in self.regions() {
            let mut at = start;
            let mut mergeable = false;
            for chunk in self.of_region(start) {
                if (chunk.address, chunk.region) != (at, start) || chunk.bytes == 0 || !chunk.bytes.is_multiple_of(ROUNDING) {
                    return Some(format!("{chunk:?} does not tile its region: {at} was expected"));
                }
                let free = chunk.freed_at() == Some(0);
                if free && mergeable {
                    return Some(format!("{chunk:?} was not merged with the one before"));
                }
                (at, mergeable, tiled) = (chunk.end(), free, tiled + 1);
            }
            if at != start + bytes {
                return Some(format!("the region at {start} ends at {}, its chunks at {at}", start + bytes));
            }
        }
        if tiled != self.chunks.len() {
            return Some(format!("{} chunks are outside of regions", self.chunks.len() - tiled));
        }
        let free: BTreeSet<(u64, u64)> = self.all().filter(|chunk| !chunk.in_use()).map(|chunk| (chunk.bytes, chunk.address)).collect();
        (free != self.free).then(|| "the set of free chunks is another than the free chunks".to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_double() {
        let mib = 1 << 20;
        for (bytes, number) in
            [(0, 0), (256, 0), (511, 0), (512, 1), (1024, 2), (mib, 12), (256 * mib - 1, 19), (256 * mib, 20), (u64::MAX, 20)]
        {
            assert_eq!(bin(bytes), number, "{bytes}");
        }
        assert_eq!((rounded(0), rounded(1), rounded(256), rounded(257)), (Some(0), Some(256), Some(256), Some(512)));
        assert_eq!(rounded(u64::MAX), None);
    }

    #[test]
    fn touching_regions_stay_apart() {
        let mut chunks = Chunks::default();
        chunks.add_region(1024, 1024);
        chunks.add_region(2048, 512);
        let used = || State::Used { id: 1, requested: 1, owner: "a".into() };
        assert_eq!(chunks.take(2048, 256, used()).map(|rest| (rest.address, rest.bytes)), Some((2304, 256)));
        chunks.set_free(2048, 0);
        assert_eq!(chunks.coalesce(2048, true), Some((2048, 0)));
        assert_eq!(chunks.free().collect::<Vec<_>>(), [(512, 2048), (1024, 1024)]);
        assert_eq!((chunks.defect(), chunks.unused_regions()), (None, vec![(1024, 1024), (2048, 512)]));
        chunks.remove_region(1024);
        assert_eq!((chunks.defect(), chunks.all().count()), (None, 1));
    }
}
