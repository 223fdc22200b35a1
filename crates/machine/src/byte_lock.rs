//! Locks on single bytes, held by open file descriptions (`fcntl(2)`, "Open file description locks").
//!
//! They belong to the open file description: two handles of one process exclude each other, and a process that inherits the handle
//! shares the lock. The kernel gives it back when the last of them is closed. Nothing is read or written at the bytes.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use super::mark::Mark;

/// Where slots' bytes begin: far behind the contents, so that they are never confused.
pub(super) const BASE: i64 = 1 << 40;

/// Where the ranges begin that say which ledger a lock belongs to.
pub(super) const MARKS: i64 = 1 << 60;

fn about(kind: libc::c_int, start: i64, count: i64) -> libc::flock {
    // SAFETY: the structure is numbers only, for which zero is a value; l_pid must be 0 here.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = start as libc::off_t;
    lock.l_len = count as libc::off_t;
    lock
}

fn byte(slot: u32) -> i64 {
    BASE + i64::from(slot)
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
    match control(file, libc::F_OFD_SETLK, &mut about(libc::F_WRLCK, byte(slot), 1)) {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// As [`take`] for a file that is open for reading only and that no other member uses.
pub(super) fn share(file: &File, slot: u32) -> io::Result<()> {
    control(file, libc::F_OFD_SETLK, &mut about(libc::F_RDLCK, byte(slot), 1))
}

/// Says in the kernel's list of locks which ledger the handle belongs to. Any number of handles may say the same.
pub(super) fn mark(file: &File, mark: Mark) -> io::Result<()> {
    control(file, libc::F_OFD_SETLK, &mut about(libc::F_RDLCK, mark.first(), mark.last() - mark.first() + 1))
}

/// Gives back all that the handle has locked, also for the processes that inherited it.
pub(super) fn give_back(file: &File) -> io::Result<()> {
    control(file, libc::F_OFD_SETLK, &mut about(libc::F_UNLCK, 0, 0))
}

/// Whether another handle than `file` has the slot's byte.
pub(super) fn is_taken(file: &File, slot: u32) -> io::Result<bool> {
    any_taken(file, byte(slot), 1)
}

/// Whether another handle than `file` has the byte of this slot or of one behind it.
pub(super) fn any_taken_from(file: &File, slot: u32) -> io::Result<bool> {
    any_taken(file, byte(slot), MARKS - byte(slot))
}

/// Whether another handle than `file` has the slot's byte locked for writing. Locks for reading, which every reader can take, do not
/// count.
pub(super) fn is_taken_for_writing(file: &File, slot: u32) -> io::Result<bool> {
    let mut lock = about(libc::F_RDLCK, byte(slot), 1);
    control(file, libc::F_OFD_GETLK, &mut lock)?;
    Ok(lock.l_type == libc::F_WRLCK as libc::c_short)
}

fn any_taken(file: &File, start: i64, count: i64) -> io::Result<bool> {
    let mut lock = about(libc::F_WRLCK, start, count);
    control(file, libc::F_OFD_GETLK, &mut lock)?;
    Ok(lock.l_type != libc::F_UNLCK as libc::c_short)
}
