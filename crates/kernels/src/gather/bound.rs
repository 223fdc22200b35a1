//! `LowerBound` and `UpperBound`.

use std::cmp::Ordering;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_device::{Args, Cost, CpuKernel, Fault, Prepared};

use super::{count, not_an_index};
use crate::cut::Cut;
use crate::element::{Element, of_type};

/// In each sorted row the place of the first element that is not less than a value, or greater where `upper`.
///
/// Arguments: sorted rows `[rows, sorted]`, values `[rows, values]`, output of `index_type`.
///
/// # Errors
/// UNIMPLEMENTED for other types; INVALID_ARGUMENT for more elements than places can say.
pub fn bound(data_type: DataType, index_type: DataType, sizes: [u64; 3], upper: bool) -> Result<Prepared> {
    let [rows, sorted, values] = sizes;
    let (outputs, _) = (count(&[rows, values])?, count(&[rows, sorted])?);
    let wide = match index_type {
        DataType::Int64 => true,
        DataType::Int32 if sorted <= i32::MAX as u64 => false,
        DataType::Int32 => return Err(Error::invalid_argument(format!("places in rows of {sorted} elements as int32"))),
        other => return Err(not_an_index(other)),
    };
    let cut = Cut::new(outputs, 64, 1);
    let cost = Cost { flops: outputs as f64 * (sorted.max(2) as f64).log2(), bytes: outputs as f64 * 16.0 };
    of_type!(
        data_type,
        [Float, Double, Half, Bfloat16, Int32, Int64, Uint8],
        T => {
            let (rows, sorted, values) = (rows as usize, sorted as usize, values as usize);
            let kernel: Arc<dyn CpuKernel> = Arc::new(Bound::<T> { rows, sorted, values, upper, wide, cut, marker: PhantomData });
            Ok(Prepared { chunks: cut.pieces(), scratch: 0, per_worker: 0, cost, in_place: Vec::new(), kernel })
        },
        _ => Err(Error::unimplemented(format!("places of values of {data_type}"))),
    )
}

#[derive(Debug)]
struct Bound<T> {
    rows: usize,
    sorted: usize,
    values: usize,
    upper: bool,
    /// Whether places are int64.
    wide: bool,
    /// A unit is a value.
    cut: Cut,
    marker: PhantomData<fn(T)>,
}

impl<T: Element> CpuKernel for Bound<T>
where
    T::Sum: PartialOrd,
{
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        let own = self.cut.units(chunks);
        // SAFETY: the arguments as documented.
        let (sorted, values) = unsafe { (args.input::<T>(0, self.rows * self.sorted), args.input::<T>(1, self.rows * self.values)) };
        for at in own {
            let row = &sorted[at / self.values * self.sorted..][..self.sorted];
            let value = values[at].widen();
            let place = row.partition_point(|element| match element.widen().partial_cmp(&value) {
                Some(Ordering::Less) => true,
                Some(Ordering::Equal) => self.upper,
                // As the comparisons of TensorFlow's loops: `element < value`, and `!(value < element)`.
                Some(Ordering::Greater) => false,
                None => self.upper,
            });
            // SAFETY: the output holds a place for each value; pieces write different ones.
            unsafe {
                match self.wide {
                    true => *args.pointers[2].cast::<i64>().add(at) = place as i64,
                    false => *args.pointers[2].cast::<i32>().add(at) = place as i32,
                }
            }
        }
        Ok(())
    }
}
