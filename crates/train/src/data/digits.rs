//! The UCI handwritten digits: 1,797 images of 8x8 pixels (`data/README.md` names source and licence).

use plimsoll::HostTensor;
use plimsoll::Result;

use super::{DataSet, Examples};

/// Records of [`PIXELS`] bytes, 0 to 16 each, and a byte with the digit.
static DIGITS: &[u8] = include_bytes!("../../data/digits.bin");

/// Pixels of an image, row by row.
pub const PIXELS: usize = 64;
/// The number of digits.
pub const CLASSES: usize = 10;
/// Every image whose number is a multiple of this is held out.
pub const HELD_OUT: usize = 5;

/// All of them, the order of those to learn from decided by the seed.
///
/// # Errors
/// As [`training`].
pub fn data_set(seed: i64) -> Result<DataSet> {
    DataSet::new(training()?, Some(held_out()?), seed)
}

/// The images to learn from (1,437): `images`, float `[n, 64]` from 0 to 1, and `labels`, int32 `[n]`.
///
/// # Errors
/// Only where memory is missing.
pub fn training() -> Result<Examples> {
    examples(|number| number % HELD_OUT != 0)
}

/// The images to test with (360): every fifth, beginning with the first.
///
/// # Errors
/// As [`training`].
pub fn held_out() -> Result<Examples> {
    examples(|number| number % HELD_OUT == 0)
}

fn examples(is_wanted: impl Fn(usize) -> bool) -> Result<Examples> {
    let records = DIGITS.chunks_exact(PIXELS + 1).enumerate().filter(|(number, _)| is_wanted(*number));
    let (mut images, mut labels) = (Vec::new(), Vec::new());
    for (_, record) in records {
        images.extend(record[..PIXELS].iter().map(|pixel| f32::from(*pixel) / 16.0));
        labels.push(i32::from(record[PIXELS]));
    }
    let count = labels.len() as u64;
    let images = HostTensor::from_slice([count, PIXELS as u64], &images)?;
    Examples::new(vec![("images", images), ("labels", HostTensor::from_slice([count], &labels)?)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{BatchSource, InOrder};

    /// All images and all labels.
    fn all(examples: Examples) -> (Vec<f32>, Vec<i32>) {
        let mut batch = examples.batch(examples.count()).unwrap();
        InOrder::new(examples).next_into(&mut batch).unwrap();
        (batch[0].to_vec().unwrap(), batch[1].to_vec().unwrap())
    }

    #[test]
    fn every_fifth_image_is_held_out() {
        let (training, held_out) = (training().unwrap(), held_out().unwrap());
        assert_eq!((training.count(), held_out.count()), (1437, 360));
        // The first images show 0, 1, 2, 3, 4, 5.
        assert_eq!(all(held_out.clone()).1[..2], [0, 5]);
        assert_eq!(all(training).1[..4], [1, 2, 3, 4]);
        let first: Vec<f32> = [0, 0, 5, 13, 9, 1, 0, 0].map(|pixel| pixel as f32 / 16.0).to_vec();
        assert_eq!(all(held_out).0[..8], first);
    }

    #[test]
    fn digits_are_about_equally_frequent() {
        let (pixels, labels) = all(training().unwrap());
        let mut counts = [0; CLASSES];
        labels.iter().for_each(|label| counts[*label as usize] += 1);
        assert!(counts.iter().all(|count| (130..160).contains(count)), "{counts:?}");
        assert!(pixels.iter().all(|pixel| (0.0..=1.0).contains(pixel)));
    }
}
