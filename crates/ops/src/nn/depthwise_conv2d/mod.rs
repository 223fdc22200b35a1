//! DepthwiseConv2dNative and its two gradients: each channel by itself, channels last.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{NodeId, Output, PartialShape};
use plimsoll_request::KernelRequest;
use plimsoll_request::anchor::Anchor;
use plimsoll_request::conv::ConvSpec;

use super::window::{Window, complete, four_dims, require_floats, stated_dims, taken_over};
use crate::gradient::{Grad, from_one};
use crate::registry::Gradient;
use crate::{AnchorCall, Call, GraphBuilder, InferCx, KernelCx, Lower, OpRules};

/// The rules of DepthwiseConv2dNative, DepthwiseConv2dNativeBackpropInput and DepthwiseConv2dNativeBackpropFilter.
pub const RULES: &[OpRules] = &[
    OpRules { name: "DepthwiseConv2dNative", infer, lower: Lower::Anchor(forward), gradient: Gradient::Rule(gradient) },
    OpRules {
        name: "DepthwiseConv2dNativeBackpropInput",
        infer: infer_input,
        lower: Lower::Kernel(prepare_input),
        gradient: Gradient::Rule(gradient_of_input),
    },
    OpRules {
        name: "DepthwiseConv2dNativeBackpropFilter",
        infer: infer_filter,
        lower: Lower::Kernel(prepare_filter),
        gradient: Gradient::Rule(gradient_of_filter),
    },
];

/// Dimensions, as far as they are known.
type Dims = [Option<u64>; 4];

/// The strides and padding; strides of rows and columns must be equal.
fn window(op: &str, attrs: &plimsoll_graph::Attrs) -> Result<Window> {
    let window = Window::of(op, attrs)?;
    if window.strides[0] != window.strides[1] {
        let words = "Current implementation only supports equal length strides in the row and column dimensions.";
        return Err(Error::invalid_argument(words));
    }
    Ok(window)
}

/// Channels of the result: those of the input times the filter's multiplier.
fn channels(filter: Dims) -> Result<Option<u64>> {
    let (Some(depth), Some(multiplier)) = (filter[2], filter[3]) else { return Ok(None) };
    let product = depth.checked_mul(multiplier);
    product.map(Some).ok_or_else(|| Error::invalid_argument(format!("{depth} channels times {multiplier} are too many")))
}

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let window = window(&cx.node.op, cx.attrs())?;
    let input = four_dims(cx.shape(0), || format!("input must be 4-dimensional{}", cx.shape(0)))?;
    let mut filter = four_dims(cx.shape(1), || format!("filter must be 4-dimensional: {}", cx.shape(1)))?;
    if let (Some(channels), Some(depth)) = (input[3], filter[2])
        && channels != depth
    {
        return Err(Error::invalid_argument(format!("input and filter must have the same depth: {channels} vs {depth}")));
    }
    filter[2] = filter[2].or(input[3]);
    let (rows, columns) = (window.positions(0, input[1], filter[0])?, window.positions(1, input[2], filter[1])?);
    cx.set_dims(0, vec![input[0], rows, columns, channels(filter)?]);
    Ok(())
}

/// Whether the three tensors of a gradient fit each other, as far as they are known.
fn check(label: &str, window: &Window, input: Dims, filter: Dims, results: Dims) -> Result<()> {
    let refuse = |what: &str| Err(Error::invalid_argument(format!("{label}: {what}")));
    let differ = |a: Option<u64>, b: Option<u64>| a.zip(b).is_some_and(|(a, b)| a != b);
    if differ(input[0], results[0]) {
        return refuse("input and out_backprop must have the same batch size");
    }
    if differ(input[3], filter[2]) {
        return refuse("input and filter must have the same in_depth");
    }
    if differ(channels([None, None, filter[2].or(input[3]), filter[3]])?, results[3]) {
        return refuse("depth_multiplier * in_depth not equal to out_depth");
    }
    for (axis, name) in ["rows", "cols"].into_iter().enumerate() {
        let (Some(size), Some(taps), Some(actual)) = (input[axis + 1], filter[axis], results[axis + 1]) else { continue };
        let computed = window.span(axis, size, taps)?.positions;
        if computed != actual {
            return refuse(&format!("Number of {name} of out_backprop doesn't match computed: actual = {actual}, computed = {computed}"));
        }
    }
    Ok(())
}

fn operand(label: &str, name: &str, shape: &PartialShape) -> Result<Dims> {
    four_dims(shape, || format!("{label}: {name} must be 4-dimensional"))
}

fn infer_input(cx: &mut InferCx<'_>) -> Result<()> {
    const LABEL: &str = "DepthwiseConv2DBackpropInput";
    let window = window(&cx.node.op, cx.attrs())?;
    let (filter, results) = (operand(LABEL, "filter", cx.shape(1))?, operand(LABEL, "out_backprop", cx.shape(2))?);
    let mut input = stated_dims(cx, 0, |_| format!("{LABEL}: input must be 4-dimensional"))?;
    check(LABEL, &window, input, filter, results)?;
    input[0] = input[0].or(results[0]);
    input[3] = input[3].or(filter[2]);
    cx.set_dims(0, input.to_vec());
    Ok(())
}

fn infer_filter(cx: &mut InferCx<'_>) -> Result<()> {
    const LABEL: &str = "DepthwiseConv2DBackpropFilter";
    let window = window(&cx.node.op, cx.attrs())?;
    let (input, results) = (operand(LABEL, "input", cx.shape(0))?, operand(LABEL, "out_backprop", cx.shape(2))?);
    let mut filter = stated_dims(cx, 1, |_| format!("{LABEL}: filter must be 4-dimensional"))?;
    check(LABEL, &window, input, filter, results)?;
    filter[2] = filter[2].or(input[3]);
    cx.set_dims(0, filter.to_vec());
    Ok(())
}

/// The sizes of a convolution from the shapes of its input, its filter and its result.
fn spec(cx: &KernelCx<'_>, input: [u64; 4], filter: [u64; 4], results: [u64; 4]) -> Result<ConvSpec> {
    require_floats(cx)?;
    let window = window(&cx.node.op, cx.attrs())?;
    check(&cx.node.op, &window, input.map(Some), filter.map(Some), results.map(Some))?;
    window.conv_spec(input, filter, results)
}

fn forward(cx: &KernelCx<'_>) -> Result<AnchorCall> {
    let [input, filter] = [0, 1].map(|index| complete(&cx.inputs[index].shape));
    let spec = spec(cx, input?, filter?, complete(&cx.outputs[0].shape)?)?;
    Ok(AnchorCall { anchor: Anchor::DepthwiseConv2D(spec), inputs: [0, 1] })
}

fn prepare_input(cx: &KernelCx<'_>) -> Result<Call> {
    let [filter, results] = [1, 2].map(|index| complete(&cx.inputs[index].shape));
    let spec = spec(cx, complete(&cx.outputs[0].shape)?, filter?, results?)?;
    Ok(Call::new(KernelRequest::DepthwiseConv2DBackpropInput(spec), [1, 2]))
}

fn prepare_filter(cx: &KernelCx<'_>) -> Result<Call> {
    let [input, results] = [0, 2].map(|index| complete(&cx.inputs[index].shape));
    let spec = spec(cx, input?, complete(&cx.outputs[0].shape)?, results?)?;
    Ok(Call::new(KernelRequest::DepthwiseConv2DBackpropFilter(spec), [0, 2]))
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
