//! Waking one waiter of another process: a word of the file's first page for each, and a futex on it.
//!
//! The page is mapped for its address alone. It is read and written through the file, so that a file that is cut short is an error
//! and not a fault.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::ptr::{NonNull, null_mut};
use std::time::Duration;

use super::record::SLOT;

/// Where the words begin, and how many there are: waiters share them if there are more.
const WORDS_AT: usize = 1024;
const WORDS: u32 = 512;

/// The words of a ledger's file.
pub(super) struct Bells<'a> {
    file: &'a File,
    page: NonNull<u8>,
}

impl Bells<'_> {
    /// Those of that file, which must be open for reading and writing.
    pub(super) fn of(file: &File) -> io::Result<Bells<'_>> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice, which nothing of this process reads or writes.
        let page = unsafe { libc::mmap(null_mut(), SLOT, protection, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        match NonNull::new(page.cast::<u8>()) {
            Some(start) if page != libc::MAP_FAILED => Ok(Bells { file, page: start }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// A ticket for [`Bells::sleep`]: a ring from now on is not missed.
    pub(super) fn listen(&self, slot: u32) -> io::Result<u32> {
        let mut word = [0; 4];
        self.file.read_exact_at(&mut word, offset(slot) as u64)?;
        Ok(u32::from_ne_bytes(word))
    }

    /// Sleeps until the bell of a slot is rung, at most that long.
    pub(super) fn sleep(&self, slot: u32, heard: u32, most: Duration) {
        // SAFETY: numbers only, for which zero is a value.
        let mut time: libc::timespec = unsafe { std::mem::zeroed() };
        time.tv_sec = most.as_secs().min(1 << 20) as libc::time_t;
        time.tv_nsec = most.subsec_nanos().into();
        // SAFETY: the word is inside the page, and the kernel alone looks at it; the time is read during the call.
        let status = unsafe { libc::syscall(libc::SYS_futex, self.page.as_ptr().add(offset(slot)), libc::FUTEX_WAIT, heard, &time) };
        if status != 0 && !matches!(io::Error::last_os_error().raw_os_error(), Some(libc::EAGAIN | libc::EINTR | libc::ETIMEDOUT)) {
            std::thread::sleep(most);
        }
    }

    /// Wakes the sleepers of that slot.
    pub(super) fn ring(&self, slot: u32) -> io::Result<()> {
        let next = self.listen(slot)?.wrapping_add(1);
        self.file.write_all_at(&next.to_ne_bytes(), offset(slot) as u64)?;
        // SAFETY: as in `sleep`.
        unsafe { libc::syscall(libc::SYS_futex, self.page.as_ptr().add(offset(slot)), libc::FUTEX_WAKE, i32::MAX) };
        Ok(())
    }
}

impl Drop for Bells<'_> {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `of` and belongs to this value, which ends here.
        unsafe { libc::munmap(self.page.as_ptr().cast(), SLOT) };
    }
}

/// Where in the page the word of a slot is.
fn offset(slot: u32) -> usize {
    WORDS_AT + 4 * (slot % WORDS) as usize
}
