//! An arena at one moment, to look at and to print.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use plimsoll_base::Bytes;
use plimsoll_memory::Holder;

use super::chunks::{BINS, Chunk, ROUNDING, State, bin};
use super::policy::Stats;

/// The width of the picture.
const WIDTH: usize = 100;

/// Everything that an arena knows about itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Dump {
    /// The arena.
    pub name: String,
    /// The request that failed, where one did.
    pub failed: Option<Failed>,
    /// The counts.
    pub stats: Stats,
    /// Bytes of regions that may still be asked for.
    pub available: Bytes,
    /// The size of the region that would be asked for next.
    pub next_region: Bytes,
    /// The regions, by address.
    pub regions: Vec<RegionDump>,
}

/// A request that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// Bytes asked for.
    pub bytes: Bytes,
    /// The same, rounded up.
    pub rounded: Bytes,
    /// The owner that asked for it.
    pub owner: Arc<str>,
}

/// A region and its chunks, by address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionDump {
    /// Its first byte.
    pub start: u64,
    /// Its size.
    pub bytes: u64,
    /// The chunks that tile it.
    pub chunks: Vec<Chunk>,
}

/// The chunks of one bin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BinSummary {
    /// The smallest size of the bin.
    pub from: Bytes,
    /// How many chunks it has.
    pub chunks: u64,
    /// How many of them are in use.
    pub chunks_in_use: u64,
    /// Bytes of its chunks.
    pub bytes: Bytes,
    /// Bytes of those in use.
    pub bytes_in_use: Bytes,
    /// Bytes that were asked for in those.
    pub requested: Bytes,
}

impl Dump {
    /// Every chunk, by address.
    pub fn chunks(&self) -> impl Iterator<Item = &Chunk> {
        self.regions.iter().flat_map(|region| &region.chunks)
    }

    /// The 21 bins.
    pub fn bins(&self) -> [BinSummary; BINS] {
        let mut bins = std::array::from_fn(|number| BinSummary { from: Bytes(ROUNDING << number), ..BinSummary::default() });
        for chunk in self.chunks() {
            let summary = &mut bins[bin(chunk.bytes)];
            summary.chunks += 1;
            summary.bytes += Bytes(chunk.bytes);
            if let State::Used { requested, .. } = chunk.state {
                summary.chunks_in_use += 1;
                summary.bytes_in_use += Bytes(chunk.bytes);
                summary.requested += Bytes(requested);
            }
        }
        bins
    }

    /// How many chunks of each size are in use, by size.
    pub fn histogram(&self) -> Vec<(Bytes, u64)> {
        let mut counts = BTreeMap::new();
        for chunk in self.chunks().filter(|chunk| chunk.in_use()) {
            *counts.entry(Bytes(chunk.bytes)).or_insert(0) += 1;
        }
        counts.into_iter().collect()
    }

    /// Each owner and its bytes of chunks, most first; equal amounts by name.
    pub fn holders(&self) -> Vec<Holder> {
        let mut holders: BTreeMap<Arc<str>, Bytes> = BTreeMap::new();
        for chunk in self.chunks() {
            if let State::Used { owner, .. } = &chunk.state {
                *holders.entry(owner.clone()).or_default() += Bytes(chunk.bytes);
            }
        }
        let mut holders: Vec<Holder> = holders.into_iter().map(|(name, bytes)| Holder { name, bytes }).collect();
        holders.sort_by_key(|holder| std::cmp::Reverse(holder.bytes));
        holders
    }

    /// Bytes of regions that are not in use.
    pub fn free(&self) -> Bytes {
        self.stats.pool_bytes - self.stats.bytes_in_use
    }

    /// The largest free chunk.
    pub fn largest_free(&self) -> Bytes {
        self.chunks().filter(|chunk| !chunk.in_use()).map(|chunk| Bytes(chunk.bytes)).max().unwrap_or_default()
    }

    /// The part of the free bytes that is outside of the largest free chunk, from 0 to 1. Where nothing is free it is 0.
    pub fn fragmentation(&self) -> f64 {
        match self.free().0 {
            0 => 0.0,
            free => (free - self.largest_free().0) as f64 / free as f64,
        }
    }

    /// All regions side by side in 100 characters: `*` asked for, `x` padding, `_` free. Empty where there are no regions.
    pub fn occupancy(&self) -> String {
        let all: u64 = self.regions.iter().map(|region| region.bytes).sum();
        if all == 0 {
            return String::new();
        }
        let column = |byte: u64| (u128::from(byte) * WIDTH as u128 / u128::from(all)) as usize;
        let mut picture = [b'_'; WIDTH];
        let mut before = 0;
        for region in &self.regions {
            for chunk in &region.chunks {
                let State::Used { requested, .. } = chunk.state else { continue };
                let start = before + (chunk.address - region.start);
                // Requested bytes are drawn over the padding where both fall into one character.
                for (from, end, mark) in [(start + requested, start + chunk.bytes, b'x'), (start, start + requested, b'*')] {
                    if from < end {
                        picture[column(from)..=column(end - 1)].fill(mark);
                    }
                }
            }
            before += region.bytes;
        }
        picture.iter().map(|&mark| char::from(mark)).collect()
    }
}

impl fmt::Display for Dump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stats { num_allocs, bytes_in_use, peak_bytes_in_use, largest_alloc_size, bytes_limit, pool_bytes, peak_pool_bytes } =
            self.stats;
        writeln!(f, "arena {}", self.name)?;
        if let Some(Failed { bytes, rounded, owner }) = &self.failed {
            writeln!(f, "  no room for {} bytes ({rounded} rounded) for {owner}", bytes.0)?;
        }
        for (number, summary) in self.bins().iter().enumerate().filter(|(_, summary)| summary.chunks > 0) {
            let BinSummary { from, chunks, chunks_in_use, bytes, bytes_in_use, requested } = summary;
            write!(f, "  bin {number} (from {from}): {chunks} chunks, {chunks_in_use} in use; {bytes}, {bytes_in_use} in use, ")?;
            writeln!(f, "{requested} asked for")?;
        }
        if let Some(failed) = &self.failed {
            let wanted = bin(failed.rounded.0);
            for chunk in self.chunks().filter(|chunk| !chunk.in_use() && bin(chunk.bytes) == wanted) {
                writeln!(f, "  free in bin {wanted}, which is wanted: {} bytes at {:#x}", chunk.bytes, chunk.address)?;
            }
        }
        for region in &self.regions {
            writeln!(f, "  region of {} at {:#x}", Bytes(region.bytes), region.start)?;
            for chunk in &region.chunks {
                write!(f, "    {:#x} {} bytes ", chunk.address, chunk.bytes)?;
                match &chunk.state {
                    State::Used { id, requested, owner } => writeln!(f, "in use: {requested} asked for by {owner}, number {id}")?,
                    State::Free { freed_at: 0 } => writeln!(f, "free")?,
                    State::Free { freed_at } => writeln!(f, "free from count {freed_at} on")?,
                }
            }
        }
        for (bytes, count) in self.histogram() {
            writeln!(f, "  in use: {count} of {} bytes, together {}", bytes.0, Bytes(bytes.0.saturating_mul(count)))?;
        }
        for Holder { name, bytes } in self.holders() {
            writeln!(f, "  {name} has {bytes}")?;
        }
        write!(
            f,
            "  in use {bytes_in_use} of {pool_bytes} in regions; the limit is {} bytes, {} may still be asked ",
            bytes_limit.0, self.available
        )?;
        writeln!(f, "for, the next region would have {}", self.next_region)?;
        write!(f, "  since the counts were cleared: {num_allocs} allocations, the largest {largest_alloc_size}, at most ")?;
        writeln!(f, "{peak_bytes_in_use} in use; at most {peak_pool_bytes} in regions")?;
        writeln!(f, "  {} free in regions, {} at a time, fragmentation {:.3}", self.free(), self.largest_free(), self.fragmentation())?;
        match self.occupancy() {
            picture if picture.is_empty() => writeln!(f, "  no regions"),
            picture => writeln!(f, "  {picture}"),
        }
    }
}
