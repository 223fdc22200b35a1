//! Messages between a program and its workers: values as bytes, long ones as shared memory, packets over a socket.
//!
//! Both ends are the same executable, so the form needs no versions and no names: numbers have their size, little-endian, sequences
//! their length before them. A run of bytes of [`LONG`] or more is not copied into the stream. It becomes a sealed file in memory
//! of its own, whose descriptor goes with the packet.

mod bulk;
mod channel;
mod error;
mod message;
mod reader;
mod writer;

pub use bulk::Bulk;
pub(crate) use channel::{Channel, Received};
pub(crate) use error::WireError;
pub(crate) use message::Message;

/// From this many bytes on, a run of bytes has shared memory of its own.
pub(crate) const LONG: usize = 64 << 10;

/// Values inside values, at most: the stack of the reader is not the stack of the writer.
const DEEPEST: usize = 512;
