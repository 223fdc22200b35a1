//! Images seen through projective transforms.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::{Error, Result};
use plimsoll_device::{Args, Cost, CpuKernel, Fault, Prepared};
use plimsoll_request::warp::{Outside, Warp};

use crate::cut::{Cut, elements};
use crate::element::{Element, of_type};

/// `ImageProjectiveTransformV3`. Arguments: images, transforms (8 floats each), the fill value (a float), output.
///
/// # Errors
/// INVALID_ARGUMENT for sizes that no memory holds, UNIMPLEMENTED for other types.
pub fn prepare(spec: Warp) -> Result<Prepared> {
    of_type!(
        spec.data_type,
        [Float, Double],
        T => of::<T>(spec),
        _ => Err(Error::unimplemented(format!("projections of images of {}", spec.data_type))),
    )
}

/// Pixels that are weighted.
trait Pixel: Element {
    fn of(value: f64) -> Self;
    fn value(self) -> f64;
}

impl Pixel for f32 {
    fn of(value: f64) -> f32 {
        value as f32
    }
    fn value(self) -> f64 {
        f64::from(self)
    }
}

impl Pixel for f64 {
    fn of(value: f64) -> f64 {
        value
    }
    fn value(self) -> f64 {
        self
    }
}

fn of<T: Pixel>(spec: Warp) -> Result<Prepared> {
    let (from, to) = spec.shapes();
    let (inputs, outputs) = (elements(&from)?, elements(&to)?);
    let row = (to[2] as usize).saturating_mul(spec.channels as usize) * size_of::<T>();
    let units = if outputs == 0 { 0 } else { to[0] as usize * to[1] as usize };
    let cut = Cut::new(units, 4 * row as u64, 1);
    let cost = Cost { flops: 12.0 * outputs as f64, bytes: (size_of::<T>() * (inputs + outputs)) as f64 };
    let kernel = Warped::<T> { spec, cut, of: PhantomData };
    Ok(Prepared { chunks: cut.pieces(), scratch: 0, per_worker: 0, cost, in_place: Vec::new(), kernel: Arc::new(kernel) })
}

#[derive(Debug)]
struct Warped<T> {
    spec: Warp,
    /// Of rows of all images of the output.
    cut: Cut,
    of: PhantomData<T>,
}

impl<T: Pixel> CpuKernel for Warped<T> {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        let Warp { size, resized, channels, is_shared, bilinear, outside, .. } = self.spec;
        let (rows, columns, channels) = (resized[0] as usize, resized[1] as usize, channels as usize);
        let pixels = size[0] as usize * size[1] as usize * channels;
        // SAFETY: the third argument is a float.
        let fill = unsafe { args.pointers[2].cast::<f32>().read() };
        for unit in self.cut.units(chunks) {
            let (image, y) = (unit / rows, unit % rows);
            // SAFETY: the second argument has eight floats for each transform; the first all images; the last the output, of which
            // pieces write different rows.
            let (t, input, output) = unsafe {
                let first = if is_shared { 0 } else { 8 * image };
                let t = std::slice::from_raw_parts(args.pointers[1].cast::<f32>().cast_const().add(first), 8);
                let input = std::slice::from_raw_parts(args.pointers[0].cast::<T>().cast_const().add(image * pixels), pixels);
                (t, input, args.output::<T>(3, unit * columns * channels..(unit + 1) * columns * channels))
            };
            let read = |y: i64, x: i64, channel: usize| {
                let inside = y >= 0 && x >= 0 && y < size[0] as i64 && x < size[1] as i64;
                if inside { input[(y as usize * size[1] as usize + x as usize) * channels + channel].value() } else { f64::from(fill) }
            };
            let oy = y as f32;
            for (x, pixel) in output.chunks_exact_mut(channels).enumerate() {
                let ox = x as f32;
                let projection = t[6] * ox + t[7] * oy + 1.0;
                if projection == 0.0 {
                    pixel.fill(T::of(f64::from(fill)));
                    continue;
                }
                let x = place((t[0] * ox + t[1] * oy + t[2]) / projection, size[1], outside);
                let y = place((t[3] * ox + t[4] * oy + t[5]) / projection, size[0], outside);
                if !bilinear {
                    let (y, x) = (libm::roundf(y) as i64, libm::roundf(x) as i64);
                    pixel.iter_mut().enumerate().for_each(|(channel, to)| *to = T::of(read(y, x, channel)));
                    continue;
                }
                let (top, left) = (y.floor(), x.floor());
                let (down, right) = (f64::from(y - top), f64::from(x - left));
                let (up, back) = (f64::from(top + 1.0 - y), f64::from(left + 1.0 - x));
                let (top, left) = (top as i64, left as i64);
                let (bottom, other) = (top.saturating_add(1), left.saturating_add(1));
                for (channel, to) in pixel.iter_mut().enumerate() {
                    let above = back * read(top, left, channel) + right * read(top, other, channel);
                    let below = back * read(bottom, left, channel) + right * read(bottom, other, channel);
                    *to = T::of(up * above + down * below);
                }
            }
        }
        Ok(())
    }
}

/// Where a coordinate lies on an axis of `size` elements, if what is outside is something of the inside.
fn place(at: f32, size: u64, outside: Outside) -> f32 {
    let size = size as f32;
    let whole = |value: f32| value.trunc();
    let bounded = |at: f32| at.min(size - 1.0).max(0.0);
    match outside {
        Outside::Constant => at,
        Outside::Nearest => bounded(at),
        _ if (at < 0.0 || at > size - 1.0) && size <= 1.0 => 0.0,
        Outside::Reflect => {
            let twice = 2.0 * size;
            let mut at = at;
            if at < 0.0 {
                if at < twice {
                    at += twice * whole(-at / twice);
                }
                at = if at < -size { at + twice } else { -at - 1.0 };
            } else if at > size - 1.0 {
                at -= twice * whole(at / twice);
                if at >= size {
                    at = twice - at - 1.0;
                }
            }
            bounded(at)
        }
        Outside::Wrap => {
            let mut at = at;
            if at < 0.0 {
                at += size * (whole(-at / (size - 1.0)) + 1.0);
            } else if at > size - 1.0 {
                at -= size * whole(at / (size - 1.0));
            }
            bounded(at)
        }
    }
}
