//! Packets between a program and a worker: whole or not at all, with descriptors.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_base::{Error, Result};
use plimsoll_memory::{Sealed, no_room};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags,
    SocketType, recvmsg, sendmsg, socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::message::Body;
use super::{LONG, Message};

/// The kernel sends no more descriptors at once (SCM_MAX_FD is 253).
const DESCRIPTORS: usize = 250;

/// Bytes of a head, at most: a name, a few numbers, a panic with its backtrace cut to that.
const HEAD: usize = 48 << 10;

const MORE: u8 = 0;
const LAST: u8 = 1;

/// One end of a connection. Packets keep their bounds, and a sent packet can be received after the sender is gone.
#[derive(Debug)]
pub(crate) struct Channel(OwnedFd);

/// The received packet.
pub(crate) enum Received<H> {
    /// A head, and the message that goes with it.
    Packet(H, Message),
    /// Nothing in time.
    Nothing,
    /// The other end, or the handle beside it, has ended, and nothing more will come.
    End,
}

impl Channel {
    /// Two ends.
    pub fn pair() -> Result<(Channel, OwnedFd)> {
        let made = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let (one, other) = made.map_err(|error| no_room("a socket for a worker", &error.into()))?;
        Ok((Channel(one), other))
    }

    /// An end that was handed down.
    pub fn from_end(end: OwnedFd) -> Channel {
        Channel(end)
    }

    /// Another handle of the same end.
    pub fn another(&self) -> Result<Channel> {
        self.0.try_clone().map(Channel).map_err(|error| no_room("a connection to a worker", &error))
    }

    /// Ends the connection for all handles of this end: both sides see the end of it.
    pub fn close(&self) {
        let _ = rustix::net::shutdown(&self.0, rustix::net::Shutdown::Both);
    }

    /// Sends a head and a message.
    ///
    /// # Errors
    /// `Err(None)` where there is no receiver: it was not received. Otherwise the system's error.
    pub fn send<H: Serialize>(&self, head: &H, message: &Message) -> Result<(), Option<Error>> {
        let head = Message::of(head).map_err(|error| Some(Error::internal(format!("a head cannot be written: {error}"))))?;
        let (Body::Here(head), 0) = (&head.body, head.segments.len()) else {
            return Err(Some(Error::internal("a head is too long")));
        };
        let mut packet = Vec::with_capacity(16 + head.len() + message.body.len());
        packet.push(LAST);
        packet.extend_from_slice(&(head.len() as u32).to_le_bytes());
        packet.extend_from_slice(&(message.segments.len() as u32).to_le_bytes());
        packet.push(u8::from(matches!(message.body, Body::Shared(_))));
        packet.extend_from_slice(head);
        let mut files: Vec<BorrowedFd<'_>> = Vec::new();
        for sealed in &*message.segments {
            files.push(descriptor(sealed)?);
        }
        match &message.body {
            Body::Here(bytes) => packet.extend_from_slice(bytes),
            Body::Shared(sealed) => files.push(descriptor(sealed)?),
        }
        let mut chunks = files.chunks(DESCRIPTORS).peekable();
        loop {
            let chunk = chunks.next().unwrap_or_default();
            let is_last = chunks.peek().is_none();
            self.packet(if is_last { &packet } else { &[MORE] }, chunk)?;
            if is_last {
                return Ok(());
            }
        }
    }

    fn packet(&self, bytes: &[u8], files: &[BorrowedFd<'_>]) -> Result<(), Option<Error>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(files)) {
            return Err(Some(Error::internal("too many descriptors in one packet")));
        }
        loop {
            return match sendmsg(&self.0, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL) {
                Ok(_) => Ok(()),
                Err(Errno::INTR) => continue,
                Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => Err(None),
                Err(error) => Err(Some(no_room(&format!("a packet of {} bytes", bytes.len()), &error.into()))),
            };
        }
    }

    /// Receives packets until `deadline`; an end of `beside` (a handle of a process) is an end too, once all was received.
    ///
    /// # Errors
    /// DATA_LOSS for a packet that is not one; RESOURCE_EXHAUSTED where there is no descriptor or memory left for it.
    pub fn receive<H: DeserializeOwned>(&self, deadline: Option<Instant>, beside: Option<BorrowedFd<'_>>) -> Result<Received<H>> {
        let mut files = Vec::new();
        let mut buffer = Vec::new();
        loop {
            if !self.wait(deadline, beside)? {
                return Ok(Received::Nothing);
            }
            buffer.resize(16 + HEAD + LONG, 0u8);
            let Some(count) = self.take(&mut buffer, &mut files)? else { return Ok(Received::End) };
            buffer.truncate(count);
            match buffer.first() {
                Some(&LAST) => break,
                Some(&MORE) => {}
                _ => return Err(Error::data_loss("a worker sent a damaged packet")),
            }
        }
        let broken = || Error::data_loss("a packet between a program and its worker is broken");
        let word = |at: usize| buffer.get(at..at + 4).and_then(|word| word.try_into().ok()).map(u32::from_le_bytes).ok_or_else(broken);
        let (head, segments) = (word(1)? as usize, word(5)? as usize);
        let body_is_shared = *buffer.get(9).ok_or_else(broken)? == 1;
        let (head, body) = buffer[10..].split_at_checked(head).ok_or_else(broken)?;
        if files.len() != segments + usize::from(body_is_shared) {
            let what = format!("{} pieces of shared memory, of which {} arrived", segments + usize::from(body_is_shared), files.len());
            return Err(no_room(&what, &Errno::MFILE.into()));
        }
        let mut sealed = files.into_iter().map(|file| Sealed::received(file.into()).map(Arc::new)).collect::<Result<Vec<_>>>()?;
        let body = match body_is_shared {
            true => Body::Shared(sealed.pop().ok_or_else(broken)?),
            false => Body::Here(body.into()),
        };
        let head = Message { body: Body::Here(head.into()), segments: Arc::default() };
        let head = head.read().map_err(|error| Error::data_loss(format!("a packet's head is broken: {error}")))?;
        Ok(Received::Packet(head, Message { body, segments: sealed.into() }))
    }

    /// Whether there is something to receive, or an end.
    fn wait(&self, deadline: Option<Instant>, beside: Option<BorrowedFd<'_>>) -> Result<bool> {
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let timeout = left.map(timespec);
            let mut ends = [PollFd::new(&self.0, PollFlags::IN), PollFd::from_borrowed_fd(beside.unwrap_or(self.0.as_fd()), PollFlags::IN)];
            let count = if beside.is_some() { 2 } else { 1 };
            match poll(&mut ends[..count], timeout.as_ref()) {
                Ok(0) => return Ok(false),
                Ok(_) => return Ok(true),
                Err(Errno::INTR) => {}
                Err(error) => return Err(Error::internal(format!("a worker cannot be waited for: {error}"))),
            }
        }
    }

    /// One packet's length, or none at the end.
    fn take(&self, buffer: &mut [u8], files: &mut Vec<OwnedFd>) -> Result<Option<usize>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let received = loop {
            match recvmsg(&self.0, &mut [IoSliceMut::new(buffer)], &mut ancillary, flags) {
                Err(Errno::INTR) => {}
                // The event that woke us is the other process's end.
                Err(Errno::AGAIN | Errno::CONNRESET) => return Ok(None),
                Err(error) => return Err(Error::internal(format!("a packet cannot be received: {error}"))),
                Ok(received) => break received,
            }
        };
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(more) = message {
                files.extend(more);
            }
        }
        Ok((received.bytes > 0).then_some(received.bytes))
    }

    /// Returns when the other end is closed.
    pub fn wait_for_end(&self) {
        loop {
            let mut end = [PollFd::new(&self.0, PollFlags::RDHUP)];
            match poll(&mut end, None) {
                Err(Errno::INTR) | Ok(0) => {}
                _ => return,
            }
        }
    }
}

fn descriptor(sealed: &Sealed) -> Result<BorrowedFd<'_>, Option<Error>> {
    sealed.file().map(|file| file.as_fd()).ok_or_else(|| Some(Error::internal("shared memory without a descriptor")))
}

fn timespec(duration: Duration) -> Timespec {
    Timespec { tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX), tv_nsec: i64::from(duration.subsec_nanos()) }
}

#[cfg(test)]
mod tests {
    use super::super::Bulk;
    use super::*;

    fn pair() -> (Channel, Channel) {
        let (one, other) = Channel::pair().unwrap();
        (one, Channel::from_end(other))
    }

    #[test]
    fn packets_arrive_whole_and_in_order() {
        let (one, other) = pair();
        let bulk = Bulk::from(vec![3u8; 1 << 20]);
        let many: Vec<Bulk<u8>> = (0..260).map(|_| bulk.clone()).collect();
        let sender = std::thread::spawn(move || {
            one.send(&"short", &Message::of(&1u8).unwrap()).unwrap();
            one.send(&"many", &Message::of(&many).unwrap()).unwrap();
            one.send(&"long", &Message::of(&vec![9u64; 100_000]).unwrap()).unwrap();
        });
        let next = || match other.receive::<String>(None, None).unwrap() {
            Received::Packet(head, message) => Some((head, message)),
            _ => None,
        };
        assert_eq!(next().map(|(head, message)| (head, message.read::<u8>().unwrap())).unwrap(), ("short".into(), 1));
        let (head, message) = next().unwrap();
        assert_eq!((head.as_str(), message.read::<Vec<Bulk<u8>>>().unwrap().len()), ("many", 260));
        drop(message);
        assert_eq!(next().unwrap().1.read::<Vec<u64>>().unwrap(), vec![9u64; 100_000]);
        sender.join().unwrap();
        assert!(next().is_none(), "the end");
    }

    #[test]
    fn nothing_comes_in_time_and_then_the_end() {
        let (one, other) = pair();
        let soon = || Some(Instant::now() + Duration::from_millis(5));
        assert!(matches!(other.receive::<u8>(soon(), None).unwrap(), Received::Nothing));
        rustix::net::send(&one.0, b"\x07rubbish", SendFlags::empty()).unwrap();
        assert!(other.receive::<u8>(soon(), None).is_err());
        rustix::net::send(&one.0, b"\x01\xff\xff\xff\xff\0\0\0\0\0", SendFlags::empty()).unwrap();
        assert!(other.receive::<u8>(soon(), None).is_err());
        drop(one);
        other.wait_for_end();
        assert!(matches!(other.receive::<u8>(None, None).unwrap(), Received::End));
        assert!(other.send(&1u8, &Message::of(&()).unwrap()).unwrap_err().is_none());
    }
}
