//! Conv2D and its two gradients, channels last.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{NodeId, Output, PartialShape};
use plimsoll_request::KernelRequest;
use plimsoll_request::anchor::Anchor;
use plimsoll_request::conv::ConvSpec;
use plimsoll_request::pool::PoolSpec;

use super::window::{Window, complete, four_dims, require_floats, stated_dims, taken_over};
use crate::gradient::{Grad, from_one};
use crate::registry::Gradient;
use crate::{AnchorCall, Call, GraphBuilder, InferCx, KernelCx, Lower, OpRules};

/// The rules of Conv2D, Conv2DBackpropInput and Conv2DBackpropFilter.
pub const RULES: &[OpRules] = &[
    OpRules { name: "Conv2D", infer, lower: Lower::Anchor(forward), gradient: Gradient::Rule(gradient) },
    OpRules {
        name: "Conv2DBackpropInput",
        infer: infer_input,
        lower: Lower::Anchor(backprop_input),
        gradient: Gradient::Rule(gradient_of_input),
    },
    OpRules {
        name: "Conv2DBackpropFilter",
        infer: infer_filter,
        lower: Lower::Kernel(prepare_filter),
        gradient: Gradient::Rule(gradient_of_filter),
    },
];

/// Dimensions, as far as they are known.
type Dims = [Option<u64>; 4];

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let window = Window::of(&cx.node.op, cx.attrs())?;
    let input = four_dims(cx.shape(0), || format!("convolution input must be 4-dimensional: {}", cx.shape(0)))?;
    let filter = four_dims(cx.shape(1), || format!("convolution filter must be 4-dimensional: {}", cx.shape(1)))?;
    if filter[2] == Some(0) {
        return Err(Error::invalid_argument("filter depth must be stricly positive, got 0"));
    }
    if filter.contains(&Some(0)) {
        return Err(Error::invalid_argument("filter must not have zero elements (i.e. all dimensions must be non-zero)"));
    }
    if let (Some(channels), Some(depth)) = (input[3], filter[2]) {
        if !channels.is_multiple_of(depth) {
            return Err(Error::invalid_argument(format!("input depth must be evenly divisible by filter depth: {channels} vs {depth}")));
        }
        let groups = channels / depth;
        if let Some(results) = filter[3].filter(|results| groups > 0 && !results.is_multiple_of(groups)) {
            return Err(Error::invalid_argument(format!(
                "output depth must be evenly divisible by number of groups: {results} vs {groups}"
            )));
        }
    }
    let (rows, columns) = (window.positions(0, input[1], filter[0])?, window.positions(1, input[2], filter[1])?);
    cx.set_dims(0, vec![input[0], rows, columns, filter[3]]);
    Ok(())
}

/// Whether the three tensors of a gradient fit each other, as far as they are known.
fn check(label: &str, window: &Window, input: Dims, filter: Dims, results: Dims) -> Result<()> {
    let refuse = |what: String| Err(Error::invalid_argument(format!("{label}: {what}")));
    if let (Some(images), Some(actual)) = (input[0], results[0])
        && images != actual
    {
        return refuse(format!(
            "input and out_backprop must have the same batch size. Input batch: {images}, outbackprop batch: {actual}, batch_dim: 0"
        ));
    }
    if let (Some(channels), Some(depth)) = (input[3], filter[2])
        && (if depth == 0 { channels != 0 } else { !channels.is_multiple_of(depth) })
    {
        return refuse("input depth must be evenly divisible by filter depth".to_string());
    }
    if filter[3].zip(results[3]).is_some_and(|(filter, actual)| filter != actual) {
        return refuse("filter and out_backprop must have the same out_depth".to_string());
    }
    for axis in 0..2 {
        let (Some(size), Some(taps), Some(actual)) = (input[axis + 1], filter[axis], results[axis + 1]) else { continue };
        let computed = window.span(axis, size, taps)?.positions;
        if computed != actual {
            return refuse(format!(
                "Size of out_backprop doesn't match computed: actual = {actual}, computed = {computed} spatial_dim: {} \
                 input: {size} filter: {taps} output: {actual} stride: {} dilation: {}",
                axis + 1,
                window.strides[axis],
                window.dilations[axis]
            ));
        }
    }
    Ok(())
}

fn operand(label: &str, name: &str, shape: &PartialShape) -> Result<Dims> {
    four_dims(shape, || format!("{label}: {name} must be 4-dimensional"))
}

fn infer_input(cx: &mut InferCx<'_>) -> Result<()> {
    const LABEL: &str = "Conv2DCustomBackpropInput";
    let window = Window::of(&cx.node.op, cx.attrs())?;
    let (filter, results) = (operand(LABEL, "filter", cx.shape(1))?, operand(LABEL, "out_backprop", cx.shape(2))?);
    // Two values are rows and columns; the images are those of the results, and the channels the filter's.
    let mut input = if cx.vector_len(0) == Some(2) {
        let sizes = cx.ints(0).map(|ints| crate::infer::shape_of_ints(&ints)).transpose()?;
        match sizes.and_then(|sizes| sizes.0).as_deref() {
            Some(&[rows, columns]) => [results[0], rows, columns, filter[2]],
            _ => [results[0], None, None, filter[2]],
        }
    } else {
        stated_dims(cx, 0, |count| format!("Conv2DBackpropInput requires input_sizes to contain 4 values or 2 values, but got: {count}"))?
    };
    check(LABEL, &window, input, filter, results)?;
    input[0] = input[0].or(results[0]);
    cx.set_dims(0, input.to_vec());
    Ok(())
}

fn infer_filter(cx: &mut InferCx<'_>) -> Result<()> {
    const LABEL: &str = "Conv2DCustomBackpropFilter";
    let window = Window::of(&cx.node.op, cx.attrs())?;
    let (input, results) = (operand(LABEL, "input", cx.shape(0))?, operand(LABEL, "out_backprop", cx.shape(2))?);
    let mut filter = stated_dims(cx, 1, |_| format!("{LABEL}: filter must be 4-dimensional"))?;
    check(LABEL, &window, input, filter, results)?;
    filter[3] = filter[3].or(results[3]);
    cx.set_dims(0, filter.to_vec());
    Ok(())
}

/// The sizes of a convolution from the shapes of its input, its filter and its result.
fn spec(cx: &KernelCx<'_>, input: [u64; 4], filter: [u64; 4], results: [u64; 4]) -> Result<ConvSpec> {
    require_floats(cx)?;
    let window = Window::of(&cx.node.op, cx.attrs())?;
    check(&cx.node.op, &window, input.map(Some), filter.map(Some), results.map(Some))?;
    if input[3] != filter[2] {
        return Err(Error::unimplemented(format!("not yet: {} of channels in groups", cx.node.op)));
    }
    window.conv_spec(input, filter, results)
}

fn forward(cx: &KernelCx<'_>) -> Result<AnchorCall> {
    let [input, filter] = [0, 1].map(|index| complete(&cx.inputs[index].shape));
    let spec = spec(cx, input?, filter?, complete(&cx.outputs[0].shape)?)?;
    Ok(AnchorCall { anchor: Anchor::Conv2D(spec), inputs: [0, 1] })
}

fn backprop_input(cx: &KernelCx<'_>) -> Result<AnchorCall> {
    let [filter, results] = [1, 2].map(|index| complete(&cx.inputs[index].shape));
    let spec = spec(cx, complete(&cx.outputs[0].shape)?, filter?, results?)?;
    Ok(AnchorCall { anchor: Anchor::Conv2DBackpropInput(spec), inputs: [1, 2] })
}

fn prepare_filter(cx: &KernelCx<'_>) -> Result<Call> {
    let [input, results] = [0, 2].map(|index| complete(&cx.inputs[index].shape));
    let spec = spec(cx, input?, complete(&cx.outputs[0].shape)?, results?)?;
    Ok(Call::new(KernelRequest::Conv2DBackpropFilter { spec, unpooled: None }, [0, 2]))
}

/// Conv2DBackpropFilter where the gradient by the result is that of MaxPoolGrad, which need not be made for it. Arguments: input, the pooling's positions, the gradient by the pooling's result. None where
/// the pooling is another one.
///
/// # Errors
/// As Conv2DBackpropFilter.
pub fn filter_of_unpooled(cx: &KernelCx<'_>, pool: PoolSpec) -> Result<Option<Call>> {
    let [input, results] = [0, 2].map(|index| complete(&cx.inputs[index].shape));
    let spec = spec(cx, input?, complete(&cx.outputs[0].shape)?, results?)?;
    if pool.input() != spec.output() {
        return Ok(None);
    }
    Ok(Some(Call::new(KernelRequest::Conv2DBackpropFilter { spec, unpooled: Some(pool) }, [0])))
}

/// A convolution or gradient that slides as the node at hand does.
fn like(g: &mut Grad<'_>, op: &str, inputs: &[Output]) -> Result<Option<Output>> {
    let names = ["strides", "padding", "explicit_paddings", "data_format", "dilations", "use_cudnn_on_gpu"];
    let attrs = taken_over(g.attrs(), &names);
    g.op_with(op, inputs, &attrs).map(Some)
}

fn gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, dy| {
        let (input, filter) = (g.input(0), g.input(1));
        let (input_sizes, filter_sizes) = (g.shape(input)?, g.shape(filter)?);
        Ok(vec![like(g, "Conv2DBackpropInput", &[input_sizes, filter, dy])?, like(g, "Conv2DBackpropFilter", &[input, filter_sizes, dy])?])
    })
}

fn gradient_of_input(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, dy| {
        let (filter, results) = (g.input(1), g.input(2));
        let sizes = g.shape(filter)?;
        Ok(vec![None, like(g, "Conv2DBackpropFilter", &[dy, sizes, results])?, like(g, "Conv2D", &[dy, filter])?])
    })
}

fn gradient_of_filter(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, dy| {
        let (input, results) = (g.input(0), g.input(2));
        let sizes = g.shape(input)?;
        Ok(vec![like(g, "Conv2DBackpropInput", &[sizes, dy, results])?, None, like(g, "Conv2D", &[input, dy])?])
    })
}
