//! A device's memory: addresses that stay, with the card's memory behind them, counted in the device's ledger.

use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::{Bytes, Code, Error, Result, Shortage};
use plimsoll_device::Fault;
use plimsoll_memory::{Address, AddressSpace, Ledger, Region};

use crate::driver::{Context, Mapping, Trouble};

/// The fault of a device that is lost.
pub(super) const LOST: Fault = Fault { code: Code::Unavailable, message: "the device is lost", numbers: [0, 0] };

/// The memory of a logical device.
#[derive(Clone, Debug)]
pub(super) struct CudaMemory {
    context: Arc<Context>,
    ledger: Arc<Ledger>,
}

impl CudaMemory {
    pub fn new(context: &Arc<Context>, ledger: &Arc<Ledger>) -> CudaMemory {
        CudaMemory { context: context.clone(), ledger: ledger.clone() }
    }

    /// # Errors
    /// UNAVAILABLE for a device that is lost.
    pub fn refuse_if_lost(&self) -> Result<()> {
        match self.context.is_lost() {
            true => Err(LOST.to_error().on_device(self.ledger.device())),
            false => Ok(()),
        }
    }

    fn error(&self, what: &str, trouble: Trouble) -> Error {
        self.context.error(what, trouble).on_device(self.ledger.device())
    }

    /// The card's refusal of so many bytes.
    fn refused(&self, bytes: u64, trouble: Trouble) -> Error {
        if trouble != Trouble::OUT_OF_MEMORY {
            return self.error("the card's memory cannot be had", trouble);
        }
        let bytes = Bytes(bytes);
        let shortage = Shortage { requested: bytes, used: self.ledger.in_use(), ..Shortage::default() };
        Error::no_room(format!("CUDA_ERROR_OUT_OF_MEMORY: the card has no {bytes} ({} bytes)", bytes.0), shortage)
            .on_device(self.ledger.device())
            .with_remedy("end other programs on the card, or use smaller limits or batches")
    }
}

impl AddressSpace for CudaMemory {
    fn granularity(&self) -> u64 {
        self.context.granularity
    }

    fn reserve(&self, bytes: Bytes) -> Result<Box<dyn Region>> {
        self.refuse_if_lost()?;
        let rounded = bytes.0.checked_next_multiple_of(self.context.granularity).filter(|bytes| *bytes < 1 << 48);
        let rounded = rounded.ok_or_else(|| self.refused(bytes.0, Trouble::OUT_OF_MEMORY))?;
        let mut mapping = Mapping::reserve(&self.context, rounded).map_err(|trouble| self.refused(rounded, trouble))?;
        mapping.commit(0..rounded).map_err(|trouble| self.refused(rounded, trouble))?;
        self.ledger.count_mapped(rounded);
        Ok(Box::new(CudaRegion { mapping, bytes: rounded, memory: self.clone() }))
    }
}

#[derive(Debug)]
struct CudaRegion {
    mapping: Mapping,
    bytes: u64,
    memory: CudaMemory,
}

impl CudaRegion {
    fn inside(&self, offset: u64, length: usize) -> Result<u64> {
        match offset.checked_add(length as u64) {
            Some(end) if end <= self.bytes => Ok(self.mapping.start() + offset),
            _ => Err(Error::internal(format!("{length} bytes at {offset} are not inside a mapping of {} bytes", self.bytes))),
        }
    }

    fn whole(&self, pages: &Range<u64>) -> Result<()> {
        let step = self.memory.context.granularity;
        let whole = pages.start.is_multiple_of(step) && pages.end.is_multiple_of(step);
        if whole && pages.start <= pages.end && pages.end <= self.bytes {
            return Ok(());
        }
        Err(Error::internal(format!("bytes {pages:?} are not whole pages of a mapping of {} bytes", self.bytes)))
    }
}

impl Region for CudaRegion {
    fn start(&self) -> Address {
        Address::from_number(self.mapping.start())
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.memory.refuse_if_lost()?;
        let at = self.inside(offset, bytes.len())?;
        self.memory.context.write(at, bytes).map_err(|trouble| self.memory.error("memory of the card cannot be written", trouble))
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.memory.refuse_if_lost()?;
        let at = self.inside(offset, bytes.len())?;
        self.memory.context.read(at, bytes).map_err(|trouble| self.memory.error("memory of the card cannot be read", trouble))
    }

    fn decommit(&mut self, pages: Range<u64>) -> Result<()> {
        self.whole(&pages)?;
        self.memory.ledger.count_unmapped(self.mapping.decommit(pages));
        Ok(())
    }

    fn commit(&mut self, pages: Range<u64>) -> Result<()> {
        self.whole(&pages)?;
        self.memory.refuse_if_lost()?;
        let bytes = pages.end - pages.start;
        let added = self.mapping.commit(pages).map_err(|trouble| self.memory.refused(bytes, trouble))?;
        self.memory.ledger.count_mapped(added);
        Ok(())
    }
}

impl Drop for CudaRegion {
    fn drop(&mut self) {
        self.memory.ledger.count_unmapped(self.mapping.decommit(0..self.bytes));
    }
}

#[cfg(test)]
#[allow(dead_code, reason = "tests of several crates share it")]
#[path = "../../tests/computing/machine.rs"]
mod machine;

#[cfg(test)]
mod tests {
    use super::machine::Machine;
    use super::*;
    use crate::driver::CudaDriver;

    #[test]
    fn pieces_go_and_come_back_at_their_addresses() {
        let Some(machine) = Machine::new("pieces", &[16]) else { return };
        let driver = CudaDriver::load(&machine.driver()).unwrap();
        let context = Context::new(&driver, &driver.cards().unwrap()[0]).unwrap();
        let ledger = Ledger::new("GPU:0", None);
        let memory = CudaMemory::new(&context, &ledger);
        let piece = context.granularity;
        let mut region = memory.reserve(Bytes(5 * piece)).unwrap();
        let start = region.start();
        assert_eq!((machine.used(0), ledger.mapped().0, piece), (5 * piece, 5 * piece, 2 << 20));
        region.write(0, &vec![7; 5 * piece as usize]).unwrap();
        for (range, left) in [(piece..3 * piece, 3), (2 * piece..4 * piece, 2)] {
            region.decommit(range).unwrap();
            assert_eq!((machine.used(0), ledger.mapped().0), (left * piece, left * piece));
        }
        // Another program takes what was given back: then it is not to be had, and nothing changes.
        let other = memory.reserve(Bytes(5 * piece)).unwrap();
        assert_eq!(region.commit(0..5 * piece).unwrap_err().code(), Code::ResourceExhausted);
        assert_eq!((machine.used(0), ledger.mapped().0), (7 * piece, 7 * piece));
        drop(other);
        region.commit(0..5 * piece).unwrap();
        assert_eq!((region.start(), machine.used(0), ledger.mapped().0), (start, 5 * piece, 5 * piece));
        let mut bytes = vec![1; 5 * piece as usize];
        region.read(0, &mut bytes).unwrap();
        let expected = [7, 0, 0, 0, 7].map(|byte| vec![byte; piece as usize]).concat();
        assert!(bytes == expected, "what was given back is zeroed, and the rest is as it was");
        for wrong in [1..piece, 0..piece + 1, 0..6 * piece, 2 * piece..piece] {
            let codes = [region.decommit(wrong.clone()), region.commit(wrong)].map(|result| result.unwrap_err().code());
            assert_eq!(codes, [Code::Internal; 2]);
        }
        drop(region);
        assert_eq!((machine.used(0), ledger.mapped(), driver.owner(start.number()).is_none()), (0, Bytes::ZERO, true));
    }
}
