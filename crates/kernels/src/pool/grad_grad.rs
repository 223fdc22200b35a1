//! `MaxPoolGradGrad` and `MaxPool3DGradGrad`.

use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::Result;
use plimsoll_device::{Args, Cost, CpuKernel, Fault, Prepared};
use plimsoll_request::pool::PoolSpec;

use super::{Check, Sizes, deep};
use crate::conv::{GROUP, get, groups, put};
use crate::cut::Cut;
use crate::simd::{Isa, Vectorised};

/// `MaxPoolGradGrad` and `MaxPool3DGradGrad` with the code for that instruction set: of each window the number where the input's first
/// element is that equals the output's, and 0 where there is none. Arguments: input, output, numbers of the input's shape; numbers of
/// the output's.
///
/// # Errors
/// As [`super::max_pool_on`].
pub fn max_pool_grad_grad_on(isa: Isa, spec: PoolSpec) -> Result<Prepared> {
    let sizes = spec.check()?;
    let (inputs, outputs) = sizes.totals();
    let cut = Cut::new(sizes.rows().0, sizes.row(sizes.x.positions) * (2 + 2 * sizes.strides), 1);
    let cost = Cost { flops: 2.0 * sizes.flops(), bytes: 8.0 * (inputs + outputs) };
    let kernel = Arc::new(GradGrad { sizes, cut, isa });
    Ok(Prepared { chunks: cut.pieces(), scratch: 0, per_worker: 0, cost, in_place: Vec::new(), kernel })
}

#[derive(Debug)]
struct GradGrad {
    sizes: Sizes,
    cut: Cut,
    isa: Isa,
}

impl CpuKernel for GradGrad {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        let (sizes, rows, pointers) = (self.sizes, self.cut.units(chunks), args.pointers);
        // SAFETY: the instruction set was asked for when the kernel was prepared; the arguments are the caller's promise.
        unsafe { deep!(sizes, DEEP => self.isa.run(GradGradPiece::<DEEP> { sizes, rows, pointers })) };
        Ok(())
    }
}

/// Made with pointers to all arguments, of which no other thread writes `rows` of the last.
struct GradGradPiece<'a, const DEEP: bool> {
    sizes: Sizes,
    /// Of all images, one after the other.
    rows: Range<usize>,
    pointers: &'a [*mut u8],
}

impl<const DEEP: bool> Vectorised for GradGradPiece<'_, DEEP> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Sizes { channels, z, y, x, .. } = self.sizes;
        let pointer = |index: usize| self.pointers[index].cast::<f32>().cast_const();
        let (input, output, numbers, to) = (pointer(0), pointer(1), pointer(2), self.pointers[3].cast::<f32>());
        for row in self.rows.clone() {
            let [image, plane, line] = self.sizes.place::<DEEP>(row, z.positions, y.positions);
            let (taps_z, taps_y) = (self.sizes.planes_at::<DEEP>(plane), y.taps_at(line));
            let front = (image * z.size) as isize + self.sizes.plane_start::<DEEP>(plane);
            for column in 0..x.positions {
                let (taps_x, left) = (x.taps_at(column), x.start(column));
                for (channel, count) in groups(0..channels) {
                    let window = (row * x.positions + column) * channels + channel;
                    // SAFETY: an element of the output.
                    let most = unsafe { get(output.add(window), count, 0.0) };
                    let (mut found, mut number) = ([false; GROUP], [0f32; GROUP]);
                    for tap_z in taps_z.clone() {
                        let top = (front + tap_z as isize) * y.size as isize + y.start(line);
                        for tap_y in taps_y.clone() {
                            let line = (top + tap_y as isize) * x.size as isize + left;
                            for tap_x in taps_x.clone() {
                                let at = (line + tap_x as isize) as usize * channels + channel;
                                // SAFETY: the taps lie on the input.
                                let (values, numbers) = unsafe { (get(input.add(at), count, 0.0), get(numbers.add(at), count, 0.0)) };
                                for lane in 0..GROUP {
                                    let first = values[lane] == most[lane] && !found[lane];
                                    number[lane] = if first { numbers[lane] } else { number[lane] };
                                    found[lane] |= first;
                                }
                            }
                        }
                    }
                    // SAFETY: the results of these rows are this call's.
                    unsafe { put(to.add(window), count, number) };
                }
            }
        }
    }
}
