//! Several checkpoints made one, as TensorFlow's MergeV2Checkpoints does after a sharded save.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;
use std::io::Write;
use std::path::{Path, PathBuf};

use plimsoll_base::{Error, Result};

use super::table::{Table, read_table, write_table};
use super::{BundleEntryProto, BundleHeaderProto, data_path, index_path, io_error, with_suffix};
use crate::message::{decode, encode};
use crate::wire::Reader;

/// Makes one checkpoint of several. Data files are renamed to shards of `destination`, in the order in which tensors name them. One
/// index is written and the old ones are deleted.
///
/// # Errors
/// INVALID_ARGUMENT where there is nothing to merge, where the checkpoints were not written alike, or where two hold the same whole
/// tensor. Otherwise as [`super::BundleReader::open`]. Where an index is at fault, no file has been touched yet.
pub fn merge<P: AsRef<Path>>(prefixes: &[P], destination: impl AsRef<Path>) -> Result<()> {
    let destination = destination.as_ref();
    let mut merged = Merged::default();
    for prefix in prefixes {
        let path = index_path(prefix.as_ref());
        let index = plimsoll_base::read_file(&path).map_err(|error| io_error("reading", &path, error))?;
        merged.add(prefix.as_ref(), read_table(&index)?).map_err(|error| error.context(path.display()))?;
    }
    let Some(mut header) = merged.header else { return Err(Error::invalid_argument("there is no checkpoint to merge")) };
    header.num_shards = merged.shards.len() as i32;
    let mut table: Table = merged.entries.into_iter().map(|(key, entry)| (key, encode(&entry))).collect();
    table.insert(Vec::new(), encode(&header));
    for (file, shard) in &merged.shards {
        let to = data_path(destination, *shard, header.num_shards);
        std::fs::rename(file, &to).map_err(|error| io_error("renaming", file, error))?;
    }
    let (path, temporary) = (index_path(destination), with_suffix(&index_path(destination), &format!(".tempstate{}", std::process::id())));
    let mut bytes = Vec::new();
    let written = write_table(&table, &mut bytes).and_then(|()| plimsoll_base::create_file(&temporary)?.write_all(&bytes));
    written.and_then(|()| std::fs::rename(&temporary, &path)).map_err(|error| {
        let _ = std::fs::remove_file(&temporary);
        io_error("writing", &path, error)
    })?;
    for prefix in prefixes.iter().map(AsRef::as_ref).filter(|prefix| *prefix != destination) {
        let path = index_path(prefix);
        std::fs::remove_file(&path).map_err(|error| io_error("deleting", &path, error))?;
    }
    Ok(())
}

#[derive(Default)]
struct Merged {
    header: Option<BundleHeaderProto>,
    entries: BTreeMap<Vec<u8>, BundleEntryProto>,
    /// Data files with the shards that they become.
    shards: BTreeMap<PathBuf, i32>,
}

impl Merged {
    fn add(&mut self, prefix: &Path, mut table: Table) -> Result<()> {
        let header = table.remove(&b""[..]).ok_or_else(|| Error::data_loss("the index has no header"))?;
        let header: BundleHeaderProto = decode(Reader::of_bytes(&header)).map_err(Error::from)?;
        let shards = header.num_shards;
        let first = self.header.get_or_insert_with(|| header.clone());
        if (first.endianness, &first.version) != (header.endianness, &header.version) {
            return Err(Error::invalid_argument("the checkpoints differ in byte order or version"));
        }
        for (key, value) in table {
            let mut entry: BundleEntryProto = decode(Reader::of_bytes(&value)).map_err(Error::from)?;
            if entry.slices.is_empty() {
                if !(0..shards).contains(&entry.shard_id) {
                    return Err(Error::data_loss(format!("shard {} of {shards} is named", entry.shard_id)));
                }
                let next = self.shards.len() as i32;
                entry.shard_id = *self.shards.entry(data_path(prefix, entry.shard_id, shards)).or_insert(next);
            }
            match self.entries.entry(key) {
                Slot::Vacant(slot) => {
                    slot.insert(entry);
                }
                Slot::Occupied(mut slot) => {
                    let (old, name) = (slot.get(), String::from_utf8_lossy(slot.key()).into_owned());
                    if entry.slices.is_empty() || old.slices.is_empty() {
                        return Err(Error::invalid_argument(format!("two checkpoints hold '{name}'")));
                    }
                    if (old.dtype, &old.shape) != (entry.dtype, &entry.shape) {
                        return Err(Error::invalid_argument(format!(
                            "two checkpoints hold slices of '{name}' of different types or shapes"
                        )));
                    }
                    slot.get_mut().slices.append(&mut entry.slices);
                }
            }
        }
        Ok(())
    }
}
