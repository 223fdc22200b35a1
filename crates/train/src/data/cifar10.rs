//! CIFAR-10 from its binary files (A. Krizhevsky; <https://www.cs.toronto.edu/~kriz/cifar.html>): records of a label and 3072
//! bytes of image, planes R, G and B of 32 * 32 each.
//!
//! Images are prepared as in TensorFlow's CIFAR-10 tutorial (`cifar10_input.py`): 24 * 24 pixels, standardised one by one.

use std::path::{Path, PathBuf};

use plimsoll::{DataType, Error, HostTensor, Result};

use super::image::{CHANNELS, adjust_brightness, adjust_contrast, crop, per_image_standardization};
use super::random::SplitMix64;
use super::{Component, DataSet, Examples, RecordFile, Records, images_and_labels, row_mut};

/// Classes.
pub const CLASSES: usize = 10;
/// Pixels of a side, as they are given to a network.
pub const SIZE: usize = 24;
/// Pixels of a side, in the files.
const SIDE: usize = 32;
const IMAGE: usize = CHANNELS * SIDE * SIDE;
const RECORD: usize = 1 + IMAGE;
/// The folder that the archive unpacks to.
const SUBFOLDER: &str = "cifar-10-batches-bin";

/// How images are prepared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inputs {
    /// The middle of the image: the tutorial's `inputs`.
    Central,
    /// The tutorial's `distorted_inputs`, in this order. A window anywhere in the image, flipped left to right half of the time.
    /// Then its brightness is changed by less than 63 and its contrast by a factor from 0.2 to 1.8.
    Distorted,
}

/// All of them, the order of those to learn from decided by the seed; those to test with are not distorted.
///
/// # Errors
/// As [`training`].
pub fn data_set(folder: &Path, inputs: Inputs, seed: i64) -> Result<DataSet> {
    DataSet::new(training(folder, inputs)?, Some(test(folder, Inputs::Central)?), seed)
}

/// The images to learn from, of `data_batch_1.bin` to `data_batch_5.bin`, as many of them as are there: `images`, float
/// `[n, 24, 24, 3]`, and `labels`, int32 `[n]`. The files are in the folder or in `cifar-10-batches-bin` in it.
///
/// # Errors
/// NOT_FOUND where there is none of them; DATA_LOSS where one is cut off or empty; the file system's error. Labels are looked at
/// when they are read.
pub fn training(folder: &Path, inputs: Inputs) -> Result<Examples> {
    let names = (1..=5).map(|number| format!("data_batch_{number}.bin"));
    open(folder, &names.collect::<Vec<_>>(), inputs)
}

/// The images to test with, of `test_batch.bin`; as [`training`] otherwise.
///
/// # Errors
/// As [`training`].
pub fn test(folder: &Path, inputs: Inputs) -> Result<Examples> {
    open(folder, &["test_batch.bin".to_string()], inputs)
}

fn open(folder: &Path, names: &[String], inputs: Inputs) -> Result<Examples> {
    let is_there = |folder: &Path| names.iter().any(|name| folder.join(name).exists());
    let places = [folder.to_path_buf(), folder.join(SUBFOLDER)];
    let Some(place) = places.iter().find(|place| is_there(place)) else { return Err(nothing_in(folder, &names[0])) };
    let mut files = Vec::with_capacity(names.len());
    let mut count = 0;
    for path in names.iter().map(|name| place.join(name)).filter(|path| path.exists()) {
        let file = RecordFile::open(&path)?;
        let (whole, rest) = (file.length() / RECORD as u64, file.length() % RECORD as u64);
        if whole == 0 || rest != 0 {
            let what = format!("the file ends {rest} bytes into a record; CIFAR-10's binary version has records of {RECORD} bytes");
            return Err(file.flaw(file.length() - rest, what));
        }
        count += whole;
        files.push(Batch { file, end: count });
    }
    let size = SIZE as u64;
    let images = Component::new("images", DataType::Float, &[size, size, CHANNELS as u64]);
    let labels = Component::new("labels", DataType::Int32, &[]);
    Examples::from_records(vec![images, labels], count, Batches { files, inputs })
}

fn nothing_in(folder: &Path, name: &str) -> Error {
    let shown = folder.display();
    let error = if folder.is_dir() {
        Error::not_found(format!("{shown} has no {name}, and no folder {SUBFOLDER} with it"))
    } else {
        Error::not_found(format!("{shown}: no such folder"))
    };
    let archive = [folder.to_path_buf(), PathBuf::from(".")].map(|place| place.join("cifar-10-binary.tar.gz"));
    error.with_remedy(match archive.iter().find(|archive| archive.exists()) {
        Some(archive) => format!("unpack it: tar xzf {} -C {shown}", archive.display()),
        None => "give the folder with the files of CIFAR-10's binary version, cifar-10-binary.tar.gz".to_string(),
    })
}

#[derive(Debug)]
struct Batch {
    file: RecordFile,
    /// The number of examples up to its end.
    end: u64,
}

#[derive(Debug)]
struct Batches {
    files: Vec<Batch>,
    inputs: Inputs,
}

impl Records for Batches {
    fn read(&self, number: u64, random: SplitMix64, batch: &mut [HostTensor], row: usize) -> Result<()> {
        let index = self.files.partition_point(|batch| batch.end <= number);
        let file = self.files.get(index).ok_or_else(|| Error::out_of_range(format!("there is no example {number}")))?;
        let begin = index.checked_sub(1).map_or(0, |before| self.files[before].end);
        let offset = (number - begin) * RECORD as u64;
        let mut record = [0; RECORD];
        file.file.read_at(&mut record, offset)?;
        let (label, planes) = (record[0], &record[1..]);
        if usize::from(label) >= CLASSES {
            return Err(file.file.flaw(offset, format_args!("label {label}, where 0 to {} are expected", CLASSES - 1)));
        }
        let (images, labels) = images_and_labels(batch)?;
        row_mut::<i32>(labels, row)?[0] = i32::from(label);
        prepare(planes, self.inputs, random, row_mut(images, row)?);
        Ok(())
    }
}

/// Makes an image of `[24, 24, 3]` of planes of 32 * 32.
fn prepare(planes: &[u8], inputs: Inputs, mut random: SplitMix64, image: &mut [f32]) {
    match inputs {
        Inputs::Central => crop(planes, SIDE, [(SIDE - SIZE) / 2; 2], SIZE, false, image),
        Inputs::Distorted => {
            let corner = [(); 2].map(|()| random.below((SIDE - SIZE + 1) as u64) as usize);
            crop(planes, SIDE, corner, SIZE, random.below(2) == 1, image);
            adjust_brightness(image, random.uniform(-63.0, 63.0));
            adjust_contrast(image, random.uniform(0.2, 1.8));
        }
    }
    per_image_standardization(image);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::testing::Folder;
    use crate::data::{BatchSource, InOrder, Shuffled};
    use plimsoll::Code;

    /// Records `first ..`: label n % 10, all bytes random.
    fn records(first: u64, count: u64) -> Vec<u8> {
        let record = |number: u64| {
            let mut random = SplitMix64::new(1, number);
            let pixels = (0..IMAGE).map(move |_| random.below(256) as u8);
            std::iter::once((number % 10) as u8).chain(pixels)
        };
        (first..first + count).flat_map(record).collect()
    }

    fn batch(examples: &Examples, source: &mut impl BatchSource, size: u64) -> (Vec<f32>, Vec<i32>) {
        let mut batch = examples.batch(size).unwrap();
        source.next_into(&mut batch).unwrap();
        (batch[0].to_vec().unwrap(), batch[1].to_vec().unwrap())
    }

    #[test]
    fn all_files_that_are_there_are_one_sequence() {
        let folder = Folder::new();
        folder.write("cifar-10-batches-bin/data_batch_1.bin", &records(0, 3));
        folder.write("cifar-10-batches-bin/data_batch_3.bin", &records(3, 4));
        folder.write("cifar-10-batches-bin/test_batch.bin", &records(0, 7));
        let training = training(folder.path(), Inputs::Central).unwrap();
        assert_eq!((training.count(), training.components()[0].shape.dims()), (7, &[24, 24, 3][..]));
        let (images, labels) = batch(&training, &mut InOrder::new(training.clone()), 9);
        assert_eq!(labels, [0, 1, 2, 3, 4, 5, 6, 0, 1]);
        let test = test(&folder.path().join(SUBFOLDER), Inputs::Central).unwrap();
        assert_eq!(batch(&test, &mut InOrder::new(test.clone()), 9), (images.clone(), labels));
        // Standardised, one by one.
        for image in images.chunks_exact(24 * 24 * 3) {
            let sum = |power: i32| image.iter().map(|value| f64::from(value.powi(power))).sum::<f64>() / 1728.0;
            assert!(sum(1).abs() < 1e-5 && (sum(2) - 1.0).abs() < 1e-5, "{} {}", sum(1), sum(2));
        }
        // The first value is red, four rows and four columns in.
        let red = f32::from(records(0, 1)[1 + 4 * 32 + 4]);
        let mut window = vec![0.0; 24 * 24 * 3];
        crop(&records(0, 1)[1..], SIDE, [4, 4], SIZE, false, &mut window);
        assert_eq!(window[0], red);
        per_image_standardization(&mut window);
        assert_eq!(window, images[..1728]);
    }

    #[test]
    fn distortions_depend_on_seed_and_position_alone() {
        let folder = Folder::new();
        folder.write("data_batch_2.bin", &records(0, 10));
        let examples = training(folder.path(), Inputs::Distorted).unwrap();
        let source = |seed: i64| Shuffled::new(examples.clone(), seed).unwrap();
        let (images, labels) = batch(&examples, &mut source(5), 30);
        let mut pieces = source(5);
        let (mut first, mut later) = (batch(&examples, &mut pieces, 7), batch(&examples, &mut pieces, 23));
        first.0.append(&mut later.0);
        first.1.append(&mut later.1);
        assert_eq!(first, (images.clone(), labels.clone()));
        let mut resumed = source(0);
        resumed.reseed(5);
        resumed.seek(12);
        assert_eq!(batch(&examples, &mut resumed, 18), (images[12 * 1728..].to_vec(), labels[12..].to_vec()));
        // An example is another image in every epoch, and with every seed.
        let image = |epoch: usize, label: i32| {
            let at = 10 * epoch + labels[10 * epoch..].iter().position(|other| *other == label).unwrap();
            &images[1728 * at..1728 * (at + 1)]
        };
        assert!(image(0, 3) != image(1, 3) && image(1, 3) != image(2, 3));
        assert_ne!(batch(&examples, &mut source(6), 30).0, images);
    }

    #[test]
    fn distorted_images_are_distorted_as_far_as_they_should_be() {
        // A ramp: the value says which pixel it is.
        let planes: Vec<u8> = (0..IMAGE).map(|byte| (byte % (SIDE * SIDE) / SIDE * 4 + byte % SIDE) as u8).collect();
        let (mut corners, mut flips) = (std::collections::BTreeSet::new(), 0);
        for position in 0..1000 {
            let mut image = vec![0.0; 1728];
            prepare(&planes, Inputs::Distorted, SplitMix64::for_example(1, position), &mut image);
            assert!(image.iter().all(|value| value.is_finite()));
            flips += u32::from(image[0] > image[3 * (SIZE - 1)]);
            let mut random = SplitMix64::for_example(1, position);
            corners.insert((random.below(9), random.below(9)));
        }
        assert_eq!(corners.len(), 81);
        assert!((400..600).contains(&flips), "{flips}");
    }

    #[test]
    fn what_is_wrong_is_said() {
        let folder = Folder::new();
        let error = training(folder.path(), Inputs::Central).unwrap_err();
        assert!(error.code() == Code::NotFound && error.message().contains("has no data_batch_1.bin"), "{error}");
        let error = test(&folder.path().join("nowhere"), Inputs::Central).unwrap_err();
        assert!(error.message().ends_with("nowhere: no such folder"), "{error}");
        folder.write("cifar-10-binary.tar.gz", &[]);
        let error = training(folder.path(), Inputs::Central).unwrap_err();
        assert!(error.remedy().unwrap().contains("tar xzf"), "{error}");
        let good = records(0, 3);
        for (length, offset, rest) in [(0, 0, 0), (1, 0, 1), (3072, 0, 3072), (3074, 3073, 1), (9218, 6146, 3072)] {
            folder.write("data_batch_4.bin", &good[..length]);
            let error = training(folder.path(), Inputs::Central).unwrap_err();
            let expected = format!("data_batch_4.bin, byte {offset}: the file ends {rest} bytes into a record");
            assert!(error.code() == Code::DataLoss && error.message().contains(&expected), "{error}");
        }
        folder.write("data_batch_1.bin", &good);
        let mut bad = good.clone();
        bad[2 * RECORD] = 10;
        folder.write("data_batch_4.bin", &bad);
        let examples = training(folder.path(), Inputs::Central).unwrap();
        let mut source = InOrder::new(examples.clone());
        let error = source.next_into(&mut examples.batch(6).unwrap()).unwrap_err();
        assert!(error.message().contains("data_batch_4.bin, byte 6146: label 10, where 0 to 9 are expected"), "{error}");
        assert_eq!(source.position(), 0);
    }
}
