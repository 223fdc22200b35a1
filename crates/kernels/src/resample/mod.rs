//! Images resized, and the gradients of that: each row of the result is a sum of rows, then each of its positions a sum of positions.

mod taps;
#[cfg(test)]
mod tests;

use std::marker::PhantomData;
use std::ops::{Add, Mul, Range};
use std::sync::Arc;

use plimsoll_base::{Error, Result};
use plimsoll_device::{Args, Cost, CpuKernel, Fault, Prepared};
use plimsoll_request::resample::Resample;

use crate::cut::{Cut, elements};
use crate::element::{Element, of_type};
use crate::simd::{Isa, Vectorised};
use taps::Taps;

/// `ResizeBilinear` and its kin, and their gradients. Arguments: input, output.
///
/// # Errors
/// INVALID_ARGUMENT for sizes that no memory holds and for images without pixels, UNIMPLEMENTED for very long sides and other types.
pub fn prepare(isa: Isa, spec: Resample) -> Result<Prepared> {
    of_type!(
        spec.data_type,
        [Float, Double],
        T => of::<T>(isa, spec),
        _ => Err(Error::unimplemented(format!("images of {} resized", spec.data_type))),
    )
}

/// Numbers that are weighted.
trait Weighted: Element + Add<Output = Self> + Mul<Output = Self> {
    const ZERO: Self;
    fn weight(weight: f32) -> Self;
}

impl Weighted for f32 {
    const ZERO: f32 = 0.0;

    #[inline(always)]
    fn weight(weight: f32) -> f32 {
        weight
    }
}

impl Weighted for f64 {
    const ZERO: f64 = 0.0;

    #[inline(always)]
    fn weight(weight: f32) -> f64 {
        f64::from(weight)
    }
}

fn of<T: Weighted>(isa: Isa, spec: Resample) -> Result<Prepared> {
    let (from, to) = spec.shapes();
    let (inputs, outputs) = (elements(&from)?, elements(&to)?);
    let along = |axis: usize| taps::taps(&spec.method, axis, spec.size[axis], spec.resized[axis], spec.transposed);
    let (rows, columns) = (along(0)?, along(1)?);
    let channels = spec.channels as usize;
    let row = from[2] as usize * channels;
    let units = to[0] as usize * to[1] as usize;
    let each = |taps: &Taps, elements: u64| (taps.len() as f64 / elements.max(1) as f64).max(1.0);
    let (tall, wide) = (each(&rows, to[1]), each(&columns, to[2]));
    let size = size_of::<T>();
    let moved = size as f64 * (tall * row as f64 + wide * (to[2] as usize * channels) as f64);
    let cut = Cut::new(if outputs == 0 { 0 } else { units }, moved as u64, 1);
    let flops = 2.0 * units as f64 * (tall * row as f64 + wide * (to[2] as usize * channels) as f64);
    let cost = Cost { flops, bytes: (size * (inputs + outputs)) as f64 };
    let per_worker = (row * size) as u64;
    let kernel = Resized::<T> { rows, columns, size: [from[1], from[2]], resized: [to[1], to[2]], channels, cut, isa, of: PhantomData };
    Ok(Prepared { chunks: cut.pieces(), scratch: 0, per_worker, cost, in_place: Vec::new(), kernel: Arc::new(kernel) })
}

struct Resized<T> {
    rows: Taps,
    columns: Taps,
    /// Rows and columns of the input and of the output.
    size: [u64; 2],
    resized: [u64; 2],
    channels: usize,
    /// Of rows of all images of the output.
    cut: Cut,
    isa: Isa,
    of: PhantomData<T>,
}

impl<T> std::fmt::Debug for Resized<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resized").field("size", &(self.size, self.resized, self.channels)).field("cut", &self.cut).finish()
    }
}

impl<T: Weighted> CpuKernel for Resized<T> {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        let input = args.pointers[0].cast::<T>().cast_const();
        let (from, to) = (self.size[1] as usize * self.channels, self.resized[1] as usize * self.channels);
        let rows = self.resized[0] as usize;
        for unit in self.cut.units(chunks) {
            let image = input.wrapping_add(unit / rows * self.size[0] as usize * from);
            // SAFETY: the scratch has a row of the input; pieces write different rows of the output.
            let (sums, output) = unsafe {
                let sums = std::slice::from_raw_parts_mut(args.worker.cast::<T>(), from);
                (sums, args.output::<T>(1, unit * to..(unit + 1) * to))
            };
            let piece = Row { of: self, taps: self.rows.of(unit % rows), image, sums, output };
            // SAFETY: the instruction set was asked for when the kernel was prepared.
            unsafe { self.isa.run(piece) };
        }
        Ok(())
    }
}

/// A row of the output.
struct Row<'a, T> {
    of: &'a Resized<T>,
    taps: &'a [(u32, f32)],
    image: *const T,
    sums: &'a mut [T],
    output: &'a mut [T],
}

impl<T: Weighted> Vectorised for Row<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let width = self.sums.len();
        // SAFETY: taps name rows of the image, which the caller promises.
        let row = |number: u32| unsafe { std::slice::from_raw_parts(self.image.add(number as usize * width), width) };
        let sums: &[T] = match *self.taps {
            [(number, 1.0)] => row(number),
            [] => {
                self.output.fill(T::ZERO);
                return;
            }
            [(first, weight), ref rest @ ..] => {
                weighted(self.sums, row(first), weight, false);
                for (number, weight) in rest {
                    weighted(self.sums, row(*number), *weight, true);
                }
                self.sums
            }
        };
        let channels = self.of.channels;
        for (column, output) in self.output.chunks_exact_mut(channels.max(1)).enumerate() {
            let taps = self.of.columns.of(column);
            match channels {
                1 => position::<T, 1>(sums, taps, output),
                3 => position::<T, 3>(sums, taps, output),
                4 => position::<T, 4>(sums, taps, output),
                _ => {
                    let at = |number: u32| &sums[number as usize * channels..][..channels];
                    let Some(((first, weight), rest)) = taps.split_first() else {
                        output.fill(T::ZERO);
                        continue;
                    };
                    weighted(output, at(*first), *weight, false);
                    for (number, weight) in rest {
                        weighted(output, at(*number), *weight, true);
                    }
                }
            }
        }
    }
}

/// One position of a few channels.
#[inline(always)]
fn position<T: Weighted, const CHANNELS: usize>(from: &[T], taps: &[(u32, f32)], to: &mut [T]) {
    let mut sums = [T::ZERO; CHANNELS];
    for (number, weight) in taps {
        let (values, weight) = (&from[*number as usize * CHANNELS..][..CHANNELS], T::weight(*weight));
        for (sum, value) in sums.iter_mut().zip(values) {
            *sum = *sum + *value * weight;
        }
    }
    to.copy_from_slice(&sums);
}

/// `to = from * weight`, or that is added.
#[inline(always)]
fn weighted<T: Weighted>(to: &mut [T], from: &[T], weight: f32, add: bool) {
    let weight = T::weight(weight);
    if add {
        for (to, from) in to.iter_mut().zip(from) {
            *to = *to + *from * weight;
        }
    } else {
        for (to, from) in to.iter_mut().zip(from) {
            *to = *from * weight;
        }
    }
}
