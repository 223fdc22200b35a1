//! Poolings of doubles, and their gradients: plain loops. A piece is some images.

use std::ops::Range;
use std::sync::Arc;

use plimsoll_device::{Args, Cost, CpuKernel, Fault, Prepared};

use super::Sizes;
use crate::conv::Axis;
use crate::cut::Cut;

/// What a window gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// The largest number; NaN is none. Arguments: input, result.
    Max,
    /// The gradient goes to the first of the largest. Arguments: input, result, gradient by the result, gradient by the input.
    MaxGradient,
    /// The mean of the part on the input. Arguments: input, result.
    Average,
    /// Arguments: gradient by the result, gradient by the input.
    AverageGradient,
}

pub(super) fn prepare(sizes: Sizes, work: Work) -> Prepared {
    let (inputs, outputs) = sizes.totals();
    let cost = Cost { flops: sizes.flops(), bytes: 8.0 * (inputs + outputs) };
    let cut = Cut::new(sizes.batch, (8.0 * cost.flops / sizes.batch.max(1) as f64) as u64 + 16, 1);
    Prepared { chunks: cut.pieces(), scratch: 0, per_worker: 0, cost, in_place: Vec::new(), kernel: Arc::new(Doubles { sizes, work, cut }) }
}

#[derive(Debug)]
struct Doubles {
    sizes: Sizes,
    work: Work,
    /// Of images.
    cut: Cut,
}

impl CpuKernel for Doubles {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        let Sizes { batch, channels, z, y, x, .. } = self.sizes;
        let images = self.cut.units(chunks);
        let of = |size: fn(&Axis) -> usize| size(&z) * size(&y) * size(&x) * channels;
        let (input, output) = (of(|axis| axis.size), of(|axis| axis.positions));
        let (inputs, outputs) = (batch * input, batch * output);
        let (own_input, own_output) = (images.start * input..images.end * input, images.start * output..images.end * output);
        match self.work {
            Work::Max | Work::Average => {
                // SAFETY: the arguments have the sizes that the kernel was prepared for; pieces write different images.
                let (from, to) = unsafe { (args.input::<f64>(0, inputs), args.output::<f64>(1, own_output.clone())) };
                self.forward(&from[own_input], to, images.len());
            }
            Work::MaxGradient => {
                // SAFETY: as above.
                let (from, slopes) = unsafe { (args.input::<f64>(0, inputs), args.input::<f64>(2, outputs)) };
                // SAFETY: as above.
                let to = unsafe { args.output::<f64>(3, own_input.clone()) };
                to.fill(0.0);
                self.max_gradient(&from[own_input], &slopes[own_output], to, images.len());
            }
            Work::AverageGradient => {
                // SAFETY: as above.
                let (slopes, to) = unsafe { (args.input::<f64>(0, outputs), args.output::<f64>(1, own_input)) };
                to.fill(0.0);
                self.average_gradient(&slopes[own_output], to, images.len());
            }
        }
        Ok(())
    }
}

impl Doubles {
    /// For each window of so many images: where its result is, and where in the input its taps are.
    fn windows(&self, images: usize, mut visit: impl FnMut(usize, &mut dyn Iterator<Item = usize>, usize)) {
        let Sizes { channels, z, y, x, .. } = self.sizes;
        let mut window = 0;
        for image in 0..images {
            for at_z in 0..z.positions {
                for at_y in 0..y.positions {
                    for at_x in 0..x.positions {
                        let (taps_z, taps_y, taps_x) = (z.taps_at(at_z), y.taps_at(at_y), x.taps_at(at_x));
                        let count = taps_z.len() * taps_y.len() * taps_x.len();
                        let index = |axis: &Axis, position: usize, tap: usize| (axis.start(position) + tap as isize) as usize;
                        let mut places = taps_z.flat_map(|tap_z| {
                            let taps_x = taps_x.clone();
                            taps_y.clone().flat_map(move |tap_y| {
                                let line = (image * z.size + index(&z, at_z, tap_z)) * y.size + index(&y, at_y, tap_y);
                                taps_x.clone().map(move |tap_x| (line * x.size + index(&x, at_x, tap_x)) * channels)
                            })
                        });
                        visit(window * channels, &mut places, count);
                        window += 1;
                    }
                }
            }
        }
    }

    fn forward(&self, from: &[f64], to: &mut [f64], images: usize) {
        let channels = self.sizes.channels;
        let is_max = self.work == Work::Max;
        self.windows(images, |window, places, count| {
            let result = &mut to[window..window + channels];
            result.fill(if is_max { f64::MIN } else { 0.0 });
            for place in places {
                for (result, value) in result.iter_mut().zip(&from[place..place + channels]) {
                    match is_max {
                        true if *value > *result => *result = *value,
                        true => {}
                        false => *result += value,
                    }
                }
            }
            if !is_max {
                result.iter_mut().for_each(|result| *result /= count.max(1) as f64);
            }
        });
    }

    fn max_gradient(&self, from: &[f64], slopes: &[f64], to: &mut [f64], images: usize) {
        for channel in 0..self.sizes.channels {
            self.windows(images, |window, places, _| {
                let mut most: Option<usize> = None;
                for place in places.map(|place| place + channel) {
                    // A NaN counts if it comes first.
                    if most.is_none_or(|most| from[place] > from[most]) {
                        most = Some(place);
                    }
                }
                if let Some(most) = most {
                    to[most] += slopes[window + channel];
                }
            });
        }
    }

    fn average_gradient(&self, slopes: &[f64], to: &mut [f64], images: usize) {
        let channels = self.sizes.channels;
        self.windows(images, |window, places, count| {
            let scale = 1.0 / count.max(1) as f64;
            for place in places {
                for (sum, slope) in to[place..place + channels].iter_mut().zip(&slopes[window..]) {
                    *sum += scale * slope;
                }
            }
        });
    }
}
