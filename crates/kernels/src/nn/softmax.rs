//! `Softmax` and `LogSoftmax`.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_device::{Args, Cost, CpuKernel, Fault, Prepared};

use super::lanes::{LANES, Powers, Real, Row, shares};
use crate::cut::{Cut, elements, size_of_type};
use crate::element::of_type;
use crate::simd::{Isa, Vectorised};

/// `Softmax`: `exp(x) / sum(exp(x))` over each of `rows` rows of `classes` logits. Arguments: logits, output.
///
/// A row with a NaN, plus infinity, or nothing but minus infinities is NaN. Float or double.
///
/// # Errors
/// UNIMPLEMENTED for other types.
pub fn softmax(isa: Isa, data_type: DataType, rows: u64, classes: u64) -> Result<Prepared> {
    by_type::<false>(isa, data_type, rows, classes)
}

/// `LogSoftmax`: `x - log(sum(exp(x)))`; otherwise as [`softmax`].
///
/// # Errors
/// As [`softmax`].
pub fn log_softmax(isa: Isa, data_type: DataType, rows: u64, classes: u64) -> Result<Prepared> {
    by_type::<true>(isa, data_type, rows, classes)
}

fn by_type<const LOG: bool>(isa: Isa, data_type: DataType, rows: u64, classes: u64) -> Result<Prepared> {
    let len = elements(&[rows, classes])?;
    let size = size_of_type(data_type)?;
    // The powers are the work: a piece holds fewer elements than where they are only moved.
    let cut = Cut::new(rows as usize, 4 * classes * size as u64 + 64, 1);
    let (rows, classes) = (rows as usize, classes as usize);
    let kernel: Arc<dyn CpuKernel> = of_type!(
        data_type,
        [Float, Double],
        T => Arc::new(Softmax::<T, LOG> { classes, cut, isa, marker: PhantomData }),
        _ => return Err(Error::unimplemented(format!("Softmax of {data_type}"))),
    );
    let cost = Cost { flops: 20.0 * len as f64 + rows as f64, bytes: 2.0 * (len * size) as f64 };
    Ok(Prepared { chunks: cut.pieces(), scratch: 0, per_worker: 0, cost, in_place: vec![(0, 0)], kernel })
}

/// The softmax of each of `rows` rows of `classes` floats, in place.
///
/// # Safety
/// The processor has the instruction set. So many floats are there, which no other thread uses.
pub(crate) unsafe fn softmax_in_place(isa: Isa, floats: *mut f32, rows: usize, classes: usize) {
    // SAFETY: the caller's promise.
    unsafe { isa.run(SoftmaxPiece::<f32, false> { classes, rows: 0..rows, from: floats, to: floats }) };
}

#[derive(Debug)]
struct Softmax<T, const LOG: bool> {
    classes: usize,
    cut: Cut,
    isa: Isa,
    marker: PhantomData<fn(T)>,
}

impl<T: Real, const LOG: bool> CpuKernel for Softmax<T, LOG> {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        let rows = self.cut.units(chunks);
        let piece = SoftmaxPiece::<T, LOG> { classes: self.classes, rows, from: args.pointers[0].cast(), to: args.pointers[1].cast() };
        // SAFETY: the processor has the instruction set: it was asked when the kernel was prepared. The pointers are those
        // of the arguments, and the rows those of these pieces.
        unsafe { self.isa.run(piece) };
        Ok(())
    }
}

/// Made with pointers to the logits and the output, whose `rows` no other thread writes.
struct SoftmaxPiece<T, const LOG: bool> {
    classes: usize,
    rows: Range<usize>,
    from: *mut T,
    to: *mut T,
}

impl<T: Real, const LOG: bool> Vectorised for SoftmaxPiece<T, LOG> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        for row in self.rows {
            // SAFETY: the row lies in both tensors, and belongs to this piece.
            let (from, to) = unsafe {
                (Row::new(self.from.add(row * self.classes), self.classes), Row::new(self.to.add(row * self.classes), self.classes))
            };
            one::<T, FMA, LOG>(from, to);
        }
    }
}

/// `to` may be `from`.
#[inline(always)]
fn one<T: Real, const FMA: bool, const LOG: bool>(from: Row<T>, to: Row<T>) {
    let max = from.max();
    if LOG {
        let log = from.sum::<FMA>(&mut Powers { max, last: [T::ZERO; LANES], to: None }).ln();
        from.subtract(to, max, log);
    } else {
        shares::<T, FMA>(from, max, to);
    }
}
