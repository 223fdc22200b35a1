//! Kernels for processors: each a struct that knows its shapes, made by a function that returns a [`plimsoll_device::Prepared`].
//!
//! Arguments are inputs, then outputs, in the order that each kernel documents. Work is cut by shape alone and reductions combine
//! in a fixed order. So results depend on shapes and the instruction set, never on threads.

mod aligned;
mod anchor;
mod bf16;
pub mod check;
pub mod conv;
pub mod crop;
mod cut;
mod element;
mod evaluate;
pub mod expr;
mod fewer;
pub mod fft;
mod finish;
mod gather;
mod library;
pub mod linalg;
mod load;
pub mod lrn;
pub mod movement;
mod narrow;
pub mod nn;
pub mod norm;
mod on_rows;
mod packing;
#[cfg(test)]
mod part_tests;
pub mod pool;
pub mod product;
pub mod random;
#[cfg(test)]
mod recorded;
pub mod reduce;
pub mod resample;
mod row_wise;
pub mod simd;
mod sums;
#[doc(hidden)]
pub mod testing;
pub mod warp;

pub use library::{CpuKernels, OneVariant};

#[cfg(test)]
use evaluate::run_on_bytes;
