//! AvgPool and AvgPoolGrad, channels last.

use plimsoll_base::Result;
use plimsoll_graph::{NodeId, Output};
use plimsoll_request::KernelRequest;

use super::pooling::{Pool, expect_shape, input_words};
use super::window::{complete, four_dims, stated_dims, taken_over};
use crate::gradient::{Grad, from_one};
use crate::registry::Gradient;
use crate::{Call, GraphBuilder, InferCx, KernelCx, Lower, OpRules};

/// The rules of AvgPool and AvgPoolGrad.
pub const RULES: &[OpRules] = &[
    OpRules { name: "AvgPool", infer, lower: Lower::Kernel(prepare), gradient: Gradient::Rule(gradient) },
    OpRules { name: "AvgPoolGrad", infer: infer_grad, lower: Lower::Kernel(prepare_grad), gradient: Gradient::Rule(gradient_of_grad) },
];

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let pool = Pool::of(&cx.node.op, cx.attrs())?;
    let input = four_dims(cx.shape(0), || input_words(cx.shape(0)))?;
    cx.set_dims(0, pool.output(input)?.to_vec());
    Ok(())
}

fn infer_grad(cx: &mut InferCx<'_>) -> Result<()> {
    let pool = Pool::of(&cx.node.op, cx.attrs())?;
    let mut input = stated_dims(cx, 0, |_| "out_backprop must be 1-dimensional and 4 elements".to_string())?;
    let grad = four_dims(cx.shape(1), || "out_backprop must be 4-dimensional".to_string())?;
    expect_shape("grad", pool.output(input)?, cx.shape(1))?;
    input[0] = input[0].or(grad[0]);
    input[3] = input[3].or(grad[3]);
    cx.set_dims(0, input.to_vec());
    Ok(())
}

fn prepare(cx: &KernelCx<'_>) -> Result<Call> {
    let spec = Pool::of(&cx.node.op, cx.attrs())?.spec(cx, complete(&cx.inputs[0].shape)?)?;
    expect_shape("output", spec.output().map(Some), &(&cx.outputs[0].shape).into())?;
    Ok(Call::new(KernelRequest::AvgPool(spec), [0]))
}

fn prepare_grad(cx: &KernelCx<'_>) -> Result<Call> {
    let spec = Pool::of(&cx.node.op, cx.attrs())?.spec(cx, complete(&cx.outputs[0].shape)?)?;
    expect_shape("grad", spec.output().map(Some), &(&cx.inputs[1].shape).into())?;
    Ok(Call::new(KernelRequest::AvgPoolGrad(spec), [1]))
}

/// An operation that pools as the node at hand does.
fn like(g: &mut Grad<'_>, op: &str, inputs: &[Output]) -> Result<Option<Output>> {
    let attrs = taken_over(g.attrs(), &["ksize", "strides", "padding", "data_format"]);
    g.op_with(op, inputs, &attrs).map(Some)
}

fn gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, dy| {
        let sizes = g.shape(g.input(0))?;
        Ok(vec![like(g, "AvgPoolGrad", &[sizes, dy])?])
    })
}

/// Averages of the gradient.
fn gradient_of_grad(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, dy| Ok(vec![None, like(g, "AvgPool", &[dy])?]))
}
