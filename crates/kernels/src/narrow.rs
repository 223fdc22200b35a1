//! Requests on narrow types whose kernels compute with wider ones only: operands are widened before them, and results made narrow after
//! them. Floats of two bytes are summed as floats, and rounded once. Narrow integers are summed as wider ones, and wrap once. Products
//! and convolutions have kernels that widen by themselves.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_device::{Prepared, StepArg};
use plimsoll_request::KernelRequest;
use plimsoll_request::expr::{BinaryOp, Expr, ExprBuilder, Scalar};
use plimsoll_request::gather::{Gather, SegmentOp};
use plimsoll_request::nn::Nn;
use plimsoll_request::pool::Pooling;
use plimsoll_request::reduce::{ReduceOp, Reduction};

use crate::expr::elementwise_on;
use crate::library::{Made, make};
use crate::simd::Isa;

/// The kernels of a request on a narrow type; none for other requests.
///
/// # Errors
/// As the request on the wider type.
pub(crate) fn made(isa: Isa, request: &KernelRequest) -> Result<Option<Made>> {
    let Some(Widened { narrow, wide: type_, request: widened, kept }) = widened(request) else { return Ok(None) };
    let inner = make(isa, &widened)?;
    let size = narrow.size().map_or(1, |size| size as u64);
    let (widening, narrowing) = conversions(request, narrow, type_)?;
    let sizes = request.arguments()?;
    let inputs = sizes.inputs.len();
    let mut made = Made { steps: Vec::new(), between: Vec::new() };
    // The elements of each argument that is widened, and its buffer.
    let mut wide: Vec<Option<(u64, u32)>> = Vec::new();
    for (argument, bytes) in sizes.inputs.iter().chain(&sizes.outputs).enumerate() {
        wide.push(if kept.contains(&argument) {
            None
        } else {
            let elements = bytes / size;
            let bytes = type_.bytes_of(elements);
            made.between.push(bytes.ok_or_else(|| Error::invalid_argument(format!("{elements} elements of {type_}")))?);
            Some((elements, made.between.len() as u32 - 1))
        });
    }
    let first_inner = made.between.len() as u32;
    made.between.extend(&inner.between);
    for (argument, (elements, buffer)) in converted(&wide).filter(|(argument, _)| *argument < inputs) {
        let args = vec![StepArg::Argument(argument as u32), StepArg::Between(buffer)];
        made.steps.push((elementwise_on(isa, &widening, &[elements], &[vec![elements]])?, Some(args)));
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
        made.steps.push((elementwise_on(isa, &narrowing, &[elements], &[vec![elements]])?, Some(args)));
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

/// How operands of a request become wide, and results narrow again.
fn conversions(request: &KernelRequest, narrow: DataType, wide: DataType) -> Result<(Expr, Expr)> {
    if narrow == DataType::Uint64 && orders(request) {
        return Ok((flipped(narrow, wide)?, flipped(wide, narrow)?));
    }
    let narrowing = match request {
        KernelRequest::Reduction(Reduction::Reduce { op: ReduceOp::Max | ReduceOp::Min, .. }) => clamped(wide, narrow)?,
        KernelRequest::Reduction(Reduction::Reduce { op: ReduceOp::Mean, shape, axes, .. }) if narrow == DataType::Uint64 => {
            divided(wide, narrow, axes.iter().filter_map(|axis| shape.get(*axis)).fold(1, |count: u64, dim| count.saturating_mul(*dim)))?
        }
        _ => cast(wide, narrow)?,
    };
    Ok((cast(narrow, wide)?, narrowing))
}

/// As [`cast`] between integers of 64 bits, with the first bit flipped: numbers without a sign have the order of numbers with one.
fn flipped(from: DataType, to: DataType) -> Result<Expr> {
    let mut builder = ExprBuilder::new();
    let value = builder.input(from)?;
    let first = builder.constant(if from == DataType::Uint64 { Scalar::U64(1 << 63) } else { Scalar::I64(i64::MIN) });
    let value = builder.binary(BinaryOp::BitwiseXor, value, first)?;
    let value = builder.cast(to, value)?;
    Ok(builder.finish(vec![value]))
}

/// As [`cast`] to numbers without a sign, then divided by how many were summed.
fn divided(from: DataType, to: DataType, count: u64) -> Result<Expr> {
    let mut builder = ExprBuilder::new();
    let value = builder.input(from)?;
    let value = builder.cast(to, value)?;
    let count = builder.constant(Scalar::U64(count.max(1)));
    let value = builder.binary(BinaryOp::Div, value, count)?;
    Ok(builder.finish(vec![value]))
}

/// As [`cast`]; integers beyond the narrower type become its last: an empty maximum is the lowest number of its type.
fn clamped(from: DataType, to: DataType) -> Result<Expr> {
    let bits = to.size().map_or(0, |size| 8 * size as u32);
    let (low, high) = match to {
        DataType::Int8 | DataType::Int16 => (-(1i64 << (bits - 1)), (1i64 << (bits - 1)) - 1),
        DataType::Uint8 | DataType::Uint16 | DataType::Uint32 => (0, (1i64 << bits) - 1),
        _ => return cast(from, to),
    };
    let number = |value: i64| if from == DataType::Int64 { Scalar::I64(value) } else { Scalar::I32(value as i32) };
    let mut builder = ExprBuilder::new();
    let value = builder.input(from)?;
    let (low, high) = (builder.constant(number(low)), builder.constant(number(high)));
    let value = builder.binary(BinaryOp::Maximum, value, low)?;
    let value = builder.binary(BinaryOp::Minimum, value, high)?;
    let value = builder.cast(to, value)?;
    Ok(builder.finish(vec![value]))
}

fn conversion(isa: Isa, from: DataType, to: DataType, elements: u64) -> Result<Prepared> {
    elementwise_on(isa, &cast(from, to)?, &[elements], &[vec![elements]])
}

/// A request on a wider type in the place of one on a narrow type.
struct Widened {
    narrow: DataType,
    wide: DataType,
    request: KernelRequest,
    /// The arguments, by number, that are of other types.
    kept: Vec<usize>,
}

/// The type that kernels compute a request with in the place of a narrow one.
fn wider(request: &KernelRequest, narrow: DataType) -> Option<DataType> {
    let wide = match narrow {
        DataType::Half | DataType::Bfloat16 if !computes_halves(request) => DataType::Float,
        DataType::Int8 | DataType::Int16 | DataType::Uint16 if orders_or_sums(request) => DataType::Int32,
        DataType::Uint8 if matches!(request, KernelRequest::Reduction(Reduction::Scan { .. })) => DataType::Int32,
        DataType::Uint32 if orders_or_sums(request) => DataType::Int64,
        DataType::Uint64 if wraps(request) || orders(request) => DataType::Int64,
        _ => return None,
    };
    Some(wide)
}

/// Whether it has kernels for floats of two bytes.
fn computes_halves(request: &KernelRequest) -> bool {
    matches!(request, KernelRequest::Reduction(Reduction::Scan { .. } | Reduction::TopK { .. }) | KernelRequest::Gather(_))
}

/// Whether it sums, multiplies and orders integers, so that a wider type gives the same results.
fn orders_or_sums(request: &KernelRequest) -> bool {
    use Reduction::{Arg, Reduce, Scan, TopK};
    matches!(
        request,
        KernelRequest::Reduction(Reduce { .. } | Arg { .. } | Scan { .. } | TopK { .. })
            | KernelRequest::Gather(Gather::Segment { op: SegmentOp::Sum | SegmentOp::Prod, .. } | Gather::Bound { .. })
    )
}

/// Whether its results are the same for signed integers, bit by bit. A mean is a sum that is divided behind it.
fn wraps(request: &KernelRequest) -> bool {
    matches!(
        request,
        KernelRequest::Reduction(Reduction::Reduce { op: ReduceOp::Sum | ReduceOp::Prod | ReduceOp::Mean, .. } | Reduction::Scan { .. })
            | KernelRequest::Gather(Gather::Segment { op: SegmentOp::Sum | SegmentOp::Prod, .. })
    )
}

/// Whether it compares its operands, and gives some of them or their places.
fn orders(request: &KernelRequest) -> bool {
    matches!(
        request,
        KernelRequest::Reduction(
            Reduction::Reduce { op: ReduceOp::Max | ReduceOp::Min, .. } | Reduction::Arg { .. } | Reduction::TopK { .. }
        ) | KernelRequest::Gather(Gather::Bound { .. })
    )
}

/// The request on a wider type, and the arguments that are of other types; none for a request that is not on a narrow type.
fn widened(request: &KernelRequest) -> Option<Widened> {
    use KernelRequest::{
        AvgPool, AvgPoolGrad, BatchNorm, BatchNormGrad, Lrn, LrnGrad, MaxPool, MaxPoolGrad, MaxPoolGradGrad, MaxPoolGradOfInput,
    };
    let narrow = element_type(request)?;
    let wide = wider(request, narrow)?;
    let mut kept = Vec::new();
    let mut request = request.clone();
    match &mut request {
        MaxPool(Pooling { spec, .. }) => {
            spec.data_type = wide;
            // Positions, where they are wanted.
            kept.push(2);
        }
        MaxPoolGrad(spec) => {
            spec.data_type = wide;
            kept.push(0);
        }
        MaxPoolGradOfInput { spec, .. } | MaxPoolGradGrad(spec) | AvgPool(spec) | AvgPoolGrad(spec) => spec.data_type = wide,
        BatchNorm { summed: true, .. } => return None,
        // Images and gradients by them; statistics are floats.
        BatchNorm { spec, .. } => {
            spec.data_type = wide;
            kept.extend((1..11).filter(|argument| *argument != 5));
        }
        // Which elements count depends on y as it is stored, which is rounded.
        BatchNormGrad { relu: true, .. } => return None,
        BatchNormGrad { spec, .. } => {
            spec.data_type = wide;
            kept.extend([2, 3, 4, 6, 7, 8, 9]);
        }
        Lrn(spec) | LrnGrad(spec) => spec.data_type = wide,
        KernelRequest::Linalg(request) => request.data_type = wide,
        KernelRequest::Nn(Nn::Softmax { data_type, .. }) => *data_type = wide,
        KernelRequest::Nn(Nn::CrossEntropy { data_type, label_type, .. }) => {
            *data_type = wide;
            kept.extend(label_type.is_some().then_some(1));
        }
        KernelRequest::Reduction(Reduction::Arg { data_type, .. }) => {
            *data_type = wide;
            kept.push(1);
        }
        KernelRequest::Reduction(Reduction::Reduce { op: op @ ReduceOp::Mean, data_type, .. }) if narrow == DataType::Uint64 => {
            (*op, *data_type) = (ReduceOp::Sum, wide);
        }
        KernelRequest::Reduction(
            Reduction::Reduce { data_type, .. } | Reduction::HalfSquares { data_type, .. } | Reduction::Scan { data_type, .. },
        ) => *data_type = wide,
        KernelRequest::Reduction(Reduction::TopK { data_type, .. }) => {
            *data_type = wide;
            kept.push(2);
        }
        // Identifiers; places.
        KernelRequest::Gather(Gather::Segment { data_type, .. }) => {
            *data_type = wide;
            kept.push(1);
        }
        KernelRequest::Gather(Gather::Bound { data_type, .. }) => {
            *data_type = wide;
            kept.push(2);
        }
        _ => return None,
    }
    Some(Widened { narrow, wide, request, kept })
}

/// The type of the elements that a request computes with, for those that can be computed as a wider type.
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
            Reduction::Reduce { data_type, .. }
            | Reduction::HalfSquares { data_type, .. }
            | Reduction::Arg { data_type, .. }
            | Reduction::Scan { data_type, .. }
            | Reduction::TopK { data_type, .. },
        ) => *data_type,
        KernelRequest::Gather(Gather::Segment { data_type, .. } | Gather::Bound { data_type, .. }) => *data_type,
        KernelRequest::Expr { .. }
        | KernelRequest::Exprs(_)
        | KernelRequest::Anchor { .. }
        | KernelRequest::ConvStatistics(_)
        | KernelRequest::Attention(_)
        | KernelRequest::ScaledAttention(_)
        | KernelRequest::ScaledAttentionGrad(_)
        | KernelRequest::Bands(_)
        | KernelRequest::RowWise(_)
        | KernelRequest::ConvBackpropFilter { .. }
        | KernelRequest::ConvBackpropFilterSums { .. }
        | KernelRequest::ConvBackpropFilterEnd { .. }
        | KernelRequest::DepthwiseConvBackpropInput(_)
        | KernelRequest::DepthwiseConvBackpropFilter(_)
        | KernelRequest::Reduction(Reduction::InTopK { .. } | Reduction::ReduceSome { .. })
        | KernelRequest::Movement { .. }
        | KernelRequest::Factors(_)
        | KernelRequest::Fft(_)
        | KernelRequest::Gather(_)
        | KernelRequest::Random(_)
        | KernelRequest::Resample(_)
        | KernelRequest::Warp(_)
        | KernelRequest::Crop(_)
        | KernelRequest::CheckNumerics { .. }
        | KernelRequest::Require(_)
        | KernelRequest::Nothing
        | KernelRequest::UpdateRows(_)
        | KernelRequest::OnRows(_)
        | KernelRequest::Named(_) => return None,
    })
}
