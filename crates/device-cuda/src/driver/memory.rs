//! Memory of cards under addresses that stay, and memory of the host that cards reach.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::raw::{Access, Handle, MAPPED, MemoryHandle, MemoryKind, PORTABLE, READ_WRITE, Trouble};
use super::{Context, CudaDriver, Entered, call};

/// Addresses of a card, with memory behind as many of them as are committed.
#[derive(Debug)]
pub(crate) struct Mapping {
    context: Arc<Context>,
    start: u64,
    /// Addresses: never none.
    bytes: u64,
    pieces: Arc<Mutex<Pieces>>,
}

/// The memory behind addresses.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    /// By its offset. Each piece is as long as the card's granularity, so that any of them can be given back.
    memory: BTreeMap<u64, MemoryHandle>,
    /// Other cards that use it, also what comes later.
    peers: BTreeSet<c_int>,
}

fn locked(pieces: &Mutex<Pieces>) -> MutexGuard<'_, Pieces> {
    pieces.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets cards use a range of addresses that have memory.
fn set_access(driver: &CudaDriver, range: Range<u64>, cards: impl Iterator<Item = c_int>) -> Result<(), Trouble> {
    let access: Vec<Access> = cards.map(|card| Access { location: MemoryKind::of(card).location, flags: READ_WRITE }).collect();
    call!(driver, set_access(range.start, (range.end - range.start) as usize, access.as_ptr(), access.len()))
}

impl Pieces {
    /// Lets another card use what is behind addresses from `start` on, in pieces of that many bytes, now and later.
    pub(super) fn open_to(pieces: &Mutex<Pieces>, driver: &CudaDriver, (start, step): (u64, u64), peer: c_int) -> Result<(), Trouble> {
        let mut pieces = locked(pieces);
        if pieces.peers.contains(&peer) {
            return Ok(());
        }
        let offsets: Vec<u64> = pieces.memory.keys().copied().collect();
        runs(&offsets, step)
            .into_iter()
            .try_for_each(|run| set_access(driver, start + run.start..start + run.end, std::iter::once(peer)))?;
        pieces.peers.insert(peer);
        Ok(())
    }
}

impl Mapping {
    /// Addresses for so many bytes, a multiple of the granularity, without memory.
    pub fn reserve(context: &Arc<Context>, bytes: u64) -> Result<Mapping, Trouble> {
        let _entered = context.enter()?;
        let bytes = bytes.max(context.granularity);
        let mut start = 0;
        call!(context.driver, address_reserve(&mut start, bytes as usize, 0, 0, 0))?;
        let pieces = Arc::default();
        context.driver.owns(start, bytes, context, &pieces);
        Ok(Mapping { context: context.clone(), start, bytes, pieces })
    }

    /// The first address.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Puts zeroed memory behind a range of whole pieces, as far as there is none. All of it, or nothing changes. Returns the bytes that
    /// were added.
    pub fn commit(&mut self, range: Range<u64>) -> Result<u64, Trouble> {
        let step = self.context.granularity;
        let mut pieces = locked(&self.pieces);
        let missing: Vec<u64> = range.step_by(step as usize).filter(|at| !pieces.memory.contains_key(at)).collect();
        let entered = self.context.enter();
        let committed =
            entered.as_ref().map_err(|trouble| *trouble).and_then(|_| missing.iter().try_for_each(|at| self.add(&mut pieces, *at)));
        // Neighbours get access, and zeros, at once.
        let committed = committed.and_then(|()| runs(&missing, step).into_iter().try_for_each(|run| self.open(&pieces, run)));
        if let Err(trouble) = committed {
            missing.iter().for_each(|at| self.remove(&mut pieces, *at));
            return Err(trouble);
        }
        Ok(missing.len() as u64 * step)
    }

    /// Gives the memory behind a range of whole pieces back. Returns its bytes. The caller sees to it that no kernel uses it.
    pub fn decommit(&mut self, range: Range<u64>) -> u64 {
        let mut pieces = locked(&self.pieces);
        let gone: Vec<u64> = pieces.memory.range(range).map(|(at, _)| *at).collect();
        let _entered = self.context.enter();
        gone.iter().for_each(|at| self.remove(&mut pieces, *at));
        gone.len() as u64 * self.context.granularity
    }

    /// The bytes that have memory.
    pub fn committed(&self) -> u64 {
        locked(&self.pieces).memory.len() as u64 * self.context.granularity
    }

    fn add(&self, pieces: &mut Pieces, at: u64) -> Result<(), Trouble> {
        let (driver, step) = (&self.context.driver, self.context.granularity as usize);
        let mut handle = 0;
        call!(driver, memory_create(&mut handle, step, &MemoryKind::of(self.context.device), 0))?;
        if let Err(trouble) = call!(driver, map(self.start + at, step, 0, handle, 0)) {
            let _ = call!(driver, memory_release(handle));
            return Err(trouble);
        }
        pieces.memory.insert(at, handle);
        Ok(())
    }

    fn open(&self, pieces: &Pieces, run: Range<u64>) -> Result<(), Trouble> {
        let cards = std::iter::once(self.context.device).chain(pieces.peers.iter().copied());
        set_access(&self.context.driver, self.start + run.start..self.start + run.end, cards)?;
        self.context.zero(self.start + run.start, run.end - run.start)
    }

    fn remove(&self, pieces: &mut Pieces, at: u64) {
        if let Some(handle) = pieces.memory.remove(&at) {
            // A lost card has nothing to give back, and everything else cannot fail.
            let _ = call!(self.context.driver, unmap(self.start + at, self.context.granularity as usize));
            let _ = call!(self.context.driver, memory_release(handle));
        }
    }
}

/// Ranges of neighbours.
fn runs(offsets: &[u64], step: u64) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for &at in offsets {
        match runs.last_mut() {
            Some(last) if last.end == at => last.end += step,
            _ => runs.push(at..at + step),
        }
    }
    runs
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.decommit(0..self.bytes);
        self.context.driver.disowns(self.start);
        let _ = call!(self.context.driver, address_free(self.start, self.bytes as usize));
    }
}

/// Memory of the host that does not move: cards copy from and to it while the host goes on, and kernels use it under its address.
#[derive(Debug)]
pub(crate) struct Pinned {
    driver: Arc<CudaDriver>,
    /// The context that it was made in.
    context: Handle,
    start: *mut u8,
    bytes: usize,
}

// SAFETY: the memory belongs to the value alone.
unsafe impl Send for Pinned {}
// SAFETY: through `&Pinned` it can only be read.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// So many bytes, of zeros. The calling thread has a context.
    pub fn new(driver: &Arc<CudaDriver>, bytes: usize) -> Result<Pinned, Trouble> {
        let context = driver.context_now()?;
        let mut start: *mut c_void = std::ptr::null_mut();
        call!(driver, host_allocate(&mut start, bytes, PORTABLE | MAPPED))?;
        // SAFETY: so many bytes are there, and nobody else knows them.
        unsafe { start.cast::<u8>().write_bytes(0, bytes) };
        Ok(Pinned { driver: driver.clone(), context, start: start.cast(), bytes })
    }

    /// Bytes from `offset` on. Panics beyond the end, as a slice does.
    pub fn at(&self, offset: usize, bytes: usize) -> *mut u8 {
        assert!(offset.checked_add(bytes).is_some_and(|end| end <= self.bytes), "beyond the pinned memory");
        self.start.wrapping_add(offset)
    }

    /// Writes bytes from `offset` on. No copy of a card uses them.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        // SAFETY: as many bytes are there, and `&mut` makes them ours.
        unsafe { self.at(offset, bytes.len()).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    /// Reads bytes from `offset` on. No copy of a card writes them.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        // SAFETY: as many bytes are there, all of them written.
        unsafe { self.at(offset, bytes.len()).copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) };
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let _entered = Entered::new(&self.driver, self.context);
        let _ = call!(self.driver, host_free(self.start.cast()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_become_one_range() {
        assert_eq!(runs(&[0, 2, 4, 10, 14, 16], 2), [0..6, 10..12, 14..18]);
        assert!(runs(&[], 2).is_empty());
    }
}
