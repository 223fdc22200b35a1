//! The variants of requests with fewer multiplications: see [`crate::conv::winograd`].

use plimsoll_base::{DataType, Error, Result};
use plimsoll_device::{Class, Load, Prepared, StepArg};
use plimsoll_request::KernelRequest;
use plimsoll_request::anchor::Anchor;
use plimsoll_request::conv::FilterForm;

use crate::conv::winograd::{ByFilter, Winograd, by_filter, end_by_filter, some_by_filter, winograd_of, winograd_pooled};
use crate::library::Made;
use crate::packing::Order;
use crate::simd::Isa;

/// Whether there is no other variant of a request.
pub(crate) fn is_only(request: &KernelRequest) -> bool {
    use KernelRequest::*;
    matches!(request, ConvBackpropFilterSums { form: FilterForm::Points { .. }, .. } | ConvBackpropFilterEnd { .. })
}

/// The kernels of a request that compute it with fewer multiplications, and their loads: none where there are none. A filter lies in that
/// order.
///
/// # Errors
/// As [`crate::anchor::prepare`].
pub(crate) fn prepare(isa: Isa, request: &KernelRequest, order: Order) -> Result<Option<(Made, Vec<Load>)>> {
    Ok(match request {
        KernelRequest::Anchor { anchor: Anchor::Conv(spec), epilogue, pooling: None } => {
            convolution(request, false, winograd_of(isa, spec, false, epilogue.clone(), (order, false))?)?
        }
        KernelRequest::Anchor { anchor: Anchor::Conv(spec), epilogue, pooling: Some(pooling) } => {
            convolution(request, false, winograd_pooled(isa, spec, epilogue.clone(), pooling, order)?)?
        }
        KernelRequest::Anchor { anchor: Anchor::ConvBackpropInput(spec), epilogue, pooling: None } => {
            convolution(request, true, winograd_of(isa, spec, true, epilogue.clone(), (order, false))?)?
        }
        KernelRequest::ConvBackpropFilter { spec, unpooled } => {
            let Some(made) = by_filter(isa, spec, unpooled.as_ref())? else { return Ok(None) };
            let reads: &[u32] = if unpooled.is_some() { &[0, 1, 2] } else { &[0, 1] };
            let end = end_by_filter(isa, spec, made.points, made.sums)?;
            let elements = spec.at_points(made.points).and_then(|values| values.checked_mul(made.sums));
            let elements = elements.ok_or_else(|| Error::invalid_argument(format!("{} sums of {spec:?}", made.sums)))?;
            let loads = vec![load_of(&made), ending(&end)];
            Some((Made::in_parts(made.summed, reads, end, DataType::Float, elements)?, loads))
        }
        KernelRequest::ConvBackpropFilterSums { spec, unpooled, sums, onto, form: FilterForm::Points { along, images } } => {
            some_by_filter(isa, (spec, unpooled.as_ref()), (*along, *images), (*sums, *onto))?.map(|made| {
                let loads = vec![load_of(&made)];
                (made.summed.into(), loads)
            })
        }
        KernelRequest::ConvBackpropFilterEnd { spec, points, sums } => {
            let end = end_by_filter(isa, spec, *points, *sums)?;
            let loads = vec![ending(&end)];
            Some((end.into(), loads))
        }
        _ => None,
    })
}

fn load_of(made: &ByFilter) -> Load {
    Load { class: Class::Winograd, issued: made.issued, elementwise: made.elementwise }
}

fn ending(end: &Prepared) -> Load {
    Load { class: Class::Winograd, issued: 0.0, elementwise: end.cost.flops }
}

/// A convolution, or its gradient by the input.
fn convolution(request: &KernelRequest, is_gradient: bool, made: Option<Winograd>) -> Result<Option<(Made, Vec<Load>)>> {
    let Some(Winograd { weights, product, values, issued, elementwise }) = made else { return Ok(None) };
    let bytes = DataType::Float.bytes_of(values).ok_or_else(|| Error::invalid_argument(format!("{values} values of a filter")))?;
    let filter = u32::from(!is_gradient);
    let arguments = request.arguments()?;
    let arguments = 0..(arguments.inputs.len() + arguments.outputs.len()) as u32;
    let in_place_of = |argument| if argument == filter { StepArg::Between(0) } else { StepArg::Argument(argument) };
    let loads = vec![
        Load { class: Class::Winograd, issued: 0.0, elementwise: weights.cost.flops },
        Load { class: Class::Winograd, issued, elementwise },
    ];
    let steps =
        vec![(weights, Some(vec![StepArg::Argument(filter), StepArg::Between(0)])), (product, Some(arguments.map(in_place_of).collect()))];
    Ok(Some((Made { steps, between: vec![bytes] }, loads)))
}
