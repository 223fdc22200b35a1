//! `TopKV2`: the largest of each row.

use std::cmp::Ordering;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_device::{Args, Cost, CpuKernel, Fault, Prepared};

use crate::cut::{Cut, elements};
use crate::element::{Element, of_type};

/// The `k` largest of each row of `classes` elements, the largest first; of equal ones the first comes first. A NaN counts as the
/// smallest.
///
/// Arguments: input `[rows, classes]`, values `[rows, k]`, places `[rows, k]` of `index_type`.
///
/// # Errors
/// INVALID_ARGUMENT for more than there are; UNIMPLEMENTED for other types and rows of more than 2^32 elements.
pub fn top_k(data_type: DataType, index_type: DataType, rows: u64, classes: u64, k: u64) -> Result<Prepared> {
    if k > classes {
        return Err(Error::invalid_argument(format!("input must have at least k columns. Had {classes}, needed {k}")));
    }
    let (len, found) = (elements(&[rows, classes])?, elements(&[rows, k])?);
    let most = match index_type {
        DataType::Int16 => i16::MAX as u64,
        DataType::Int32 => i32::MAX as u64,
        DataType::Int64 => u64::from(u32::MAX),
        other => return Err(Error::unimplemented(format!("places as {other}"))),
    };
    if classes > most {
        return Err(Error::unimplemented(format!("places in rows of {classes} elements as {index_type}")));
    }
    let cut = Cut::new(rows as usize, 32 * classes + 16, 1);
    let cost = Cost { flops: len as f64 * (k.max(2) as f64).log2(), bytes: (len * 4 + found * 12) as f64 };
    let per_worker = if k == 1 { 0 } else { classes * size_of::<u32>() as u64 };
    of_type!(
        data_type,
        [Float, Double, Half, Bfloat16, Int32, Int64, Uint8],
        T => {
            let sizes = Sizes { rows: rows as usize, classes: classes as usize, k: k as usize, index_type };
            let kernel: Arc<dyn CpuKernel> = Arc::new(TopK::<T> { sizes, cut, marker: PhantomData });
            Ok(Prepared { chunks: cut.pieces(), scratch: 0, per_worker, cost, in_place: Vec::new(), kernel })
        },
        _ => Err(Error::unimplemented(format!("the largest of {data_type}"))),
    )
}

#[derive(Clone, Copy, Debug)]
struct Sizes {
    rows: usize,
    classes: usize,
    k: usize,
    index_type: DataType,
}

#[derive(Debug)]
struct TopK<T> {
    sizes: Sizes,
    /// A unit is a row.
    cut: Cut,
    marker: PhantomData<fn(T)>,
}

/// The larger first, NaN last.
fn larger_first<S: PartialOrd>(one: S, other: S) -> Ordering {
    let is_nan = |value: &S| value.partial_cmp(value).is_none();
    other.partial_cmp(&one).unwrap_or_else(|| is_nan(&one).cmp(&is_nan(&other)))
}

impl<T: Element> CpuKernel for TopK<T>
where
    T::Sum: PartialOrd,
{
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        let Sizes { rows, classes, k, index_type } = self.sizes;
        let own = self.cut.units(chunks);
        // SAFETY: the arguments as documented; rows of the outputs are written by one piece each.
        let (input, values) = unsafe { (args.input::<T>(0, rows * classes), args.output::<T>(1, own.start * k..own.end * k)) };
        let first = own.start;
        let mut put = |row: usize, rank: usize, place: usize| {
            values[(row - first) * k + rank] = input[row * classes + place];
            let at = row * k + rank;
            // SAFETY: argument 2 holds a place for each value, in that type.
            unsafe {
                match index_type {
                    DataType::Int16 => *args.pointers[2].cast::<i16>().add(at) = place as i16,
                    DataType::Int32 => *args.pointers[2].cast::<i32>().add(at) = place as i32,
                    _ => *args.pointers[2].cast::<i64>().add(at) = place as i64,
                }
            }
        };
        for row in own {
            let numbers = &input[row * classes..][..classes];
            let order = |one: usize, other: usize| larger_first(numbers[one].widen(), numbers[other].widen()).then(one.cmp(&other));
            if k == 1 {
                let largest = (1..classes).fold(0, |best, place| if order(place, best).is_lt() { place } else { best });
                put(row, 0, largest);
            } else if k > 0 {
                // SAFETY: the worker's scratch holds so many numbers, for this thread alone.
                let places = unsafe {
                    let places = args.worker.cast::<u32>();
                    (0..classes).for_each(|place| places.add(place).write(place as u32));
                    std::slice::from_raw_parts_mut(places, classes)
                };
                let compare = |one: &u32, other: &u32| order(*one as usize, *other as usize);
                if k < classes {
                    places.select_nth_unstable_by(k - 1, compare);
                }
                places[..k].sort_unstable_by(compare);
                places[..k].iter().enumerate().for_each(|(rank, place)| put(row, rank, *place as usize));
            }
        }
        Ok(())
    }
}
