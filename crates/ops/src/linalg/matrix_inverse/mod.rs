//! MatrixInverse.

use plimsoll_base::Result;
use plimsoll_graph::{AttrsExt, NodeId, Output};
use plimsoll_request::KernelRequest;
use plimsoll_request::linalg::MatrixOp;

use super::{matmul, request, same_squares};
use crate::gradient::from_one;
use crate::registry::Gradient;
use crate::{Call, GraphBuilder, KernelCx, Lower, OpRules};

/// The rules of MatrixInverse.
pub const RULES: &[OpRules] =
    &[OpRules { name: "MatrixInverse", infer: same_squares, lower: Lower::Kernel(prepare), gradient: Gradient::Rule(gradient) }];

fn prepare(cx: &KernelCx<'_>) -> Result<Call> {
    let op = MatrixOp::Inverse { adjoint: cx.attrs().bool("adjoint")? };
    Ok(Call::new(KernelRequest::Linalg(request(cx, op, 0)?), [0]))
}

fn gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, gradient| {
        let (inverse, adjoint) = (g.output(0), g.attrs().bool("adjoint")?);
        let product = matmul(g, gradient, inverse, adjoint, !adjoint)?;
        let product = matmul(g, inverse, product, !adjoint, false)?;
        Ok(vec![Some(g.neg(product)?)])
    })
}
