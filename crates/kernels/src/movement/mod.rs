//! Kernels that move elements without looking at them: views written out, joins, splits, padding.
//!
//! Elements are known by their size alone: 1, 2, 4, 8 or 16 bytes, aligned to 8 at most. Dimensions of 1 are dropped and contiguous
//! neighbours are merged before everything else, so that most calls end in long plain copies.

mod diagonals;
mod embed;
mod picked;
mod segments;
mod strided;
mod transposed;
mod views;

use plimsoll_base::{Error, Result};

pub use diagonals::diagonals;
pub use embed::{pad, pad_with_input, strided_slice_grad};
pub use picked::pick;
pub use segments::{concat, pack, split, split_sizes, unpack};
pub(crate) use views::check_slice;
pub use views::{broadcast_to, fill, reverse, slice, strided_slice, tile, transpose};

/// More dimensions than this, once neighbours are merged, are refused.
pub(crate) const MOST_DIMS: usize = 16;

/// Runs `$body` with `$t` an element type of that many bytes.
macro_rules! by_size {
    ($size:expr, $t:ident => $body:expr) => {
        match $size {
            1 => {
                type $t = u8;
                $body
            }
            2 => {
                type $t = u16;
                $body
            }
            4 => {
                type $t = u32;
                $body
            }
            8 => {
                type $t = u64;
                $body
            }
            16 => {
                type $t = [u64; 2];
                $body
            }
            size => Err(Error::unimplemented(format!("elements of {size} bytes"))),
        }
    };
}
pub(crate) use by_size;

/// The type as which elements of a size are moved.
pub(crate) trait Bits: Copy + PartialEq + Send + Sync + std::fmt::Debug + 'static {}
impl Bits for u8 {}
impl Bits for u16 {}
impl Bits for u32 {}
impl Bits for u64 {}
impl Bits for [u64; 2] {}

/// Whether `size` is one that elements have.
fn check_size(size: usize) -> Result<()> {
    match size {
        1 | 2 | 4 | 8 | 16 => Ok(()),
        _ => Err(Error::unimplemented(format!("elements of {size} bytes"))),
    }
}

fn check_rank(what: &str, rank: usize, shape: &[u64]) -> Result<()> {
    if rank == shape.len() {
        return Ok(());
    }
    Err(Error::invalid_argument(format!("{what} has {rank} entries for a tensor of {} dimensions", shape.len())))
}

#[cfg(test)]
mod tests;
