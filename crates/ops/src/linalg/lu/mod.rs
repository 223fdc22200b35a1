//! Lu: a lower triangular factor and an upper triangular one, in one matrix, and the order of the rows.

use plimsoll_base::Result;
use plimsoll_request::factors::FactorOp;

use super::factors::request;
use super::squares;
use crate::registry::Gradient;
use crate::{Call, InferCx, KernelCx, Lower, OpRules};

/// The rules of Lu. TensorFlow has no gradient for it.
pub const RULES: &[OpRules] = &[OpRules { name: "Lu", infer, lower: Lower::Kernel(prepare), gradient: Gradient::Unknown }];

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    if let Some((batch, size)) = squares(cx)? {
        cx.set_dims(0, [batch, &[size, size]].concat());
        cx.set_dims(1, [batch, &[size]].concat());
    }
    Ok(())
}

fn prepare(cx: &KernelCx<'_>) -> Result<Call> {
    request(cx, FactorOp::Lu { index_type: cx.outputs[1].data_type })
}
