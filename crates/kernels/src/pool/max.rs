//! Maxima of windows.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_device::{Args, Cost, CpuKernel, Fault, Prepared};
use plimsoll_request::pool::{ArgMax, Maxima, PoolSpec, Pooling, Positions};

use super::{Check, Sizes, deep, doubles, every};
use crate::conv::{GROUP, get, groups, put};
use crate::cut::{Cut, elements};
use crate::simd::{Isa, Vectorised};

/// A [`Pooling`], prepared.
#[derive(Debug)]
pub(crate) struct PoolImages {
    sizes: Sizes,
    kept: Option<ArgMax>,
    positive: bool,
    isa: Isa,
}

impl PoolImages {
    pub(crate) fn new(isa: Isa, pooling: &Pooling) -> Result<PoolImages> {
        let kept = (pooling.positions != Positions::None).then(|| ArgMax::of(&pooling.spec));
        Ok(PoolImages { sizes: pooling.spec.check()?, kept, positive: pooling.positions == Positions::Positive, isa })
    }

    /// Pools `images`. The first pointer is where the first of all images would begin if all were there.
    ///
    /// # Safety
    /// The processor has the instruction set; `images` are at `input`; no other thread writes their results and, if they are
    /// wanted, positions.
    pub(crate) unsafe fn run(&self, images: Range<usize>, input: *const f32, output: *mut f32, positions: Option<*mut u8>) {
        // SAFETY: the caller's promise.
        unsafe {
            match self.kept {
                None => self.find::<u8, false>(images, input, output, None).run(self.isa),
                Some(ArgMax::U8) => self.find::<u8, true>(images, input, output, positions).run(self.isa),
                Some(ArgMax::U32) => self.find::<u32, true>(images, input, output, positions).run(self.isa),
            }
        }
    }

    fn find<I: Index, const KEPT: bool>(
        &self,
        images: Range<usize>,
        input: *const f32,
        output: *mut f32,
        positions: Option<*mut u8>,
    ) -> Find<I, KEPT> {
        let rows = self.sizes.z.positions * self.sizes.y.positions;
        Find {
            sizes: self.sizes,
            rows: images.start * rows..images.end * rows,
            channels: 0..self.sizes.channels,
            input,
            output: Some(output),
            kept: positions.map(|positions| (positions.cast(), self.sizes.channels)),
            positive: self.positive,
        }
    }
}

/// The gradient of a max pooling by rows of its input.
#[derive(Debug)]
pub(crate) struct UnpoolRows {
    sizes: Sizes,
    kept: ArgMax,
    isa: Isa,
}

impl UnpoolRows {
    pub(crate) fn new(isa: Isa, spec: &PoolSpec) -> Result<UnpoolRows> {
        Ok(UnpoolRows { sizes: spec.check()?, kept: ArgMax::of(spec), isa })
    }

    /// The cost of all rows.
    pub(crate) fn cost(&self) -> Cost {
        let (inputs, outputs) = self.sizes.totals();
        Cost { flops: self.sizes.flops(), bytes: 4.0 * inputs + 5.0 * outputs }
    }

    /// Makes `rows`, which count over all images; `to` is where the first of them all would be.
    ///
    /// # Safety
    /// The processor has the instruction set; positions and gradient are those of the pooling's results; no other thread touches
    /// the rows at `to`.
    pub(crate) unsafe fn run(&self, rows: Range<usize>, positions: *const u8, grad: *const f32, to: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe {
            match self.kept {
                ArgMax::U8 => self.gather::<u8>(rows, positions, grad, to).run(self.isa),
                ArgMax::U32 => self.gather::<u32>(rows, positions, grad, to).run(self.isa),
            }
        }
    }

    fn gather<I: Index>(&self, rows: Range<usize>, positions: *const u8, grad: *const f32, to: *mut f32) -> Gather<I> {
        let channels = self.sizes.channels;
        Gather { sizes: self.sizes, rows, channels: 0..channels, kept: positions.cast(), kept_distance: channels, grad, to }
    }
}

/// `MaxPool` and `MaxPool3D` of floats. Arguments: input, output.
///
/// # Errors
/// INVALID_ARGUMENT for sizes that make no sense or that no memory holds.
pub fn max_pool(spec: PoolSpec, maxima: Maxima) -> Result<Prepared> {
    max_pool_on(Isa::best(), spec, maxima)
}

/// As [`max_pool`], with the code for that instruction set. It runs where the processor has it.
///
/// # Errors
/// As [`max_pool`].
pub fn max_pool_on(isa: Isa, spec: PoolSpec, maxima: Maxima) -> Result<Prepared> {
    match maxima {
        Maxima::First if spec.data_type == DataType::Double => Ok(doubles::prepare(spec.check_sizes()?, doubles::Work::Max)),
        Maxima::First => forward::<u8, false>(isa, spec, false),
        Maxima::Every => every::forward(isa, spec.check()?),
    }
}

/// As [`max_pool`], with where in each window the maximum is, as [`ArgMax::of`] says: the first of equal ones, row by row. A NaN
/// counts as the maximum if it comes first, as in TensorFlow's gradient. With `positive`, a maximum that is not above 0 has no
/// position, so that it has no gradient: as by the gradient of a relu before the pooling. Arguments: input, output, positions.
///
/// # Errors
/// As [`max_pool`].
pub fn max_pool_with_argmax(spec: PoolSpec, positive: bool) -> Result<Prepared> {
    max_pool_with_argmax_on(Isa::best(), spec, positive)
}

/// As [`max_pool_with_argmax`], with the code for that instruction set. It runs where the processor has it.
///
/// # Errors
/// As [`max_pool`].
pub fn max_pool_with_argmax_on(isa: Isa, spec: PoolSpec, positive: bool) -> Result<Prepared> {
    match ArgMax::of(&spec) {
        ArgMax::U8 => forward::<u8, true>(isa, spec, positive),
        ArgMax::U32 => forward::<u32, true>(isa, spec, positive),
    }
}

/// The gradient of [`max_pool_with_argmax`] by its input. Arguments: positions, gradient by the output, gradient by the input.
/// Where windows overlap, terms are added row by row.
///
/// # Errors
/// As [`max_pool`].
pub fn max_pool_grad(spec: PoolSpec) -> Result<Prepared> {
    max_pool_grad_on(Isa::best(), spec)
}

/// As [`max_pool_grad`], with the code for that instruction set. It runs where the processor has it.
///
/// # Errors
/// As [`max_pool`].
pub fn max_pool_grad_on(isa: Isa, spec: PoolSpec) -> Result<Prepared> {
    let sizes = spec.check()?;
    let cut = Cut::new(sizes.rows().1, 2 * sizes.row(sizes.x.size), 1);
    let (inputs, outputs) = sizes.totals();
    let kernel: Arc<dyn CpuKernel> = match ArgMax::of(&spec) {
        ArgMax::U8 => Arc::new(Gradient::<u8> { sizes, cut, isa, marker: PhantomData }),
        ArgMax::U32 => Arc::new(Gradient::<u32> { sizes, cut, isa, marker: PhantomData }),
    };
    let cost = Cost { flops: sizes.flops(), bytes: 4.0 * inputs + 5.0 * outputs };
    Ok(Prepared { chunks: cut.pieces(), scratch: 0, per_worker: 0, cost, in_place: Vec::new(), kernel })
}

/// `MaxPoolGrad` and `MaxPool3DGrad`. Where the first maximum has the gradient it is found again, as TensorFlow does on CPUs, and the
/// output is not read. Arguments: input, output, gradient by the output, gradient by the input.
///
/// # Errors
/// As [`max_pool`].
pub fn max_pool_grad_of_input(spec: PoolSpec, maxima: Maxima) -> Result<Prepared> {
    max_pool_grad_of_input_on(Isa::best(), spec, maxima)
}

/// As [`max_pool_grad_of_input`], with the code for that instruction set. It runs where the processor has it.
///
/// # Errors
/// As [`max_pool`].
pub fn max_pool_grad_of_input_on(isa: Isa, spec: PoolSpec, maxima: Maxima) -> Result<Prepared> {
    if spec.data_type == DataType::Double && maxima == Maxima::First {
        return Ok(doubles::prepare(spec.check_sizes()?, doubles::Work::MaxGradient));
    }
    let sizes = spec.check()?;
    if maxima == Maxima::Every {
        return every::gradient(isa, sizes);
    }
    // A piece is an image with some channels, whose positions are kept in scratch.
    let positions = sizes.z.positions * sizes.y.positions * sizes.x.positions;
    let whole = sizes.channels * positions <= 1 << 16 || sizes.batch >= 16;
    let block = if whole { sizes.channels.max(1) } else { 64.min(sizes.channels.max(1)) };
    let blocks = sizes.channels.div_ceil(block).max(1);
    let (inputs, outputs) = sizes.totals();
    let kept = ArgMax::of(&spec);
    let scratch = elements(&[positions as u64, block as u64])? as u64 * kept.size();
    let kernel: Arc<dyn CpuKernel> = match kept {
        ArgMax::U8 => Arc::new(AnewGradient::<u8> { sizes, block, blocks, isa, marker: PhantomData }),
        ArgMax::U32 => Arc::new(AnewGradient::<u32> { sizes, block, blocks, isa, marker: PhantomData }),
    };
    let chunks = u32::try_from(sizes.batch.max(1).saturating_mul(blocks));
    let chunks = chunks.map_err(|_| Error::invalid_argument("pooling with too many pieces"))?;
    let cost = Cost { flops: 2.0 * sizes.flops(), bytes: 8.0 * inputs + 4.0 * outputs };
    Ok(Prepared { chunks, scratch: 0, per_worker: scratch, cost, in_place: Vec::new(), kernel })
}

fn forward<I: Index, const KEPT: bool>(isa: Isa, spec: PoolSpec, positive: bool) -> Result<Prepared> {
    let sizes = spec.check()?;
    let cut = Cut::new(sizes.rows().0, sizes.row(sizes.x.positions) * (1 + sizes.strides), 1);
    let (inputs, outputs) = sizes.totals();
    let cost = Cost { flops: sizes.flops(), bytes: 4.0 * inputs + (4.0 + if KEPT { size_of::<I>() as f64 } else { 0.0 }) * outputs };
    let kernel = MaxPool::<I, KEPT> { sizes, cut, positive, isa, marker: PhantomData };
    Ok(Prepared { chunks: cut.pieces(), scratch: 0, per_worker: 0, cost, in_place: Vec::new(), kernel: Arc::new(kernel) })
}

/// A position in a window.
trait Index: Copy + PartialEq + Default + Send + Sync + std::fmt::Debug + 'static {
    fn from_u32(value: u32) -> Self;
    fn to_u32(self) -> u32;
}

impl Index for u8 {
    #[inline(always)]
    fn from_u32(value: u32) -> u8 {
        value as u8
    }
    #[inline(always)]
    fn to_u32(self) -> u32 {
        u32::from(self)
    }
}

impl Index for u32 {
    #[inline(always)]
    fn from_u32(value: u32) -> u32 {
        value
    }
    #[inline(always)]
    fn to_u32(self) -> u32 {
        self
    }
}

#[derive(Debug)]
struct MaxPool<I, const KEPT: bool> {
    sizes: Sizes,
    cut: Cut,
    positive: bool,
    isa: Isa,
    marker: PhantomData<fn(I)>,
}

impl<I: Index, const KEPT: bool> CpuKernel for MaxPool<I, KEPT> {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        let find = Find::<I, KEPT> {
            sizes: self.sizes,
            rows: self.cut.units(chunks),
            channels: 0..self.sizes.channels,
            input: args.pointers[0].cast(),
            output: Some(args.pointers[1].cast()),
            kept: if KEPT { Some((args.pointers[2].cast(), self.sizes.channels)) } else { None },
            positive: self.positive,
        };
        // SAFETY: the instruction set was asked for when the kernel was prepared; the arguments are the caller's promise.
        unsafe { find.run(self.isa) };
        Ok(())
    }
}

/// Finds the maxima of windows. Made with pointers to the input and to results, whose `rows` and `channels` no other thread writes.
struct Find<I, const KEPT: bool> {
    sizes: Sizes,
    /// Of all images, one after the other.
    rows: Range<usize>,
    channels: Range<usize>,
    input: *const f32,
    output: Option<*mut f32>,
    /// Where the positions go: that of window `p` and channel `c` to `p` times the second, plus `c`.
    kept: Option<(*mut I, usize)>,
    /// Whether maxima that are not above 0 are nowhere.
    positive: bool,
}

impl<I: Index, const KEPT: bool> Find<I, KEPT> {
    /// # Safety
    /// The processor has the instruction set; the pointers are as said.
    unsafe fn run(self, isa: Isa) {
        // SAFETY: the caller's promise.
        unsafe { deep!(self.sizes, DEEP => isa.run(Deep::<_, DEEP>(self))) }
    }
}

/// Work that knows whether there are planes.
struct Deep<W, const DEEP: bool>(W);

impl<I: Index, const KEPT: bool, const DEEP: bool> Vectorised for Deep<Find<I, KEPT>, DEEP> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let work = self.0;
        let Sizes { channels, z, y, x, .. } = work.sizes;
        for row in work.rows.clone() {
            let [image, plane, line] = work.sizes.place::<DEEP>(row, z.positions, y.positions);
            let (taps_z, taps_y, y_start) = (work.sizes.planes_at::<DEEP>(plane), y.taps_at(line), y.start(line));
            let front = (image * z.size) as isize + work.sizes.plane_start::<DEEP>(plane);
            for column in 0..x.positions {
                let (taps_x, left) = (x.taps_at(column), x.start(column));
                let position = row * x.positions + column;
                for (channel, count) in groups(work.channels.clone()) {
                    // A NaN is no maximum, but as the first element it stays the place.
                    let (mut most, mut best, mut place) = ([f32::MIN; GROUP], [f32::MIN; GROUP], [0u32; GROUP]);
                    let mut first = true;
                    for tap_z in taps_z.clone() {
                        let top = (front + tap_z as isize) * y.size as isize + y_start;
                        for tap_y in taps_y.clone() {
                            let line = (top + tap_y as isize) * x.size as isize + left;
                            let mut from =
                                work.input.wrapping_offset((line + taps_x.start as isize) * channels as isize + channel as isize);
                            for tap_x in taps_x.clone() {
                                // SAFETY: the taps lie on the input.
                                let values = unsafe { get(from, count, 0.0) };
                                from = from.wrapping_add(channels);
                                for lane in 0..GROUP {
                                    most[lane] = if values[lane] > most[lane] { values[lane] } else { most[lane] };
                                }
                                if !KEPT {
                                    continue;
                                }
                                let number = ((tap_z * y.taps + tap_y) * x.taps + tap_x) as u32;
                                for lane in 0..GROUP {
                                    let better = values[lane] > best[lane] || first;
                                    best[lane] = if better { values[lane] } else { best[lane] };
                                    place[lane] = if better { number } else { place[lane] };
                                }
                                first = false;
                            }
                        }
                    }
                    if KEPT && work.positive {
                        for lane in 0..GROUP {
                            place[lane] = if best[lane] > 0.0 { place[lane] } else { u32::MAX };
                        }
                    }
                    // SAFETY: the results of these rows and channels are this call's.
                    unsafe {
                        if let Some(output) = work.output {
                            put(output.add(position * channels + channel), count, most);
                        }
                        if let Some((kept, distance)) = work.kept {
                            put(kept.wrapping_add(position * distance + channel), count, place.map(I::from_u32));
                        }
                    }
                }
            }
        }
    }
}

#[derive(Debug)]
struct Gradient<I> {
    sizes: Sizes,
    cut: Cut,
    isa: Isa,
    marker: PhantomData<fn(I)>,
}

impl<I: Index> CpuKernel for Gradient<I> {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        let gather = Gather::<I> {
            sizes: self.sizes,
            rows: self.cut.units(chunks),
            channels: 0..self.sizes.channels,
            kept: args.pointers[0].cast(),
            kept_distance: self.sizes.channels,
            grad: args.pointers[1].cast(),
            to: args.pointers[2].cast(),
        };
        // SAFETY: as in `MaxPool`.
        unsafe { gather.run(self.isa) };
        Ok(())
    }
}

/// Brings the gradient of each window to where its maximum was. Made with pointers to all arguments, of which no other thread
/// writes `rows` and `channels` of the last.
struct Gather<I> {
    sizes: Sizes,
    /// Of all input images, one after the other.
    rows: Range<usize>,
    channels: Range<usize>,
    /// Such that the position of window `p` and channel `c` is `p * kept_distance + c`.
    kept: *const I,
    kept_distance: usize,
    grad: *const f32,
    to: *mut f32,
}

impl<I: Index> Gather<I> {
    /// # Safety
    /// The processor has the instruction set; the pointers are as said.
    unsafe fn run(self, isa: Isa) {
        // SAFETY: the caller's promise.
        unsafe { deep!(self.sizes, DEEP => isa.run(Deep::<_, DEEP>(self))) }
    }
}

impl<I: Index, const DEEP: bool> Vectorised for Deep<Gather<I>, DEEP> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let work = self.0;
        let Sizes { channels, z, y, x, .. } = work.sizes;
        for row in work.rows.clone() {
            let [image, plane, line] = work.sizes.place::<DEEP>(row, z.size, y.size);
            let (windows_z, windows_y) = (work.sizes.planes_over::<DEEP>(plane), y.positions_over(line));
            let (mut first, mut end) = (0, 0);
            let mut over = [Over { kept: work.kept, grad: work.grad, number: 0 }; MOST_OVER];
            for column in 0..x.size {
                // The windows over a column follow those over the one before.
                while end < x.positions && x.start(end) <= column as isize {
                    end += 1;
                }
                while first < end && x.start(first) + x.extent() <= column as isize {
                    first += 1;
                }
                let to = work.to.wrapping_add((row * x.size + column) * channels);
                let (mut count, mut onto) = (0, false);
                for window_z in windows_z.clone() {
                    let tap_z = (plane as isize - work.sizes.plane_start::<DEEP>(window_z)) as usize;
                    for window_y in windows_y.clone() {
                        let tap_y = (line as isize - y.start(window_y)) as usize;
                        let before = ((image * z.positions + window_z) * y.positions + window_y) * x.positions;
                        for window_x in first..end {
                            if count == MOST_OVER {
                                // SAFETY: the windows are of the result; the elements of these rows and channels are this call's.
                                unsafe { work.sum(&over, to, onto) };
                                (count, onto) = (0, true);
                            }
                            let number = ((tap_z * y.taps + tap_y) * x.taps) as isize + column as isize - x.start(window_x);
                            let window = before + window_x;
                            let kept = work.kept.wrapping_add(window * work.kept_distance);
                            over[count] = Over { kept, grad: work.grad.wrapping_add(window * channels), number: number as u32 };
                            count += 1;
                        }
                    }
                }
                // SAFETY: as above.
                unsafe { work.sum(&over[..count], to, onto) };
            }
        }
    }
}

/// Windows over a position that are looked at together.
const MOST_OVER: usize = 16;

/// A window over a position: its first channel's position and gradient, and the number that the position has in it.
#[derive(Clone, Copy)]
struct Over<I> {
    kept: *const I,
    grad: *const f32,
    number: u32,
}

impl<I: Index> Gather<I> {
    /// The gradients of those of these windows whose maximum is at a position, window by window; with `onto`, to what is there.
    ///
    /// # Safety
    /// The windows are of the result, and the position's elements are the caller's.
    #[inline(always)]
    unsafe fn sum(&self, over: &[Over<I>], to: *mut f32, onto: bool) {
        let mut channel = self.channels.start;
        // SAFETY: the caller's promise.
        unsafe {
            while channel + GROUP <= self.channels.end {
                sum_group(over, channel, GROUP, to, onto);
                channel += GROUP;
            }
            if channel < self.channels.end {
                sum_group(over, channel, self.channels.end - channel, to, onto);
            }
        }
    }
}

/// See [`Gather::sum`]: `count` channels from one on.
#[inline(always)]
unsafe fn sum_group<I: Index>(over: &[Over<I>], channel: usize, count: usize, to: *mut f32, onto: bool) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut sum = if onto { get(to.cast_const().wrapping_add(channel), count, 0.0) } else { [0f32; GROUP] };
        for Over { kept, grad, number } in over {
            let kept = get(kept.wrapping_add(channel), count, I::default());
            let grad = get(grad.wrapping_add(channel), count, 0.0);
            for lane in 0..GROUP {
                // By bits: a choice of numbers becomes branches.
                let all = u32::from(kept[lane].to_u32() == *number).wrapping_neg();
                sum[lane] += f32::from_bits(grad[lane].to_bits() & all);
            }
        }
        put(to.wrapping_add(channel), count, sum);
    }
}

#[derive(Debug)]
struct AnewGradient<I> {
    sizes: Sizes,
    /// Channels of a piece, and pieces of an image.
    block: usize,
    blocks: usize,
    isa: Isa,
    marker: PhantomData<fn(I)>,
}

impl<I: Index> CpuKernel for AnewGradient<I> {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        let Sizes { batch, channels, z, y, x, .. } = self.sizes;
        if batch == 0 {
            return Ok(());
        }
        for chunk in chunks {
            let (image, block) = (chunk as usize / self.blocks, chunk as usize % self.blocks);
            let block = block * self.block..((block + 1) * self.block).min(channels);
            let (out_rows, in_rows) = (z.positions * y.positions, z.size * y.size);
            let windows = image * out_rows * x.positions;
            // Positions lie in scratch as if those of all images and channels began before it.
            let kept = args.worker.cast::<I>().wrapping_sub(windows * self.block + block.start);
            let find = Find::<I, true> {
                sizes: self.sizes,
                rows: image * out_rows..(image + 1) * out_rows,
                channels: block.clone(),
                input: args.pointers[0].cast(),
                output: None,
                kept: Some((kept, self.block)),
                positive: false,
            };
            let gather = Gather::<I> {
                sizes: self.sizes,
                rows: image * in_rows..(image + 1) * in_rows,
                channels: block,
                kept,
                kept_distance: self.block,
                grad: args.pointers[2].cast(),
                to: args.pointers[3].cast(),
            };
            // SAFETY: as in `MaxPool`; scratch has room for the positions of an image and a block.
            unsafe {
                find.run(self.isa);
                gather.run(self.isa);
            }
        }
        Ok(())
    }
}
