//! `LRN` and `LRNGrad`: local response normalization over neighbouring channels, in one pass over memory.

#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_device::{Args, Cost, CpuKernel, Fault, Prepared};
use plimsoll_request::lrn::LrnSpec;

use crate::conv::{GROUP, get, groups, put};
use crate::cut::{Cut, elements};
use crate::simd::{Isa, Vectorised, math};

/// `LRN` of floats. Arguments: input, output.
///
/// # Errors
/// INVALID_ARGUMENT for sizes that no memory holds; UNIMPLEMENTED for other types than float.
pub fn lrn(spec: LrnSpec) -> Result<Prepared> {
    lrn_on(Isa::best(), spec)
}

/// As [`lrn`], with the code for that instruction set. It runs where the processor has it.
///
/// # Errors
/// As [`lrn`].
pub fn lrn_on(isa: Isa, spec: LrnSpec) -> Result<Prepared> {
    prepare(isa, spec, false)
}

/// `LRNGrad`. Arguments: gradient by the output, input, output, gradient by the input.
///
/// # Errors
/// As [`lrn`].
pub fn lrn_grad(spec: LrnSpec) -> Result<Prepared> {
    lrn_grad_on(Isa::best(), spec)
}

/// As [`lrn_grad`], with the code for that instruction set. It runs where the processor has it.
///
/// # Errors
/// As [`lrn`].
pub fn lrn_grad_on(isa: Isa, spec: LrnSpec) -> Result<Prepared> {
    prepare(isa, spec, true)
}

fn prepare(isa: Isa, spec: LrnSpec, gradient: bool) -> Result<Prepared> {
    if spec.data_type != DataType::Float {
        return Err(Error::unimplemented(format!("LRN of {}", spec.data_type)));
    }
    let total = elements(&[spec.rows, spec.channels])?;
    let channels = spec.channels as usize;
    // Neighbours further away than the last channel are none.
    let radius = (spec.depth_radius as usize).min(channels.saturating_sub(1));
    let arguments = if gradient { 4 } else { 2 };
    let cut = Cut::new(spec.rows as usize, 2 * arguments * 4 * channels as u64, 1);
    let line = channels.next_multiple_of(GROUP) + 2 * radius + GROUP;
    let kernel = Lrn { channels, radius, line, bias: spec.bias, alpha: spec.alpha, beta: spec.beta, gradient, cut, isa };
    let flops = (2 * radius + 20) as f64 * if gradient { 2.0 } else { 1.0 };
    Ok(Prepared {
        chunks: cut.pieces(),
        scratch: 0,
        per_worker: (TOGETHER * lines(gradient) * line * 4) as u64,
        cost: Cost { flops: total as f64 * flops, bytes: arguments as f64 * 4.0 * total as f64 },
        in_place: if gradient { vec![(0, 0), (1, 0), (2, 0)] } else { vec![(0, 0)] },
        kernel: Arc::new(kernel),
    })
}

/// Rows whose lines are filled before any is read, since fresh bytes cannot be read at other boundaries for a while.
const TOGETHER: usize = 8;

/// Lines of scratch for a row.
fn lines(gradient: bool) -> usize {
    if gradient { 3 } else { 1 }
}

#[derive(Debug)]
struct Lrn {
    channels: usize,
    radius: usize,
    /// Floats of a line of scratch: zeros, a row's channels, zeros.
    line: usize,
    bias: f32,
    alpha: f32,
    beta: f32,
    gradient: bool,
    cut: Cut,
    isa: Isa,
}

impl CpuKernel for Lrn {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        let rows = self.cut.units(chunks);
        // SAFETY: the instruction set was asked for when the kernel was prepared; the arguments are the caller's promise.
        unsafe {
            match self.beta {
                0.5 => self.isa.run(LrnPiece::<HALF> { lrn: self, rows, args }),
                0.75 => self.isa.run(LrnPiece::<THREE_QUARTERS> { lrn: self, rows, args }),
                1.0 => self.isa.run(LrnPiece::<ONE> { lrn: self, rows, args }),
                _ => self.isa.run(LrnPiece::<OTHER> { lrn: self, rows, args }),
            }
        }
        Ok(())
    }
}

// Exponents that are roots.
const HALF: u8 = 0;
const THREE_QUARTERS: u8 = 1;
const ONE: u8 = 2;
const OTHER: u8 = 3;

/// Made with arguments of which no other thread writes `rows` of the last, and with scratch of so many lines as were asked for.
struct LrnPiece<'a, const BETA: u8> {
    lrn: &'a Lrn,
    rows: Range<usize>,
    args: &'a Args<'a>,
}

impl<const BETA: u8> Vectorised for LrnPiece<'_, BETA> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let (scratch, distance) = (self.args.worker.cast::<f32>(), lines(self.lrn.gradient) * self.lrn.line);
        // SAFETY: so many floats were asked for.
        unsafe { scratch.write_bytes(0, TOGETHER * distance) };
        for first in self.rows.clone().step_by(TOGETHER) {
            let rows = first..(first + TOGETHER).min(self.rows.end);
            let line = |row: usize| scratch.wrapping_add((row - first) * distance);
            for row in rows.clone() {
                self.square(self.row(usize::from(self.lrn.gradient), row), line(row));
            }
            if self.lrn.gradient {
                for row in rows.clone() {
                    self.shares::<FMA>(row, line(row));
                }
                for row in rows {
                    self.gradient(row, line(row));
                }
            } else {
                for row in rows {
                    self.forward::<FMA>(row, line(row));
                }
            }
        }
    }
}

/// `norm^-0.75` without roots and divisions, which take longer. The error is at most 3 units in the last place.
///
/// A number's bits are about its logarithm, so that minus 3/4 of them are about that of the result: within 4.5 %. From there on
/// `p (1 - r)^(-1/4)` is the result where `r = 1 - norm^3 p^4`, by the first terms of its series: four, then two.
#[inline(always)]
fn three_quarters<const FMA: bool>(norm: f32) -> f32 {
    const BITS: u32 = 0x6F15_0000;
    // Numbers of fewer bits are scaled by 2^24, and their results back.
    let is_small = norm < f32::MIN_POSITIVE;
    let scaled = if is_small { norm * 16_777_216.0 } else { norm };
    let madd = |a: f32, b: f32, c: f32| if FMA { a.mul_add(b, c) } else { a * b + c };
    let rest = |power: f32| {
        let root = scaled * power;
        1.0 - (root * root) * (root * power)
    };
    let first = f32::from_bits(BITS.wrapping_sub((scaled.to_bits() >> 1) + (scaled.to_bits() >> 2)));
    let r = rest(first);
    let second = madd(first * r, madd(madd(15.0 / 128.0, r, 5.0 / 32.0), r, 0.25), first);
    let power = madd(second * rest(second), 0.25, second);
    let power = if is_small { power * 262_144.0 } else { power };
    let power = if norm > f32::MAX { 0.0 } else { power };
    let power = if norm > 0.0 { power } else { f32::NAN };
    if norm == 0.0 { f32::INFINITY } else { power }
}

impl<const BETA: u8> LrnPiece<'_, BETA> {
    /// Row `row` of argument `index`.
    #[inline(always)]
    fn row(&self, index: usize, row: usize) -> *mut f32 {
        self.args.pointers[index].cast::<f32>().wrapping_add(row * self.lrn.channels)
    }

    #[inline(always)]
    fn forward<const FMA: bool>(&self, row: usize, squares: *const f32) {
        let (from, to) = (self.row(0, row), self.row(1, row));
        for (channel, count) in groups(0..self.lrn.channels) {
            let norms = self.norms(squares, channel);
            // SAFETY: the channels are there. The output may lie where the input does, whose squares are kept and whose other
            // channels are read before they are written.
            unsafe {
                let mut values = get(from.cast_const().add(channel), count, 0.0);
                for lane in 0..GROUP {
                    values[lane] *= self.power::<FMA>(norms[lane]);
                }
                put(to.add(channel), count, values);
            }
        }
    }

    /// The terms of each channel: with its neighbours to the second line, and with itself to the third.
    #[inline(always)]
    fn shares<const FMA: bool>(&self, row: usize, squares: *mut f32) {
        let (grad, output) = (self.row(0, row), self.row(2, row));
        let (shares, direct) = (squares.wrapping_add(self.lrn.line), squares.wrapping_add(2 * self.lrn.line));
        for (channel, count) in groups(0..self.lrn.channels) {
            let norms = self.norms(squares, channel);
            // SAFETY: the channels are there; lines have whole groups.
            unsafe {
                let (mut own, values) =
                    (get(grad.cast_const().add(channel), count, 0.0), get(output.cast_const().add(channel), count, 0.0));
                let mut share = [0f32; GROUP];
                for lane in 0..GROUP {
                    let value = own[lane] * values[lane] / norms[lane];
                    // Nothing that is beyond the channels may be a neighbour.
                    share[lane] = if lane < count { value } else { 0.0 };
                    own[lane] *= self.power::<FMA>(norms[lane]);
                }
                put(shares.add(self.lrn.radius + channel), GROUP, share);
                put(direct.add(channel), GROUP, own);
            }
        }
    }

    #[inline(always)]
    fn gradient(&self, row: usize, squares: *const f32) {
        let (input, to) = (self.row(1, row), self.row(3, row));
        let (shares, direct) = (squares.wrapping_add(self.lrn.line), squares.wrapping_add(2 * self.lrn.line));
        let factor = -2.0 * self.lrn.alpha * self.lrn.beta;
        for (channel, count) in groups(0..self.lrn.channels) {
            let near = self.window(shares, channel);
            // SAFETY: as above; of the arguments only this group's input is still needed where the result goes.
            unsafe {
                let (values, own) = (get(input.cast_const().add(channel), count, 0.0), get(direct.add(channel), GROUP, 0.0));
                let mut sum = [0f32; GROUP];
                for lane in 0..GROUP {
                    sum[lane] = own[lane] + factor * values[lane] * near[lane];
                }
                put(to.add(channel), count, sum);
            }
        }
    }

    /// The squares of a row, at the line's channels.
    #[inline(always)]
    fn square(&self, from: *const f32, squares: *mut f32) {
        for (channel, count) in groups(0..self.lrn.channels) {
            // SAFETY: the channels are there; lines have whole groups.
            unsafe {
                let values = get(from.add(channel), count, 0.0);
                put(squares.add(self.lrn.radius + channel), GROUP, values.map(|value| value * value));
            }
        }
    }

    /// The sums of the neighbours of a group's channels.
    #[inline(always)]
    fn window(&self, line: *const f32, channel: usize) -> [f32; GROUP] {
        let mut sum = [0f32; GROUP];
        for offset in 0..=2 * self.lrn.radius {
            // SAFETY: a line has the radius, whole groups, and the radius again.
            let values = unsafe { get(line.add(channel + offset), GROUP, 0.0) };
            for lane in 0..GROUP {
                sum[lane] += values[lane];
            }
        }
        sum
    }

    #[inline(always)]
    fn norms(&self, squares: *const f32, channel: usize) -> [f32; GROUP] {
        let mut norms = self.window(squares, channel);
        for norm in &mut norms {
            *norm = self.lrn.bias + self.lrn.alpha * *norm;
        }
        norms
    }

    /// `norm^-beta`.
    #[inline(always)]
    fn power<const FMA: bool>(&self, norm: f32) -> f32 {
        match BETA {
            HALF => 1.0 / norm.sqrt(),
            THREE_QUARTERS => three_quarters::<FMA>(norm),
            ONE => 1.0 / norm,
            _ => math::exp::<FMA>(-self.lrn.beta * math::log::<FMA>(norm)),
        }
    }
}
