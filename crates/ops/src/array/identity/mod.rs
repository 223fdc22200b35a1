//! Identity and its kin: the same elements under another name.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{AttrsExt, NodeId, Output};

use crate::array::pass_gradient;
use crate::infer::merge_shapes;
use crate::registry::Gradient;
use crate::{GraphBuilder, InferCx, Lower, OpRules};

/// The rules of Identity, IdentityN, Snapshot, StopGradient, PreventGradient and EnsureShape.
pub const RULES: &[OpRules] = &[
    OpRules { name: "Identity", infer: each, lower: Lower::Alias, gradient: Gradient::Rule(pass_gradient) },
    OpRules { name: "IdentityN", infer: each, lower: Lower::Alias, gradient: Gradient::Rule(pass_gradient) },
    OpRules { name: "Snapshot", infer: each, lower: Lower::Alias, gradient: Gradient::Rule(pass_gradient) },
    OpRules { name: "StopGradient", infer: each, lower: Lower::Alias, gradient: Gradient::Stops },
    OpRules { name: "PreventGradient", infer: each, lower: Lower::Alias, gradient: Gradient::Rule(prevented) },
    OpRules { name: "EnsureShape", infer: ensure_shape, lower: Lower::Alias, gradient: Gradient::Rule(pass_gradient) },
];

/// Output i is input i.
fn each(cx: &mut InferCx<'_>) -> Result<()> {
    for (output, input) in cx.outputs.iter_mut().zip(cx.inputs) {
        output.shape = input.shape.clone();
        output.handle = input.handle.clone();
        // One may be known and another one not.
        output.partial = input.partial.clone();
        output.value = input.value.clone().filter(|_| !output.is_ref);
    }
    Ok(())
}

fn ensure_shape(cx: &mut InferCx<'_>) -> Result<()> {
    let wanted = cx.attrs().shape("shape")?;
    let merged = merge_shapes(cx.shape(0), wanted).map_err(|_| {
        Error::invalid_argument(format!("Shape of tensor input {} is not compatible with expected shape {wanted}.", cx.shape(0)))
    })?;
    cx.set(0, merged);
    Ok(())
}

fn prevented(builder: &mut GraphBuilder, node: NodeId, _gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    let node = builder.node(node);
    let reason = node.attrs.text("message").unwrap_or_default();
    Err(Error::invalid_argument(format!("Gradient explicitly disabled. Reason: {reason}")).at_node(&node.name))
}
