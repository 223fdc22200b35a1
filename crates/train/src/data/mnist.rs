//! MNIST from its IDX files (Y. LeCun, C. Cortes, C. J. C. Burges), and other data sets in the same form: images of 28 * 28 bytes
//! and labels from 0 to 9.

use std::path::{Path, PathBuf};

use plimsoll::{DataType, Error, HostTensor, Result};

use super::random::SplitMix64;
use super::{Component, DataSet, Examples, RecordFile, Records, images_and_labels, row_mut};

/// Classes.
pub const CLASSES: usize = 10;
/// Pixels of a side.
pub const SIDE: usize = 28;
const PIXELS: usize = SIDE * SIDE;

/// The shape that images have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Images {
    /// `[784]`.
    Flat,
    /// `[28, 28, 1]`.
    Hwc,
}

/// All of them, the order of those to learn from decided by the seed.
///
/// # Errors
/// As [`training`].
pub fn data_set(folder: &Path, images: Images, seed: i64) -> Result<DataSet> {
    DataSet::new(training(folder, images)?, Some(test(folder, images)?), seed)
}

/// The images to learn from, of `train-images-idx3-ubyte` and `train-labels-idx1-ubyte`: `images`, float from 0 to 1 of shape
/// `[n, 784]` or `[n, 28, 28, 1]`, and `labels`, int32 `[n]`. The names may have a dot before `idx`.
///
/// # Errors
/// NOT_FOUND where a file is missing. INVALID_ARGUMENT where it is compressed. DATA_LOSS where it is no IDX file of that kind, or
/// its length differs from its header's. The file system's error. Labels are looked at when they are read.
pub fn training(folder: &Path, images: Images) -> Result<Examples> {
    open(folder, "train", images)
}

/// The images to test with, of `t10k-images-idx3-ubyte` and `t10k-labels-idx1-ubyte`; as [`training`] otherwise.
///
/// # Errors
/// As [`training`].
pub fn test(folder: &Path, images: Images) -> Result<Examples> {
    open(folder, "t10k", images)
}

fn open(folder: &Path, set: &str, shape: Images) -> Result<Examples> {
    let images = Idx::open(&find(folder, &format!("{set}-images"), "idx3-ubyte")?, &[SIDE as u32, SIDE as u32])?;
    let labels = Idx::open(&find(folder, &format!("{set}-labels"), "idx1-ubyte")?, &[])?;
    if images.count != labels.count {
        let what = format!("{} labels, where {} has {} images", labels.count, images.file.path().display(), images.count);
        return Err(labels.file.flaw(4, what));
    }
    let count = u64::from(images.count);
    let shape: &[u64] = match shape {
        Images::Flat => &[PIXELS as u64],
        Images::Hwc => &[SIDE as u64, SIDE as u64, 1],
    };
    let components = vec![Component::new("images", DataType::Float, shape), Component::new("labels", DataType::Int32, &[])];
    Examples::from_records(components, count, Mnist { images, labels })
}

/// The file of that name, with a dash or a dot before its kind.
fn find(folder: &Path, name: &str, kind: &str) -> Result<PathBuf> {
    let names = ["-", "."].map(|dash| folder.join(format!("{name}{dash}{kind}")));
    if let Some(path) = names.iter().find(|path| path.exists()) {
        return Ok(path.clone());
    }
    let compressed = names.map(|path| PathBuf::from(format!("{}.gz", path.display())));
    if let Some(path) = compressed.iter().find(|path| path.exists()) {
        return Err(is_compressed(path));
    }
    let error = if folder.is_dir() {
        Error::not_found(format!("{} has no {name}-{kind}", folder.display()))
    } else {
        Error::not_found(format!("{}: no such folder", folder.display()))
    };
    Err(error.with_remedy("give the folder with MNIST's four files, uncompressed"))
}

fn is_compressed(path: &Path) -> Error {
    let shown = path.display();
    let remedy = match path.extension() {
        Some(extension) if extension == "gz" => format!("gunzip {shown}"),
        _ => format!("mv {shown} {shown}.gz && gunzip {shown}.gz"),
    };
    Error::invalid_argument(format!("{shown} is compressed, and examples are read by their position")).with_remedy(remedy)
}

/// A file of unsigned bytes: a header of big-endian numbers (magic, number of examples, their dimensions), then the examples.
#[derive(Debug)]
struct Idx {
    file: RecordFile,
    count: u32,
    /// Where the first example begins.
    begin: u64,
}

impl Idx {
    /// Opens a file whose examples have these dimensions.
    fn open(path: &Path, dims: &[u32]) -> Result<Idx> {
        let file = RecordFile::open(path)?;
        let begin = 8 + 4 * dims.len() as u64;
        let mut start = [0; 2];
        if file.length() >= 2 {
            file.read_at(&mut start, 0)?;
        }
        if start == [0x1f, 0x8b] {
            return Err(is_compressed(path));
        }
        if file.length() < begin {
            return Err(file.flaw(file.length(), format!("the file ends within its header of {begin} bytes")));
        }
        let number = |offset: u64| {
            let mut bytes = [0; 4];
            file.read_at(&mut bytes, offset).map(|()| u32::from_be_bytes(bytes))
        };
        // Two zeros, the type (8 is unsigned bytes), the number of dimensions.
        let (magic, expected) = (number(0)?, 0x0801 + dims.len() as u32);
        if magic != expected {
            return Err(file.flaw(0, format!("the magic number is {magic:#010x}, where {expected:#010x} is expected")));
        }
        let count = number(4)?;
        for (index, expected) in (0..).zip(dims) {
            let offset = 8 + 4 * index;
            let dim = number(offset)?;
            if dim != *expected {
                return Err(file.flaw(offset, format!("dimension {} is {dim}, where {expected} is expected", index + 1)));
            }
        }
        // At most 2^32 examples of 784 bytes.
        let each = dims.iter().map(|dim| u64::from(*dim)).product::<u64>();
        let end = begin + u64::from(count) * each;
        if count == 0 {
            return Err(file.flaw(4, "there are no examples"));
        }
        if file.length() < end {
            let what = format!("the file ends here, where {count} examples of {each} bytes take it to byte {end}");
            return Err(file.flaw(file.length(), what));
        }
        if file.length() > end {
            return Err(file.flaw(end, format!("{} bytes follow the {count} examples", file.length() - end)));
        }
        Ok(Idx { file, count, begin })
    }
}

#[derive(Debug)]
struct Mnist {
    images: Idx,
    labels: Idx,
}

impl Records for Mnist {
    fn read(&self, number: u64, _random: SplitMix64, batch: &mut [HostTensor], row: usize) -> Result<()> {
        let (images, labels) = images_and_labels(batch)?;
        let (mut label, offset) = ([0], self.labels.begin + number);
        self.labels.file.read_at(&mut label, offset)?;
        if usize::from(label[0]) >= CLASSES {
            let what = format_args!("label {}, where 0 to {} are expected", label[0], CLASSES - 1);
            return Err(self.labels.file.flaw(offset, what));
        }
        row_mut::<i32>(labels, row)?[0] = i32::from(label[0]);
        let mut pixels = [0; PIXELS];
        self.images.file.read_at(&mut pixels, self.images.begin + number * PIXELS as u64)?;
        let image = row_mut::<f32>(images, row)?;
        image.iter_mut().zip(&pixels).for_each(|(value, pixel)| *value = f32::from(*pixel) / 255.0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::testing::Folder;
    use crate::data::{BatchSource, InOrder};
    use plimsoll::Code;

    fn idx(magic: u32, numbers: &[u32], data: impl IntoIterator<Item = u8>) -> Vec<u8> {
        let mut bytes: Vec<u8> = std::iter::once(&magic).chain(numbers).flat_map(|number| number.to_be_bytes()).collect();
        bytes.extend(data);
        bytes
    }

    /// Image `n` has the pixels n, n + 1, ... and the label n % 10.
    fn images(count: u32) -> Vec<u8> {
        idx(0x803, &[count, 28, 28], (0..count).flat_map(|image| (0..784).map(move |pixel| (image + pixel) as u8)))
    }

    fn labels(count: u32) -> Vec<u8> {
        idx(0x801, &[count], (0..count).map(|image| (image % 10) as u8))
    }

    fn error(images: &[u8], labels: &[u8]) -> Error {
        let folder = Folder::new();
        folder.write("train-images-idx3-ubyte", images);
        folder.write("train-labels-idx1-ubyte", labels);
        let examples = training(folder.path(), Images::Flat);
        let read = |examples: Examples| {
            let mut batch = examples.batch(examples.count()).unwrap();
            InOrder::new(examples).next_into(&mut batch)
        };
        examples.and_then(read).unwrap_err()
    }

    #[test]
    fn both_spellings_and_both_shapes_are_read() {
        let folder = Folder::new();
        folder.write("train-images-idx3-ubyte", &images(12));
        folder.write("train-labels.idx1-ubyte", &labels(12));
        folder.write("t10k-images.idx3-ubyte", &images(3));
        folder.write("t10k-labels-idx1-ubyte", &labels(3));
        let flat = training(folder.path(), Images::Flat).unwrap();
        assert_eq!((flat.count(), flat.components()[0].shape.dims()), (12, &[784][..]));
        let mut batch = flat.batch(5).unwrap();
        let mut source = InOrder::new(flat);
        source.seek(9);
        source.next_into(&mut batch).unwrap();
        assert_eq!(batch[1].as_slice::<i32>().unwrap(), [9, 0, 1, 0, 1]);
        let pixel = |row: usize, at: usize| batch[0].as_slice::<f32>().unwrap()[784 * row + at];
        assert_eq!((pixel(0, 0), pixel(0, 783), pixel(1, 2), pixel(4, 254)), (9.0 / 255.0, 24.0 / 255.0, 12.0 / 255.0, 1.0));
        let test = test(folder.path(), Images::Hwc).unwrap();
        assert_eq!((test.count(), test.components()[0].shape.dims()), (3, &[28, 28, 1][..]));
        let mut batch = test.batch(3).unwrap();
        InOrder::new(test).next_into(&mut batch).unwrap();
        assert_eq!(batch[0].as_slice::<f32>().unwrap()[784..787], [1.0 / 255.0, 2.0 / 255.0, 3.0 / 255.0]);
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said_with_its_name_and_the_byte() {
        let good = images(3);
        let with = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            bytes
        };
        let cases = [
            (error(&with(2, 9), &labels(3)), "train-images-idx3-ubyte, byte 0: the magic number is 0x00000903, where 0x00000803"),
            (error(&labels(3), &labels(3)), "train-images-idx3-ubyte, byte 11: the file ends within its header of 16 bytes"),
            (error(&good, &[]), "train-labels-idx1-ubyte, byte 0: the file ends within its header of 8 bytes"),
            (error(&with(11, 27), &labels(3)), "byte 8: dimension 1 is 27, where 28 is expected"),
            (error(&with(15, 0), &labels(3)), "byte 12: dimension 2 is 0, where 28 is expected"),
            (error(&with(4, 255), &labels(3)), "byte 2368: the file ends here, where 4278190083 examples of 784 bytes take it"),
            (error(&with(7, 2), &labels(3)), "byte 1584: 784 bytes follow the 2 examples"),
            (error(&good, &labels(4)), "train-labels-idx1-ubyte, byte 4: 4 labels, where"),
            (error(&good, &idx(0x801, &[3], [0, 10, 0])), "train-labels-idx1-ubyte, byte 9: label 10, where 0 to 9 are expected"),
            (error(&idx(0x803, &[0, 28, 28], []), &labels(3)), "byte 4: there are no examples"),
        ];
        for (error, expected) in cases {
            assert!(error.code() == Code::DataLoss && error.message().contains(expected), "{error}\n{expected}");
        }
        for length in 0..40 {
            assert_eq!(error(&good[..length], &labels(3)).code(), Code::DataLoss);
        }
        let compressed = error(&[0x1f, 0x8b, 8, 0, 0], &labels(3));
        assert!(compressed.code() == Code::InvalidArgument && compressed.remedy().unwrap().contains("gunzip"), "{compressed}");
    }

    #[test]
    fn missing_files_are_named() {
        let folder = Folder::new();
        let error = training(folder.path(), Images::Flat).unwrap_err();
        assert!(error.code() == Code::NotFound && error.message().ends_with("has no train-images-idx3-ubyte"), "{error}");
        folder.write("train-images-idx3-ubyte.gz", &[0x1f, 0x8b]);
        let error = training(folder.path(), Images::Flat).unwrap_err();
        assert!(error.remedy().unwrap().ends_with("train-images-idx3-ubyte.gz"), "{error}");
        let error = test(&folder.path().join("nowhere"), Images::Flat).unwrap_err();
        assert!(error.message().ends_with("nowhere: no such folder"), "{error}");
        std::fs::create_dir(folder.path().join("t10k-images-idx3-ubyte")).unwrap();
        let error = test(folder.path(), Images::Flat).unwrap_err();
        assert!(error.message().ends_with("t10k-images-idx3-ubyte: this is a folder, not a file"), "{error}");
    }

    #[test]
    fn a_file_that_becomes_shorter_is_an_error_and_nothing_is_skipped() {
        let folder = Folder::new();
        let path = folder.write("train-images-idx3-ubyte", &images(4));
        folder.write("train-labels-idx1-ubyte", &labels(4));
        let examples = training(folder.path(), Images::Flat).unwrap();
        let mut batch = examples.batch(3).unwrap();
        let mut source = InOrder::new(examples);
        source.next_into(&mut batch).unwrap();
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(3000).unwrap();
        let error = source.next_into(&mut batch).unwrap_err();
        assert!(error.message().contains("byte 2368: the file ends within the 784 bytes"), "{error}");
        assert_eq!(source.position(), 3);
    }
}
