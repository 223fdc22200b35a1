//! Products and convolutions of floats whose operands are rounded to bf16 while they are read, where that is asked for (AVX512-BF16). Sums
//! are floats.
//!
//! ```text
//!  second operand ─ rounded once, in pairs of terms ─┐
//!  first operand  ─ rounded by pieces ───────────────┴─ tiles of sums ─ epilogue
//! ```
//!
//! Each result is a sum over all its terms in one order, which depends on the request's shape alone, but not on its rows. So results are the
//! same bits however the work is cut. A rounded operand is at most 2^-8 off, relative to itself.

mod conv;
mod convert;
mod filter;
mod product;
mod results;
mod right;
#[cfg(test)]
mod tests;
mod tiles;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_device::{Class, Load, Prepared, StepArg};
use plimsoll_request::KernelRequest;
use plimsoll_request::anchor::Anchor;
use plimsoll_request::conv::ConvSpec;
use plimsoll_request::reduce::ReduceOp;

use crate::conv::pooled::Of;
use crate::library::Made;
use crate::reduce;
use crate::simd::Isa;
use filter::Gradient;

/// How many pieces help any number of threads that we expect.
const PIECES: usize = 32;

/// The name of these variants, and of their bits.
pub(crate) const NAME: &str = "avx512-bf16";

/// The two kernels of a product, and the work that tables of costs price.
struct Kernels {
    /// Rounds the second operand. Arguments: operand, pairs.
    right: Prepared,
    /// Computes the results. Arguments as those of the request, with the pairs in the operand's place.
    product: Prepared,
    /// Bytes of the pairs; none for more than memory holds.
    bytes: Option<u64>,
    /// Arithmetic operations of the products, with those of lanes and pairs that hold nothing, and more where panels are narrow.
    issued: f64,
    /// The other operations of the second kernel.
    elementwise: f64,
}

/// The kernels of a request, and their loads: none where there are none.
///
/// # Errors
/// As [`crate::anchor::prepare`].
pub(crate) fn prepare(request: &KernelRequest) -> Result<Option<(Made, Vec<Load>)>> {
    let (made, second, class) = match request {
        KernelRequest::Anchor { anchor: Anchor::Product(DataType::Float, spec), epilogue, pooling: None } => {
            (product::prepare(spec, epilogue.clone())?, 1, Class::Product)
        }
        KernelRequest::Anchor { anchor: Anchor::Conv(spec), epilogue, pooling: None } => {
            (conv::prepare(spec, false, epilogue.clone(), false)?, 1, Class::Convolution)
        }
        KernelRequest::Anchor { anchor: Anchor::Conv(spec), epilogue, pooling: Some(pooling) } => {
            let of_results = Of::new(spec, epilogue.as_ref(), pooling)?;
            let made = conv::prepare(spec, false, epilogue.clone(), true)?;
            (made.map(|made| made.pooled(of_results)).transpose()?, 1, Class::Convolution)
        }
        KernelRequest::Anchor { anchor: Anchor::ConvBackpropInput(spec), epilogue, pooling: None } => {
            (conv::prepare(spec, true, epilogue.clone(), false)?, 0, Class::Convolution)
        }
        KernelRequest::ConvBackpropFilter { spec, unpooled: None } => return by_filter(spec),
        _ => return Ok(None),
    };
    let Some(Kernels { right, product, bytes, issued, elementwise }) = made else { return Ok(None) };
    let bytes = bytes.ok_or_else(|| Error::invalid_argument("more numbers of bf16 than memory holds"))?;
    let arguments = request.arguments()?;
    let arguments = 0..(arguments.inputs.len() + arguments.outputs.len()) as u32;
    let in_place_of = |argument| if argument == second { StepArg::Between(0) } else { StepArg::Argument(argument) };
    let loads = vec![
        Load { class: Class::Expression, issued: 0.0, elementwise: ROUNDING * right.cost.flops },
        Load { class, issued: issued / if class == Class::Product { PRODUCTS } else { CONVOLUTIONS }, elementwise },
    ];
    let steps =
        vec![(right, Some(vec![StepArg::Argument(second), StepArg::Between(0)])), (product, Some(arguments.map(in_place_of).collect()))];
    Ok(Some((Made { steps, between: vec![bytes] }, loads)))
}

/// How many times as fast operations are as those of floats, of the class that they are priced by. An instruction on pairs has twice as many.
const PRODUCTS: f64 = 2.0;
const CONVOLUTIONS: f64 = 1.5;
/// Elementwise operations that take as long as rounding a number and putting it into its pair.
const ROUNDING: f64 = 10.0;

impl Kernels {
    /// With a pooling behind the results, which are made image by image.
    fn pooled(self, of_results: Of<'_>) -> Result<Kernels> {
        let before = self.product.cost.flops;
        let product = of_results.behind(Isa::Avx512, self.product, 1)?;
        let elementwise = self.elementwise + product.cost.flops - before;
        Ok(Kernels { product, elementwise, ..self })
    }
}

/// The gradient by a filter: sums of parts of the images, which are added up last.
fn by_filter(spec: &ConvSpec) -> Result<Option<(Made, Vec<Load>)>> {
    let Some(Gradient { sums, parts, issued }) = filter::prepare(spec)? else { return Ok(None) };
    let load = Load { class: Class::FilterGradient, issued: issued / CONVOLUTIONS, elementwise: 0.0 };
    if parts == 1 {
        return Ok(Some((sums.into(), vec![load])));
    }
    let filter: u64 = spec.filter().iter().product();
    let end = reduce::reduce(Isa::Avx512, ReduceOp::Sum, DataType::Float, &[parts, filter], &[0])?;
    let loads = vec![load, Load { class: Class::Expression, issued: 0.0, elementwise: end.cost.flops }];
    Ok(Some((Made::in_parts(sums, &[0, 1], end, DataType::Float, parts * filter)?, loads)))
}
