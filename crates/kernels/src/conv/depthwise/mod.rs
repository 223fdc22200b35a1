//! Convolutions of each channel by itself, and their gradients.

mod tiles;

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_device::{Args, Cost, CpuKernel, Fault, Prepared};

use super::axis::{Axis, Run};
use super::bands::{ByRows, Near, RowsOf};
use super::groups::{GROUP, get, groups, put};
use super::{FAR, Sizes, doubles};
use crate::cut::Cut;
use crate::element::{InFloats, of_type};
use crate::expr::{Bases, Changes, Functions, Link, Links};
use crate::finish::Finish;
use crate::packing::part;
use crate::simd::{Isa, Vectorised};
use plimsoll_request::anchor::Epilogue;
use plimsoll_request::conv::ConvSpec;
use plimsoll_request::window::WindowAxis;
use tiles::{POSITIONS, Tile, code, shares};

/// `DepthwiseConv2dNative`: result channel `c * multiplier + m` is made of input channel `c` alone. `spec.out_c` is
/// `spec.in_c` times the multiplier; the filter has the taps, then `[in_c, multiplier]`. Arguments: input, filter, output;
/// with an epilogue over the output's shape: input, filter, its further operands, its results.
///
/// # Errors
/// INVALID_ARGUMENT for sizes that make no sense or that no memory holds, and as [`crate::expr::elementwise`] for the epilogue.
pub fn depthwise_conv(spec: ConvSpec, epilogue: Option<Epilogue>) -> Result<Prepared> {
    depthwise_conv_on(Isa::best(), spec, epilogue)
}

/// As [`depthwise_conv`], with the code for that instruction set. It runs where the processor has it.
///
/// # Errors
/// As [`depthwise_conv`].
pub fn depthwise_conv_on(isa: Isa, spec: ConvSpec, epilogue: Option<Epilogue>) -> Result<Prepared> {
    prepare(isa, spec, Work::Forward, epilogue)
}

/// `DepthwiseConv2dNativeBackpropInput`. Arguments: filter, gradient by the result, gradient by the input.
///
/// # Errors
/// As [`depthwise_conv`].
pub fn depthwise_conv_backprop_input(spec: ConvSpec) -> Result<Prepared> {
    depthwise_conv_backprop_input_on(Isa::best(), spec)
}

/// As [`depthwise_conv_backprop_input`], with the code for that instruction set. It runs where the processor has it.
///
/// # Errors
/// As [`depthwise_conv`].
pub fn depthwise_conv_backprop_input_on(isa: Isa, spec: ConvSpec) -> Result<Prepared> {
    prepare(isa, spec, Work::Input, None)
}

/// `DepthwiseConv2dNativeBackpropFilter`. Arguments: input, gradient by the result, gradient by the filter. Sums run over rows of
/// results, image after image.
///
/// # Errors
/// As [`depthwise_conv`].
pub fn depthwise_conv_backprop_filter(spec: ConvSpec) -> Result<Prepared> {
    depthwise_conv_backprop_filter_on(Isa::best(), spec)
}

/// As [`depthwise_conv_backprop_filter`], with the code for that instruction set. It runs where the processor has it.
///
/// # Errors
/// As [`depthwise_conv`].
pub fn depthwise_conv_backprop_filter_on(isa: Isa, spec: ConvSpec) -> Result<Prepared> {
    prepare(isa, spec, Work::Filter, None)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Forward,
    Input,
    Filter,
}

struct Depthwise<E> {
    work: Work,
    batch: usize,
    in_c: usize,
    out_c: usize,
    multiplier: usize,
    y: Axis,
    x: Axis,
    x_runs: Vec<Run>,
    spans: Vec<Span>,
    /// Of image rows; or, for the filter, of its rows times groups of channels.
    cut: Cut,
    /// Whether the input's rows are asked for ahead, and the results' lines before they are written.
    ahead: bool,
    fetches: bool,
    epilogue: Option<Finish>,
    isa: Isa,
    of: PhantomData<E>,
}

impl<E> std::fmt::Debug for Depthwise<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shape = (self.batch, self.in_c, self.out_c, self.y, self.x);
        f.debug_struct("Depthwise").field("work", &self.work).field("shape", &shape).field("cut", &self.cut).finish()
    }
}

fn prepare(isa: Isa, spec: ConvSpec, work: Work, epilogue: Option<Epilogue>) -> Result<Prepared> {
    if spec.data_type == DataType::Double {
        let work = match work {
            Work::Forward => doubles::Work::Forward,
            Work::Input => doubles::Work::Input,
            Work::Filter => doubles::Work::Filter,
        };
        return doubles::depthwise(&spec, work, epilogue.as_ref());
    }
    of_type!(spec.data_type, [Float, Half, Bfloat16], E => of::<E>(isa, spec, work, epilogue), _ => Err(super::refused(&spec)))
}

/// A depthwise convolution of floats by rows.
///
/// # Errors
/// As [`depthwise_conv`]; UNIMPLEMENTED for results that wait for their epilogue.
pub(super) fn by_rows(isa: Isa, spec: &ConvSpec, epilogue: Option<Epilogue>, near: Near) -> Result<RowsOf> {
    let (mut kernel, scratch, cost) = build::<f32>(isa, *spec, Work::Forward, epilogue)?;
    if kernel.epilogue.as_ref().is_some_and(|finish| finish.chain.is_none()) {
        return Err(Error::unimplemented("a depthwise convolution by rows whose results wait"));
    }
    kernel.ahead &= !near.operand;
    kernel.fetches &= !near.results;
    Ok(RowsOf { kernel: Arc::new(kernel), scratch, cost })
}

impl ByRows for Depthwise<f32> {
    unsafe fn rows(&self, image: usize, rows: Range<usize>, args: &Args<'_>) {
        let first = image * self.y.positions;
        let chain = self.epilogue.as_ref().and_then(|finish| Some((finish.chain.as_ref()?, finish.result)));
        let links = chain.map(|(chain, _)| chain.bind(&args.pointers[2..]));
        let result = chain.map_or(2, |(_, result)| result);
        let links = links.as_ref().map_or(&[][..], Links::get);
        // SAFETY: the caller's promise.
        unsafe { self.compute(first + rows.start..first + rows.end, args.pointers[result].cast(), links, args) };
    }
}

/// As [`prepare`], of elements of the type. Floats of two bytes are widened as they are read, and results rounded as they are written.
fn of<E: InFloats>(isa: Isa, spec: ConvSpec, work: Work, epilogue: Option<Epilogue>) -> Result<Prepared> {
    let (kernel, scratch, cost) = build::<E>(isa, spec, work, epilogue)?;
    let kernel = Arc::new(kernel);
    let chunks = kernel.cut.pieces();
    let mut prepared = Prepared { chunks, scratch: 0, per_worker: scratch as u64, cost, in_place: Vec::new(), kernel: kernel.clone() };
    if let Some(finish) = &kernel.epilogue {
        finish.describe(&mut prepared);
    }
    Ok(prepared)
}

/// The kernel, bytes of scratch for each worker, and the cost without the epilogue.
fn build<E: InFloats>(isa: Isa, spec: ConvSpec, work: Work, epilogue: Option<Epilogue>) -> Result<(Depthwise<E>, usize, Cost)> {
    spec.check()?;
    let is_widened = E::TYPE != DataType::Float;
    if is_widened && epilogue.is_some() {
        return Err(Error::unimplemented(format!("an epilogue on a convolution of {}", E::TYPE)));
    }
    let [z, y, x] = spec.sides();
    if z != Axis::from(WindowAxis::ONE) {
        return Err(Error::unimplemented("a depthwise convolution along three axes"));
    }
    let (in_c, out_c) = (spec.in_c as usize, spec.out_c as usize);
    let multiplier = out_c.checked_div(in_c).unwrap_or(0);
    if multiplier * in_c != out_c {
        return Err(Error::invalid_argument(format!("a depthwise convolution of {in_c} channels to {out_c}")));
    }
    let batch = spec.batch as usize;
    let size = size_of::<E>() as f64;
    let bytes = |columns: usize, channels: usize| (size_of::<E>() * columns * channels) as u64;
    let taps = spec.taps();
    let cut = match work {
        Work::Forward => Cut::new(batch * y.positions, bytes(x.positions, out_c).saturating_mul(taps), 1),
        Work::Input => Cut::new(batch * y.size, bytes(x.size, out_c).saturating_mul(taps), 1),
        Work::Filter => {
            let group = bytes(batch * y.positions * x.positions, 2 * GROUP).saturating_mul(x.taps as u64);
            Cut::new(y.taps * out_c.div_ceil(GROUP), group, 1)
        }
    };
    let channels = spec.in_c.max(1) as f64;
    let filter = size * taps as f64 * out_c as f64;
    let cost = Cost { flops: spec.flops() / channels, bytes: spec.bytes() - size * taps as f64 * spec.in_c as f64 * out_c as f64 + filter };
    let mut epilogue = epilogue.map(|epilogue| Finish::new(isa, &spec.output(), epilogue, Functions::Never)).transpose()?;
    let mut scratch = 0;
    if let Some(finish) = &mut epilogue {
        finish.chain = finish.chain.take().filter(|_| multiplier == 1);
        scratch = finish.scratch();
        finish.place = scratch;
        scratch += if finish.waits() { x.positions * out_c * 4 } else { 0 };
    }
    if is_widened && work == Work::Filter {
        // The sums of a row of taps.
        scratch = x.taps * GROUP * size_of::<f32>();
    }
    let is_far = |sizes: &[u64]| sizes.iter().product::<u64>() > (FAR / size_of::<f32>()) as u64;
    let (ahead, fetches) = (is_far(&spec.input()), is_far(&spec.output()));
    let kernel = Depthwise::<E> {
        work,
        batch,
        in_c,
        out_c,
        multiplier,
        spans: if work == Work::Forward { spans(x) } else { Vec::new() },
        x_runs: x.runs(),
        y,
        x,
        cut,
        ahead,
        fetches,
        epilogue,
        isa,
        of: PhantomData,
    };
    Ok((kernel, scratch, cost))
}

impl<E: InFloats> CpuKernel for Depthwise<E> {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        let units = self.cut.units(chunks);
        let Some(Finish { program, chain, result, in_result, place }) = &self.epilogue else {
            // SAFETY: the arguments are the caller's promise.
            unsafe { self.compute(units, args.pointers[2].cast(), &[], args) };
            return Ok(());
        };
        if let Some(chain) = chain {
            let links = chain.bind(&args.pointers[2..]);
            // SAFETY: as above.
            unsafe { self.compute(units, args.pointers[*result].cast(), links.get(), args) };
            return Ok(());
        }
        let row = self.x.positions * self.out_c;
        for (number, unit) in units.enumerate() {
            let to = match in_result {
                Some(result) => args.pointers[*result].cast::<E>(),
                // The address may lie before the scratch: only this row's elements are used.
                None => args.worker.wrapping_add(*place).cast::<E>().wrapping_sub(unit * row),
            };
            let bases = Bases { first: to.cast(), rest: &args.pointers[2..] };
            // SAFETY: operand 0 is found where it has been computed; the others and the results are the caller's.
            unsafe {
                self.compute(unit..unit + 1, to, &[], args);
                if number == 0 {
                    program.begin(&bases, args.worker);
                }
                program.run(unit * row..(unit + 1) * row, &bases, args.worker)?;
            }
        }
        Ok(())
    }
}

impl<E: InFloats> Depthwise<E> {
    /// Computes `units` of the result, which is at `to`. The links change it.
    unsafe fn compute(&self, units: Range<usize>, to: *mut E, links: &[Link], args: &Args<'_>) {
        // SAFETY: the instruction set was asked for when the kernel was prepared; the rest is the caller's promise.
        unsafe {
            if self.work == Work::Forward && self.multiplier == 1 && E::TYPE == DataType::Float {
                units.for_each(|row| self.row(row, to.cast(), links, args));
            } else if self.multiplier == 1 {
                self.isa.run(DepthwisePiece::<E, false> { work: self, units, to, args });
            } else {
                self.isa.run(DepthwisePiece::<E, true> { work: self, units, to, args });
            }
        }
    }
}

impl<E: InFloats> Depthwise<E> {
    /// Computes a row of results of floats, each of one channel.
    unsafe fn row(&self, row: usize, to: *mut f32, links: &[Link], args: &Args<'_>) {
        let Depthwise { in_c, out_c, y, x, .. } = *self;
        let [input, filter] = [0, 1].map(|index| args.pointers[index].cast::<f32>().cast_const());
        let (image, position_y) = (row / y.positions, row % y.positions);
        let taps_y = y.taps_at(position_y);
        let top = (image * y.size) as isize + y.start(position_y) + (taps_y.start * y.dilation) as isize;
        let code = code(self.isa);
        // Rows that the next row of results sees and this one does not.
        let ahead_rows = if y.dilation == 1 && self.ahead { y.stride.min(y.taps) } else { 0 };
        for Span { positions, taps, misses } in &self.spans {
            let left = x.start(positions.start) + (taps.start * x.dilation) as isize;
            let element = (row * x.positions + positions.start) * out_c;
            let below = top + (taps_y.len() * y.dilation) as isize;
            let tile = Tile {
                ahead: input.wrapping_offset((below * x.size as isize + left) * in_c as isize),
                ahead_rows,
                ahead_columns: positions.len() * x.stride,
                input_column: in_c,
                fetches: self.fetches,
                input: input.wrapping_offset((top * x.size as isize + left) * in_c as isize),
                input_row: y.dilation * x.size * in_c,
                input_tap: x.dilation * in_c,
                input_position: x.stride * in_c,
                filter: filter.wrapping_add((taps_y.start * x.taps + taps.start) * out_c),
                filter_row: x.taps * out_c,
                filter_tap: out_c,
                taps: [taps_y.len(), taps.len()],
                misses: *misses,
                results: to.wrapping_add(element),
                channels: out_c,
                changes: Changes { links, element, column: 0 },
            };
            // SAFETY: the taps of all these positions lie on the input, but for those that are missed; the results of this row are this
            // call's.
            unsafe { code[positions.len() - 1](&tile) };
        }
    }
}

/// Positions of a row that are computed together.
#[derive(Debug)]
struct Span {
    positions: Range<usize>,
    taps: Range<usize>,
    /// Whether the first position does not see the first of the taps, and the last one not the last.
    misses: [bool; 2],
}

/// Those of a row. Positions beside the padding are with those between where these share what they see and only one tap of theirs is on it.
fn spans(x: Axis) -> Vec<Span> {
    let runs = x.runs().into_iter();
    let mut runs: Vec<Span> = runs.map(|Run { positions, taps }| Span { positions, taps, misses: [false; 2] }).collect();
    runs.dedup_by(|next, before| {
        if !shares(x.taps, x.dilation, x.stride) {
            return false;
        }
        let is_first = before.positions.len() == 1 && before.taps == (1..x.taps) && next.taps == (0..x.taps);
        let is_last = next.positions.len() == 1 && next.taps == (0..x.taps - 1) && before.taps == (0..x.taps);
        if is_first || is_last {
            before.misses[usize::from(is_last)] = true;
            (before.positions.end, before.taps) = (next.positions.end, 0..x.taps);
        }
        is_first || is_last
    });
    let spans = runs.iter().flat_map(|run| {
        let count = run.positions.len().div_ceil(POSITIONS);
        (0..count).map(move |number| {
            let part = part(run.positions.len(), count, number);
            let positions = run.positions.start + part.start..run.positions.start + part.end;
            let misses = [number == 0 && run.misses[0], number + 1 == count && run.misses[1]];
            Span { positions, taps: run.taps.clone(), misses }
        })
    });
    spans.collect()
}

/// Made with arguments and a result, of which no other thread writes the part in `units`. `SPREAD` if the multiplier is not 1.
struct DepthwisePiece<'a, E, const SPREAD: bool> {
    work: &'a Depthwise<E>,
    units: Range<usize>,
    to: *mut E,
    args: &'a Args<'a>,
}

impl<E: InFloats, const SPREAD: bool> Vectorised for DepthwisePiece<'_, E, SPREAD> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        for unit in self.units.clone() {
            match self.work.work {
                Work::Forward => self.forward::<FMA>(unit),
                Work::Input => self.input::<FMA>(unit),
                Work::Filter => self.filter::<FMA>(unit),
            }
        }
    }
}

#[inline(always)]
fn add_product<const FMA: bool>(sum: &mut [f32; GROUP], a: &[f32; GROUP], b: &[f32; GROUP]) {
    for lane in 0..GROUP {
        sum[lane] = if FMA { a[lane].mul_add(b[lane], sum[lane]) } else { a[lane] * b[lane] + sum[lane] };
    }
}

/// The tap with which a window that reaches over an index sees it, if one does.
#[inline(always)]
fn tap_at(axis: Axis, index: usize, window: usize) -> Option<usize> {
    let distance = (index as isize - axis.start(window)) as usize;
    match axis.dilation {
        1 => Some(distance),
        dilation => distance.is_multiple_of(dilation).then_some(distance / dilation),
    }
}

/// Positions that are computed together.
const TILE: usize = 4;

impl<E: InFloats, const SPREAD: bool> DepthwisePiece<'_, E, SPREAD> {
    #[inline(always)]
    fn pointer(&self, index: usize) -> *const E {
        self.args.pointers[index].cast::<E>().cast_const()
    }

    /// The input's channels of which the result's channels `channel..channel + count` are made. They are there.
    #[inline(always)]
    unsafe fn of_input(&self, position: *const E, channel: usize, count: usize) -> [f32; GROUP] {
        // SAFETY: the caller's promise.
        unsafe {
            if !SPREAD {
                return E::get(position.add(channel), count);
            }
            let mut values = [0f32; GROUP];
            for (lane, value) in values.iter_mut().enumerate().take(count) {
                *value = position.add((channel + lane) / self.work.multiplier).read().widen();
            }
            values
        }
    }

    /// Elements `channel * multiplier + m` for channels `channel..channel + count`. They are there.
    #[inline(always)]
    unsafe fn every(&self, from: *const E, channel: usize, count: usize, m: usize) -> [f32; GROUP] {
        // SAFETY: the caller's promise.
        unsafe {
            if !SPREAD {
                return E::get(from.add(channel), count);
            }
            let mut values = [0f32; GROUP];
            for (lane, value) in values.iter_mut().enumerate().take(count) {
                *value = from.add((channel + lane) * self.work.multiplier + m).read().widen();
            }
            values
        }
    }

    #[inline(always)]
    fn forward<const FMA: bool>(&self, row: usize) {
        for run in &self.work.x_runs {
            let mut column = run.positions.start;
            while column + TILE <= run.positions.end {
                self.tile::<FMA, TILE>(row, column, &run.taps);
                column += TILE;
            }
            while column < run.positions.end {
                self.tile::<FMA, 1>(row, column, &run.taps);
                column += 1;
            }
        }
    }

    #[inline(always)]
    fn tile<const FMA: bool, const POSITIONS: usize>(&self, row: usize, column: usize, taps_x: &Range<usize>) {
        let Depthwise { in_c, out_c, y, x, .. } = *self.work;
        let (input, filter, output) = (self.pointer(0), self.pointer(1), self.to);
        let (image, position_y) = (row / y.positions, row % y.positions);
        let (top, left) = ((image * y.size) as isize + y.start(position_y), x.start(column));
        for (channel, count) in groups(0..out_c) {
            let mut sums = [[0f32; GROUP]; POSITIONS];
            for tap_y in y.taps_at(position_y) {
                let line = (top + (tap_y * y.dilation) as isize) * x.size as isize + left;
                for tap_x in taps_x.clone() {
                    let at = (line + (tap_x * x.dilation) as isize) as usize * in_c;
                    // SAFETY: the taps of all these positions lie on the input.
                    unsafe {
                        let weights = E::get(filter.add((tap_y * x.taps + tap_x) * out_c + channel), count);
                        for (number, sum) in sums.iter_mut().enumerate() {
                            let values = self.of_input(input.add(at + number * x.stride * in_c), channel, count);
                            add_product::<FMA>(sum, &values, &weights);
                        }
                    }
                }
            }
            for (number, sum) in sums.iter().enumerate() {
                // SAFETY: the results of this row are this call's.
                unsafe { E::put(output.add((row * x.positions + column + number) * out_c + channel), count, *sum) };
            }
        }
    }

    #[inline(always)]
    fn input<const FMA: bool>(&self, row: usize) {
        let Depthwise { in_c, out_c, multiplier, y, x, .. } = *self.work;
        let (filter, grad, to) = (self.pointer(0), self.pointer(1), self.to);
        let (image, line) = (row / y.size, row % y.size);
        let windows_y = y.positions_over(line);
        for column in 0..x.size {
            let windows_x = x.positions_over(column);
            for (channel, count) in groups(0..in_c) {
                let mut sum = [0f32; GROUP];
                for window_y in windows_y.clone() {
                    let Some(tap_y) = tap_at(y, line, window_y) else { continue };
                    for window_x in windows_x.clone() {
                        let Some(tap_x) = tap_at(x, column, window_x) else { continue };
                        let tap = tap_y * x.taps + tap_x;
                        let window = (image * y.positions + window_y) * x.positions + window_x;
                        for m in 0..if SPREAD { multiplier } else { 1 } {
                            // SAFETY: the window is one of the result's, the tap one of the filter's.
                            unsafe {
                                let weights = self.every(filter.add(tap * out_c), channel, count, m);
                                let values = self.every(grad.add(window * out_c), channel, count, m);
                                add_product::<FMA>(&mut sum, &values, &weights);
                            }
                        }
                    }
                }
                // SAFETY: the elements of this row are this call's.
                unsafe { E::put(to.add((row * x.size + column) * in_c + channel), count, sum) };
            }
        }
    }

    #[inline(always)]
    fn filter<const FMA: bool>(&self, unit: usize) {
        let Depthwise { batch, in_c, out_c, y, x, .. } = *self.work;
        let (input, grad, to) = (self.pointer(0), self.pointer(1), self.to);
        let (tap_y, channel) = (unit % y.taps, unit / y.taps * GROUP);
        let count = GROUP.min(out_c - channel);
        let result = |tap_x: usize| to.wrapping_add((tap_y * x.taps + tap_x) * out_c + channel);
        // Floats are summed where the result lies.
        let place = |tap_x: usize| match E::TYPE {
            DataType::Float => result(tap_x).cast::<f32>(),
            _ => self.args.worker.cast::<f32>().wrapping_add(tap_x * GROUP),
        };
        for tap_x in 0..x.taps {
            // SAFETY: the elements of this unit are this call's, here and below.
            unsafe { put(place(tap_x), count, [0f32; GROUP]) };
        }
        for image in 0..batch {
            for position_y in y.positions_of(tap_y) {
                let line = (image * y.size) as isize + y.start(position_y) + (tap_y * y.dilation) as isize;
                let windows = (image * y.positions + position_y) * x.positions;
                for tap_x in 0..x.taps {
                    let mut sums = [[0f32; GROUP]; TILE];
                    let positions = x.positions_of(tap_x);
                    let mut position = positions.start;
                    while position < positions.end {
                        // As many as there are sums, so that one need not wait for another.
                        for sum in sums.iter_mut().take(positions.end - position) {
                            let at = (line * x.size as isize + x.start(position) + (tap_x * x.dilation) as isize) as usize * in_c;
                            // SAFETY: the tap lies on the input, and the window is one of the result's.
                            unsafe {
                                let values = self.of_input(input.add(at), channel, count);
                                let grads = E::get(grad.add((windows + position) * out_c + channel), count);
                                add_product::<FMA>(sum, &values, &grads);
                            }
                            position += 1;
                        }
                    }
                    // SAFETY: as above.
                    unsafe {
                        let mut sum = get(place(tap_x).cast_const(), count, 0.0);
                        for lane in 0..GROUP {
                            sum[lane] += (sums[0][lane] + sums[1][lane]) + (sums[2][lane] + sums[3][lane]);
                        }
                        put(place(tap_x), count, sum);
                    }
                }
            }
        }
        if E::TYPE != DataType::Float {
            for tap_x in 0..x.taps {
                // SAFETY: the sums have been made; the elements of this unit are this call's.
                unsafe { E::put(result(tap_x), count, get(place(tap_x).cast_const(), count, 0.0)) };
            }
        }
    }
}
