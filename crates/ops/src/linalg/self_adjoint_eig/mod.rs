//! SelfAdjointEigV2: eigenvalues and vectors of symmetric matrices.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{AttrValue, AttrsExt, NodeId, Output};
use plimsoll_request::factors::FactorOp;

use super::factors::{adjoint, inverse_differences, request};
use super::{matmul, squares};
use crate::gradient::Grad;
use crate::registry::Gradient;
use crate::{Call, GraphBuilder, InferCx, KernelCx, Lower, OpRules};

/// The rules of SelfAdjointEigV2.
pub const RULES: &[OpRules] =
    &[OpRules { name: "SelfAdjointEigV2", infer, lower: Lower::Kernel(prepare), gradient: Gradient::Rule(gradient) }];

pub(super) fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let vectors = cx.attrs().bool("compute_v")?;
    if !vectors {
        cx.set_dims(1, vec![Some(0)]);
    }
    if let Some((batch, size)) = squares(cx)? {
        cx.set_dims(0, [batch, &[size]].concat());
        if vectors {
            cx.set_dims(1, [batch, &[size, size]].concat());
        }
    }
    Ok(())
}

fn prepare(cx: &KernelCx<'_>) -> Result<Call> {
    request(cx, FactorOp::SelfAdjointEig { vectors: cx.attrs().bool("compute_v")? })
}

/// `V (diag(de) + f * (Vᵀ dV)) Vᵀ`, of which only the lower triangle counts (`_SelfAdjointEigV2Grad` of `linalg_grad.py`).
fn gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    let mut g = Grad::new(builder, node);
    let g = &mut g;
    let [de, dv] = g.zeros_for_none(gradients)?[..] else { return Err(Error::internal("SelfAdjointEigV2 has two outputs")) };
    let mut middle = g.op("MatrixDiag", &[de])?;
    let v = if g.attrs().bool("compute_v")? {
        let (e, v) = (g.output(0), g.output(1));
        let f = inverse_differences(g, e)?;
        let product = matmul(g, v, dv, true, false)?;
        let scaled = g.mul(f, product)?;
        middle = g.op("AddV2", &[middle, scaled])?;
        v
    } else {
        let values = g.op_with("SelfAdjointEigV2", &[g.input(0)], &[("compute_v", AttrValue::Bool(true))])?;
        Output { index: 1, ..values }
    };
    let right = matmul(g, middle, v, false, true)?;
    let whole = matmul(g, v, right, false, false)?;
    let turned = adjoint(g, whole)?;
    let sum = g.op("AddV2", &[whole, turned])?;
    let (all, none) = (g.int(-1)?, g.int(0)?);
    let lower = g.op("MatrixBandPart", &[sum, all, none])?;
    let diagonal = g.op("MatrixDiagPart", &[lower])?;
    let half = g.scale(diagonal, 0.5)?;
    Ok(vec![Some(g.op("MatrixSetDiag", &[lower, half])?)])
}
