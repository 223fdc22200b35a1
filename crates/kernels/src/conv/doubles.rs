//! Convolutions of doubles, and their gradients: plain loops, whose inner ones run over channels. A depthwise convolution is one in as
//! many groups as there are channels.

use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::{Error, Result};
use plimsoll_device::{Args, Cost, CpuKernel, Fault, Prepared};
use plimsoll_request::anchor::Epilogue;
use plimsoll_request::conv::ConvSpec;

use super::{Axis, Sizes};
use crate::cut::Cut;

/// Which of the three tensors is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// Arguments: input, filter, result.
    Forward,
    /// Arguments: filter, gradient by the result, gradient by the input.
    Input,
    /// Arguments: input, gradient by the result, gradient by the filter.
    Filter,
}

/// The kernel. Sums are in an order that follows from the sizes alone.
///
/// # Errors
/// As [`Sizes::check_sizes`]; UNIMPLEMENTED for an epilogue.
pub(super) fn prepare(spec: &ConvSpec, work: Work, epilogue: Option<&Epilogue>) -> Result<Prepared> {
    spec.check_sizes()?;
    if epilogue.is_some() {
        return Err(Error::unimplemented(format!("an epilogue on a convolution of {}", spec.data_type)));
    }
    let [z, y, x] = spec.sides();
    let groups = spec.groups as usize;
    let (in_c, out_c) = (spec.in_c as usize, spec.out_c as usize);
    let kernel = Doubles { work, batch: spec.batch as usize, in_c, out_c, groups, z, y, x, cut: Cut::whole(0) };
    let units = match work {
        Work::Forward => kernel.batch * z.positions * y.positions,
        Work::Input => kernel.batch * z.size * y.size,
        Work::Filter => z.taps * y.taps * x.taps * kernel.in_group(),
    };
    let cost = Cost { flops: spec.flops(), bytes: spec.bytes() };
    // As if every multiplication moved a double.
    let cut = Cut::new(units, (4.0 * cost.flops / units.max(1) as f64) as u64 + 16, 1);
    let kernel = Doubles { cut, ..kernel };
    Ok(Prepared { chunks: cut.pieces(), scratch: 0, per_worker: 0, cost, in_place: Vec::new(), kernel: Arc::new(kernel) })
}

/// As [`prepare`] for a depthwise convolution.
///
/// # Errors
/// As there; INVALID_ARGUMENT where the result's channels are not a multiple of the input's.
pub(super) fn depthwise(spec: &ConvSpec, work: Work, epilogue: Option<&Epilogue>) -> Result<Prepared> {
    if spec.in_c == 0 || !spec.out_c.is_multiple_of(spec.in_c) {
        return Err(Error::invalid_argument(format!("a depthwise convolution of {} channels to {}", spec.in_c, spec.out_c)));
    }
    prepare(&ConvSpec { groups: spec.in_c, ..*spec }, work, epilogue)
}

#[derive(Debug)]
struct Doubles {
    work: Work,
    batch: usize,
    in_c: usize,
    out_c: usize,
    groups: usize,
    z: Axis,
    y: Axis,
    x: Axis,
    /// Of rows of the result or the input; or of the filter's taps times the channels of a group.
    cut: Cut,
}

impl CpuKernel for Doubles {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        let units = self.cut.units(chunks);
        let input = self.batch * self.z.size * self.y.size * self.x.size * self.in_c;
        let filter = self.z.taps * self.y.taps * self.x.taps * self.in_group() * self.out_c;
        let output = self.batch * self.z.positions * self.y.positions * self.x.positions * self.out_c;
        let (row, first, second) = match self.work {
            Work::Forward => (self.x.positions * self.out_c, input, filter),
            Work::Input => (self.x.size * self.in_c, filter, output),
            Work::Filter => (self.out_c, input, output),
        };
        // SAFETY: the arguments have the sizes that the kernel was prepared for; pieces write different units.
        let (first, second, result) = unsafe {
            (args.input::<f64>(0, first), args.input::<f64>(1, second), args.output::<f64>(2, units.start * row..units.end * row))
        };
        result.fill(0.0);
        for (at, unit) in units.enumerate() {
            let result = &mut result[at * row..][..row];
            match self.work {
                Work::Forward => self.forward(unit, first, second, result),
                Work::Input => self.input(unit, first, second, result),
                Work::Filter => self.filter(unit, first, second, result),
            }
        }
        Ok(())
    }
}

impl Doubles {
    /// Channels of a group of the input.
    fn in_group(&self) -> usize {
        self.in_c.checked_div(self.groups).unwrap_or(0)
    }

    /// Where the channels of an element of the input begin.
    fn input_at(&self, image: usize, [z, y, x]: [usize; 3]) -> usize {
        (((image * self.z.size + z) * self.y.size + y) * self.x.size + x) * self.in_c
    }

    /// Where the channels of an element of the result begin.
    fn output_at(&self, image: usize, [z, y, x]: [usize; 3]) -> usize {
        (((image * self.z.positions + z) * self.y.positions + y) * self.x.positions + x) * self.out_c
    }

    /// Where the filter's numbers of a tap begin.
    fn tap_at(&self, [z, y, x]: [usize; 3]) -> usize {
        ((z * self.y.taps + y) * self.x.taps + x) * self.in_group() * self.out_c
    }

    /// A row of the result.
    fn forward(&self, row: usize, input: &[f64], filter: &[f64], result: &mut [f64]) {
        let (plane, y) = (row / self.y.positions, row % self.y.positions);
        let (image, z) = (plane / self.z.positions, plane % self.z.positions);
        let (in_group, out_group) = (self.in_group(), self.out_c / self.groups);
        for (x, sums) in result.chunks_exact_mut(self.out_c.max(1)).enumerate() {
            for (tap, seen) in taps([&self.z, &self.y, &self.x], [z, y, x]) {
                let values = &input[self.input_at(image, seen)..][..self.in_c];
                let numbers = &filter[self.tap_at(tap)..][..in_group * self.out_c];
                for (group, sums) in sums.chunks_exact_mut(out_group.max(1)).enumerate() {
                    for (channel, value) in values[group * in_group..][..in_group].iter().enumerate() {
                        let numbers = &numbers[channel * self.out_c + group * out_group..][..out_group];
                        for (sum, number) in sums.iter_mut().zip(numbers) {
                            *sum += value * number;
                        }
                    }
                }
            }
        }
    }

    /// A row of the gradient by the input.
    fn input(&self, row: usize, filter: &[f64], gradient: &[f64], result: &mut [f64]) {
        let (plane, y) = (row / self.y.size, row % self.y.size);
        let (image, z) = (plane / self.z.size, plane % self.z.size);
        let (in_group, out_group) = (self.in_group(), self.out_c / self.groups);
        for (x, sums) in result.chunks_exact_mut(self.in_c.max(1)).enumerate() {
            for (tap, position) in windows([&self.z, &self.y, &self.x], [z, y, x]) {
                let values = &gradient[self.output_at(image, position)..][..self.out_c];
                let numbers = &filter[self.tap_at(tap)..][..in_group * self.out_c];
                for (channel, sum) in sums.iter_mut().enumerate() {
                    let (group, channel) = (channel / in_group, channel % in_group);
                    let values = &values[group * out_group..][..out_group];
                    let numbers = &numbers[channel * self.out_c + group * out_group..][..out_group];
                    *sum += values.iter().zip(numbers).fold(0.0, |sum, (value, number)| sum + value * number);
                }
            }
        }
    }

    /// The gradient by the filter, of a tap and a channel of each group.
    fn filter(&self, unit: usize, input: &[f64], gradient: &[f64], result: &mut [f64]) {
        let (in_group, out_group) = (self.in_group(), self.out_c / self.groups);
        let (tap, channel) = (unit / in_group, unit % in_group);
        let tap = [tap / self.x.taps / self.y.taps, tap / self.x.taps % self.y.taps, tap % self.x.taps];
        for image in 0..self.batch {
            for z in 0..self.z.positions {
                let Some(seen_z) = seen(&self.z, z, tap[0]) else { continue };
                for y in 0..self.y.positions {
                    let Some(seen_y) = seen(&self.y, y, tap[1]) else { continue };
                    for x in 0..self.x.positions {
                        let Some(seen_x) = seen(&self.x, x, tap[2]) else { continue };
                        let values = &input[self.input_at(image, [seen_z, seen_y, seen_x])..][..self.in_c];
                        let slopes = &gradient[self.output_at(image, [z, y, x])..][..self.out_c];
                        for (group, sums) in result.chunks_exact_mut(out_group.max(1)).enumerate() {
                            let value = values[group * in_group + channel];
                            for (sum, slope) in sums.iter_mut().zip(&slopes[group * out_group..]) {
                                *sum += value * slope;
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The input's index that a position sees with a tap, if there is one.
fn seen(axis: &Axis, position: usize, tap: usize) -> Option<usize> {
    usize::try_from(axis.start(position) + (tap * axis.dilation) as isize).ok().filter(|index| *index < axis.size)
}

/// The taps that lie on the input at a position, and the input's indices there.
fn taps<'a>(axes: [&'a Axis; 3], position: [usize; 3]) -> impl Iterator<Item = ([usize; 3], [usize; 3])> + 'a {
    let at = move |axis: usize| {
        let found = move |tap| Some((tap, seen(axes[axis], position[axis], tap)?));
        axes[axis].taps_at(position[axis]).filter_map(found)
    };
    at(0).flat_map(move |z| at(1).flat_map(move |y| at(2).map(move |x| ([z.0, y.0, x.0], [z.1, y.1, x.1]))))
}

/// The taps with which positions see an index of the input, and these positions.
fn windows<'a>(axes: [&'a Axis; 3], index: [usize; 3]) -> impl Iterator<Item = ([usize; 3], [usize; 3])> + 'a {
    let at = move |axis: usize| {
        let side = axes[axis];
        let found = move |tap: usize| {
            let offset = usize::try_from(index[axis] as isize + side.pad - (tap * side.dilation) as isize).ok()?;
            let position = offset / side.stride;
            (offset % side.stride == 0 && position < side.positions).then_some((tap, position))
        };
        (0..side.taps).filter_map(found)
    };
    at(0).flat_map(move |z| at(1).flat_map(move |y| at(2).map(move |x| ([z.0, y.0, x.0], [z.1, y.1, x.1]))))
}
