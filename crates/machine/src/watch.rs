//! Being told by the kernel that a member of the ledger is gone.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use super::file::Inner;

/// Wakes when a handle of the ledger that could write is closed: by a member that leaves or dies, or by a ring. Also when the last
/// program of a lease closes the file of the lease.
pub(super) struct Watch(OwnedFd);

impl Watch {
    /// A watch on that ledger and on the folder of its leases; `None` where the system has none to give (users may have 128).
    pub(super) fn on(inner: &Inner, leases: &Path) -> Option<Watch> {
        // SAFETY: makes a new descriptor and touches nothing else.
        let raw = unsafe { libc::inotify_init1(libc::IN_NONBLOCK | libc::IN_CLOEXEC) };
        if raw < 0 {
            return None;
        }
        // SAFETY: the descriptor was made just now and has no other owner.
        let watch = Watch(unsafe { OwnedFd::from_raw_fd(raw) });
        // A lease's file is open for reading in the programs that have it, and for writing in those that only look. The FIFOs of a
        // shared ledger are open for both, and for reading in those that only look.
        let ended = if inner.shared.is_some() { libc::IN_CLOSE_WRITE } else { libc::IN_CLOSE_NOWRITE };
        (watch.add(&inner.path, libc::IN_CLOSE_WRITE) && watch.add(leases, ended)).then_some(watch)
    }

    /// Watches an open file or folder of another user, too.
    pub(super) fn also(&self, file: &File) {
        // By the handle: the path is the other user's. A waiter that is not told looks on its own.
        self.add(Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd())), libc::IN_CLOSE_WRITE);
    }

    fn add(&self, path: &Path, events: u32) -> bool {
        let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
        // SAFETY: the descriptor is open and the path ends in a zero.
        unsafe { libc::inotify_add_watch(self.0.as_raw_fd(), path.as_ptr(), events) >= 0 }
    }

    /// Sleeps until something is closed, at most that long. Whether something was.
    pub(super) fn sleep(&self, most: Duration) -> bool {
        let mut wanted = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // Rounded up: a rest of less than a millisecond must not become a busy wait.
        let most = i32::try_from(most.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX);
        // SAFETY: one structure, of an open descriptor.
        let ready = unsafe { libc::poll(&mut wanted, 1, most) };
        if ready <= 0 {
            return false;
        }
        let mut events = [0u8; 4096];
        loop {
            // SAFETY: as many bytes as the buffer has.
            let read = unsafe { libc::read(self.0.as_raw_fd(), events.as_mut_ptr().cast(), events.len()) };
            if read <= 0 {
                return true;
            }
        }
    }
}
