//! Copies whose indices along some dimensions are not in steps: mirrored borders, nearest neighbours.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::{Error, Result};
use plimsoll_device::{Args, Cost, CpuKernel, Fault, Prepared};
use plimsoll_request::movement::Pick;

use super::{Bits, MOST_DIMS, by_size, check_rank};
use crate::cut::{Cut, elements};

/// `MirrorPad`, `ResizeNearestNeighbor`: each index along dimension `i` is the input's that `picks[i]` says. Arguments: input, output.
///
/// # Errors
/// INVALID_ARGUMENT where the lengths do not go together, a pick asks for elements that are not there, or the output would be too large.
pub fn pick(size: usize, shape: &[u64], picks: &[Pick]) -> Result<Prepared> {
    check_rank("picks", picks.len(), shape)?;
    let inputs = elements(shape)?;
    let picked: Option<Vec<u64>> = shape.iter().zip(picks).map(|(size, pick)| pick.size(*size)).collect();
    let picked = picked.ok_or_else(|| Error::invalid_argument(format!("{picks:?} of a tensor of shape {shape:?}")))?;
    let outputs = elements(&picked)?;
    if shape.len() > MOST_DIMS {
        return Err(Error::unimplemented(format!("picking along {} dimensions", shape.len())));
    }
    let mut dims = Vec::new();
    let mut step = 1;
    for axis in (0..shape.len()).rev() {
        dims.push(Dim { pick: picks[axis], from: shape[axis], size: picked[axis] as usize, step });
        step *= (shape[axis] as usize).max(1);
    }
    // The innermost dimensions that are copied as they are.
    let whole = dims.iter().take_while(|dim| dim.pick == Pick::All).count();
    let run = dims[..whole].iter().map(|dim| dim.size).product::<usize>();
    let mut dims = dims.split_off(whole);
    dims.reverse();
    let inner = if dims.is_empty() { Dim { pick: Pick::All, from: 1, size: 1, step: 1 } } else { dims.remove(dims.len() - 1) };
    let rows = dims.iter().map(|dim| dim.size).product::<usize>();
    let cut = Cut::new(if outputs == 0 { 0 } else { rows }, (2 * size * inner.size * run) as u64, 1);
    let cost = Cost { flops: 0.0, bytes: ((inputs + outputs) * size) as f64 };
    by_size!(size, T => {
        let kernel = Picked::<T> { outer: dims, inner, run, cut, marker: PhantomData };
        Ok(Prepared { chunks: cut.pieces(), scratch: 0, per_worker: 0, cost, in_place: Vec::new(), kernel: Arc::new(kernel) })
    })
}

/// A dimension of the output.
#[derive(Clone, Copy, Debug)]
struct Dim {
    pick: Pick,
    /// The input's size.
    from: u64,
    size: usize,
    /// Elements between neighbours in the input.
    step: usize,
}

impl Dim {
    #[inline(always)]
    fn place(&self, index: usize) -> usize {
        self.pick.index(self.from, index as u64) as usize * self.step
    }
}

#[derive(Debug)]
struct Picked<T> {
    outer: Vec<Dim>,
    inner: Dim,
    /// Elements that follow each other in input and output.
    run: usize,
    /// Of rows: all that the outer dimensions lead to.
    cut: Cut,
    marker: PhantomData<T>,
}

impl<T: Bits> CpuKernel for Picked<T> {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        let input = args.pointers[0].cast::<T>().cast_const();
        let row_size = self.inner.size * self.run;
        for row in self.cut.units(chunks) {
            let (mut rest, mut from) = (row, 0);
            for dim in self.outer.iter().rev() {
                from += dim.place(rest % dim.size);
                rest /= dim.size;
            }
            // SAFETY: argument 1 holds the output, of which pieces write different rows.
            let output = unsafe { args.output::<T>(1, row * row_size..(row + 1) * row_size) };
            if self.run == 1 {
                for (index, to) in output.iter_mut().enumerate() {
                    // SAFETY: a pick's index is below the input's size.
                    *to = unsafe { input.add(from + self.inner.place(index)).read() };
                }
                continue;
            }
            for (index, to) in output.chunks_exact_mut(self.run).enumerate() {
                // SAFETY: as above; the output is no part of the input.
                unsafe { std::ptr::copy_nonoverlapping(input.add(from + self.inner.place(index)), to.as_mut_ptr(), self.run) };
            }
        }
        Ok(())
    }
}
