//! Reserved and backed memory.

use std::ptr::NonNull;
use std::sync::Arc;

use plimsoll_base::{Bytes, Result};

use crate::{Backing, Ledger, Reservation, page_size};

/// The byte that [`Block::poison`] writes: as `f32` a large negative number, as an index out of every range.
pub const POISON: u8 = 0xCB;

/// Arguments of kernels are aligned to this many bytes.
const ALIGNMENT: u64 = 64;

/// A reservation with its mapping. Dropping it gives both back.
#[derive(Debug)]
pub struct Block {
    start: NonNull<u8>,
    bytes: Bytes,
    // In this order: the pages go before the promise ends.
    backing: Backing,
    reservation: Reservation,
}

// SAFETY: `start` points into `backing`, which may be sent; the block hands out nothing but the address.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    /// Reserves `bytes`, rounded up to pages, in the name of `holder`, and maps as many zeroed bytes.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if the line or the operating system has not that much.
    pub fn new(ledger: &Arc<Ledger>, bytes: Bytes, holder: &str) -> Result<Block> {
        let reservation = ledger.reserve(bytes.round_up(page_size()), holder)?;
        let backing = Backing::new(ledger, bytes)?;
        let start = backing.start();
        Ok(Block { start, bytes, backing, reservation })
    }

    /// As [`Block::new`], for tests: touching the page before the block or the bytes from its end, rounded up to 64, faults.
    ///
    /// # Errors
    /// As [`Block::new`].
    pub fn guarded(ledger: &Arc<Ledger>, bytes: Bytes, holder: &str) -> Result<Block> {
        let reservation = ledger.reserve(bytes.round_up(page_size()), holder)?;
        let backing = Backing::guarded(ledger, bytes)?;
        let slack = backing.bytes() - bytes.round_up(ALIGNMENT);
        // SAFETY: the slack is at most the length of the mapping.
        let start = unsafe { backing.start().add(slack.0 as usize) };
        Ok(Block { start, bytes, backing, reservation })
    }

    /// The first byte, aligned to 64 at least. Not null, even where there are no bytes.
    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// How many bytes may be used: as many as were asked for.
    pub fn bytes(&self) -> Bytes {
        self.bytes
    }

    /// How many bytes count against the line.
    pub fn reserved(&self) -> Bytes {
        self.reservation.bytes()
    }

    /// Copies bytes out, beginning at `offset`. The caller sees to it that nobody writes them meanwhile.
    ///
    /// # Panics
    /// Where the range is not inside the block.
    pub fn copy_out(&self, offset: u64, out: &mut [u8]) {
        assert!(offset.checked_add(out.len() as u64).is_some_and(|end| end <= self.bytes.0), "outside the block");
        // SAFETY: the range is inside the mapping, whose bytes are always initialised; `out` cannot overlap memory that this
        // block alone owns.
        unsafe { std::ptr::copy_nonoverlapping(self.start.as_ptr().add(offset as usize), out.as_mut_ptr(), out.len()) };
    }

    /// Copies bytes in, beginning at `offset`. The caller sees to it that nobody reads or writes them meanwhile.
    ///
    /// # Panics
    /// Where the range is not inside the block.
    pub fn copy_in(&self, offset: u64, bytes: &[u8]) {
        assert!(offset.checked_add(bytes.len() as u64).is_some_and(|end| end <= self.bytes.0), "outside the block");
        // SAFETY: as in `copy_out`.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.as_ptr().add(offset as usize), bytes.len()) };
    }

    /// Writes to every page, so that they exist in memory from now on.
    pub fn touch(&mut self) {
        self.backing.touch();
    }

    /// Bytes of the block's pages that are in memory now; `None` where the system does not say.
    pub fn resident(&self) -> Option<Bytes> {
        self.backing.resident()
    }

    /// Fills the block with [`POISON`], so that [`Block::highest_touched`] can tell what was written since.
    pub fn poison(&mut self) {
        // SAFETY: `bytes` bytes from `start` are inside the mapping, which `&mut` makes ours.
        unsafe { self.start.as_ptr().write_bytes(POISON, self.bytes.0 as usize) };
    }

    /// The number of bytes up to and including the last that is not [`POISON`].
    pub fn highest_touched(&mut self) -> Bytes {
        // SAFETY: as in `poison`; mapped bytes are always initialised.
        let bytes = unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes.0 as usize) };
        Bytes(bytes.iter().rposition(|&byte| byte != POISON).map_or(0, |last| last as u64 + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_both_back() {
        let ledger = Ledger::new("CPU:0", Some(Bytes(3 * page_size())));
        let block = Block::new(&ledger, Bytes(page_size() + 1), "a").unwrap();
        assert_eq!((ledger.in_use(), ledger.mapped()), (Bytes(2 * page_size()), Bytes(2 * page_size())));
        assert_eq!((block.bytes(), block.reserved()), (Bytes(page_size() + 1), Bytes(2 * page_size())));
        assert!(Block::new(&ledger, Bytes(page_size() + 1), "b").is_err());
        drop(block);
        assert_eq!((ledger.in_use(), ledger.mapped()), (Bytes::ZERO, Bytes::ZERO));
        assert_eq!((ledger.peak(), ledger.mapped_peak()), (Bytes(2 * page_size()), Bytes(2 * page_size())));
    }

    #[test]
    fn no_bytes_are_a_block_too() {
        let ledger = Ledger::new("CPU:0", Some(Bytes::ZERO));
        for block in [Block::new(&ledger, Bytes::ZERO, "a").unwrap(), Block::guarded(&ledger, Bytes::ZERO, "a").unwrap()] {
            assert!(!block.as_ptr().is_null() && block.as_ptr().addr().is_multiple_of(64));
            assert_eq!((block.resident(), ledger.mapped()), (Some(Bytes::ZERO), Bytes::ZERO));
        }
    }

    #[test]
    fn more_than_there_is_is_an_error() {
        let ledger = Ledger::new("CPU:0", None);
        for bytes in [1 << 62, u64::MAX - page_size(), u64::MAX] {
            let error = Block::new(&ledger, Bytes(bytes), "greedy").unwrap_err();
            assert_eq!(error.code(), plimsoll_base::Code::ResourceExhausted, "{error}");
            assert!(Block::guarded(&ledger, Bytes(bytes), "greedy").is_err());
        }
        assert_eq!((ledger.in_use(), ledger.mapped()), (Bytes::ZERO, Bytes::ZERO));
    }

    #[test]
    fn is_zeroed_and_becomes_resident_when_touched() {
        let ledger = Ledger::new("CPU:0", None);
        let mut block = Block::new(&ledger, Bytes(8 * page_size()), "a").unwrap();
        assert_eq!(block.resident(), Some(Bytes::ZERO));
        block.touch();
        assert_eq!(block.resident(), Some(Bytes(8 * page_size())));
        // SAFETY: the block's own bytes.
        let bytes = unsafe { std::slice::from_raw_parts(block.as_ptr(), 8 * page_size() as usize) };
        assert!(bytes.iter().all(|&byte| byte == 0));
    }

    #[test]
    fn poison_finds_the_last_byte_written() {
        let ledger = Ledger::new("CPU:0", None);
        for mut block in [Block::new(&ledger, Bytes(1000), "a").unwrap(), Block::guarded(&ledger, Bytes(1000), "a").unwrap()] {
            block.poison();
            assert_eq!(block.highest_touched(), Bytes::ZERO);
            // SAFETY: byte 776 of 1000.
            unsafe { block.as_ptr().add(776).write(0) };
            assert_eq!(block.highest_touched(), Bytes(777));
        }
    }

    #[test]
    fn a_write_past_a_guarded_block_faults() {
        let ledger = Ledger::new("CPU:0", None);
        let block = Block::guarded(&ledger, Bytes(128), "a").unwrap();
        for offset in [128_isize, -(page_size() as isize)] {
            let address = block.as_ptr().wrapping_offset(offset);
            // SAFETY: the child only writes to the address and ends; it neither allocates nor locks.
            let status = unsafe {
                match libc::fork() {
                    0 => {
                        libc::signal(libc::SIGSEGV, libc::SIG_DFL);
                        address.write_volatile(1);
                        libc::_exit(0)
                    }
                    child => {
                        let mut status = 0;
                        assert_eq!(libc::waitpid(child, &mut status, 0), child);
                        status
                    }
                }
            };
            assert!(libc::WIFSIGNALED(status), "offset {offset} can be written");
        }
    }
}
