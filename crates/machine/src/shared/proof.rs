//! The proof that a slot of a shared ledger is in use. It is a lock for writing on a FIFO that only its owner may open for writing.
//!
//! A FIFO, because programs of the lease inherit the handle: bytes that they write into it go nowhere.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::{beneath, open_to_group};
use crate::byte_lock;
use crate::file::apart;
use crate::mark::Mark;
use crate::state_dir::made;

/// Makes the FIFO of a slot, locks it, and then lets the group read it.
pub(crate) fn make(path: &Path, slot: u32, mark: Mark) -> io::Result<File> {
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: the path ends in a zero and is read during the call.
    if unsafe { libc::mkfifo(name.as_ptr(), 0o600) } != 0 {
        return Err(io::Error::last_os_error());
    }
    made(path, 0o600)?;
    let fifo = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path).and_then(apart)?;
    if !byte_lock::take(&fifo, slot)? {
        return Err(io::Error::from(io::ErrorKind::WouldBlock));
    }
    byte_lock::mark(&fifo, mark)?;
    open_to_group(&fifo)?;
    Ok(fifo)
}

/// Whether the slot with that number is in use, by its FIFO in a folder of such.
///
/// # Errors
/// Where this process can open no more files.
pub(crate) fn is_held(leases: &File, slot: u32) -> io::Result<bool> {
    match beneath::open(leases, &slot.to_string(), 0) {
        Ok(file) => Ok(byte_lock::is_taken_for_writing(&file, slot).unwrap_or(false)),
        Err(error) if beneath::is_own_trouble(&error) => Err(error),
        Err(_) => Ok(false),
    }
}
