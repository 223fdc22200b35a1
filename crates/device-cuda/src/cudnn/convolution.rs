//! Convolutions as cuDNN has them.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_request::conv::ConvSpec;
use plimsoll_request::window::{Layout, WindowAxis};

use super::descriptor::Descriptor;
use super::raw::{CROSS_CORRELATION, Functions, SUMS_AND_SQUARES, attribute, element, kind};

/// What of a convolution is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConvolutionKind {
    /// The result, from input and filter.
    Forward,
    /// The gradient by the input, from the filter and the gradient by the result.
    ByInput,
    /// The gradient by the filter, from the input and the gradient by the result.
    ByFilter,
}

impl ConvolutionKind {
    /// All of them.
    pub const ALL: [ConvolutionKind; 3] = [ConvolutionKind::Forward, ConvolutionKind::ByInput, ConvolutionKind::ByFilter];
}

/// What is computed behind a convolution before its result is rounded and written, in this order and in floats. With a bias cuDNN 9.26 has
/// engines of such graphs ready. Those of a ReLU's gradient, and most of those with statistics, it compiles for the graph, where there is a
/// driver: without one there are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Finish {
    /// The sum with a tensor as large as the result.
    pub residual: bool,
    /// The sum with a number for each channel.
    pub bias: bool,
    /// `max(x, 0)`; NaN stays.
    pub relu: bool,
    /// The gradient of a ReLU, with its features: `x` where these are above 0, and 0 elsewhere. Without bias and `relu`, and not behind a gradient
    /// by the filter.
    pub relu_grad: bool,
    /// The sum and the sum of squares of each channel of the result, as floats, beside it. Behind a convolution forward alone.
    pub statistics: bool,
}

impl Finish {
    /// Nothing.
    pub const NONE: Finish = Finish { residual: false, bias: false, relu: false, relu_grad: false, statistics: false };

    /// Sums of channels alone.
    pub const STATISTICS: Finish = Finish { statistics: true, ..Finish::NONE };

    /// Whether there is something.
    pub fn is_some(self) -> bool {
        self != Finish::NONE
    }

    /// Whether the result is another one with it.
    fn changes(self) -> bool {
        self != Finish { statistics: self.statistics, ..Finish::NONE }
    }
}

/// `residual+bias+relu`, `residual+relu_grad`, `statistics`; nothing is an empty text.
impl fmt::Display for Finish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finish { residual, bias, relu, relu_grad, statistics } = *self;
        let parts = [("residual", residual), ("bias", bias), ("relu", relu), ("relu_grad", relu_grad), ("statistics", statistics)];
        let parts: Vec<&str> = parts.into_iter().filter(|(_, is_there)| *is_there).map(|(name, _)| name).collect();
        f.write_str(&parts.join("+"))
    }
}

impl FromStr for Finish {
    type Err = Error;

    fn from_str(text: &str) -> Result<Finish> {
        let mut finish = Finish::NONE;
        for part in text.split('+').filter(|part| !part.is_empty()) {
            match part {
                "residual" => finish.residual = true,
                "bias" => finish.bias = true,
                "relu" => finish.relu = true,
                "relu_grad" => finish.relu_grad = true,
                "statistics" => finish.statistics = true,
                other => return Err(Error::invalid_argument(format!("{other} behind a convolution"))),
            }
        }
        Ok(finish)
    }
}

/// How the tensors of a convolution lie. The filter has the channels of the result first, whatever the layout: cuDNN takes the strides of a
/// filter whose channels of the result lie beside each other, as TensorFlow's do, and computes with another filter (9.19 on an H200).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lying {
    /// As the sizes say. Of the filter, channels of the input are where the images' channels are: in front of the taps, or behind them.
    Plain,
    /// Whatever the sizes say, the input has its channels first and the result its channels last; the filter has those of the input first.
    Turned,
}

/// A graph of one convolution, and of what is computed behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvolutionPlan {
    /// What is computed.
    pub kind: ConvolutionKind,
    /// Its sizes.
    pub spec: ConvSpec,
    /// How its tensors lie.
    pub lying: Lying,
    /// What is computed behind it; of those by the filter nothing.
    pub finish: Finish,
}

/// What the addresses of tensors are multiples of: enough for the widest loads, and less than what buffers of a card have.
pub(super) const ALIGNMENT: i64 = 16;
/// The numbers of the tensors of a graph: input, filter, result; bias, residual, features of a ReLU, sums and sums of squares, where they are; a
/// zero that is said beside the addresses; values between, from there on.
const NAMES: [i64; 3] = [1, 2, 3];
const BIAS: i64 = 4;
const RESIDUAL: i64 = 5;
const FEATURES: i64 = 6;
const ZERO: i64 = 7;
const SUMS: i64 = 8;
const SQUARES: i64 = 9;
const BETWEEN: i64 = 10;

/// `cudnnPointwiseMode_t`.
const ADD: i32 = 0;
const RELU: i32 = 100;
const GREATER: i32 = 302;
const SELECT: i32 = 601;
/// `CUDNN_DATA_FLOAT` and `CUDNN_DATA_BOOLEAN`.
const FLOAT: i32 = 0;
const BOOLEAN: i32 = 11;
/// `CUDNN_PROPAGATE_NAN`.
const NAN_STAYS: i32 = 1;

/// `cudnnDataType_t` of elements; sums are floats.
pub(super) fn data_type(data_type: DataType) -> Result<i32> {
    match data_type {
        DataType::Float => Ok(0),
        DataType::Half => Ok(2),
        DataType::Bfloat16 => Ok(9),
        other => Err(Error::unimplemented(format!("{} by cuDNN", other.name()))),
    }
}

/// Numbers of cuDNN.
pub(super) fn numbers(sizes: impl IntoIterator<Item = u64>) -> Result<Vec<i64>> {
    let number = |size| i64::try_from(size).ok().filter(|size| *size > 0);
    sizes.into_iter().map(number).collect::<Option<_>>().ok_or_else(|| Error::unimplemented("a tensor of no elements by cuDNN"))
}

/// A tensor of these sizes, batch and channels before the axes, whose elements lie in memory in the order of `outermost`.
fn tensor(cudnn: &Arc<Functions>, name: i64, sizes: &[i64], outermost: &[usize], of: i32) -> Result<Descriptor> {
    tensor_that(cudnn, (name, false), sizes, outermost, of)
}

/// A float that is said beside the addresses.
pub(super) fn said(cudnn: &Arc<Functions>, name: i64, axes: usize) -> Result<Descriptor> {
    let (tensor, ones) = (Descriptor::new(cudnn, kind::TENSOR, "a number")?, vec![1; axes]);
    tensor.number(attribute::TENSOR_TYPE, element::DATA_TYPE, 0)?;
    tensor.integers(attribute::TENSOR_SIZES, &ones)?;
    tensor.integers(attribute::TENSOR_STRIDES, &ones)?;
    tensor.integers(attribute::TENSOR_NAME, &[name])?;
    tensor.integers(attribute::TENSOR_ALIGNMENT, &[ALIGNMENT])?;
    tensor.bool(attribute::TENSOR_IS_BY_VALUE, true)?;
    tensor.finish("a number")
}

/// As [`tensor`]; or one that is never in memory.
fn tensor_that(cudnn: &Arc<Functions>, (name, is_virtual): (i64, bool), sizes: &[i64], outermost: &[usize], of: i32) -> Result<Descriptor> {
    let mut strides = vec![1i64; sizes.len()];
    let mut step = 1i64;
    for &at in outermost.iter().rev() {
        strides[at] = step;
        step = step.checked_mul(sizes[at]).ok_or_else(|| Error::unimplemented("a tensor of that many elements by cuDNN"))?;
    }
    let tensor = Descriptor::new(cudnn, kind::TENSOR, "a tensor")?;
    tensor.number(attribute::TENSOR_TYPE, element::DATA_TYPE, of)?;
    tensor.integers(attribute::TENSOR_SIZES, sizes)?;
    tensor.integers(attribute::TENSOR_STRIDES, &strides)?;
    tensor.integers(attribute::TENSOR_NAME, &[name])?;
    tensor.integers(attribute::TENSOR_ALIGNMENT, &[ALIGNMENT])?;
    tensor.bool(attribute::TENSOR_IS_VIRTUAL, is_virtual)?;
    tensor.finish("a tensor")
}

/// An operation of floats on each element: of one tensor, of two, or of two with truths that choose between them.
pub(super) fn pointwise(cudnn: &Arc<Functions>, mode: i32, from: [Option<&Descriptor>; 3], to: &Descriptor) -> Result<Descriptor> {
    let what = "an operation on each element";
    let of = Descriptor::new(cudnn, kind::POINTWISE, what)?;
    of.number(attribute::POINTWISE_MODE, element::POINTWISE_MODE, mode)?;
    of.number(attribute::POINTWISE_TYPE, element::DATA_TYPE, 0)?;
    if mode == RELU {
        of.number(attribute::POINTWISE_NAN, element::NAN, NAN_STAYS)?;
    }
    let of = of.finish(what)?;
    let operation = Descriptor::new(cudnn, kind::ON_EACH, what)?;
    operation.descriptors(attribute::ON_EACH_OF, &[&of])?;
    for (at, tensor) in [attribute::ON_EACH_FROM, attribute::ON_EACH_SECOND, attribute::ON_EACH_CHOICE].into_iter().zip(from) {
        tensor.map_or(Ok(()), |tensor| operation.descriptors(at, &[tensor]))?;
    }
    operation.descriptors(attribute::ON_EACH_TO, &[to])?;
    operation.finish(what)
}

/// The sum and the sum of squares of each channel.
fn sums_of_channels(cudnn: &Arc<Functions>, of: &Descriptor, [sums, squares]: [&Descriptor; 2]) -> Result<Descriptor> {
    let what = "sums of channels";
    let operation = Descriptor::new(cudnn, kind::STATISTICS, what)?;
    operation.number(attribute::STATISTICS_MODE, element::STATISTICS_MODE, SUMS_AND_SQUARES)?;
    operation.number(attribute::STATISTICS_TYPE, element::DATA_TYPE, FLOAT)?;
    operation.descriptors(attribute::STATISTICS_OF, &[of])?;
    operation.descriptors(attribute::STATISTICS_SUMS, &[sums])?;
    operation.descriptors(attribute::STATISTICS_SQUARES, &[squares])?;
    operation.finish(what)
}

/// Elements that the last position sees behind those of the input and the padding before them.
fn behind(axis: &WindowAxis) -> u64 {
    let seen = (axis.positions.saturating_sub(1)).saturating_mul(axis.stride) + (axis.taps - 1).saturating_mul(axis.dilation) + 1;
    seen.saturating_sub(axis.size + axis.pad)
}

/// A part of what is behind a convolution.
enum Step {
    Residual,
    Bias,
    Relu,
    ReluGrad,
}

impl ConvolutionPlan {
    /// Nothing but a convolution.
    pub fn of(kind: ConvolutionKind, spec: ConvSpec) -> ConvolutionPlan {
        ConvolutionPlan { kind, spec, lying: Lying::Plain, finish: Finish::NONE }
    }

    /// Whether there is more padding before the elements of an axis than behind them, or less.
    pub(super) fn pads_unevenly(&self) -> bool {
        self.spec.axes.iter().any(|axis| axis.pad != behind(axis))
    }

    /// The numbers of the tensors that are in memory: input, filter, result, then bias, residual, features, sums and sums of squares where they are.
    pub(super) fn names(&self) -> Vec<i64> {
        let Finish { bias, residual, relu_grad, statistics, .. } = self.finish;
        let further = [(bias, BIAS), (residual, RESIDUAL), (relu_grad, FEATURES), (statistics, SUMS), (statistics, SQUARES)];
        NAMES.into_iter().chain(further.into_iter().filter(|(is_there, _)| *is_there).map(|(_, name)| name)).collect()
    }

    /// The numbers of floats that are said beside the addresses, and these.
    pub(super) fn said(&self) -> &'static [(i64, f32)] {
        if self.finish.relu_grad { &[(ZERO, 0.0)] } else { &[] }
    }

    /// Whether cuDNN has engines for such graphs, on some cards.
    fn may_finish(&self) -> bool {
        let Finish { bias, relu, relu_grad, statistics, .. } = self.finish;
        let is_gradient = relu_grad && !bias && !relu && !statistics;
        match self.kind {
            ConvolutionKind::Forward if statistics => self.finish == Finish::STATISTICS,
            ConvolutionKind::Forward => is_gradient || !relu_grad,
            ConvolutionKind::ByInput => is_gradient || !self.finish.is_some(),
            ConvolutionKind::ByFilter => !self.finish.is_some(),
        }
    }

    /// The graph; for the card of a handle, if one is given.
    ///
    /// # Errors
    /// UNIMPLEMENTED for what cuDNN has no words for; cuDNN's refusal.
    pub(super) fn graph(&self, cudnn: &Arc<Functions>, handle: Option<u64>) -> Result<Descriptor> {
        let ConvSpec { batch, in_c, out_c, axes, layout, groups, .. } = self.spec;
        let of = data_type(self.spec.data_type)?;
        let count = axes.len();
        // cuDNN has two axes or three.
        let spare = 2usize.saturating_sub(count);
        let along = |size: fn(&WindowAxis) -> u64| axes.iter().map(size).chain(std::iter::repeat_n(1, spare));
        let images = |channels: u64, size| numbers([batch, channels].into_iter().chain(along(size)));
        let (input, result) = (images(in_c, |axis| axis.size)?, images(out_c, |axis| axis.positions)?);
        let in_group = in_c.checked_div(groups).unwrap_or(0);
        let filter = numbers([out_c, in_group].into_iter().chain(along(|axis| axis.taps)))?;
        let last = 2 + count + spare;
        let order_of = |layout| -> Vec<usize> {
            match layout {
                Layout::ChannelsLast => [0].into_iter().chain(2..last).chain([1]).collect(),
                Layout::ChannelsFirst => (0..last).collect(),
            }
        };
        let (input_order, order) = match self.lying {
            Lying::Turned => (order_of(Layout::ChannelsFirst), order_of(Layout::ChannelsLast)),
            _ => (order_of(layout), order_of(layout)),
        };
        if !self.may_finish() {
            return Err(Error::unimplemented(format!("`{}` behind {:?} of a convolution, by cuDNN", self.finish, self.kind)));
        }
        // What is computed, and where that is.
        let (sizes, computed, name) = match self.kind {
            ConvolutionKind::Forward => (&result, &order, NAMES[2]),
            ConvolutionKind::ByInput => (&input, &input_order, NAMES[0]),
            ConvolutionKind::ByFilter => (&filter, &input_order, NAMES[1]),
        };
        let between = |number: i64, of: i32| tensor_that(cudnn, (BETWEEN + number, true), sizes, computed, of);
        let whole = |name: i64| tensor(cudnn, name, sizes, computed, of);
        let is_behind = |at: i64| self.finish.changes() && name == NAMES[at as usize];
        let there = |at: i64, sizes: &[i64], order: &[usize]| match is_behind(at) {
            true => between(0, 0),
            false => tensor(cudnn, NAMES[at as usize], sizes, order, of),
        };
        let (x, w) = (there(0, &input, &input_order)?, there(1, &filter, &input_order)?);
        let y = there(2, &result, &order)?;
        let convolution = self.convolution(cudnn, spare)?;
        let (what, first) = match self.kind {
            ConvolutionKind::Forward => (kind::FORWARD, 700),
            ConvolutionKind::ByInput => (kind::BY_INPUT, 706),
            ConvolutionKind::ByFilter => (kind::BY_FILTER, 712),
        };
        // Alpha, beta, the convolution, the filter, the input, the result: in this order for each kind.
        let operation = Descriptor::new(cudnn, what, "a convolution")?;
        operation.float(first, 1.0)?;
        operation.float(first + 1, 0.0)?;
        for (at, other) in [(2, &convolution), (3, &w), (4, &x), (5, &y)] {
            operation.descriptors(first + at, &[other])?;
        }
        let mut operations = vec![operation.finish("a convolution")?];
        let mut value = match self.kind {
            ConvolutionKind::Forward => y,
            ConvolutionKind::ByInput => x,
            ConvolutionKind::ByFilter => w,
        };
        let Finish { residual, bias, relu, relu_grad, statistics } = self.finish;
        let steps: Vec<Step> = [(residual, Step::Residual), (bias, Step::Bias), (relu, Step::Relu), (relu_grad, Step::ReluGrad)]
            .into_iter()
            .filter_map(|(is_there, step)| is_there.then_some(step))
            .collect();
        for (number, step) in (1..).zip(&steps) {
            let next = if number == steps.len() { whole(name)? } else { between(number as i64, 0)? };
            operations.extend(match step {
                Step::Residual => vec![pointwise(cudnn, ADD, [Some(&value), Some(&whole(RESIDUAL)?), None], &next)?],
                Step::Bias => {
                    let sizes = [vec![1, sizes[1]], vec![1; sizes.len() - 2]].concat();
                    let bias = tensor(cudnn, BIAS, &sizes, computed, of)?;
                    vec![pointwise(cudnn, ADD, [Some(&value), Some(&bias), None], &next)?]
                }
                Step::Relu => vec![pointwise(cudnn, RELU, [Some(&value), None, None], &next)?],
                // By a choice, as TensorFlow: a product with 0 or 1 would keep NaN where it is masked.
                Step::ReluGrad => {
                    let (zero, is_above) = (said(cudnn, ZERO, sizes.len())?, between(steps.len() as i64, BOOLEAN)?);
                    let above = pointwise(cudnn, GREATER, [Some(&whole(FEATURES)?), Some(&zero), None], &is_above)?;
                    vec![above, pointwise(cudnn, SELECT, [Some(&value), Some(&zero), Some(&is_above)], &next)?]
                }
            });
            value = next;
        }
        if statistics {
            let channels = [vec![1, sizes[1]], vec![1; sizes.len() - 2]].concat();
            let [sums, squares] = [SUMS, SQUARES].map(|name| tensor(cudnn, name, &channels, computed, FLOAT));
            operations.push(sums_of_channels(cudnn, &value, [&sums?, &squares?])?);
        }
        let graph = Descriptor::new(cudnn, kind::GRAPH, "a graph")?;
        graph.descriptors(attribute::GRAPH_OPERATIONS, &operations.iter().collect::<Vec<_>>())?;
        if let Some(handle) = handle {
            graph.addresses(attribute::GRAPH_HANDLE, element::HANDLE, &[handle])?;
        }
        graph.finish("a graph of a convolution")
    }

    fn convolution(&self, cudnn: &Arc<Functions>, spare: usize) -> Result<Descriptor> {
        for axis in self.spec.axes.iter() {
            let seen = (axis.positions.saturating_sub(1)).saturating_mul(axis.stride) + (axis.taps - 1).saturating_mul(axis.dilation) + 1;
            let reached = axis.size + axis.pad;
            // Elements that no position sees are fewer than a stride, or there would be one more position.
            if reached > seen && reached - seen >= axis.stride {
                return Err(Error::unimplemented("a convolution that leaves out positions at the end, by cuDNN"));
            }
        }
        let numbers =
            |values: &mut dyn Iterator<Item = i64>, fill: i64| values.chain(std::iter::repeat_n(fill, spare)).collect::<Vec<i64>>();
        let axes = &self.spec.axes;
        let convolution = Descriptor::new(cudnn, kind::CONVOLUTION, "a convolution")?;
        convolution.integers(attribute::AXES, &[(axes.len() + spare) as i64])?;
        convolution.number(attribute::CONVOLUTION_TYPE, element::DATA_TYPE, 0)?;
        convolution.number(attribute::CONVOLUTION_MODE, element::CONVOLUTION_MODE, CROSS_CORRELATION)?;
        convolution.integers(attribute::PADDING_BEFORE, &numbers(&mut axes.iter().map(|axis| axis.pad as i64), 0))?;
        convolution.integers(attribute::PADDING_BEHIND, &numbers(&mut axes.iter().map(|axis| behind(axis) as i64), 0))?;
        convolution.integers(attribute::DILATIONS, &numbers(&mut axes.iter().map(|axis| axis.dilation as i64), 1))?;
        convolution.integers(attribute::STRIDES, &numbers(&mut axes.iter().map(|axis| axis.stride as i64), 1))?;
        convolution.finish("a convolution")
    }
}
