//! `SoftmaxCrossEntropyWithLogits` and `SparseSoftmaxCrossEntropyWithLogits`: the loss and its gradient at once.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_device::{Args, Cost, CpuKernel, Fault, Prepared};

use super::lanes::{LANES, Powers, Real, Row, Terms, exp_shifted, shares};
use crate::cut::{Cut, elements, size_of_type};
use crate::element::of_type;
use crate::simd::{Isa, Vectorised};

/// `SoftmaxCrossEntropyWithLogits`: arguments features `[batch, classes]`, labels (probabilities, the same shape), loss
/// `[batch]`, backprop `[batch, classes]`. Float or double.
///
/// `loss = sum(labels * (log(sum(exp(features))) - features))`, `backprop = softmax(features) - labels`.
///
/// # Errors
/// UNIMPLEMENTED for other types.
pub fn softmax_cross_entropy(isa: Isa, data_type: DataType, batch: u64, classes: u64) -> Result<Prepared> {
    prepare(isa, data_type, batch, classes, None)
}

/// `SparseSoftmaxCrossEntropyWithLogits`: arguments features `[batch, classes]`, labels `[batch]` (int32 or int64: the class),
/// loss `[batch]`, backprop `[batch, classes]`. Float or double.
///
/// # Errors
/// INVALID_ARGUMENT where there are no classes; UNIMPLEMENTED for other types. At run time a fault for a label that is no
/// class, as TensorFlow's kernel for processors.
pub fn sparse_softmax_cross_entropy(isa: Isa, data_type: DataType, label_type: DataType, batch: u64, classes: u64) -> Result<Prepared> {
    if classes == 0 {
        return Err(Error::invalid_argument(format!("Must have at least one class, but got logits shape [{batch},0]")));
    }
    prepare(isa, data_type, batch, classes, Some(label_type))
}

fn prepare(isa: Isa, data_type: DataType, batch: u64, classes: u64, label_type: Option<DataType>) -> Result<Prepared> {
    let len = elements(&[batch, classes])?;
    let size = size_of_type(data_type)?;
    let labels = match label_type {
        None => Labels::Dense,
        Some(DataType::Int32) => Labels::Int32,
        Some(DataType::Int64) => Labels::Int64,
        Some(other) => return Err(Error::unimplemented(format!("labels of {other}"))),
    };
    let (rows, classes) = (batch as usize, classes as usize);
    // A row of a few classes takes as long as moving so many bytes.
    let cut = Cut::new(rows, 6 * (classes * size) as u64 + 512, 1);
    let kernel: Arc<dyn CpuKernel> = of_type!(
        data_type,
        [Float, Double],
        T => Arc::new(CrossEntropy::<T> { rows, classes, labels, cut, isa, marker: PhantomData }),
        _ => return Err(Error::unimplemented(format!("the cross entropy of {data_type}"))),
    );
    let tensors = if labels == Labels::Dense { 3 } else { 2 };
    let cost = Cost { flops: 40.0 * len as f64, bytes: (tensors * len * size) as f64 };
    // The gradient may be written over the features.
    Ok(Prepared { chunks: cut.pieces(), scratch: 0, per_worker: 0, cost, in_place: vec![(0, 1)], kernel })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Labels {
    Dense,
    Int32,
    Int64,
}

#[derive(Debug)]
struct CrossEntropy<T> {
    rows: usize,
    classes: usize,
    labels: Labels,
    cut: Cut,
    isa: Isa,
    marker: PhantomData<fn(T)>,
}

impl<T: Real> CpuKernel for CrossEntropy<T> {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        let piece = CrossEntropyPiece { kernel: self, rows: self.cut.units(chunks), args };
        // SAFETY: the processor has the instruction set: it was asked when the kernel was prepared.
        unsafe { self.isa.run(piece) }
    }
}

/// Made with arguments as [`CpuKernel::run`] asks for them, and the rows of its pieces.
struct CrossEntropyPiece<'a, 'b, T> {
    kernel: &'a CrossEntropy<T>,
    rows: Range<usize>,
    args: &'a Args<'b>,
}

impl<T: Real> Vectorised for CrossEntropyPiece<'_, '_, T> {
    type Output = Result<(), Fault>;

    #[inline(always)]
    fn run<const FMA: bool>(self) -> Result<(), Fault> {
        let CrossEntropy { rows, classes, labels, .. } = *self.kernel;
        // SAFETY: argument 2 holds the losses, of which pieces write different ones.
        let losses = unsafe { self.args.output::<T>(2, self.rows.clone()) };
        // SAFETY: the row lies in a tensor of the features' shape, and belongs to this piece.
        let tensor_row =
            |argument: usize, row: usize| unsafe { Row::new(self.args.pointers[argument].cast::<T>().add(row * classes), classes) };
        for (row, loss) in self.rows.zip(losses) {
            let (features, backprop) = (tensor_row(0, row), tensor_row(3, row));
            // SAFETY: sparse labels are as many integers as there are rows.
            let label = unsafe {
                match labels {
                    Labels::Dense => {
                        *loss = dense::<T, FMA>(features, tensor_row(1, row), backprop);
                        continue;
                    }
                    Labels::Int32 => i64::from(self.args.input::<i32>(1, rows)[row]),
                    Labels::Int64 => self.args.input::<i64>(1, rows)[row],
                }
            };
            if !(0..classes as i64).contains(&label) {
                let text = "Received a label value of {0} which is outside the valid range of [0, {1}).";
                return Err(Fault::invalid(text, [label, classes as i64]));
            }
            *loss = sparse::<T, FMA>(features, label as usize, backprop);
        }
        Ok(())
    }
}

/// `backprop` may be `features`.
#[inline(always)]
fn dense<T: Real, const FMA: bool>(features: Row<T>, labels: Row<T>, backprop: Row<T>) -> T {
    let max = features.max();
    let sum = features.sum::<FMA>(&mut Powers { max, last: [T::ZERO; LANES], to: None });
    features.sum::<FMA>(&mut Losses { max, log: sum.ln(), scale: T::ONE / sum, labels, backprop })
}

/// The terms `label * (log(sum) - (x - max))`; the gradient is written on the way.
struct Losses<T> {
    max: T,
    log: T,
    scale: T,
    labels: Row<T>,
    backprop: Row<T>,
}

impl<T: Real> Terms<T> for Losses<T> {
    #[inline(always)]
    fn of<const FMA: bool>(&mut self, group: [T; LANES], at: usize, len: usize) -> [T; LANES] {
        let label = self.labels.get(at, len, T::ZERO);
        let powers = exp_shifted::<T, FMA>(group, self.max, len);
        let (mut losses, mut gradients) = ([T::ZERO; LANES], [T::ZERO; LANES]);
        for lane in 0..LANES {
            gradients[lane] = powers[lane] * self.scale - label[lane];
            let loss = label[lane] * (self.log - (group[lane] - self.max));
            losses[lane] = if lane < len { loss } else { T::ZERO };
        }
        self.backprop.put(at, gradients, len);
        losses
    }
}

/// `backprop` may be `features`.
#[inline(always)]
fn sparse<T: Real, const FMA: bool>(features: Row<T>, label: usize, backprop: Row<T>) -> T {
    let max = features.max();
    let here = features.element(label) - max;
    let sum = shares::<T, FMA>(features, max, backprop);
    backprop.subtract_one(label);
    sum.ln() - here
}
