//! Running sums and products along an axis.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::{Bf16, DataType, Error, F16, Result};
use plimsoll_device::{Args, Cost, CpuKernel, Fault, Prepared};
use plimsoll_request::reduce::ScanOp;

use crate::cut::{Cut, elements, size_of_type};
use crate::element::{Element, of_type};

/// Sums or products of the elements up to each one along `axis`, one after the other in order.
///
/// With `exclusive` an element is not part of its own result, and the first result is 0 or 1. With `reverse` the order is from the
/// end. Arguments: input, output of the same shape. Types: floats, of which those of two bytes
/// are rounded after each step as in TensorFlow; int32, int64.
///
/// # Errors
/// INVALID_ARGUMENT for an axis outside the rank; UNIMPLEMENTED for other types.
pub fn scan(op: ScanOp, data_type: DataType, shape: &[u64], axis: usize, exclusive: bool, reverse: bool) -> Result<Prepared> {
    let size = *shape
        .get(axis)
        .ok_or_else(|| Error::invalid_argument(format!("Expected scan axis in the range [0, {}), but got {axis}", shape.len())))?;
    let len = elements(shape)?;
    let (outer, inner) = (elements(&shape[..axis])?, elements(&shape[axis + 1..])?);
    let bytes = size_of_type(data_type)?;
    let cut = Cut::new(outer, (2 * size as usize * inner * bytes) as u64 + 16, 1);
    let view = View { outer, size: size as usize, inner, exclusive, reverse, cut };
    let kernel: Arc<dyn CpuKernel> = of_type!(
        data_type,
        [Float, Double, Half, Bfloat16, Int32, Int64],
        T => match op {
            ScanOp::Sum => Arc::new(Scan::<T, Sum>::new(view)),
            ScanOp::Prod => Arc::new(Scan::<T, Prod>::new(view)),
        },
        _ => return Err(Error::unimplemented(format!("running sums and products of {data_type}"))),
    );
    let cost = Cost { flops: len as f64, bytes: (2 * len * bytes) as f64 };
    Ok(Prepared { chunks: cut.pieces(), scratch: 0, per_worker: 0, cost, in_place: Vec::new(), kernel })
}

trait Join<T>: Send + Sync + std::fmt::Debug + 'static {
    const IDENTITY: T;
    fn join(a: T, b: T) -> T;
}

#[derive(Debug)]
struct Sum;
#[derive(Debug)]
struct Prod;

macro_rules! joins {
    ($($t:ident: $zero:expr, $one:expr, |$a:ident, $b:ident| $sum:expr, $prod:expr;)*) => {$(
        impl Join<$t> for Sum {
            const IDENTITY: $t = $zero;
            #[inline(always)]
            fn join($a: $t, $b: $t) -> $t {
                $sum
            }
        }
        impl Join<$t> for Prod {
            const IDENTITY: $t = $one;
            #[inline(always)]
            fn join($a: $t, $b: $t) -> $t {
                $prod
            }
        }
    )*};
}
joins! {
    f32: 0.0, 1.0, |a, b| a + b, a * b;
    f64: 0.0, 1.0, |a, b| a + b, a * b;
    F16: F16::from_bits(0), F16::from_bits(0x3C00), |a, b| F16::narrow(a.widen() + b.widen()), F16::narrow(a.widen() * b.widen());
    Bf16: Bf16::from_bits(0), Bf16::from_bits(0x3F80), |a, b| Bf16::narrow(a.widen() + b.widen()), Bf16::narrow(a.widen() * b.widen());
    i32: 0, 1, |a, b| a.wrapping_add(b), a.wrapping_mul(b);
    i64: 0, 1, |a, b| a.wrapping_add(b), a.wrapping_mul(b);
}

#[derive(Clone, Copy, Debug)]
struct View {
    outer: usize,
    size: usize,
    inner: usize,
    exclusive: bool,
    reverse: bool,
    cut: Cut,
}

#[derive(Debug)]
struct Scan<T, J> {
    view: View,
    marker: PhantomData<fn(T) -> J>,
}

impl<T, J> Scan<T, J> {
    fn new(view: View) -> Scan<T, J> {
        Scan { view, marker: PhantomData }
    }
}

impl<T: Copy + Send + Sync + std::fmt::Debug + 'static, J: Join<T>> CpuKernel for Scan<T, J> {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        let View { outer, size, inner, exclusive, reverse, cut } = self.view;
        let (outers, plane) = (cut.units(chunks), size * inner);
        if plane == 0 {
            return Ok(());
        }
        // SAFETY: argument 0 holds the input, argument 1 the results, of which pieces write different planes.
        let (input, output) = unsafe { (args.input::<T>(0, outer * plane), args.output::<T>(1, outers.start * plane..outers.end * plane)) };
        for (input, output) in input[outers.start * plane..].chunks_exact(plane).zip(output.chunks_exact_mut(plane)) {
            for step in 0..size {
                let row = |step: usize| if reverse { size - 1 - step } else { step } * inner;
                let at = row(step);
                for column in 0..inner {
                    let before = if step == 0 { J::IDENTITY } else { output[row(step - 1) + column] };
                    // Without its own element, a result is the one before joined with the element before.
                    output[at + column] = match (exclusive, step) {
                        (true, 0) => J::IDENTITY,
                        (true, _) => J::join(before, input[row(step - 1) + column]),
                        (false, _) => J::join(before, input[at + column]),
                    };
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::run_one;

    #[test]
    fn every_result_is_the_fold_of_the_elements_before() {
        for (shape, axis) in
            [(&[5u64][..], 0), (&[3, 4], 0), (&[3, 4], 1), (&[2, 3, 4], 1), (&[700, 100], 1), (&[0, 3], 0), (&[3, 0], 0), (&[1], 0)]
        {
            let len = shape.iter().product::<u64>() as usize;
            let input: Vec<i64> = (0..len as i64).map(|at| at * 7919 % 23 - 11).collect();
            let (size, inner) = (shape[axis] as usize, shape[axis + 1..].iter().product::<u64>() as usize);
            for (op, exclusive, reverse) in [ScanOp::Sum, ScanOp::Prod]
                .into_iter()
                .flat_map(|op| [(op, false, false), (op, true, false), (op, false, true), (op, true, true)])
            {
                let got = run_one(&scan(op, DataType::Int64, shape, axis, exclusive, reverse).unwrap(), &[&input], len).unwrap();
                for (at, got) in got.iter().enumerate() {
                    let place = at / inner % size;
                    let counts = |other: &usize| match (exclusive, reverse) {
                        (false, false) => *other <= place,
                        (true, false) => *other < place,
                        (false, true) => *other >= place,
                        (true, true) => *other > place,
                    };
                    let elements = (0..size).filter(counts).map(|other| input[at + other * inner - place * inner]);
                    let want: i64 = if op == ScanOp::Sum { elements.sum() } else { elements.fold(1, i64::wrapping_mul) };
                    assert_eq!(*got, want, "{op:?} {shape:?} {axis} {exclusive} {reverse}: {at}");
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        assert!(scan(ScanOp::Sum, DataType::Float, &[2], 1, false, false).is_err());
        assert!(scan(ScanOp::Sum, DataType::String, &[2], 0, false, false).is_err());
        assert!(scan(ScanOp::Sum, DataType::Bool, &[2], 0, false, false).is_err());
        assert!(scan(ScanOp::Sum, DataType::Float, &[u64::MAX, 3], 0, false, false).is_err());
    }
}
