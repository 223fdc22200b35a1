//! BiasAdd and BiasAddGrad: one number added to each channel.

mod fusion;

use plimsoll_base::{Error, Result};
use plimsoll_graph::{AttrValue, Attrs, AttrsExt, NodeId, Output};
use plimsoll_request::expr::BinaryOp;
use plimsoll_request::reduce::ReduceOp;

use crate::gradient::from_one;
use crate::math::reduction::reduction;
use crate::registry::Gradient;
use crate::{Call, GraphBuilder, InferCx, KernelCx, Lower, OpRules, Recipe};

pub use fusion::FUSIONS;

/// The rules of BiasAdd, BiasAddV1 and BiasAddGrad.
pub const RULES: &[OpRules] = &[
    OpRules { name: "BiasAdd", infer, lower: Lower::Recipe(add), gradient: Gradient::Rule(gradient) },
    OpRules { name: "BiasAddV1", infer, lower: Lower::Recipe(add), gradient: Gradient::Rule(gradient) },
    OpRules { name: "BiasAddGrad", infer: infer_grad, lower: Lower::Kernel(prepare_grad), gradient: Gradient::Rule(gradient_of_grad) },
];

/// Which dimension the channels are.
fn channels(attrs: &Attrs, rank: usize) -> usize {
    if attrs.text("data_format").is_ok_and(|format| format == "NCHW") { 1 } else { rank - 1 }
}

fn matrix_or_more<'a>(cx: &InferCx<'a>) -> Result<Option<&'a [Option<u64>]>> {
    match cx.dims(0) {
        Some(dims) if dims.len() < 2 => Err(Error::invalid_argument(format!("Input tensor must be at least 2D: {}", cx.shape(0)))),
        dims => Ok(dims),
    }
}

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let dims = matrix_or_more(cx)?;
    if cx.dims(1).is_some_and(|dims| dims.len() != 1) {
        return Err(Error::invalid_argument(format!("Biases must be 1D: {}", cx.shape(1))));
    }
    let Some(dims) = dims else { return Ok(()) };
    let channel = channels(cx.attrs(), dims.len());
    let mut dims = dims.to_vec();
    if let Some(&[biases]) = cx.dims(1) {
        if biases.zip(dims[channel]).is_some_and(|(biases, channels)| biases != channels) {
            let which = if channel + 1 == dims.len() { "last" } else { "channel" };
            return Err(Error::invalid_argument(format!(
                "Must provide as many biases as the {which} dimension of the input tensor: {} vs. {}",
                cx.shape(1),
                cx.shape(0)
            )));
        }
        dims[channel] = dims[channel].or(biases);
    }
    cx.set_dims(0, dims);
    Ok(())
}

fn add(cx: &KernelCx<'_>) -> Result<Recipe> {
    let mut recipe = Recipe::new();
    let (value, bias) = (recipe.input(cx, 0), recipe.input(cx, 1));
    // One bias for all that lies behind the channels.
    let behind = value.dims().len() - 1 - channels(cx.attrs(), value.dims().len());
    let bias = bias.reshaped([bias.dims(), &vec![1; behind]].concat())?;
    let result = recipe.binary(BinaryOp::Add, [&value, &bias], value.meta.shape.clone())?;
    Ok(recipe.finish([result]))
}

fn gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, gradient| {
        let format: Vec<(&str, AttrValue)> =
            g.attrs().get("data_format").map(|format| ("data_format", format.clone())).into_iter().collect();
        Ok(vec![Some(gradient), Some(g.op_with("BiasAddGrad", &[gradient], &format)?)])
    })
}

fn infer_grad(cx: &mut InferCx<'_>) -> Result<()> {
    match matrix_or_more(cx)? {
        Some(dims) => cx.set_dims(0, vec![dims[channels(cx.attrs(), dims.len())]]),
        None => cx.set_dims(0, vec![None]),
    }
    Ok(())
}

/// The sum over all dimensions but the channels.
fn prepare_grad(cx: &KernelCx<'_>) -> Result<Call> {
    let rank = cx.dims(0).len();
    let channel = channels(cx.attrs(), rank);
    let axes: Vec<usize> = (0..rank).filter(|axis| *axis != channel).collect();
    Ok(reduction(ReduceOp::Sum, cx, axes))
}

/// The bias's gradient repeated everywhere.
fn gradient_of_grad(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, gradient| {
        let rank = g.rank_of(g.input(0)).filter(|rank| *rank >= 2);
        let rank = rank.ok_or_else(|| Error::unimplemented("not yet: the gradient of BiasAddGrad of a tensor whose rank is not known"))?;
        let mut expanded = vec![1; rank];
        expanded[channels(g.attrs(), rank)] = -1;
        let expanded = g.ints(&expanded)?;
        let bias = g.reshape(gradient, expanded)?;
        let shape = g.shape(g.input(0))?;
        Ok(vec![Some(g.op("BroadcastTo", &[bias, shape])?)])
    })
}
