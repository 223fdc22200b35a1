//! Which bytes of which region a request gets: TensorFlow's best fit with coalescing, as a calculation.
//!
//! No pointers, no clock, no lock: addresses are numbers, and regions come from a [`Source`]. The same calls give the same
//! answers.

use std::collections::VecDeque;
use std::sync::Arc;

use plimsoll_base::Bytes;

use super::chunks::{Chunk, Chunks, ROUNDING, State, rounded};
use super::dump::{Dump, RegionDump};

/// With growth the first region has this size.
const FIRST_REGION: u64 = 2 << 20;

/// The padding that is too much where no fraction says it.
const MOST_PADDING: u64 = 128 << 20;

/// How an arena behaves. The names are those of TensorFlow's options.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The most bytes that all regions may have together.
    pub limit: Bytes,
    /// Whether regions are taken as they are needed, 2 MiB first and then twice as much each time; else all at once.
    pub growth: bool,
    /// A chunk that is this fraction of the limit larger than needed is split. 0 means 128 MiB instead of a fraction.
    pub fragmentation_fraction: f64,
    /// Whether regions without a chunk in use are given back before a request fails.
    pub garbage_collection: bool,
}

impl Options {
    /// TensorFlow's defaults: everything at once, collection on.
    pub fn new(limit: Bytes) -> Options {
        Options { limit, growth: false, fragmentation_fraction: 0.0, garbage_collection: true }
    }
}

/// Where regions come from.
pub trait Source {
    /// A region of `bytes` that overlaps no other: its first address, a multiple of the policy's granularity. `least` is how
    /// much of it is needed now, for the text of an error.
    ///
    /// # Errors
    /// A refusal; then less may be asked for.
    fn reserve(&mut self, bytes: u64, least: u64) -> Result<u64, Refused>;

    /// Takes back the region that begins at `start`.
    fn release(&mut self, start: u64);

    /// Makes free bytes of a region usable, where they were given back meanwhile. If it answers no, another chunk is tried.
    fn claim(&mut self, _address: u64, _bytes: u64) -> bool {
        true
    }
}

/// A region that was not granted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// How much would be granted, where that is known.
    pub left: Option<u64>,
}

/// A request.
#[derive(Clone, Debug)]
pub struct Ask {
    /// How much. No bytes get no chunk.
    pub bytes: u64,
    /// 0, or the highest age that the chunk may have: it was given back at this count or earlier.
    pub frontier: u64,
    /// The owner that asks.
    pub owner: Arc<str>,
}

/// A chunk that was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Its first byte.
    pub address: u64,
    /// The first byte of its region.
    pub region: u64,
    /// Its size: at least the requested one.
    pub bytes: u64,
    /// Which allocation it is: 1, 2, 3…
    pub id: u64,
}

/// Counts. The fields are TensorFlow's `AllocatorStats`; those that its best-fit allocator leaves at 0 are not here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Allocations since the beginning, or since the counts were cleared.
    pub num_allocs: u64,
    /// Bytes of the chunks handed out, with their padding.
    pub bytes_in_use: Bytes,
    /// The most that `bytes_in_use` has been.
    pub peak_bytes_in_use: Bytes,
    /// The largest chunk handed out.
    pub largest_alloc_size: Bytes,
    /// The limit, as it was given.
    pub bytes_limit: Bytes,
    /// Bytes of all regions.
    pub pool_bytes: Bytes,
    /// The most that `pool_bytes` has been.
    pub peak_pool_bytes: Bytes,
}

/// The state of an arena.
#[derive(Clone, Debug)]
pub struct Policy {
    options: Options,
    granularity: u64,
    /// The size of the region that is asked for next.
    next_region: u64,
    last_id: u64,
    pub(super) chunks: Chunks,
    /// Address and age of free chunks that may not be merged yet, in the order in which they were given back. An entry whose
    /// chunk is gone, in use, or of another age means nothing.
    pub(super) aging: VecDeque<(u64, u64)>,
    pub(super) safe_frontier: u64,
    stats: Stats,
}

impl Policy {
    /// An arena without regions. Sizes of regions are multiples of `granularity`, itself a multiple of [`ROUNDING`], which is
    /// TensorFlow's.
    pub fn new(options: Options, granularity: u64) -> Policy {
        let mut policy = Policy {
            granularity: granularity.max(ROUNDING),
            next_region: 0,
            last_id: 0,
            chunks: Chunks::default(),
            aging: VecDeque::new(),
            safe_frontier: 0,
            stats: Stats { bytes_limit: options.limit, ..Stats::default() },
            options,
        };
        policy.next_region = policy.first_region();
        policy
    }

    fn first_region(&self) -> u64 {
        let limit = self.options.limit.0;
        let bytes = if self.options.growth { limit.min(FIRST_REGION) } else { limit };
        Bytes(bytes).round_up(ROUNDING).0
    }

    /// A chunk for `ask`; `None` where there is none, or no bytes are asked for.
    ///
    /// In this order: a free chunk; a new region; chunks merged although the device may still use them, unless the request
    /// forbids it; a new region after unused ones were given back.
    pub fn allocate(&mut self, ask: &Ask, source: &mut dyn Source) -> Option<Placed> {
        let needed = rounded(ask.bytes).filter(|&needed| needed > 0)?;
        self.fold();
        if let Some(placed) = self.place(ask, needed, source) {
            return Some(placed);
        }
        if self.extend(needed, source)
            && let Some(placed) = self.place(ask, needed, source)
        {
            return Some(placed);
        }
        if ask.frontier == 0
            && self.force(needed)
            && let Some(placed) = self.place(ask, needed, source)
        {
            return Some(placed);
        }
        if self.collect(needed, source) && self.extend(needed, source) {
            return self.place(ask, needed, source);
        }
        None
    }

    /// Takes back the chunk at `address`, and says its size. With an age (a count from 1 on) it is not merged before
    /// [`Policy::advance`] has passed that count. `None`, and nothing happens, where no such chunk is in use.
    pub fn free(&mut self, address: u64, freed_at: u64) -> Option<Bytes> {
        let bytes = self.chunks.at(address).filter(|chunk| chunk.in_use())?.bytes;
        self.stats.bytes_in_use = self.stats.bytes_in_use - Bytes(bytes);
        self.chunks.set_free(address, freed_at);
        if freed_at == 0 {
            self.chunks.coalesce(address, false);
        } else {
            self.aging.push_back((address, freed_at));
        }
        Some(Bytes(bytes))
    }

    /// Gives back every region without a chunk in use, and says how many bytes they had. When none is left, growth begins anew.
    pub fn release_unused(&mut self, source: &mut dyn Source) -> Bytes {
        self.fold();
        let released = self.release(self.chunks.unused_regions(), source);
        if released > Bytes::ZERO && self.stats.pool_bytes == Bytes::ZERO {
            self.next_region = self.first_region();
        }
        released
    }

    /// The counts.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Begins to count anew: no allocations, the peak is the present use, no largest.
    pub fn clear_stats(&mut self) {
        self.stats.num_allocs = 0;
        self.stats.peak_bytes_in_use = self.stats.bytes_in_use;
        self.stats.largest_alloc_size = Bytes::ZERO;
    }

    /// The largest free chunk.
    pub fn largest_free(&self) -> Bytes {
        Bytes(self.chunks.free().next_back().map_or(0, |(bytes, _)| bytes))
    }

    /// Bytes of regions that could still be asked for under the limit.
    pub fn available(&self) -> Bytes {
        let left = self.options.limit - self.stats.pool_bytes;
        Bytes(left.0 - left.0 % self.granularity)
    }

    /// Whether a request of this size could ever be granted, were everything else given back.
    pub fn possible(&self, bytes: u64) -> bool {
        let limit = self.options.limit.0;
        rounded(bytes).is_some_and(|needed| needed <= limit - limit % self.granularity)
    }

    /// Free chunks with which the device is done, by address.
    pub fn idle(&self) -> impl Iterator<Item = &Chunk> {
        self.chunks.all().filter(|chunk| chunk.freed_at() == Some(0))
    }

    /// Everything there is to know, under a name.
    pub fn dump(&self, name: &str) -> Dump {
        let region = |(start, bytes)| RegionDump { start, bytes, chunks: self.chunks.of_region(start).cloned().collect() };
        Dump {
            name: name.to_string(),
            failed: None,
            stats: self.stats,
            available: self.available(),
            next_region: Bytes(self.next_region),
            regions: self.chunks.regions().map(region).collect(),
        }
    }

    /// A flaw of the state, which never has one. For tests: it looks at everything.
    pub fn defect(&self) -> Option<String> {
        if let Some(defect) = self.chunks.defect() {
            return Some(defect);
        }
        let sum = |used: bool| self.chunks.all().filter(|chunk| chunk.in_use() == used).map(|chunk| chunk.bytes).sum::<u64>();
        let Stats { bytes_in_use, peak_bytes_in_use, largest_alloc_size, bytes_limit, pool_bytes, peak_pool_bytes, .. } = self.stats;
        if (bytes_in_use.0, pool_bytes.0) != (sum(true), sum(true) + sum(false)) {
            return Some(format!("{:?} do not add up to {} in use and {} free", self.stats, sum(true), sum(false)));
        }
        if bytes_in_use > peak_bytes_in_use || pool_bytes > peak_pool_bytes || pool_bytes > bytes_limit || largest_alloc_size > bytes_limit
        {
            return Some(format!("{:?} contradict each other", self.stats));
        }
        let padded = self.chunks.all().find(|chunk| match chunk.state {
            State::Used { requested, .. } => {
                let needed = rounded(requested).unwrap_or(u64::MAX);
                requested == 0 || needed > chunk.bytes || (needed < chunk.bytes && self.kept(chunk.bytes, needed) == needed)
            }
            State::Free { freed_at } => freed_at > 0 && !self.aging.contains(&(chunk.address, freed_at)),
        });
        padded.map(|chunk| format!("{chunk:?} should have been split, or waits for nothing"))
    }

    /// How much of a free chunk a request gets that needs `needed`: all of it, unless that wastes as much again or too much.
    fn kept(&self, bytes: u64, needed: u64) -> u64 {
        let fraction = self.options.fragmentation_fraction;
        let most = if fraction > 0.0 { (fraction * self.options.limit.0 as f64) as u64 } else { MOST_PADDING };
        if bytes / 2 >= needed || bytes - needed >= most { needed } else { bytes }
    }

    /// The smallest free chunk that is large enough and old enough; of equal ones that with the lowest address.
    fn place(&mut self, ask: &Ask, needed: u64, source: &mut dyn Source) -> Option<Placed> {
        let old_enough = |chunk: &&Chunk| ask.frontier == 0 || chunk.freed_at().is_some_and(|freed_at| freed_at <= ask.frontier);
        let (address, region, bytes) = {
            let old_enough = self.chunks.free_from(needed).filter(old_enough);
            let mut parts = old_enough.map(|chunk| (chunk.address, chunk.region, self.kept(chunk.bytes, needed)));
            parts.find(|&(address, _, bytes)| source.claim(address, bytes))?
        };
        self.last_id += 1;
        let id = self.last_id;
        let rest = self.chunks.take(address, bytes, State::Used { id, requested: ask.bytes, owner: ask.owner.clone() });
        if let Some(rest) = rest
            && let Some(freed_at) = rest.freed_at().filter(|&freed_at| freed_at > 0)
        {
            self.aging.push_back((rest.address, freed_at));
        }
        let stats = &mut self.stats;
        stats.num_allocs += 1;
        stats.bytes_in_use += Bytes(bytes);
        stats.peak_bytes_in_use = stats.peak_bytes_in_use.max(stats.bytes_in_use);
        stats.largest_alloc_size = stats.largest_alloc_size.max(Bytes(bytes));
        Some(Placed { address, region, bytes, id })
    }

    /// A new region with room for `needed`. A size that is refused is tried 10 % smaller, or as large as the refusal says,
    /// and always by at least the granularity.
    fn extend(&mut self, needed: u64, source: &mut dyn Source) -> bool {
        let available = self.available().0;
        if needed > available {
            return false;
        }
        let mut increased = false;
        while needed > self.next_region {
            // A size of 0 belongs to a limit of 0, under which nothing is available.
            self.next_region = self.next_region.saturating_mul(2);
            increased = true;
        }
        let mut bytes = Bytes(self.next_region).round_up(self.granularity).0.min(available);
        let start = loop {
            match source.reserve(bytes, needed) {
                Ok(start) => break start,
                Err(Refused { left }) => {
                    let tenth = bytes.div_ceil(10);
                    let smaller = left.map_or(Bytes(bytes - tenth).round_up(self.granularity).0, |left| left - left % self.granularity);
                    bytes = smaller.min(bytes - self.granularity);
                    if bytes < needed {
                        return false;
                    }
                }
            }
        };
        if !increased {
            self.next_region = self.next_region.saturating_mul(2);
        }
        self.chunks.add_region(start, bytes);
        self.stats.pool_bytes += Bytes(bytes);
        self.stats.peak_pool_bytes = self.stats.peak_pool_bytes.max(self.stats.pool_bytes);
        true
    }

    /// Gives back every region without a chunk in use, if that could make room for `needed`.
    fn collect(&mut self, needed: u64, source: &mut dyn Source) -> bool {
        if !self.options.garbage_collection {
            return false;
        }
        let regions = self.chunks.unused_regions();
        let bytes: Bytes = regions.iter().map(|&(_, bytes)| Bytes(bytes)).sum();
        let possible = bytes > Bytes::ZERO && needed <= ((self.options.limit - self.stats.pool_bytes) + bytes).0;
        possible && self.release(regions, source) > Bytes::ZERO
    }

    fn release(&mut self, regions: Vec<(u64, u64)>, source: &mut dyn Source) -> Bytes {
        let before = self.stats.pool_bytes;
        for (start, bytes) in regions {
            self.chunks.remove_region(start);
            source.release(start);
            self.stats.pool_bytes = self.stats.pool_bytes - Bytes(bytes);
        }
        let chunks = &self.chunks;
        self.aging.retain(|&(address, freed_at)| chunks.at(address).and_then(Chunk::freed_at) == Some(freed_at));
        before - self.stats.pool_bytes
    }
}
