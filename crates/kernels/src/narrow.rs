//! Requests on floats of two bytes, computed as floats: operands are widened before the kernels of the request on floats, and results
//! are rounded after them. Sums are summed as floats, and rounded once.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_device::{Prepared, StepArg};
use plimsoll_request::KernelRequest;
use plimsoll_request::anchor::Anchor;
use plimsoll_request::expr::ExprBuilder;
use plimsoll_request::gather::Gather;
use plimsoll_request::nn::Nn;
use plimsoll_request::pool::Pooling;
use plimsoll_request::reduce::Reduction;

use crate::expr::elementwise_on;
use crate::library::{Made, make};
use crate::simd::Isa;

/// The kernels of a request on floats of two bytes; none for other requests.
///
/// # Errors
/// As the request on floats; UNIMPLEMENTED for a fusion, which has no place for the rounding.
pub(crate) fn made(isa: Isa, request: &KernelRequest) -> Result<Option<Made>> {
    let Some(InFloats { narrow, request: in_floats, kept }) = in_floats(request)? else { return Ok(None) };
    let inner = make(isa, &in_floats)?;
    let sizes = request.arguments()?;
    let inputs = sizes.inputs.len();
    let mut made = Made { steps: Vec::new(), between: Vec::new() };
    // The elements of each argument that is widened, and its buffer.
    let mut wide: Vec<Option<(u64, u32)>> = Vec::new();
    for (argument, bytes) in sizes.inputs.iter().chain(&sizes.outputs).enumerate() {
        wide.push(if kept.contains(&argument) {
            None
        } else {
            let elements = bytes / 2;
            let bytes = DataType::Float.bytes_of(elements);
            made.between.push(bytes.ok_or_else(|| Error::invalid_argument(format!("{elements} elements as floats")))?);
            Some((elements, made.between.len() as u32 - 1))
        });
    }
    let first_inner = made.between.len() as u32;
    made.between.extend(&inner.between);
    for (argument, (elements, buffer)) in converted(&wide).filter(|(argument, _)| *argument < inputs) {
        let args = vec![StepArg::Argument(argument as u32), StepArg::Between(buffer)];
        made.steps.push((conversion(isa, narrow, DataType::Float, elements)?, Some(args)));
    }
    for (prepared, args) in inner.steps {
        let all = || (0..wide.len() as u32).map(StepArg::Argument).collect();
        let place = |arg| match arg {
            StepArg::Argument(index) => match wide.get(index as usize) {
                Some(Some((_, buffer))) => StepArg::Between(*buffer),
                _ => StepArg::Argument(index),
            },
            StepArg::Between(index) => StepArg::Between(first_inner + index),
        };
        made.steps.push((prepared, Some(args.unwrap_or_else(all).into_iter().map(place).collect())));
    }
    for (argument, (elements, buffer)) in converted(&wide).filter(|(argument, _)| *argument >= inputs) {
        let args = vec![StepArg::Between(buffer), StepArg::Argument(argument as u32)];
        made.steps.push((conversion(isa, DataType::Float, narrow, elements)?, Some(args)));
    }
    Ok(Some(made))
}

/// The arguments that are widened, by number.
fn converted(wide: &[Option<(u64, u32)>]) -> impl Iterator<Item = (usize, (u64, u32))> {
    wide.iter().enumerate().filter_map(|(argument, wide)| Some((argument, (*wide)?)))
}

fn conversion(isa: Isa, from: DataType, to: DataType, elements: u64) -> Result<Prepared> {
    let mut builder = ExprBuilder::new();
    let value = builder.input(from)?;
    let value = builder.cast(to, value)?;
    elementwise_on(isa, &builder.finish(vec![value]), &[elements], &[vec![elements]])
}

/// A request on floats in the place of one on floats of two bytes.
struct InFloats {
    /// The type in the place of which floats are.
    narrow: DataType,
    request: KernelRequest,
    /// The arguments, by number, that are of other types.
    kept: Vec<usize>,
}

/// The request on floats, and the arguments that are of other types; none for a request that is not on floats of two bytes.
fn in_floats(request: &KernelRequest) -> Result<Option<InFloats>> {
    use KernelRequest::{
        AvgPool, AvgPoolGrad, ConvBackpropFilter, DepthwiseConvBackpropFilter, DepthwiseConvBackpropInput, MaxPool, MaxPoolGrad,
        MaxPoolGradOfInput,
    };
    let Some(narrow) = element_type(request).filter(|data_type| data_type.compute_type() != *data_type) else { return Ok(None) };
    let mut kept = Vec::new();
    let mut request = request.clone();
    match &mut request {
        KernelRequest::Anchor { anchor, epilogue: None, pooling: None } => match anchor {
            Anchor::Product(data_type, _) => *data_type = DataType::Float,
            Anchor::Conv(spec) | Anchor::ConvBackpropInput(spec) | Anchor::DepthwiseConv(spec) => spec.data_type = DataType::Float,
        },
        ConvBackpropFilter { spec, unpooled: None } | DepthwiseConvBackpropInput(spec) | DepthwiseConvBackpropFilter(spec) => {
            spec.data_type = DataType::Float;
        }
        KernelRequest::Anchor { .. } | ConvBackpropFilter { .. } => {
            return Err(Error::unimplemented(format!("a fusion with floats of two bytes: {request:?}")));
        }
        MaxPool(Pooling { spec, .. }) => {
            spec.data_type = DataType::Float;
            // Positions, where they are wanted.
            kept.push(2);
        }
        MaxPoolGrad(spec) => {
            spec.data_type = DataType::Float;
            kept.push(0);
        }
        MaxPoolGradOfInput { spec, .. } | AvgPool(spec) | AvgPoolGrad(spec) => spec.data_type = DataType::Float,
        KernelRequest::Nn(Nn::Softmax { data_type, .. }) => *data_type = DataType::Float,
        KernelRequest::Nn(Nn::CrossEntropy { data_type, label_type, .. }) => {
            *data_type = DataType::Float;
            kept.extend(label_type.is_some().then_some(1));
        }
        KernelRequest::Reduction(Reduction::Arg { data_type, .. }) => {
            *data_type = DataType::Float;
            kept.push(1);
        }
        KernelRequest::Reduction(
            Reduction::Reduce { data_type, .. } | Reduction::HalfSquares { data_type, .. } | Reduction::Scan { data_type, .. },
        ) => *data_type = DataType::Float,
        KernelRequest::Gather(Gather::Segment { data_type, .. }) => {
            *data_type = DataType::Float;
            kept.push(1);
        }
        _ => return Ok(None),
    }
    Ok(Some(InFloats { narrow, request, kept }))
}

/// The type of the elements that a request computes with, for those that can be computed as floats.
fn element_type(request: &KernelRequest) -> Option<DataType> {
    Some(match request {
        KernelRequest::Anchor { anchor, .. } => anchor.data_type(),
        KernelRequest::ConvBackpropFilter { spec, .. }
        | KernelRequest::DepthwiseConvBackpropInput(spec)
        | KernelRequest::DepthwiseConvBackpropFilter(spec) => spec.data_type,
        KernelRequest::MaxPool(Pooling { spec, .. })
        | KernelRequest::MaxPoolGrad(spec)
        | KernelRequest::MaxPoolGradOfInput { spec, .. }
        | KernelRequest::AvgPool(spec)
        | KernelRequest::AvgPoolGrad(spec) => spec.data_type,
        KernelRequest::Nn(Nn::Softmax { data_type, .. } | Nn::CrossEntropy { data_type, .. }) => *data_type,
        KernelRequest::Reduction(
            Reduction::Reduce { data_type, .. }
            | Reduction::HalfSquares { data_type, .. }
            | Reduction::Arg { data_type, .. }
            | Reduction::Scan { data_type, .. },
        ) => *data_type,
        KernelRequest::Gather(Gather::Segment { data_type, .. }) => *data_type,
        _ => return None,
    })
}
