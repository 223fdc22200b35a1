//! AvgPool, AvgPool3D and their gradients.

use plimsoll_base::Result;
use plimsoll_graph::{NodeId, Output};
use plimsoll_request::KernelRequest;

use super::pooling::{Pool, expect_shape, known, pooled};
use super::window::taken_over;
use crate::gradient::{Grad, from_one};
use crate::registry::Gradient;
use crate::{GraphBuilder, InferCx, KernelCx, Lower, OpRules, Recipe};

/// The rules of average poolings and their gradients.
pub const RULES: &[OpRules] = &[
    OpRules { name: "AvgPool", infer, lower: Lower::Recipe(prepare), gradient: Gradient::Rule(gradient) },
    OpRules { name: "AvgPoolGrad", infer: infer_grad, lower: Lower::Recipe(prepare_grad), gradient: Gradient::Rule(gradient_of_grad) },
    OpRules { name: "AvgPool3D", infer, lower: Lower::Recipe(prepare), gradient: Gradient::Rule(gradient) },
    OpRules { name: "AvgPool3DGrad", infer: infer_grad, lower: Lower::Recipe(prepare_grad), gradient: Gradient::Rule(gradient_of_grad) },
];

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let pool = Pool::of(&cx.node.op, cx.attrs())?;
    let input = pool.input(cx.shape(0))?;
    cx.set_dims(0, pool.output(&input)?);
    Ok(())
}

fn infer_grad(cx: &mut InferCx<'_>) -> Result<()> {
    let pool = Pool::of(&cx.node.op, cx.attrs())?;
    let (window, dims) = (&pool.window, pool.window.rank() + 2);
    let tensor = if dims == 4 { "out_backprop" } else { "tensor_in" };
    let sizes = window.stated_dims(cx, 0, |_| format!("{tensor} must be 1-dimensional and {dims} elements"))?;
    let grad = window.images(cx.shape(1), || format!("out_backprop must be {dims}-dimensional"))?;
    let mut input = window.images_of(&sizes)?;
    expect_shape("grad", pool.output(&input)?, cx.shape(1))?;
    input.batch = input.batch.or(grad.batch);
    input.channels = input.channels.or(grad.channels);
    cx.set_dims(0, input.shape(window.layout));
    Ok(())
}

fn prepare(cx: &KernelCx<'_>) -> Result<Recipe> {
    let spec = Pool::of(&cx.node.op, cx.attrs())?.spec(cx, &cx.inputs[0].shape)?;
    expect_shape("output", known(&spec.output()), &(&cx.outputs[0].shape).into())?;
    pooled(cx, spec, &[0], KernelRequest::AvgPool)
}

fn prepare_grad(cx: &KernelCx<'_>) -> Result<Recipe> {
    let spec = Pool::of(&cx.node.op, cx.attrs())?.spec(cx, &cx.outputs[0].shape)?;
    expect_shape("grad", known(&spec.output()), &(&cx.inputs[1].shape).into())?;
    pooled(cx, spec, &[1], KernelRequest::AvgPoolGrad)
}

/// An operation that pools as the node at hand does.
fn like(g: &mut Grad<'_>, op: &str, inputs: &[Output]) -> Result<Option<Output>> {
    let attrs = taken_over(g.attrs(), &["ksize", "strides", "padding", "data_format"]);
    g.op_with(op, inputs, &attrs).map(Some)
}

fn gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, dy| {
        let sizes = g.shape(g.input(0))?;
        let op = if g.op_name() == "AvgPool" { "AvgPoolGrad" } else { "AvgPool3DGrad" };
        Ok(vec![like(g, op, &[sizes, dy])?])
    })
}

/// Averages of the gradient.
fn gradient_of_grad(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, dy| {
        let op = if g.op_name() == "AvgPoolGrad" { "AvgPool" } else { "AvgPool3D" };
        Ok(vec![None, like(g, op, &[dy])?])
    })
}
