//! Addresses of cards, and the host's memory that stands for theirs.
//!
//! An address of a card has a bit set that none of a process has: a processor that follows one faults. Reserved addresses without
//! accessible memory fault in kernels, too. New memory is full of [`POISON`].

use std::collections::BTreeMap;
use std::ops::Range;

use crate::state::{BLOCK, INVALID_VALUE};

/// Set in the addresses of cards.
pub const ON_A_CARD: u64 = 1 << 52;

/// The bytes of new memory.
const POISON: u8 = 0xA7;

/// Reserved addresses, and the ranges of them that can be used.
#[derive(Default)]
pub struct Space {
    reserved: BTreeMap<u64, u64>,
    open: BTreeMap<u64, u64>,
}

/// What a processor calls an address of a card.
pub fn host(address: u64) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut((address & !ON_A_CARD) as usize)
}

impl Space {
    /// Reserves addresses.
    pub fn reserve(&mut self, bytes: u64) -> Option<u64> {
        let room = bytes.checked_add(BLOCK)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let map = unsafe { libc::mmap(std::ptr::null_mut(), usize::try_from(room).ok()?, libc::PROT_NONE, flags, -1, 0) };
        if map == libc::MAP_FAILED {
            return None;
        }
        // What lies before and behind stays reserved, too: it costs nothing.
        let start = (map.expose_provenance() as u64).next_multiple_of(BLOCK) | ON_A_CARD;
        self.reserved.insert(start, bytes);
        Some(start)
    }

    /// Frees addresses, all that were reserved at once.
    ///
    /// # Errors
    /// INVALID_VALUE where they were not.
    pub fn free(&mut self, start: u64, bytes: u64) -> Result<(), i32> {
        match self.reserved.get(&start) {
            Some(reserved) if *reserved == bytes && self.open.range(start..start + bytes).next().is_none() => {
                self.reserved.remove(&start);
                // SAFETY: the mapping of `reserve`, whose addresses nobody has any more.
                unsafe { libc::munmap(host(start).cast(), bytes as usize) };
                Ok(())
            }
            _ => Err(INVALID_VALUE),
        }
    }

    /// Whether all of a range was reserved.
    pub fn has(&self, range: &Range<u64>) -> bool {
        self.reserved.range(..=range.start).next_back().is_some_and(|(start, bytes)| range.end <= start + bytes)
    }

    /// Makes memory of a range, where it was not.
    pub fn open(&mut self, range: Range<u64>) {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let at = host(range.start);
        let bytes = (range.end - range.start) as usize;
        // SAFETY: a range of the mapping of `reserve`, which is memory from here on.
        unsafe {
            libc::mprotect(at.cast(), bytes, protection);
            at.write_bytes(POISON, bytes);
        }
        self.open.insert(range.start, range.end);
    }

    /// Takes the memory of a range away, where it has some.
    pub fn close(&mut self, range: &Range<u64>) {
        if self.open.remove(&range.start).is_some() {
            // SAFETY: a range of the mapping of `reserve`; whoever uses it from here on faults.
            unsafe {
                let (at, bytes) = (host(range.start).cast(), (range.end - range.start) as usize);
                libc::madvise(at, bytes, libc::MADV_DONTNEED);
                libc::mprotect(at, bytes, libc::PROT_NONE);
            }
        }
    }

    /// Whether all bytes of a range can be used.
    pub fn is_open(&self, range: &Range<u64>) -> bool {
        let mut at = range.start;
        while at < range.end {
            match self.open.range(..=at).next_back() {
                Some((_, end)) if *end > at => at = *end,
                _ => return false,
            }
        }
        true
    }
}
