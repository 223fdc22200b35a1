//! Transformations of images, as TensorFlow's `tf.image` has them, in place on float32 `[height, width, 3]`.
//!
//! Sums go through partial sums, a multiple of the three channels, so that the loops become vector instructions. They differ from
//! TensorFlow's in the last bits.

/// Channels of a pixel: R, G, B.
pub const CHANNELS: usize = 3;

/// Partial sums: of eight pixels side by side.
const LANES: usize = 8 * CHANNELS;

/// Crops a window of `size * size` pixels out of planes R, G, B of `side * side` bytes each, and makes it `[size, size, 3]`
/// float32. If asked to, it flips the window left to right. `corner` is its first row and column.
///
/// # Panics
/// Where the window is not within the planes, or `out` not as long as it.
pub fn crop(planes: &[u8], side: usize, corner: [usize; 2], size: usize, flip_left_right: bool, out: &mut [f32]) {
    let [top, left] = corner;
    assert!(planes.len() == CHANNELS * side * side && top + size <= side && left + size <= side, "the window is within the planes");
    assert_eq!(out.len(), CHANNELS * size * size, "the window fills the image");
    for (y, row) in out.chunks_exact_mut(CHANNELS * size).enumerate() {
        let line = |channel: usize| &planes[(channel * side + top + y) * side + left..][..size];
        let (red, green, blue) = (line(0), line(1), line(2));
        let pixels = row.chunks_exact_mut(CHANNELS);
        let colours = red.iter().zip(green).zip(blue);
        let put = |(pixel, ((red, green), blue)): (&mut [f32], ((&u8, &u8), &u8))| {
            pixel[0] = f32::from(*red);
            pixel[1] = f32::from(*green);
            pixel[2] = f32::from(*blue);
        };
        if flip_left_right { pixels.rev().zip(colours).for_each(put) } else { pixels.zip(colours).for_each(put) }
    }
}

/// Adds `delta` to every value: `tf.image.adjust_brightness`.
pub fn adjust_brightness(image: &mut [f32], delta: f32) {
    image.iter_mut().for_each(|value| *value += delta);
}

/// Moves every value away from its channel's mean, or towards it: `(x - mean) * factor + mean`, which is
/// `tf.image.adjust_contrast`.
pub fn adjust_contrast(image: &mut [f32], factor: f32) {
    let pixels = (image.len() / CHANNELS).max(1) as f32;
    let sums = lane_sums(image, |value| value);
    let mean: [f32; LANES] = std::array::from_fn(|lane| sums.iter().skip(lane % CHANNELS).step_by(CHANNELS).sum::<f32>() / pixels);
    for group in image.chunks_mut(LANES) {
        group.iter_mut().zip(&mean).for_each(|(value, mean)| *value = (*value - mean) * factor + mean);
    }
}

/// Makes mean 0 and variance 1: `(x - mean) / max(stddev, 1 / sqrt(N))` with the population's deviation, which is
/// `tf.image.per_image_standardization`.
pub fn per_image_standardization(image: &mut [f32]) {
    let count = image.len().max(1) as f32;
    let mean = lane_sums(image, |value| value).iter().sum::<f32>() / count;
    let variance = lane_sums(image, |value| (value - mean) * (value - mean)).iter().sum::<f32>() / count;
    let deviation = variance.sqrt().max(1.0 / count.sqrt());
    image.iter_mut().for_each(|value| *value = (*value - mean) / deviation);
}

/// The sums of `term(value)` over the values of each lane.
fn lane_sums(image: &[f32], term: impl Fn(f32) -> f32) -> [f32; LANES] {
    let mut sums = [0f32; LANES];
    let (groups, rest) = image.as_chunks::<LANES>();
    for group in groups {
        for lane in 0..LANES {
            sums[lane] += term(group[lane]);
        }
    }
    for (lane, value) in rest.iter().enumerate() {
        sums[lane] += term(*value);
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    /// TensorFlow's results for the image of `scripts/record_images.py`.
    static RECORDED: &[u8] = include_bytes!("../../tests/data/images.npy");

    fn planes() -> Vec<u8> {
        (0..432u32).map(|i| ((i * i * 31 + i * 7) % 251) as u8).collect()
    }

    fn cropped(corner: [usize; 2], flip: bool) -> Vec<f32> {
        let mut image = vec![0.0; 300];
        crop(&planes(), 12, corner, 10, flip, &mut image);
        image
    }

    #[test]
    fn images_are_what_tensorflow_makes_of_them() {
        let recorded = plimsoll::npy::read(RECORDED).unwrap();
        let recorded = recorded.as_slice::<f32>().unwrap().chunks_exact(300).collect::<Vec<_>>();
        let compare = |stage: usize, image: &[f32], tolerance: f32| {
            let worst = image.iter().zip(recorded[stage]).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
            assert!(image.len() == 300 && worst <= tolerance, "stage {stage}: {worst}");
        };
        let mut image = cropped([1, 1], false);
        compare(0, &image, 0.0);
        per_image_standardization(&mut image);
        compare(4, &image, 1e-6);
        let mut image = cropped([1, 2], true);
        compare(1, &image, 0.0);
        adjust_brightness(&mut image, -37.5);
        compare(2, &image, 0.0);
        adjust_contrast(&mut image, 1.65);
        compare(3, &image, 1e-4);
        per_image_standardization(&mut image);
        compare(5, &image, 1e-6);
    }

    #[test]
    fn images_of_one_colour_become_zeros() {
        let mut image = vec![7.0; 24 * 24 * 3];
        per_image_standardization(&mut image);
        assert!(image.iter().all(|value| *value == 0.0));
        per_image_standardization(&mut []);
        adjust_contrast(&mut [], 1.0);
    }
}
