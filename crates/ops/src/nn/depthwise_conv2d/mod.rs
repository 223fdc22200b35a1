//! DepthwiseConv2dNative and its two gradients: each channel by itself, channels last.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{NodeId, Output, PartialShape, Shape};
use plimsoll_request::KernelRequest;
use plimsoll_request::anchor::Anchor;
use plimsoll_request::conv::ConvSpec;
use plimsoll_request::window::Layout;

mod fusion;

pub use fusion::FUSIONS;

use super::layout::{channels_last, laid_out};
use super::window::{Images, Window, floats_or_doubles, taken_over};
use crate::gradient::{Grad, from_one};
use crate::registry::Gradient;
use crate::{GraphBuilder, InferCx, KernelCx, Lower, Meta, OpRules, Recipe};

/// The rules of DepthwiseConv2dNative, DepthwiseConv2dNativeBackpropInput and DepthwiseConv2dNativeBackpropFilter.
pub const RULES: &[OpRules] = &[
    OpRules { name: "DepthwiseConv2dNative", infer, lower: Lower::Recipe(forward), gradient: Gradient::Rule(gradient) },
    OpRules {
        name: "DepthwiseConv2dNativeBackpropInput",
        infer: infer_input,
        lower: Lower::Recipe(prepare_input),
        gradient: Gradient::Rule(gradient_of_input),
    },
    OpRules {
        name: "DepthwiseConv2dNativeBackpropFilter",
        infer: infer_filter,
        lower: Lower::Recipe(prepare_filter),
        gradient: Gradient::Rule(gradient_of_filter),
    },
];

/// A tensor of images, as far as its shape is known.
type Known = Images<Option<u64>>;
/// The dimensions of a filter, as far as they are known.
type Filter = [Option<u64>; 4];

/// The strides and padding; strides of rows and columns must be equal.
fn window(op: &str, attrs: &plimsoll_graph::Attrs) -> Result<Window> {
    let window = Window::of(op, attrs)?;
    let &[rows, columns] = &window.strides[..] else {
        return Err(Error::invalid_argument(format!("{op} along {} axes", window.rank())));
    };
    if rows != columns {
        let words = "Current implementation only supports equal length strides in the row and column dimensions.";
        return Err(Error::invalid_argument(words));
    }
    Ok(window)
}

/// Channels of the result: those of the input times the filter's multiplier.
fn channels(filter: Filter) -> Result<Option<u64>> {
    let (Some(depth), Some(multiplier)) = (filter[2], filter[3]) else { return Ok(None) };
    let product = depth.checked_mul(multiplier);
    product.map(Some).ok_or_else(|| Error::invalid_argument(format!("{depth} channels times {multiplier} are too many")))
}

/// The dimensions of a filter; the window has two axes.
fn filter_of(dims: &[Option<u64>]) -> Result<Filter> {
    dims.try_into().map_err(|_| Error::invalid_argument("a filter of other than four dimensions"))
}

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let window = window(&cx.node.op, cx.attrs())?;
    let input = window.images(cx.shape(0), || format!("input must be 4-dimensional{}", cx.shape(0)))?;
    let mut filter = filter_of(&window.dims(cx.shape(1), || format!("filter must be 4-dimensional: {}", cx.shape(1)))?)?;
    if let (Some(channels), Some(depth)) = (input.channels, filter[2])
        && channels != depth
    {
        return Err(Error::invalid_argument(format!("input and filter must have the same depth: {channels} vs {depth}")));
    }
    filter[2] = filter[2].or(input.channels);
    let sizes = window.all_positions(&input.sizes, &filter[..2])?;
    cx.set_dims(0, Images { batch: input.batch, sizes, channels: channels(filter)? }.shape(window.layout));
    Ok(())
}

/// Whether the three tensors of a gradient fit each other, as far as they are known.
fn check(label: &str, window: &Window, input: &Known, filter: Filter, results: &Known) -> Result<()> {
    let refuse = |what: &str| Err(Error::invalid_argument(format!("{label}: {what}")));
    let differ = |a: Option<u64>, b: Option<u64>| a.zip(b).is_some_and(|(a, b)| a != b);
    if differ(input.batch, results.batch) {
        return refuse("input and out_backprop must have the same batch size");
    }
    if differ(input.channels, filter[2]) {
        return refuse("input and filter must have the same in_depth");
    }
    if differ(channels([None, None, filter[2].or(input.channels), filter[3]])?, results.channels) {
        return refuse("depth_multiplier * in_depth not equal to out_depth");
    }
    for (axis, name) in ["rows", "cols"].into_iter().enumerate() {
        let (Some(size), Some(taps), Some(actual)) = (input.sizes[axis], filter[axis], results.sizes[axis]) else { continue };
        let computed = window.span(axis, size, taps)?.positions;
        if computed != actual {
            return refuse(&format!("Number of {name} of out_backprop doesn't match computed: actual = {actual}, computed = {computed}"));
        }
    }
    Ok(())
}

fn operand(label: &str, window: &Window, name: &str, shape: &PartialShape) -> Result<Vec<Option<u64>>> {
    window.dims(shape, || format!("{label}: {name} must be 4-dimensional"))
}

fn infer_input(cx: &mut InferCx<'_>) -> Result<()> {
    const LABEL: &str = "DepthwiseConv2DBackpropInput";
    let window = window(&cx.node.op, cx.attrs())?;
    let filter = filter_of(&operand(LABEL, &window, "filter", cx.shape(1))?)?;
    let results = window.images_of(&operand(LABEL, &window, "out_backprop", cx.shape(2))?)?;
    let mut input = window.images_of(&window.stated_dims(cx, 0, |_| format!("{LABEL}: input must be 4-dimensional"))?)?;
    check(LABEL, &window, &input, filter, &results)?;
    input.batch = input.batch.or(results.batch);
    input.channels = input.channels.or(filter[2]);
    cx.set_dims(0, input.shape(window.layout));
    Ok(())
}

fn infer_filter(cx: &mut InferCx<'_>) -> Result<()> {
    const LABEL: &str = "DepthwiseConv2DBackpropFilter";
    let window = window(&cx.node.op, cx.attrs())?;
    let input = window.images_of(&operand(LABEL, &window, "input", cx.shape(0))?)?;
    let results = window.images_of(&operand(LABEL, &window, "out_backprop", cx.shape(2))?)?;
    let mut filter = filter_of(&window.stated_dims(cx, 1, |_| format!("{LABEL}: filter must be 4-dimensional"))?)?;
    check(LABEL, &window, &input, filter, &results)?;
    filter[2] = filter[2].or(input.channels);
    cx.set_dims(0, filter.to_vec());
    Ok(())
}

/// The sizes of a convolution from the shapes of its input, its filter and its result.
fn spec(cx: &KernelCx<'_>, [input, filter, results]: [&Shape; 3]) -> Result<ConvSpec> {
    let data_type = floats_or_doubles(cx)?;
    let window = window(&cx.node.op, cx.attrs())?;
    let (input, filter, results) = (window.complete_images(input)?, window.complete(filter)?, window.complete_images(results)?);
    let filter_dims = filter_of(&filter.iter().copied().map(Some).collect::<Vec<_>>())?;
    check(&cx.node.op, &window, &input.known(), filter_dims, &results.known())?;
    window.conv_spec(data_type, &input, &filter, &results, true)
}

fn forward(cx: &KernelCx<'_>) -> Result<Recipe> {
    let spec = spec(cx, [&cx.inputs[0].shape, &cx.inputs[1].shape, &cx.outputs[0].shape])?;
    let mut recipe = Recipe::new();
    let (input, filter) = (recipe.input(cx, 0), recipe.input(cx, 1));
    let input = channels_last(&mut recipe, &input, spec.layout)?;
    let last = ConvSpec { layout: Layout::ChannelsLast, ..spec };
    let result = recipe.anchor(Anchor::DepthwiseConv(last), [input, filter], last.output());
    let result = laid_out(&mut recipe, &result, spec.layout)?;
    Ok(recipe.finish([result]))
}

fn prepare_input(cx: &KernelCx<'_>) -> Result<Recipe> {
    let spec = spec(cx, [&cx.outputs[0].shape, &cx.inputs[1].shape, &cx.inputs[2].shape])?;
    let mut recipe = Recipe::new();
    let (filter, gradient) = (recipe.input(cx, 1), recipe.input(cx, 2));
    let gradient = channels_last(&mut recipe, &gradient, spec.layout)?;
    let last = ConvSpec { layout: Layout::ChannelsLast, ..spec };
    let meta = Meta { data_type: spec.data_type, shape: last.input().into() };
    let result = recipe.one(KernelRequest::DepthwiseConvBackpropInput(last), [filter, gradient], meta);
    let result = laid_out(&mut recipe, &result, spec.layout)?;
    Ok(recipe.finish([result]))
}

fn prepare_filter(cx: &KernelCx<'_>) -> Result<Recipe> {
    let spec = spec(cx, [&cx.inputs[0].shape, &cx.outputs[0].shape, &cx.inputs[2].shape])?;
    let mut recipe = Recipe::new();
    let images = [recipe.input(cx, 0), recipe.input(cx, 2)];
    let images = images.iter().map(|images| channels_last(&mut recipe, images, spec.layout)).collect::<Result<Vec<_>>>()?;
    let last = ConvSpec { layout: Layout::ChannelsLast, ..spec };
    let result = recipe.one(KernelRequest::DepthwiseConvBackpropFilter(last), images, cx.outputs[0].clone());
    Ok(recipe.finish([result]))
}

/// A convolution or gradient that slides as the node at hand does.
fn like(g: &mut Grad<'_>, op: &str, inputs: &[Output]) -> Result<Option<Output>> {
    let attrs = taken_over(g.attrs(), &["strides", "padding", "explicit_paddings", "data_format", "dilations"]);
    g.op_with(op, inputs, &attrs).map(Some)
}

fn gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, dy| {
        let (input, filter) = (g.input(0), g.input(1));
        let (input_sizes, filter_sizes) = (g.shape(input)?, g.shape(filter)?);
        Ok(vec![
            like(g, "DepthwiseConv2dNativeBackpropInput", &[input_sizes, filter, dy])?,
            like(g, "DepthwiseConv2dNativeBackpropFilter", &[input, filter_sizes, dy])?,
        ])
    })
}

fn gradient_of_input(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, dy| {
        let (filter, results) = (g.input(1), g.input(2));
        let sizes = g.shape(filter)?;
        let to_filter = like(g, "DepthwiseConv2dNativeBackpropFilter", &[dy, sizes, results])?;
        Ok(vec![None, to_filter, like(g, "DepthwiseConv2dNative", &[dy, filter])?])
    })
}

fn gradient_of_filter(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, dy| {
        let (input, results) = (g.input(0), g.input(2));
        let sizes = g.shape(input)?;
        let to_input = like(g, "DepthwiseConv2dNativeBackpropInput", &[sizes, dy, results])?;
        Ok(vec![to_input, None, like(g, "DepthwiseConv2dNative", &[input, dy])?])
    })
}
