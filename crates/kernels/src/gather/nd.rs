//! `GatherNd`.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_device::{Args, Cost, CpuKernel, Fault, Prepared};

use super::rows::Zero;
use super::{Index, by_index, count, not_an_index, row_of};
use crate::cut::Cut;
use crate::movement::by_size;

/// `GatherNd`: the slices of `params` that `indices` indices name, of `depth` integers each. With `ignore` an index outside gives
/// zeros.
///
/// Arguments: params (elements of `size` bytes), indices (of `index_type`), output `[indices] + params[depth..]`.
///
/// # Errors
/// INVALID_ARGUMENT for indices of more dimensions than there are. At run time a fault for an index outside.
pub fn gather_nd(size: usize, params: &[u64], indices: u64, depth: usize, index_type: DataType, ignore: bool) -> Result<Prepared> {
    if depth > params.len() {
        return Err(Error::invalid_argument(format!("indices of {depth} integers for a tensor of shape {params:?}")));
    }
    let (leading, inner) = params.split_at(depth);
    count(params)?;
    let output = count(&[&[indices], inner].concat())?;
    count(&[indices, depth as u64])?;
    let (rows, inner, indices) = (count(leading)?, count(inner)?, indices as usize);
    let cut = Cut::new(indices, (2 * inner * size) as u64 + 16, 1);
    let cost = Cost { flops: 0.0, bytes: 2.0 * (output * size) as f64 };
    by_size!(size, T => by_index!(index_type, I => {
        let dims = leading.to_vec();
        let kernel: Arc<dyn CpuKernel> = Arc::new(GatherNd::<T, I> { dims, rows, inner, indices, ignore, cut, marker: PhantomData });
        Ok(Prepared { chunks: cut.pieces(), scratch: 0, per_worker: 0, cost, in_place: Vec::new(), kernel })
    }))
}

#[derive(Debug)]
struct GatherNd<T, I> {
    dims: Vec<u64>,
    rows: usize,
    inner: usize,
    indices: usize,
    ignore: bool,
    /// A unit is an index.
    cut: Cut,
    marker: PhantomData<fn(T) -> I>,
}

impl<T: Zero, I: Index> CpuKernel for GatherNd<T, I> {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        let (inner, depth) = (self.inner, self.dims.len());
        let own = self.cut.units(chunks);
        // SAFETY: the arguments as documented; rows of the output are written by one piece each.
        let (params, indices, output) = unsafe {
            (
                args.input::<T>(0, self.rows * inner),
                args.input::<I>(1, self.indices * depth),
                args.output::<T>(2, own.start * inner..own.end * inner),
            )
        };
        for (place, number) in own.enumerate() {
            let to = &mut output[place * inner..][..inner];
            match row_of(&self.dims, &indices[number * depth..][..depth]) {
                Some(row) => to.copy_from_slice(&params[row * inner..][..inner]),
                None if self.ignore => to.fill(T::ZERO),
                None => return Err(Fault::invalid("indices[{0}] does not index into param shape", [number as i64, 0])),
            }
        }
        Ok(())
    }
}
