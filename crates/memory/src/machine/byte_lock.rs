//! Locks on single bytes, held by open file descriptions (`fcntl(2)`, "Open file description locks").
//!
//! They belong to what `open` made: two handles of one process exclude each other, a process that inherits the handle shares
//! the lock, and the kernel gives it back when the last of them is closed. Nothing is read or written at the bytes.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Where slots' bytes begin: far behind the contents, so that they are never confused.
pub(super) const BASE: i64 = 1 << 40;

fn about(kind: libc::c_int, slot: u32, count: i64) -> libc::flock {
    // SAFETY: the structure is numbers only, for which zero is a value; l_pid must be 0 here.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = (BASE + i64::from(slot)) as libc::off_t;
    lock.l_len = count as libc::off_t;
    lock
}

fn control(file: &File, command: libc::c_int, lock: &mut libc::flock) -> io::Result<()> {
    // SAFETY: the descriptor is open, and the structure is one that the commands of this module read and write.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, lock as *mut libc::flock) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Locks a slot's byte; `false` where another handle has it. The file must be open for writing.
pub(super) fn take(file: &File, slot: u32) -> io::Result<bool> {
    match control(file, libc::F_OFD_SETLK, &mut about(libc::F_WRLCK, slot, 1)) {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Gives a slot's byte back, also for those who inherited the handle.
pub(super) fn give_back(file: &File, slot: u32) -> io::Result<()> {
    control(file, libc::F_OFD_SETLK, &mut about(libc::F_UNLCK, slot, 1))
}

/// Whether another handle than `file` has the slot's byte.
pub(super) fn is_taken(file: &File, slot: u32) -> io::Result<bool> {
    any_taken(file, slot, 1)
}

/// Whether another handle than `file` has the byte of this slot or of one behind it.
pub(super) fn any_taken_from(file: &File, slot: u32) -> io::Result<bool> {
    any_taken(file, slot, 0)
}

fn any_taken(file: &File, slot: u32, count: i64) -> io::Result<bool> {
    let mut lock = about(libc::F_WRLCK, slot, count);
    control(file, libc::F_OFD_GETLK, &mut lock)?;
    Ok(lock.l_type != libc::F_UNLCK as libc::c_short)
}
