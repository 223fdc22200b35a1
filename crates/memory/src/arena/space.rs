//! Where an arena's memory comes from: a seam, so that the pages of a host and the virtual memory of a card look the same.

use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use plimsoll_base::{Bytes, Result};

use crate::{Backing, Ledger, page_size};

/// Memory from which regions can be had.
pub trait AddressSpace: fmt::Debug + Send + Sync {
    /// Sizes of regions and ranges of pages are multiples of this; a multiple of 256.
    fn granularity(&self) -> u64;

    /// A region of `bytes`, every page of it usable. It is asked for only after as many bytes were reserved in the ledger.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED where there is none of that size.
    fn reserve(&self, bytes: Bytes) -> Result<Box<dyn Region>>;
}

/// A range of addresses. Dropping it gives addresses and pages back, after work that still uses them is over.
pub trait Region: fmt::Debug + Send {
    /// The first byte, a multiple of the granularity.
    fn start(&self) -> NonNull<u8>;

    /// Gives the pages in `pages` (bytes from the start of the region) back to where they came from. Their content is lost, the
    /// addresses stay ours.
    ///
    /// # Errors
    /// INTERNAL where the range is not whole pages of the region; whatever the system says.
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
}

impl HostPages {
    /// Pages that `ledger` counts.
    pub fn new(ledger: &Arc<Ledger>) -> HostPages {
        HostPages { ledger: ledger.clone() }
    }
}

impl AddressSpace for HostPages {
    fn granularity(&self) -> u64 {
        page_size()
    }

    fn reserve(&self, bytes: Bytes) -> Result<Box<dyn Region>> {
        Ok(Box::new(Backing::new(&self.ledger, bytes)?))
    }
}

impl Region for Backing {
    fn start(&self) -> NonNull<u8> {
        Backing::start(self)
    }

    fn decommit(&mut self, pages: Range<u64>) -> Result<()> {
        Backing::decommit(self, pages)
    }

    fn commit(&mut self, pages: Range<u64>) -> Result<()> {
        Backing::commit(self, pages)
    }
}
