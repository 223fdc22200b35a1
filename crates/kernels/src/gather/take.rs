//! `GatherV2`.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_device::{Args, Cost, CpuKernel, Fault, Prepared};

use super::{Index, by_index, count, not_an_index};
use crate::cut::Cut;
use crate::movement::{Bits, by_size};

/// `GatherV2`: the slices of `params` along `axis` that `indices` name; the first `batch_dims` dimensions of both are one.
///
/// Arguments: params (elements of `size` bytes), indices (of `index_type`), output with the shape
/// `params[..axis] + indices[batch_dims..] + params[axis + 1..]`.
///
/// # Errors
/// INVALID_ARGUMENT where the shapes do not go together. At run time a fault for an index outside, "indices[position] is not
/// in [0, limit)".
pub fn gather(size: usize, params: &[u64], indices: &[u64], axis: usize, batch_dims: usize, index_type: DataType) -> Result<Prepared> {
    if axis >= params.len() || batch_dims > axis || batch_dims > indices.len() || params[..batch_dims] != indices[..batch_dims] {
        return Err(Error::invalid_argument(format!(
            "cannot gather from {params:?} along axis {axis} by indices of {indices:?} with {batch_dims} batch dimensions"
        )));
    }
    let output: Vec<u64> = params[..axis].iter().chain(&indices[batch_dims..]).chain(&params[axis + 1..]).copied().collect();
    let (output, _, _) = (count(&output)?, count(params)?, count(indices)?);
    let view = View {
        outer: count(&params[batch_dims..axis])?,
        limit: params[axis] as usize,
        inner: count(&params[axis + 1..])?,
        taken: count(&indices[batch_dims..])?,
    };
    let rows = if output == 0 { 0 } else { output / view.inner };
    let by_columns = rows == 1;
    let cut = match by_columns {
        true => Cut::shared(view.inner, 2 * size as u64, 64 / size.clamp(1, 64)),
        false => Cut::new(rows, (2 * view.inner * size) as u64 + 16, 1),
    };
    let cost = Cost { flops: 0.0, bytes: 2.0 * (output * size) as f64 };
    by_size!(size, T => by_index!(index_type, I => {
        let kernel: Arc<dyn CpuKernel> = Arc::new(Gather::<T, I> { view, by_columns, cut, marker: PhantomData });
        Ok(Prepared { chunks: cut.pieces(), scratch: 0, per_worker: 0, cost, in_place: Vec::new(), kernel })
    }))
}

/// `params[batch, outer, limit, inner]`, `indices[batch, taken]`, `output[batch, outer, taken, inner]`.
#[derive(Clone, Copy, Debug)]
struct View {
    outer: usize,
    limit: usize,
    inner: usize,
    taken: usize,
}

#[derive(Debug)]
struct Gather<T, I> {
    view: View,
    /// Whether the output is one row, and a unit one of its elements; else it is a row of the output, `inner` elements.
    by_columns: bool,
    cut: Cut,
    marker: PhantomData<fn(T) -> I>,
}

impl<T: Bits, I: Index> CpuKernel for Gather<T, I> {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        let View { outer, limit, inner, taken } = self.view;
        let (params, indices) = (args.pointers[0].cast::<T>(), args.pointers[1].cast::<I>());
        let output = args.pointers[2].cast::<T>();
        let units = self.cut.units(chunks);
        let (rows, columns) = if self.by_columns { (0..1, units) } else { (units, 0..inner) };
        let mut row = rows.start;
        while row < rows.end {
            let (place, first) = (row / taken, row % taken);
            let here = (taken - first).min(rows.end - row);
            let batch = place / outer;
            for number in first..first + here {
                // SAFETY: `number` is below `taken` and `batch` below the number of batches; an index is in range before it
                // is used; rows of the output are written by one piece each.
                unsafe {
                    let index = (*indices.add(batch * taken + number)).wide();
                    if !(0..limit as i64).contains(&index) {
                        return Err(Fault::invalid("indices[{0}] is not in [0, {1})", [(batch * taken + number) as i64, limit as i64]));
                    }
                    let from = params.add((place * limit + index as usize) * inner + columns.start);
                    let to = output.add((place * taken + number) * inner + columns.start);
                    if inner == 1 {
                        *to = *from;
                    } else {
                        std::ptr::copy_nonoverlapping(from, to, columns.len());
                    }
                }
            }
            row += here;
        }
        Ok(())
    }
}
