//! Discrete Fourier transforms: rows by the transforms of `rustfft` and `realfft`. These are planned when a kernel is prepared, and
//! compute in the worker's scratch. Their tables of roots are beside the plan's memory, hence the bound on lengths.

#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_device::{Args, Cost, CpuKernel, Fault, Prepared};
use plimsoll_request::fft::{Fft, FftForm};
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};
use rustfft::num_complex::Complex;
use rustfft::{FftNum, FftPlanner};

use crate::cut::{Cut, elements};

/// The most points of a transform. The roots of unity of as many doubles are 32 MiB.
const MOST_POINTS: u64 = 1 << 20;

/// The kernel of a transform. Arguments: rows, results.
///
/// # Errors
/// UNIMPLEMENTED for parts other than float and double and for transforms of more than 2^20 points; INVALID_ARGUMENT for sizes that no
/// memory holds.
pub fn fft(request: &Fft) -> Result<Prepared> {
    if request.length > MOST_POINTS {
        return Err(Error::unimplemented(format!("a Fourier transform of {} points, of more than {MOST_POINTS}", request.length)));
    }
    match request.part {
        DataType::Float => prepare::<f32>(request),
        DataType::Double => prepare::<f64>(request),
        part => Err(Error::unimplemented(format!("a Fourier transform with parts of {part}"))),
    }
}

fn prepare<T: FftNum>(request: &Fft) -> Result<Prepared> {
    let (read, written) = (elements(&[request.rows, request.row])?, elements(&[request.rows, request.given()])?);
    elements(&[request.rows, request.taken()])?;
    // A transform of nothing is not planned.
    let length = if written == 0 { 1 } else { request.length as usize };
    let transform = match request.form {
        FftForm::Forward => Transform::Complex(FftPlanner::<T>::new().plan_fft_forward(length)),
        FftForm::Inverse => Transform::Complex(FftPlanner::<T>::new().plan_fft_inverse(length)),
        FftForm::Real => Transform::Real(RealFftPlanner::<T>::new().plan_fft_forward(length)),
        FftForm::InverseReal => Transform::InverseReal(RealFftPlanner::<T>::new().plan_fft_inverse(length)),
    };
    let (taken, given) = (request.taken() as usize, request.given() as usize);
    let buffer = match request.form {
        FftForm::Forward | FftForm::Inverse => 0,
        FftForm::Real => (taken * size_of::<T>()).next_multiple_of(64),
        FftForm::InverseReal => (taken * size_of::<Complex<T>>()).next_multiple_of(64),
    };
    let scratch = match &transform {
        Transform::Complex(transform) => transform.get_inplace_scratch_len(),
        Transform::Real(transform) => transform.get_scratch_len(),
        Transform::InverseReal(transform) => transform.get_scratch_len(),
    };
    let points = length as f64;
    // 5 n log(n) is the usual count of operations, and half of it for real numbers.
    let share = if buffer == 0 { 5.0 } else { 2.5 };
    let flops = request.rows as f64 * points * (share * points.log2()).max(1.0);
    let cost = Cost { flops, bytes: (read + written) as f64 * size_of::<Complex<T>>() as f64 };
    let rows = if written == 0 { 0 } else { request.rows as usize };
    let cut = Cut::new(rows, (request.length).saturating_mul(40), 1);
    let in_place = if buffer == 0 && request.row == request.length { vec![(0, 0)] } else { Vec::new() };
    let kernel =
        Rows { transform, inverse: request.form == FftForm::Inverse, row: request.row as usize, taken, given, buffer, scratch, cut };
    Ok(Prepared {
        chunks: cut.pieces(),
        scratch: 0,
        per_worker: (buffer + scratch * size_of::<Complex<T>>()) as u64,
        cost,
        in_place,
        kernel: Arc::new(kernel),
    })
}

enum Transform<T> {
    Complex(Arc<dyn rustfft::Fft<T>>),
    Real(Arc<dyn RealToComplex<T>>),
    InverseReal(Arc<dyn ComplexToReal<T>>),
}

struct Rows<T> {
    transform: Transform<T>,
    /// Results of complex numbers are divided by the length.
    inverse: bool,
    row: usize,
    taken: usize,
    given: usize,
    /// Bytes of a row in scratch, before the transform's own.
    buffer: usize,
    /// Complex numbers of scratch of the transform.
    scratch: usize,
    cut: Cut,
}

impl<T> fmt::Debug for Rows<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows").field("row", &self.row).field("taken", &self.taken).field("given", &self.given).finish()
    }
}

impl<T: FftNum> CpuKernel for Rows<T> {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        // SAFETY: the worker's scratch is as large as asked for and 64-byte aligned, and so is its second part.
        let scratch = unsafe { std::slice::from_raw_parts_mut(args.worker.add(self.buffer).cast::<Complex<T>>(), self.scratch) };
        for row in self.cut.units(chunks) {
            // SAFETY: the arguments have the rows that the request says; a row of results is written by this call only. A result lies
            // where its argument does only if their rows are of one length.
            unsafe {
                match &self.transform {
                    Transform::Complex(transform) => {
                        let (from, to) = self.places::<Complex<T>, Complex<T>>(row, args);
                        if from != to.cast_const() {
                            self.copy(from, to);
                        }
                        let numbers = std::slice::from_raw_parts_mut(to, self.given);
                        transform.process_with_scratch(numbers, scratch);
                        if self.inverse {
                            let scale = T::one() / T::from_usize(self.given).unwrap_or_else(T::one);
                            numbers.iter_mut().for_each(|number| *number = Complex::new(number.re * scale, number.im * scale));
                        }
                    }
                    Transform::Real(transform) => {
                        let (from, to) = self.places::<T, Complex<T>>(row, args);
                        let buffer = args.worker.cast::<T>();
                        self.copy(from, buffer);
                        let buffer = std::slice::from_raw_parts_mut(buffer, self.taken);
                        let to = std::slice::from_raw_parts_mut(to, self.given);
                        transform.process_with_scratch(buffer, to, scratch).map_err(|_| wrong())?;
                    }
                    Transform::InverseReal(transform) => {
                        let (from, to) = self.places::<Complex<T>, T>(row, args);
                        let buffer = args.worker.cast::<Complex<T>>();
                        self.copy(from, buffer);
                        let buffer = std::slice::from_raw_parts_mut(buffer, self.taken);
                        // These parts are 0 for any real row.
                        buffer[0].im = T::zero();
                        if self.given.is_multiple_of(2) {
                            buffer[self.taken - 1].im = T::zero();
                        }
                        let to = std::slice::from_raw_parts_mut(to, self.given);
                        transform.process_with_scratch(buffer, to, scratch).map_err(|_| wrong())?;
                        let scale = T::one() / T::from_usize(self.given).unwrap_or_else(T::one);
                        to.iter_mut().for_each(|number| *number = *number * scale);
                    }
                }
            }
        }
        Ok(())
    }
}

/// Buffers are of the lengths that the transform was asked for.
#[cold]
fn wrong() -> Fault {
    Fault::invalid("a Fourier transform of another length", [0, 0])
}

impl<T: FftNum> Rows<T> {
    /// Where a row of the argument and of the result begin.
    ///
    /// # Safety
    /// The arguments are those of the request, of these types.
    unsafe fn places<A, R>(&self, row: usize, args: &Args<'_>) -> (*const A, *mut R) {
        // SAFETY: the caller's promise.
        unsafe { (args.pointers[0].cast::<A>().add(row * self.row).cast_const(), args.pointers[1].cast::<R>().add(row * self.given)) }
    }

    /// A row as long as the transform takes it: cut off, or with zeros behind it.
    ///
    /// # Safety
    /// A row at `from`, room for as many numbers as are taken at `to`. They do not overlap, and zeros are numbers.
    unsafe fn copy<N>(&self, from: *const N, to: *mut N) {
        let kept = self.row.min(self.taken);
        // SAFETY: the caller's promise.
        unsafe {
            std::ptr::copy_nonoverlapping(from, to, kept);
            std::ptr::write_bytes(to.add(kept), 0, self.taken - kept);
        }
    }
}
