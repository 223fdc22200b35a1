//! The walk over the elements, with the parts' numbers of each channel.

use std::ops::Range;

use plimsoll_device::{Args, CpuKernel, Fault};

use super::coefficients::{Lines, Statistics};
use super::counted::{Counted, Every, Normal};
use super::isa::{self, OverBlock, OverLanes, load, registers, store, walk};
use super::parts::Parts;
use crate::cut::Cut;
use crate::expr::{Chain, Changes, Link, Links, change};
use crate::simd::{Isa, Lanes};
use plimsoll_request::norm::BatchNormSpec;

/// The computation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Apply {
    /// `(x - mean) * factor + offset`.
    Forward {
        /// Whether there is an output of one number more.
        reserve_3: bool,
    },
    /// The gradients.
    Gradient {
        /// Whether dy counts only where y is above 0.
        relu: bool,
    },
}

/// What happens to results before they are written.
pub(super) struct Behind {
    pub(super) chain: Chain,
    /// How many operands it has, which are arguments behind the variance.
    pub(super) operands: usize,
}

impl std::fmt::Debug for Behind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Behind").field("operands", &self.operands).finish()
    }
}

#[derive(Debug)]
pub(super) struct Kernel {
    pub(super) spec: BatchNormSpec,
    pub(super) statistics: Statistics,
    pub(super) apply: Apply,
    pub(super) behind: Option<Behind>,
    pub(super) parts: Parts,
    pub(super) cut: Cut,
    pub(super) isa: Isa,
}

impl CpuKernel for Kernel {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        if chunks.is_empty() {
            return Ok(());
        }
        // SAFETY: the caller's promise; the lines are this worker's.
        unsafe {
            let lines = Lines::new(args.worker.cast::<f32>(), self.channels());
            match self.apply {
                Apply::Forward { reserve_3 } => self.forward(chunks, args, lines, reserve_3),
                Apply::Gradient { relu } => self.gradient(chunks, args, lines, relu),
            }
        }
        Ok(())
    }
}

impl Kernel {
    fn channels(&self) -> usize {
        self.spec.channels as usize
    }

    unsafe fn forward(&self, chunks: Range<u32>, args: &Args<'_>, mut lines: Lines<'_>, reserve_3: bool) {
        let (channels, x) = (self.channels(), usize::from(self.statistics == Statistics::Batch));
        let y = x + 5 + self.behind.as_ref().map_or(0, |behind| behind.operands);
        let links = self.behind.as_ref().map(|behind| behind.chain.bind(&args.pointers[x + 5..]));
        // SAFETY: the arguments have a number of each channel, but for given statistics that do not count, and these are not looked
        // at. Outputs of channels are written with the first piece, and read by none.
        unsafe {
            let input = |index: usize| args.input::<f32>(x + index, channels);
            match self.statistics {
                Statistics::Batch => {
                    lines.moments(&self.parts, args.input(0, 2 * channels * self.parts.count()));
                    lines.factors_of_moments(&self.spec, input(1));
                }
                Statistics::Given => lines.given(&self.spec, input(1), input(3), input(4)),
            }
            if chunks.start == 0 {
                let [means, squares, ..] = &lines.0;
                self.statistics(args, (x, y + 1), means, squares, reserve_3);
            }
            let walk = Forward {
                x: args.pointers[x].cast::<f32>().cast_const(),
                y: args.pointers[y].cast(),
                mean: lines.0[0].as_ptr(),
                factor: lines.0[2].as_ptr(),
                offset: args.pointers[x + 2].cast::<f32>().cast_const(),
                links: links.as_ref().map_or(&[], Links::get),
                channels,
                rows: self.cut.units(chunks),
            };
            isa::run(self.isa, walk);
        }
    }

    /// The outputs that have a number of each channel, which begin with argument `first`.
    unsafe fn statistics(&self, args: &Args<'_>, (x, first): (usize, usize), means: &[f32], squares: &[f32], reserve_3: bool) {
        let channels = means.len();
        let (rows, factor) = (self.spec.rows, self.spec.exponential_avg_factor);
        // SAFETY: as in `forward`.
        unsafe {
            let output = |index: usize| args.output::<f32>(first + index, 0..channels);
            let [running_mean, running_variance, batch_mean, batch_variance] = [0, 1, 2, 3].map(output);
            if rows == 0 {
                running_mean.fill(f32::NAN);
                running_variance.fill(f32::NAN);
            } else if self.statistics == Statistics::Batch {
                // Of a sample.
                let share = 1.0 / (rows - 1).max(1) as f32;
                for channel in 0..channels {
                    running_mean[channel] = means[channel];
                    running_variance[channel] = squares[channel] * share;
                }
                if factor != 1.0 {
                    let (mean, variance) = (args.input::<f32>(x + 3, channels), args.input::<f32>(x + 4, channels));
                    for channel in 0..channels {
                        running_mean[channel] = (1.0 - factor) * mean[channel] + factor * running_mean[channel];
                        running_variance[channel] = (1.0 - factor) * variance[channel] + factor * running_variance[channel];
                    }
                }
            } else {
                running_mean.copy_from_slice(args.input(x + 3, channels));
                running_variance.copy_from_slice(args.input(x + 4, channels));
            }
            for channel in 0..channels {
                let known = self.statistics == Statistics::Batch && rows > 0;
                batch_mean[channel] = if known { means[channel] } else { 0.0 };
                batch_variance[channel] = if known { squares[channel] / rows as f32 } else { 0.0 };
            }
            if reserve_3 {
                args.output::<f32>(first + 4, 0..1).fill(0.0);
            }
        }
    }

    unsafe fn gradient(&self, chunks: Range<u32>, args: &Args<'_>, mut lines: Lines<'_>, relu: bool) {
        let (channels, results) = (self.channels(), if relu { 7 } else { 6 });
        // SAFETY: as in `forward`.
        unsafe {
            lines.sums(args.input(0, 2 * channels * self.parts.count()));
            let (scale, variance) = (args.input::<f32>(3, channels), args.input::<f32>(5, channels));
            if chunks.start == 0 {
                let [by_scale, by_offset] = [1, 2].map(|index| args.output::<f32>(results + index, 0..channels));
                by_offset.copy_from_slice(lines.0[0]);
                for channel in 0..channels {
                    by_scale[channel] = lines.0[1][channel] / (variance[channel] + self.spec.epsilon).sqrt();
                }
            }
            lines.gradients(&self.spec, self.statistics, scale, variance);
            let walk = Gradient {
                dy: args.pointers[1].cast::<f32>().cast_const(),
                x: args.pointers[2].cast::<f32>().cast_const(),
                dx: args.pointers[results].cast(),
                mean: args.pointers[4].cast::<f32>().cast_const(),
                taken: lines.0[1].as_ptr(),
                factor: lines.0[2].as_ptr(),
                slope: lines.0[3].as_ptr(),
                channels,
                rows: self.cut.units(chunks),
            };
            match self.statistics {
                Statistics::Batch if relu => {
                    let y = Normal { factor: walk.factor, offset: args.pointers[6].cast::<f32>().cast_const() };
                    isa::run(self.isa, Centred { walk, y });
                }
                Statistics::Batch => isa::run(self.isa, Centred { walk, y: Every }),
                Statistics::Given => isa::run(self.isa, Scaled(walk)),
            }
        }
    }
}

/// Rows that are walked over with a channel's numbers in registers.
const BLOCK: usize = 16;

/// Rows whose results are changed together.
const TOGETHER: usize = 4;

/// Rows that no other thread writes; an element is read before it is written, so that `y` may lie where `x` or an operand of a link does.
struct Forward<'a> {
    x: *const f32,
    y: *mut f32,
    mean: *const f32,
    factor: *const f32,
    offset: *const f32,
    /// How results are changed before they are written.
    links: &'a [Link],
    channels: usize,
    rows: Range<usize>,
}

impl OverLanes for Forward<'_> {
    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        // SAFETY: the rows and channels are there, as `Kernel::forward` says; the set is the caller's promise.
        unsafe { walk::<L, Forward<'_>>(self.rows.clone(), BLOCK, 0..self.channels, &self) }
    }
}

impl OverBlock for Forward<'_> {
    #[inline(always)]
    unsafe fn block<L: Lanes, const W: usize, const TAIL: bool>(&self, rows: &Range<usize>, channel: usize, count: usize) {
        let (x, y, width) = (self.x, self.y, self.channels);
        // SAFETY: the caller's promise.
        unsafe {
            let means = registers::<L, W, TAIL>(self.mean.add(channel), count);
            let factors = registers::<L, W, TAIL>(self.factor.add(channel), count);
            let offsets = registers::<L, W, TAIL>(self.offset.add(channel), count);
            for first in rows.clone().step_by(TOGETHER) {
                let (at, together) = (first * width + channel, (rows.end - first).min(TOGETHER));
                let mut made = [[L::zero(); W]; TOGETHER];
                for (row, made) in made.iter_mut().enumerate().take(together) {
                    for (w, made) in made.iter_mut().enumerate() {
                        let difference = load::<L, TAIL>(x.add(at + row * width + w * L::COUNT), count).sub(means[w]);
                        *made = difference.madd(factors[w], offsets[w]);
                    }
                }
                let changes = Changes { links: self.links, element: at, column: channel };
                change!(L, made, changes, together, width, count);
                for (row, made) in made.iter().enumerate().take(together) {
                    for (w, made) in made.iter().enumerate() {
                        store::<L, TAIL>(*made, y.add(at + row * width + w * L::COUNT), count);
                    }
                }
            }
        }
    }
}

/// As [`Forward`]; `dx` may lie where `dy` or `x` does.
struct Gradient {
    dy: *const f32,
    x: *const f32,
    dx: *mut f32,
    mean: *const f32,
    taken: *const f32,
    factor: *const f32,
    slope: *const f32,
    channels: usize,
    rows: Range<usize>,
}

/// The gradient where statistics are the batch's.
struct Centred<Y> {
    walk: Gradient,
    /// Which elements of dy count.
    y: Y,
}

impl<Y: Counted> OverLanes for Centred<Y> {
    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        // SAFETY: as of `Forward`.
        unsafe { walk::<L, Centred<Y>>(self.walk.rows.clone(), BLOCK, 0..self.walk.channels, &self) }
    }
}

impl<Y: Counted> OverBlock for Centred<Y> {
    #[inline(always)]
    unsafe fn block<L: Lanes, const W: usize, const TAIL: bool>(&self, rows: &Range<usize>, channel: usize, count: usize) {
        let Gradient { dy, x, dx, channels: width, .. } = self.walk;
        // SAFETY: the caller's promise.
        unsafe {
            let means = registers::<L, W, TAIL>(self.walk.mean.add(channel), count);
            let taken = registers::<L, W, TAIL>(self.walk.taken.add(channel), count);
            let factors = registers::<L, W, TAIL>(self.walk.factor.add(channel), count);
            let slopes = registers::<L, W, TAIL>(self.walk.slope.add(channel), count);
            let y = self.y.of::<L, W, TAIL>(channel, count);
            for row in rows.clone() {
                for w in 0..W {
                    let at = row * width + channel + w * L::COUNT;
                    let difference = load::<L, TAIL>(x.add(at), count).sub(means[w]);
                    let direct = Y::counted(load::<L, TAIL>(dy.add(at), count), difference, y[w]).sub(taken[w]);
                    let changed = direct.sub(difference.mul(slopes[w])).mul(factors[w]);
                    store::<L, TAIL>(changed, dx.add(at), count);
                }
            }
        }
    }
}

/// The gradient where statistics are constants: dy times a factor.
struct Scaled(Gradient);

impl OverLanes for Scaled {
    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        // SAFETY: as of `Forward`.
        unsafe { walk::<L, Scaled>(self.0.rows.clone(), BLOCK, 0..self.0.channels, &self) }
    }
}

impl OverBlock for Scaled {
    #[inline(always)]
    unsafe fn block<L: Lanes, const W: usize, const TAIL: bool>(&self, rows: &Range<usize>, channel: usize, count: usize) {
        let (dy, dx, width) = (self.0.dy, self.0.dx, self.0.channels);
        // SAFETY: the caller's promise.
        unsafe {
            let factors = registers::<L, W, TAIL>(self.0.factor.add(channel), count);
            for row in rows.clone() {
                for (w, factor) in factors.iter().enumerate() {
                    let at = row * width + channel + w * L::COUNT;
                    store::<L, TAIL>(load::<L, TAIL>(dy.add(at), count).mul(*factor), dx.add(at), count);
                }
            }
        }
    }
}
