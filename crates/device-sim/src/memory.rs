//! The memory of simulated cards: pages of this process under addresses that a processor cannot follow. Only this crate knows what
//! they stand for. An access to a card's bytes by another way than its seams faults, as it would on a real card.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_base::{Bytes, Code, Result};
use plimsoll_device::Fault;
use plimsoll_memory::{Address, AddressSpace, Backing, Ledger, Region, page_size};

/// The fault of a device that is lost.
pub(crate) const LOST: Fault = Fault { code: Code::Unavailable, message: "the device is lost", numbers: [0, 0] };

/// Set in the addresses of cards. It is beyond what a process has for itself: with it no address is one.
const ON_A_CARD: u64 = 1 << 52;

/// Whether an address is in the memory of a card; others are the processor's.
pub(crate) fn is_on_a_card(address: Address) -> bool {
    address.number() & ON_A_CARD != 0
}

/// The place where a card's thread finds an address: in its own memory, another card's or the processor's.
pub(crate) fn reach(address: Address) -> *mut u8 {
    // SAFETY: an address of a card was made in `CardRegion::start` from a pointer, any other is the processor's own.
    let pointer = unsafe { address.pointer() };
    if is_on_a_card(address) { pointer.wrapping_sub(ON_A_CARD as usize) } else { pointer }
}

/// The memory of a device, counted as mapped in its ledger.
#[derive(Debug)]
pub(crate) struct CardMemory {
    ledger: Arc<Ledger>,
    lost: Arc<AtomicBool>,
}

impl CardMemory {
    pub fn new(ledger: &Arc<Ledger>, lost: &Arc<AtomicBool>) -> CardMemory {
        CardMemory { ledger: ledger.clone(), lost: lost.clone() }
    }

    /// # Errors
    /// UNAVAILABLE for a device that is lost.
    pub fn refuse_if_lost(&self) -> Result<()> {
        match self.lost.load(Ordering::Acquire) {
            true => Err(LOST.to_error().on_device(self.ledger.device())),
            false => Ok(()),
        }
    }
}

impl AddressSpace for CardMemory {
    fn granularity(&self) -> u64 {
        page_size()
    }

    fn reserve(&self, bytes: Bytes) -> Result<Box<dyn Region>> {
        self.refuse_if_lost()?;
        let memory = CardMemory { ledger: self.ledger.clone(), lost: self.lost.clone() };
        Ok(Box::new(CardRegion { backing: Backing::new(&self.ledger, bytes)?, memory }))
    }
}

#[derive(Debug)]
struct CardRegion {
    backing: Backing,
    memory: CardMemory,
}

impl Region for CardRegion {
    fn start(&self) -> Address {
        Address::new(self.backing.as_ptr().wrapping_add(ON_A_CARD as usize))
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.memory.refuse_if_lost()?;
        self.backing.write(offset, bytes)
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.memory.refuse_if_lost()?;
        self.backing.read(offset, bytes)
    }

    fn decommit(&mut self, pages: Range<u64>) -> Result<()> {
        self.backing.decommit(pages)
    }

    fn commit(&mut self, pages: Range<u64>) -> Result<()> {
        self.memory.refuse_if_lost()?;
        self.backing.commit(pages)
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_memory::Block;

    use super::*;

    #[test]
    fn a_processor_cannot_follow_an_address_of_a_card() {
        let ledger = Ledger::new("GPU:0", None);
        let block = Block::new(&ledger, &CardMemory::new(&ledger, &Arc::default()), Bytes(100), "a").unwrap();
        block.write(99, &[7]).unwrap();
        let there = block.address().plus(99);
        // SAFETY: it is not followed here.
        let pointer = unsafe { there.pointer() };
        // The system reads it for us: an address that is none is an error there.
        let can_be_read = |pointer: *const u8| {
            let mut ends = [0; 2];
            // SAFETY: `pipe` writes two numbers; `write` checks the address; the ends are closed once.
            unsafe {
                assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
                let written = libc::write(ends[1], pointer.cast(), 1);
                let error = std::io::Error::last_os_error().raw_os_error();
                ends.into_iter().for_each(|end| assert_eq!(libc::close(end), 0));
                written == 1 || error != Some(libc::EFAULT)
            }
        };
        assert!(!can_be_read(pointer));
        assert!(can_be_read(reach(there)));
        // SAFETY: the last byte of the block, by the card's own way.
        assert_eq!(unsafe { reach(there).read() }, 7);
        assert!(is_on_a_card(there) && !is_on_a_card(Address::new(reach(there))));
    }
}
