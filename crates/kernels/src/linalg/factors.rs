//! Matrices taken apart. A piece computes whole matrices, as doubles, in the worker's scratch.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_device::{Args, Cost, CpuKernel, Fault, Prepared};
use plimsoll_request::factors::{FactorOp, Factors};
use rustfft::num_complex::Complex64;

use super::Number;
use super::factor::Square;
use super::orthogonal::{complete, orthogonal, reflect, singular};
use super::{general, symmetric};
use crate::cut::{Cut, elements};
use crate::element::of_type;

/// The kernel of a request. Arguments: as [`FactorOp`] says.
///
/// # Errors
/// UNIMPLEMENTED for types other than float and double, and complex ones of [`FactorOp::Eig`]; INVALID_ARGUMENT for sizes that no memory
/// holds.
pub fn factors(request: &Factors) -> Result<Prepared> {
    let Factors { op, data_type, matrices, rows, columns } = *request;
    let largest = rows.max(columns);
    let len = elements(&[matrices, rows, columns])?;
    let mut written = 0.0;
    for (_, shape) in request.results() {
        written += elements(&[&[matrices], &shape[..]].concat())? as f64;
    }
    elements(&[largest, largest, 8])?;
    let places = Places::new(op, rows as usize, columns as usize);
    let least = rows.min(columns) as f64;
    let rounds = match op {
        FactorOp::Qr { .. } | FactorOp::Lu { .. } => 4.0,
        FactorOp::Svd { .. } | FactorOp::SelfAdjointEig { .. } => 60.0,
        FactorOp::Eig { .. } => 160.0,
    };
    let flops = rounds * (rows as f64) * (columns as f64) * least.max(1.0);
    // Where no result has an element, there is nothing to compute, however many matrices there are.
    let cut = Cut::new(if written == 0.0 { 0 } else { matrices as usize }, (flops as u64).max(1), 1);
    let part = data_type.part().filter(|_| matches!(op, FactorOp::Eig { .. })).unwrap_or(data_type);
    let kernel: Arc<dyn CpuKernel> = of_type!(
        part,
        [Float, Double],
        T => Arc::new(Matrices::<T> {
            op,
            is_complex: part != data_type,
            rows: rows as usize,
            columns: columns as usize,
            places,
            cut,
            of: PhantomData,
        }),
        _ => return Err(Error::unimplemented(format!("{op:?} of matrices of {data_type}"))),
    );
    if let FactorOp::Lu { index_type } = op
        && !matches!(index_type, DataType::Int32 | DataType::Int64)
    {
        return Err(Error::unimplemented(format!("rows numbered by {index_type}")));
    }
    let bytes = data_type.size().unwrap_or(8) as f64 * (len as f64 + written);
    let cost = Cost { flops: matrices as f64 * flops, bytes };
    let per_worker = 8 * places.sizes.iter().sum::<usize>();
    Ok(Prepared { chunks: cut.pieces(), scratch: 0, per_worker: per_worker as u64, cost, in_place: Vec::new(), kernel })
}

/// The parts of the scratch, in doubles.
#[derive(Clone, Copy, Debug)]
struct Places {
    sizes: [usize; 4],
}

impl Places {
    fn new(op: FactorOp, rows: usize, columns: usize) -> Places {
        let (least, largest) = (rows.min(columns), rows.max(columns));
        let sizes = match op {
            FactorOp::Qr { full } => [rows * columns, least, rows * if full { rows } else { least }, 0],
            FactorOp::Svd { full, .. } => [largest * if full { largest } else { least }, least * least, least, 0],
            FactorOp::SelfAdjointEig { .. } => [rows * rows, rows * rows, rows, 0],
            FactorOp::Eig { .. } => [2 * rows * rows, 2 * rows * rows, 2 * rows, 2 * rows],
            FactorOp::Lu { .. } => [rows * rows, rows.div_ceil(2), 0, 0],
        };
        Places { sizes }
    }
}

#[derive(Debug)]
struct Matrices<T> {
    op: FactorOp,
    is_complex: bool,
    rows: usize,
    columns: usize,
    places: Places,
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

/// Elements of scratch.
///
/// # Safety
/// They are there, and have no other user.
unsafe fn part<'a, N>(worker: *mut u8, doubles: usize, count: usize) -> &'a mut [N] {
    // SAFETY: the caller's promise; scratch is aligned for doubles, and so for all that it is used for.
    unsafe { std::slice::from_raw_parts_mut(worker.add(8 * doubles).cast::<N>(), count) }
}

impl<T: Number> Matrices<T> {
    unsafe fn matrix(&self, matrix: usize, args: &Args<'_>) -> Result<(), Fault> {
        let (rows, columns) = (self.rows, self.columns);
        let [a, b, c, _] = self.places.sizes;
        let numbers = rows * columns * if self.is_complex { 2 } else { 1 };
        // SAFETY: the caller's promise.
        let input = unsafe { &args.input::<T>(0, (matrix + 1) * numbers)[matrix * numbers..] };
        let write = |argument: usize, count: usize, value: &dyn Fn(usize) -> f64| {
            // SAFETY: the caller's promise.
            let out = unsafe { args.output::<T>(argument, matrix * count..(matrix + 1) * count) };
            out.iter_mut().enumerate().for_each(|(at, to)| *to = T::narrow(value(at)));
        };
        // SAFETY: the parts lie one behind the other, and are as long as the scratch was asked for.
        let (first, second, third) =
            unsafe { (part::<f64>(args.worker, 0, a), part::<f64>(args.worker, a, b), part::<f64>(args.worker, a + b, c)) };
        let is_finite = || input.iter().all(|element| element.widen().is_finite());
        match self.op {
            FactorOp::Qr { full } => {
                first.iter_mut().zip(input).for_each(|(to, from)| *to = from.widen());
                reflect(first, rows, columns, second);
                let inner = if full { rows } else { rows.min(columns) };
                orthogonal(first, rows, columns, second, third, inner);
                write(1, rows * inner, &|at| third[at]);
                // The triangle, without the reflections below it.
                write(2, inner * columns, &|at| if at % columns < at / columns { 0.0 } else { first[at] });
            }
            FactorOp::Svd { vectors, full } => {
                let (is_tall, count, length) = (rows >= columns, rows.min(columns), rows.max(columns));
                let element = |vector: usize, at: usize| input[if is_tall { at * columns + vector } else { vector * columns + at }].widen();
                first[..count * length].iter_mut().enumerate().for_each(|(at, to)| *to = element(at / length, at % length));
                let width = if full { length } else { count };
                if is_finite() {
                    singular(first, length, second, count, third);
                    (count..width).for_each(|at| complete(first, length, at));
                } else {
                    [&mut *first, &mut *second, &mut *third].into_iter().for_each(|part| part.fill(f64::NAN));
                }
                write(1, count, &|at| third[at]);
                if vectors {
                    let (long, short) = if is_tall { (2, 3) } else { (3, 2) };
                    write(long, length * width, &|at| first[at % width * length + at / width]);
                    write(short, count * count, &|at| second[at % count * count + at / count]);
                }
            }
            FactorOp::SelfAdjointEig { vectors } => {
                let at = |row: usize, column: usize| input[row.max(column) * rows + row.min(column)].widen();
                first.iter_mut().enumerate().for_each(|(place, to)| *to = at(place / rows, place % rows));
                if !first.iter().all(|element| element.is_finite()) {
                    return Err(Fault::invalid(
                        "Self-adjoint eigen decomposition was not successful. The input might not be valid.",
                        [0, 0],
                    ));
                }
                symmetric::eigenvalues(first, rows, second, third);
                write(1, rows, &|at| third[at]);
                if vectors {
                    write(2, rows * rows, &|at| second[at % rows * rows + at / rows]);
                }
            }
            FactorOp::Eig { vectors } => {
                // SAFETY: as above.
                let (values, solution) =
                    unsafe { (part::<Complex64>(args.worker, a + b, rows), part::<Complex64>(args.worker, a + b + c, rows)) };
                // SAFETY: as above; these have no other user from here on.
                let (first, second) =
                    unsafe { (part::<Complex64>(args.worker, 0, rows * rows), part::<Complex64>(args.worker, a, rows * rows)) };
                for (at, to) in first.iter_mut().enumerate() {
                    *to = match self.is_complex {
                        true => Complex64::new(input[2 * at].widen(), input[2 * at + 1].widen()),
                        false => Complex64::new(input[at].widen(), 0.0),
                    };
                }
                if !is_finite() || !general::eigenvalues(first, rows, second, values, solution) {
                    return Err(Fault::invalid("Eigen decomposition was not successful. The input might not be valid.", [0, 0]));
                }
                let number = |of: &[Complex64], at: usize| if at.is_multiple_of(2) { of[at / 2].re } else { of[at / 2].im };
                write(1, 2 * rows, &|at| number(values, at));
                if vectors {
                    write(2, 2 * rows * rows, &|at| number(second, at));
                }
            }
            FactorOp::Lu { index_type } => {
                // SAFETY: as above; `second` is not used beside it.
                let order = unsafe { part::<u32>(args.worker, a, rows) };
                first.iter_mut().zip(input).for_each(|(to, from)| *to = from.widen());
                let mut square = Square { size: rows, elements: first };
                let (_, least) = square.lu(order);
                if least.is_nan() || least <= 0.0 {
                    return Err(Fault::invalid("Input is not invertible.", [0, 0]));
                }
                write(1, rows * rows, &|at| square.elements[at]);
                let places = matrix * rows..(matrix + 1) * rows;
                // SAFETY: the caller's promise.
                unsafe {
                    if index_type == DataType::Int32 {
                        args.output::<i32>(2, places).iter_mut().zip(&*order).for_each(|(to, from)| *to = *from as i32);
                    } else {
                        args.output::<i64>(2, places).iter_mut().zip(&*order).for_each(|(to, from)| *to = i64::from(*from));
                    }
                }
            }
        }
        Ok(())
    }
}
