//! `OneHot`.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_device::{Args, Cost, CpuKernel, Fault, Prepared};

use super::{Index, count, not_an_index};
use crate::cut::Cut;
use crate::element::of_type;
use crate::movement::{Bits, by_size};

impl Index for u8 {
    #[inline(always)]
    fn wide(self) -> i64 {
        i64::from(self)
    }
}

/// `OneHot`: a new dimension `axis` of `depth` elements, `on` at the index and `off` elsewhere; all `off` where the index is
/// not in `0..depth`.
///
/// Arguments: indices (of `index_type`, of `shape`), on and off (scalars of `size` bytes), output.
///
/// # Errors
/// INVALID_ARGUMENT for an axis above the rank; UNIMPLEMENTED where the indices are not int32, int64 or uint8.
pub fn one_hot(size: usize, index_type: DataType, shape: &[u64], depth: u64, axis: usize) -> Result<Prepared> {
    if axis > shape.len() {
        return Err(Error::invalid_argument(format!("there is no place {axis} for a new dimension of {shape:?}")));
    }
    let output: Vec<u64> = shape[..axis].iter().chain([&depth]).chain(&shape[axis..]).copied().collect();
    let (outer, inner, elements) = (count(&shape[..axis])?, count(&shape[axis..])?, count(&output)?);
    let view = View { depth: depth as usize, inner };
    let cut = Cut::new(outer, (elements.checked_div(outer).unwrap_or(0) * size) as u64, 1);
    by_size!(size, T => of_type!(
        index_type,
        [Int32, Int64, Uint8],
        I => Ok(prepare::<T, I>(view, cut, elements, size)),
        _ => Err(not_an_index(index_type)),
    ))
}

fn prepare<T: Bits, I: Index>(view: View, cut: Cut, elements: usize, size: usize) -> Prepared {
    let kernel: Arc<dyn CpuKernel> = Arc::new(OneHot::<T, I> { view, cut, marker: PhantomData });
    let cost = Cost { flops: 0.0, bytes: (elements * size) as f64 };
    Prepared { chunks: cut.pieces(), scratch: 0, per_worker: 0, cost, in_place: Vec::new(), kernel }
}

/// `indices[outer, inner]`, `output[outer, depth, inner]`.
#[derive(Clone, Copy, Debug)]
struct View {
    depth: usize,
    inner: usize,
}

#[derive(Debug)]
struct OneHot<T, I> {
    view: View,
    /// A unit is a block of the output, `depth * inner` elements.
    cut: Cut,
    marker: PhantomData<fn(T) -> I>,
}

impl<T: Bits, I: Index> CpuKernel for OneHot<T, I> {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        let View { depth, inner } = self.view;
        let blocks = self.cut.units(chunks);
        // SAFETY: the contract of `CpuKernel::run`: indices of all blocks, two scalars, and blocks of the output that this
        // piece alone writes.
        let (indices, on, off, output) = unsafe {
            (
                args.input::<I>(0, blocks.end * inner),
                args.input::<T>(1, 1)[0],
                args.input::<T>(2, 1)[0],
                args.output::<T>(3, blocks.start * depth * inner..blocks.end * depth * inner),
            )
        };
        output.fill(off);
        for (place, index) in indices[blocks.start * inner..].iter().enumerate() {
            if let Some(hot) = usize::try_from(index.wide()).ok().filter(|hot| *hot < depth) {
                output[(place / inner * depth + hot) * inner + place % inner] = on;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{bytes, run, values};

    #[test]
    fn one_element_is_on_and_others_are_off() {
        for (shape, depth, axis) in [(&[4u64][..], 3, 1), (&[4], 3, 0), (&[2, 3], 4, 1), (&[], 5, 0), (&[0, 3], 4, 1), (&[3], 0, 0)] {
            let size = |shape: &[u64]| shape.iter().product::<u64>() as usize;
            let (outer, inner) = (size(&shape[..axis]), size(&shape[axis..]));
            let indices: Vec<i64> = (0..(outer * inner) as i64).map(|at| at % 5 - 1).collect();
            let mut expected = Vec::new();
            for block in 0..outer {
                for hot in 0..depth as i64 {
                    expected.extend((0..inner).map(|at| if indices[block * inner + at] == hot { 7i32 } else { -1 }));
                }
            }
            let prepared = one_hot(4, DataType::Int64, shape, depth, axis).unwrap();
            let mut outputs = [vec![0xEE; expected.len() * 4]];
            run(&prepared, &[&bytes(&indices), &bytes(&[7i32]), &bytes(&[-1i32])], &mut outputs).unwrap();
            assert_eq!(values::<i32>(&outputs[0]), expected, "{shape:?} {depth} {axis}");
        }
        assert!(one_hot(4, DataType::Float, &[2], 3, 0).is_err());
        assert!(one_hot(4, DataType::Int32, &[2], 3, 2).is_err());
    }
}
