//! FusedBatchNorm and FusedBatchNormGrad in their three versions.
//!
//! The reserved outputs are those of TensorFlow's CPU kernels: 1 and 2 are the batch's mean and variance (0 where TensorFlow leaves
//! them unwritten: with given statistics, or without rows), 3 is a scalar 0, and those of the gradients have no elements.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{AttrValue, Attrs, AttrsExt, NodeId, Output, PartialShape};
use plimsoll_request::KernelRequest;
use plimsoll_request::norm::BatchNormSpec;
use plimsoll_request::window::Layout;

use super::layout::{channels_last, laid_out};
use super::window::{floats, taken_over};
use crate::gradient::from_one;
use crate::infer::merge_shapes;
use crate::registry::Gradient;
use crate::{GraphBuilder, InferCx, KernelCx, Lower, OpRules, Recipe};

mod fusion;

pub use fusion::FUSIONS;

/// The rules of FusedBatchNorm and FusedBatchNormGrad, V1 to V3.
pub const RULES: &[OpRules] = &[
    forward("FusedBatchNorm"),
    forward("FusedBatchNormV2"),
    forward("FusedBatchNormV3"),
    backward("FusedBatchNormGrad"),
    backward("FusedBatchNormGradV2"),
    backward("FusedBatchNormGradV3"),
];

const fn forward(name: &'static str) -> OpRules {
    OpRules { name, infer, lower: Lower::Recipe(prepare), gradient: Gradient::Rule(gradient) }
}

const fn backward(name: &'static str) -> OpRules {
    OpRules { name, infer: infer_grad, lower: Lower::Recipe(prepare_grad), gradient: Gradient::Unknown }
}

/// Where channels are.
fn layout(op: &str, attrs: &Attrs) -> Result<Layout> {
    match attrs.text("data_format")? {
        "NHWC" | "NDHWC" => Ok(Layout::ChannelsLast),
        "NCHW" | "NCDHW" => Ok(Layout::ChannelsFirst),
        format => Err(Error::unimplemented(format!("not yet: {op} with data_format {format}"))),
    }
}

fn channel_axis(layout: Layout, rank: usize) -> usize {
    match layout {
        Layout::ChannelsLast => rank - 1,
        Layout::ChannelsFirst => 1,
    }
}

/// The shape of images at input `index` (4 or 5 dimensions), as far as it is known, and their channels.
fn images(cx: &InferCx<'_>, index: usize) -> Result<(PartialShape, Option<u64>)> {
    let layout = layout(&cx.node.op, cx.attrs())?;
    let shape = cx.shape(index);
    match shape.0.as_deref() {
        None => Ok((shape.clone(), None)),
        Some(dims) if matches!(dims.len(), 4 | 5) => Ok((shape.clone(), dims[channel_axis(layout, dims.len())])),
        Some(_) => Err(Error::invalid_argument(format!("input must be 4 or 5-dimensional{shape}"))),
    }
}

/// The channels, with the number of the vector at input `index`. It has to have a number for each where `all`.
fn vector(cx: &InferCx<'_>, index: usize, names: [&str; 2], channels: Option<u64>, all: bool, when: &str) -> Result<Option<u64>> {
    let [tensor, name] = names;
    let size = match cx.dims(index) {
        None => return Ok(channels),
        Some(&[size]) => size,
        Some(_) => return Err(Error::invalid_argument(format!("{tensor} must be 1-dimensional{}", cx.shape(index)))),
    };
    match (size, channels) {
        _ if !all => Ok(channels),
        (Some(size), Some(channels)) if size != channels => Err(Error::invalid_argument(format!(
            "{when}{name} must have the same number of elements as the channels of x, got {size} and {channels}"
        ))),
        _ => Ok(channels.or(size)),
    }
}

/// `shape` with that many channels.
fn with_channels(cx: &InferCx<'_>, shape: PartialShape, channels: Option<u64>) -> Result<PartialShape> {
    let (mut shape, layout) = (shape, layout(&cx.node.op, cx.attrs())?);
    if let Some(dims) = shape.0.as_mut().filter(|dims| dims.len() > 1) {
        let axis = channel_axis(layout, dims.len());
        dims[axis] = channels;
    }
    Ok(shape)
}

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let (shape, channels) = images(cx, 0)?;
    let training = cx.attrs().bool("is_training")?;
    let (all, when) = match training {
        true => (cx.attrs().float("exponential_avg_factor")? != 1.0, "When exponential_avg_factor != 1, "),
        false => (true, "When is_training=false, "),
    };
    let mut channels = channels;
    // First an input that is no vector, as TensorFlow's kernel.
    let names = [["scale"; 2], ["offset"; 2], ["estimated_mean", "mean"], ["estimated_variance", "variance"]];
    for (index, names) in names.into_iter().enumerate() {
        vector(cx, index + 1, names, None, false, "")?;
    }
    for (index, names) in names.into_iter().enumerate() {
        let given = index >= 2;
        channels = vector(cx, index + 1, names, channels, !given || all, if given { when } else { "" })?;
    }
    cx.set(0, with_channels(cx, shape, channels)?);
    for index in 1..5 {
        cx.set_dims(index, vec![channels]);
    }
    if cx.outputs.len() > 5 {
        cx.set_dims(5, Vec::new());
    }
    Ok(())
}

fn infer_grad(cx: &mut InferCx<'_>) -> Result<()> {
    let (by_y, _) = images(cx, 0)?;
    let (x, _) = images(cx, 1)?;
    let words = || format!("x and y_backprop must have same shape, but x has shape {x} and y_backprop has shape {by_y}");
    let shape = merge_shapes(&x, &by_y).map_err(|_| Error::invalid_argument(words()))?;
    let layout = layout(&cx.node.op, cx.attrs())?;
    let mut channels = shape.0.as_ref().and_then(|dims| dims[channel_axis(layout, dims.len())]);
    let names = [["scale"; 2], ["saved mean", "reserve_space_1"], ["saved variance", "reserve_space_2"]];
    for (index, names) in names.into_iter().enumerate() {
        vector(cx, index + 2, names, None, false, "")?;
    }
    for (index, names) in names.into_iter().enumerate() {
        channels = vector(cx, index + 2, names, channels, true, "")?;
    }
    cx.set(0, with_channels(cx, shape, channels)?);
    for index in [1, 2] {
        cx.set_dims(index, vec![channels]);
    }
    for index in [3, 4] {
        cx.set_dims(index, vec![Some(0)]);
    }
    Ok(())
}

/// The sizes of the output, and the numbers of the attributes.
fn spec(cx: &KernelCx<'_>) -> Result<BatchNormSpec> {
    let data_type = floats(cx)?;
    if let Some(other) = cx.inputs.iter().find(|input| ![DataType::Float, data_type].contains(&input.data_type)) {
        return Err(Error::unimplemented(format!("not yet: {} of {}", cx.node.op, other.data_type)));
    }
    let shape = &cx.outputs[0].shape;
    let mut positions = shape.to_vec();
    if positions.len() < 2 {
        return Err(Error::invalid_argument("images must have channels"));
    }
    let channels = positions.remove(channel_axis(layout(&cx.node.op, cx.attrs())?, positions.len()));
    let rows = positions.iter().try_fold(1u64, |rows, size| rows.checked_mul(*size));
    let rows = if positions.contains(&0) { Some(0) } else { rows };
    let attrs = cx.attrs();
    let forward = attrs.contains_key("exponential_avg_factor");
    Ok(BatchNormSpec {
        data_type,
        rows: rows.ok_or_else(|| Error::invalid_argument(format!("the shape {shape} has too many elements")))?,
        channels,
        epsilon: attrs.float("epsilon")?,
        exponential_avg_factor: if forward { attrs.float("exponential_avg_factor")? } else { 1.0 },
    })
}

fn prepare(cx: &KernelCx<'_>) -> Result<Recipe> {
    let (spec, reserve_3) = (spec(cx)?, cx.outputs.len() > 5);
    let training = cx.attrs().bool("is_training")?;
    on_images(cx, KernelRequest::BatchNorm { spec, training, reserve_3, summed: false, epilogue: None }, 1)
}

/// The request on the first five inputs, of which so many are images. The first output is.
fn on_images(cx: &KernelCx<'_>, request: KernelRequest, images: usize) -> Result<Recipe> {
    let layout = layout(&cx.node.op, cx.attrs())?;
    let mut recipe = Recipe::new();
    let mut inputs = Vec::with_capacity(5);
    for index in 0..5 {
        let input = recipe.input(cx, index);
        inputs.push(if index < images { channels_last(&mut recipe, &input, layout)? } else { input });
    }
    let mut outputs = cx.outputs.to_vec();
    outputs[0].shape = inputs[0].meta.shape.clone();
    let mut results = recipe.request(request, inputs, outputs);
    results[0] = laid_out(&mut recipe, &results[0], layout)?;
    Ok(recipe.finish(results))
}

fn prepare_grad(cx: &KernelCx<'_>) -> Result<Recipe> {
    let spec = spec(cx)?;
    let training = cx.attrs().bool("is_training")?;
    on_images(cx, KernelRequest::BatchNormGrad { spec, training, relu: false }, 2)
}

/// The gradients by x, scale and offset; none by mean and variance, as in TensorFlow. Gradients that depend on the other outputs
/// are not looked at.
fn gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, dy| {
        let training = g.attrs().bool("is_training")?;
        let op = match g.op_name() {
            "FusedBatchNorm" => "FusedBatchNormGrad",
            "FusedBatchNormV2" => "FusedBatchNormGradV2",
            _ => "FusedBatchNormGradV3",
        };
        let [mean, variance] = if training { [g.output(3), g.output(4)] } else { [g.input(3), g.input(4)] };
        let mut inputs = vec![dy, g.input(0), g.input(1), mean, variance];
        if op == "FusedBatchNormGradV3" {
            inputs.push(g.output(5));
        }
        let attrs: Vec<(&str, AttrValue)> = taken_over(g.attrs(), &["epsilon", "data_format", "is_training"]);
        let dx = g.op_with(op, &inputs, &attrs)?;
        let others = [1, 2].map(|index| Some(Output { node: dx.node, index }));
        Ok(vec![Some(dx), others[0], others[1], None, None])
    })
}
