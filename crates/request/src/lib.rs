//! A kernel request as plain data: operations make it, the library of a kind of device answers it.
//!
//! A request has no code, no device and no address. It is written and read with serde, and equal requests are equal values. Each
//! documents its arguments: inputs, then outputs.
#![forbid(unsafe_code)]

pub mod anchor;
mod arguments;
pub mod attention;
pub mod bands;
mod bits;
pub mod block;
pub mod check;
pub mod conv;
pub mod crop;
pub mod diagonals;
pub mod expr;
pub mod exprs;
pub mod factors;
pub mod fft;
pub mod gather;
pub mod linalg;
pub mod lrn;
pub mod movement;
pub mod nn;
pub mod norm;
pub mod on_rows;
mod part;
pub mod pool;
pub mod product;
pub mod random;
pub mod reduce;
mod request;
pub mod resample;
pub mod row_wise;
pub mod rows;
pub mod scaled_attention;
mod summary;
pub mod warp;
pub mod window;

pub use arguments::Arguments;
pub use part::{Fold, Part, Rows, Sums};
pub use request::KernelRequest;
