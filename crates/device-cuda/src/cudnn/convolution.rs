//! Convolutions as cuDNN has them.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_request::conv::ConvSpec;
use plimsoll_request::window::{Layout, WindowAxis};

use super::descriptor::Descriptor;
use super::raw::{CROSS_CORRELATION, Functions, attribute, element, kind};

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

/// What is computed behind a convolution before its result is rounded and written, in this order and in floats. Of such graphs cuDNN 9.26 has
/// engines where a bias is among it; of no others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Finish {
    /// The sum with a tensor as large as the result.
    pub residual: bool,
    /// The sum with a number for each channel.
    pub bias: bool,
    /// `max(x, 0)`; NaN stays.
    pub relu: bool,
}

impl Finish {
    /// Nothing.
    pub const NONE: Finish = Finish { residual: false, bias: false, relu: false };

    /// Whether there is something.
    pub fn is_some(self) -> bool {
        self != Finish::NONE
    }
}

/// `residual+bias+relu`; nothing is an empty text.
impl fmt::Display for Finish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [("residual", self.residual), ("bias", self.bias), ("relu", self.relu)];
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
    /// What is computed behind it; of forward ones alone.
    pub finish: Finish,
}

/// What the addresses of tensors are multiples of: enough for the widest loads, and less than what buffers of a card have.
pub(super) const ALIGNMENT: i64 = 16;
/// The numbers of the tensors of a graph: input, filter, result; bias and residual, where they are; values between, from there on.
const NAMES: [i64; 3] = [1, 2, 3];
const BIAS: i64 = 4;
const RESIDUAL: i64 = 5;
const BETWEEN: i64 = 6;

/// `cudnnPointwiseMode_t`.
const ADD: i32 = 0;
const RELU: i32 = 100;
/// `CUDNN_PROPAGATE_NAN`.
const NAN_STAYS: i32 = 1;

/// `cudnnDataType_t` of elements; sums are floats.
fn data_type(data_type: DataType) -> Result<i32> {
    match data_type {
        DataType::Float => Ok(0),
        DataType::Half => Ok(2),
        DataType::Bfloat16 => Ok(9),
        other => Err(Error::unimplemented(format!("convolutions of {} by cuDNN", other.name()))),
    }
}

/// Numbers of cuDNN.
fn numbers(sizes: impl IntoIterator<Item = u64>) -> Result<Vec<i64>> {
    let number = |size| i64::try_from(size).ok().filter(|size| *size > 0);
    sizes.into_iter().map(number).collect::<Option<_>>().ok_or_else(|| Error::unimplemented("a convolution of no elements by cuDNN"))
}

/// A tensor of these sizes, batch and channels before the axes, whose elements lie in memory in the order of `outermost`.
fn tensor(cudnn: &Arc<Functions>, name: i64, sizes: &[i64], outermost: &[usize], of: i32) -> Result<Descriptor> {
    tensor_that(cudnn, (name, false), sizes, outermost, of)
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

/// An operation of floats on each element: of one tensor, or of two.
fn pointwise(cudnn: &Arc<Functions>, mode: i32, from: (&Descriptor, Option<&Descriptor>), to: &Descriptor) -> Result<Descriptor> {
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
    operation.descriptors(attribute::ON_EACH_FROM, &[from.0])?;
    if let Some(second) = from.1 {
        operation.descriptors(attribute::ON_EACH_SECOND, &[second])?;
    }
    operation.descriptors(attribute::ON_EACH_TO, &[to])?;
    operation.finish(what)
}

/// Elements that the last position sees behind those of the input and the padding before them.
fn behind(axis: &WindowAxis) -> u64 {
    let seen = (axis.positions.saturating_sub(1)).saturating_mul(axis.stride) + (axis.taps - 1).saturating_mul(axis.dilation) + 1;
    seen.saturating_sub(axis.size + axis.pad)
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

    /// The numbers of the tensors that are in memory: input, filter, result, then bias and residual where they are.
    pub(super) fn names(&self) -> Vec<i64> {
        let Finish { bias, residual, .. } = self.finish;
        NAMES.into_iter().chain(bias.then_some(BIAS)).chain(residual.then_some(RESIDUAL)).collect()
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
        if self.finish.is_some() && self.kind != ConvolutionKind::Forward {
            return Err(Error::unimplemented("what follows a gradient of a convolution, by cuDNN"));
        }
        let between = |number: i64| tensor_that(cudnn, (BETWEEN + number, true), &result, &order, 0);
        let whole = |name: i64| tensor(cudnn, name, &result, &order, of);
        let (x, w) = (tensor(cudnn, NAMES[0], &input, &input_order, of), tensor(cudnn, NAMES[1], &filter, &input_order, of));
        let y = if self.finish.is_some() { between(0)? } else { whole(NAMES[2])? };
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
        for (at, other) in [(2, &convolution), (3, &w?), (4, &x?), (5, &y)] {
            operation.descriptors(first + at, &[other])?;
        }
        let mut operations = vec![operation.finish("a convolution")?];
        let Finish { residual, bias, relu } = self.finish;
        let steps: Vec<(i32, Option<Descriptor>)> = [
            residual.then(|| Ok((ADD, Some(whole(RESIDUAL)?)))),
            bias.then(|| {
                let sizes = [vec![1, result[1]], vec![1; result.len() - 2]].concat();
                Ok((ADD, Some(tensor(cudnn, BIAS, &sizes, &order, of)?)))
            }),
            relu.then(|| Ok((RELU, None))),
        ]
        .into_iter()
        .flatten()
        .collect::<Result<_>>()?;
        let mut value = y;
        let count = steps.len();
        for (number, (mode, second)) in (1..).zip(steps) {
            let next = if number == count { whole(NAMES[2])? } else { between(number as i64)? };
            operations.push(pointwise(cudnn, mode, (&value, second.as_ref()), &next)?);
            value = next;
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
