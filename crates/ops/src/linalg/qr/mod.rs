//! Qr: an orthogonal factor and an upper triangular one.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{AttrValue, AttrsExt, NodeId, Output};
use plimsoll_request::factors::FactorOp;

use super::factors::{adjoint, columns, matrices, request, sizes};
use super::matmul;
use crate::gradient::Grad;
use crate::registry::Gradient;
use crate::{Call, GraphBuilder, InferCx, KernelCx, Lower, OpRules};

/// The rules of Qr.
pub const RULES: &[OpRules] = &[OpRules { name: "Qr", infer, lower: Lower::Kernel(prepare), gradient: Gradient::Rule(gradient) }];

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let full = cx.attrs().bool("full_matrices")?;
    if let Some((batch, rows, columns)) = matrices(cx)? {
        let inner = if full { rows } else { rows.zip(columns).map(|(rows, columns)| rows.min(columns)) };
        cx.set_dims(0, [batch, &[rows, inner]].concat());
        cx.set_dims(1, [batch, &[inner, columns]].concat());
    }
    Ok(())
}

fn prepare(cx: &KernelCx<'_>) -> Result<Call> {
    request(cx, FactorOp::Qr { full: cx.attrs().bool("full_matrices")? })
}

/// As `_QrGrad` of `linalg_grad.py` (<https://arxiv.org/abs/2009.10071>). Of a wide matrix `[x, y]`, `x` is square, and R is `[u, v]`.
fn gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    let mut g = Grad::new(builder, node);
    let g = &mut g;
    let [dq, dr] = g.zeros_for_none(gradients)?[..] else { return Err(Error::internal("Qr has two outputs")) };
    let (q, r) = (g.output(0), g.output(1));
    let ([rows, inner], [_, all]) = (sizes(g, q)?, sizes(g, r)?);
    if rows > all && inner == rows {
        return Err(Error::unimplemented("the gradient of Qr with more rows than columns and full_matrices, which TensorFlow has neither"));
    }
    if rows >= all {
        return Ok(vec![Some(of_deep(g, q, r, dq, dr)?)]);
    }
    let y = columns(g, g.input(0), rows, None)?;
    let u = columns(g, r, 0, Some(rows))?;
    let (du, dv) = (columns(g, dr, 0, Some(rows))?, columns(g, dr, rows, None)?);
    let dy = matmul(g, q, dv, false, false)?;
    let more = matmul(g, y, dv, false, true)?;
    let dq = g.op("AddV2", &[dq, more])?;
    let dx = of_deep(g, q, u, dq, du)?;
    let axis = g.int(-1)?;
    Ok(vec![Some(g.op("ConcatV2", &[dx, dy, axis])?)])
}

/// The gradient for matrices with at least as many rows as columns.
fn of_deep(g: &mut Grad<'_>, q: Output, r: Output, dq: Output, dr: Output) -> Result<Output> {
    let qdq = matmul(g, q, dq, true, false)?;
    let turned = adjoint(g, qdq)?;
    let of_q = g.sub(qdq, turned)?;
    let rdr = matmul(g, r, dr, false, true)?;
    let turned = adjoint(g, rdr)?;
    let of_r = g.sub(rdr, turned)?;
    let sum = g.op("AddV2", &[of_q, of_r])?;
    let (all, none) = (g.int(-1)?, g.int(0)?);
    let lower = g.op("MatrixBandPart", &[sum, all, none])?;
    let solved = solved(g, lower, r)?;
    let inner = g.op("AddV2", &[dr, solved])?;
    let first = matmul(g, q, inner, false, false)?;
    let within = matmul(g, q, qdq, false, false)?;
    let rest = g.sub(dq, within)?;
    let second = self::solved(g, rest, r)?;
    g.op("AddV2", &[first, second])
}

/// `x` times the adjoint of the inverse of an upper triangular matrix.
fn solved(g: &mut Grad<'_>, x: Output, r: Output) -> Result<Output> {
    let turned = adjoint(g, x)?;
    let solution = g.op_with("MatrixTriangularSolve", &[r, turned], &[("lower", AttrValue::Bool(false))])?;
    adjoint(g, solution)
}
