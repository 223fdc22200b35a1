//! Operations on matrices: solutions and factors. A piece computes whole matrices, as doubles, in the worker's scratch.

mod factor;
mod factors;
#[cfg(test)]
mod factors_tests;
mod general;
mod orthogonal;
mod symmetric;
#[cfg(test)]
mod tests;

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::{Error, Result};
use plimsoll_device::{Args, Cost, CpuKernel, Fault, Prepared};
use plimsoll_request::linalg::{Linalg, MatrixOp};

use self::factor::Square;
pub use self::factors::factors;
use crate::cut::{Cut, elements};
use crate::element::of_type;

/// The kernel of an operation on matrices. Arguments: as [`MatrixOp`] says.
///
/// # Errors
/// UNIMPLEMENTED for types other than float and double; INVALID_ARGUMENT for sizes that no memory holds.
pub fn linalg(request: &Linalg) -> Result<Prepared> {
    let Linalg { op, data_type, matrices, size, columns } = *request;
    let len = elements(&[matrices, size, size])?;
    let right = elements(&[matrices, size, columns])?;
    let of_one = |columns: u64| elements(&[size, columns, 8]);
    let order = elements(&[size, 4])?.next_multiple_of(8);
    let per_worker = order + of_one(size)? + of_one(if matches!(op, MatrixOp::Inverse { .. }) { size } else { columns })?;
    let flops = match op {
        MatrixOp::Inverse { .. } => 2.0 * size as f64,
        _ => size as f64 * 2.0 / 3.0 + 2.0 * columns as f64,
    };
    let bytes = data_type.size().unwrap_or(8) as f64 * (2.0 * len as f64 + 2.0 * right as f64);
    // Where no result has an element, there is nothing to compute, however many matrices there are.
    let is_empty = match op {
        MatrixOp::Cholesky | MatrixOp::Inverse { .. } => len == 0,
        MatrixOp::Solve { .. } | MatrixOp::TriangularSolve { .. } => right == 0,
        MatrixOp::Determinant | MatrixOp::LogDeterminant => false,
    };
    let cut = Cut::new(if is_empty { 0 } else { matrices as usize }, size.saturating_mul(size).saturating_mul(flops as u64 + 8), 1);
    let kernel: Arc<dyn CpuKernel> = of_type!(
        data_type,
        [Float, Double],
        T => Arc::new(Matrices::<T> { op, size: size as usize, columns: columns as usize, cut, of: PhantomData }),
        _ => return Err(Error::unimplemented(format!("{op:?} of matrices of {data_type}"))),
    );
    let cost = Cost { flops: len as f64 * flops, bytes };
    Ok(Prepared { chunks: cut.pieces(), scratch: 0, per_worker: per_worker as u64, cost, in_place: Vec::new(), kernel })
}

trait Number: Copy + Send + Sync + std::fmt::Debug + 'static {
    fn widen(self) -> f64;
    fn narrow(value: f64) -> Self;
}

impl Number for f32 {
    fn widen(self) -> f64 {
        self.into()
    }

    fn narrow(value: f64) -> f32 {
        value as f32
    }
}

impl Number for f64 {
    fn widen(self) -> f64 {
        self
    }

    fn narrow(value: f64) -> f64 {
        value
    }
}

#[derive(Debug)]
struct Matrices<T> {
    op: MatrixOp,
    size: usize,
    columns: usize,
    cut: Cut,
    of: PhantomData<T>,
}

impl<T: Number> CpuKernel for Matrices<T> {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        for matrix in self.cut.units(chunks) {
            // SAFETY: the arguments have the elements that the request says; results of a matrix are written by this call only, and the
            // worker's scratch is as large as asked for.
            unsafe { self.matrix(matrix, args)? };
        }
        Ok(())
    }
}

impl<T: Number> Matrices<T> {
    unsafe fn matrix(&self, matrix: usize, args: &Args<'_>) -> Result<(), Fault> {
        let (size, columns) = (self.size, self.columns);
        let (all, order_bytes) = (size * size, (size * 4).next_multiple_of(8));
        let places = |count: usize| matrix * count..(matrix + 1) * count;
        let right_columns = if matches!(self.op, MatrixOp::Inverse { .. }) { size } else { columns };
        // SAFETY: the caller's promise.
        let (input, order, square, right) = unsafe {
            (
                args.input::<T>(0, (matrix + 1) * all),
                std::slice::from_raw_parts_mut(args.worker.cast::<u32>(), size),
                std::slice::from_raw_parts_mut(args.worker.add(order_bytes).cast::<f64>(), all),
                std::slice::from_raw_parts_mut(args.worker.add(order_bytes + 8 * all).cast::<f64>(), size * right_columns),
            )
        };
        square.iter_mut().zip(&input[places(all)]).for_each(|(to, from)| *to = from.widen());
        let mut square = Square { size, elements: square };
        let write = |argument: usize, values: &[f64]| {
            // SAFETY: the caller's promise.
            let out = unsafe { args.output::<T>(argument, places(values.len())) };
            out.iter_mut().zip(values).for_each(|(to, from)| *to = T::narrow(*from));
        };
        let given = || {
            // SAFETY: the caller's promise.
            let all = unsafe { args.input::<T>(1, (matrix + 1) * size * columns) };
            &all[places(size * columns)]
        };
        match self.op {
            MatrixOp::Cholesky => {
                square.cholesky();
                write(1, square.elements);
            }
            MatrixOp::TriangularSolve { lower, adjoint } => {
                right.iter_mut().zip(given()).for_each(|(to, from)| *to = from.widen());
                square.solve(right, columns, lower, adjoint, false);
                write(2, right);
            }
            MatrixOp::Determinant => {
                let (sign, _) = square.lu(order);
                write(1, &[(0..size).fold(sign, |product, at| product * square.elements[at * size + at])]);
            }
            MatrixOp::LogDeterminant => {
                let (mut sign, _) = square.lu(order);
                let mut logarithm = 0.0;
                for at in 0..size {
                    let pivot = square.elements[at * size + at];
                    sign *= if pivot == 0.0 || pivot.is_nan() { pivot } else { pivot.signum() };
                    logarithm += pivot.abs().ln();
                }
                write(1, &[sign]);
                write(2, &[logarithm]);
            }
            MatrixOp::Inverse { adjoint } | MatrixOp::Solve { adjoint } => {
                let is_inverse = matches!(self.op, MatrixOp::Inverse { .. });
                if adjoint {
                    transpose(square.elements, size);
                }
                let (_, least) = square.lu(order);
                if least.is_nan() || least <= 0.0 {
                    let text = if is_inverse { "Input is not invertible." } else { "Input matrix is not invertible." };
                    return Err(Fault::invalid(text, [0, 0]));
                }
                if is_inverse {
                    right.fill(0.0);
                    order.iter().enumerate().for_each(|(row, from)| right[row * size + *from as usize] = 1.0);
                } else {
                    let given = given();
                    for (row, from) in order.iter().enumerate() {
                        let from = &given[*from as usize * columns..(*from as usize + 1) * columns];
                        right[row * columns..(row + 1) * columns].iter_mut().zip(from).for_each(|(to, from)| *to = from.widen());
                    }
                }
                square.solve(right, right_columns, true, false, true);
                square.solve(right, right_columns, false, false, false);
                write(if is_inverse { 1 } else { 2 }, right);
            }
        }
        Ok(())
    }
}

fn transpose(elements: &mut [f64], size: usize) {
    for row in 0..size {
        for column in 0..row {
            elements.swap(row * size + column, column * size + row);
        }
    }
}
