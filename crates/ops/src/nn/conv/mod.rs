//! Convolutions along two and three axes, and their two gradients.

mod fusion;
mod words;

use plimsoll_base::{Error, Result};
use plimsoll_graph::{NodeId, Output, PartialShape, Shape};
use plimsoll_request::KernelRequest;
use plimsoll_request::anchor::Anchor;
use plimsoll_request::conv::ConvSpec;
use plimsoll_request::window::Layout;

use super::layout::{channels_last, laid_out};
use super::window::{Images, Window, floats_or_doubles, taken_over};
use crate::gradient::{Grad, from_one};
use crate::registry::Gradient;
use crate::{GraphBuilder, InferCx, KernelCx, Lower, OpRules, Recipe};
use words::Words;

const fn forward_rule(name: &'static str) -> OpRules {
    OpRules { name, infer, lower: Lower::Recipe(forward), gradient: Gradient::Rule(gradient) }
}

const fn input_rule(name: &'static str) -> OpRules {
    OpRules { name, infer: infer_input, lower: Lower::Recipe(backprop_input), gradient: Gradient::Rule(gradient_of_input) }
}

const fn filter_rule(name: &'static str) -> OpRules {
    OpRules { name, infer: infer_filter, lower: Lower::Recipe(prepare_filter), gradient: Gradient::Rule(gradient_of_filter) }
}

pub use fusion::FUSIONS;

/// The rules of convolutions and their gradients.
pub const RULES: &[OpRules] = &[
    forward_rule("Conv2D"),
    input_rule("Conv2DBackpropInput"),
    filter_rule("Conv2DBackpropFilter"),
    forward_rule("Conv3D"),
    input_rule("Conv3DBackpropInputV2"),
    filter_rule("Conv3DBackpropFilterV2"),
];

/// The names of a convolution and of its gradients by input and filter.
fn names(op: &str) -> [&'static str; 3] {
    match op.starts_with("Conv3D") {
        false => ["Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter"],
        true => ["Conv3D", "Conv3DBackpropInputV2", "Conv3DBackpropFilterV2"],
    }
}

/// A tensor of images, as far as its shape is known.
type Known = Images<Option<u64>>;

/// A filter, as far as its shape is known.
struct Filter {
    taps: Vec<Option<u64>>,
    in_c: Option<u64>,
    out_c: Option<u64>,
}

impl Filter {
    /// Of dimensions of which there are as many as the window says.
    fn of(dims: &[Option<u64>]) -> Result<Filter> {
        match dims {
            [taps @ .., in_c, out_c] => Ok(Filter { taps: taps.to_vec(), in_c: *in_c, out_c: *out_c }),
            _ => Err(Error::invalid_argument("a filter of less than two dimensions")),
        }
    }

    fn shape(self) -> Vec<Option<u64>> {
        self.taps.into_iter().chain([self.in_c, self.out_c]).collect()
    }
}

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let window = Window::of(&cx.node.op, cx.attrs())?;
    let words = Words::of(&window, &cx.node.op);
    let input = window.images(cx.shape(0), || words.input_rank(cx.shape(0)))?;
    let dims = window.dims(cx.shape(1), || words.filter_rank(cx.shape(1)))?;
    let filter = Filter::of(&dims)?;
    if filter.in_c == Some(0) {
        return Err(Error::invalid_argument(words.no_depth()));
    }
    if dims.contains(&Some(0)) {
        return Err(Error::invalid_argument("filter must not have zero elements (i.e. all dimensions must be non-zero)"));
    }
    if let (Some(channels), Some(depth)) = (input.channels, filter.in_c) {
        if !channels.is_multiple_of(depth) {
            return Err(Error::invalid_argument(words.uneven_depth(channels, depth)));
        }
        let groups = channels / depth;
        if let Some(results) = filter.out_c.filter(|results| groups > 0 && !results.is_multiple_of(groups)) {
            return Err(Error::invalid_argument(format!(
                "output depth must be evenly divisible by number of groups: {results} vs {groups}"
            )));
        }
    }
    let sizes = window.all_positions(&input.sizes, &filter.taps)?;
    cx.set_dims(0, Images { batch: input.batch, sizes, channels: filter.out_c }.shape(window.layout));
    Ok(())
}

/// Whether the three tensors of a gradient fit each other, as far as they are known.
fn check(words: &Words, window: &Window, input: &Known, filter: &Filter, results: &Known) -> Result<()> {
    let refuse = |what: String| Err(Error::invalid_argument(what));
    let label = words.label();
    if let (Some(images), Some(actual)) = (input.batch, results.batch)
        && images != actual
    {
        return refuse(format!(
            "{label}: input and out_backprop must have the same batch size. Input batch: {images}, outbackprop batch: {actual}, batch_dim: 0"
        ));
    }
    if let (Some(channels), Some(depth)) = (input.channels, filter.in_c)
        && (if depth == 0 { channels != 0 } else { !channels.is_multiple_of(depth) })
    {
        return refuse(words.other_in_depth(channels, depth));
    }
    if let (Some(depth), Some(actual)) = (filter.out_c, results.channels)
        && depth != actual
    {
        return refuse(words.other_out_depth(actual, depth));
    }
    for axis in 0..window.rank() {
        let (Some(size), Some(taps), Some(actual)) = (input.sizes[axis], filter.taps[axis], results.sizes[axis]) else { continue };
        let computed = window.span(axis, size, taps)?.positions;
        if computed != actual {
            return refuse(format!(
                "{label}: Size of out_backprop doesn't match computed: actual = {actual}, computed = {computed} spatial_dim: {} \
                 input: {size} filter: {taps} output: {actual} stride: {} dilation: {}",
                axis + 1,
                window.strides[axis],
                window.dilations[axis]
            ));
        }
    }
    Ok(())
}

fn operand(window: &Window, words: &Words, name: &str, shape: &PartialShape) -> Result<Vec<Option<u64>>> {
    window.dims(shape, || words.operand_rank(name))
}

fn infer_input(cx: &mut InferCx<'_>) -> Result<()> {
    let window = Window::of(&cx.node.op, cx.attrs())?;
    let words = Words::of(&window, &cx.node.op);
    let filter = Filter::of(&operand(&window, &words, "filter", cx.shape(1))?)?;
    let results = window.images_of(&operand(&window, &words, "out_backprop", cx.shape(2))?)?;
    // Two values for two axes are rows and columns; the images are those of the results, and the channels the filter's.
    let mut input = if window.rank() == 2 && cx.vector_len(0) == Some(2) {
        let sizes = cx.ints(0).map(|ints| crate::infer::shape_of_ints(&ints)).transpose()?;
        let sizes = sizes.and_then(|sizes| sizes.0).filter(|sizes| sizes.len() == 2).unwrap_or_else(|| vec![None; 2]);
        Images { batch: results.batch, sizes, channels: filter.in_c }
    } else {
        window.images_of(&window.stated_dims(cx, 0, |count| words.input_sizes(count))?)?
    };
    check(&words, &window, &input, &filter, &results)?;
    input.batch = input.batch.or(results.batch);
    cx.set_dims(0, input.shape(window.layout));
    Ok(())
}

fn infer_filter(cx: &mut InferCx<'_>) -> Result<()> {
    let window = Window::of(&cx.node.op, cx.attrs())?;
    let words = Words::of(&window, &cx.node.op);
    let input = window.images_of(&operand(&window, &words, "input", cx.shape(0))?)?;
    let results = window.images_of(&operand(&window, &words, "out_backprop", cx.shape(2))?)?;
    let mut filter = Filter::of(&window.stated_dims(cx, 1, |_| words.operand_rank("filter"))?)?;
    check(&words, &window, &input, &filter, &results)?;
    filter.out_c = filter.out_c.or(results.channels);
    cx.set_dims(0, filter.shape());
    Ok(())
}

/// The sizes of a convolution from the shapes of its input, its filter and its result.
fn spec(cx: &KernelCx<'_>, [input, filter, results]: [&Shape; 3]) -> Result<ConvSpec> {
    let data_type = floats_or_doubles(cx)?;
    let window = Window::of(&cx.node.op, cx.attrs())?;
    let (input, filter, results) = (window.complete_images(input)?, window.complete(filter)?, window.complete_images(results)?);
    let filter_dims = Filter::of(&filter.iter().copied().map(Some).collect::<Vec<_>>())?;
    check(&Words::of(&window, &cx.node.op), &window, &input.known(), &filter_dims, &results.known())?;
    window.conv_spec(data_type, &input, &filter, &results, false)
}

fn forward(cx: &KernelCx<'_>) -> Result<Recipe> {
    let spec = spec(cx, [&cx.inputs[0].shape, &cx.inputs[1].shape, &cx.outputs[0].shape])?;
    let mut recipe = Recipe::new();
    let (input, filter) = (recipe.input(cx, 0), recipe.input(cx, 1));
    let input = channels_last(&mut recipe, &input, spec.layout)?;
    let last = ConvSpec { layout: Layout::ChannelsLast, ..spec };
    let result = recipe.anchor(Anchor::Conv(last), [input, filter], last.output());
    let result = laid_out(&mut recipe, &result, spec.layout)?;
    Ok(recipe.finish([result]))
}

fn backprop_input(cx: &KernelCx<'_>) -> Result<Recipe> {
    let spec = spec(cx, [&cx.outputs[0].shape, &cx.inputs[1].shape, &cx.inputs[2].shape])?;
    let mut recipe = Recipe::new();
    let (filter, gradient) = (recipe.input(cx, 1), recipe.input(cx, 2));
    let gradient = channels_last(&mut recipe, &gradient, spec.layout)?;
    let last = ConvSpec { layout: Layout::ChannelsLast, ..spec };
    let result = recipe.anchor(Anchor::ConvBackpropInput(last), [filter, gradient], last.input());
    let result = laid_out(&mut recipe, &result, spec.layout)?;
    Ok(recipe.finish([result]))
}

fn prepare_filter(cx: &KernelCx<'_>) -> Result<Recipe> {
    let spec = spec(cx, [&cx.inputs[0].shape, &cx.outputs[0].shape, &cx.inputs[2].shape])?;
    let mut recipe = Recipe::new();
    let images = [recipe.input(cx, 0), recipe.input(cx, 2)];
    let images = images.iter().map(|images| channels_last(&mut recipe, images, spec.layout)).collect::<Result<Vec<_>>>()?;
    let last = ConvSpec { layout: Layout::ChannelsLast, ..spec };
    let result = recipe.one(KernelRequest::ConvBackpropFilter { spec: last, unpooled: None }, images, cx.outputs[0].clone());
    Ok(recipe.finish([result]))
}

/// A convolution or gradient that slides as the node at hand does.
fn like(g: &mut Grad<'_>, op: &str, inputs: &[Output]) -> Result<Option<Output>> {
    let names = ["strides", "padding", "explicit_paddings", "data_format", "dilations", "use_cudnn_on_gpu"];
    let attrs = taken_over(g.attrs(), &names);
    g.op_with(op, inputs, &attrs).map(Some)
}

fn gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, dy| {
        let [_, by_input, by_filter] = names(g.op_name());
        let (input, filter) = (g.input(0), g.input(1));
        let (input_sizes, filter_sizes) = (g.shape(input)?, g.shape(filter)?);
        Ok(vec![like(g, by_input, &[input_sizes, filter, dy])?, like(g, by_filter, &[input, filter_sizes, dy])?])
    })
}

fn gradient_of_input(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, dy| {
        let [forward, _, by_filter] = names(g.op_name());
        let (filter, results) = (g.input(1), g.input(2));
        let sizes = g.shape(filter)?;
        Ok(vec![None, like(g, by_filter, &[dy, sizes, results])?, like(g, forward, &[dy, filter])?])
    })
}

fn gradient_of_filter(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, dy| {
        let [forward, by_input, _] = names(g.op_name());
        let (input, results) = (g.input(0), g.input(2));
        let sizes = g.shape(input)?;
        Ok(vec![like(g, by_input, &[sizes, dy, results])?, None, like(g, forward, &[input, dy])?])
    })
}
