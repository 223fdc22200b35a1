//! Checkpoints of version 1: one file, or several (`P-00000-of-00003`), each a sorted table. The entry under the empty key names the
//! tensors and their slices; each slice is an entry of its own, a TensorProto. A block is held against its checksum when it is read.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{HostTensor, Shape, Versions};

use super::ordered_code::slice_key;
use super::slices::{Rows, Slice, Window, check_cover, extents_of, insufficient, raw_extents};
use super::table::{Blocks, find_entry};
use super::{Entry, TensorSliceProto, io_error};
use crate::message::{decode, message};
use crate::tensor_proto::{TensorShapeProto, each_value, string_values};
use crate::wire::Reader;

/// The version of the format that is read.
const VERSION: i32 = 1;

#[derive(Clone, Debug, Default, PartialEq)]
struct SavedTensorSlices {
    meta: SavedTensorSliceMeta,
}
message! { impl SavedTensorSlices { 1 meta "meta", } }

#[derive(Clone, Debug, Default, PartialEq)]
struct SavedTensorSliceMeta {
    tensor: Vec<SavedSliceMeta>,
    versions: Versions,
}
message! { impl SavedTensorSliceMeta { 1 tensor "tensor", 2 versions "versions", } }

#[derive(Clone, Debug, Default, PartialEq)]
struct SavedSliceMeta {
    name: String,
    shape: TensorShapeProto,
    data_type: i32,
    slice: Vec<TensorSliceProto>,
}
message! { impl SavedSliceMeta { 1 name "name", 2 shape "shape", 3 data_type "type", 4 slice "slice", } }

/// A tensor of the checkpoint.
#[derive(Debug)]
struct Tensor {
    data_type: i32,
    shape: TensorShapeProto,
    /// Each with the file that has it.
    slices: Vec<(usize, TensorSliceProto)>,
}

/// A checkpoint of version 1 that is there to be read. Holds names and places in memory and no file open.
#[derive(Debug)]
pub struct SliceReader {
    prefix: PathBuf,
    files: Vec<(PathBuf, Blocks)>,
    tensors: BTreeMap<String, Tensor>,
}

impl SliceReader {
    /// The files of the checkpoint `prefix`: itself, or its shards. None where there is neither, or a shard is missing.
    pub fn files(prefix: &Path) -> Option<Vec<PathBuf>> {
        if prefix.is_file() {
            return Some(vec![prefix.to_path_buf()]);
        }
        let start = format!("{}-", prefix.file_name()?.to_str()?);
        let folder = prefix.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut shards: Vec<(usize, usize, PathBuf)> = Vec::new();
        for entry in std::fs::read_dir(folder).ok()?.flatten() {
            let name = entry.file_name();
            let Some((index, count)) = name.to_str().and_then(|name| name.strip_prefix(&start)?.split_once("-of-")) else { continue };
            let number = |text: &str| text.parse().ok().filter(|_| text.len() >= 5 && text.bytes().all(|byte| byte.is_ascii_digit()));
            if let (Some(index), Some(count)) = (number(index), number(count)) {
                shards.push((count, index, entry.path()));
            }
        }
        shards.sort();
        let count = shards.first()?.0;
        let is_whole = shards.len() == count && shards.iter().enumerate().all(|(at, (of, index, _))| *of == count && *index == at);
        is_whole.then(|| shards.into_iter().map(|(.., path)| path).collect())
    }

    /// Opens the checkpoint `prefix`.
    ///
    /// # Errors
    /// NOT_FOUND where it is not there, or a shard is not; DATA_LOSS where a file is damaged; FAILED_PRECONDITION where it is of a
    /// later format.
    pub fn open(prefix: &Path) -> Result<SliceReader> {
        let files = SliceReader::files(prefix);
        let files =
            files.ok_or_else(|| Error::not_found(format!("there is no checkpoint {}, or not all of its files", prefix.display())))?;
        let mut reader = SliceReader { prefix: prefix.to_path_buf(), files: Vec::new(), tensors: BTreeMap::new() };
        for path in files {
            reader.add(&path).map_err(|error| error.context(path.display()))?;
        }
        Ok(reader)
    }

    fn add(&mut self, path: &Path) -> Result<()> {
        let mut file = open_file(path)?;
        let blocks = Blocks::read(&mut file)?;
        let no_names = || Error::data_loss("it does not name its tensors");
        let (block, _) = blocks.block_of(b"", &mut file)?.ok_or_else(no_names)?;
        let names = find_entry(&block, b"")?.ok_or_else(no_names)?;
        let names: SavedTensorSlices = decode(Reader::of_bytes(names)).map_err(Error::from)?;
        let versions = &names.meta.versions;
        if versions.min_consumer > VERSION || versions.bad_consumers.contains(&VERSION) {
            return Err(Error::failed_precondition(format!("the checkpoint wants a reader of version {}", versions.min_consumer)));
        }
        let number = self.files.len();
        for SavedSliceMeta { name, shape, data_type, slice } in names.meta.tensor {
            let slices = slice.into_iter().map(|slice| (number, slice));
            match self.tensors.get_mut(&name) {
                None => drop(self.tensors.insert(name, Tensor { data_type, shape, slices: slices.collect() })),
                Some(known) if (known.data_type, &known.shape) == (data_type, &shape) => known.slices.extend(slices),
                Some(_) => return Err(Error::data_loss(format!("'{name}' has slices of different types or shapes"))),
            }
        }
        self.files.push((path.to_path_buf(), blocks));
        Ok(())
    }

    /// The names of all tensors, ascending.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Whether there is a tensor of that name.
    pub fn contains(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// The type and shape of a tensor.
    ///
    /// # Errors
    /// NOT_FOUND where there is none of that name; DATA_LOSS where they make no sense.
    pub fn entry(&self, name: &str) -> Result<Entry> {
        let tensor = self.find(name)?;
        let data_type = DataType::from_number(tensor.data_type)
            .ok_or_else(|| Error::data_loss(format!("'{name}' has type {}, which does not exist", tensor.data_type)))?;
        let shape = tensor.shape.to_shape().map_err(|error| Error::data_loss(error.message()).context(format!("'{name}'")))?;
        Ok(Entry { data_type, shape })
    }

    /// The bytes of the greatest block that reading the tensor brings into memory; none where there is no such tensor.
    pub fn largest_block(&self, name: &str) -> Option<u64> {
        let size = |(file, slice): &(usize, TensorSliceProto)| self.files[*file].1.size_of(&slice_key(name, &raw_extents(slice)));
        self.tensors.get(name)?.slices.iter().filter_map(size).max()
    }

    /// Reads a tensor.
    ///
    /// # Errors
    /// As [`super::BundleReader::read`].
    pub fn read(&self, name: &str) -> Result<HostTensor> {
        let Entry { data_type, shape } = self.entry(name)?;
        if data_type == DataType::String {
            return self.read_strings(name, shape).map_err(|error| error.context(format!("'{name}'")));
        }
        // A number takes a byte of a block at least, and a block at most 22 times what it takes in the file.
        let known: u64 = self.files.iter().filter_map(|(path, _)| Some(std::fs::metadata(path).ok()?.len())).sum();
        let bytes = data_type.bytes_of(shape.elements()?).filter(|bytes| *bytes <= known.saturating_mul(8 * 22));
        let bytes = bytes.ok_or_else(|| insufficient(name))?;
        plimsoll_base::check_memory(bytes).map_err(|error| Error::resource_exhausted(error.to_string()))?;
        let mut tensor = HostTensor::zeros(data_type, shape)?;
        let out = tensor.bytes_mut().unwrap_or_default();
        self.read_in_pieces(name, &mut |at, piece| {
            let at = at as usize;
            let place = out.get_mut(at..at + piece.len()).ok_or_else(|| Error::internal("a piece beyond its tensor"))?;
            place.copy_from_slice(piece);
            Ok(())
        })?;
        Ok(tensor)
    }

    fn read_strings(&self, name: &str, shape: Shape) -> Result<HostTensor> {
        let [(file, slice)] = &self.find(name)?.slices[..] else {
            return Err(Error::unimplemented("slices of a string tensor are not read here"));
        };
        if extents_of(slice, &shape)?.iter().zip(shape.iter()).any(|((_, length), dim)| *length as u64 != *dim) {
            return Err(insufficient(name));
        }
        let values = self.with_slice(name, *file, slice, string_values)?;
        HostTensor::from_strings(shape, values).map_err(|error| Error::data_loss(error.message()))
    }

    /// Reads a tensor piece by piece: `give` gets the offset of every piece and its bytes. One block of the file is in memory at a
    /// time; TensorFlow puts no more than one great tensor in a block.
    ///
    /// # Errors
    /// As [`super::BundleReader::read_in_pieces`]. A block that is damaged gives nothing.
    pub fn read_in_pieces(&self, name: &str, give: &mut dyn FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        self.stream(name, None, give).map_err(|error| error.context(format!("'{name}'")))
    }

    /// Reads a slice of a tensor as [`SliceReader::read_in_pieces`] reads a tensor. Slices that have no part in it are not read.
    ///
    /// # Errors
    /// As [`SliceReader::read_in_pieces`]; INVALID_ARGUMENT where the tensor has another shape than the slice says.
    pub fn read_slice_in_pieces(&self, name: &str, slice: &Slice, give: &mut dyn FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        self.stream(name, Some(slice), give).map_err(|error| error.context(format!("'{name}'")))
    }

    fn stream(&self, name: &str, wanted: Option<&Slice>, give: &mut dyn FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        let Entry { data_type, shape } = self.entry(name)?;
        let size = data_type.size().ok_or_else(|| Error::unimplemented(format!("a {data_type} tensor cannot be restored here")))?;
        if let Some(slice) = wanted {
            slice.check(name, &shape)?;
        }
        let tensor = self.find(name)?;
        let parts = tensor.slices.iter().map(|(_, slice)| extents_of(slice, &shape)).collect::<Result<Vec<_>>>()?;
        let elements = shape.elements()?;
        check_cover(name, &parts.iter().map(Vec::as_slice).collect::<Vec<_>>(), elements)?;
        if elements == 0 {
            return Ok(());
        }
        for ((file, slice), extents) in tensor.slices.iter().zip(&parts) {
            let total = extents.iter().map(|(_, length)| *length as u64).product::<u64>();
            let is_apart = |wanted: &Slice| extents.iter().zip(&wanted.extents).any(|(a, b)| a.0.max(b.0) >= (a.0 + a.1).min(b.0 + b.1));
            if total == 0 || wanted.is_some_and(is_apart) {
                continue;
            }
            let bytes = data_type.bytes_of(total).ok_or_else(|| insufficient(name))?;
            let rows = Rows::new(extents, &shape, size);
            self.with_slice(name, *file, slice, |proto| {
                let mut at = 0u64;
                let window = wanted.map(|wanted| Window::new(wanted, size));
                each_value(data_type, proto, &mut |values| {
                    let values = if data_type == DataType::Bool { &normalised(values)[..] } else { values };
                    let end = at.saturating_add(values.len() as u64);
                    if end > bytes || values.len() % size != 0 {
                        return Err(Error::data_loss(format!("its values do not take {bytes} bytes")));
                    }
                    rows.each(at, values, &mut |place, row| match &window {
                        Some(window) => window.each(place, row, give),
                        None => give(place, row),
                    })?;
                    at = end;
                    Ok(())
                })?;
                match at == bytes {
                    true => Ok(()),
                    false => Err(Error::data_loss(format!("its values take {at} bytes, not {bytes}"))),
                }
            })?;
        }
        Ok(())
    }

    /// Does something with the values of a slice.
    fn with_slice<R>(&self, name: &str, file: usize, slice: &TensorSliceProto, action: impl FnOnce(Reader<'_>) -> Result<R>) -> Result<R> {
        let (path, blocks) = &self.files[file];
        let key = slice_key(name, &raw_extents(slice));
        let read = || {
            let (block, offset) = blocks.block_of(&key, &mut open_file(path)?)?.ok_or_else(missing)?;
            let at = |error: Error| error.context(format!("the block at {offset}"));
            let entry = find_entry(&block, &key).map_err(at)?.ok_or_else(missing)?;
            // data: name, slice, values.
            let data = inner(Reader::of_bytes(entry), 2)?;
            action(inner(data, 3)?).map_err(at)
        };
        read().map_err(|error| error.context(path.display()))
    }

    fn find(&self, name: &str) -> Result<&Tensor> {
        self.tensors.get(name).ok_or_else(|| Error::not_found(format!("Key {name} not found in checkpoint {}", self.prefix.display())))
    }
}

fn missing() -> Error {
    Error::data_loss("a slice that it names is not there")
}

/// The message in a field of another.
fn inner(fields: Reader<'_>, number: u32) -> Result<Reader<'_>> {
    for field in fields {
        let field = field.map_err(Error::from)?;
        if field.number == number {
            return field.message().map_err(Error::from);
        }
    }
    Err(Error::data_loss("a slice has no values"))
}

fn normalised(values: &[u8]) -> Vec<u8> {
    values.iter().map(|value| u8::from(*value != 0)).collect()
}

fn open_file(path: &Path) -> Result<File> {
    plimsoll_base::open_file(path).map_err(|error| io_error("opening", path, error))
}
