//! TensorFlow's checkpoints. Version 2, "tensor bundles": `P.index`, a sorted table of the tensors, and `P.data-SSSSS-of-NNNNN`, the
//! bytes. Version 1: tables that hold the bytes themselves. Every byte that is read is held against its checksum.

mod checkpoint;
mod crc;
mod merge;
mod ordered_code;
mod reader;
mod slices;
mod state;
mod strings;
mod table;
mod version1;
mod writer;

use std::path::{Path, PathBuf};

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::Shape;

use crate::message::{Fixed32, message};
use crate::tensor_proto::TensorShapeProto;

pub use checkpoint::Checkpoint;
pub use merge::merge;
pub use reader::BundleReader;
pub use slices::Slice;
pub use state::{CheckpointState, latest_checkpoint, read_checkpoint_state, write_checkpoint_state};
pub use version1::SliceReader;
pub use writer::{BundleWriter, Pieces};

/// The index's entry of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its type.
    pub data_type: DataType,
    /// Its shape.
    pub shape: Shape,
}

/// The version of the format that is written here, and the highest that is read.
const VERSION: i32 = 1;

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct BundleHeaderProto {
    num_shards: i32,
    endianness: i32,
    version: plimsoll_graph::Versions,
}
message! { impl BundleHeaderProto { 1 num_shards "num_shards", 2 endianness "endianness", 3 version "version", } }

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct BundleEntryProto {
    dtype: i32,
    shape: Option<TensorShapeProto>,
    shard_id: i32,
    offset: i64,
    size: i64,
    crc32c: Fixed32,
    slices: Vec<TensorSliceProto>,
}
message! { impl BundleEntryProto {
    1 dtype "dtype", 2 shape "shape", 3 shard_id "shard_id", 4 offset "offset", 5 size "size", 6 crc32c "crc32c", 7 slices "slices",
} }

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TensorSliceProto {
    extent: Vec<Extent>,
}
message! { impl TensorSliceProto { 1 extent "extent", } }

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Extent {
    start: i64,
    length: Option<i64>,
}
message! { impl Extent { 1 start "start", 2 length "length", } }

/// `P.index`.
fn index_path(prefix: &Path) -> PathBuf {
    with_suffix(prefix, ".index")
}

/// `P.data-SSSSS-of-NNNNN`.
fn data_path(prefix: &Path, shard: i32, shards: i32) -> PathBuf {
    with_suffix(prefix, &format!(".data-{shard:05}-of-{shards:05}"))
}

fn with_suffix(prefix: &Path, suffix: &str) -> PathBuf {
    let mut path = prefix.as_os_str().to_os_string();
    path.push(suffix);
    PathBuf::from(path)
}

/// Puts `bytes` into the file `path`, which may exist already. Whenever the process or the machine ends, either the old or the new
/// bytes are there as a whole.
///
/// # Errors
/// The file system's error.
pub fn replace_file(path: &Path, bytes: &[u8]) -> Result<()> {
    let temporary = with_suffix(path, &format!(".tmp{}", std::process::id()));
    let write = || {
        let mut file = plimsoll_base::create_file(&temporary)?;
        std::io::Write::write_all(&mut file, bytes)?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)
    };
    write().map_err(|error| {
        let _ = std::fs::remove_file(&temporary);
        io_error("writing", path, error)
    })?;
    sync_folder_of(path)
}

/// Makes names that were given in the folder of `path` outlast a crash of the machine.
fn sync_folder_of(path: &Path) -> Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let synced = std::fs::File::open(folder).and_then(|folder| folder.sync_all());
    match synced {
        // Some file systems have no such call for folders.
        Err(error) if !matches!(error.kind(), std::io::ErrorKind::InvalidInput | std::io::ErrorKind::Unsupported) => {
            Err(io_error("writing", folder, error))
        }
        _ => Ok(()),
    }
}

/// The error for a file that cannot be used, by the system's error.
fn io_error(what: &str, path: &Path, error: std::io::Error) -> Error {
    let message = format!("{what} {} failed: {error}", path.display());
    Error::new(plimsoll_base::file_error(path, &error).code(), message)
}

/// How many bytes one number of an element takes, for turning them around.
///
/// # Errors
/// UNIMPLEMENTED for elements without a fixed size.
fn number_size(data_type: DataType) -> Result<usize> {
    data_type.number_size().ok_or_else(|| Error::unimplemented(format!("elements of {data_type} have no fixed size")))
}

fn checked_shape(shape: Option<&TensorShapeProto>) -> Result<Shape> {
    shape.map_or_else(|| Ok(Shape::scalar()), TensorShapeProto::to_shape)
}
