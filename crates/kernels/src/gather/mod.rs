//! Kernels that go by indices: taking rows, adding rows up by segment, scattering rows into a variable.
//!
//! Indices are int32 or int64. An index that makes no sense is a fault with TensorFlow's text as far as a fault can say it.

mod block;
mod bound;
mod nd;
mod one_hot;
mod rows;
mod take;
mod update;

use plimsoll_base::{DataType, Error, Result};

pub use block::{block, embed};
pub use bound::bound;
pub use nd::gather_nd;
pub use one_hot::one_hot;
pub use rows::{scatter, unsorted_segment};
pub use take::gather;
pub use update::update_rows;

/// An index type.
trait Index: Copy + Send + Sync + std::fmt::Debug + 'static {
    fn wide(self) -> i64;
}
impl Index for i32 {
    #[inline(always)]
    fn wide(self) -> i64 {
        i64::from(self)
    }
}
impl Index for i64 {
    #[inline(always)]
    fn wide(self) -> i64 {
        self
    }
}

/// Runs `$body` with `$i` the index type.
macro_rules! by_index {
    ($data_type:expr, $i:ident => $body:expr) => {
        $crate::element::of_type!($data_type, [Int32, Int64], $i => $body, _ => Err(not_an_index($data_type)))
    };
}
use by_index;

fn not_an_index(data_type: DataType) -> Error {
    Error::unimplemented(format!("indices of {data_type}"))
}

/// The number of the slice that the integers of an index name in these dimensions; none for one outside.
#[inline(always)]
fn row_of<I: Index>(dims: &[u64], index: &[I]) -> Option<usize> {
    let mut row = 0;
    for (dim, integer) in dims.iter().zip(index) {
        row = row * dim + u64::try_from(integer.wide()).ok().filter(|integer| integer < dim)?;
    }
    Some(row as usize)
}

/// A shape's part as a count of elements.
fn count(shape: &[u64]) -> Result<usize> {
    crate::cut::elements(shape)
}

#[cfg(test)]
mod tests;
