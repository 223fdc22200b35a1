//! Diagonals of matrices: taken out, put in, and all but a band of them cleared.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::{Error, Result};
use plimsoll_device::{Args, Cost, CpuKernel, Fault, Prepared};
use plimsoll_request::diagonals::{DiagonalForm, Diagonals};

use super::{Bits, by_size};
use crate::cut::{Cut, elements};

/// The movement of diagonals. Arguments: as [`DiagonalForm`] says.
///
/// # Errors
/// INVALID_ARGUMENT for diagonals that the matrices do not have, and sizes that no memory holds.
pub fn diagonals(size: usize, request: &Diagonals) -> Result<Prepared> {
    let len = elements(&[request.matrices, request.rows, request.columns])?;
    let stored = request.stored()?;
    let diagonals = elements(&[request.matrices, stored.count, stored.length])?;
    let (from, to) = match request.form {
        DiagonalForm::Part => (diagonals, diagonals),
        DiagonalForm::Matrix => (diagonals, len),
        DiagonalForm::Set => (len + diagonals, len),
        DiagonalForm::Band => (len, len),
    };
    let (units, unit) = match request.form {
        DiagonalForm::Part => (request.matrices * stored.count, stored.length),
        _ => (request.matrices * request.rows, request.columns),
    };
    let cost = Cost { flops: 0.0, bytes: (from + to) as f64 * size as f64 };
    let cut = Cut::new(units as usize, 2 * unit.saturating_mul(size as u64), 1);
    let in_place = if matches!(request.form, DiagonalForm::Set | DiagonalForm::Band) { vec![(0, 0)] } else { Vec::new() };
    by_size!(size, T => {
        let kernel = Move::<T> { request: *request, count: stored.count as usize, length: stored.length as usize, cut, of: PhantomData };
        Ok(Prepared { chunks: cut.pieces(), scratch: 0, per_worker: 0, cost, in_place, kernel: Arc::new(kernel) })
    })
}

#[derive(Debug)]
struct Move<T> {
    request: Diagonals,
    /// Diagonals of a matrix, and the elements that each is stored as.
    count: usize,
    length: usize,
    cut: Cut,
    of: PhantomData<T>,
}

impl<T: Bits> CpuKernel for Move<T> {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        let units = self.cut.units(chunks);
        let columns = self.request.columns as usize;
        for unit in units {
            // SAFETY: the arguments have the elements that the request says. A row of the output is written by this call only; an input
            // that lies there is read at the element that is written next, and through pointers.
            unsafe {
                match self.request.form {
                    DiagonalForm::Part => self.part(unit, args),
                    DiagonalForm::Matrix => {
                        let padding = args.pointers[1].cast::<T>().read();
                        args.output::<T>(2, unit * columns..(unit + 1) * columns).fill(padding);
                        self.put(unit, args.pointers[0].cast(), args.pointers[2].cast());
                    }
                    DiagonalForm::Set => {
                        let (from, to) =
                            (args.pointers[0].cast::<T>().add(unit * columns), args.pointers[2].cast::<T>().add(unit * columns));
                        std::ptr::copy(from, to, columns);
                        self.put(unit, args.pointers[1].cast(), args.pointers[2].cast());
                    }
                    DiagonalForm::Band => self.band(unit, args),
                }
            }
        }
        Ok(())
    }
}

impl<T: Bits> Move<T> {
    /// The columns of row `row` of a matrix that are in the band.
    fn inside(&self, row: usize) -> Range<usize> {
        let bound = |column: i64| column.clamp(0, self.request.columns as i64) as usize;
        let row = row as i64;
        let (first, end) = (bound(row.saturating_add(self.request.lower)), bound(row.saturating_add(self.request.upper).saturating_add(1)));
        first..end.max(first)
    }

    /// Where element (`row`, `column`) is among the stored diagonals of its matrix.
    fn stored(&self, row: usize, column: usize) -> usize {
        let diagonal = column as i64 - row as i64;
        let at = (self.request.upper - diagonal) as usize;
        at * self.length + self.request.offset(diagonal, self.length as u64) as usize + row.min(column)
    }

    /// Writes the diagonals' elements of a row.
    unsafe fn put(&self, unit: usize, diagonals: *const T, output: *mut T) {
        let (rows, columns) = (self.request.rows as usize, self.request.columns as usize);
        let (matrix, row) = (unit / rows, unit % rows);
        let diagonals = diagonals.wrapping_add(matrix * self.count * self.length);
        for column in self.inside(row) {
            // SAFETY: the caller's promise; the element is in the band.
            unsafe { output.add(unit * columns + column).write(diagonals.add(self.stored(row, column)).read()) };
        }
    }

    /// Writes a diagonal as it is stored.
    unsafe fn part(&self, unit: usize, args: &Args<'_>) {
        let (rows, columns) = (self.request.rows as usize, self.request.columns as usize);
        let (matrix, at) = (unit / self.count, unit % self.count);
        let diagonal = self.request.upper - at as i64;
        // SAFETY: the caller's promise: one row of the output, and elements that the matrix has.
        unsafe {
            let padding = args.pointers[1].cast::<T>().read();
            let out = args.output::<T>(2, unit * self.length..(unit + 1) * self.length);
            out.fill(padding);
            let offset = self.request.offset(diagonal, self.length as u64) as usize;
            let input = args.pointers[0].cast::<T>().wrapping_add(matrix * rows * columns);
            let first = if diagonal >= 0 { diagonal as usize } else { (-diagonal) as usize * columns };
            for index in 0..self.request.length_of(diagonal) as usize {
                out[offset + index] = input.add(first + index * (columns + 1)).read();
            }
        }
    }

    /// Writes a row with zeros outside of the band.
    unsafe fn band(&self, unit: usize, args: &Args<'_>) {
        let (rows, columns) = (self.request.rows as usize, self.request.columns as usize);
        let inside = self.inside(unit % rows);
        // SAFETY: the caller's promise.
        unsafe {
            let (from, to) = (args.pointers[0].cast::<T>().add(unit * columns), args.pointers[1].cast::<T>().add(unit * columns));
            std::ptr::copy(from.add(inside.start), to.add(inside.start), inside.len());
            std::ptr::write_bytes(to, 0, inside.start);
            std::ptr::write_bytes(to.add(inside.end), 0, columns - inside.end);
        }
    }
}
