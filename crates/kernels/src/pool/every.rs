//! Maxima as TensorFlow's MaxPool3D has them: every element that is as large as the maximum of its window has the gradient.

use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::Result;
use plimsoll_device::{Args, Cost, CpuKernel, Fault, Prepared};

use super::{Sizes, deep};
use crate::conv::{GROUP, get, groups, put};
use crate::cut::Cut;
use crate::simd::{Isa, Vectorised};

/// An element is as large as the maximum if it is so near to it.
const NEAR: f32 = 1e-5;

/// Arguments: input, output.
pub(super) fn forward(isa: Isa, sizes: Sizes) -> Result<Prepared> {
    let (inputs, outputs) = sizes.totals();
    let cut = Cut::new(sizes.rows().0, sizes.row(sizes.x.positions) * (1 + sizes.strides), 1);
    prepare::<false>(isa, sizes, cut, Cost { flops: sizes.flops(), bytes: 4.0 * (inputs + outputs) })
}

/// Arguments: input, output, gradient by the output, gradient by the input.
pub(super) fn gradient(isa: Isa, sizes: Sizes) -> Result<Prepared> {
    let (inputs, outputs) = sizes.totals();
    let cut = Cut::new(sizes.rows().1, 3 * sizes.row(sizes.x.size), 1);
    prepare::<true>(isa, sizes, cut, Cost { flops: 2.0 * sizes.flops(), bytes: 8.0 * (inputs + outputs) })
}

fn prepare<const GRADIENT: bool>(isa: Isa, sizes: Sizes, cut: Cut, cost: Cost) -> Result<Prepared> {
    let kernel = Arc::new(Every::<GRADIENT> { sizes, cut, isa });
    Ok(Prepared { chunks: cut.pieces(), scratch: 0, per_worker: 0, cost, in_place: Vec::new(), kernel })
}

#[derive(Debug)]
struct Every<const GRADIENT: bool> {
    sizes: Sizes,
    cut: Cut,
    isa: Isa,
}

impl<const GRADIENT: bool> CpuKernel for Every<GRADIENT> {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        let (sizes, rows, pointers) = (self.sizes, self.cut.units(chunks), args.pointers);
        // SAFETY: the instruction set was asked for when the kernel was prepared; the arguments are the caller's promise.
        unsafe { deep!(sizes, DEEP => self.isa.run(EveryPiece::<GRADIENT, DEEP> { sizes, rows, pointers })) };
        Ok(())
    }
}

/// Made with pointers to all arguments, of which no other thread writes `rows` of the last.
struct EveryPiece<'a, const GRADIENT: bool, const DEEP: bool> {
    sizes: Sizes,
    /// Of all images, one after the other.
    rows: Range<usize>,
    pointers: &'a [*mut u8],
}

impl<const GRADIENT: bool, const DEEP: bool> Vectorised for EveryPiece<'_, GRADIENT, DEEP> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        if GRADIENT { self.gradient() } else { self.forward() }
    }
}

impl<const GRADIENT: bool, const DEEP: bool> EveryPiece<'_, GRADIENT, DEEP> {
    #[inline(always)]
    fn forward(&self) {
        let Sizes { channels, z, y, x, .. } = self.sizes;
        let (input, output) = (self.pointers[0].cast::<f32>().cast_const(), self.pointers[1].cast::<f32>());
        for row in self.rows.clone() {
            let [image, plane, line] = self.sizes.place::<DEEP>(row, z.positions, y.positions);
            let (taps_z, taps_y) = (self.sizes.planes_at::<DEEP>(plane), y.taps_at(line));
            let front = (image * z.size) as isize + self.sizes.plane_start::<DEEP>(plane);
            for column in 0..x.positions {
                let (taps_x, left) = (x.taps_at(column), x.start(column));
                for (channel, count) in groups(0..channels) {
                    let mut most = [f32::NEG_INFINITY; GROUP];
                    for tap_z in taps_z.clone() {
                        let top = (front + tap_z as isize) * y.size as isize + y.start(line);
                        for tap_y in taps_y.clone() {
                            let line = (top + tap_y as isize) * x.size as isize + left;
                            for tap_x in taps_x.clone() {
                                let at = (line + tap_x as isize) as usize * channels + channel;
                                // SAFETY: the taps lie on the input.
                                let values = unsafe { get(input.add(at), count, 0.0) };
                                for lane in 0..GROUP {
                                    most[lane] = if most[lane] > values[lane] { most[lane] } else { values[lane] };
                                }
                            }
                        }
                    }
                    // SAFETY: the results of these rows are this call's.
                    unsafe { put(output.add((row * x.positions + column) * channels + channel), count, most) };
                }
            }
        }
    }

    #[inline(always)]
    fn gradient(&self) {
        let Sizes { channels, z, y, x, .. } = self.sizes;
        let pointer = |index: usize| self.pointers[index].cast::<f32>().cast_const();
        let (input, output, grad, to) = (pointer(0), pointer(1), pointer(2), self.pointers[3].cast::<f32>());
        for row in self.rows.clone() {
            let [image, plane, line] = self.sizes.place::<DEEP>(row, z.size, y.size);
            let (windows_z, windows_y) = (self.sizes.planes_over::<DEEP>(plane), y.positions_over(line));
            for column in 0..x.size {
                let windows_x = x.positions_over(column);
                for (channel, count) in groups(0..channels) {
                    let at = (row * x.size + column) * channels + channel;
                    // SAFETY: an element of the input.
                    let values = unsafe { get(input.add(at), count, 0.0) };
                    let mut sum = [0f32; GROUP];
                    for (window_z, window_y) in windows_z.clone().flat_map(|z| windows_y.clone().map(move |y| (z, y))) {
                        for window_x in windows_x.clone() {
                            let window = ((image * z.positions + window_z) * y.positions + window_y) * x.positions + window_x;
                            let window = window * channels + channel;
                            // SAFETY: the window is one of the result's.
                            let (most, grad) = unsafe { (get(output.add(window), count, 0.0), get(grad.add(window), count, 0.0)) };
                            for lane in 0..GROUP {
                                let near = (values[lane] - most[lane]).abs() < NEAR;
                                sum[lane] += if near { grad[lane] } else { 0.0 };
                            }
                        }
                    }
                    // SAFETY: the elements of these rows are this call's.
                    unsafe { put(to.add(at), count, sum) };
                }
            }
        }
    }
}
