//! Opening files that another user made, without waiting for that user and without leaving the folder.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};

use std::ffi::CString;

/// Opens a path below a folder for reading, without waiting.
///
/// A link is an error. So is a mount: a file system of the user's own could keep the caller waiting. A FIFO without a writer is opened
/// all the same. A file under a lease is tried a few times, then it is an error.
pub(crate) fn open(folder: &File, path: &str, flags: libc::c_int) -> io::Result<File> {
    let path = CString::new(path).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let flags = flags | libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NOCTTY;
    // SAFETY: numbers only, for which zero is a value.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = flags as u64;
    how.resolve = libc::RESOLVE_BENEATH | libc::RESOLVE_NO_SYMLINKS | libc::RESOLVE_NO_XDEV;
    for _ in 0..TRIES {
        // SAFETY: the path ends in a zero, the structure is as large as is told, and both are read during the call.
        let raw = unsafe { libc::syscall(libc::SYS_openat2, folder.as_raw_fd(), path.as_ptr(), &how, size_of::<libc::open_how>()) };
        if raw >= 0 {
            // SAFETY: the descriptor was made just now, and nothing else has it.
            return Ok(unsafe { File::from_raw_fd(raw as i32) });
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            // A path that changes meanwhile, or a file under a lease.
            Some(libc::EAGAIN | libc::EINTR) => {}
            // Before Linux 5.6, and in some sandboxes.
            Some(libc::ENOSYS | libc::EPERM) => return open_plain(folder, &path, flags),
            _ => return Err(error),
        }
    }
    Err(io::Error::from_raw_os_error(libc::EAGAIN))
}

/// How often a path that changes is looked up again.
const TRIES: u32 = 4;

fn open_plain(folder: &File, path: &CString, flags: libc::c_int) -> io::Result<File> {
    // SAFETY: the path ends in a zero and is read during the call.
    let raw = unsafe { libc::openat(folder.as_raw_fd(), path.as_ptr(), flags) };
    if raw < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was made just now, and nothing else has it.
    Ok(unsafe { File::from_raw_fd(raw) })
}

/// Whether an error says something of this process or of the machine, and nothing of the file.
pub(crate) fn is_own_trouble(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::EIO | libc::EINTR))
}
