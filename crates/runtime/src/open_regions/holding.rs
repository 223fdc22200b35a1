//! The regions of an arena as they are: promised by the ledger first, then had from an address space.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::{Bytes, Error};
use plimsoll_memory::pages::{PageSet, total};
use plimsoll_memory::{Address, AddressSpace, Ledger, Refusal, Region, Reservation};

use super::policy::{Placed, Refused, Source};

/// The source of an arena's policy. A region's address is its number there.
#[derive(Debug)]
pub(super) struct Holding {
    ledger: Arc<Ledger>,
    holder: Arc<str>,
    space: Box<dyn AddressSpace>,
    regions: BTreeMap<u64, Held>,
    /// Why the last request for memory was refused.
    refused: Option<Error>,
    /// Whether it was the line that refused it.
    by_the_line: bool,
}

#[derive(Debug)]
struct Held {
    // In this order: the pages go before the promise ends.
    region: Box<dyn Region>,
    reservation: Reservation,
    /// Pages that were given back, from the start of the region.
    away: PageSet,
}

impl Holding {
    pub fn new(ledger: &Arc<Ledger>, holder: &Arc<str>, space: Box<dyn AddressSpace>) -> Holding {
        Holding { ledger: ledger.clone(), holder: holder.clone(), space, regions: BTreeMap::new(), refused: None, by_the_line: false }
    }

    /// Why the last request was refused, since this was asked last.
    pub fn take_refusal(&mut self) -> Option<Error> {
        self.by_the_line = false;
        self.refused.take()
    }

    /// Whether the line refused something since the refusal was taken last.
    pub fn by_the_line(&self) -> bool {
        self.by_the_line
    }

    /// Bytes that count against the line.
    pub fn reserved(&self) -> Bytes {
        self.regions.values().map(|held| held.reservation.bytes()).sum()
    }

    /// Where a chunk is.
    pub fn address(&self, placed: &Placed) -> Option<Address> {
        Some(self.regions.get(&placed.region)?.region.start().plus(placed.address - placed.region))
    }

    /// Gives back the whole pages inside of a free chunk, and says how many bytes that were. Pages that cannot be given back stay.
    pub fn decommit(&mut self, region: u64, chunk: Range<u64>) -> Bytes {
        let page = self.space.granularity();
        let Some(held) = self.regions.get_mut(&region) else { return Bytes::ZERO };
        let from = (chunk.start - region).next_multiple_of(page);
        let end = chunk.end - region;
        let pages = from..(end - end % page).max(from);
        let mut given = Bytes::ZERO;
        for gap in held.away.gaps(&pages) {
            let bytes = Bytes(gap.end - gap.start);
            let fewer = held.reservation.bytes() - bytes;
            // Less is always granted.
            if held.region.decommit(gap.clone()).is_ok() && held.reservation.resize(fewer).is_ok() {
                held.away.insert(gap);
                given += bytes;
            }
        }
        given
    }
}

impl Held {
    /// Makes pages usable again, of which some may be away. The inner result is a refusal of the line.
    fn commit(&mut self, pages: &Range<u64>) -> Result<Result<(), Refusal>, Error> {
        let missing = self.away.overlap(pages);
        let before = self.reservation.bytes();
        if let Err(refusal) = self.reservation.resize(before + Bytes(total(&missing))) {
            return Ok(Err(refusal));
        }
        for range in missing {
            if let Err(error) = self.region.commit(range.clone()) {
                // Bytes that were committed until here are promised and no longer away; the rest of the promise is taken back.
                let still = Bytes(total(&self.away.overlap(pages)));
                let _less_is_granted = self.reservation.resize(self.reservation.bytes() - still);
                return Err(error);
            }
            self.away.remove(&range);
        }
        Ok(Ok(()))
    }
}

impl Source for Holding {
    fn reserve(&mut self, bytes: u64, least: u64) -> Result<u64, Refused> {
        let reservation = self.ledger.reserve(Bytes(bytes), &self.holder).map_err(|refusal| {
            let left = refusal.limit - refusal.in_use;
            let asked = Bytes(least).round_up(self.space.granularity());
            self.refused = Some(Refusal { asked, ..refusal }.into());
            self.by_the_line = true;
            Refused { left: Some(left.0) }
        })?;
        let region = self.space.reserve(Bytes(bytes)).map_err(|error| {
            self.refused = Some(error);
            Refused::default()
        })?;
        let start = region.start().number();
        self.regions.insert(start, Held { region, reservation, away: PageSet::default() });
        Ok(start)
    }

    fn release(&mut self, start: u64) {
        self.regions.remove(&start);
    }

    fn claim(&mut self, address: u64, bytes: u64) -> bool {
        let page = self.space.granularity();
        let Some((&start, held)) = self.regions.range_mut(..=address).next_back() else { return false };
        let (from, end) = (address - start, address - start + bytes);
        let refused = match held.commit(&(from - from % page..end.next_multiple_of(page))) {
            Ok(Ok(())) => return true,
            Ok(Err(refusal)) => {
                self.by_the_line = true;
                refusal.into()
            }
            Err(error) => error,
        };
        self.refused = Some(refused);
        false
    }
}
