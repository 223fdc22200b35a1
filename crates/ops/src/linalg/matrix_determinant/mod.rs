//! MatrixDeterminant and LogMatrixDeterminant.

use plimsoll_base::Result;
use plimsoll_graph::{AttrValue, NodeId, Output};
use plimsoll_request::KernelRequest;
use plimsoll_request::linalg::MatrixOp;

use super::{request, squares};
use crate::gradient::{Grad, from_one};
use crate::registry::Gradient;
use crate::{Call, GraphBuilder, InferCx, KernelCx, Lower, OpRules};

/// The rules of MatrixDeterminant and LogMatrixDeterminant.
pub const RULES: &[OpRules] = &[
    OpRules { name: "MatrixDeterminant", infer, lower: Lower::Kernel(determinant), gradient: Gradient::Rule(gradient) },
    OpRules { name: "LogMatrixDeterminant", infer, lower: Lower::Kernel(logarithm), gradient: Gradient::Rule(logarithm_gradient) },
];

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    if let Some((batch, _)) = squares(cx)? {
        (0..cx.outputs.len()).for_each(|output| cx.set_dims(output, batch.to_vec()));
    }
    Ok(())
}

fn determinant(cx: &KernelCx<'_>) -> Result<Call> {
    Ok(Call::new(KernelRequest::Linalg(request(cx, MatrixOp::Determinant, 0)?), [0]))
}

fn logarithm(cx: &KernelCx<'_>) -> Result<Call> {
    Ok(Call::new(KernelRequest::Linalg(request(cx, MatrixOp::LogDeterminant, 0)?), [0]))
}

/// The transposed inverse, times a number for each matrix.
fn scaled_inverse(g: &mut Grad<'_>, numbers: Output) -> Result<Output> {
    let inverse = g.op_with("MatrixInverse", &[g.input(0)], &[("adjoint", AttrValue::Bool(true))])?;
    let (shape, ones, axis) = (g.shape(numbers)?, g.ints(&[1, 1])?, g.int(0)?);
    let spread = g.op("ConcatV2", &[shape, ones, axis])?;
    let numbers = g.reshape(numbers, spread)?;
    g.mul(numbers, inverse)
}

fn gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, gradient| {
        let scale = g.mul(gradient, g.output(0))?;
        Ok(vec![Some(scaled_inverse(g, scale)?)])
    })
}

/// Nothing goes through the sign.
fn logarithm_gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    let Some(gradient) = gradients.get(1).copied().flatten() else { return Ok(vec![None]) };
    Ok(vec![Some(scaled_inverse(&mut Grad::new(builder, node), gradient)?)])
}
