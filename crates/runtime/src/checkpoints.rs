//! The place where runs read and write checkpoints; the maker of a session decides it.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::Shape;

/// Takes bytes, each piece with its place.
pub type Sink<'a> = dyn FnMut(u64, &[u8]) -> Result<()> + 'a;

/// Hands bytes over piece by piece, in order.
pub type Source<'a> = dyn FnMut(&mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> + 'a;

/// The files that RestoreV2 reads and SaveV2 writes.
pub trait Checkpoints: Send + Sync {
    /// The checkpoint `prefix`, to read.
    ///
    /// # Errors
    /// NOT_FOUND where there is none; DATA_LOSS.
    fn open(&self, prefix: &str) -> Result<Box<dyn CheckpointReader>>;

    /// A checkpoint `prefix`, to write; it is there when it is finished, and one that was there before stays until then.
    ///
    /// # Errors
    /// The file system's error.
    fn create(&self, prefix: &str) -> Result<Box<dyn CheckpointWriter>>;
}

/// A checkpoint that is read.
pub trait CheckpointReader: Send + Sync {
    /// Type and shape of a tensor.
    ///
    /// # Errors
    /// NOT_FOUND where there is none of that name; DATA_LOSS.
    fn entry(&self, name: &str) -> Result<(DataType, Shape)>;

    /// Hands out the bytes of a tensor through `buffer`, which has 64 bytes at least. Whether they are those that were written is
    /// known at the end.
    ///
    /// # Errors
    /// As [`CheckpointReader::entry`], and those of `sink`.
    fn stream(&self, name: &str, buffer: &mut [u8], sink: &mut Sink<'_>) -> Result<()>;
}

/// A checkpoint that is written. One that is dropped before it is finished leaves nothing behind.
pub trait CheckpointWriter {
    /// Adds a tensor.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for a name that is there already; the file system's error; those of `source`.
    fn add(&mut self, name: &str, data_type: DataType, shape: &Shape, source: &mut Source<'_>) -> Result<()>;

    /// Puts the checkpoint under its name.
    ///
    /// # Errors
    /// The file system's error.
    fn finish(self: Box<Self>) -> Result<()>;
}

/// No files.
#[derive(Debug)]
pub(crate) struct None;

impl Checkpoints for None {
    fn open(&self, _: &str) -> Result<Box<dyn CheckpointReader>> {
        Err(missing())
    }

    fn create(&self, _: &str) -> Result<Box<dyn CheckpointWriter>> {
        Err(missing())
    }
}

fn missing() -> Error {
    Error::failed_precondition("the session was made without access to files")
}
