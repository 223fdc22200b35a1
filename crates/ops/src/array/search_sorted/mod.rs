//! LowerBound and UpperBound: the places of values in sorted rows.

use plimsoll_base::{Error, Result};
use plimsoll_request::KernelRequest;
use plimsoll_request::gather::Gather;

use crate::registry::Gradient;
use crate::{Call, InferCx, KernelCx, Lower, OpRules};

const fn rule(name: &'static str, prepare: fn(&KernelCx<'_>) -> Result<Call>) -> OpRules {
    OpRules { name, infer, lower: Lower::Kernel(prepare), gradient: Gradient::Stops }
}

/// The rules of LowerBound and UpperBound.
pub const RULES: &[OpRules] = &[rule("LowerBound", |cx| prepare(cx, false)), rule("UpperBound", |cx| prepare(cx, true))];

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let (sorted, values) = (cx.with_rank(0, 2)?, cx.with_rank(1, 2)?);
    if let (Some([Some(rows), _]), Some([Some(other), _])) = (sorted, values)
        && rows != other
    {
        return Err(Error::invalid_argument(format!(
            "Leading dim_size of both tensors must match: sorted_inputs of shape {}, values of shape {}",
            cx.shape(0),
            cx.shape(1)
        )));
    }
    cx.set(0, cx.shape(1).clone());
    Ok(())
}

fn prepare(cx: &KernelCx<'_>, upper: bool) -> Result<Call> {
    let (&[rows, sorted], &[_, values]) = (cx.dims(0), cx.dims(1)) else {
        return Err(Error::invalid_argument("sorted_inputs and values must be matrices"));
    };
    let (data_type, index_type) = (cx.inputs[0].data_type, cx.outputs[0].data_type);
    Ok(Call::new(KernelRequest::Gather(Gather::Bound { data_type, index_type, rows, sorted, values, upper }), [0, 1]))
}
