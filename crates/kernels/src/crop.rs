//! Crops of images.

use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::{Error, Result};
use plimsoll_device::{Args, Cost, CpuKernel, Fault, Prepared};
use plimsoll_request::crop::{Crop, Makes};

use crate::cut::{Cut, elements};

/// `CropAndResize` and its gradients. Arguments as the request says. The gradient by the images is summed box after box.
///
/// # Errors
/// INVALID_ARGUMENT for sizes that no memory holds, images without pixels, and the gradient by boxes of crops of nearest neighbours.
pub fn prepare(spec: Crop) -> Result<Prepared> {
    let (images, crops) = (elements(&spec.images())?, elements(&spec.crops())?);
    elements(&[spec.boxes, 4])?;
    if spec.size.contains(&0) {
        return Err(Error::invalid_argument("image dimensions must be positive"));
    }
    if spec.makes == Makes::Boxes && !spec.bilinear {
        return Err(Error::invalid_argument("boxes of crops of nearest neighbours have no gradient"));
    }
    let row = 16 * spec.crop[1].saturating_mul(spec.channels).saturating_mul(spec.crop[0]);
    let (batch, boxes) = (spec.batch as usize, spec.boxes as usize);
    let cut = match spec.makes {
        // Every image looks at every box.
        Makes::Images => Cut::new(batch, row.saturating_mul(spec.boxes.div_ceil(spec.batch.max(1))), 1),
        Makes::Crops { .. } | Makes::Boxes => Cut::new(boxes, row, 1),
    };
    let cost = Cost { flops: 12.0 * crops as f64, bytes: 4.0 * (images + crops) as f64 };
    Ok(Prepared { chunks: cut.pieces(), scratch: 0, per_worker: 0, cost, in_place: Vec::new(), kernel: Arc::new(Cropped { spec, cut }) })
}

#[derive(Debug)]
struct Cropped {
    spec: Crop,
    /// Of boxes, or of images.
    cut: Cut,
}

/// Where a row or column of a crop lies on an image.
#[derive(Clone, Copy)]
struct Place {
    /// The neighbours before and after.
    low: usize,
    high: usize,
    /// How far it is behind the first.
    part: f32,
    /// The nearest.
    near: usize,
}

/// Along one axis: a box's first and last part of an axis of `size` elements, for a crop of `count`.
#[derive(Clone, Copy)]
struct Side {
    first: f32,
    last: f32,
    size: usize,
    count: usize,
}

impl Side {
    /// None outside of the image.
    fn at(&self, index: usize) -> Option<Place> {
        let most = (self.size - 1) as f32;
        let place = if self.count > 1 {
            let scale = (self.last - self.first) * most / (self.count - 1) as f32;
            self.first * most + index as f32 * scale
        } else {
            0.5 * (self.first + self.last) * most
        };
        if !(0.0..=most).contains(&place) {
            return None;
        }
        let last = self.size - 1;
        let low = libm::floorf(place);
        let near = (libm::roundf(place) as usize).min(last);
        Some(Place { low: (low as usize).min(last), high: (libm::ceilf(place) as usize).min(last), part: place - low, near })
    }

    /// How a row or column of a crop moves with the first and the last of the box.
    fn slopes(&self, index: usize) -> [f32; 2] {
        let most = (self.size - 1) as f32;
        if self.count > 1 {
            let ratio = most / (self.count - 1) as f32;
            [most - index as f32 * ratio, index as f32 * ratio]
        } else {
            [0.5 * most; 2]
        }
    }
}

impl CpuKernel for Cropped {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        let Crop { batch, boxes, makes, .. } = self.spec;
        let units = self.cut.units(chunks);
        let (pixels, crop) = (self.pixels(), self.crop());
        let (images, crops, boxes) = (pixels * batch as usize, crop * boxes as usize, boxes as usize);
        // Where boxes and names are.
        let at = if makes == Makes::Boxes { 2 } else { 1 };
        // SAFETY: the arguments have the shapes that the kernel was prepared for, here and below; pieces write different units.
        let (corners, names) = unsafe { (args.input::<f32>(at, 4 * boxes), args.input::<i32>(at + 1, boxes)) };
        if let Some(number) = names.iter().position(|name| u64::try_from(*name).map_or(true, |name| name >= batch)) {
            return Err(Fault::invalid("box_index has values outside [0, batch_size)", [number as i64, 0]));
        }
        match makes {
            Makes::Crops { outside } => {
                // SAFETY: as above.
                let (from, to) = unsafe { (args.input::<f32>(0, images), args.output::<f32>(3, units.start * crop..units.end * crop)) };
                for (at, unit) in units.enumerate() {
                    let image = &from[names[unit] as usize * pixels..][..pixels];
                    self.cropped(&corners[4 * unit..], image, &mut to[at * crop..][..crop], f32::from_bits(outside));
                }
            }
            Makes::Images => {
                // SAFETY: as above.
                let (slopes, to) =
                    unsafe { (args.input::<f32>(0, crops), args.output::<f32>(3, units.start * pixels..units.end * pixels)) };
                to.fill(0.0);
                for number in (0..boxes).filter(|number| units.contains(&(names[*number] as usize))) {
                    let image = &mut to[(names[number] as usize - units.start) * pixels..][..pixels];
                    self.by_image(&corners[4 * number..], &slopes[number * crop..][..crop], image);
                }
            }
            Makes::Boxes => {
                // SAFETY: as above.
                let (slopes, from, to) = unsafe {
                    (args.input::<f32>(0, crops), args.input::<f32>(1, images), args.output::<f32>(4, 4 * units.start..4 * units.end))
                };
                for (at, unit) in units.enumerate() {
                    let image = &from[names[unit] as usize * pixels..][..pixels];
                    let result = self.by_box(&corners[4 * unit..], &slopes[unit * crop..][..crop], image);
                    to[4 * at..4 * at + 4].copy_from_slice(&result);
                }
            }
        }
        Ok(())
    }
}

impl Cropped {
    /// Elements of an image.
    fn pixels(&self) -> usize {
        self.spec.size[0] as usize * self.spec.size[1] as usize * self.spec.channels as usize
    }

    /// Elements of a crop.
    fn crop(&self) -> usize {
        self.spec.crop[0] as usize * self.spec.crop[1] as usize * self.spec.channels as usize
    }

    /// Rows and columns of a box.
    fn sides(&self, corners: &[f32]) -> [Side; 2] {
        let side = |axis: usize| Side {
            first: corners[axis],
            last: corners[axis + 2],
            size: self.spec.size[axis] as usize,
            count: self.spec.crop[axis] as usize,
        };
        [side(0), side(1)]
    }

    /// Where the channels of a pixel begin.
    fn pixel(&self, row: usize, column: usize) -> usize {
        (row * self.spec.size[1] as usize + column) * self.spec.channels as usize
    }

    /// For every pixel of a crop that has channels: its number, and its places, unless it is outside.
    fn visit(&self, [rows, columns]: [Side; 2], mut visit: impl FnMut(usize, Option<(Place, Place)>, [usize; 2])) {
        if self.spec.channels == 0 {
            return;
        }
        for y in 0..rows.count {
            let row = rows.at(y);
            for x in 0..columns.count {
                visit(y * columns.count + x, row.zip(columns.at(x)), [y, x]);
            }
        }
    }

    fn cropped(&self, corners: &[f32], image: &[f32], to: &mut [f32], outside: f32) {
        let channels = self.spec.channels as usize;
        self.visit(self.sides(corners), |number, places, _| {
            let to = &mut to[number * channels..][..channels];
            let Some((y, x)) = places else { return to.fill(outside) };
            let read = |row: usize, column: usize| &image[self.pixel(row, column)..][..channels];
            if !self.spec.bilinear {
                return to.copy_from_slice(read(y.near, x.near));
            }
            let neighbours = [read(y.low, x.low), read(y.low, x.high), read(y.high, x.low), read(y.high, x.high)];
            for (channel, to) in to.iter_mut().enumerate() {
                let [top_left, top_right, bottom_left, bottom_right] = neighbours.map(|pixel| pixel[channel]);
                let top = top_left + (top_right - top_left) * x.part;
                let bottom = bottom_left + (bottom_right - bottom_left) * x.part;
                *to = top + (bottom - top) * y.part;
            }
        });
    }

    fn by_image(&self, corners: &[f32], slopes: &[f32], image: &mut [f32]) {
        let channels = self.spec.channels as usize;
        self.visit(self.sides(corners), |number, places, _| {
            let Some((y, x)) = places else { return };
            for (channel, slope) in slopes[number * channels..][..channels].iter().enumerate() {
                let mut add = |row: usize, column: usize, value: f32| image[self.pixel(row, column) + channel] += value;
                if !self.spec.bilinear {
                    add(y.near, x.near, *slope);
                    continue;
                }
                let (top, bottom) = ((1.0 - y.part) * slope, y.part * slope);
                add(y.low, x.low, (1.0 - x.part) * top);
                add(y.low, x.high, x.part * top);
                add(y.high, x.low, (1.0 - x.part) * bottom);
                add(y.high, x.high, x.part * bottom);
            }
        });
    }

    fn by_box(&self, corners: &[f32], slopes: &[f32], image: &[f32]) -> [f32; 4] {
        let channels = self.spec.channels as usize;
        let sides = self.sides(corners);
        let mut sums = [0f32; 4];
        self.visit(sides, |number, places, [at_y, at_x]| {
            let Some((y, x)) = places else { return };
            let (by_y, by_x) = (sides[0].slopes(at_y), sides[1].slopes(at_x));
            for (channel, slope) in slopes[number * channels..][..channels].iter().enumerate() {
                let read = |row: usize, column: usize| image[self.pixel(row, column) + channel];
                let (top_left, top_right) = (read(y.low, x.low), read(y.low, x.high));
                let (bottom_left, bottom_right) = (read(y.high, x.low), read(y.high, x.high));
                let down = slope * ((1.0 - x.part) * (bottom_left - top_left) + x.part * (bottom_right - top_right));
                let right = slope * ((1.0 - y.part) * (top_right - top_left) + y.part * (bottom_right - bottom_left));
                sums[0] += down * by_y[0];
                sums[1] += right * by_x[0];
                sums[2] += down * by_y[1];
                sums[3] += right * by_x[1];
            }
        });
        sums
    }
}
