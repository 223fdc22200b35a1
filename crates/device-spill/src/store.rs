//! Any range of bytes to the file and back, by way of a buffer of whole blocks at the address of one. One access at a time.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll_base::{Bytes, Code, Error, Result};
use plimsoll_device::Fault;
use plimsoll_memory::pages::{PageSet, total};
use plimsoll_memory::{Address, AddressSpace, Block, Ledger, Region};

use crate::disk::{BLOCK, Disk};
use crate::space::Space;

/// The file with its buffer.
#[derive(Debug)]
pub(crate) struct Store {
    disk: Disk,
    space: Mutex<Space>,
    buffer: Mutex<Buffer>,
    ledger: Arc<Ledger>,
    /// What it is and where, for errors.
    description: String,
}

/// Memory of a processor that accesses go through.
#[derive(Debug)]
struct Buffer(Block);

impl Buffer {
    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the block is memory of this process, initialised, and no other code knows its address.
        unsafe { std::slice::from_raw_parts_mut(self.0.address().pointer(), self.0.bytes().0 as usize) }
    }
}

/// An address that no block of the file has.
const NOWHERE: Fault = Fault { code: Code::Internal, message: "a copy goes beyond the blocks of a file", numbers: [0, 0] };

impl Store {
    /// Of a file with so many bytes. The buffer is memory of a processor: whole blocks at the address of one.
    ///
    /// # Errors
    /// INTERNAL for another buffer.
    pub fn new(disk: Disk, bytes: Bytes, buffer: Block, ledger: &Arc<Ledger>, description: &str) -> Result<Store> {
        let is_aligned = buffer.address().number().is_multiple_of(BLOCK) && buffer.bytes().0.is_multiple_of(BLOCK);
        if !is_aligned || buffer.bytes() == Bytes::ZERO {
            return Err(Error::internal("the buffer of a file is not of whole blocks"));
        }
        let (space, buffer) = (Mutex::new(Space::new(bytes.0)), Mutex::new(Buffer(buffer)));
        Ok(Store { disk, space, buffer, ledger: ledger.clone(), description: description.to_string() })
    }

    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    /// Reads bytes at an address of the file.
    ///
    /// # Safety
    /// So many bytes can be written at `to`, and no other thread uses them meanwhile.
    ///
    /// # Errors
    /// The disk's; INTERNAL for bytes that are in no block.
    pub unsafe fn read(&self, from: u64, to: *mut u8, bytes: u64) -> Result<(), Fault> {
        let mut buffer = self.buffer();
        let buffer = buffer.bytes();
        self.parts(from, bytes, buffer.len() as u64, |done, part| {
            let blocks = &mut buffer[..(part.blocks.end - part.blocks.start) as usize];
            self.disk.read(blocks, part.blocks.start)?;
            let length = part.bytes as usize;
            let read = &blocks[part.skipped as usize..][..length];
            // SAFETY: the caller's promise; the buffer is the file's own.
            unsafe { std::ptr::copy_nonoverlapping(read.as_ptr(), to.add(done as usize), length) };
            Ok(())
        })
    }

    /// Writes bytes at an address of the file.
    ///
    /// # Safety
    /// So many bytes can be read at `from`, and no thread writes them meanwhile.
    ///
    /// # Errors
    /// As [`Store::read`].
    pub unsafe fn write(&self, from: *const u8, to: u64, bytes: u64) -> Result<(), Fault> {
        let mut buffer = self.buffer();
        let buffer = buffer.bytes();
        self.parts(to, bytes, buffer.len() as u64, |done, part| {
            let blocks = &mut buffer[..(part.blocks.end - part.blocks.start) as usize];
            // What else is in the first and the last block stays.
            let (skipped, length) = (part.skipped as usize, part.bytes as usize);
            let (block, end, last) = (BLOCK as usize, skipped + length, blocks.len() - BLOCK as usize);
            if skipped > 0 || end < block {
                self.disk.read(&mut blocks[..block], part.blocks.start)?;
            }
            if end < blocks.len() && last > 0 {
                self.disk.read(&mut blocks[last..], part.blocks.end - BLOCK)?;
            }
            // SAFETY: the caller's promise; the buffer is the file's own.
            unsafe { std::ptr::copy_nonoverlapping(from.add(done as usize), blocks[skipped..].as_mut_ptr(), length) };
            self.disk.write(blocks, part.blocks.start)
        })
    }

    /// Goes through a range by parts that lie together in the file, and fit into so many bytes with the rest of their blocks. `each`
    /// is told how many bytes came before.
    fn parts(&self, address: u64, bytes: u64, room: u64, mut each: impl FnMut(u64, Part) -> Result<(), Fault>) -> Result<(), Fault> {
        let mut done = 0;
        while done < bytes {
            let (at, there) = self.space().find(address + done).ok_or(NOWHERE)?;
            let skipped = at % BLOCK;
            let length = (bytes - done).min(there).min(room - skipped);
            let first = at - skipped;
            each(done, Part { blocks: first..(at + length).next_multiple_of(BLOCK), skipped, bytes: length })?;
            done += length;
        }
        Ok(())
    }

    fn error(&self, fault: Fault) -> Error {
        fault.to_error().context(&self.description).on_device(self.ledger.device())
    }

    fn space(&self) -> MutexGuard<'_, Space> {
        self.space.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn buffer(&self) -> MutexGuard<'_, Buffer> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A part of an access.
struct Part {
    /// In the file.
    blocks: Range<u64>,
    /// Where it begins in them, and how many bytes it has.
    skipped: u64,
    bytes: u64,
}

/// The file as memory of its device.
#[derive(Clone, Debug)]
pub(crate) struct SpillMemory(pub Arc<Store>);

impl AddressSpace for SpillMemory {
    fn granularity(&self) -> u64 {
        BLOCK
    }

    fn reserve(&self, bytes: Bytes) -> Result<Box<dyn Region>> {
        let store = self.0.clone();
        let rounded = bytes.round_up(BLOCK).0;
        let taken = store.space().take(rounded);
        let (start, written) = taken.ok_or_else(|| Error::internal("a file has less room than its line says"))?;
        store.ledger.count_mapped(rounded);
        let region = SpillRegion { store, start, bytes: rounded, away: PageSet::default() };
        region.store.disk.clear(&written).map_err(|fault| region.store.error(fault))?;
        Ok(Box::new(region))
    }
}

#[derive(Debug)]
struct SpillRegion {
    store: Arc<Store>,
    start: u64,
    bytes: u64,
    /// Pages that were given back: they keep their place in the file.
    away: PageSet,
}

impl SpillRegion {
    fn check(&self, pages: &Range<u64>) -> Result<()> {
        let is_whole = pages.start.is_multiple_of(BLOCK) && pages.end.is_multiple_of(BLOCK);
        match is_whole && pages.start <= pages.end && pages.end <= self.bytes {
            true => Ok(()),
            false => Err(Error::internal(format!("{pages:?} are not whole pages of {} bytes", self.bytes))),
        }
    }
}

impl Region for SpillRegion {
    fn start(&self) -> Address {
        Address::from_number(self.start)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        // SAFETY: a slice.
        let done = unsafe { self.store.write(bytes.as_ptr(), self.start + offset, bytes.len() as u64) };
        done.map_err(|fault| self.store.error(fault))
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        // SAFETY: a slice that is ours.
        let done = unsafe { self.store.read(self.start + offset, bytes.as_mut_ptr(), bytes.len() as u64) };
        done.map_err(|fault| self.store.error(fault))
    }

    fn decommit(&mut self, pages: Range<u64>) -> Result<()> {
        self.check(&pages)?;
        self.store.ledger.count_unmapped(total(&self.away.gaps(&pages)));
        self.away.insert(pages);
        Ok(())
    }

    fn commit(&mut self, pages: Range<u64>) -> Result<()> {
        self.check(&pages)?;
        let back = self.away.overlap(&pages);
        let zeros = [0; BLOCK as usize];
        for at in back.iter().cloned().flat_map(|range| range.step_by(BLOCK as usize)) {
            self.write(at, &zeros)?;
        }
        self.store.ledger.count_mapped(total(&back));
        self.away.remove(&pages);
        Ok(())
    }
}

impl Drop for SpillRegion {
    fn drop(&mut self) {
        let away = total(&self.away.overlap(&(0..self.bytes)));
        self.store.ledger.count_unmapped(self.bytes - away);
        self.store.space().give_back(self.start);
    }
}
