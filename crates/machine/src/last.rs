//! A place that is given back after everything else that a process has open.
//!
//! When a process is killed the kernel closes its files in an order of its own, the driver's among them. Closing those frees the
//! memory of cards. A file that is under way in a socket is closed only when the socket has been, which is after all of those.

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::{null_mut, write_unaligned};

use plimsoll_base::Result;

use super::Member;
use super::file::apart;

/// Keeps a member's place until the other files of this process are closed, should it be killed. To be dropped with the member.
#[derive(Debug)]
pub struct Last {
    _sockets: [OwnedFd; 2],
}

impl Member {
    /// Has the kernel give the place back after the files that this process has open, when it dies. Takes two descriptors.
    ///
    /// # Errors
    /// Where the system has none left.
    pub fn give_back_last(&self) -> Result<Last> {
        keep(self.handle()).map_err(|error| self.inner.broken(&error))
    }
}

/// Sends a descriptor into a pair of sockets, from which nothing is ever received.
fn keep(file: RawFd) -> io::Result<Last> {
    let mut pair = [-1; 2];
    // SAFETY: writes two numbers into the array.
    if unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0, pair.as_mut_ptr()) } == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptors were made just now and have no other owner.
    let [first, second] = pair.map(|raw| unsafe { OwnedFd::from_raw_fd(raw) });
    // A program that wrote to them would wait for ever.
    let sockets = [apart(first)?, apart(second)?];
    // Aligned as the header of a control message is.
    let mut control = [0u64; 8];
    let mut word = 0u8;
    let mut part = libc::iovec { iov_base: (&raw mut word).cast(), iov_len: 1 };
    // SAFETY: numbers and pointers, for which zero is a value.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &mut part;
    message.msg_iovlen = 1;
    message.msg_name = null_mut();
    message.msg_control = control.as_mut_ptr().cast();
    // SAFETY: the macros compute sizes, and the address of the first header in the array above, which has room for a header and a
    // descriptor. Everything that the message points to lives until the call has returned.
    let sent = unsafe {
        message.msg_controllen = libc::CMSG_SPACE(size_of::<RawFd>() as u32) as _;
        let header = libc::CMSG_FIRSTHDR(&message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as _;
        write_unaligned(libc::CMSG_DATA(header).cast::<RawFd>(), file);
        libc::sendmsg(sockets[0].as_raw_fd(), &message, libc::MSG_NOSIGNAL)
    };
    if sent == -1 { Err(io::Error::last_os_error()) } else { Ok(Last { _sockets: sockets }) }
}
