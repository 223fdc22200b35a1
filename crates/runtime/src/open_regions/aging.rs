//! Chunks that were given back while the device may still be using them.
//!
//! A device that runs behind the host counts its commands ([`TimingCounter`]). A chunk that is given back gets the next count as
//! its age. It is merged with nothing until the *safe frontier*, the last count known to be over, has passed it. A request with a
//! frontier of its own takes only chunks that are old enough. One without takes any, since its commands run after those that used
//! the chunk.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use super::chunks::Chunk;
use super::policy::Policy;

/// The counter that a device and its arena share: commands to the device and chunks given back get one order.
#[derive(Debug, Default)]
pub struct TimingCounter(AtomicU64);

impl TimingCounter {
    /// The next count: 1, 2, 3…
    pub fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// The last count that was given; 0 before the first.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

impl Policy {
    /// Everything before this count is over. The frontier only moves forward; the answer says whether it did.
    pub fn advance(&mut self, safe_frontier: u64) -> bool {
        let moved = safe_frontier > self.safe_frontier;
        self.safe_frontier = self.safe_frontier.max(safe_frontier);
        moved
    }

    /// Merges the chunks that became safe.
    pub(super) fn fold(&mut self) {
        if self.aging.is_empty() {
            return;
        }
        let mut safe = Vec::new();
        let (chunks, frontier) = (&mut self.chunks, self.safe_frontier);
        self.aging.retain(|&(address, freed_at)| {
            if chunks.at(address).and_then(Chunk::freed_at) != Some(freed_at) {
                return false;
            }
            if freed_at >= frontier {
                return true;
            }
            chunks.set_free(address, 0);
            safe.push(address);
            false
        });
        for address in safe {
            self.chunks.coalesce_all(address);
        }
    }

    /// Merges chunks that are not safe, in the order in which they were given back, until one has `needed` bytes; whether one
    /// has.
    pub(super) fn force(&mut self, needed: u64) -> bool {
        let mut satisfied = false;
        let mut queued = BTreeSet::new();
        for (address, freed_at) in std::mem::take(&mut self.aging) {
            // A chunk that was merged into another before its turn is in the queue under the other's address.
            if self.chunks.at(address).and_then(Chunk::freed_at) != Some(freed_at) {
                continue;
            }
            let merged = if satisfied { Some((address, freed_at)) } else { self.chunks.coalesce(address, true) };
            let Some((address, freed_at)) = merged else { continue };
            // Several may have been merged into one.
            if queued.insert((address, freed_at)) {
                self.aging.push_back((address, freed_at));
            }
            satisfied = satisfied || self.chunks.at(address).is_some_and(|chunk| chunk.bytes >= needed);
        }
        satisfied
    }
}
