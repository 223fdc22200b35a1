//! A dense block written into a larger tensor that is one value elsewhere: padding, and the gradient of a slice.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::{Error, Result};
use plimsoll_device::{Args, Cost, CpuKernel, Fault, Prepared};

use super::views::check_slice;
use super::{Bits, MOST_DIMS, by_size, check_rank};
use crate::cut::{Cut, elements};

/// `Pad`, `PadV2` with a constant: `(before, after)` elements of `value` (the bytes of one) round each dimension of a tensor
/// of `shape`. Arguments: input, output.
///
/// # Errors
/// INVALID_ARGUMENT where the lengths do not go together or the output would be too large.
pub fn pad(size: usize, shape: &[u64], paddings: &[(u64, u64)], value: &[u8]) -> Result<Prepared> {
    if value.len() != size {
        return Err(Error::invalid_argument(format!("a padding value of {} bytes for elements of {size}", value.len())));
    }
    padded(size, shape, paddings, Some(value))
}

/// `PadV2` with a value that is known when it runs only. Arguments: input, the value (a scalar), output.
///
/// # Errors
/// As [`pad`].
pub fn pad_with_input(size: usize, shape: &[u64], paddings: &[(u64, u64)]) -> Result<Prepared> {
    padded(size, shape, paddings, None)
}

/// `StridedSliceGrad` with everything resolved: zeros of `shape`, and where the slice (`begin`, `strides`, of
/// `block_shape`, as in [`super::strided_slice`]) was taken the elements of the block. Arguments: the block, output.
///
/// # Errors
/// INVALID_ARGUMENT where the slice is not inside.
pub fn strided_slice_grad(size: usize, shape: &[u64], begin: &[u64], strides: &[i64], block_shape: &[u64]) -> Result<Prepared> {
    for (what, rank) in [("begin", begin.len()), ("strides", strides.len()), ("the block's shape", block_shape.len())] {
        check_rank(what, rank, shape)?;
    }
    elements(shape)?;
    elements(block_shape)?;
    let mut dims = Vec::new();
    let mut from = 1isize;
    let mut start = 0isize;
    for axis in (0..shape.len()).rev() {
        let (count, stride) = (block_shape[axis], strides[axis]);
        check_slice(shape[axis], begin[axis], stride, count)?;
        let mut dim = Dim {
            size: shape[axis] as usize,
            begin: begin[axis] as usize,
            step: stride.unsigned_abs() as usize,
            count: count as usize,
            from,
        };
        if stride < 0 && count > 0 {
            let steps = count as isize - 1;
            dim.begin -= steps as usize * dim.step;
            dim.from = -from;
            start += steps * from;
        }
        dims.push(dim);
        from *= count.max(1) as isize;
    }
    prepare(size, dims, start, Some(&[0; 16][..size.min(16)]))
}

fn padded(size: usize, shape: &[u64], paddings: &[(u64, u64)], value: Option<&[u8]>) -> Result<Prepared> {
    check_rank("paddings", paddings.len(), shape)?;
    let too_large = || Error::invalid_argument(format!("{shape:?} padded by {paddings:?} has more elements than memory can hold"));
    let output: Option<Vec<u64>> =
        shape.iter().zip(paddings).map(|(size, (before, after))| size.checked_add(*before)?.checked_add(*after)).collect();
    elements(&output.ok_or_else(too_large)?)?;
    let mut dims = Vec::new();
    let mut from = 1isize;
    for (count, (before, after)) in shape.iter().zip(paddings).rev() {
        let (count, before, after) = (*count as usize, *before as usize, *after as usize);
        dims.push(Dim { size: before + count + after, begin: before, step: 1, count, from });
        from *= count.max(1) as isize;
    }
    prepare(size, dims, 0, value)
}

/// A dimension of the output: of its `size` places those at `begin + i * step`, `i < count`, come from the block, where `i`
/// is `from` elements on.
#[derive(Clone, Copy, Debug)]
struct Dim {
    size: usize,
    begin: usize,
    step: usize,
    count: usize,
    from: isize,
}

/// `dims` come innermost first.
fn prepare(size: usize, dims: Vec<Dim>, start: isize, value: Option<&[u8]>) -> Result<Prepared> {
    let len: usize = dims.iter().map(|dim| dim.size).product();
    let block: usize = dims.iter().map(|dim| dim.count).product();
    let mut merged: Vec<Dim> = Vec::new();
    for dim in dims.into_iter().filter(|dim| (dim.size, dim.count) != (1, 1)) {
        match merged.last_mut() {
            Some(inner)
                if inner.count == inner.size && inner.step == 1 && dim.step == 1 && dim.from == inner.from * inner.size as isize =>
            {
                let width = inner.size;
                *inner = Dim { size: dim.size * width, begin: dim.begin * width, count: dim.count * width, ..*inner };
            }
            _ => merged.push(dim),
        }
    }
    merged.reverse();
    if block == 0 {
        merged = vec![Dim { size: len, begin: 0, step: 1, count: 0, from: 1 }];
    }
    let inner = merged.pop().unwrap_or(Dim { size: 1, begin: 0, step: 1, count: 1, from: 1 });
    if merged.len() >= MOST_DIMS {
        return Err(Error::unimplemented(format!("padding {} separate dimensions", merged.len() + 1)));
    }
    let cut = Cut::new(len, 2 * size as u64, 64);
    let cost = Cost { flops: 0.0, bytes: ((len + block) * size) as f64 };
    let mut bytes = [0; 16];
    if let Some(value) = value {
        bytes[..value.len()].copy_from_slice(value);
    }
    let value = value.map(|_| bytes);
    by_size!(size, T => {
        let kernel = Embed::<T> { outer: merged, inner, start, value, cut, marker: PhantomData };
        Ok(Prepared { chunks: cut.pieces(), scratch: 0, per_worker: 0, cost, in_place: Vec::new(), kernel: Arc::new(kernel) })
    })
}

#[derive(Debug)]
struct Embed<T> {
    outer: Vec<Dim>,
    inner: Dim,
    start: isize,
    /// The bytes of the value elsewhere, or none where it is the second input.
    value: Option<[u8; 16]>,
    cut: Cut,
    marker: PhantomData<T>,
}

impl<T: Bits> CpuKernel for Embed<T> {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        let elements = self.cut.units(chunks);
        if elements.is_empty() {
            return Ok(());
        }
        let (value, output) = match &self.value {
            Some(bytes) => (bytes.as_ptr(), 1),
            None => (args.pointers[1].cast_const(), 2),
        };
        // SAFETY: the value has the bytes of a `T`, checked where it is a constant and the contract where it is an input. The last
        // argument holds the output, of which pieces write different elements.
        let (value, mut output) = unsafe { (value.cast::<T>().read_unaligned(), args.output::<T>(output, elements.clone())) };
        let block = args.pointers[0].cast::<T>().cast_const();
        let mut index = [0; MOST_DIMS];
        let mut at = elements.start / self.inner.size;
        for (number, dim) in self.outer.iter().enumerate().rev() {
            index[number] = at % dim.size;
            at /= dim.size;
        }
        let mut skip = elements.start % self.inner.size;
        while !output.is_empty() {
            let (row, rest) = output.split_at_mut(output.len().min(self.inner.size - skip));
            match self.place(&index) {
                // SAFETY: the row of the block that the index leads to.
                Some(from) => unsafe { self.write_row(block.offset(from), skip, row, value) },
                None => row.fill(value),
            }
            output = rest;
            skip = 0;
            for (number, dim) in self.outer.iter().enumerate().rev() {
                index[number] += 1;
                if index[number] < dim.size {
                    break;
                }
                index[number] = 0;
            }
        }
        Ok(())
    }
}

impl<T: Bits> Embed<T> {
    /// Where the row of the block begins that goes to the output row `index`, if one does.
    #[inline(always)]
    fn place(&self, index: &[usize; MOST_DIMS]) -> Option<isize> {
        let mut from = self.start;
        for (dim, index) in self.outer.iter().zip(index) {
            let steps = index.checked_sub(dim.begin)?;
            let number = if dim.step == 1 { steps } else { steps / dim.step };
            if number >= dim.count || number * dim.step != steps {
                return None;
            }
            from += number as isize * dim.from;
        }
        Some(from)
    }

    /// Writes the places from `skip` on of a row into which the block's row at `from` goes.
    ///
    /// # Safety
    /// The block's row is there.
    unsafe fn write_row(&self, from: *const T, skip: usize, row: &mut [T], value: T) {
        let dim = self.inner;
        let end = skip + row.len();
        // SAFETY: `number` is below `dim.count` wherever it is used.
        let element = |number: usize| unsafe { from.offset(number as isize * dim.from) };
        if dim.step == 1 {
            let (first, last) = (dim.begin.clamp(skip, end), (dim.begin + dim.count).clamp(skip, end));
            row[..first - skip].fill(value);
            if first < last && dim.from == 1 {
                // SAFETY: as above; the output is no part of the block.
                unsafe { std::ptr::copy_nonoverlapping(element(first - dim.begin), row[first - skip..].as_mut_ptr(), last - first) };
            } else {
                for place in first..last {
                    // SAFETY: as above.
                    row[place - skip] = unsafe { *element(place - dim.begin) };
                }
            }
            row[last - skip..].fill(value);
            return;
        }
        row.fill(value);
        let first = skip.saturating_sub(dim.begin).div_ceil(dim.step);
        for number in first..dim.count {
            let place = dim.begin + number * dim.step;
            if place >= end {
                break;
            }
            // SAFETY: as above.
            row[place - skip] = unsafe { *element(number) };
        }
    }
}
