//! InTopK and InTopKV2: whether the target is among the k most probable classes.

use plimsoll_base::{Error, Result};
use plimsoll_graph::AttrsExt;
use plimsoll_request::KernelRequest;
use plimsoll_request::reduce::Reduction;

use crate::registry::Gradient;
use crate::{Call, InferCx, KernelCx, Lower, OpRules};

/// The rules of InTopK and InTopKV2.
pub const RULES: &[OpRules] = &[
    OpRules { name: "InTopK", infer, lower: Lower::Kernel(prepare_v1), gradient: Gradient::Stops },
    OpRules { name: "InTopKV2", infer, lower: Lower::Kernel(prepare_v2), gradient: Gradient::Stops },
];

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let (predictions, targets) = (cx.dims(0), cx.dims(1));
    if predictions.is_some_and(|dims| dims.len() != 2) {
        return Err(Error::invalid_argument("predictions must be 2-dimensional"));
    }
    if targets.is_some_and(|dims| dims.len() != 1) {
        return Err(Error::invalid_argument("targets must be 1-dimensional"));
    }
    let (rows, targets) = (predictions.and_then(|dims| dims[0]), targets.and_then(|dims| dims[0]));
    if let Some((rows, targets)) = rows.zip(targets).filter(|(rows, targets)| rows != targets) {
        return Err(Error::invalid_argument(format!("First dimension of predictions {rows} must match length of targets {targets}")));
    }
    cx.set_dims(0, vec![rows.or(targets)]);
    Ok(())
}

fn prepare_v1(cx: &KernelCx<'_>) -> Result<Call> {
    let k = cx.attrs().int("k")?;
    Ok(Call::new(request(cx, Some(k)), [0, 1]))
}

fn prepare_v2(cx: &KernelCx<'_>) -> Result<Call> {
    cx.require_one(2, "k")?;
    Ok(Call::new(request(cx, None), [0, 1, 2]))
}

fn request(cx: &KernelCx<'_>, k: Option<i64>) -> KernelRequest {
    let (batch, classes) = (cx.dims(0)[0], cx.dims(0)[1]);
    KernelRequest::Reduction(Reduction::InTopK { target_type: cx.inputs[1].data_type, batch, classes, k })
}
