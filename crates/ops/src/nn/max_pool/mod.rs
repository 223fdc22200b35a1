//! MaxPool, MaxPool3D and their gradients.

pub(crate) mod fusion;

use plimsoll_base::Result;
use plimsoll_graph::{AttrValue, Attrs, NodeId, Output};
use plimsoll_request::KernelRequest;
use plimsoll_request::pool::{Maxima, PoolSpec, Pooling, Positions};

use super::pooling::{Pool, expect_shape, known, pooled};
use super::window::taken_over;
use crate::gradient::{Grad, from_one};
use crate::infer::{merge_shapes, of_rank};
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
    OpRules { name: "MaxPoolV2", infer, lower: Lower::Recipe(prepare), gradient: Gradient::Rule(gradient) },
    OpRules { name: "MaxPoolGradV2", infer: infer_grad, lower: Lower::Recipe(prepare_grad), gradient: Gradient::Rule(grad_gradient) },
    OpRules {
        name: "MaxPoolGradGradV2",
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

/// Whether the window's size and strides are the last two inputs.
fn has_inputs(op: &str) -> bool {
    op.ends_with("V2")
}

/// The attributes, with the window's size and strides among them.
fn with_window(attrs: &Attrs, size: Vec<i64>, strides: Vec<i64>) -> Attrs {
    let mut attrs = attrs.clone();
    attrs.insert("ksize".to_string(), AttrValue::ints(size));
    attrs.insert("strides".to_string(), AttrValue::ints(strides));
    attrs
}

/// The pooling; none where its window is not known yet.
fn stated(cx: &InferCx<'_>) -> Result<Option<Pool>> {
    if !has_inputs(&cx.node.op) {
        return Pool::of(&cx.node.op, cx.attrs()).map(Some);
    }
    let first = cx.inputs.len() - 2;
    cx.with_rank(first, 1)?;
    cx.with_rank(first + 1, 1)?;
    let (Some(size), Some(strides)) = (cx.ints(first), cx.ints(first + 1)) else { return Ok(None) };
    Pool::of(&cx.node.op, &with_window(cx.attrs(), size, strides)).map(Some)
}

/// The pooling of a node that is planned.
fn pool(cx: &KernelCx<'_>) -> Result<Pool> {
    if !has_inputs(&cx.node.op) {
        return Pool::of(&cx.node.op, cx.attrs());
    }
    let first = cx.inputs.len() - 2;
    Pool::of(&cx.node.op, &with_window(cx.attrs(), cx.ints(first)?, cx.ints(first + 1)?))
}

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(pool) = stated(cx)? else {
        cx.set(0, of_rank(Some(4)));
        return Ok(());
    };
    let input = pool.input(cx.shape(0))?;
    cx.set_dims(0, pool.output(&input)?);
    Ok(())
}

fn infer_grad(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(pool) = stated(cx)? else {
        cx.set(0, merge_shapes(&of_rank(Some(4)), cx.shape(0))?);
        return Ok(());
    };
    let dims = pool.window.dims(cx.shape(0), || format!("tensor_in must be {}-dimensional", pool.window.rank() + 2))?;
    let output = pool.output(&pool.window.images_of(&dims)?)?;
    expect_shape("orig_output", output.clone(), cx.shape(1))?;
    expect_shape("grad", output, cx.shape(2))?;
    cx.set_dims(0, dims);
    Ok(())
}

/// As [`infer_grad`], with input and result in each other's place.
fn infer_grad_grad(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(pool) = stated(cx)? else {
        cx.set(0, merge_shapes(&of_rank(Some(4)), cx.shape(1))?);
        return Ok(());
    };
    let dims = pool.window.dims(cx.shape(0), || format!("tensor_in must be {}-dimensional", pool.window.rank() + 2))?;
    let output = pool.output(&pool.window.images_of(&dims)?)?;
    expect_shape("orig_output", output.clone(), cx.shape(1))?;
    expect_shape("grad", dims, cx.shape(2))?;
    cx.set_dims(0, output);
    Ok(())
}

fn forward_spec(cx: &KernelCx<'_>) -> Result<(PoolSpec, Maxima)> {
    let pool = pool(cx)?;
    let spec = pool.spec(cx, &cx.inputs[0].shape)?;
    expect_shape("output", known(&spec.output()), &(&cx.outputs[0].shape).into())?;
    Ok((spec, pool.maxima()))
}

fn grad_spec(cx: &KernelCx<'_>) -> Result<(PoolSpec, Maxima)> {
    let pool = pool(cx)?;
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
    let pool = pool(cx)?;
    let spec = pool.spec(cx, &cx.inputs[0].shape)?;
    expect_shape("orig_output", known(&spec.output()), &(&cx.inputs[1].shape).into())?;
    expect_shape("grad", known(&spec.input()), &(&cx.inputs[2].shape).into())?;
    pooled(cx, spec, &[0, 1, 2], KernelRequest::MaxPoolGradGrad)
}

/// A node of the pooling's kind with these attributes, on these tensors and the window's inputs, where it has such.
fn of_kind(g: &mut Grad<'_>, op: &str, tensors: [Output; 3], attrs: &[&'static str]) -> Result<Output> {
    let mut inputs = tensors.to_vec();
    if has_inputs(op) {
        let first = g.input_count() - 2;
        inputs.extend([g.input(first), g.input(first + 1)]);
    }
    let attrs = taken_over(g.attrs(), attrs);
    g.op_with(op, &inputs, &attrs)
}

/// The gradient of a gradient: input and output count as constants.
fn grad_gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, dy| {
        let op = match g.op_name() {
            "MaxPoolGrad" => "MaxPoolGradGrad",
            "MaxPoolGradGrad" => "MaxPoolGrad",
            "MaxPoolGradV2" => "MaxPoolGradGradV2",
            "MaxPoolGradGradV2" => "MaxPoolGradV2",
            "MaxPool3DGrad" => "MaxPool3DGradGrad",
            _ => "MaxPool3DGrad",
        };
        let (input, output) = (g.input(0), g.input(1));
        let by_grad = of_kind(g, op, [input, output, dy], &["ksize", "strides", "padding", "data_format"])?;
        let mut to_inputs = vec![None; g.input_count()];
        to_inputs[0] = Some(g.zeros_like(input)?);
        to_inputs[1] = Some(g.zeros_like(output)?);
        to_inputs[2] = Some(by_grad);
        Ok(to_inputs)
    })
}

fn gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, dy| {
        let op = match g.op_name() {
            "MaxPool" => "MaxPoolGrad",
            "MaxPoolV2" => "MaxPoolGradV2",
            _ => "MaxPool3DGrad",
        };
        let tensors = [g.input(0), g.output(0), dy];
        let mut to_inputs = vec![None; g.input_count()];
        to_inputs[0] = Some(of_kind(g, op, tensors, &["ksize", "strides", "padding", "explicit_paddings", "data_format"])?);
        Ok(to_inputs)
    })
}
