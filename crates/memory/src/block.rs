//! Reserved and backed memory.

use std::sync::Arc;

use plimsoll_base::{Bytes, Error, Result};

use crate::{Address, AddressSpace, HostPages, Ledger, Region, Reservation};

/// Arguments of kernels are aligned to this many bytes.
const ALIGNMENT: u64 = 64;

/// A reservation with memory of a device. Dropping it gives both back.
///
/// The host reads and writes it through [`Block::read`] and [`Block::write`], which go to wherever the memory is; programs that a
/// device runs are told its address.
#[derive(Debug)]
pub struct Block {
    address: Address,
    bytes: Bytes,
    /// Where the bytes begin in the region.
    skipped: u64,
    // In this order: the memory goes before the promise ends.
    region: Box<dyn Region>,
    reservation: Reservation,
}

impl Block {
    /// Reserves `bytes`, rounded up to the granularity of `space`, in the name of `holder`, and takes as many zeroed bytes from there.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if the line or the space has not that much.
    pub fn new(ledger: &Arc<Ledger>, space: &dyn AddressSpace, bytes: Bytes, holder: &str) -> Result<Block> {
        let reservation = ledger.reserve(bytes.round_up(space.granularity()), holder)?;
        let region = space.reserve(bytes)?;
        Ok(Block { address: region.start(), bytes, skipped: 0, region, reservation })
    }

    /// As [`Block::new`], of this machine's pages.
    ///
    /// # Errors
    /// As [`Block::new`].
    pub fn host(ledger: &Arc<Ledger>, bytes: Bytes, holder: &str) -> Result<Block> {
        Block::new(ledger, &HostPages::new(ledger), bytes, holder)
    }

    /// As [`Block::host`], for tests: touching the page before the block or the bytes from its end, rounded up to 64, faults.
    ///
    /// # Errors
    /// As [`Block::new`].
    pub fn guarded(ledger: &Arc<Ledger>, bytes: Bytes, holder: &str) -> Result<Block> {
        let block = Block::new(ledger, &HostPages::guarded(ledger), bytes, holder)?;
        let skipped = (block.reserved() - bytes.round_up(ALIGNMENT)).0;
        Ok(Block { address: block.address.plus(skipped), skipped, ..block })
    }

    /// The first byte, aligned to 64 at least. Not null, even where there are no bytes.
    pub fn address(&self) -> Address {
        self.address
    }

    /// How many bytes may be used: as many as were asked for.
    pub fn bytes(&self) -> Bytes {
        self.bytes
    }

    /// How many bytes count against the line.
    pub fn reserved(&self) -> Bytes {
        self.reservation.bytes()
    }

    /// Writes bytes, beginning at `offset`: see [`Region::write`].
    ///
    /// # Errors
    /// UNAVAILABLE where the device is lost; INTERNAL where the range is not inside the block.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.region.write(self.inside(offset, bytes.len())?, bytes)
    }

    /// Reads bytes, beginning at `offset`: see [`Region::read`].
    ///
    /// # Errors
    /// As [`Block::write`].
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.region.read(self.inside(offset, bytes.len())?, bytes)
    }

    /// Where a range of the block begins in the region.
    fn inside(&self, offset: u64, length: usize) -> Result<u64> {
        let end = offset.checked_add(length as u64).filter(|end| *end <= self.bytes.0);
        let outside = || Error::internal(format!("{length} bytes at {offset} are not inside a block of {} bytes", self.bytes.0));
        end.map(|_| self.skipped + offset).ok_or_else(outside)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page_size;

    #[test]
    fn gives_both_back() {
        let ledger = Ledger::new("CPU:0", Some(Bytes(3 * page_size())));
        let block = Block::host(&ledger, Bytes(page_size() + 1), "a").unwrap();
        assert_eq!((ledger.in_use(), ledger.mapped()), (Bytes(2 * page_size()), Bytes(2 * page_size())));
        assert_eq!((block.bytes(), block.reserved()), (Bytes(page_size() + 1), Bytes(2 * page_size())));
        assert!(Block::host(&ledger, Bytes(page_size() + 1), "b").is_err());
        drop(block);
        assert_eq!((ledger.in_use(), ledger.mapped()), (Bytes::ZERO, Bytes::ZERO));
        assert_eq!((ledger.peak(), ledger.mapped_peak()), (Bytes(2 * page_size()), Bytes(2 * page_size())));
    }

    #[test]
    fn no_bytes_are_a_block_too() {
        let ledger = Ledger::new("CPU:0", Some(Bytes::ZERO));
        for block in [Block::host(&ledger, Bytes::ZERO, "a").unwrap(), Block::guarded(&ledger, Bytes::ZERO, "a").unwrap()] {
            assert!(block.address() != Address::NULL && block.address().number().is_multiple_of(64));
            block.write(0, &[]).unwrap();
            block.read(0, &mut []).unwrap();
            assert_eq!(ledger.mapped(), Bytes::ZERO);
        }
    }

    #[test]
    fn more_than_there_is_is_an_error() {
        let ledger = Ledger::new("CPU:0", None);
        for bytes in [1 << 62, u64::MAX - page_size(), u64::MAX] {
            let error = Block::host(&ledger, Bytes(bytes), "greedy").unwrap_err();
            assert_eq!(error.code(), plimsoll_base::Code::ResourceExhausted, "{error}");
            assert!(Block::guarded(&ledger, Bytes(bytes), "greedy").is_err());
        }
        assert_eq!((ledger.in_use(), ledger.mapped()), (Bytes::ZERO, Bytes::ZERO));
    }

    #[test]
    fn bytes_go_in_and_out_and_none_beyond_the_end() {
        let ledger = Ledger::new("CPU:0", None);
        for block in [Block::host(&ledger, Bytes(1000), "a").unwrap(), Block::guarded(&ledger, Bytes(1000), "a").unwrap()] {
            block.write(993, &[1, 2, 3, 4, 5, 6, 7]).unwrap();
            let mut out = [9; 9];
            block.read(991, &mut out).unwrap();
            assert_eq!(out, [0, 0, 1, 2, 3, 4, 5, 6, 7]);
            for (offset, length) in [(992, 9), (1001, 0), (u64::MAX, 1), (0, 1001)] {
                let mut bytes = vec![0; length];
                let codes = [block.read(offset, &mut bytes), block.write(offset, &bytes)].map(|result| result.unwrap_err().code());
                assert_eq!(codes, [plimsoll_base::Code::Internal; 2]);
            }
        }
    }

    #[test]
    fn a_write_past_a_guarded_block_faults() {
        let ledger = Ledger::new("CPU:0", None);
        let block = Block::guarded(&ledger, Bytes(128), "a").unwrap();
        for offset in [128_isize, -(page_size() as isize)] {
            // SAFETY: pages of this process; whether it may be written is the question.
            let address = unsafe { block.address().pointer() }.wrapping_offset(offset);
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
