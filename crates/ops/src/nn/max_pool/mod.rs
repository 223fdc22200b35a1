//! MaxPool, MaxPool3D and their gradients.

pub(crate) mod fusion;

use plimsoll_base::Result;
use plimsoll_graph::{NodeId, Output};
use plimsoll_request::KernelRequest;
use plimsoll_request::pool::{Maxima, PoolSpec, Pooling, Positions};

use super::pooling::{Pool, expect_shape, known, pooled};
use super::window::taken_over;
use crate::gradient::from_one;
use crate::registry::Gradient;
use crate::{GraphBuilder, InferCx, KernelCx, Lower, OpRules, Recipe};

pub use fusion::FUSIONS;

/// The rules of maximum poolings and their gradients.
pub const RULES: &[OpRules] = &[
    OpRules { name: "MaxPool", infer, lower: Lower::Recipe(prepare), gradient: Gradient::Rule(gradient) },
    OpRules { name: "MaxPoolGrad", infer: infer_grad, lower: Lower::Recipe(prepare_grad), gradient: Gradient::Rule(grad_gradient) },
    OpRules {
        name: "MaxPoolGradGrad",
        infer: infer_grad_grad,
        lower: Lower::Recipe(prepare_grad_grad),
        gradient: Gradient::Rule(grad_gradient),
    },
    OpRules { name: "MaxPool3D", infer, lower: Lower::Recipe(prepare), gradient: Gradient::Rule(gradient) },
    OpRules { name: "MaxPool3DGrad", infer: infer_grad, lower: Lower::Recipe(prepare_grad), gradient: Gradient::Rule(grad_gradient) },
    OpRules {
        name: "MaxPool3DGradGrad",
        infer: infer_grad_grad,
        lower: Lower::Recipe(prepare_grad_grad),
        gradient: Gradient::Rule(grad_gradient),
    },
];

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let pool = Pool::of(&cx.node.op, cx.attrs())?;
    let input = pool.input(cx.shape(0))?;
    cx.set_dims(0, pool.output(&input)?);
    Ok(())
}

fn infer_grad(cx: &mut InferCx<'_>) -> Result<()> {
    let pool = Pool::of(&cx.node.op, cx.attrs())?;
    let dims = pool.window.dims(cx.shape(0), || format!("tensor_in must be {}-dimensional", pool.window.rank() + 2))?;
    let output = pool.output(&pool.window.images_of(&dims)?)?;
    expect_shape("orig_output", output.clone(), cx.shape(1))?;
    expect_shape("grad", output, cx.shape(2))?;
    cx.set_dims(0, dims);
    Ok(())
}

/// As [`infer_grad`], with input and result in each other's place.
fn infer_grad_grad(cx: &mut InferCx<'_>) -> Result<()> {
    let pool = Pool::of(&cx.node.op, cx.attrs())?;
    let dims = pool.window.dims(cx.shape(0), || format!("tensor_in must be {}-dimensional", pool.window.rank() + 2))?;
    let output = pool.output(&pool.window.images_of(&dims)?)?;
    expect_shape("orig_output", output.clone(), cx.shape(1))?;
    expect_shape("grad", dims, cx.shape(2))?;
    cx.set_dims(0, output);
    Ok(())
}

fn forward_spec(cx: &KernelCx<'_>) -> Result<(PoolSpec, Maxima)> {
    let pool = Pool::of(&cx.node.op, cx.attrs())?;
    let spec = pool.spec(cx, &cx.inputs[0].shape)?;
    expect_shape("output", known(&spec.output()), &(&cx.outputs[0].shape).into())?;
    Ok((spec, pool.maxima()))
}

fn grad_spec(cx: &KernelCx<'_>) -> Result<(PoolSpec, Maxima)> {
    let pool = Pool::of(&cx.node.op, cx.attrs())?;
    let spec = pool.spec(cx, &cx.inputs[0].shape)?;
    expect_shape("orig_output", known(&spec.output()), &(&cx.inputs[1].shape).into())?;
    expect_shape("grad", known(&spec.output()), &(&cx.inputs[2].shape).into())?;
    Ok((spec, pool.maxima()))
}

fn prepare(cx: &KernelCx<'_>) -> Result<Recipe> {
    let (spec, maxima) = forward_spec(cx)?;
    pooled(cx, spec, &[0], |spec| KernelRequest::MaxPool(Pooling { spec, maxima, positions: Positions::None }))
}

fn prepare_grad(cx: &KernelCx<'_>) -> Result<Recipe> {
    let (spec, maxima) = grad_spec(cx)?;
    pooled(cx, spec, &[0, 1, 2], |spec| KernelRequest::MaxPoolGradOfInput { spec, maxima })
}

fn prepare_grad_grad(cx: &KernelCx<'_>) -> Result<Recipe> {
    let pool = Pool::of(&cx.node.op, cx.attrs())?;
    let spec = pool.spec(cx, &cx.inputs[0].shape)?;
    expect_shape("orig_output", known(&spec.output()), &(&cx.inputs[1].shape).into())?;
    expect_shape("grad", known(&spec.input()), &(&cx.inputs[2].shape).into())?;
    pooled(cx, spec, &[0, 1, 2], KernelRequest::MaxPoolGradGrad)
}

/// The gradient of a gradient: input and output count as constants.
fn grad_gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, dy| {
        let op = match g.op_name() {
            "MaxPoolGrad" => "MaxPoolGradGrad",
            "MaxPoolGradGrad" => "MaxPoolGrad",
            "MaxPool3DGrad" => "MaxPool3DGradGrad",
            _ => "MaxPool3DGrad",
        };
        let attrs = taken_over(g.attrs(), &["ksize", "strides", "padding", "data_format"]);
        let (input, output) = (g.input(0), g.input(1));
        let by_grad = g.op_with(op, &[input, output, dy], &attrs)?;
        Ok(vec![Some(g.zeros_like(input)?), Some(g.zeros_like(output)?), Some(by_grad)])
    })
}

fn gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, dy| {
        let attrs = taken_over(g.attrs(), &["ksize", "strides", "padding", "explicit_paddings", "data_format"]);
        let op = if g.op_name() == "MaxPool" { "MaxPoolGrad" } else { "MaxPool3DGrad" };
        Ok(vec![Some(g.op_with(op, &[g.input(0), g.output(0), dy], &attrs)?)])
    })
}
