//! MaxPool and MaxPoolGrad, channels last.

use plimsoll_base::Result;
use plimsoll_graph::{NodeId, Output};
use plimsoll_request::KernelRequest;
use plimsoll_request::pool::{ArgMax, PoolSpec, Pooling, Positions};

use super::pooling::{Pool, expect_shape, input_words};
use super::window::{complete, four_dims, taken_over};
use crate::gradient::from_one;
use crate::registry::Gradient;
use crate::{Call, GraphBuilder, InferCx, KernelCx, Lower, Meta, OpRules};

/// The rules of MaxPool and MaxPoolGrad.
pub const RULES: &[OpRules] = &[
    OpRules { name: "MaxPool", infer, lower: Lower::Kernel(prepare), gradient: Gradient::Rule(gradient) },
    OpRules { name: "MaxPoolGrad", infer: infer_grad, lower: Lower::Kernel(prepare_grad), gradient: Gradient::Unknown },
];

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let pool = Pool::of(&cx.node.op, cx.attrs())?;
    let input = four_dims(cx.shape(0), || input_words(cx.shape(0)))?;
    cx.set_dims(0, pool.output(input)?.to_vec());
    Ok(())
}

fn infer_grad(cx: &mut InferCx<'_>) -> Result<()> {
    let pool = Pool::of(&cx.node.op, cx.attrs())?;
    let input = four_dims(cx.shape(0), || "tensor_in must be 4-dimensional".to_string())?;
    let output = pool.output(input)?;
    expect_shape("orig_output", output, cx.shape(1))?;
    expect_shape("grad", output, cx.shape(2))?;
    cx.set_dims(0, input.to_vec());
    Ok(())
}

fn forward_spec(cx: &KernelCx<'_>) -> Result<PoolSpec> {
    let spec = Pool::of(&cx.node.op, cx.attrs())?.spec(cx, complete(&cx.inputs[0].shape)?)?;
    expect_shape("output", spec.output().map(Some), &(&cx.outputs[0].shape).into())?;
    Ok(spec)
}

fn grad_spec(cx: &KernelCx<'_>) -> Result<PoolSpec> {
    let spec = Pool::of(&cx.node.op, cx.attrs())?.spec(cx, complete(&cx.inputs[0].shape)?)?;
    expect_shape("orig_output", spec.output().map(Some), &(&cx.inputs[1].shape).into())?;
    expect_shape("grad", spec.output().map(Some), &(&cx.inputs[2].shape).into())?;
    Ok(spec)
}

fn prepare(cx: &KernelCx<'_>) -> Result<Call> {
    let spec = forward_spec(cx)?;
    Ok(Call::new(KernelRequest::MaxPool(Pooling { spec, positions: Positions::None }), [0]))
}

fn prepare_grad(cx: &KernelCx<'_>) -> Result<Call> {
    Ok(Call::new(KernelRequest::MaxPoolGradOfInput(grad_spec(cx)?), [0, 1, 2]))
}

/// A MaxPool that remembers where its maxima were for its gradient, which then needs neither input nor output; with `positive`
/// only of maxima above 0. Also the type and shape of what it remembers. Arguments: input, output, positions.
///
/// # Errors
/// As MaxPool.
pub fn with_positions(cx: &KernelCx<'_>, positive: bool) -> Result<(Call, Meta)> {
    let spec = forward_spec(cx)?;
    let meta = Meta { data_type: ArgMax::of(&spec).data_type(), shape: cx.outputs[0].shape.clone() };
    let pooling = Pooling { spec, positions: if positive { Positions::Positive } else { Positions::All } };
    Ok((Call::new(KernelRequest::MaxPool(pooling), [0]), meta))
}

/// MaxPoolGrad by what [`with_positions`] remembered, and the sizes. Arguments: positions, gradient by the output, gradient by the input.
///
/// # Errors
/// As MaxPoolGrad.
pub fn grad_by_positions(cx: &KernelCx<'_>) -> Result<(KernelRequest, PoolSpec)> {
    let spec = grad_spec(cx)?;
    Ok((KernelRequest::MaxPoolGrad(spec), spec))
}

fn gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, dy| {
        let attrs = taken_over(g.attrs(), &["ksize", "strides", "padding", "explicit_paddings", "data_format"]);
        Ok(vec![Some(g.op_with("MaxPoolGrad", &[g.input(0), g.output(0), dy], &attrs)?)])
    })
}
