//! The place of the largest or smallest value along an axis.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_device::{Args, Cost, CpuKernel, Fault, Prepared};

use crate::cut::{Cut, elements, size_of_type};
use crate::element::of_type;

/// `ArgMax`: the index of the largest element along `axis`, the first of equal ones.
///
/// A NaN is never chosen, and where nothing is above the lowest finite number (a row of minus infinities) the index is 0:
/// as TensorFlow. Arguments: input, output of int32 or int64 with the other axes.
/// Types: float, double, int32, int64, uint8, bool.
///
/// # Errors
/// INVALID_ARGUMENT for an axis outside the rank or an empty axis with results; UNIMPLEMENTED for other types.
pub fn arg_max(data_type: DataType, output_type: DataType, shape: &[u64], axis: usize) -> Result<Prepared> {
    by_type::<Largest>(data_type, output_type, shape, axis)
}

/// `ArgMin`: as [`arg_max`], for the smallest.
///
/// # Errors
/// As [`arg_max`].
pub fn arg_min(data_type: DataType, output_type: DataType, shape: &[u64], axis: usize) -> Result<Prepared> {
    by_type::<Smallest>(data_type, output_type, shape, axis)
}

/// Which of two values is chosen.
trait Choice<T>: Send + Sync + std::fmt::Debug + 'static {
    const START: T;
    fn beats(a: T, b: T) -> bool;
}

#[derive(Debug)]
struct Largest;
#[derive(Debug)]
struct Smallest;

macro_rules! choices {
    ($($t:ident)*) => {$(
        impl Choice<$t> for Largest {
            const START: $t = $t::MIN;
            #[inline(always)]
            fn beats(a: $t, b: $t) -> bool {
                a > b
            }
        }
        impl Choice<$t> for Smallest {
            const START: $t = $t::MAX;
            #[inline(always)]
            fn beats(a: $t, b: $t) -> bool {
                a < b
            }
        }
    )*};
}
choices!(f32 f64 i32 i64 u8);

/// An index as the output has it.
trait Index: Copy + Send + Sync + std::fmt::Debug + 'static {
    fn of(at: usize) -> Self;
}
impl Index for i32 {
    #[inline(always)]
    fn of(at: usize) -> i32 {
        at as i32
    }
}
impl Index for i64 {
    #[inline(always)]
    fn of(at: usize) -> i64 {
        at as i64
    }
}

fn by_type<C>(data_type: DataType, output_type: DataType, shape: &[u64], axis: usize) -> Result<Prepared>
where
    C: Choice<f32> + Choice<f64> + Choice<i32> + Choice<i64> + Choice<u8>,
{
    let axis_size = *shape
        .get(axis)
        .ok_or_else(|| Error::invalid_argument(format!("Expected dimension in the range [0, {}), but got {axis}", shape.len())))?;
    let len = elements(shape)?;
    let (outer, inner) = (elements(&shape[..axis])?, elements(&shape[axis + 1..])?);
    if axis_size == 0 && outer * inner > 0 {
        return Err(Error::invalid_argument(format!("Reduction axis {axis} is empty in shape {shape:?}")));
    }
    if axis_size > i32::MAX as u64 {
        return Err(Error::unimplemented(format!("an axis of {axis_size} elements")));
    }
    let view = View { outer, size: axis_size as usize, inner };
    let bytes = len * size_of_type(data_type)? + outer * inner * size_of_type(output_type)?;
    let cost = Cost { flops: len as f64, bytes: bytes as f64 };
    of_type!(
        data_type,
        [Float, Double, Int32, Int64, Uint8, Bool],
        T => by_index::<T, C>(output_type, view, cost),
        _ => Err(Error::unimplemented(format!("the largest or smallest of {data_type}"))),
    )
}

fn by_index<T: Copy + PartialEq + Send + Sync + std::fmt::Debug + 'static, C: Choice<T>>(
    output_type: DataType,
    view: View,
    cost: Cost,
) -> Result<Prepared> {
    of_type!(
        output_type,
        [Int32, Int64],
        I => Ok(prepare::<T, C, I>(view, cost)),
        _ => Err(Error::unimplemented(format!("indices of {output_type}"))),
    )
}

fn prepare<T: Copy + PartialEq + Send + Sync + std::fmt::Debug + 'static, C: Choice<T>, I: Index>(view: View, cost: Cost) -> Prepared {
    let kernel =
        Arg::<T, C, I> { view, cut: Cut::new(view.outer, (view.size * view.inner * size_of::<T>()) as u64 + 16, 1), marker: PhantomData };
    Prepared { chunks: kernel.cut.pieces(), scratch: 0, per_worker: 0, cost, in_place: Vec::new(), kernel: Arc::new(kernel) }
}

#[derive(Clone, Copy, Debug)]
struct View {
    outer: usize,
    size: usize,
    inner: usize,
}

#[derive(Debug)]
struct Arg<T, C, I> {
    view: View,
    cut: Cut,
    marker: PhantomData<fn(T, C) -> I>,
}

impl<T: Copy + PartialEq + Send + Sync + std::fmt::Debug + 'static, C: Choice<T>, I: Index> CpuKernel for Arg<T, C, I> {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        let (view, outers) = (self.view, self.cut.units(chunks));
        let results = outers.start * view.inner..outers.end * view.inner;
        // SAFETY: argument 0 holds the input, argument 1 the indices, of which pieces write different ones.
        let (input, output) = unsafe { (args.input::<T>(0, view.outer * view.size * view.inner), args.output::<I>(1, results)) };
        ArgPiece::<T, C, I> { view, input, output, outers, marker: PhantomData }.run();
        Ok(())
    }
}

struct ArgPiece<'a, T, C, I> {
    view: View,
    input: &'a [T],
    output: &'a mut [I],
    outers: Range<usize>,
    marker: PhantomData<C>,
}

/// Columns that are looked at together.
const COLUMNS: usize = 64;

impl<T: Copy + PartialEq, C: Choice<T>, I: Index> ArgPiece<'_, T, C, I> {
    fn run(self) {
        let View { size, inner, .. } = self.view;
        if inner == 1 {
            for (outer, result) in self.outers.zip(self.output) {
                *result = I::of(first_of_row::<T, C>(&self.input[outer * size..(outer + 1) * size]));
            }
            return;
        }
        if inner == 0 {
            return;
        }
        for (outer, results) in self.outers.zip(self.output.chunks_exact_mut(inner)) {
            let plane = &self.input[outer * size * inner..(outer + 1) * size * inner];
            for (block, results) in results.chunks_mut(COLUMNS).enumerate() {
                let columns = results.len();
                let (mut chosen, mut at) = ([C::START; COLUMNS], [0u32; COLUMNS]);
                for row in 0..size {
                    let values = &plane[row * inner + block * COLUMNS..][..columns];
                    for ((value, chosen), at) in values.iter().zip(&mut chosen).zip(&mut at) {
                        let better = C::beats(*value, *chosen);
                        *chosen = if better { *value } else { *chosen };
                        *at = if better { row as u32 } else { *at };
                    }
                }
                for (result, at) in results.iter_mut().zip(at) {
                    *result = I::of(at as usize);
                }
            }
        }
    }
}

/// First the best value, then its first place.
#[inline(always)]
fn first_of_row<T: Copy + PartialEq, C: Choice<T>>(row: &[T]) -> usize {
    const LANES: usize = 32;
    let mut lanes = [C::START; LANES];
    let (groups, rest) = row.as_chunks::<LANES>();
    for group in groups {
        for lane in 0..LANES {
            lanes[lane] = if C::beats(group[lane], lanes[lane]) { group[lane] } else { lanes[lane] };
        }
    }
    let mut chosen = C::START;
    for value in lanes.iter().chain(rest) {
        chosen = if C::beats(*value, chosen) { *value } else { chosen };
    }
    if chosen == C::START {
        return 0;
    }
    row.iter().position(|value| *value == chosen).unwrap_or(0)
}
