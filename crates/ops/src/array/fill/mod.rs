//! Fill, ZerosLike, OnesLike, Empty: one number everywhere.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{HostTensor, NodeId, Output, PartialShape};
use plimsoll_request::expr::{Expr, ExprBuilder, Scalar};
use plimsoll_request::movement::Movement;

use crate::gradient::from_one;
use crate::infer::of_rank;
use crate::registry::Gradient;
use crate::{Call, GraphBuilder, InferCx, KernelCx, Lower, OpRules};

/// The rules of Fill, ZerosLike, OnesLike and Empty.
pub const RULES: &[OpRules] = &[
    OpRules { name: "Fill", infer: fill, lower: Lower::Kernel(prepare_fill), gradient: Gradient::Rule(fill_gradient) },
    OpRules { name: "ZerosLike", infer: zeros, lower: Lower::Elementwise(zeros_expr), gradient: Gradient::Stops },
    OpRules { name: "OnesLike", infer: ones, lower: Lower::Elementwise(ones_expr), gradient: Gradient::Stops },
    OpRules { name: "Empty", infer: empty, lower: Lower::Nothing, gradient: Gradient::Stops },
];

/// The shape that the integers of input `index` state (a dimension cannot be left open), as far as it is known.
pub(crate) fn stated_shape(cx: &InferCx<'_>, index: usize) -> Result<PartialShape> {
    let Some(sizes) = cx.ints(index) else { return Ok(of_rank(cx.vector_len(index))) };
    let dim = |size: &i64| u64::try_from(*size).map(Some).map_err(|_| Error::invalid_argument(format!("Dimension {size} must be >= 0")));
    sizes.iter().map(dim).collect::<Result<Vec<_>>>().map(|dims| PartialShape(Some(dims)))
}

fn fill(cx: &mut InferCx<'_>) -> Result<()> {
    if cx.dims(0).is_some_and(|dims| dims.len() != 1) {
        return Err(Error::invalid_argument(format!("dims must represent a vector, got shape {}", cx.shape(0))));
    }
    if cx.dims(1).is_some_and(|dims| !matches!(dims, [] | [Some(1)])) {
        return Err(Error::invalid_argument(format!("value must be a scalar, got shape {}", cx.shape(1))));
    }
    let shape = stated_shape(cx, 0)?;
    let splat = cx.inputs[1].value.as_ref().and_then(HostTensor::splat);
    if let (Some(shape), Some(splat)) = (shape.complete(), splat) {
        let value = HostTensor::from_leading(cx.outputs[0].data_type, shape, splat)?;
        cx.set_value(0, value);
    } else {
        cx.set(0, shape);
    }
    Ok(())
}

/// Zeros: TensorFlow leaves the elements open unless `init` is true.
fn empty(cx: &mut InferCx<'_>) -> Result<()> {
    cx.with_rank(0, 1)?;
    let (shape, data_type) = (stated_shape(cx, 0)?, cx.outputs[0].data_type);
    match (shape.complete(), element(data_type, 0.0)) {
        (Some(shape), Some(zero)) => cx.set_value(0, HostTensor::from_leading(data_type, shape, &zero)?),
        _ => cx.set(0, shape),
    }
    Ok(())
}

fn prepare_fill(cx: &KernelCx<'_>) -> Result<Call> {
    cx.require_one(1, "value")?;
    Ok(Call::moving(cx.element(1)?, Movement::Fill { elements: cx.outputs[0].shape.elements()? }, [1]))
}

fn fill_gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, gradient| Ok(vec![None, Some(g.sum_all(gradient)?)]))
}

fn zeros(cx: &mut InferCx<'_>) -> Result<()> {
    like(cx, 0.0)
}

fn ones(cx: &mut InferCx<'_>) -> Result<()> {
    like(cx, 1.0)
}

/// Output 0 is as large as input 0, and all its elements are this number.
fn like(cx: &mut InferCx<'_>, number: f64) -> Result<()> {
    let data_type = cx.outputs[0].data_type;
    match (cx.shape(0).complete(), element(data_type, number)) {
        (Some(shape), Some(element)) => cx.set_value(0, HostTensor::from_leading(data_type, shape, &element)?),
        _ => cx.set(0, cx.shape(0).clone()),
    }
    Ok(())
}

/// A number's bytes, in any type of elements with a fixed size; that of a complex type is real.
pub(crate) fn element(data_type: DataType, number: f64) -> Option<Vec<u8>> {
    let size = data_type.size()?;
    if let Some(part) = data_type.part() {
        return Some([element(part, number)?, element(part, 0.0)?].concat());
    }
    match Scalar::from_f64(data_type, number) {
        Some(scalar) => Some(scalar.bits().to_le_bytes()[..size].to_vec()),
        None if number == 0.0 => Some(vec![0; size]),
        None if data_type.is_integer() => Some((number as i64).to_le_bytes()[..size].to_vec()),
        None => None,
    }
}

fn zeros_expr(cx: &KernelCx<'_>) -> Result<Expr> {
    constant_expr(cx, 0.0)
}

fn ones_expr(cx: &KernelCx<'_>) -> Result<Expr> {
    constant_expr(cx, 1.0)
}

fn constant_expr(cx: &KernelCx<'_>, number: f64) -> Result<Expr> {
    let mut builder = ExprBuilder::new();
    let data_type = cx.inputs[0].data_type;
    builder.input(data_type)?;
    let result = builder.number(data_type, number)?;
    Ok(builder.finish(vec![result]))
}
