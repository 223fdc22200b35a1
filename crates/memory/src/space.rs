//! The seam behind which memory is had and given back: pages of a host and virtual memory of a card look the same.
//!
//! Blocks and arenas stand on an [`AddressSpace`]. An [`Address`] is a number that only the device's own crate can follow. The host
//! reads and writes a block through `Block::read` and `Block::write` (variables, constants); fed and fetched tensors go by copies
//! in the device's queue. Addresses of simulated cards cannot be followed by a processor, and a kernel with any other address is
//! refused there.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::{Bytes, Result};

use crate::{Address, Backing, Ledger, page_size};

/// Memory from which regions can be had.
pub trait AddressSpace: fmt::Debug + Send + Sync {
    /// Sizes of regions and ranges of pages are multiples of this; a multiple of 256.
    fn granularity(&self) -> u64;

    /// A region of `bytes`, rounded up to the granularity: every page of it usable, every byte 0. It is asked for only after as
    /// many bytes were reserved in the ledger, and counts as mapped there while it lives.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED where there is none of that size.
    fn reserve(&self, bytes: Bytes) -> Result<Box<dyn Region>>;
}

/// A range of addresses with memory behind it. Dropping it gives both back, after work that still uses them is over.
///
/// The host reaches the bytes through [`Region::write`] and [`Region::read`] alone; kernels reach them by their addresses. Ranges
/// are inside the region.
pub trait Region: fmt::Debug + Send + Sync {
    /// The first byte, a multiple of the granularity.
    fn start(&self) -> Address;

    /// Writes bytes, beginning at `offset`. When it returns, `bytes` may be changed, and later reads and commands see the written
    /// bytes. The write itself may still be on its way. The caller sees to it that nothing that was submitted before uses the
    /// range.
    ///
    /// # Errors
    /// UNAVAILABLE where the device is lost.
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Reads bytes, beginning at `offset`, after every write and run that came before. The caller sees to it that nothing that was
    /// submitted writes the range.
    ///
    /// # Errors
    /// As [`Region::write`].
    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()>;

    /// Gives the pages in `pages` (bytes from the start of the region) back to where they came from. Their content is lost, the
    /// addresses stay ours.
    ///
    /// # Errors
    /// INTERNAL where the range is not whole pages of the region; the system's error.
    fn decommit(&mut self, pages: Range<u64>) -> Result<()>;

    /// Makes the pages in `pages` usable again.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED where there are none; INTERNAL where the range is not whole pages of the region.
    fn commit(&mut self, pages: Range<u64>) -> Result<()>;
}

/// Pages of this machine, counted as mapped in a ledger.
#[derive(Debug)]
pub struct HostPages {
    ledger: Arc<Ledger>,
    guarded: bool,
}

impl HostPages {
    /// Pages that `ledger` counts.
    pub fn new(ledger: &Arc<Ledger>) -> HostPages {
        HostPages { ledger: ledger.clone(), guarded: false }
    }

    /// As [`HostPages::new`], every region between two pages that fault when they are touched: for tests.
    pub fn guarded(ledger: &Arc<Ledger>) -> HostPages {
        HostPages { ledger: ledger.clone(), guarded: true }
    }
}

impl AddressSpace for HostPages {
    fn granularity(&self) -> u64 {
        page_size()
    }

    fn reserve(&self, bytes: Bytes) -> Result<Box<dyn Region>> {
        let backing = if self.guarded { Backing::guarded(&self.ledger, bytes)? } else { Backing::new(&self.ledger, bytes)? };
        Ok(Box::new(backing))
    }
}

impl Region for Backing {
    fn start(&self) -> Address {
        Address::new(self.as_ptr())
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        Backing::write(self, offset, bytes)
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        Backing::read(self, offset, bytes)
    }

    fn decommit(&mut self, pages: Range<u64>) -> Result<()> {
        Backing::decommit(self, pages)
    }

    fn commit(&mut self, pages: Range<u64>) -> Result<()> {
        Backing::commit(self, pages)
    }
}
