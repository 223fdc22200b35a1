//! Svd: singular values and vectors.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{AttrValue, AttrsExt, NodeId, Output};
use plimsoll_request::factors::FactorOp;

use super::factors::{adjoint, columns, inverse_differences, matrices, request, safe_reciprocal, sizes};
use super::matmul;
use crate::gradient::Grad;
use crate::registry::Gradient;
use crate::{Call, GraphBuilder, InferCx, KernelCx, Lower, OpRules};

/// The rules of Svd.
pub const RULES: &[OpRules] = &[OpRules { name: "Svd", infer, lower: Lower::Kernel(prepare), gradient: Gradient::Rule(gradient) }];

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let (vectors, full) = (cx.attrs().bool("compute_uv")?, cx.attrs().bool("full_matrices")?);
    if !vectors {
        (1..3).for_each(|output| cx.set_dims(output, vec![Some(0)]));
    }
    if let Some((batch, rows, columns)) = matrices(cx)? {
        let least = rows.zip(columns).map(|(rows, columns)| rows.min(columns));
        cx.set_dims(0, [batch, &[least]].concat());
        if vectors {
            cx.set_dims(1, [batch, &[rows, if full { rows } else { least }]].concat());
            cx.set_dims(2, [batch, &[columns, if full { columns } else { least }]].concat());
        }
    }
    Ok(())
}

fn prepare(cx: &KernelCx<'_>) -> Result<Call> {
    request(cx, FactorOp::Svd { vectors: cx.attrs().bool("compute_uv")?, full: cx.attrs().bool("full_matrices")? })
}

/// As `_SvdGrad` of `linalg_grad.py` (<https://j-towns.github.io/papers/svd-derivative.pdf>).
fn gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    let mut g = Grad::new(builder, node);
    let g = &mut g;
    if !g.attrs().bool("compute_uv")? {
        let Some(ds) = gradients[0] else { return Ok(vec![None]) };
        let values = g.op_with("Svd", &[g.input(0)], &[("compute_uv", AttrValue::Bool(true))])?;
        let (u, v) = (Output { index: 1, ..values }, Output { index: 2, ..values });
        let ds = g.op("MatrixDiag", &[ds])?;
        let right = matmul(g, ds, v, false, true)?;
        return Ok(vec![Some(matmul(g, u, right, false, false)?)]);
    }
    let [ds, mut du, mut dv] = g.zeros_for_none(gradients)?[..] else { return Err(Error::internal("Svd has three outputs")) };
    let (s, mut u, mut v) = (g.output(0), g.output(1), g.output(2));
    let [mut m, mut n] = sizes(g, g.input(0))?;
    // The gradient of a deep matrix is that of the transposed one, transposed.
    let is_deep = m > n;
    if is_deep {
        (m, n) = (n, m);
        (u, v) = (v, u);
        (du, dv) = (dv, du);
    }
    let full = g.attrs().bool("full_matrices")?;
    if full && n - m > 1 {
        return Err(Error::unimplemented(format!(
            "the gradient of Svd of {m} and {n} rows and columns with full_matrices, which TensorFlow has neither"
        )));
    }
    let (ds, diagonal) = (g.op("MatrixDiag", &[ds])?, g.op("MatrixDiag", &[s])?);
    let squares = g.op("Square", &[s])?;
    let f = inverse_differences(g, squares)?;
    let inverse = safe_reciprocal(g, s)?;
    let inverse = g.op("MatrixDiag", &[inverse])?;
    let (v1, dv1) = if n > m { (columns(g, v, 0, Some(m))?, columns(g, dv, 0, Some(m))?) } else { (v, dv) };
    let of_u = twice(g, f, u, du)?;
    let of_v = twice(g, f, v1, dv1)?;
    let (left, right) = (matmul(g, of_u, diagonal, false, false)?, matmul(g, diagonal, of_v, false, false)?);
    let sum = g.op("AddN", &[ds, left, right])?;
    let right = matmul(g, sum, v1, false, true)?;
    let mut total = matmul(g, u, right, false, false)?;
    if n > m {
        let turned = adjoint(g, dv1)?;
        let within = matmul(g, turned, v1, false, false)?;
        let within = matmul(g, within, v1, false, true)?;
        let mut rest = g.sub(turned, within)?;
        if full {
            let (v2, dv2) = (columns(g, v, m, None)?, columns(g, dv, m, None)?);
            let across = matmul(g, v1, dv2, true, false)?;
            let across = matmul(g, across, v2, false, true)?;
            rest = g.sub(rest, across)?;
        }
        let scaled = matmul(g, u, inverse, false, false)?;
        let more = matmul(g, scaled, rest, false, false)?;
        total = g.op("AddV2", &[total, more])?;
    }
    Ok(vec![Some(if is_deep { adjoint(g, total)? } else { total })])
}

/// `f * (xᵀ dx)` and its transpose, added.
fn twice(g: &mut Grad<'_>, f: Output, x: Output, dx: Output) -> Result<Output> {
    let product = matmul(g, x, dx, true, false)?;
    let scaled = g.mul(f, product)?;
    let turned = adjoint(g, scaled)?;
    g.op("AddV2", &[scaled, turned])
}
