//! Cholesky: the lower triangular factor of positive definite matrices.

use plimsoll_base::Result;
use plimsoll_graph::{NodeId, Output};
use plimsoll_request::KernelRequest;
use plimsoll_request::linalg::MatrixOp;

use super::{matmul, request, same_squares};
use crate::gradient::from_one;
use crate::registry::Gradient;
use crate::{Call, GraphBuilder, KernelCx, Lower, OpRules};

/// The rules of Cholesky.
pub const RULES: &[OpRules] =
    &[OpRules { name: "Cholesky", infer: same_squares, lower: Lower::Kernel(prepare), gradient: Gradient::Rule(gradient) }];

fn prepare(cx: &KernelCx<'_>) -> Result<Call> {
    Ok(Call::new(KernelRequest::Linalg(request(cx, MatrixOp::Cholesky, 0)?), [0]))
}

/// `L⁻ᵀ ((Lᵀ dL) * (tril(1) - I/2)) L⁻¹`, made symmetric (`_CholeskyGrad` of `linalg_grad.py`).
fn gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, gradient| {
        let factor = g.output(0);
        let diagonal = g.op("MatrixDiagPart", &[factor])?;
        let ones = g.op("OnesLike", &[diagonal])?;
        let unit = g.op("MatrixDiag", &[ones])?;
        let inverse = g.op("MatrixTriangularSolve", &[factor, unit])?;
        let middle = matmul(g, factor, gradient, true, false)?;
        let diagonal = g.op("MatrixDiagPart", &[middle])?;
        let half = g.scale(diagonal, 0.5)?;
        let middle = g.op("MatrixSetDiag", &[middle, half])?;
        let (all, none) = (g.int(-1)?, g.int(0)?);
        let middle = g.op("MatrixBandPart", &[middle, all, none])?;
        let left = matmul(g, inverse, middle, true, false)?;
        let whole = matmul(g, left, inverse, false, false)?;
        // A product with the unit matrix transposes matrices of any rank.
        let turned = matmul(g, unit, whole, false, true)?;
        let sum = g.op("AddV2", &[whole, turned])?;
        Ok(vec![Some(g.scale(sum, 0.5)?)])
    })
}
