//! A checkpoint of either version.

use std::path::Path;

use plimsoll_base::Result;
use plimsoll_graph::HostTensor;

use super::{BundleReader, Entry, Slice, SliceReader, index_path};
use crate::object_graph::TrackableObjectGraph;

/// A checkpoint that is there to be read, of version 1 or 2.
#[derive(Debug)]
pub enum Checkpoint {
    /// Version 2.
    Bundle(BundleReader),
    /// Version 1.
    Slices(SliceReader),
}

impl Checkpoint {
    /// Opens the checkpoint `prefix`.
    ///
    /// # Errors
    /// As [`BundleReader::open`] and [`SliceReader::open`].
    pub fn open(prefix: impl AsRef<Path>) -> Result<Checkpoint> {
        let prefix = prefix.as_ref();
        match index_path(prefix).exists() || SliceReader::files(prefix).is_none() {
            true => BundleReader::open(prefix).map(Checkpoint::Bundle),
            false => SliceReader::open(prefix).map(Checkpoint::Slices),
        }
    }

    /// Whether files of a checkpoint `prefix` are there.
    pub fn exists(prefix: impl AsRef<Path>) -> bool {
        index_path(prefix.as_ref()).is_file() || SliceReader::files(prefix.as_ref()).is_some()
    }

    /// The names of all tensors, ascending.
    pub fn names(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        match self {
            Checkpoint::Bundle(reader) => Box::new(reader.names()),
            Checkpoint::Slices(reader) => Box::new(reader.names()),
        }
    }

    /// Whether there is a tensor of that name.
    pub fn contains(&self, name: &str) -> bool {
        match self {
            Checkpoint::Bundle(reader) => reader.contains(name),
            Checkpoint::Slices(reader) => reader.contains(name),
        }
    }

    /// The type and shape of a tensor.
    ///
    /// # Errors
    /// As [`BundleReader::entry`].
    pub fn entry(&self, name: &str) -> Result<Entry> {
        match self {
            Checkpoint::Bundle(reader) => reader.entry(name),
            Checkpoint::Slices(reader) => reader.entry(name),
        }
    }

    /// Reads a tensor.
    ///
    /// # Errors
    /// As [`BundleReader::read`].
    pub fn read(&self, name: &str) -> Result<HostTensor> {
        match self {
            Checkpoint::Bundle(reader) => reader.read(name),
            Checkpoint::Slices(reader) => reader.read(name),
        }
    }

    /// Reads a tensor of fixed-size elements, or a slice of it, piece by piece.
    ///
    /// # Errors
    /// As [`BundleReader::read_in_pieces`] and [`BundleReader::read_slice_in_pieces`].
    pub fn read_in_pieces(
        &self,
        name: &str,
        slice: Option<&Slice>,
        buffer: &mut [u8],
        give: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        match (self, slice) {
            (Checkpoint::Bundle(reader), None) => reader.read_in_pieces(name, buffer, give),
            (Checkpoint::Bundle(reader), Some(slice)) => reader.read_slice_in_pieces(name, slice, buffer, give),
            (Checkpoint::Slices(reader), None) => reader.read_in_pieces(name, give),
            (Checkpoint::Slices(reader), Some(slice)) => reader.read_slice_in_pieces(name, slice, give),
        }
    }

    /// Bytes that are in memory while a tensor is read, beside the buffer.
    pub fn beside_buffer(&self, name: &str) -> u64 {
        match self {
            Checkpoint::Bundle(_) => 0,
            Checkpoint::Slices(reader) => reader.largest_block(name).unwrap_or(0),
        }
    }

    /// The objects: see [`BundleReader::objects`].
    ///
    /// # Errors
    /// As [`BundleReader::objects`].
    pub fn objects(&self) -> Result<TrackableObjectGraph> {
        match self {
            Checkpoint::Bundle(reader) => reader.objects(),
            Checkpoint::Slices(_) => Ok(TrackableObjectGraph::default()),
        }
    }
}
