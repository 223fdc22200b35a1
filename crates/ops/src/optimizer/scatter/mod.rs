//! ScatterAdd and its kin, of references and resources: rows of a variable combined with updates.

use plimsoll_base::{Error, Result};
use plimsoll_graph::PartialShape;
use plimsoll_request::KernelRequest;
use plimsoll_request::gather::{Gather, ScatterOp};

use crate::infer::{merge_shapes, of_rank};
use crate::registry::Gradient;
use crate::{Call, InferCx, KernelCx, Lower, OpRules};

const fn rule(name: &'static str, prepare: fn(&KernelCx<'_>) -> Result<Call>) -> OpRules {
    OpRules { name, infer, lower: Lower::UpdateInPlace(prepare), gradient: Gradient::Stops }
}

/// The rules of scatter updates.
pub const RULES: &[OpRules] = &[
    rule("ScatterAdd", |cx| prepare(cx, ScatterOp::Add)),
    rule("ScatterSub", |cx| prepare(cx, ScatterOp::Sub)),
    rule("ScatterMul", |cx| prepare(cx, ScatterOp::Mul)),
    rule("ScatterDiv", |cx| prepare(cx, ScatterOp::Div)),
    rule("ScatterMin", |cx| prepare(cx, ScatterOp::Min)),
    rule("ScatterMax", |cx| prepare(cx, ScatterOp::Max)),
    rule("ScatterUpdate", |cx| prepare(cx, ScatterOp::Update)),
    rule("ResourceScatterAdd", |cx| prepare(cx, ScatterOp::Add)),
    rule("ResourceScatterSub", |cx| prepare(cx, ScatterOp::Sub)),
    rule("ResourceScatterMul", |cx| prepare(cx, ScatterOp::Mul)),
    rule("ResourceScatterDiv", |cx| prepare(cx, ScatterOp::Div)),
    rule("ResourceScatterMin", |cx| prepare(cx, ScatterOp::Min)),
    rule("ResourceScatterMax", |cx| prepare(cx, ScatterOp::Max)),
    rule("ResourceScatterUpdate", |cx| prepare(cx, ScatterOp::Update)),
];

/// Updates are a scalar, or of the shape `indices + variable[1..]`.
fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let variable = match &cx.inputs[0].handle {
        Some((_, shape)) => shape.clone(),
        None if cx.outputs.is_empty() => of_rank(None),
        None => cx.shape(0).clone(),
    };
    if let (Some(rows), Some(indices), Some(updates)) = (&variable.0, cx.dims(1), cx.dims(2)) {
        let Some((_, inner)) = rows.split_first() else {
            return Err(Error::invalid_argument("a variable that is a scalar has no rows to scatter to"));
        };
        let wanted = PartialShape(Some([indices, inner].concat()));
        if !updates.is_empty() && merge_shapes(&wanted, cx.shape(2)).is_err() {
            return Err(Error::invalid_argument(format!(
                "Must have updates.shape = indices.shape + params.shape[1:] or updates.shape = [], got updates.shape {}, indices.shape {}, params.shape {variable}",
                cx.shape(2),
                cx.shape(1)
            )));
        }
    }
    if !cx.outputs.is_empty() {
        cx.set(0, variable);
    }
    Ok(())
}

fn prepare(cx: &KernelCx<'_>, op: ScatterOp) -> Result<Call> {
    let (variable, indices, updates) = (&cx.inputs[0], &cx.inputs[1], &cx.inputs[2]);
    let scalar = updates.shape.rank() == 0 && indices.shape.rank() + variable.shape.rank() > 1;
    let request = Gather::Scatter {
        op,
        data_type: variable.data_type,
        index_type: indices.data_type,
        shape: variable.shape.to_vec(),
        indices: indices.shape.elements()?,
        depth: 1,
        scalar_updates: scalar,
        ignore: false,
        in_place: false,
    };
    Ok(Call::new(KernelRequest::Gather(request), [0, 1, 2]))
}
