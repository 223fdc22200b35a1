//! The cards' library of kernels: a request that [`emit`](crate::emit) writes has one variant, and no other has one.
//!
//! A variant is one command, however many kernels it launches: they follow each other on the stream, and buffers between them are the
//! command's scratch. Whatever has no variant here is the host's, where soft placement is allowed.

use plimsoll_base::{Bytes, Code, DataType, Error, Result};
use plimsoll_device::{Class, Cost, DeviceSpec, KernelCall, Library, Load, Step, TunedFor, Variant};
use plimsoll_request::anchor::Anchor;
use plimsoll_request::{Arguments, KernelRequest};

use crate::emit::{self, Emitted};
use crate::price;

/// Buffers in the memory of a card begin at multiples of this many bytes.
pub const ALIGNMENT: u64 = 256;

/// The variant of this crate's own kernels.
pub(crate) const OWN: &str = "cuda";

/// A library whose kernels are CUDA C: what a card computes with.
pub trait CudaSource: Library {
    /// The kernels of a request; pure, as [`Library::variants`] is.
    ///
    /// # Errors
    /// UNIMPLEMENTED where there are none; INVALID_ARGUMENT for sizes that make no sense.
    fn emitted(&self, request: &KernelRequest) -> Result<Emitted>;

    /// What times of a card of that name are for, where this library chooses by them.
    fn tuned_for(&self, card: &str) -> TunedFor {
        TunedFor { card: card.to_string(), cudnn: None }
    }

    /// The ways to compute a product or a convolution, at most so many of cuDNN; none for other requests.
    ///
    /// # Errors
    /// As [`Library::variants`], but for UNIMPLEMENTED.
    fn candidates(&self, spec: &DeviceSpec, request: &KernelRequest, _engines: usize) -> Result<Vec<Variant>> {
        if !matches!(request, KernelRequest::Anchor { .. } | KernelRequest::ConvBackpropFilter { .. }) {
            return Ok(Vec::new());
        }
        match self.variants(spec, request) {
            Err(error) if error.code() == Code::Unimplemented => Ok(Vec::new()),
            variants => variants,
        }
    }

    /// What runs for a call of one of its variants.
    ///
    /// # Errors
    /// As [`CudaSource::emitted`].
    fn code(&self, call: &KernelCall) -> Result<Emitted> {
        self.emitted(&call.request)
    }
}

/// The kernels for NVIDIA cards that this crate writes.
#[derive(Clone, Copy, Debug, Default)]
pub struct CudaLibrary;

impl CudaSource for CudaLibrary {
    fn emitted(&self, request: &KernelRequest) -> Result<Emitted> {
        emit::emit(request)
    }
}

impl Library for CudaLibrary {
    fn variants(&self, spec: &DeviceSpec, request: &KernelRequest) -> Result<Vec<Variant>> {
        let emitted = self.emitted(request)?;
        // What is on rows takes no longer than it does elsewhere: the rest of the tensors is not read.
        let request = if let KernelRequest::OnRows(on) = request { &on.request } else { request };
        let cost = cost_of(request, &request.arguments()?, &emitted);
        let elementwise = elementwise(request);
        let load = Load { class: class_of(request), issued: (cost.flops - elementwise).max(0.0), elementwise };
        let mut variant = variant_of(&emitted, cost, load)?;
        let seconds = price::seconds(spec, request, &emitted, cost);
        variant.steps.iter_mut().for_each(|step| step.seconds = Some(seconds));
        Ok(vec![variant])
    }

    /// Predictions do not count: they are of the machine where the plan was made.
    fn has(&self, spec: &DeviceSpec, request: &KernelRequest, variant: &Variant) -> Result<bool> {
        let wanted = variant.without_seconds();
        Ok(self.variants(spec, request)?.iter().any(|own| own.without_seconds() == wanted))
    }
}

/// The variant that runs these kernels.
///
/// # Errors
/// INVALID_ARGUMENT for scratch of more than can be addressed.
pub fn variant_of(emitted: &Emitted, cost: Cost, load: Load) -> Result<Variant> {
    let step = Step {
        args: None,
        chunks: 1,
        scratch: scratch_of(emitted)?,
        per_worker: 0,
        in_place: emitted.in_place.clone(),
        cost,
        load,
        seconds: None,
    };
    Ok(Variant { name: OWN.into(), numerics: OWN.into(), between: Vec::new(), steps: vec![step], laid_out: None })
}

/// Where the buffers between kernels begin in the scratch of their command.
pub(crate) fn offsets(emitted: &Emitted) -> impl Iterator<Item = u64> {
    emitted.between.iter().scan(0, |next, bytes| Some(std::mem::replace(next, *next + bytes.next_multiple_of(ALIGNMENT))))
}

/// The scratch of a command.
pub(crate) fn scratch_of(emitted: &Emitted) -> Result<u64> {
    let sum = emitted.between.iter().try_fold(0u64, |sum, bytes| bytes.checked_next_multiple_of(ALIGNMENT)?.checked_add(sum));
    sum.ok_or_else(|| Error::invalid_argument(format!("buffers of {:?} bytes between kernels", emitted.between)))
}

/// Bytes that are read and written, and arithmetic operations as far as they are not hidden behind them.
fn cost_of(request: &KernelRequest, arguments: &Arguments, emitted: &Emitted) -> Cost {
    if emitted.kernels.is_empty() {
        return Cost::default();
    }
    let sum = |bytes: &[u64]| bytes.iter().map(|bytes| *bytes as f64).sum::<f64>();
    let bytes = sum(&arguments.inputs) + sum(&arguments.outputs) + 2.0 * sum(&emitted.between);
    let floats = bytes / 4.0;
    let flops = match request {
        KernelRequest::Expr { expr, shape, .. } => expr.flops() * shape.iter().map(|size| *size as f64).product::<f64>(),
        KernelRequest::Exprs(request) => request.expr.flops() * request.elements.iter().map(|elements| *elements as f64).sum::<f64>(),
        KernelRequest::Nn(_) | KernelRequest::Random(_) => 10.0 * floats,
        KernelRequest::Movement { .. } => 0.0,
        KernelRequest::Anchor { anchor, .. } => multiplied(anchor) + elementwise(request),
        KernelRequest::ConvBackpropFilter { spec, .. } | KernelRequest::ConvStatistics(spec) => multiplied(&Anchor::Conv(*spec)),
        KernelRequest::DepthwiseConvBackpropInput(spec) | KernelRequest::DepthwiseConvBackpropFilter(spec) => {
            multiplied(&Anchor::DepthwiseConv(*spec))
        }
        _ => floats,
    };
    Cost { flops, bytes }
}

/// The arithmetic operations of a product, also where a convolution multiplies by padding.
pub(crate) fn multiplied(anchor: &Anchor) -> f64 {
    let sizes: Vec<u64> = match anchor {
        Anchor::Product(_, spec) => vec![spec.batch, spec.m, spec.n, spec.k],
        Anchor::Conv(spec) => [spec.output(), vec![spec.taps(), spec.in_c / spec.groups.max(1)]].concat(),
        Anchor::DepthwiseConv(spec) => [spec.output(), vec![spec.taps()]].concat(),
        Anchor::ConvBackpropInput(spec) => [spec.input(), vec![spec.taps(), spec.out_c / spec.groups.max(1)]].concat(),
    };
    2.0 * sizes.into_iter().map(|size| size as f64).product::<f64>()
}

/// The arithmetic operations behind the main loop of a kernel.
fn elementwise(request: &KernelRequest) -> f64 {
    let KernelRequest::Anchor { anchor, epilogue: Some(epilogue), .. } = request else { return 0.0 };
    let elements = anchor.shape().map_or(0.0, |shape| shape.iter().map(|size| *size as f64).product());
    epilogue.expr.flops() * elements
}

fn class_of(request: &KernelRequest) -> Class {
    match request {
        KernelRequest::Expr { .. } | KernelRequest::Exprs(_) => Class::Expression,
        KernelRequest::Anchor { anchor: Anchor::Product(DataType::Float | DataType::Half | DataType::Bfloat16, _), .. } => Class::Product,
        KernelRequest::Anchor { anchor: Anchor::Product(..), .. } => Class::GenericProduct,
        KernelRequest::Anchor { anchor: Anchor::DepthwiseConv(_), .. }
        | KernelRequest::DepthwiseConvBackpropInput(_)
        | KernelRequest::DepthwiseConvBackpropFilter(_) => Class::Depthwise,
        KernelRequest::Anchor { .. } => Class::Convolution,
        KernelRequest::ConvBackpropFilter { .. } => Class::FilterGradient,
        KernelRequest::MaxPool(_) | KernelRequest::MaxPoolGrad(_) | KernelRequest::AvgPool(_) | KernelRequest::AvgPoolGrad(_) => {
            Class::Pooling
        }
        KernelRequest::BatchNorm { .. } | KernelRequest::BatchNormGrad { .. } => Class::Normalization,
        KernelRequest::Nn(_) => Class::Loss,
        KernelRequest::Reduction(_) => Class::Reduction,
        KernelRequest::Movement { .. } => Class::Movement,
        KernelRequest::Gather(_) | KernelRequest::UpdateRows(_) => Class::Gather,
        KernelRequest::Random(_) => Class::Random,
        _ => Class::Other,
    }
}

/// The specification of a card without a line, for questions about what cards compute.
pub fn any_card() -> DeviceSpec {
    let cpu = DeviceSpec::cpu(0, None, 1, plimsoll_device::InstructionSet::Baseline);
    DeviceSpec {
        name: plimsoll_device::DeviceName::local("GPU", 0),
        kind: plimsoll_device::DeviceKind::Gpu,
        overhead: Bytes::ZERO,
        granularity: GRANULARITY,
        alignment: ALIGNMENT,
        description: "NVIDIA card".to_string(),
        ..cpu
    }
}

/// The bytes in which cards have given out memory so far. A card is asked for its own when it is opened.
const GRANULARITY: u64 = 2 << 20;

#[cfg(test)]
mod tests {
    use plimsoll_request::conv::ConvSpec;
    use plimsoll_request::movement::Movement;
    use plimsoll_request::norm::BatchNormSpec;
    use plimsoll_request::product::ProductSpec;
    use plimsoll_request::window::{Axes, Layout, WindowAxis};

    use super::*;

    fn variants(request: &KernelRequest) -> Result<Vec<Variant>> {
        let variants = CudaLibrary.variants(&any_card(), request);
        assert_eq!(variants.as_ref().ok(), CudaLibrary.variants(&any_card(), request).as_ref().ok(), "the same request, the same variants");
        variants
    }

    #[test]
    fn a_request_with_kernels_is_one_command() {
        let fill = KernelRequest::Movement { element: 4, movement: Movement::Fill { elements: 100 } };
        let variants = variants(&fill).unwrap();
        let [Variant { between, steps, .. }] = &variants[..] else { panic!("{variants:?}") };
        let [Step { args: None, chunks: 1, scratch: 0, per_worker: 0, cost, load, .. }] = &steps[..] else { panic!("{steps:?}") };
        assert_eq!((between.len(), cost.bytes, load.class), (0, 404.0, Class::Movement));
        let nothing = super::tests::variants(&KernelRequest::Nothing).unwrap();
        assert_eq!(nothing[0].steps[0].cost, Cost::default());
    }

    #[test]
    fn buffers_between_kernels_are_scratch() {
        let spec = BatchNormSpec { rows: 5, channels: 3, epsilon: 0.1, exponential_avg_factor: 1.0, data_type: DataType::Float };
        let request = KernelRequest::BatchNorm { spec, training: true, reserve_3: false, summed: false, epilogue: None };
        let emitted = CudaLibrary.emitted(&request).unwrap();
        assert_eq!((emitted.between.as_slice(), offsets(&emitted).collect::<Vec<_>>()), (&[24, 24][..], vec![0, 256]));
        assert_eq!(variants(&request).unwrap()[0].steps[0].scratch, 512);
        let huge = Emitted { between: vec![u64::MAX], ..Emitted::default() };
        assert_eq!(variant_of(&huge, Cost::default(), Load::default()).unwrap_err().code(), Code::InvalidArgument);
    }

    #[test]
    fn products_count_their_terms_and_keep_sums_of_parts_in_scratch() {
        let spec = ProductSpec { m: 10, n: 30, k: 1024, transpose_a: false, transpose_b: false, batch: 1, places: None };
        let request = KernelRequest::Anchor { anchor: Anchor::Product(DataType::Float, spec), epilogue: None, pooling: None };
        let Step { cost, load, scratch, .. } = &variants(&request).unwrap()[0].steps[0];
        assert_eq!((load.class, load.issued, load.elementwise), (Class::Product, 614_400.0, 0.0));
        // 16 parts of 64 terms: they are written and read.
        assert_eq!(*scratch, 19_200);
        assert_eq!(cost.bytes, (4 * (10 * 1024 + 1024 * 30 + 10 * 30) + 2 * 16 * 4 * 10 * 30) as f64);
    }

    #[test]
    fn convolutions_count_their_taps() {
        let axis = WindowAxis { size: 6, positions: 5, taps: 2, stride: 1, dilation: 1, pad: 0 };
        let axes = Axes::new(&[axis, axis]).unwrap();
        let spec = ConvSpec { data_type: DataType::Float, batch: 2, in_c: 3, out_c: 4, axes, layout: Layout::ChannelsLast, groups: 1 };
        let of = |request: KernelRequest| variants(&request).unwrap()[0].steps[0].load;
        let anchor = |anchor| of(KernelRequest::Anchor { anchor, epilogue: None, pooling: None });
        let forward = anchor(Anchor::Conv(spec));
        assert_eq!((forward.class, forward.issued), (Class::Convolution, 4800.0));
        // Elements of the input are more than positions.
        assert_eq!(anchor(Anchor::ConvBackpropInput(spec)).issued, 6912.0);
        let by_filter = of(KernelRequest::ConvBackpropFilter { spec, unpooled: None });
        assert_eq!((by_filter.class, by_filter.issued), (Class::FilterGradient, 4800.0));
        let depthwise = of(KernelRequest::DepthwiseConvBackpropInput(ConvSpec { in_c: 2, ..spec }));
        assert_eq!((depthwise.class, depthwise.issued), (Class::Depthwise, 1600.0));
    }

    #[test]
    fn what_has_no_kernel_is_named() {
        let error = variants(&KernelRequest::CheckNumerics { data_type: DataType::Float, elements: 3, signs: false }).unwrap_err();
        assert_eq!((error.code(), error.message()), (Code::Unimplemented, "a kernel for a card: CheckNumerics"));
    }
}
