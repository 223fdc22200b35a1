//! Linear algebra: factors, inverses, determinants and eigenvalues of matrices, solutions of systems, and products of vectors.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{AttrValue, Output};
use plimsoll_request::linalg::{Linalg, MatrixOp};

use crate::gradient::Grad;
use crate::infer::count;
use crate::{InferCx, KernelCx, OpRules};

pub mod cholesky;
pub mod cross;
pub mod eig;
mod factors;
pub mod lu;
pub mod matrix_determinant;
pub mod matrix_inverse;
pub mod matrix_solve;
pub mod matrix_triangular_solve;
pub mod qr;
pub mod self_adjoint_eig;
pub mod svd;

/// The rules of this family.
pub const RULES: &[&[OpRules]] = &[
    cholesky::RULES,
    cross::RULES,
    eig::RULES,
    lu::RULES,
    matrix_determinant::RULES,
    matrix_inverse::RULES,
    matrix_solve::RULES,
    matrix_triangular_solve::RULES,
    qr::RULES,
    self_adjoint_eig::RULES,
    svd::RULES,
];

/// The leading dimensions of square matrices, and their size.
type Squares<'a> = (&'a [Option<u64>], Option<u64>);

/// The square matrices at input 0; none where the rank is unknown.
fn squares<'a>(cx: &InferCx<'a>) -> Result<Option<Squares<'a>>> {
    let Some(dims) = cx.with_rank_at_least(0, 2)? else { return Ok(None) };
    let [batch @ .., rows, columns] = dims else { return Err(Error::internal("matrices of fewer than two dimensions")) };
    if let (Some(rows), Some(columns)) = (rows, columns)
        && rows != columns
    {
        return Err(Error::invalid_argument("Input matrix must be square."));
    }
    Ok(Some((batch, rows.or(*columns))))
}

/// Output 0 has square matrices, as input 0.
fn same_squares(cx: &mut InferCx<'_>) -> Result<()> {
    if let Some((batch, size)) = squares(cx)? {
        cx.set_dims(0, [batch, &[size, size]].concat());
    }
    Ok(())
}

/// The operation on the matrices at input 0, with right sides of so many columns.
fn request(cx: &KernelCx<'_>, op: MatrixOp, columns: u64) -> Result<Linalg> {
    let &[ref batch @ .., _, size] = cx.dims(0) else { return Err(Error::internal("matrices of fewer than two dimensions")) };
    Ok(Linalg { op, data_type: cx.inputs[0].data_type, matrices: count(batch), size, columns })
}

/// Products of matrices in pairs.
fn matmul(g: &mut Grad<'_>, x: Output, y: Output, adj_x: bool, adj_y: bool) -> Result<Output> {
    g.op_with("BatchMatMulV2", &[x, y], &[("adj_x", AttrValue::Bool(adj_x)), ("adj_y", AttrValue::Bool(adj_y))])
}
