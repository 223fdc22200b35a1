//! A convolution whose results are pooled image by image, so that they exist in a worker's scratch only.

use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_device::{Args, CpuKernel, Fault, Prepared};

use super::direct;
use crate::cut::elements;
use crate::packing::Order;
use crate::pool::PoolImages;
use crate::simd::Isa;
use plimsoll_request::anchor::Epilogue;
use plimsoll_request::conv::ConvSpec;
use plimsoll_request::pool::{Maxima, Pooling, Positions};
use plimsoll_request::window::WindowAxis;

/// The most arguments that there can be.
const MOST_ARGS: usize = 40;

#[derive(Debug)]
struct Pooled {
    conv: Arc<dyn CpuKernel>,
    pool: PoolImages,
    batch: usize,
    /// Images of a piece, and elements of each.
    images: usize,
    image: usize,
    /// Arguments of the convolution before its result.
    operands: usize,
    has_positions: bool,
    /// Where in the worker's scratch a piece of the convolution goes.
    place: usize,
}

/// What is pooled, and how. Both fit.
pub(crate) struct Of<'a> {
    spec: &'a ConvSpec,
    pooling: &'a Pooling,
    /// Arguments of the convolution before its result.
    operands: usize,
}

impl<'a> Of<'a> {
    /// # Errors
    /// INVALID_ARGUMENT where the two do not fit.
    pub(crate) fn new(spec: &'a ConvSpec, epilogue: Option<&Epilogue>, pooling: &'a Pooling) -> Result<Of<'a>> {
        let fits = pooling.spec.input() == spec.output()
            && spec.axes.filled()[0] == WindowAxis::ONE
            && pooling.maxima == Maxima::First
            && epilogue.is_none_or(|epilogue| epilogue.expr.output_types() == [DataType::Float]);
        let operands = 2 + epilogue.map_or(0, |epilogue| epilogue.operands.len());
        if !fits || operands + 1 > MOST_ARGS {
            return Err(Error::invalid_argument(format!("results {:?} of a convolution pooled as {:?}", spec.output(), pooling.spec)));
        }
        Ok(Of { spec, pooling, operands })
    }

    /// The pooling behind the convolution's kernel, of which a piece is so many images.
    pub(crate) fn behind(self, isa: Isa, conv: Prepared, images: usize) -> Result<Prepared> {
        let Of { spec, pooling, operands } = self;
        let pool = PoolImages::new(isa, pooling)?;
        let image = elements(&spec.output()[1..])?;
        let place = conv.per_worker.next_multiple_of(64);
        let buffer = elements(&[images as u64, image as u64])? as u64 * 4;
        let outputs: f64 = pooling.spec.output().iter().map(|size| *size as f64).product();
        let mut cost = conv.cost;
        cost.flops += outputs * pooling.spec.taps() as f64;
        cost.bytes += 5.0 * outputs - 4.0 * spec.batch as f64 * image as f64;
        let kernel = Pooled {
            conv: conv.kernel,
            pool,
            batch: spec.batch as usize,
            images,
            image,
            operands,
            has_positions: pooling.positions != Positions::None,
            place: place as usize,
        };
        let per_worker = place + buffer + 64;
        Ok(Prepared { chunks: conv.chunks, scratch: 0, per_worker, cost, in_place: Vec::new(), kernel: Arc::new(kernel) })
    }
}

pub(super) fn prepare(isa: Isa, spec: &ConvSpec, epilogue: Option<Epilogue>, pooling: &Pooling, order: Order) -> Result<Prepared> {
    let of_results = Of::new(spec, epilogue.as_ref(), pooling)?;
    let (conv, images) = direct::forward::<f32>(isa, spec, epilogue, true, order)?;
    of_results.behind(isa, conv, images)
}

impl CpuKernel for Pooled {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        let mut pointers = [std::ptr::null_mut::<u8>(); MOST_ARGS];
        pointers[..self.operands].copy_from_slice(&args.pointers[..self.operands]);
        for chunk in chunks {
            let first = chunk as usize * self.images;
            let images = first.min(self.batch)..(first + self.images).min(self.batch);
            // Where the first of all images would begin if all were there: only this piece's are touched.
            let result = args.worker.wrapping_add(self.place).wrapping_sub(first * self.image * 4);
            pointers[self.operands] = result;
            let inner = Args { pointers: &pointers[..self.operands + 1], scratch: args.scratch, worker: args.worker };
            let positions = self.has_positions.then(|| args.pointers[self.operands + 1]);
            // SAFETY: the piece's images fit in the worker's scratch behind the convolution's own. They are made before they are
            // pooled. The pooling's results of these images are written by this piece only.
            unsafe {
                self.conv.run(chunk..chunk + 1, &inner)?;
                self.pool.run(images, result.cast(), args.pointers[self.operands].cast(), positions);
            }
        }
        Ok(())
    }
}
