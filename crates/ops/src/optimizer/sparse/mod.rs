//! ResourceSparseApplyAdagrad and its kin, of references and resources: rows of variables that indices name are updated as the dense
//! forms update all.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{HostTensor, PartialShape};
use plimsoll_request::KernelRequest;
use plimsoll_request::rows::{RowOperand, UpdateRows};

use super::{adadelta, adagrad, ftrl, momentum, proximal, rms_prop};
use crate::infer::{InferFn, merge_shapes, of_rank};
use crate::registry::Gradient;
use crate::{Call, InferCx, KernelCx, Lower, Meta, OpRules, Update};

const fn rule(name: &'static str, infer: InferFn, prepare: fn(&KernelCx<'_>) -> Result<Call>) -> OpRules {
    OpRules { name, infer, lower: Lower::UpdateInPlace(prepare), gradient: Gradient::Stops }
}

/// The rules of sparse updates.
pub const RULES: &[OpRules] = &[
    rule("SparseApplyAdadelta", check::<3, 6>, |cx| rows::<3, 6>(cx, adadelta::update)),
    rule("ResourceSparseApplyAdadelta", check::<3, 6>, |cx| rows::<3, 6>(cx, adadelta::update)),
    rule("SparseApplyAdagrad", check::<2, 3>, |cx| rows::<2, 3>(cx, adagrad::update)),
    rule("ResourceSparseApplyAdagrad", check::<2, 3>, |cx| rows::<2, 3>(cx, adagrad::update)),
    rule("SparseApplyAdagradDA", check::<3, 3>, |cx| rows::<3, 3>(cx, proximal::averaged)),
    rule("ResourceSparseApplyAdagradDA", check::<3, 3>, |cx| rows::<3, 3>(cx, proximal::averaged)),
    rule("SparseApplyAdagradV2", check::<2, 4>, |cx| rows::<2, 4>(cx, adagrad::update_v2)),
    rule("ResourceSparseApplyAdagradV2", check::<2, 4>, |cx| rows::<2, 4>(cx, adagrad::update_v2)),
    rule("SparseApplyCenteredRMSProp", check::<4, 8>, |cx| rows::<4, 8>(cx, rms_prop::update_centered)),
    rule("ResourceSparseApplyCenteredRMSProp", check::<4, 8>, |cx| rows::<4, 8>(cx, rms_prop::update_centered)),
    rule("SparseApplyFtrl", check::<3, 3>, |cx| rows::<3, 3>(cx, ftrl::update)),
    rule("ResourceSparseApplyFtrl", check::<3, 3>, |cx| rows::<3, 3>(cx, ftrl::update)),
    rule("SparseApplyFtrlV2", check::<3, 3>, |cx| rows::<3, 3>(cx, ftrl::update_v2)),
    rule("ResourceSparseApplyFtrlV2", check::<3, 3>, |cx| rows::<3, 3>(cx, ftrl::update_v2)),
    rule("ResourceSparseApplyKerasMomentum", check::<2, 3>, |cx| rows::<2, 3>(cx, momentum::update_keras)),
    rule("SparseApplyMomentum", check::<2, 3>, |cx| rows::<2, 3>(cx, momentum::update)),
    rule("ResourceSparseApplyMomentum", check::<2, 3>, |cx| rows::<2, 3>(cx, momentum::update)),
    rule("SparseApplyProximalAdagrad", check::<2, 5>, |cx| rows::<2, 5>(cx, proximal::adagrad)),
    rule("ResourceSparseApplyProximalAdagrad", check::<2, 5>, |cx| rows::<2, 5>(cx, proximal::adagrad)),
    rule("SparseApplyProximalGradientDescent", check::<1, 4>, |cx| rows::<1, 4>(cx, proximal::descent)),
    rule("ResourceSparseApplyProximalGradientDescent", check::<1, 4>, |cx| rows::<1, 4>(cx, proximal::descent)),
    rule("SparseApplyRMSProp", check::<3, 7>, |cx| rows::<3, 7>(cx, rms_prop::update)),
    rule("ResourceSparseApplyRMSProp", check::<3, 7>, |cx| rows::<3, 7>(cx, rms_prop::update)),
];

/// Checks an update of the first `VARIABLES` inputs by the gradient at input `GRADIENT`, whose rows the indices behind it name. All other
/// inputs are numbers. A reference goes through as output 0.
fn check<const VARIABLES: usize, const GRADIENT: usize>(cx: &mut InferCx<'_>) -> Result<()> {
    let mut shape = PartialShape::unknown();
    for fact in &cx.inputs[..VARIABLES] {
        let variable = match &fact.handle {
            Some((_, shape)) => shape.clone(),
            None if cx.outputs.is_empty() => of_rank(None),
            None => fact.shape.clone(),
        };
        shape = merge_shapes(&shape, &variable)
            .map_err(|_| Error::invalid_argument(format!("var and accum do not have the same shape {shape} {variable}")))?;
    }
    let indices = cx.with_rank(GRADIENT + 1, 1)?;
    if let Some(dims) = &shape.0 {
        let Some((_, inner)) = dims.split_first() else { return Err(Error::invalid_argument("var must be at least 1 dimensional")) };
        let count = indices.and_then(|dims| dims[0]);
        let wanted = PartialShape(Some([&[count], inner].concat()));
        if merge_shapes(&wanted, cx.shape(GRADIENT)).is_err() {
            return Err(Error::invalid_argument(format!(
                "grad must be the same size as indices in the first dimension, and have var's other dimensions: {} instead of {wanted} for var of shape {shape}",
                cx.shape(GRADIENT)
            )));
        }
    }
    for input in (VARIABLES..cx.inputs.len()).filter(|input| ![GRADIENT, GRADIENT + 1].contains(input)) {
        if cx.dims(input).is_some_and(|dims| !dims.is_empty()) {
            return Err(Error::invalid_argument(format!("input {input} of {} is not a scalar: {}", cx.node.op, cx.shape(input))));
        }
    }
    if !cx.outputs.is_empty() {
        cx.set(0, shape);
    }
    Ok(())
}

/// The dense update, on the rows that are named.
fn rows<const VARIABLES: usize, const GRADIENT: usize>(cx: &KernelCx<'_>, dense: fn(&KernelCx<'_>) -> Result<Update>) -> Result<Call> {
    let indices = GRADIENT + 1;
    let kept: Vec<usize> = (0..cx.inputs.len()).filter(|input| *input != indices).collect();
    let inputs: Vec<Meta> = kept.iter().map(|input| cx.inputs[*input].clone()).collect();
    let values: Vec<Option<HostTensor>> = kept.iter().map(|input| cx.values[*input].clone()).collect();
    let update = dense(&KernelCx { node: cx.node, inputs: &inputs, outputs: cx.outputs, values: &values })?;
    if !update.writes.iter().copied().eq(0..VARIABLES) {
        return Err(Error::internal(format!("{} does not write its variables in order", cx.node.op)));
    }
    let variable = &cx.inputs[0];
    if cx.inputs[..VARIABLES].iter().any(|other| other != variable) {
        return Err(Error::invalid_argument("var and its slots do not have the same shape"));
    }
    let Some((rows, inner)) = variable.shape.dims().split_first() else {
        return Err(Error::invalid_argument("var must be at least 1 dimensional"));
    };
    let count = cx.inputs[indices].shape.elements()?;
    if cx.dims(GRADIENT) != [&[count], inner].concat() {
        return Err(Error::invalid_argument(format!(
            "grad of shape {} for {count} rows of a variable of shape {}",
            cx.inputs[GRADIENT].shape, variable.shape
        )));
    }
    let operand = |input: &usize| match *input {
        input if input < VARIABLES => RowOperand::Variable,
        input if input == GRADIENT => RowOperand::Update,
        _ => RowOperand::Scalar,
    };
    let operands = kept.iter().map(operand).collect();
    let inner = inner.iter().product();
    let request = UpdateRows { expr: update.expr, operands, rows: *rows, inner, indices: count, index_type: cx.inputs[indices].data_type };
    Ok(Call::new(KernelRequest::UpdateRows(request), [kept, vec![indices]].concat()))
}
