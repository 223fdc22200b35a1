//! Writing a checkpoint, tensor by tensor.

use std::collections::btree_map::Entry as Slot;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{HostTensor, Shape, Versions};

use super::crc::Crc;
use super::table::{Table, write_table};
use super::{BundleEntryProto, BundleHeaderProto, VERSION, data_path, index_path, io_error, strings, sync_folder_of, with_suffix};
use crate::elements::for_each_piece;
use crate::message::{Fixed32, encode};
use crate::tensor_proto::TensorShapeProto;

/// Hands over the bytes of a tensor piece by piece, in order.
pub type Pieces<'a> = dyn FnMut(&mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> + 'a;

/// A checkpoint that is being written. Data goes to the disk as it comes; only the index is held. Until
/// [`BundleWriter::finish`] nothing stands under the final names, and a writer that is dropped leaves nothing behind.
#[derive(Debug)]
pub struct BundleWriter {
    prefix: PathBuf,
    data: Option<BufWriter<File>>,
    data_path: PathBuf,
    index_path: PathBuf,
    offset: u64,
    entries: Table,
}

impl BundleWriter {
    /// Begins the checkpoint `prefix`; the folder is made if it is not there.
    ///
    /// # Errors
    /// The file system's error.
    pub fn create(prefix: impl AsRef<Path>) -> Result<BundleWriter> {
        let prefix = prefix.as_ref();
        if let Some(folder) = prefix.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder).map_err(|error| io_error("making", folder, error))?;
        }
        let (data, number) = create_temporary(&data_path(prefix, 0, 1))?;
        let temporary = |path: PathBuf| temporary_path(&path, number);
        let (data_path, index_path) = (temporary(data_path(prefix, 0, 1)), temporary(index_path(prefix)));
        Ok(BundleWriter {
            prefix: prefix.to_path_buf(),
            data: Some(BufWriter::new(data)),
            data_path,
            index_path,
            offset: 0,
            entries: Table::new(),
        })
    }

    /// Adds a tensor. A compressed one is not made whole in memory.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where the name is empty, begins with a zero byte or was added before; UNIMPLEMENTED for resources and
    /// variants; the file system's error.
    pub fn add(&mut self, name: &str, tensor: &HostTensor) -> Result<()> {
        self.entry(name, tensor.data_type(), tensor.shape(), |writer| writer.write(tensor))
    }

    /// Adds a tensor of fixed-size elements, whose bytes `fill` hands over piece by piece, in order.
    ///
    /// # Errors
    /// As [`BundleWriter::add`], and those of `fill`; INTERNAL where it hands over another number of bytes than the tensor has.
    pub fn add_pieces(&mut self, name: &str, data_type: DataType, shape: &Shape, fill: &mut Pieces<'_>) -> Result<()> {
        let bytes = data_type.bytes_of(shape.elements()?);
        let bytes = bytes.ok_or_else(|| Error::unimplemented(format!("a {data_type} tensor cannot be saved in pieces")))?;
        self.entry(name, data_type, shape, |writer| {
            let (first, mut crc) = (writer.offset, Crc::new());
            fill(&mut |piece| {
                crc.update(piece);
                writer.put(piece)
            })?;
            match writer.offset - first == bytes {
                true => Ok(crc),
                false => Err(Error::internal(format!("{} bytes are not {data_type}{shape}", writer.offset - first))),
            }
        })
    }

    fn entry(&mut self, name: &str, data_type: DataType, shape: &Shape, write: impl FnOnce(&mut Self) -> Result<Crc>) -> Result<()> {
        if name.is_empty() || name.starts_with('\0') {
            return Err(Error::invalid_argument(format!("'{}' cannot name a tensor of a checkpoint", name.escape_debug())));
        }
        if self.entries.contains_key(name.as_bytes()) {
            return Err(Error::invalid_argument(format!("Adding duplicate key: {name}")));
        }
        let offset = self.offset;
        let crc = write(self).map_err(|error| error.context(format!("'{name}'")))?;
        let entry = BundleEntryProto {
            dtype: data_type.number(),
            shape: Some(TensorShapeProto::from(shape)),
            offset: offset as i64,
            size: (self.offset - offset) as i64,
            crc32c: Fixed32(crc.masked()),
            ..BundleEntryProto::default()
        };
        if let Slot::Vacant(slot) = self.entries.entry(name.as_bytes().to_vec()) {
            slot.insert(encode(&entry));
        }
        Ok(())
    }

    /// Writes the index and puts both files under their names, the index last.
    ///
    /// # Errors
    /// The file system's error.
    pub fn finish(mut self) -> Result<()> {
        let header = BundleHeaderProto { num_shards: 1, endianness: 0, version: Versions { producer: VERSION, ..Versions::default() } };
        self.entries.insert(Vec::new(), encode(&header));
        let failed = |path: &Path| {
            let path = path.to_path_buf();
            move |error| io_error("writing", &path, error)
        };
        let Some(data) = self.data.take() else { return Err(Error::internal("a checkpoint was finished twice")) };
        let data = data.into_inner().map_err(|error| failed(&self.data_path)(error.into_error()))?;
        data.sync_all().map_err(failed(&self.data_path))?;
        let mut index = BufWriter::new(plimsoll_base::create_file(&self.index_path).map_err(failed(&self.index_path))?);
        write_table(&self.entries, &mut index).map_err(failed(&self.index_path))?;
        let index = index.into_inner().map_err(|error| failed(&self.index_path)(error.into_error()))?;
        index.sync_all().map_err(failed(&self.index_path))?;
        for (from, to) in [(&self.data_path, data_path(&self.prefix, 0, 1)), (&self.index_path, index_path(&self.prefix))] {
            std::fs::rename(from, &to).map_err(failed(&to))?;
        }
        sync_folder_of(&self.prefix)
    }

    fn write(&mut self, tensor: &HostTensor) -> Result<Crc> {
        if let Some(values) = tensor.strings() {
            let (bytes, crc) = strings::encode(values);
            self.put(&bytes)?;
            return Ok(crc);
        }
        if matches!(tensor.data_type(), DataType::Resource | DataType::Variant | DataType::String) {
            return Err(Error::unimplemented(format!("a {} tensor cannot be saved here", tensor.data_type())));
        }
        let mut crc = Crc::new();
        for_each_piece(tensor, |bytes| {
            crc.update(bytes);
            self.put(bytes)
        })?;
        Ok(crc)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        let Some(data) = &mut self.data else { return Err(Error::internal("a checkpoint was written to after its end")) };
        data.write_all(bytes).map_err(|error| io_error("writing", &self.data_path, error))?;
        self.offset += bytes.len() as u64;
        Ok(())
    }
}

/// A file beside `path` that no other process writes, and the number in its name.
fn create_temporary(path: &Path) -> Result<(File, u32)> {
    let mut number = 0;
    loop {
        let temporary = temporary_path(path, number);
        match File::create_new(&temporary) {
            Ok(file) => return Ok((file, number)),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && number < 1000 => number += 1,
            Err(error) => return Err(io_error("writing", &temporary, error)),
        }
    }
}

fn temporary_path(path: &Path, number: u32) -> PathBuf {
    with_suffix(path, &format!(".tempstate{}-{number}", std::process::id()))
}

impl Drop for BundleWriter {
    fn drop(&mut self) {
        // After `finish` these names are gone already.
        let _ = std::fs::remove_file(&self.data_path);
        let _ = std::fs::remove_file(&self.index_path);
    }
}
