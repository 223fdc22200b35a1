//! Averages of windows.

use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::{DataType, Result};
use plimsoll_device::{Args, Cost, CpuKernel, Fault, Prepared};

use super::{Check, Sizes, deep, doubles};
use crate::conv::{GROUP, get, groups, put};
use crate::cut::Cut;
use crate::simd::{Isa, Vectorised};
use plimsoll_request::pool::PoolSpec;

/// `AvgPool` of floats and doubles: averages over the part of a window that lies on the input; 0 where that is empty. Arguments: input, output.
///
/// # Errors
/// INVALID_ARGUMENT for sizes that make no sense or that no memory holds.
pub fn avg_pool(spec: PoolSpec) -> Result<Prepared> {
    avg_pool_on(Isa::best(), spec)
}

/// As [`avg_pool`], with the code for that instruction set. It runs where the processor has it.
///
/// # Errors
/// As [`avg_pool`].
pub fn avg_pool_on(isa: Isa, spec: PoolSpec) -> Result<Prepared> {
    if spec.data_type == DataType::Double {
        return Ok(doubles::prepare(spec.check_sizes()?, doubles::Work::Average));
    }
    let sizes = spec.check()?;
    prepare::<false>(isa, sizes, sizes.row(sizes.x.positions) * (1 + sizes.strides))
}

/// `AvgPoolGrad`. Arguments: gradient by the output, gradient by the input. Where windows overlap, terms are added row by row.
///
/// # Errors
/// As [`avg_pool`].
pub fn avg_pool_grad(spec: PoolSpec) -> Result<Prepared> {
    avg_pool_grad_on(Isa::best(), spec)
}

/// As [`avg_pool_grad`], with the code for that instruction set. It runs where the processor has it.
///
/// # Errors
/// As [`avg_pool`].
pub fn avg_pool_grad_on(isa: Isa, spec: PoolSpec) -> Result<Prepared> {
    if spec.data_type == DataType::Double {
        return Ok(doubles::prepare(spec.check_sizes()?, doubles::Work::AverageGradient));
    }
    let sizes = spec.check()?;
    prepare::<true>(isa, sizes, 2 * sizes.row(sizes.x.size))
}

fn prepare<const GRADIENT: bool>(isa: Isa, sizes: Sizes, row_bytes: u64) -> Result<Prepared> {
    let rows = if GRADIENT { sizes.rows().1 } else { sizes.rows().0 };
    let cut = Cut::new(rows, row_bytes, 1);
    let (inputs, outputs) = sizes.totals();
    let cost = Cost { flops: sizes.flops(), bytes: 4.0 * (inputs + outputs) };
    let kernel = Arc::new(Average::<GRADIENT> { sizes, cut, isa });
    Ok(Prepared { chunks: cut.pieces(), scratch: 0, per_worker: 0, cost, in_place: Vec::new(), kernel })
}

#[derive(Debug)]
struct Average<const GRADIENT: bool> {
    sizes: Sizes,
    cut: Cut,
    isa: Isa,
}

impl<const GRADIENT: bool> CpuKernel for Average<GRADIENT> {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        let rows = self.cut.units(chunks);
        let (from, to) = (args.pointers[0].cast(), args.pointers[1].cast());
        // SAFETY: the instruction set was asked for when the kernel was prepared; the arguments are the caller's promise.
        unsafe { deep!(self.sizes, DEEP => self.isa.run(AveragePiece::<GRADIENT, DEEP> { sizes: self.sizes, rows, from, to })) };
        Ok(())
    }
}

/// Made with pointers to both arguments, of which no other thread writes `rows` of the second.
struct AveragePiece<const GRADIENT: bool, const DEEP: bool> {
    sizes: Sizes,
    /// Of all images, one after the other.
    rows: Range<usize>,
    from: *const f32,
    to: *mut f32,
}

impl<const GRADIENT: bool, const DEEP: bool> Vectorised for AveragePiece<GRADIENT, DEEP> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        if GRADIENT { self.gradient() } else { self.forward() }
    }
}

impl<const GRADIENT: bool, const DEEP: bool> AveragePiece<GRADIENT, DEEP> {
    #[inline(always)]
    fn forward(&self) {
        let Sizes { channels, z, y, x, .. } = self.sizes;
        for row in self.rows.clone() {
            let [image, plane, line] = self.sizes.place::<DEEP>(row, z.positions, y.positions);
            let (taps_z, taps_y) = (self.sizes.planes_at::<DEEP>(plane), y.taps_at(line));
            let front = (image * z.size) as isize + self.sizes.plane_start::<DEEP>(plane);
            for column in 0..x.positions {
                let (taps_x, left) = (x.taps_at(column), x.start(column));
                let taps = (taps_z.len() * taps_y.len() * taps_x.len()).max(1) as f32;
                for (channel, count) in groups(0..channels) {
                    let mut sum = [0f32; GROUP];
                    for tap_z in taps_z.clone() {
                        let top = (front + tap_z as isize) * y.size as isize + y.start(line);
                        for tap_y in taps_y.clone() {
                            let line = (top + tap_y as isize) * x.size as isize + left;
                            for tap_x in taps_x.clone() {
                                let at = (line + tap_x as isize) as usize * channels + channel;
                                // SAFETY: the taps lie on the input.
                                let values = unsafe { get(self.from.add(at), count, 0.0) };
                                for lane in 0..GROUP {
                                    sum[lane] += values[lane];
                                }
                            }
                        }
                    }
                    for value in &mut sum {
                        *value /= taps;
                    }
                    // SAFETY: the results of these rows are this piece's.
                    unsafe { put(self.to.add((row * x.positions + column) * channels + channel), count, sum) };
                }
            }
        }
    }

    #[inline(always)]
    fn gradient(&self) {
        let Sizes { channels, z, y, x, .. } = self.sizes;
        for row in self.rows.clone() {
            let [image, plane, line] = self.sizes.place::<DEEP>(row, z.size, y.size);
            let (windows_z, windows_y) = (self.sizes.planes_over::<DEEP>(plane), y.positions_over(line));
            for column in 0..x.size {
                let windows_x = x.positions_over(column);
                for (channel, count) in groups(0..channels) {
                    let mut sum = [0f32; GROUP];
                    for window_z in windows_z.clone() {
                        let planes = self.sizes.planes_at::<DEEP>(window_z).len();
                        for window_y in windows_y.clone() {
                            let rows = y.taps_at(window_y).len();
                            for window_x in windows_x.clone() {
                                let scale = 1.0 / (planes * rows * x.taps_at(window_x).len()) as f32;
                                let window = ((image * z.positions + window_z) * y.positions + window_y) * x.positions + window_x;
                                // SAFETY: the window is one of the result's.
                                let grad = unsafe { get(self.from.add(window * channels + channel), count, 0.0) };
                                for lane in 0..GROUP {
                                    sum[lane] += scale * grad[lane];
                                }
                            }
                        }
                    }
                    // SAFETY: the elements of these rows are this piece's.
                    unsafe { put(self.to.add((row * x.size + column) * channels + channel), count, sum) };
                }
            }
        }
    }
}
