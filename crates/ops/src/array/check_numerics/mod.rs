//! CheckNumerics and CheckNumericsV2: the tensor itself, where all its elements are finite.

use plimsoll_base::Result;
use plimsoll_graph::{AttrValue, AttrsExt, NodeId, Output};
use plimsoll_request::KernelRequest;

use crate::gradient::from_one;
use crate::infer::same;
use crate::registry::Gradient;
use crate::{Call, GraphBuilder, KernelCx, Lower, OpRules};

/// The rules of CheckNumerics and CheckNumericsV2.
pub const RULES: &[OpRules] = &[
    OpRules { name: "CheckNumerics", infer: same, lower: Lower::Kernel(check), gradient: Gradient::Rule(gradient) },
    OpRules { name: "CheckNumericsV2", infer: same, lower: Lower::Kernel(check_signs), gradient: Gradient::Rule(gradient) },
];

fn check(cx: &KernelCx<'_>) -> Result<Call> {
    let tensor = &cx.inputs[0];
    Ok(Call::new(KernelRequest::CheckNumerics { data_type: tensor.data_type, elements: tensor.shape.elements()?, signs: false }, [0]))
}

fn check_signs(cx: &KernelCx<'_>) -> Result<Call> {
    let tensor = &cx.inputs[0];
    Ok(Call::new(KernelRequest::CheckNumerics { data_type: tensor.data_type, elements: tensor.shape.elements()?, signs: true }, [0]))
}

/// The gradient itself, checked in the same way.
fn gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    let (op, message) = (builder.node(node).op.clone(), builder.node(node).attrs.text("message").unwrap_or_default().to_string());
    let message = format!("Not a number (NaN) or infinity (Inf) values detected in gradient. {message}");
    from_one(builder, node, gradients, |g, gradient| {
        let checked = g.op_with(&op, &[gradient], &[("message", AttrValue::Bytes(message.into_bytes()))])?;
        Ok(vec![Some(checked)])
    })
}
