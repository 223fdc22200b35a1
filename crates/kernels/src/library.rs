//! The processor's library: which kernels answer a request.

use std::sync::Arc;

use plimsoll_base::{DataType, Error, Panels, Result};
use plimsoll_device::{
    Bf16Instructions, Cost, CpuLibrary, DeviceSpec, Fault, InstructionSet, KernelCall, LaidOut, Library, Load, Prepared, Step, StepArg,
    Variant,
};
use plimsoll_request::anchor::Anchor;
use plimsoll_request::check::Requirement;
use plimsoll_request::conv::FilterForm;
use plimsoll_request::gather::Gather;
use plimsoll_request::movement::Movement;
use plimsoll_request::nn::Nn;
use plimsoll_request::pool::{Maxima, Pooling, Positions};
use plimsoll_request::random::Random;
use plimsoll_request::reduce::{ReduceOp, Reduction};
use plimsoll_request::{Arguments, KernelRequest, Part, Rows};

use crate::packing::{Order, panels_of};
use crate::random::RandomOp;
use crate::simd::Isa;
use crate::{
    anchor, bf16, check, conv, crop, expr, fewer, fft, gather, linalg, load, lrn, movement, narrow, nn, norm, on_rows, pool, random,
    reduce, resample, sums, warp,
};

/// The kernels for processors, for every instruction set that they are compiled for.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuKernels;

/// The kernels that answer a request, one after the other.
pub(crate) struct Made {
    /// Each with its arguments, as in [`Step::args`].
    pub steps: Vec<(Prepared, Option<Vec<StepArg>>)>,
    /// Bytes of each buffer between them.
    pub between: Vec<u64>,
}

impl From<Prepared> for Made {
    fn from(prepared: Prepared) -> Made {
        Made { steps: vec![(prepared, None)], between: Vec::new() }
    }
}

impl Made {
    /// Two kernels: the first reads these arguments and writes `elements` of a type in between. The second makes the result of
    /// them, which is the argument after the request's inputs.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for more than memory holds.
    pub(crate) fn in_parts(first: Prepared, reads: &[u32], then: Prepared, data_type: DataType, elements: u64) -> Result<Made> {
        let result = reads.len() as u32;
        let args = [vec![StepArg::Between(0)], vec![StepArg::Argument(result)]].concat();
        Made::in_two(first, reads, then, args, data_type, elements)
    }

    /// As [`Made::in_parts`], with the second kernel's arguments.
    fn in_two(first: Prepared, reads: &[u32], then: Prepared, args: Vec<StepArg>, data_type: DataType, elements: u64) -> Result<Made> {
        let bytes = data_type.bytes_of(elements).ok_or_else(|| Error::invalid_argument(format!("{elements} elements in between")))?;
        let first_args = reads.iter().map(|read| StepArg::Argument(*read)).chain([StepArg::Between(0)]).collect();
        Ok(Made { steps: vec![(first, Some(first_args)), (then, Some(args))], between: vec![bytes] })
    }
}

/// The instruction set of kernels for a specification.
fn isa_of(instructions: InstructionSet) -> Isa {
    match instructions {
        InstructionSet::Avx512 => Isa::Avx512,
        InstructionSet::Avx2 => Isa::Avx2,
        InstructionSet::Baseline | InstructionSet::Neon => Isa::Portable,
    }
}

/// The instruction set, where this processor has it.
///
/// # Errors
/// UNIMPLEMENTED where it does not.
pub(crate) fn available(instructions: InstructionSet) -> Result<Isa> {
    let isa = isa_of(instructions);
    if isa > Isa::best() {
        return Err(Error::unimplemented(format!("this processor does not have {isa:?}")));
    }
    Ok(isa)
}

pub(crate) fn name_of(isa: Isa) -> &'static str {
    match isa {
        Isa::Portable => "portable",
        Isa::Avx2 => "avx2",
        Isa::Avx512 => "avx512",
    }
}

/// The name of convolutions with fewer multiplications, and of their bits.
pub(crate) fn winograd_name_of(isa: Isa) -> &'static str {
    match isa {
        Isa::Portable => "portable-winograd",
        Isa::Avx2 => "avx2-winograd",
        Isa::Avx512 => "avx512-winograd",
    }
}

/// The end of the names of variants that read a constant in panels. Their bits are those of the name before it.
const IN_PANELS: &str = "-panels";

/// The variants of a request for a specification; with an argument in panels where it is laid out.
fn variants_of(spec: &DeviceSpec, request: &KernelRequest, laid_out: Option<LaidOut>) -> Result<Vec<Variant>> {
    if let KernelRequest::OnRows(on) = request {
        return on_rows::variants(on, variants_of(spec, &on.request, laid_out)?);
    }
    let isa = isa_of(spec.instructions);
    let order = if laid_out.is_some() { Order::Panels } else { Order::Rows };
    let variant = |numerics: &str, Made { steps, between }: Made, loads: Vec<Load>| {
        let numerics: Arc<str> = numerics.into();
        let name = if laid_out.is_some() { format!("{numerics}{IN_PANELS}").into() } else { numerics.clone() };
        let steps = steps.iter().zip(loads).map(|((prepared, args), load)| Step::of(prepared, args.clone(), load)).collect();
        Variant { numerics, name, between, steps, laid_out }
    };
    let mut variants = Vec::new();
    if !fewer::is_only(request) {
        let made = make_of(isa, request, order)?;
        let costs: Vec<Cost> = made.steps.iter().map(|(prepared, _)| prepared.cost).collect();
        let loads = load::loads(isa, request, &costs);
        variants.push(variant(name_of(isa), made, loads));
    }
    if let Some((made, loads)) = fewer::prepare(isa, request, order)? {
        variants.push(variant(winograd_name_of(isa), made, loads));
    }
    if spec.bf16.is_some()
        && laid_out.is_none()
        && let Some((made, loads)) = bf16::prepare(request)?
    {
        variants.push(variant(bf16::NAME, made, loads));
    }
    Ok(variants)
}

impl Library for CpuKernels {
    fn variants(&self, spec: &DeviceSpec, request: &KernelRequest) -> Result<Vec<Variant>> {
        variants_of(spec, request, None)
    }

    fn panels(&self, spec: &DeviceSpec, columns: u64) -> Option<Panels> {
        // Rounded, a constant is read row by row.
        panels_of(isa_of(spec.instructions), columns).filter(|_| spec.bf16.is_none())
    }

    fn laid_out(&self, spec: &DeviceSpec, request: &KernelRequest, laid_out: LaidOut) -> Result<Vec<Variant>> {
        let isa = isa_of(spec.instructions);
        let asked = if let KernelRequest::OnRows(on) = request { &on.request } else { request };
        if !anchor::reads_panels(isa, asked, laid_out) {
            return Ok(Vec::new());
        }
        variants_of(spec, request, Some(laid_out))
    }

    fn takes(&self, spec: &DeviceSpec, first: &KernelRequest, second: &KernelRequest) -> bool {
        match (first, second) {
            (KernelRequest::Anchor { anchor, pooling: None, .. }, KernelRequest::MaxPool(pooling)) => anchor::takes(anchor, pooling),
            // Products read and write matrices where they lie.
            (KernelRequest::Movement { movement: Movement::Transpose { .. }, .. }, KernelRequest::Anchor { anchor, .. })
            | (KernelRequest::Anchor { anchor, .. }, KernelRequest::Movement { movement: Movement::Transpose { .. }, .. }) => {
                matches!(anchor, Anchor::Product(..))
            }
            // Bands; their convolutions round no operands.
            (
                KernelRequest::Anchor { anchor: Anchor::Conv(_) | Anchor::DepthwiseConv(_), .. } | KernelRequest::Bands(_),
                KernelRequest::Anchor { anchor: Anchor::Conv(_) | Anchor::DepthwiseConv(_), .. },
            ) => spec.bf16.is_none() && conv::bands::takes(first, second),
            // Attention; its products round no operands.
            (KernelRequest::Nn(Nn::Softmax { .. }), KernelRequest::Anchor { anchor: Anchor::Product(..), .. }) => spec.bf16.is_none(),
            _ => false,
        }
    }

    fn part(&self, spec: &DeviceSpec, request: &KernelRequest, numerics: &str, rows: Rows) -> Option<Part> {
        let isa = isa_of(spec.instructions);
        match request {
            // Its parts of images are those of whole requests.
            KernelRequest::ConvBackpropFilter { .. } if numerics == bf16::NAME => None,
            _ => sums::part(isa, request, numerics == winograd_name_of(isa), rows),
        }
    }

    fn rows(&self, request: &KernelRequest) -> Option<u64> {
        sums::rows(request)
    }
}

impl CpuLibrary for CpuKernels {
    fn code(&self, spec: &DeviceSpec, call: &KernelCall) -> Result<Prepared> {
        if let KernelRequest::OnRows(on) = &*call.request {
            let inner = KernelCall { request: Arc::new(KernelRequest::clone(&on.request)), ..call.clone() };
            return on_rows::on_rows(on, self.code(spec, &inner)?);
        }
        let isa = available(spec.instructions)?;
        let (name, order) = match call.variant.laid_out {
            None => (Some(&*call.variant.name), Order::Rows),
            Some(laid_out) if !anchor::reads_panels(isa, &call.request, laid_out) => (None, Order::Panels),
            Some(_) => (call.variant.name.strip_suffix(IN_PANELS), Order::Panels),
        };
        let made = match name {
            Some(name) if name == name_of(isa) => Some(make_of(isa, &call.request, order)?),
            Some(name) if name == winograd_name_of(isa) => fewer::prepare(isa, &call.request, order)?.map(|(made, _)| made),
            Some(bf16::NAME) if order == Order::Rows && Bf16Instructions::detect().is_some() => {
                bf16::prepare(&call.request)?.map(|(made, _)| made)
            }
            _ => None,
        };
        let steps = made.ok_or_else(|| Error::unimplemented(format!("no kernel is called {}", call.variant.name)))?.steps;
        let step = steps.into_iter().nth(call.step as usize);
        step.map(|(prepared, _)| prepared).ok_or_else(|| Error::internal(format!("no step {} of {}", call.step, call.variant.name)))
    }
}

/// [`CpuKernels`] with one variant of each request, for measuring: what is measured must not depend on a choice.
#[derive(Clone, Copy, Debug)]
pub enum OneVariant {
    /// The first: convolutions do all multiplications.
    First,
    /// The last: convolutions have the fewest multiplications.
    Last,
}

impl Library for OneVariant {
    fn variants(&self, spec: &DeviceSpec, request: &KernelRequest) -> Result<Vec<Variant>> {
        let mut variants = CpuKernels.variants(spec, request)?;
        match self {
            OneVariant::First => variants.truncate(1),
            OneVariant::Last => drop(variants.drain(..variants.len().saturating_sub(1))),
        }
        Ok(variants)
    }

    fn takes(&self, spec: &DeviceSpec, first: &KernelRequest, second: &KernelRequest) -> bool {
        CpuKernels.takes(spec, first, second)
    }

    fn part(&self, spec: &DeviceSpec, request: &KernelRequest, numerics: &str, rows: Rows) -> Option<Part> {
        CpuKernels.part(spec, request, numerics, rows)
    }

    fn rows(&self, request: &KernelRequest) -> Option<u64> {
        CpuKernels.rows(request)
    }
}

impl CpuLibrary for OneVariant {
    fn code(&self, spec: &DeviceSpec, call: &KernelCall) -> Result<Prepared> {
        CpuKernels.code(spec, call)
    }
}

/// The kernels of a request.
pub(crate) fn make(isa: Isa, request: &KernelRequest) -> Result<Made> {
    make_of(isa, request, Order::Rows)
}

/// As [`make`], of a request whose second argument lies in that order.
fn make_of(isa: Isa, request: &KernelRequest, order: Order) -> Result<Made> {
    let arguments = match request {
        KernelRequest::Named(_) => Arguments::default(),
        _ => request.arguments()?,
    };
    let mut made = match narrow::made(isa, request)? {
        Some(made) => made,
        None => prepared(isa, request, order)?,
    };
    // Results without elements take no time, however many rows of nothing there are.
    if !arguments.outputs.is_empty() && arguments.outputs.iter().all(|bytes| *bytes == 0) && !request.can_fail() {
        for (prepared, _) in &mut made.steps {
            *prepared = Prepared { in_place: std::mem::take(&mut prepared.in_place), ..check::nothing() };
        }
    }
    Ok(made)
}

/// The kernels of a request whose sizes fit each other. Only products and convolutions take an argument in panels.
fn prepared(isa: Isa, request: &KernelRequest, order: Order) -> Result<Made> {
    use KernelRequest::*;
    Ok(match request {
        Expr { expr, shape, operands } => expr::elementwise_on(isa, expr, shape, operands)?.into(),
        Anchor { anchor, epilogue, pooling } => anchor::prepare(isa, anchor, epilogue.clone(), *pooling, order)?.into(),
        Attention(request) => crate::product::attention(isa, request)?.into(),
        Bands(request) => conv::bands::prepare(isa, request, order)?.into(),
        RowWise(request) => crate::row_wise::row_wise(isa, request)?.into(),
        ConvBackpropFilter { spec, unpooled } => {
            let (parts, first, reads) = match unpooled {
                None => {
                    let (parts, first) = conv::conv_backprop_filter_in_parts_on(isa, *spec)?;
                    (parts, first, &[0, 1][..])
                }
                Some(pool) => {
                    let made = conv::conv_backprop_filter_unpooled_on(isa, *spec, *pool)?;
                    let (parts, first) = made.ok_or_else(|| Error::unimplemented("a gradient that is better unpooled first"))?;
                    (parts, first, &[0, 1, 2][..])
                }
            };
            let filter: u64 = spec.filter().iter().product();
            match parts {
                1 => first.into(),
                _ => {
                    let sum = reduce::reduce(isa, ReduceOp::Sum, DataType::Float, &[parts, filter], &[0])?;
                    let made = Made::in_parts(first, reads, sum, DataType::Float, parts * filter)?;
                    match spec.data_type {
                        DataType::Float => made,
                        data_type => narrow::rounded(isa, made, reads.len() as u32, data_type, filter)?,
                    }
                }
            }
        }
        ConvBackpropFilterSums { spec, unpooled, sums, onto, form: FilterForm::Taps } => {
            conv::filter_sums(isa, spec, unpooled.as_ref(), (*sums, *onto))?.into()
        }
        ConvBackpropFilterSums { form: FilterForm::Points { .. }, .. } | ConvBackpropFilterEnd { .. } => {
            return Err(Error::unimplemented(format!("{request:?} with all multiplications")));
        }
        DepthwiseConvBackpropInput(spec) => conv::depthwise_conv_backprop_input_on(isa, *spec)?.into(),
        DepthwiseConvBackpropFilter(spec) => conv::depthwise_conv_backprop_filter_on(isa, *spec)?.into(),
        MaxPool(Pooling { spec, maxima, positions: Positions::None }) => pool::max_pool_on(isa, *spec, *maxima)?.into(),
        MaxPool(Pooling { maxima: Maxima::Every, .. }) => return Err(Error::unimplemented("positions of every maximum")),
        MaxPool(Pooling { spec, maxima: Maxima::First, positions }) => {
            pool::max_pool_with_argmax_on(isa, *spec, *positions == Positions::Positive)?.into()
        }
        MaxPoolGrad(spec) => pool::max_pool_grad_on(isa, *spec)?.into(),
        MaxPoolGradOfInput { spec, maxima } => pool::max_pool_grad_of_input_on(isa, *spec, *maxima)?.into(),
        MaxPoolGradGrad(spec) => pool::max_pool_grad_grad_on(isa, *spec)?.into(),
        AvgPool(spec) => pool::avg_pool_on(isa, *spec)?.into(),
        AvgPoolGrad(spec) => pool::avg_pool_grad_on(isa, *spec)?.into(),
        BatchNorm { summed: true, .. } | ConvStatistics(_) => {
            return Err(Error::unimplemented("sums of a convolution for a normalization"));
        }
        BatchNorm { spec, training: false, reserve_3, epilogue, .. } => {
            norm::batch_norm_inference_on(isa, *spec, *reserve_3, epilogue.as_ref())?.into()
        }
        BatchNorm { spec, training: true, reserve_3, epilogue, .. } => {
            let (first, then) = (norm::moments_on(isa, *spec)?, norm::batch_norm_on(isa, *spec, *reserve_3, epilogue.as_ref())?);
            let further = epilogue.as_ref().map_or(0, |epilogue| epilogue.operands.len() as u32);
            let arguments = 10 + further + u32::from(*reserve_3);
            two_of_norm(first, &[0], then, arguments, spec)?
        }
        BatchNormGrad { spec, training, relu } => {
            let then = norm::batch_norm_grad_on(isa, *spec, *training, *relu)?;
            let (reads, arguments): (&[u32], u32) = if *relu { (&[0, 1, 2, 3, 4, 5], 11) } else { (&[0, 1, 3], 10) };
            two_of_norm(norm::grad_sums_on(isa, *spec, *relu)?, reads, then, arguments, spec)?
        }
        Lrn(spec) => lrn::lrn_on(isa, *spec)?.into(),
        LrnGrad(spec) => lrn::lrn_grad_on(isa, *spec)?.into(),
        Resample(spec) => resample::prepare(isa, *spec)?.into(),
        Warp(spec) => warp::prepare(*spec)?.into(),
        KernelRequest::Factors(request) => linalg::factors(request)?.into(),
        KernelRequest::Fft(request) => fft::fft(request)?.into(),
        Crop(spec) => crop::prepare(*spec)?.into(),
        KernelRequest::Linalg(request) => linalg::linalg(request)?.into(),
        KernelRequest::Nn(request) => rows(isa, *request)?.into(),
        KernelRequest::Reduction(request) => reduction(isa, request)?,
        KernelRequest::Movement { element, movement } => moved(isa, *element, movement)?.into(),
        KernelRequest::Gather(request) => gathered(request)?.into(),
        UpdateRows(request) => gather::update_rows(isa, request)?.into(),
        KernelRequest::Random(request) => drawn(isa, request)?.into(),
        CheckNumerics { data_type, elements, signs } => check::finite(*data_type, *elements, *signs)?.into(),
        Require(requirement) => check::require(fault(*requirement)).into(),
        Nothing => check::nothing().into(),
        OnRows(_) => return Err(Error::unimplemented("rows of what is computed in several kernels")),
        Exprs(_) => return Err(Error::unimplemented("an expression of several groups of tensors in one kernel")),
        ScaledAttention(_) | ScaledAttentionGrad(_) => return Err(Error::unimplemented("attention of narrow floats in one kernel")),
        Named(name) => return Err(Error::unimplemented(format!("no kernel is called {name}"))),
    })
}

/// A batch normalization's second kernel reads the first one's results, then all of the request's arguments.
fn two_of_norm(
    first: Prepared,
    reads: &[u32],
    then: Prepared,
    arguments: u32,
    spec: &plimsoll_request::norm::BatchNormSpec,
) -> Result<Made> {
    let args = std::iter::once(StepArg::Between(0)).chain((0..arguments).map(StepArg::Argument)).collect();
    Made::in_two(first, reads, then, args, DataType::Float, norm::between(spec).iter().product())
}

fn rows(isa: Isa, request: Nn) -> Result<Prepared> {
    match request {
        Nn::Softmax { log: false, data_type, rows, classes } => nn::softmax(isa, data_type, rows, classes),
        Nn::Softmax { log: true, data_type, rows, classes } => nn::log_softmax(isa, data_type, rows, classes),
        Nn::CrossEntropy { data_type, label_type: None, batch, classes } => nn::softmax_cross_entropy(isa, data_type, batch, classes),
        Nn::CrossEntropy { data_type, label_type: Some(label_type), batch, classes } => {
            nn::sparse_softmax_cross_entropy(isa, data_type, label_type, batch, classes)
        }
    }
}

fn drawn(isa: Isa, request: &Random) -> Result<Prepared> {
    Ok(match *request {
        Random::Stateful { distribution, data_type, elements, seed, seed2 } => {
            RandomOp { distribution, data_type, elements, seed, seed2 }.stateful(isa)?
        }
        Random::Reserve { blocks } => random::reserve(blocks),
        Random::Reserved { distribution, data_type, elements, seed, seed2 } => {
            RandomOp { distribution, data_type, elements, seed, seed2 }.reserved(isa)?
        }
        Random::Stateless { distribution, data_type, elements } => random::stateless(isa, distribution, data_type, elements)?,
        Random::KeyCounter { seed_type } => random::key_counter(seed_type)?,
        Random::Categorical(ref request) => random::categorical(request)?,
        Random::Candidates(ref request) => random::candidates(request)?,
    })
}

fn reduction(isa: Isa, request: &Reduction) -> Result<Made> {
    Ok(match request {
        Reduction::Reduce { op, data_type, shape, axes, divided: true } => reduce::reduction(isa, *op, *data_type, shape, axes)?,
        Reduction::Reduce { op, data_type, shape, axes, divided: false } => reduce::reduce(isa, *op, *data_type, shape, axes)?.into(),
        Reduction::ReduceSome { op, data_type, shape, axes, all } => reduce::reduce_some(isa, *op, *data_type, shape, axes, *all)?.into(),
        Reduction::HalfSquares { data_type, shape } => reduce::half_squares(isa, *data_type, shape)?,
        Reduction::Arg { smallest: false, data_type, output_type, shape, axis } => {
            reduce::arg_max(*data_type, *output_type, shape, *axis)?.into()
        }
        Reduction::Arg { smallest: true, data_type, output_type, shape, axis } => {
            reduce::arg_min(*data_type, *output_type, shape, *axis)?.into()
        }
        Reduction::Scan { op, data_type, shape, axis, exclusive, reverse } => {
            reduce::scan(*op, *data_type, shape, *axis, *exclusive, *reverse)?.into()
        }
        Reduction::TopK { data_type, index_type, rows, classes, k } => reduce::top_k(*data_type, *index_type, *rows, *classes, *k)?.into(),
        Reduction::InTopK { target_type, batch, classes, k } => reduce::in_top_k(*target_type, *batch, *classes, *k)?.into(),
    })
}

fn moved(isa: Isa, element: usize, request: &Movement) -> Result<Prepared> {
    match request {
        Movement::BroadcastTo { from, to } => movement::broadcast_to(isa, element, from, to),
        Movement::Concat { shapes, axis } => movement::concat(element, &shapes.iter().map(Vec::as_slice).collect::<Vec<_>>(), *axis),
        Movement::Diagonals(request) => movement::diagonals(element, request),
        Movement::Fill { elements } => movement::fill(isa, element, *elements),
        Movement::Pack { shape, count, axis } => movement::pack(element, shape, *count, *axis),
        Movement::Pad { shape, paddings, value: Some(value) } => movement::pad(element, shape, paddings, value),
        Movement::Pad { shape, paddings, value: None } => movement::pad_with_input(element, shape, paddings),
        Movement::Pick { shape, picks } => movement::pick(element, shape, picks),
        Movement::Reverse { shape, axes } => movement::reverse(isa, element, shape, axes),
        Movement::Slice { shape, begin, sizes } => movement::slice(isa, element, shape, begin, sizes),
        Movement::Split { shape, axis, sizes } => movement::split_sizes(element, shape, *axis, sizes),
        Movement::StridedSlice { shape, begin, strides, sizes } => movement::strided_slice(isa, element, shape, begin, strides, sizes),
        Movement::StridedSliceGrad { shape, begin, strides, sizes } => movement::strided_slice_grad(element, shape, begin, strides, sizes),
        Movement::Tile { shape, multiples } => movement::tile(isa, element, shape, multiples),
        Movement::Transpose { shape, perm } => movement::transpose(isa, element, shape, perm),
        Movement::Unpack { shape, axis } => movement::unpack(element, shape, *axis),
    }
}

fn gathered(request: &Gather) -> Result<Prepared> {
    match request {
        Gather::Take { element, params, indices, axis, batch_dims, index_type } => {
            gather::gather(*element, params, indices, *axis, *batch_dims, *index_type)
        }
        Gather::OneHot { element, index_type, shape, depth, axis } => gather::one_hot(*element, *index_type, shape, *depth, *axis),
        Gather::Segment { op, data_type, index_type, shape, ids_shape, segments } => {
            gather::unsorted_segment(*op, *data_type, *index_type, shape, ids_shape, *segments)
        }
        Gather::Scatter { .. } => gather::scatter(request),
        Gather::TakeNd { element, params, indices, depth, index_type, ignore } => {
            gather::gather_nd(*element, params, *indices, *depth, *index_type, *ignore)
        }
        Gather::Block { element, block } => gather::block(*element, block),
        Gather::Embed { element, block, from, onto } => gather::embed(*element, block, from, *onto),
        Gather::Bound { data_type, index_type, rows, sorted, values, upper } => {
            gather::bound(*data_type, *index_type, [*rows, *sorted, *values], *upper)
        }
    }
}

/// TensorFlow's error where a requirement does not hold.
fn fault(requirement: Requirement) -> Fault {
    let (code, message, number) = requirement.refusal();
    Fault { code, message, numbers: [number, 0] }
}
