//! A file as a device: values of processors wait in it, so that memory is free for others. It computes nothing.
//!
//! [`SpillDevice`] is the device; its thread makes the copies of a plan's queue. `disk` is the file: without a name from the beginning,
//! with all of its blocks, read and written past the system's page cache where that can be. `store` brings any range of bytes to it by way
//! of a small buffer. `space` says which parts of the file a block has.

mod device;
mod disk;
mod space;
mod store;

pub use device::{NoKernels, SpillDevice};
