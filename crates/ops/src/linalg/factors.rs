//! Words that the rules of factors share.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{AttrValue, Output};
use plimsoll_request::KernelRequest;
use plimsoll_request::factors::{FactorOp, Factors};

use crate::gradient::Grad;
use crate::infer::count;
use crate::{Call, InferCx, KernelCx};

/// The request on the matrices at input 0.
pub(super) fn request(cx: &KernelCx<'_>, op: FactorOp) -> Result<Call> {
    let &[ref batch @ .., rows, columns] = cx.dims(0) else { return Err(Error::internal("matrices of fewer than two dimensions")) };
    let request = Factors { op, data_type: cx.inputs[0].data_type, matrices: count(batch), rows, columns };
    Ok(Call::new(KernelRequest::Factors(request), [0]))
}

/// Matrices: the leading dimensions, rows and columns.
pub(super) type Matrices<'a> = (&'a [Option<u64>], Option<u64>, Option<u64>);

/// The matrices at input 0; none where the rank is unknown.
pub(super) fn matrices<'a>(cx: &InferCx<'a>) -> Result<Option<Matrices<'a>>> {
    let Some(dims) = cx.with_rank_at_least(0, 2)? else { return Ok(None) };
    let [batch @ .., rows, columns] = dims else { return Err(Error::internal("matrices of fewer than two dimensions")) };
    Ok(Some((batch, *rows, *columns)))
}

/// Rows and columns of a tensor of matrices.
///
/// # Errors
/// UNIMPLEMENTED where they are not known.
pub(super) fn sizes(g: &Grad<'_>, of: Output) -> Result<[u64; 2]> {
    let shape = g.shape_of(of).0;
    let sizes = shape.and_then(|dims| <[Option<u64>; 2]>::try_from(dims.get(dims.len().checked_sub(2)?..)?).ok());
    let sizes = sizes.and_then(|[rows, columns]| Some([rows?, columns?]));
    sizes.ok_or_else(|| Error::unimplemented(format!("not yet: the gradient of {} for matrices of unknown sizes", g.op_name())))
}

/// The transposed matrices, of complex conjugates.
pub(super) fn adjoint(g: &mut Grad<'_>, matrices: Output) -> Result<Output> {
    let rank = g.rank_of(matrices).filter(|rank| *rank >= 2);
    let unknown = || Error::unimplemented(format!("not yet: the gradient of {} for matrices of unknown rank", g.op_name()));
    let mut perm: Vec<i64> = (0..rank.ok_or_else(unknown)? as i64).collect();
    let last = perm.len() - 1;
    perm.swap(last - 1, last);
    let perm = g.ints(&perm)?;
    g.op(if g.data_type(matrices).is_complex() { "ConjugateTranspose" } else { "Transpose" }, &[matrices, perm])
}

/// Columns `begin..end` of matrices; up to the last where `end` is none.
pub(super) fn columns(g: &mut Grad<'_>, matrices: Output, begin: u64, end: Option<u64>) -> Result<Output> {
    let (first, last) = (g.ints(&[0, begin as i64])?, g.ints(&[0, end.unwrap_or(0) as i64])?);
    let step = g.ints(&[1, 1])?;
    // The first index stands for all other dimensions.
    let masks = [("ellipsis_mask", AttrValue::Int(1)), ("end_mask", AttrValue::Int(if end.is_none() { 2 } else { 0 }))];
    g.op_with("StridedSlice", &[matrices, first, last, step], &masks)
}

/// `1 / (x_j - x_i)` in row `i` and column `j`, as `x / (x^2 + 1e-20)`; zeros on the diagonal.
pub(super) fn inverse_differences(g: &mut Grad<'_>, values: Output) -> Result<Output> {
    let (last, before) = (g.int(-1)?, g.int(-2)?);
    let (rows, columns) = (g.op("ExpandDims", &[values, before])?, g.op("ExpandDims", &[values, last])?);
    let differences = g.sub(rows, columns)?;
    let inverse = safe_reciprocal(g, differences)?;
    let zeros = g.zeros_like(values)?;
    g.op("MatrixSetDiag", &[inverse, zeros])
}

/// `x / (x^2 + 1e-20)`.
pub(super) fn safe_reciprocal(g: &mut Grad<'_>, x: Output) -> Result<Output> {
    let (square, least) = (g.mul(x, x)?, g.number(x, 1e-20)?);
    let sum = g.op("AddV2", &[square, least])?;
    let inverse = g.op("Reciprocal", &[sum])?;
    g.mul(x, inverse)
}
