//! Rows combined into the rows of a result that indices name: segments and scatters.
//!
//! A piece owns a range of the result's rows and looks at every index. So rows are combined in the order of the indices, for all
//! pieces.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::{Bf16, DataType, Error, F16, Result};
use plimsoll_device::{Args, Cost, CpuKernel, Fault, Prepared};
use plimsoll_request::gather::{Access, Gather, ScatterOp, SegmentOp};

use super::{Index, by_index, count, not_an_index, row_of};
use crate::cut::{Cut, size_of_type};
use crate::element::{Element, of_type};
use crate::movement::{Bits, by_size};

/// `UnsortedSegmentSum` and its kin: row `i` of data goes into row `ids[i]` of `segments` rows.
///
/// `ids_shape` is a prefix of `shape`. Arguments: data, ids (of `index_type`), output `[segments] + shape[ids rank..]`. Rows
/// with a negative id are dropped. Types: floats of two, four and eight bytes, integers, complex numbers for sums. As in TensorFlow, each step of a sum
/// is a number of the type.
///
/// # Errors
/// INVALID_ARGUMENT where the ids' shape is no prefix; UNIMPLEMENTED for other types. At run time a fault for an id that is
/// too large, "segment_ids[position] is out of range [0, segments)".
pub fn unsorted_segment(
    op: SegmentOp,
    data_type: DataType,
    index_type: DataType,
    shape: &[u64],
    ids_shape: &[u64],
    segments: u64,
) -> Result<Prepared> {
    if !shape.starts_with(ids_shape) {
        return Err(Error::invalid_argument(format!("data.shape = {shape:?} does not start with segment_ids.shape = {ids_shape:?}")));
    }
    count(shape)?;
    let inner = &shape[ids_shape.len()..];
    count(&[&[segments], inner].concat())?;
    let (rows, indices) = (segments as usize, count(ids_shape)?);
    let (data_type, parts) = if op == SegmentOp::Sum { summed(data_type) } else { (data_type, 1) };
    let layout = Layout {
        rows,
        inner: count(inner)? * parts,
        indices,
        scalar: false,
        variable: false,
        ignore: false,
        by_columns: false,
        dims: vec![segments],
    };
    by_index!(index_type, I => match op {
        SegmentOp::Sum => numbers::<I, Add>(data_type, layout),
        SegmentOp::Prod => numbers::<I, Mul>(data_type, layout),
        SegmentOp::Max => numbers::<I, Max>(data_type, layout),
        SegmentOp::Min => numbers::<I, Min>(data_type, layout),
    })
}

/// [`Gather::Scatter`]: `ScatterAdd`, `ScatterNdAdd` and their kin.
///
/// The output is meant to be written where the variable lies (`in_place`); elsewhere the rest is copied. Equal indices take effect in
/// order. Types: any of fixed size for `Update`; otherwise those of [`unsorted_segment`].
///
/// # Errors
/// INVALID_ARGUMENT for indices of more dimensions than there are; UNIMPLEMENTED for other types. At run time a fault for an index
/// outside, "indices[position] is not in [0, limit)" or "does not index into the shape", and INVALID_ARGUMENT where an integer is
/// divided by 0 or an element is marked again. The variable is then as before, but for marks.
pub fn scatter(request: &Gather) -> Result<Prepared> {
    let Gather::Scatter { op, data_type, index_type, shape, indices, depth, scalar_updates, ignore, in_place } = request else {
        return Err(Error::internal("not a scatter"));
    };
    if *depth > shape.len() {
        return Err(Error::invalid_argument(format!("indices of {depth} integers for a variable of shape {shape:?}")));
    }
    count(shape)?;
    let (leading, inner) = shape.split_at(*depth);
    count(&[&[*indices], inner].concat())?;
    if *depth == 0 && *scalar_updates && *indices > MOST_UPDATES {
        return Err(Error::unimplemented(format!(
            "not yet: one element that is updated {indices} times, which is more than {MOST_UPDATES}"
        )));
    }
    // One scalar is not one of its parts.
    let by_parts = matches!(op, ScatterOp::Add | ScatterOp::Sub) && !scalar_updates;
    let (data_type, parts) = if by_parts { summed(*data_type) } else { (*data_type, 1) };
    let layout = Layout {
        rows: count(leading)?,
        inner: count(inner)? * parts,
        indices: *indices as usize,
        scalar: *scalar_updates,
        variable: true,
        ignore: *ignore,
        by_columns: *in_place && *indices <= FEW,
        dims: leading.to_vec(),
    };
    by_index!(*index_type, I => match op {
        ScatterOp::Update => by_size!(size_of_type(data_type)?, T => Ok(prepare::<T, I, Replace>(layout))),
        ScatterOp::Add => numbers::<I, Add>(data_type, layout),
        ScatterOp::Sub => numbers::<I, Sub>(data_type, layout),
        ScatterOp::Mul => numbers::<I, Mul>(data_type, layout),
        ScatterOp::Div => numbers::<I, Div>(data_type, layout),
        ScatterOp::Min => numbers::<I, Min>(data_type, layout),
        ScatterOp::Max => numbers::<I, Max>(data_type, layout),
        ScatterOp::Mark(_) if data_type != DataType::Uint8 => Err(Error::invalid_argument(format!("marks of {data_type}"))),
        ScatterOp::Mark(Access::Write) => Ok(prepare::<u8, I, MarkWritten>(layout)),
        ScatterOp::Mark(Access::Read) => Ok(prepare::<u8, I, MarkRead>(layout)),
        ScatterOp::Mark(Access::ReadWritten) => Ok(prepare::<u8, I, IsWritten>(layout)),
    })
}

/// So few rows of a result that lies where the variable does are cut into columns. Pieces of rows would be without work but for a few.
const FEW: u64 = 8;

/// Indices without integers take no memory: a graph may ask for any number of updates.
const MOST_UPDATES: u64 = 1 << 24;

/// The numbers that a sum of a type is made of, and how many each element has.
fn summed(data_type: DataType) -> (DataType, usize) {
    match data_type.part() {
        Some(part) => (part, 2),
        None => (data_type, 1),
    }
}

/// An element combined with another; `None` where that cannot be.
trait Combine<T>: Send + Sync + std::fmt::Debug + 'static {
    /// Of no elements. Not used where a variable is there to begin with.
    const EMPTY: T;
    /// Whether the old element matters.
    const READS: bool = true;
    /// The fault where there is none. Its numbers are the row and how many rows there are.
    const REFUSED: &'static str = "Integer division by zero";
    fn combine(old: T, new: T) -> Option<T>;
}

macro_rules! operations {
    ($($name:ident)*) => {$(
        #[derive(Debug)]
        struct $name;
    )*};
}
operations!(Replace Add Sub Mul Div Min Max MarkWritten MarkRead IsWritten);

macro_rules! combine {
    ($op:ident, $t:ident, $empty:expr, |$old:ident, $new:ident| $value:expr) => {
        impl Combine<$t> for $op {
            const EMPTY: $t = $empty;
            #[inline(always)]
            fn combine($old: $t, $new: $t) -> Option<$t> {
                $value
            }
        }
    };
}

macro_rules! floats {
    ($($t:ident)*) => {$(
        combine!(Add, $t, 0.0, |old, new| Some(old + new));
        combine!(Sub, $t, 0.0, |old, new| Some(old - new));
        combine!(Mul, $t, 1.0, |old, new| Some(old * new));
        combine!(Div, $t, 1.0, |old, new| Some(old / new));
        combine!(Min, $t, $t::MAX, |old, new| Some(if new < old { new } else { old }));
        combine!(Max, $t, $t::MIN, |old, new| Some(if new > old { new } else { old }));
    )*};
}
floats!(f32 f64);

/// Each step is rounded.
macro_rules! two_bytes {
    ($($t:ident, $one:literal, $most:literal);*) => {$(
        combine!(Add, $t, $t::from_bits(0), |old, new| Some($t::narrow(old.widen() + new.widen())));
        combine!(Sub, $t, $t::from_bits(0), |old, new| Some($t::narrow(old.widen() - new.widen())));
        combine!(Mul, $t, $t::from_bits($one), |old, new| Some($t::narrow(old.widen() * new.widen())));
        combine!(Div, $t, $t::from_bits($one), |old, new| Some($t::narrow(old.widen() / new.widen())));
        combine!(Min, $t, $t::from_bits($most), |old, new| Some(if new.widen() < old.widen() { new } else { old }));
        combine!(Max, $t, $t::from_bits(0x8000 | $most), |old, new| Some(if new.widen() > old.widen() { new } else { old }));
    )*};
}
two_bytes!(F16, 0x3C00, 0x7BFF; Bf16, 0x3F80, 0x7F7F);

macro_rules! integers {
    ($($t:ident)*) => {$(
        combine!(Add, $t, 0, |old, new| Some(old.wrapping_add(new)));
        combine!(Sub, $t, 0, |old, new| Some(old.wrapping_sub(new)));
        combine!(Mul, $t, 1, |old, new| Some(old.wrapping_mul(new)));
        combine!(Div, $t, 1, |old, new| if new == 0 { None } else { Some(old.wrapping_div(new)) });
        combine!(Min, $t, $t::MAX, |old, new| Some(old.min(new)));
        combine!(Max, $t, $t::MIN, |old, new| Some(old.max(new)));
    )*};
}
integers!(i8 i16 i32 i64 u8 u16 u32 u64);

macro_rules! marks {
    ($($op:ident: $access:ident, $empty:literal, |$old:ident, $new:ident| $value:expr)*) => {$(
        impl Combine<u8> for $op {
            const EMPTY: u8 = $empty;
            const REFUSED: &'static str = Access::$access.refusal();
            #[inline(always)]
            fn combine($old: u8, $new: u8) -> Option<u8> {
                $value
            }
        }
    )*};
}
marks!(
    MarkWritten: Write, 0, |old, new| if old & new == 0 { Some(old | new) } else { None }
    MarkRead: Read, 0, |old, new| if old & new == 0 { Some(old | new) } else { None }
    IsWritten: ReadWritten, 1, |old, new| if new <= old { Some(old) } else { None }
);

/// The initial value of an element.
pub(super) trait Zero: Bits {
    const ZERO: Self;
}
macro_rules! zeros {
    ($($t:ty = $zero:expr),*) => {$(
        impl Zero for $t {
            const ZERO: $t = $zero;
        }
    )*};
}
zeros!(u8 = 0, u16 = 0, u32 = 0, u64 = 0, [u64; 2] = [0; 2]);

impl<T: Zero> Combine<T> for Replace {
    const EMPTY: T = T::ZERO;
    const READS: bool = false;
    #[inline(always)]
    fn combine(_: T, new: T) -> Option<T> {
        Some(new)
    }
}

fn numbers<I: Index, F>(data_type: DataType, layout: Layout) -> Result<Prepared>
where
    F: Combine<f32>
        + Combine<f64>
        + Combine<F16>
        + Combine<Bf16>
        + Combine<i8>
        + Combine<i16>
        + Combine<i32>
        + Combine<i64>
        + Combine<u8>
        + Combine<u16>
        + Combine<u32>
        + Combine<u64>,
{
    of_type!(
        data_type,
        [Float, Double, Half, Bfloat16, Int8, Int16, Int32, Int64, Uint8, Uint16, Uint32, Uint64],
        T => Ok(prepare::<T, I, F>(layout)),
        _ => Err(Error::unimplemented(format!("rows of {data_type} combined by index"))),
    )
}

#[derive(Clone, Debug)]
struct Layout {
    rows: usize,
    inner: usize,
    indices: usize,
    /// Whether the updates are one scalar.
    scalar: bool,
    /// Whether the result starts as a variable, argument 0; else as the empty value.
    variable: bool,
    /// Whether an index outside is no fault.
    ignore: bool,
    /// Whether a piece owns columns of all rows, in place of rows.
    by_columns: bool,
    /// The dimensions that the integers of an index are of; `rows` are their product.
    dims: Vec<u64>,
}

impl Layout {
    /// The row that index `number` names; none for one outside.
    #[inline(always)]
    fn row<I: Index>(&self, index: &[I], number: usize) -> Option<usize> {
        match self.dims[..] {
            [rows] => usize::try_from(index[number].wide()).ok().filter(|row| *row < rows as usize),
            _ => row_of(&self.dims, &index[number * self.dims.len()..][..self.dims.len()]),
        }
    }
}

fn prepare<T: Copy + Send + Sync + std::fmt::Debug + 'static, I: Index, F: Combine<T>>(layout: Layout) -> Prepared {
    let Layout { rows, inner, indices, variable, .. } = layout;
    let row_bytes = inner * size_of::<T>();
    // Every piece reads every index: worth it for long rows only.
    let per_row = (row_bytes * (rows + indices) / rows.max(1)) as u64;
    let cut = match layout.by_columns {
        true => Cut::shared(inner, ((2 + usize::from(F::READS)) * indices * size_of::<T>()) as u64, 64 / size_of::<T>().clamp(1, 64)),
        false => Cut::at_most((row_bytes / 32).clamp(1, 16), rows, per_row, 1),
    };
    let touched = if variable { indices } else { rows + indices };
    let cost = Cost { flops: (indices * inner) as f64, bytes: (2 * touched * row_bytes) as f64 };
    let in_place = if variable { vec![(0, 0)] } else { Vec::new() };
    let kernel = Arc::new(ByRow::<T, I, F> { layout, cut, marker: PhantomData });
    Prepared { chunks: cut.pieces(), scratch: 0, per_worker: 0, cost, in_place, kernel }
}

#[derive(Debug)]
struct ByRow<T, I, F> {
    layout: Layout,
    cut: Cut,
    marker: PhantomData<fn(T, I) -> F>,
}

impl<T: Copy + Send + Sync + std::fmt::Debug + 'static, I: Index, F: Combine<T>> CpuKernel for ByRow<T, I, F> {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        let Layout { rows, inner, indices, scalar, variable, ignore, .. } = self.layout;
        let depth = self.layout.dims.len();
        // Indices without integers that name rows without elements take no memory: there may be any number of them.
        let indices = if depth == 0 && inner == 0 { 0 } else { indices };
        let units = self.cut.units(chunks);
        let (own, columns) = if self.layout.by_columns { (0..rows, units) } else { (units, 0..inner) };
        let (index_argument, update_argument, output) = if variable { (1, 2, 3) } else { (1, 0, 2) };
        // SAFETY: the arguments as documented.
        let (index, updates) = unsafe {
            (args.input::<I>(index_argument, indices * depth), args.input::<T>(update_argument, if scalar { 1 } else { indices * inner }))
        };
        let text = match (variable, depth) {
            (false, _) => "segment_ids[{0}] is out of range [0, {1})",
            (true, 1) => "indices[{0}] is not in [0, {1})",
            (true, _) => "indices[{0}] does not index into shape",
        };
        // A negative segment is dropped.
        let dropped = |number: usize| ignore || !variable && index[number].wide() < 0;
        // Before anything is written: every piece finds the same fault, and no row of a variable changes.
        if let Some(number) = (0..indices).find(|number| self.layout.row(index, *number).is_none() && !dropped(*number)) {
            return Err(Fault::invalid(text, [number as i64, rows as i64]));
        }
        if variable && updates.iter().any(|update| F::combine(F::EMPTY, *update).is_none()) {
            return Err(Fault::invalid(F::REFUSED, [0, rows as i64]));
        }
        // SAFETY: pieces write different rows or columns. An output that lies on the variable is not read through another slice.
        let part = |rows: Range<usize>| unsafe {
            args.output::<T>(output, rows.start * inner + columns.start..(rows.end - 1) * inner + columns.end)
        };
        let whole = columns == (0..inner);
        let parts = || own.clone().step_by(if whole { own.len().max(1) } else { 1 }).map(|row| row..if whole { own.end } else { row + 1 });
        if !variable {
            parts().for_each(|rows| part(rows).fill(F::EMPTY));
        } else if args.pointers[0] != args.pointers[3] {
            for rows in parts() {
                let from = rows.start * inner + columns.start;
                let result = part(rows);
                // SAFETY: argument 0 holds the variable, which is not the output here.
                result.copy_from_slice(unsafe { &args.input::<T>(0, self.layout.rows * inner)[from..][..result.len()] });
            }
        }
        for number in 0..indices {
            let Some(at) = self.layout.row(index, number).filter(|row| own.contains(row)) else { continue };
            let row = part(at..at + 1);
            let done = match scalar {
                true => row.iter_mut().all(|old| put::<T, F>(old, updates[0])),
                false => combine_rows::<T, F>(row, &updates[number * inner..][columns.clone()]),
            };
            if !done {
                return Err(Fault::invalid(F::REFUSED, [at as i64, rows as i64]));
            }
        }
        Ok(())
    }
}

#[inline(always)]
fn combine_rows<T: Copy, F: Combine<T>>(row: &mut [T], update: &[T]) -> bool {
    let mut done = true;
    for (old, new) in row.iter_mut().zip(update) {
        done &= put::<T, F>(old, *new);
    }
    done
}

#[inline(always)]
fn put<T: Copy, F: Combine<T>>(old: &mut T, new: T) -> bool {
    match F::combine(*old, new) {
        Some(value) => {
            *old = value;
            true
        }
        None => false,
    }
}
