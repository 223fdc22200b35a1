//! The general copy: a dense output read from the input with a step for each dimension.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::{Error, Result};
use plimsoll_device::{Args, Cost, CpuKernel, Fault, Prepared};

use super::transposed::Transposed;
use super::{Bits, MOST_DIMS, by_size};
use crate::cut::Cut;
use crate::simd::Isa;

/// A dimension: how many steps, and how far a step goes in the input and in the output, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dim {
    pub(super) size: usize,
    pub(super) from: isize,
    pub(super) to: isize,
}

/// Prepares the copy of a dense output with `sizes` whose element `index` is input element `start + sum(index * steps)`.
/// Arguments: input (`input_len` elements), output.
pub(super) fn prepare(isa: Isa, size: usize, sizes: &[usize], steps: &[isize], start: isize, input_len: usize) -> Result<Prepared> {
    let dims = collapse(sizes, steps)?;
    let len: usize = sizes.iter().product();
    check_reach(&dims, start, input_len, len)?;
    let cost = Cost { flops: 0.0, bytes: 2.0 * (len * size) as f64 };
    let same = start == 0 && input_len == len && (len == 0 || matches!(dims[..], [Dim { from: 1, .. }]) || dims.is_empty());
    let in_place = if same { vec![(0, 0)] } else { Vec::new() };
    by_size!(size, T => {
        let (chunks, kernel): (u32, Arc<dyn CpuKernel>) = match Transposed::<T>::new(isa, &dims, start) {
            Some(kernel) => (kernel.pieces(), Arc::new(kernel)),
            None => {
                let cut = Cut::new(len, 2 * size as u64, 64);
                (cut.pieces(), Arc::new(Strided::<T> { dims, start, cut, marker: PhantomData }))
            }
        };
        Ok(Prepared { chunks, scratch: 0, per_worker: 0, cost, in_place, kernel })
    })
}

/// Drops sizes of 1 and merges neighbours whose steps are as one.
fn collapse(sizes: &[usize], steps: &[isize]) -> Result<Vec<Dim>> {
    let mut dims: Vec<Dim> = Vec::new();
    let mut to = 1isize;
    for (&size, &from) in sizes.iter().zip(steps).rev() {
        if size == 1 {
            continue;
        }
        match dims.last_mut() {
            Some(inner) if from == inner.from * inner.size as isize => inner.size *= size,
            _ => dims.push(Dim { size, from, to }),
        }
        to *= size as isize;
    }
    dims.reverse();
    if dims.len() > MOST_DIMS {
        return Err(Error::unimplemented(format!("moving elements of {} separate dimensions", dims.len())));
    }
    Ok(dims)
}

/// Nothing outside the input is ever read: the kernels below rely on it.
fn check_reach(dims: &[Dim], start: isize, input_len: usize, len: usize) -> Result<()> {
    if len == 0 {
        return Ok(());
    }
    let reach = |pick: fn(isize) -> bool| {
        dims.iter().filter(|dim| pick(dim.from)).try_fold(start, |sum, dim| {
            let last = isize::try_from(dim.size - 1).ok()?;
            sum.checked_add(dim.from.checked_mul(last)?)
        })
    };
    match (reach(|from| from < 0), reach(|from| from > 0)) {
        (Some(low), Some(high)) if low >= 0 && (high as usize) < input_len => Ok(()),
        _ => Err(Error::invalid_argument("elements outside the input are asked for")),
    }
}

/// Walks over the index space of some dimensions in row-major order, keeping both offsets.
pub(super) struct Walk<'a> {
    dims: &'a [Dim],
    index: [usize; MOST_DIMS],
    pub(super) from: isize,
    pub(super) to: isize,
}

impl<'a> Walk<'a> {
    /// Starts at place number `at`. There are at most [`MOST_DIMS`] dimensions, none of size 0.
    pub(super) fn at(dims: &'a [Dim], mut at: usize) -> Walk<'a> {
        let mut walk = Walk { dims, index: [0; MOST_DIMS], from: 0, to: 0 };
        for (number, dim) in dims.iter().enumerate().rev() {
            walk.index[number] = at % dim.size;
            at /= dim.size;
            walk.from += walk.index[number] as isize * dim.from;
            walk.to += walk.index[number] as isize * dim.to;
        }
        walk
    }

    /// To the next place; from the last one to the first.
    #[inline(always)]
    pub(super) fn step(&mut self) {
        for (number, dim) in self.dims.iter().enumerate().rev() {
            self.index[number] += 1;
            self.from += dim.from;
            self.to += dim.to;
            if self.index[number] < dim.size {
                return;
            }
            self.index[number] = 0;
            self.from -= dim.size as isize * dim.from;
            self.to -= dim.size as isize * dim.to;
        }
    }
}

/// Copies row by row.
#[derive(Debug)]
struct Strided<T> {
    dims: Vec<Dim>,
    start: isize,
    cut: Cut,
    marker: PhantomData<T>,
}

impl<T: Bits> CpuKernel for Strided<T> {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        let elements = self.cut.units(chunks);
        if elements.is_empty() || args.pointers[0] == args.pointers[1] {
            return Ok(());
        }
        // SAFETY: argument 1 holds the output, of which pieces write different elements; `start` lies in the input.
        let (mut output, input) =
            unsafe { (args.output::<T>(1, elements.clone()), args.pointers[0].cast::<T>().cast_const().offset(self.start)) };
        let (inner, outer) = match self.dims.split_last() {
            Some((inner, outer)) => (*inner, outer),
            None => (Dim { size: 1, from: 1, to: 1 }, &self.dims[..]),
        };
        let mut walk = Walk::at(outer, elements.start / inner.size);
        let mut skip = elements.start % inner.size;
        while !output.is_empty() {
            let (row, rest) = output.split_at_mut(output.len().min(inner.size - skip));
            // SAFETY: the place of the walk and the steps of the row lie in the input (`check_reach`); the output is no
            // part of the input.
            unsafe { copy_row(input.offset(walk.from + skip as isize * inner.from), inner.from, row) };
            output = rest;
            skip = 0;
            walk.step();
        }
        Ok(())
    }
}

/// `row[i] = from[i * step]`.
///
/// # Safety
/// Those elements can be read, and `row` is none of them.
#[inline(always)]
unsafe fn copy_row<T: Bits>(from: *const T, step: isize, row: &mut [T]) {
    // SAFETY: the elements that are read are those that the caller promises.
    unsafe {
        match step {
            1 => std::ptr::copy_nonoverlapping(from, row.as_mut_ptr(), row.len()),
            0 => row.fill(*from),
            -1 => {
                let values = std::slice::from_raw_parts(from.offset(1 - row.len() as isize), row.len());
                for (to, value) in row.iter_mut().zip(values.iter().rev()) {
                    *to = *value;
                }
            }
            _ => {
                for (number, to) in row.iter_mut().enumerate() {
                    *to = *from.offset(number as isize * step);
                }
            }
        }
    }
}
