//! Products of matrices, row-major: for `f32` a kernel of our own that packs what it must and applies an expression to the
//! result while it is in the cache; plain loops for other types.

mod blocked;
mod generic;
#[cfg(test)]
mod tests;
mod tiles;

use plimsoll_base::Result;
use plimsoll_device::Prepared;

use crate::anchor::Epilogue;
use crate::simd::Isa;

pub use blocked::Tuning;
pub use generic::product_generic;

/// `C = op(A) op(B)`, row-major.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProductSpec {
    /// Rows of C.
    pub m: u64,
    /// Columns of C.
    pub n: u64,
    /// What is summed over.
    pub k: u64,
    /// A lies as k rows of m.
    pub transpose_a: bool,
    /// B lies as n rows of k.
    pub transpose_b: bool,
    /// How many products, one after the other; each argument is as many matrices.
    pub batch: u64,
}

/// The product of float matrices. Arguments: A, B, C; with an epilogue A, B, its further operands, its results, each dense of
/// `[m, n]`.
///
/// Sums run over blocks of k that depend on k alone, so results are the same bits for all ways to cut the work.
///
/// # Errors
/// UNIMPLEMENTED for an epilogue on several products; INVALID_ARGUMENT for sizes that no memory holds, and as
/// [`crate::expr::elementwise`] for the epilogue.
pub fn product(spec: ProductSpec, epilogue: Option<Epilogue>) -> Result<Prepared> {
    product_on(Isa::best(), spec, epilogue, Tuning::default())
}

/// As [`product`], with the code for that instruction set, and cut as `tuning` says.
///
/// # Errors
/// As [`product`], and UNIMPLEMENTED where the processor does not have the instruction set.
pub fn product_on(isa: Isa, spec: ProductSpec, epilogue: Option<Epilogue>, tuning: Tuning) -> Result<Prepared> {
    blocked::prepare(isa, spec, epilogue, tuning)
}
