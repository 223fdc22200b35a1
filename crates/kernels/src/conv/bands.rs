//! Convolutions one behind the other, by bands of rows: what one computes stays in the second cache until the next has read it.
//!
//! A piece is some rows of the last results of an image. It goes through them band by band. Each convolution computes the rows that the
//! next one sees and that are not there yet: rows that two bands see are moved to the beginning of their buffer. Rows that two pieces see
//! are computed by both. Each result is computed as by the convolution alone, so it has the same bits.

use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_device::{Args, Cost, CpuKernel, Fault, Prepared};
use plimsoll_request::KernelRequest;
use plimsoll_request::anchor::Anchor;
use plimsoll_request::bands::{BandStage, Bands};
use plimsoll_request::conv::ConvSpec;
use plimsoll_request::window::{Layout, WindowAxis};

use super::axis::Axis;
use super::{Sizes, depthwise, direct, winograd};
use crate::cut::elements;
use crate::packing::{Order, part};
use crate::simd::Isa;

/// The most convolutions, and arguments of one of them.
const MOST_STAGES: usize = 4;
const MOST_ARGS: usize = 16;
/// Bytes of what is between convolutions that stay in the second cache beside filters.
const CACHED: usize = 320 << 10;
/// So many pieces are wanted; each has at least so many times the rows that two pieces compute both.
const PIECES: usize = 16;
const ROWS_SHARED: usize = 6;
/// The most rows of a band. Results on padding see few rows, however many there are.
const MOST_BAND: usize = 1024;

/// Less between two convolutions stays in the caches anyway.
const LEAST_BETWEEN: u64 = 1 << 20;
/// The most bytes of a filter: each band reads it.
const MOST_FILTER: u64 = 128 << 10;
/// The most bytes of a row of what is between.
const MOST_ROW: u64 = 64 << 10;

/// A convolution that computes some rows of an image at a time.
pub(crate) trait ByRows: Send + Sync {
    /// Arguments: input, filter, further operands of the epilogue, result. The worker's scratch has room for what the convolution takes.
    ///
    /// # Safety
    /// The arguments are there: of the input the rows that these see. Nothing else writes these rows of the result.
    unsafe fn rows(&self, image: usize, rows: Range<usize>, args: &Args<'_>);
}

/// Whether the operand is in a near cache, and whether results stay there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Near {
    pub operand: bool,
    pub results: bool,
}

/// A convolution by rows, the bytes of scratch that it takes, and its cost without an epilogue.
pub(crate) struct RowsOf {
    pub kernel: Arc<dyn ByRows>,
    pub scratch: usize,
    pub cost: Cost,
}

/// Whether a convolution that nothing else reads is best computed with the next one, by bands: where one of them is by channels and what is
/// between them would leave the caches.
pub(crate) fn takes(first: &KernelRequest, second: &KernelRequest) -> bool {
    let last = match first {
        KernelRequest::Anchor { anchor, pooling: None, .. } => anchor,
        KernelRequest::Bands(Bands { stages }) if stages.len() < MOST_STAGES => match stages.last() {
            Some(stage) => &stage.anchor,
            None => return false,
        },
        _ => return false,
    };
    let KernelRequest::Anchor { anchor: next, pooling: None, .. } = second else { return false };
    let (between, is_next) = match (last, next) {
        (Anchor::Conv(spec), Anchor::DepthwiseConv(_)) => (spec, is_of_rows(spec)),
        (Anchor::DepthwiseConv(spec), Anchor::Conv(next)) => (spec, is_of_rows(next) && is_one_tap(next)),
        _ => return false,
    };
    let size = |sizes: &[u64]| sizes.iter().fold(4u64, |bytes, size| bytes.saturating_mul(*size));
    let output = between.output();
    is_next && between.axes.len() == 2 && size(&output) >= LEAST_BETWEEN && size(&output[2..]) <= MOST_ROW
}

/// Whether a convolution is of floats, does all multiplications in any case, and has a filter that stays in the cache.
fn is_of_rows(spec: &ConvSpec) -> bool {
    let filter = spec.filter().iter().fold(4u64, |bytes, size| bytes.saturating_mul(*size));
    spec.data_type == DataType::Float
        && spec.layout == Layout::ChannelsLast
        && spec.groups == 1
        && !winograd::has_form(spec, false)
        && filter <= MOST_FILTER
}

fn is_one_tap(spec: &ConvSpec) -> bool {
    let is_one = |axis: &WindowAxis| axis.taps == 1 && axis.stride == 1 && axis.pad == 0;
    spec.axes.iter().all(is_one)
}

/// One of the convolutions.
struct Stage {
    kernel: Arc<dyn ByRows>,
    /// Its rows.
    y: Axis,
    /// Floats of a row of its results.
    row: usize,
    /// Arguments of its own: the first, and how many.
    first: usize,
    operands: usize,
    /// Where in the worker's scratch its results are. The last one's are an argument.
    place: usize,
}

struct Kernel {
    stages: Vec<Stage>,
    /// Pieces of an image, and rows of a band at most.
    pieces: usize,
    band: usize,
    /// The argument that is the result.
    result: usize,
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bands").field("stages", &self.stages.len()).field("pieces", &self.pieces).field("band", &self.band).finish()
    }
}

/// The rows of an operand that these rows see, without those on the padding.
fn seen(y: &Axis, rows: &Range<usize>) -> Range<usize> {
    let bound = |row: isize| row.clamp(0, y.size as isize) as usize;
    let start = bound(y.start(rows.start));
    start..bound(y.start(rows.end.max(1) - 1) + y.extent()).max(start)
}

/// The most rows of each convolution's results that so many rows of the last results take.
fn most_rows(sides: &[Axis], rows: usize) -> Vec<usize> {
    let mut most = vec![rows; sides.len()];
    for stage in (0..sides.len() - 1).rev() {
        let next = &sides[stage + 1];
        let windows = (most[stage + 1] - 1).saturating_mul(next.stride).saturating_add(next.extent() as usize);
        most[stage] = windows.min(next.size).max(1);
    }
    most
}

/// The kernel. The first filter lies in that order, the others row by row.
///
/// # Errors
/// As the convolutions' own functions; INVALID_ARGUMENT where they do not fit each other; UNIMPLEMENTED for convolutions that have no such
/// form.
pub(crate) fn prepare(isa: Isa, request: &Bands, order: Order) -> Result<Prepared> {
    let specs = request.check()?;
    let refused = || Error::unimplemented("convolutions by bands of this kind");
    let last = request.stages.len() - 1;
    if last >= MOST_STAGES || request.stages.iter().any(|stage| stage.operands() + 2 > MOST_ARGS) {
        return Err(refused());
    }
    let mut sides = Vec::with_capacity(specs.len());
    for spec in &specs {
        spec.check()?;
        if elements(&spec.output())? == 0 || elements(&spec.input())? == 0 {
            return Err(refused());
        }
        let [planes, rows, _] = spec.sides();
        if planes != Axis::from(WindowAxis::ONE) {
            return Err(refused());
        }
        sides.push(rows);
    }
    let rows_of = |spec: &ConvSpec| -> Result<usize> { elements(&spec.output()[2..]) };
    let rows = sides[last].positions;
    let shared = most_rows(&sides, 1)[0].saturating_sub(sides[1..].iter().fold(1, |all: usize, side| all.saturating_mul(side.stride)));
    let least = ROWS_SHARED.saturating_mul(shared).max(1);
    let batch = specs[0].batch as usize;
    let pieces = PIECES.div_ceil(batch).min(rows / least).max(1);
    let piece = rows.div_ceil(pieces);
    let between = |band: usize| -> Result<usize> {
        let most = most_rows(&sides, band);
        let bytes =
            |spec: &ConvSpec, rows: usize| -> Result<usize> { Ok(rows_of(spec)?.saturating_mul(size_of::<f32>()).saturating_mul(rows)) };
        specs[..last].iter().zip(&most).try_fold(0usize, |all, (spec, rows)| Ok(all.saturating_add(bytes(spec, *rows)?)))
    };
    let mut band = 1;
    while band < piece.min(MOST_BAND) && between(band + 1)? <= CACHED {
        band += 1;
    }
    let band = piece.div_ceil(piece.div_ceil(band));

    let count = |shape: &[u64]| shape.iter().map(|size| *size as f64).product::<f64>();
    let results = |spec: &ConvSpec| count(&spec.output());
    let (mut stages, mut scratch, mut cost, mut first) = (Vec::new(), 0, Cost { flops: 0.0, bytes: 0.0 }, 1);
    for (number, (BandStage { anchor, epilogue }, spec)) in request.stages.iter().zip(&specs).enumerate() {
        let near = Near { operand: number > 0, results: number < last };
        let made = match anchor {
            Anchor::Conv(spec) => {
                let order = if number == 0 { order } else { Order::Rows };
                super::require_order(isa, spec, order)?;
                direct::by_rows(isa, spec, epilogue.clone(), order, near)?
            }
            Anchor::DepthwiseConv(spec) if number > 0 || order == Order::Rows => depthwise::by_rows(isa, spec, epilogue.clone(), near)?,
            _ => return Err(refused()),
        };
        cost = cost + made.cost;
        if let Some(epilogue) = epilogue {
            cost.flops += epilogue.expr.flops() * results(spec);
            cost.bytes += epilogue.operands.iter().map(|operand| 4.0 * count(operand)).sum::<f64>();
        }
        if number < last {
            // Written and read in the cache.
            cost.bytes -= 8.0 * results(spec);
        }
        scratch = scratch.max(made.scratch);
        let operands = request.stages[number].operands();
        stages.push(Stage { kernel: made.kernel, y: sides[number], row: rows_of(spec)?, first, operands, place: 0 });
        first += operands;
    }
    let floats = |count: usize| (count * 4).next_multiple_of(64) + 64;
    scratch = scratch.next_multiple_of(64);
    for (stage, rows) in stages.iter_mut().zip(most_rows(&sides, band)).take(last) {
        stage.place = scratch;
        scratch += floats(elements(&[rows as u64, stage.row as u64])?);
    }
    let chunks = batch.checked_mul(pieces).and_then(|pieces| u32::try_from(pieces).ok());
    let chunks = chunks.ok_or_else(|| Error::invalid_argument("convolutions by bands with too many pieces"))?;
    let kernel = Arc::new(Kernel { stages, pieces, band, result: first });
    Ok(Prepared { chunks, scratch: 0, per_worker: scratch as u64, cost, in_place: Vec::new(), kernel })
}

impl CpuKernel for Kernel {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        let rows = self.stages[self.stages.len() - 1].y.positions;
        for chunk in chunks {
            let (image, number) = (chunk as usize / self.pieces, chunk as usize % self.pieces);
            // SAFETY: the arguments are the caller's promise; these rows are written by this piece only.
            unsafe { self.piece(image, part(rows, self.pieces, number), args) };
        }
        Ok(())
    }
}

impl Kernel {
    unsafe fn piece(&self, image: usize, rows: Range<usize>, args: &Args<'_>) {
        let last = self.stages.len() - 1;
        // The rows of each convolution's results that are in its buffer.
        let mut there: [Range<usize>; MOST_STAGES] = Default::default();
        for start in rows.clone().step_by(self.band) {
            let mut wanted: [Range<usize>; MOST_STAGES] = Default::default();
            wanted[last] = start..(start + self.band).min(rows.end);
            for stage in (0..last).rev() {
                wanted[stage] = seen(&self.stages[stage + 1].y, &wanted[stage + 1]);
            }
            let mut from = args.pointers[0];
            for (number, stage) in self.stages.iter().enumerate() {
                let (want, have) = (wanted[number].clone(), there[number].clone());
                let (to, missing) = if number == last {
                    (args.pointers[self.result], want.clone())
                } else {
                    let buffer = args.worker.wrapping_add(stage.place).cast::<f32>();
                    let kept = if have.start <= want.start && want.start < have.end {
                        want.start..have.end.min(want.end)
                    } else {
                        want.start..want.start
                    };
                    if !kept.is_empty() && kept.start > have.start {
                        // SAFETY: rows in the buffer, which go to its beginning.
                        unsafe { buffer.copy_from(buffer.add((kept.start - have.start) * stage.row), kept.len() * stage.row) };
                    }
                    there[number] = want.clone();
                    // Where the first row of all images would be: only rows in the buffer are touched.
                    let before = (image * stage.y.positions + want.start) * stage.row;
                    (buffer.wrapping_sub(before).cast::<u8>(), kept.end..want.end)
                };
                if !missing.is_empty() {
                    let mut pointers = [std::ptr::null_mut::<u8>(); MOST_ARGS];
                    pointers[0] = from;
                    pointers[1..=stage.operands].copy_from_slice(&args.pointers[stage.first..stage.first + stage.operands]);
                    pointers[stage.operands + 1] = to;
                    let inner = Args { pointers: &pointers[..stage.operands + 2], scratch: args.scratch, worker: args.worker };
                    // SAFETY: the rows of the input that these see are there: they were wanted of the convolution before.
                    unsafe { stage.kernel.rows(image, missing, &inner) };
                }
                from = to;
            }
        }
    }
}
