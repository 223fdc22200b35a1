//! The sums of each channel, part by part.

use std::ops::Range;

use plimsoll_device::{Args, CpuKernel, Fault};

use super::coefficients::factor_of;
use super::counted::{Counted, Every, Normal};
use super::isa::{self, OverBlock, OverLanes, load, registers, store, walk};
use crate::cut::Cut;
use crate::simd::{Isa, Lanes};
use plimsoll_request::norm::BatchNormSpec;

/// At most so many parts, and pieces.
pub(super) const MOST: usize = 32;
/// A row counts for at most so many bytes, so that parts have enough rows to be worth their results.
pub(super) const MOST_ROW_BYTES: u64 = 1 << 10;
/// Rows that are read together: of four registers of channels they fit the nearest cache.
const BLOCK: usize = 64;
/// Blocks of one register of channels that are summed at once, so that sums do not wait for each other; of two registers half as many.
const AT_ONCE: usize = 4;
/// Channels are shared between pieces in units of so many.
const STRIP: usize = 64;

/// How rows are cut into parts, and parts into strips of channels: by the sizes alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    rows: Cut,
    strips: Cut,
    channels: usize,
}

impl Parts {
    pub(super) fn new(spec: &BatchNormSpec) -> Parts {
        let channels = spec.channels as usize;
        let rows = if channels == 0 { 0 } else { spec.rows as usize };
        let cut = Cut::at_most(MOST, rows, spec.channels.saturating_mul(4).min(MOST_ROW_BYTES), BLOCK);
        let strip_bytes = (cut.units(0..1).len() as u64).saturating_mul(4 * STRIP as u64);
        let strips = Cut::at_most(MOST / cut.pieces() as usize, channels.div_ceil(STRIP), strip_bytes, 1);
        Parts { rows: cut, strips, channels }
    }

    /// How many parts: at least one.
    pub(super) fn count(&self) -> usize {
        self.rows.pieces() as usize
    }

    /// The rows of a part; none only where there are no rows at all.
    pub(super) fn rows(&self, part: usize) -> Range<usize> {
        self.rows.units(part as u32..part as u32 + 1)
    }

    pub(super) fn pieces(&self) -> u32 {
        self.rows.pieces() * self.strips.pieces()
    }

    /// The channels of a strip.
    fn strip(&self, strip: u32) -> Range<usize> {
        let units = self.strips.units(strip..strip + 1);
        units.start * STRIP..(units.end * STRIP).min(self.channels)
    }
}

/// The sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gather {
    /// Mean, and sum of squared differences from it.
    Moments,
    /// Sums of dy, and of dy times the difference of x from a given mean.
    Gradients,
    /// The same, of dy where y is above 0.
    OfPositive,
}

#[derive(Debug)]
pub(super) struct Kernel {
    pub(super) gather: Gather,
    pub(super) parts: Parts,
    pub(super) epsilon: f32,
    pub(super) isa: Isa,
}

impl CpuKernel for Kernel {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        for chunk in chunks {
            let strips = self.parts.strips.pieces();
            let (part, channels) = ((chunk / strips) as usize, self.parts.strip(chunk % strips));
            let pointer = |index: usize| args.pointers[index].cast::<f32>();
            let (x, mean, to) = match self.gather {
                Gather::Moments => (0, 0, 1),
                Gather::Gradients => (1, 2, 3),
                Gather::OfPositive => (1, 3, 6),
            };
            let (width, to) = (self.parts.channels, pointer(to));
            let piece = Piece {
                dy: pointer(0).cast_const(),
                x: pointer(x).cast_const(),
                mean: pointer(mean).cast_const(),
                first: to.wrapping_add(2 * part * width),
                second: to.wrapping_add((2 * part + 1) * width),
                rows: self.parts.rows(part),
                channels,
                width,
            };
            // SAFETY: the instruction set was asked for when the kernel was prepared. The arguments are the caller's promise, and the scratch
            // is this worker's. A part's results for a strip are written by this piece only.
            unsafe {
                match self.gather {
                    Gather::Moments => isa::run(self.isa, Moments(piece)),
                    Gather::Gradients => isa::run(self.isa, Gradients { piece, y: Every }),
                    Gather::OfPositive => {
                        let scale = args.input::<f32>(2, width);
                        let variance = args.input::<f32>(4, width);
                        let factor = args.worker.cast::<f32>();
                        for channel in piece.channels.clone() {
                            factor.add(channel).write(factor_of(scale[channel], variance[channel], self.epsilon));
                        }
                        let y = Normal { factor: factor.cast_const(), offset: pointer(5).cast_const() };
                        isa::run(self.isa, Gradients { piece, y });
                    }
                }
            }
        }
        Ok(())
    }
}

/// A part's rows and a strip's channels.
struct Piece {
    dy: *const f32,
    x: *const f32,
    mean: *const f32,
    /// The part's first numbers, one of each channel, and its second.
    first: *mut f32,
    second: *mut f32,
    rows: Range<usize>,
    channels: Range<usize>,
    /// All channels: from row to row.
    width: usize,
}

impl Piece {
    /// Zeros for all, as for no rows.
    #[inline(always)]
    unsafe fn clear(&self) {
        // SAFETY: the strip's channels are there.
        unsafe {
            self.first.add(self.channels.start).write_bytes(0, self.channels.len());
            self.second.add(self.channels.start).write_bytes(0, self.channels.len());
        }
    }
}

struct Moments(Piece);

impl OverLanes for Moments {
    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        let (rows, channels) = (self.0.rows.clone(), self.0.channels.clone());
        // SAFETY: the channels of the strip are there, as are the rows of the part; the rest is the caller's promise.
        unsafe {
            self.0.clear();
            walk::<L, Moments>(rows, AT_ONCE * BLOCK, channels, &self);
        }
    }
}

impl OverBlock for Moments {
    #[inline(always)]
    unsafe fn block<L: Lanes, const W: usize, const TAIL: bool>(&self, rows: &Range<usize>, channel: usize, count: usize) {
        let mut start = rows.start;
        while start < rows.end {
            let left = rows.end - start;
            // SAFETY: the caller's promise.
            unsafe {
                if W == 1 && left >= AT_ONCE * BLOCK {
                    self.blocks::<L, W, AT_ONCE, TAIL>(start, BLOCK, channel, count);
                    start += AT_ONCE * BLOCK;
                } else if W == 2 && left >= AT_ONCE / 2 * BLOCK {
                    self.blocks::<L, W, { AT_ONCE / 2 }, TAIL>(start, BLOCK, channel, count);
                    start += AT_ONCE / 2 * BLOCK;
                } else {
                    self.blocks::<L, W, 1, TAIL>(start, left.min(BLOCK), channel, count);
                    start += left.min(BLOCK);
                }
            }
        }
    }
}

impl Moments {
    /// The moments of `G` blocks of so many rows, which are added to those of the rows before in their order.
    ///
    /// # Safety
    /// As [`OverBlock::block`].
    #[inline(always)]
    unsafe fn blocks<L: Lanes, const W: usize, const G: usize, const TAIL: bool>(
        &self,
        start: usize,
        length: usize,
        channel: usize,
        count: usize,
    ) {
        let piece = &self.0;
        let at = |block: usize, row: usize| piece.x.wrapping_add((start + block * length + row) * piece.width + channel);
        // SAFETY: the caller's promise.
        unsafe {
            let mut means = [[L::zero(); W]; G];
            for row in 0..length {
                for (block, sums) in means.iter_mut().enumerate() {
                    for (w, sum) in sums.iter_mut().enumerate() {
                        *sum = sum.add(load::<L, TAIL>(at(block, row).add(w * L::COUNT), count));
                    }
                }
            }
            let share = L::splat(1.0 / length as f32);
            for mean in means.as_flattened_mut() {
                *mean = mean.mul(share);
            }
            let mut squares = [[L::zero(); W]; G];
            for row in 0..length {
                for (block, (means, squares)) in means.iter().zip(&mut squares).enumerate() {
                    for (w, (mean, square)) in means.iter().zip(squares).enumerate() {
                        // The rows after these blocks: the second time all is in the nearest cache, and the memory would wait.
                        L::fetch_ahead(at(block + G, row).wrapping_add(w * L::COUNT));
                        let difference = load::<L, TAIL>(at(block, row).add(w * L::COUNT), count).sub(*mean);
                        *square = difference.madd(difference, *square);
                    }
                }
            }
            // With the rows before: Chan, Golub and LeVeque's update.
            for (block, (means, squares)) in means.iter().zip(&squares).enumerate() {
                let (before, new) = ((start + block * length - piece.rows.start) as f32, length as f32);
                let (weight, spread) = (L::splat(new / (before + new)), L::splat(before * new / (before + new)));
                for w in 0..W {
                    let (first, second) = (piece.first.add(channel + w * L::COUNT), piece.second.add(channel + w * L::COUNT));
                    let mean = load::<L, TAIL>(first, count);
                    let difference = means[w].sub(mean);
                    let both = load::<L, TAIL>(second, count).add(squares[w]);
                    store::<L, TAIL>(difference.madd(weight, mean), first, count);
                    store::<L, TAIL>(difference.mul(difference).madd(spread, both), second, count);
                }
            }
        }
    }
}

struct Gradients<Y> {
    piece: Piece,
    /// Which elements of dy count.
    y: Y,
}

impl<Y: Counted> OverLanes for Gradients<Y> {
    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        let (rows, channels) = (self.piece.rows.clone(), self.piece.channels.clone());
        // SAFETY: the channels of the strip are there, as are the rows of the part; the rest is the caller's promise.
        unsafe {
            self.piece.clear();
            walk::<L, Gradients<Y>>(rows, BLOCK, channels, &self);
        }
    }
}

impl<Y: Counted> OverBlock for Gradients<Y> {
    #[inline(always)]
    unsafe fn block<L: Lanes, const W: usize, const TAIL: bool>(&self, rows: &Range<usize>, channel: usize, count: usize) {
        let piece = &self.piece;
        // SAFETY: the caller's promise.
        unsafe {
            let means = registers::<L, W, TAIL>(piece.mean.add(channel), count);
            let y = self.y.of::<L, W, TAIL>(channel, count);
            let (mut sums, mut products) = ([L::zero(); W], [L::zero(); W]);
            for row in rows.clone() {
                let at = row * piece.width + channel;
                for w in 0..W {
                    let difference = load::<L, TAIL>(piece.x.add(at + w * L::COUNT), count).sub(means[w]);
                    let dy = Y::counted(load::<L, TAIL>(piece.dy.add(at + w * L::COUNT), count), difference, y[w]);
                    sums[w] = sums[w].add(dy);
                    products[w] = dy.madd(difference, products[w]);
                }
            }
            for w in 0..W {
                let (first, second) = (piece.first.add(channel + w * L::COUNT), piece.second.add(channel + w * L::COUNT));
                store::<L, TAIL>(load::<L, TAIL>(first, count).add(sums[w]), first, count);
                store::<L, TAIL>(load::<L, TAIL>(second, count).add(products[w]), second, count);
            }
        }
    }
}
