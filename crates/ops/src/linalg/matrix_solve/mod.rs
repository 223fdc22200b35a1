//! MatrixSolve: solutions of systems of linear equations.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{AttrValue, AttrsExt, NodeId, Output};
use plimsoll_request::KernelRequest;
use plimsoll_request::linalg::MatrixOp;

use super::{matmul, request, squares};
use crate::gradient::from_one;
use crate::registry::Gradient;
use crate::{Call, GraphBuilder, InferCx, KernelCx, Lower, OpRules};

/// The rules of MatrixSolve.
pub const RULES: &[OpRules] = &[OpRules { name: "MatrixSolve", infer, lower: Lower::Kernel(prepare), gradient: Gradient::Rule(gradient) }];

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let (Some((batch, size)), Some(right)) = (squares(cx)?, cx.with_rank_at_least(1, 2)?) else { return Ok(()) };
    if right.len() != batch.len() + 2 {
        return Err(Error::invalid_argument("All input tensors must have the same rank."));
    }
    let [others @ .., rows, columns] = right else { return Err(Error::internal("right sides of fewer than two dimensions")) };
    let differ = |(one, other): (&Option<u64>, &Option<u64>)| one.is_some() && other.is_some() && one != other;
    if batch.iter().zip(others).any(differ) {
        return Err(Error::invalid_argument("All input tensors must have the same outer dimensions."));
    }
    if differ((&size, rows)) {
        return Err(Error::invalid_argument("Input matrix and rhs are incompatible."));
    }
    let batch = batch.iter().zip(others).map(|(one, other)| one.or(*other));
    cx.set_dims(0, batch.chain([size.or(*rows), *columns]).collect());
    Ok(())
}

fn prepare(cx: &KernelCx<'_>) -> Result<Call> {
    let op = MatrixOp::Solve { adjoint: cx.attrs().bool("adjoint")? };
    let columns = cx.dims(1).last().copied().unwrap_or(0);
    Ok(Call::new(KernelRequest::Linalg(request(cx, op, columns)?), [0, 1]))
}

fn gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, gradient| {
        let (matrix, solution, adjoint) = (g.input(0), g.output(0), g.attrs().bool("adjoint")?);
        let right = g.op_with("MatrixSolve", &[matrix, gradient], &[("adjoint", AttrValue::Bool(!adjoint))])?;
        let (left, other) = if adjoint { (solution, right) } else { (right, solution) };
        let product = matmul(g, left, other, false, true)?;
        Ok(vec![Some(g.neg(product)?), Some(right)])
    })
}
