//! Anonymous memory of the operating system, page by page, given back when dropped.

use std::ops::Range;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use plimsoll_base::{Bytes, Error, Result, Shortage};

use crate::Ledger;
use crate::pages::{PageSet, total};

/// Mappings from this size on are offered to the kernel for huge pages: fewer page faults and misses, same bytes.
const HUGE: u64 = 4 << 20;

/// The operating system's page size in bytes.
pub fn page_size() -> u64 {
    // SAFETY: sysconf with this name only reads a constant of the process.
    match unsafe { libc::sysconf(libc::_SC_PAGESIZE) } {
        size if size > 0 => size as u64,
        _ => 4096,
    }
}

/// The memory of the machine, where the system says it.
pub fn physical_memory() -> Option<Bytes> {
    // SAFETY: sysconf with this name only reads a number that the system keeps.
    let pages = unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) };
    u64::try_from(pages).ok().filter(|pages| *pages > 0).map(|pages| Bytes(pages.saturating_mul(page_size())))
}

/// A private mapping of zeroed pages, counted as mapped in a ledger while it lives.
#[derive(Debug)]
pub struct Backing {
    map: NonNull<u8>,
    map_bytes: usize,
    start: NonNull<u8>,
    bytes: u64,
    /// Pages that were given back, from `start`.
    away: PageSet,
    ledger: Arc<Ledger>,
}

// SAFETY: the mapping belongs to the value alone and may be used and unmapped from any thread.
unsafe impl Send for Backing {}
// SAFETY: through `&Backing` only the address can be read.
unsafe impl Sync for Backing {}

impl Backing {
    /// Maps `bytes`, rounded up to pages. No bytes, no mapping.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED where the operating system has none.
    pub fn new(ledger: &Arc<Ledger>, bytes: Bytes) -> Result<Backing> {
        Backing::with_guards(ledger, bytes, 0)
    }

    /// As [`Backing::new`], between two pages that fault when they are touched.
    ///
    /// # Errors
    /// As [`Backing::new`].
    pub fn guarded(ledger: &Arc<Ledger>, bytes: Bytes) -> Result<Backing> {
        Backing::with_guards(ledger, bytes, page_size())
    }

    fn with_guards(ledger: &Arc<Ledger>, bytes: Bytes, guard: u64) -> Result<Backing> {
        let page = page_size();
        let ledger = ledger.clone();
        if bytes == Bytes::ZERO && guard == 0 {
            let start = NonNull::without_provenance(std::num::NonZero::new(page as usize).unwrap_or(std::num::NonZero::<usize>::MIN));
            return Ok(Backing { map: start, map_bytes: 0, start, bytes: 0, away: PageSet::default(), ledger });
        }
        let refused = |cause: String| {
            let shortage = Shortage { requested: bytes, used: ledger.in_use(), ..Shortage::default() };
            Error::no_room(format!("the operating system has no {bytes} ({} bytes): {cause}", bytes.0), shortage)
                .on_device(ledger.device())
                .with_remedy("close other programs, or use smaller limits or batches")
        };
        let rounded = bytes.0.checked_next_multiple_of(page).ok_or_else(|| refused("more than an address space".into()))?;
        let map_bytes = rounded.checked_add(2 * guard).and_then(|bytes| usize::try_from(bytes).ok());
        let map_bytes =
            map_bytes.filter(|&bytes| isize::try_from(bytes).is_ok()).ok_or_else(|| refused("more than an address space".into()))?;
        if ledger.is_faulty() {
            return Err(refused("it is told to refuse this".into()));
        }
        let protection = if guard == 0 { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_NONE };
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing that exists.
        let map = unsafe { libc::mmap(null_mut(), map_bytes, protection, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) };
        if map == libc::MAP_FAILED {
            return Err(refused(std::io::Error::last_os_error().to_string()));
        }
        let Some(map) = NonNull::new(map.cast::<u8>()) else {
            return Err(refused("it was mapped at address 0".into()));
        };
        // SAFETY: the guard is a part of the mapping, so the sum stays inside it.
        let start = unsafe { map.add(guard as usize) };
        // From here on the value owns the mapping: it is unmapped on every way out.
        let backing = Backing { map, map_bytes, start, bytes: rounded, away: PageSet::default(), ledger: ledger.clone() };
        ledger.count_mapped(rounded);
        if guard > 0 && rounded > 0 {
            // SAFETY: the range is whole pages inside the mapping, which no other code knows.
            let status = unsafe { libc::mprotect(start.as_ptr().cast(), rounded as usize, libc::PROT_READ | libc::PROT_WRITE) };
            if status != 0 {
                return Err(refused(std::io::Error::last_os_error().to_string()));
            }
        } else if rounded >= HUGE {
            // SAFETY: as above. It is a hint: where it is refused, small pages do.
            unsafe { libc::madvise(start.as_ptr().cast(), rounded as usize, libc::MADV_HUGEPAGE) };
        }
        Ok(backing)
    }

    /// The first byte, page-aligned. Where there are no bytes it points nowhere, but is not null.
    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Bytes mapped: whole pages.
    pub fn bytes(&self) -> Bytes {
        Bytes(self.bytes)
    }

    /// Writes bytes, beginning at `offset`. The caller makes sure that no thread reads or writes them meanwhile.
    ///
    /// # Errors
    /// INTERNAL where the range is not inside the mapping.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.check_inside(offset, bytes.len())?;
        // SAFETY: the range is inside the mapping, which `bytes` cannot overlap: the mapping hands out no references.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.as_ptr().add(offset as usize), bytes.len()) };
        Ok(())
    }

    /// Reads bytes, beginning at `offset`. The caller makes sure that no thread writes them meanwhile.
    ///
    /// # Errors
    /// As [`Backing::write`].
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.check_inside(offset, bytes.len())?;
        // SAFETY: as in `write`; mapped bytes are always initialised.
        unsafe { std::ptr::copy_nonoverlapping(self.start.as_ptr().add(offset as usize), bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    fn check_inside(&self, offset: u64, length: usize) -> Result<()> {
        match offset.checked_add(length as u64) {
            Some(end) if end <= self.bytes => Ok(()),
            _ => Err(Error::internal(format!("{length} bytes at {offset} are not inside a mapping of {} bytes", self.bytes))),
        }
    }

    /// Gives the pages in `pages` (bytes from the start) back to the system: they no longer count as mapped. The addresses stay.
    /// They may not be used until [`Backing::commit`], after which they are zeroed.
    ///
    /// # Errors
    /// INTERNAL where the range is not whole pages of the mapping, or the system does not take them.
    pub fn decommit(&mut self, pages: Range<u64>) -> Result<()> {
        self.check(&pages)?;
        for gap in self.away.gaps(&pages) {
            // SAFETY: whole pages inside the mapping, which `&mut` makes ours. It stays mapped: later uses see zeroes.
            let status = unsafe {
                let start = self.start.as_ptr().add(gap.start as usize);
                libc::madvise(start.cast(), (gap.end - gap.start) as usize, libc::MADV_DONTNEED)
            };
            if status != 0 {
                let cause = std::io::Error::last_os_error();
                return Err(
                    Error::internal(format!("the operating system does not take pages back: {cause}")).on_device(self.ledger.device())
                );
            }
            self.ledger.count_unmapped(gap.end - gap.start);
            self.away.insert(gap);
        }
        Ok(())
    }

    /// Makes pages usable again that [`Backing::decommit`] gave back. The system gives them when they are touched.
    ///
    /// # Errors
    /// INTERNAL where the range is not whole pages of the mapping.
    pub fn commit(&mut self, pages: Range<u64>) -> Result<()> {
        self.check(&pages)?;
        self.ledger.count_mapped(total(&self.away.overlap(&pages)));
        self.away.remove(&pages);
        Ok(())
    }

    fn check(&self, pages: &Range<u64>) -> Result<()> {
        let page = page_size();
        let whole = pages.start.is_multiple_of(page) && pages.end.is_multiple_of(page);
        if whole && pages.start <= pages.end && pages.end <= self.bytes {
            return Ok(());
        }
        Err(Error::internal(format!("bytes {pages:?} are not whole pages of a mapping of {} bytes", self.bytes)))
    }

    /// Bytes of the pages that are in memory now; `None` where the system does not say. A page is the unit, or a huge page.
    pub fn resident(&self) -> Option<Bytes> {
        let page = page_size();
        let pages = (self.bytes / page) as usize;
        if pages == 0 {
            return Some(Bytes::ZERO);
        }
        let mut present = vec![0u8; pages];
        // SAFETY: the range is this mapping; the vector has a byte for each of its pages.
        let status = unsafe { libc::mincore(self.start.as_ptr().cast(), self.bytes as usize, present.as_mut_ptr().cast()) };
        (status == 0).then(|| Bytes(present.iter().filter(|&&flags| flags & 1 == 1).count() as u64 * page))
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        if self.map_bytes > 0 {
            // SAFETY: the mapping was made by `with_guards` and belongs to this value, which ends here.
            unsafe { libc::munmap(self.map.as_ptr().cast(), self.map_bytes) };
            let away = total(&self.away.overlap(&(0..self.bytes)));
            self.ledger.count_unmapped(self.bytes - away);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_go_and_come_back_zeroed() {
        let page = page_size();
        let ledger = Ledger::new("CPU:0", None);
        let mut backing = Backing::new(&ledger, Bytes(8 * page)).unwrap();
        // SAFETY: the bytes of the mapping, which is ours.
        unsafe { backing.as_ptr().write_bytes(7, 8 * page as usize) };
        backing.decommit(2 * page..5 * page).unwrap();
        backing.decommit(4 * page..6 * page).unwrap();
        assert_eq!((backing.resident(), ledger.mapped()), (Some(Bytes(4 * page)), Bytes(4 * page)));
        backing.commit(0..3 * page).unwrap();
        backing.commit(0..3 * page).unwrap();
        assert_eq!((ledger.mapped(), ledger.mapped_peak()), (Bytes(5 * page), Bytes(8 * page)));
        // SAFETY: as above; all of it may be read.
        let bytes = unsafe { std::slice::from_raw_parts(backing.as_ptr(), 3 * page as usize) };
        assert!(bytes[..2 * page as usize].iter().all(|&byte| byte == 7) && bytes[2 * page as usize..].iter().all(|&byte| byte == 0));
        for wrong in [1..page, 0..page + 1, 0..9 * page, 2 * page..page] {
            assert!(backing.decommit(wrong.clone()).is_err() && backing.commit(wrong).is_err());
        }
        drop(backing);
        assert_eq!(ledger.mapped(), Bytes::ZERO);
    }

    #[test]
    fn is_zeroed_and_becomes_resident_when_touched() {
        let page = page_size();
        let ledger = Ledger::new("CPU:0", None);
        let backing = Backing::new(&ledger, Bytes(8 * page)).unwrap();
        assert_eq!(backing.resident(), Some(Bytes::ZERO));
        let mut bytes = vec![1; 8 * page as usize];
        backing.read(0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|&byte| byte == 0));
        backing.write(0, &bytes).unwrap();
        assert_eq!(backing.resident(), Some(Bytes(8 * page)));
    }
}
