//! Products of matrices, row-major. For `f32` a kernel of our own packs operands where it must, and applies an expression to the
//! result while it is in the cache. Floats of two bytes take the same kernel: packing widens them. Other types have plain loops.

mod attention;
mod blocked;
mod cut;
mod generic;
mod matrices;
#[cfg(test)]
mod tests;
mod tiles;

use plimsoll_base::Result;
use plimsoll_device::Prepared;

use crate::packing::Order;
use crate::simd::Isa;
use plimsoll_request::anchor::Epilogue;
use plimsoll_request::product::ProductSpec;

pub use attention::attention;
pub(crate) use blocked::reads_panels;
pub use cut::Tuning;
pub use generic::product_generic;
pub(crate) use matrices::Matrices;

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
/// As [`product`].
pub fn product_on(isa: Isa, spec: ProductSpec, epilogue: Option<Epilogue>, tuning: Tuning) -> Result<Prepared> {
    blocked::prepare::<f32>(isa, spec, epilogue, tuning, Order::Rows)
}

/// As [`product_on`], with B in the panels of [`crate::packing::panels_of`].
///
/// # Errors
/// As [`product_on`]; UNIMPLEMENTED where B cannot lie so.
pub(crate) fn product_of_panels(isa: Isa, spec: ProductSpec, epilogue: Option<Epilogue>, tuning: Tuning) -> Result<Prepared> {
    blocked::prepare::<f32>(isa, spec, epilogue, tuning, Order::Panels)
}
