//! Reading a checkpoint.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{HostTensor, Shape};

use super::crc::Crc;
use super::ordered_code::slice_key;
use super::slices::{Rows, Slice, Window, check_cover, extents_of, insufficient, raw_extents};
use super::table::{Table, read_table};
use super::{
    BundleEntryProto, BundleHeaderProto, Entry, TensorSliceProto, VERSION, checked_shape, data_path, index_path, io_error, number_size,
    strings,
};
use crate::elements::swap_bytes;
use crate::message::decode;
use crate::object_graph::{OBJECT_GRAPH_KEY, TrackableObjectGraph, read_object_graph};
use crate::wire::Reader;

/// A checkpoint that is there to be read. Holds the index in memory and no file open.
#[derive(Debug)]
pub struct BundleReader {
    prefix: PathBuf,
    shards: i32,
    big_endian: bool,
    entries: BTreeMap<String, BundleEntryProto>,
    slices: Table,
}

impl BundleReader {
    /// Opens the checkpoint `prefix` (the part of its files' names before `.index`).
    ///
    /// # Errors
    /// NOT_FOUND where there is no index, DATA_LOSS where it is damaged, FAILED_PRECONDITION where it is of a later format.
    pub fn open(prefix: impl AsRef<Path>) -> Result<BundleReader> {
        let prefix = prefix.as_ref();
        let path = index_path(prefix);
        let index = plimsoll_base::read_file(&path).map_err(|error| io_error("reading", &path, error))?;
        BundleReader::from_index(prefix, &index).map_err(|error| error.context(path.display()))
    }

    /// A checkpoint whose index is at hand.
    ///
    /// # Errors
    /// As [`BundleReader::open`].
    pub fn from_index(prefix: impl AsRef<Path>, index: &[u8]) -> Result<BundleReader> {
        let mut table = read_table(index)?;
        let header = table.remove(&b""[..]).ok_or_else(|| Error::data_loss("the index has no header"))?;
        let header: BundleHeaderProto = decode(Reader::of_bytes(&header)).map_err(|flaw| Error::from(flaw.within("header")))?;
        if header.version.min_consumer > VERSION || header.version.bad_consumers.contains(&VERSION) {
            return Err(Error::failed_precondition(format!("the checkpoint wants a reader of version {}", header.version.min_consumer)));
        }
        if header.num_shards < 1 || !(0..=1).contains(&header.endianness) {
            return Err(Error::data_loss(format!("the header names {} shards and endianness {}", header.num_shards, header.endianness)));
        }
        // Keys of slices begin with an encoded 0.
        let slices = table.split_off(&b"\x01"[..]);
        let (plain, slices) = (slices, table);
        let mut entries = BTreeMap::new();
        for (key, value) in plain {
            let name = String::from_utf8(key).map_err(|_| Error::data_loss("the name of a tensor is not UTF-8"))?;
            let entry = decode(Reader::of_bytes(&value)).map_err(|flaw| Error::from(flaw).context(format!("'{name}'")))?;
            entries.insert(name, entry);
        }
        Ok(BundleReader {
            prefix: prefix.as_ref().to_path_buf(),
            shards: header.num_shards,
            big_endian: header.endianness == 1,
            entries,
            slices,
        })
    }

    /// The names of all tensors, ascending.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// Whether there is a tensor of that name.
    pub fn contains(&self, name: &str) -> bool {
        self.entries.contains_key(name)
    }

    /// The type and shape of a tensor.
    ///
    /// # Errors
    /// NOT_FOUND where there is none of that name; DATA_LOSS where the index makes no sense.
    pub fn entry(&self, name: &str) -> Result<Entry> {
        let entry = self.find(name)?;
        let data_type = DataType::from_number(entry.dtype)
            .ok_or_else(|| Error::data_loss(format!("'{name}' has type {}, which does not exist", entry.dtype)))?;
        let shape = checked_shape(entry.shape.as_ref()).map_err(|error| Error::data_loss(error.message()).context(format!("'{name}'")))?;
        Ok(Entry { data_type, shape })
    }

    /// Reads a tensor. One that was saved in slices is put together.
    ///
    /// # Errors
    /// NOT_FOUND where there is none of that name or its data file is missing. DATA_LOSS where bytes are missing or differ from
    /// their checksum. INVALID_ARGUMENT where slices do not cover it. UNIMPLEMENTED for resources and variants.
    pub fn read(&self, name: &str) -> Result<HostTensor> {
        let Entry { data_type, shape } = self.entry(name)?;
        let entry = self.find(name)?;
        let context = |error: Error| error.context(format!("'{name}'"));
        if !entry.slices.is_empty() {
            return self.assemble(name, entry, data_type, shape).map_err(context);
        }
        self.read_entry(entry, data_type, shape).map_err(context)
    }

    /// Reads a tensor of fixed-size elements into `out`, without a copy between.
    ///
    /// # Errors
    /// As [`BundleReader::read`]; INVALID_ARGUMENT where `out` is not exactly as long as the elements.
    pub fn read_into(&self, name: &str, out: &mut [u8]) -> Result<()> {
        let Entry { data_type, shape } = self.entry(name)?;
        let entry = self.find(name)?;
        if data_type.bytes_of(shape.elements()?) != Some(out.len() as u64) {
            return Err(Error::invalid_argument(format!("'{name}' is {data_type}{shape}, which {} bytes do not hold", out.len())));
        }
        if entry.slices.is_empty() && data_type != DataType::Bool {
            let extent = self.extent(entry, data_type, &shape);
            let read = extent.and_then(|extent| self.fill(extent, entry, data_type, out));
            return read.map_err(|error| error.context(format!("'{name}'")));
        }
        self.read(name)?.write_to(out)
    }

    /// Reads a tensor of fixed-size elements piece by piece: `give` gets the offset of every piece and its bytes. No more than
    /// `buffer` is held beside the file. One that was saved in slices comes slice by slice. The checksum is known at the end:
    /// where it differs, pieces were given before.
    ///
    /// # Errors
    /// As [`BundleReader::read`]; the error of `give`; INVALID_ARGUMENT where the buffer does not hold an element.
    pub fn read_in_pieces(&self, name: &str, buffer: &mut [u8], give: &mut dyn FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        let Entry { data_type, shape } = self.entry(name)?;
        let entry = self.find(name)?;
        let number = number_size(data_type)?;
        let usable = buffer.len() - buffer.len() % number;
        if usable == 0 {
            return Err(Error::invalid_argument(format!("a buffer of {} bytes holds no element of '{name}'", buffer.len())));
        }
        let buffer = &mut buffer[..usable];
        let read = match entry.slices.is_empty() {
            true => self.extent(entry, data_type, &shape).and_then(|extent| self.pieces(extent, entry, data_type, buffer, give)),
            false => self.stream_slices(name, entry, data_type, &shape, buffer, give),
        };
        read.map_err(|error| error.context(format!("'{name}'")))
    }

    /// Reads a slice of a tensor as [`BundleReader::read_in_pieces`] reads a tensor. Where the tensor was saved in slices and this is
    /// one of them, nothing else is read.
    ///
    /// # Errors
    /// As [`BundleReader::read_in_pieces`]; INVALID_ARGUMENT where the tensor has another shape than the slice says.
    pub fn read_slice_in_pieces(
        &self,
        name: &str,
        slice: &Slice,
        buffer: &mut [u8],
        give: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let Entry { data_type, shape } = self.entry(name)?;
        slice.check(name, &shape)?;
        let entry = self.find(name)?;
        let size = data_type.size().ok_or_else(|| Error::unimplemented(format!("slices of a {data_type} tensor are not read here")))?;
        let usable = buffer.len() - buffer.len() % size;
        let buffer = &mut buffer[..usable];
        for part in &entry.slices {
            let (extents, part) = self.slice(name, part, &shape)?;
            if extents == slice.extents && usable > 0 {
                let extent = self.extent(&part, data_type, &slice.shape());
                let read = extent.and_then(|extent| self.pieces(extent, &part, data_type, buffer, give));
                return read.map_err(|error| error.context(format!("'{name}'")));
            }
        }
        let window = Window::new(slice, size);
        self.read_in_pieces(name, buffer, &mut |at, bytes| window.each(at, bytes, give))
    }

    /// The objects of a checkpoint of TensorFlow 2. Of another one there are none.
    ///
    /// # Errors
    /// As [`BundleReader::read`]; the flaw of the objects.
    pub fn objects(&self) -> Result<TrackableObjectGraph> {
        if !self.contains(OBJECT_GRAPH_KEY) {
            return Ok(TrackableObjectGraph::default());
        }
        let tensor = self.read(OBJECT_GRAPH_KEY)?;
        let Some([bytes]) = tensor.strings() else {
            return Err(Error::data_loss(format!("'{OBJECT_GRAPH_KEY}' is not one string")));
        };
        read_object_graph(bytes).map_err(|error| error.context(OBJECT_GRAPH_KEY))
    }

    fn stream_slices(
        &self,
        name: &str,
        entry: &BundleEntryProto,
        data_type: DataType,
        shape: &Shape,
        buffer: &mut [u8],
        piece: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let size = data_type.size().ok_or_else(|| Error::unimplemented(format!("slices of a {data_type} tensor are not read here")))?;
        let parts = entry.slices.iter().map(|slice| self.slice(name, slice, shape)).collect::<Result<Vec<_>>>()?;
        let elements = shape.elements()?;
        check_cover(name, &parts.iter().map(|(extents, _)| &extents[..]).collect::<Vec<_>>(), elements)?;
        if data_type.bytes_of(elements).is_none() {
            return Err(insufficient(name));
        }
        if elements == 0 {
            return Ok(());
        }
        for (extents, part) in parts {
            let part_shape: Shape = extents.iter().map(|(_, length)| *length as u64).collect();
            let extent = self.extent(&part, data_type, &part_shape)?;
            let rows = Rows::new(&extents, shape, size);
            self.pieces(extent, &part, data_type, buffer, &mut |at, bytes| rows.each(at, bytes, piece))?;
        }
        Ok(())
    }

    /// The bytes of one entry of a data file, as [`BundleReader::read_in_pieces`] gives them.
    fn pieces(
        &self,
        mut extent: DataExtent,
        entry: &BundleEntryProto,
        data_type: DataType,
        buffer: &mut [u8],
        piece: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        extent.seek()?;
        let (mut at, mut crc) = (0usize, Crc::new());
        while at < extent.size {
            let length = buffer.len().min(extent.size - at);
            let bytes = &mut buffer[..length];
            extent.read_next(bytes)?;
            crc.update(bytes);
            if self.big_endian {
                swap_bytes(bytes, number_size(data_type)?);
            }
            if data_type == DataType::Bool {
                bytes.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
            }
            piece(at as u64, bytes)?;
            at += length;
        }
        self.check(crc, entry)
    }

    /// Whether the bytes of an entry are those that were written.
    fn check(&self, crc: Crc, entry: &BundleEntryProto) -> Result<()> {
        if crc.masked() == entry.crc32c.0 {
            return Ok(());
        }
        let path = data_path(&self.prefix, entry.shard_id, self.shards);
        let (size, offset) = (entry.size, entry.offset);
        Err(Error::data_loss(format!("{}: the checksum of its {size} bytes at {offset} differs from the index", path.display())))
    }

    fn find(&self, name: &str) -> Result<&BundleEntryProto> {
        self.entries.get(name).ok_or_else(|| Error::not_found(format!("Key {name} not found in checkpoint {}", self.prefix.display())))
    }

    fn read_entry(&self, entry: &BundleEntryProto, data_type: DataType, shape: Shape) -> Result<HostTensor> {
        match data_type {
            DataType::String => {
                let bytes = self.open_at(entry)?.read_all()?;
                let (values, crc) = strings::decode(&bytes, shape.elements()?)?;
                self.check(crc, entry)?;
                HostTensor::from_strings(shape, values)
            }
            DataType::Bool => {
                let extent = self.extent(entry, data_type, &shape)?;
                check_memory(extent.size as u64)?;
                let mut bytes = vec![0; extent.size];
                self.fill(extent, entry, data_type, &mut bytes)?;
                HostTensor::from_bytes(data_type, shape, &bytes)
            }
            _ => {
                let extent = self.extent(entry, data_type, &shape)?;
                check_memory(extent.size as u64)?;
                let mut tensor = HostTensor::zeros(data_type, shape)?;
                self.fill(extent, entry, data_type, tensor.bytes_mut().unwrap_or_default())?;
                Ok(tensor)
            }
        }
    }

    /// The bytes of a tensor in its file, after it is certain that the file has so many.
    fn extent(&self, entry: &BundleEntryProto, data_type: DataType, shape: &Shape) -> Result<DataExtent> {
        if data_type.size().is_none() {
            return Err(Error::unimplemented(format!("a {data_type} tensor cannot be restored here")));
        }
        let extent = self.open_at(entry)?;
        if data_type.bytes_of(shape.elements()?) != Some(extent.size as u64) {
            return Err(Error::data_loss(format!("{data_type}{shape} does not take the {} bytes that the index names", extent.size)));
        }
        Ok(extent)
    }

    fn fill(&self, extent: DataExtent, entry: &BundleEntryProto, data_type: DataType, out: &mut [u8]) -> Result<()> {
        if extent.size != out.len() {
            return Err(Error::internal("a buffer and its tensor differ in size"));
        }
        extent.read_into(out)?;
        self.check(Crc::of(out), entry)?;
        if self.big_endian {
            swap_bytes(out, number_size(data_type)?);
        }
        Ok(())
    }

    fn open_at(&self, entry: &BundleEntryProto) -> Result<DataExtent> {
        if !(0..self.shards).contains(&entry.shard_id) {
            return Err(Error::data_loss(format!("shard {} of {} is named", entry.shard_id, self.shards)));
        }
        let path = data_path(&self.prefix, entry.shard_id, self.shards);
        let file = plimsoll_base::open_file(&path).map_err(|error| io_error("opening", &path, error))?;
        let length = file.metadata().map_err(|error| io_error("reading", &path, error))?.len();
        let (offset, size) = (u64::try_from(entry.offset).ok(), u64::try_from(entry.size).ok());
        let (Some(offset), Some(size)) = (offset, size) else {
            return Err(Error::data_loss(format!("{} bytes at {} are named", entry.size, entry.offset)));
        };
        let fits = offset.checked_add(size).is_some_and(|end| end <= length);
        let Some(size) = usize::try_from(size).ok().filter(|_| fits) else {
            return Err(Error::data_loss(format!("{size} bytes at {offset} are named, but {} has {length}", path.display())));
        };
        Ok(DataExtent { file, path, offset, size })
    }

    fn assemble(&self, name: &str, entry: &BundleEntryProto, data_type: DataType, shape: Shape) -> Result<HostTensor> {
        let size = data_type.size().ok_or_else(|| Error::unimplemented(format!("slices of a {data_type} tensor are not read here")))?;
        let parts = entry.slices.iter().map(|slice| self.slice(name, slice, &shape)).collect::<Result<Vec<_>>>()?;
        // No tensor is larger than the files that hold it.
        let shards: BTreeSet<i32> = parts.iter().map(|(_, part)| part.shard_id).filter(|shard| (0..self.shards).contains(shard)).collect();
        let file_len = |shard: i32| std::fs::metadata(data_path(&self.prefix, shard, self.shards)).map_or(0, |data| data.len());
        let total = data_type.bytes_of(shape.elements()?).unwrap_or(u64::MAX);
        if total > shards.into_iter().map(file_len).fold(0, u64::saturating_add) {
            return Err(insufficient(name));
        }
        check_memory(total.saturating_add(total / size as u64))?;
        let mut tensor = HostTensor::zeros(data_type, shape.clone())?;
        let mut covered = vec![false; total as usize / size];
        for (extents, part) in parts {
            let part = self.read_entry(&part, data_type, extents.iter().map(|(_, length)| *length as u64).collect())?;
            if !copy_slice(part.bytes().unwrap_or_default(), &extents, &shape, size, tensor.bytes_mut().unwrap_or_default(), &mut covered) {
                return Err(Error::data_loss("slices overlap"));
            }
        }
        if covered.contains(&false) { Err(insufficient(name)) } else { Ok(tensor) }
    }

    /// Start and length of a slice in every dimension, and its entry in the index.
    fn slice(&self, name: &str, slice: &TensorSliceProto, shape: &Shape) -> Result<(Vec<(usize, usize)>, BundleEntryProto)> {
        let extents = extents_of(slice, shape)?;
        let key = slice_key(name, &raw_extents(slice));
        let part = self.slices.get(&key).ok_or_else(|| Error::data_loss("a slice that the index names is not there"))?;
        Ok((extents, decode(Reader::of_bytes(part)).map_err(Error::from)?))
    }
}

/// Whether this machine can hold so many bytes, which a file is known to have.
fn check_memory(bytes: u64) -> Result<()> {
    plimsoll_base::check_memory(bytes).map_err(|error| Error::resource_exhausted(error.to_string()))
}

/// Copies a dense slice into its place, row by row, and marks the elements that it covers; false where one was covered before.
fn copy_slice(part: &[u8], extents: &[(usize, usize)], shape: &Shape, size: usize, out: &mut [u8], covered: &mut [bool]) -> bool {
    if part.is_empty() {
        return true;
    }
    let (first, row) = extents.last().copied().unwrap_or((0, 1));
    for (index, bytes) in part.chunks_exact(row * size).enumerate() {
        let (mut rest, mut at, mut stride) = (index, first, 1);
        for axis in (0..extents.len().saturating_sub(1)).rev() {
            let (start, length) = extents[axis];
            stride *= shape[axis + 1] as usize;
            at += (start + rest % length) * stride;
            rest /= length;
        }
        if covered[at..at + row].contains(&true) {
            return false;
        }
        covered[at..at + row].fill(true);
        out[at * size..(at + row) * size].copy_from_slice(bytes);
    }
    true
}

/// Bytes of a data file that are known to be there.
struct DataExtent {
    file: File,
    path: PathBuf,
    offset: u64,
    size: usize,
}

impl DataExtent {
    fn read_all(self) -> Result<Vec<u8>> {
        check_memory(self.size as u64)?;
        let mut bytes = vec![0; self.size];
        self.read_into(&mut bytes)?;
        Ok(bytes)
    }

    fn read_into(mut self, out: &mut [u8]) -> Result<()> {
        self.seek()?;
        self.read_next(out)
    }

    /// Goes to the first byte.
    fn seek(&mut self) -> Result<()> {
        self.file.seek(SeekFrom::Start(self.offset)).map(drop).map_err(|error| io_error("reading", &self.path, error))
    }

    /// The bytes that follow.
    fn read_next(&mut self, out: &mut [u8]) -> Result<()> {
        self.file.read_exact(out).map_err(|error| io_error("reading", &self.path, error))
    }
}
