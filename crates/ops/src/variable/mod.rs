//! Variables: references (VariableV2, Assign…) and resources (VarHandleOp, ReadVariableOp…).

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{AttrsExt, HostTensor, PartialShape, Shape};
use plimsoll_request::expr::{BinaryOp, ExprBuilder};

use crate::infer::merge_shapes;
use crate::registry::Gradient;
use crate::{InferCx, KernelCx, Lower, OpRules, Update};

const fn rule(name: &'static str, infer: crate::infer::InferFn, lower: Lower) -> OpRules {
    OpRules { name, infer, lower, gradient: Gradient::Stops }
}

/// The rules of this family.
pub const RULES: &[&[OpRules]] = &[&[
    rule("VariableV2", variable, Lower::Variable),
    rule("Variable", variable, Lower::Variable),
    rule("VarHandleOp", handle, Lower::Variable),
    OpRules { name: "ReadVariableOp", infer: read, lower: Lower::ReadVariable, gradient: Gradient::Rule(crate::array::pass_gradient) },
    rule("VariableShape", handle_shape, Lower::Nothing),
    rule("DisableCopyOnRead", crate::infer::unknown, Lower::Nothing),
    rule("IsVariableInitialized", scalar_bool, Lower::IsInitialized),
    rule("VarIsInitializedOp", scalar_bool, Lower::IsInitialized),
    rule("Assign", reference, Lower::Assign),
    rule("AssignVariableOp", assign_resource, Lower::Assign),
    rule("AssignAdd", reference, Lower::Update(assign_add)),
    rule("AssignSub", reference, Lower::Update(assign_sub)),
    rule("AssignAddVariableOp", assign_resource, Lower::Update(assign_add)),
    rule("AssignSubVariableOp", assign_resource, Lower::Update(assign_sub)),
]];

/// Marks what assigns to a variable whose shape the graph leaves open: sessions give such a variable the shape that its value has.
pub const OPEN_SHAPE: &str = "_plimsoll_open_shape";

fn variable(cx: &mut InferCx<'_>) -> Result<()> {
    let shape = cx.attrs().shape("shape")?.clone();
    cx.set(0, shape);
    Ok(())
}

fn handle(cx: &mut InferCx<'_>) -> Result<()> {
    let what = (cx.attrs().data_type("dtype")?, cx.attrs().shape("shape")?.clone());
    cx.set(0, (&Shape::scalar()).into());
    cx.outputs[0].handle = Some(what);
    Ok(())
}

/// The variable of the handle at input 0, checked against `dtype`.
fn handle_of(cx: &InferCx<'_>) -> Result<PartialShape> {
    let Some((data_type, shape)) = &cx.inputs[0].handle else { return Ok(PartialShape::unknown()) };
    let wanted = cx.attrs().data_type("dtype")?;
    if *data_type != wanted {
        return Err(Error::invalid_argument(format!("Trying to access a variable of type {data_type} as {wanted}")));
    }
    Ok(shape.clone())
}

fn read(cx: &mut InferCx<'_>) -> Result<()> {
    let shape = handle_of(cx)?;
    cx.set(0, shape);
    Ok(())
}

fn handle_shape(cx: &mut InferCx<'_>) -> Result<()> {
    let shape = cx.inputs[0].handle.as_ref().map_or(PartialShape::unknown(), |(_, shape)| shape.clone());
    crate::array::shape_value(cx, 0, &shape)
}

fn scalar_bool(cx: &mut InferCx<'_>) -> Result<()> {
    cx.set(0, (&Shape::scalar()).into());
    Ok(())
}

/// The output is the reference at input 0; input 1 must have the variable's shape.
fn reference(cx: &mut InferCx<'_>) -> Result<()> {
    let checked = !cx.attrs().get("validate_shape").is_some_and(|value| *value == plimsoll_graph::AttrValue::Bool(false));
    let shape = if checked { merge_assigned(cx, cx.shape(0))? } else { cx.shape(0).clone() };
    cx.set(0, shape);
    Ok(())
}

fn assign_resource(cx: &mut InferCx<'_>) -> Result<()> {
    let shape = handle_of(cx)?;
    merge_assigned(cx, &shape).map(drop)
}

/// The shape of a variable that has this one and is assigned input 1.
fn merge_assigned(cx: &InferCx<'_>, shape: &PartialShape) -> Result<PartialShape> {
    merge_shapes(shape, cx.shape(1)).map_err(|error| match cx.attrs().get(OPEN_SHAPE) {
        Some(_) => Error::unimplemented(format!("not yet: a variable of open shape that is assigned another shape: {}", error.message())),
        None => error,
    })
}

fn assign_add(cx: &KernelCx<'_>) -> Result<Update> {
    arithmetic(cx, BinaryOp::Add)
}

fn assign_sub(cx: &KernelCx<'_>) -> Result<Update> {
    arithmetic(cx, BinaryOp::Sub)
}

fn arithmetic(cx: &KernelCx<'_>, op: BinaryOp) -> Result<Update> {
    let mut builder = ExprBuilder::new();
    let variable = builder.input(cx.inputs[0].data_type)?;
    let value = builder.input(cx.inputs[1].data_type)?;
    let result = builder.binary(op, variable, value)?;
    Ok(Update { expr: builder.finish(vec![result]), writes: vec![0] })
}

/// The tensor that a shape is, as int32 or int64.
///
/// # Errors
/// INVALID_ARGUMENT where a dimension does not fit.
pub(crate) fn shape_tensor(shape: &Shape, data_type: DataType) -> Result<HostTensor> {
    match data_type {
        DataType::Int64 => HostTensor::from_slice([shape.rank() as u64], &shape.iter().map(|dim| *dim as i64).collect::<Vec<_>>()),
        DataType::Int32 => {
            let dims = shape.iter().map(|dim| i32::try_from(*dim)).collect::<std::result::Result<Vec<_>, _>>();
            HostTensor::from_slice(
                [shape.rank() as u64],
                &dims.map_err(|_| Error::invalid_argument(format!("shape {shape} does not fit int32")))?,
            )
        }
        other => Err(Error::unimplemented(format!("sizes as {other}"))),
    }
}
