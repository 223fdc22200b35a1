//! L2Loss: half the sum of the squares.

use plimsoll_base::Result;
use plimsoll_graph::{NodeId, Output};
use plimsoll_request::KernelRequest;
use plimsoll_request::reduce::Reduction;

use crate::gradient::from_one;
use crate::infer::scalar;
use crate::registry::Gradient;
use crate::{Call, GraphBuilder, KernelCx, Lower, OpRules};

/// The rules of L2Loss.
pub const RULES: &[OpRules] =
    &[OpRules { name: "L2Loss", infer: scalar, lower: Lower::Kernel(prepare), gradient: Gradient::Rule(gradient) }];

fn prepare(cx: &KernelCx<'_>) -> Result<Call> {
    let (data_type, shape) = (cx.inputs[0].data_type, cx.dims(0).to_vec());
    Ok(Call::new(KernelRequest::Reduction(Reduction::HalfSquares { data_type, shape }), [0]))
}

fn gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, gradient| Ok(vec![Some(g.mul(g.input(0), gradient)?)]))
}
