//! Requests on floats of two bytes whose kernels compute with floats only: operands are widened before them, and results rounded after
//! them. Sums are summed as floats, and rounded once. Products and convolutions have kernels that widen by themselves.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_device::{Prepared, StepArg};
use plimsoll_request::KernelRequest;
use plimsoll_request::expr::{Expr, ExprBuilder};
use plimsoll_request::nn::Nn;
use plimsoll_request::pool::Pooling;
use plimsoll_request::reduce::Reduction;

use crate::expr::elementwise_on;
use crate::library::{Made, make};
use crate::simd::Isa;

/// The kernels of a request on floats of two bytes; none for other requests.
///
/// # Errors
/// As the request on floats.
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

/// The kernels with one behind them, that rounds the floats of the result `argument` to a type.
///
/// # Errors
/// INVALID_ARGUMENT for more elements than memory holds.
pub(crate) fn rounded(isa: Isa, made: Made, argument: u32, data_type: DataType, elements: u64) -> Result<Made> {
    let Made { mut steps, mut between } = made;
    let floats = StepArg::Between(between.len() as u32);
    between.push(DataType::Float.bytes_of(elements).ok_or_else(|| Error::invalid_argument(format!("{elements} elements as floats")))?);
    for arg in steps.iter_mut().filter_map(|(_, args)| args.as_mut()).flatten() {
        if *arg == StepArg::Argument(argument) {
            *arg = floats;
        }
    }
    steps.push((conversion(isa, DataType::Float, data_type, elements)?, Some(vec![floats, StepArg::Argument(argument)])));
    Ok(Made { steps, between })
}

/// The arguments that are widened, by number.
fn converted(wide: &[Option<(u64, u32)>]) -> impl Iterator<Item = (usize, (u64, u32))> {
    wide.iter().enumerate().filter_map(|(argument, wide)| Some((argument, (*wide)?)))
}

/// The expression that makes a number of a type one of another.
pub(crate) fn cast(from: DataType, to: DataType) -> Result<Expr> {
    let mut builder = ExprBuilder::new();
    let value = builder.input(from)?;
    let value = builder.cast(to, value)?;
    Ok(builder.finish(vec![value]))
}

fn conversion(isa: Isa, from: DataType, to: DataType, elements: u64) -> Result<Prepared> {
    elementwise_on(isa, &cast(from, to)?, &[elements], &[vec![elements]])
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
        AvgPool, AvgPoolGrad, BatchNorm, BatchNormGrad, Lrn, LrnGrad, MaxPool, MaxPoolGrad, MaxPoolGradGrad, MaxPoolGradOfInput,
    };
    let Some(narrow) = element_type(request).filter(|data_type| data_type.compute_type() != *data_type) else { return Ok(None) };
    let mut kept = Vec::new();
    let mut request = request.clone();
    match &mut request {
        MaxPool(Pooling { spec, .. }) => {
            spec.data_type = DataType::Float;
            // Positions, where they are wanted.
            kept.push(2);
        }
        MaxPoolGrad(spec) => {
            spec.data_type = DataType::Float;
            kept.push(0);
        }
        MaxPoolGradOfInput { spec, .. } | MaxPoolGradGrad(spec) | AvgPool(spec) | AvgPoolGrad(spec) => spec.data_type = DataType::Float,
        // Images and gradients by them; statistics are floats.
        BatchNorm { spec, .. } => {
            spec.data_type = DataType::Float;
            kept.extend((1..11).filter(|argument| *argument != 5));
        }
        BatchNormGrad { spec, .. } => {
            spec.data_type = DataType::Float;
            kept.extend([2, 3, 4, 6, 7, 8, 9]);
        }
        Lrn(spec) | LrnGrad(spec) => spec.data_type = DataType::Float,
        KernelRequest::Linalg(request) => request.data_type = DataType::Float,
        KernelRequest::Nn(Nn::Softmax { data_type, .. }) => *data_type = DataType::Float,
        KernelRequest::Nn(Nn::CrossEntropy { data_type, label_type, .. }) => {
            *data_type = DataType::Float;
            kept.extend(label_type.is_some().then_some(1));
        }
        KernelRequest::Reduction(Reduction::Arg { data_type, .. }) => {
            *data_type = DataType::Float;
            kept.push(1);
        }
        KernelRequest::Reduction(Reduction::Reduce { data_type, .. } | Reduction::HalfSquares { data_type, .. }) => {
            *data_type = DataType::Float
        }
        _ => return Ok(None),
    }
    Ok(Some(InFloats { narrow, request, kept }))
}

/// The type of the elements that a request computes with, for those that can be computed as floats.
fn element_type(request: &KernelRequest) -> Option<DataType> {
    Some(match request {
        KernelRequest::MaxPool(Pooling { spec, .. })
        | KernelRequest::MaxPoolGrad(spec)
        | KernelRequest::MaxPoolGradOfInput { spec, .. }
        | KernelRequest::MaxPoolGradGrad(spec)
        | KernelRequest::AvgPool(spec)
        | KernelRequest::AvgPoolGrad(spec) => spec.data_type,
        KernelRequest::BatchNorm { spec, .. } | KernelRequest::BatchNormGrad { spec, .. } => spec.data_type,
        KernelRequest::Lrn(spec) | KernelRequest::LrnGrad(spec) => spec.data_type,
        KernelRequest::Linalg(request) => request.data_type,
        KernelRequest::Nn(Nn::Softmax { data_type, .. } | Nn::CrossEntropy { data_type, .. }) => *data_type,
        KernelRequest::Reduction(
            Reduction::Reduce { data_type, .. } | Reduction::HalfSquares { data_type, .. } | Reduction::Arg { data_type, .. },
        ) => *data_type,
        KernelRequest::Expr { .. }
        | KernelRequest::Anchor { .. }
        | KernelRequest::ConvBackpropFilter { .. }
        | KernelRequest::DepthwiseConvBackpropInput(_)
        | KernelRequest::DepthwiseConvBackpropFilter(_)
        | KernelRequest::Reduction(Reduction::Scan { .. } | Reduction::InTopK { .. } | Reduction::TopK { .. })
        | KernelRequest::Movement { .. }
        | KernelRequest::Gather(_)
        | KernelRequest::Random(_)
        | KernelRequest::Resample(_)
        | KernelRequest::Warp(_)
        | KernelRequest::CheckNumerics { .. }
        | KernelRequest::Require(_)
        | KernelRequest::Nothing
        | KernelRequest::Named(_) => return None,
    })
}
