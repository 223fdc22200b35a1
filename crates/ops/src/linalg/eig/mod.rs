//! Eig: eigenvalues and vectors of any square matrices.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{AttrValue, AttrsExt, NodeId, Output};
use plimsoll_request::factors::FactorOp;

use super::factors::{adjoint, inverse_differences, request};
use super::{matmul, self_adjoint_eig};
use crate::gradient::Grad;
use crate::registry::Gradient;
use crate::{Call, GraphBuilder, InferCx, KernelCx, Lower, OpRules};

/// The rules of Eig.
pub const RULES: &[OpRules] = &[OpRules { name: "Eig", infer, lower: Lower::Kernel(prepare), gradient: Gradient::Rule(gradient) }];

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let (input, output) = (cx.inputs[0].data_type, cx.outputs[0].data_type);
    let wanted = input.pair().unwrap_or(input);
    if wanted != output {
        return Err(Error::invalid_argument(format!("Invalid output dtype {} vs {}", output.number(), wanted.number())));
    }
    self_adjoint_eig::infer(cx)
}

fn prepare(cx: &KernelCx<'_>) -> Result<Call> {
    request(cx, FactorOp::Eig { vectors: cx.attrs().bool("compute_v")? })
}

/// `V⁻ᴴ (diag(de) + f * (Vᴴ dV - Vᴴ V diag(re(Vᴴ dV)))) Vᴴ` (`_EigGrad` of `linalg_grad.py`, <https://arxiv.org/abs/1701.00392>).
fn gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    let mut g = Grad::new(builder, node);
    let g = &mut g;
    let [de, dv] = g.zeros_for_none(gradients)?[..] else { return Err(Error::internal("Eig has two outputs")) };
    let mut middle = g.op("MatrixDiag", &[de])?;
    let (v, turned) = if g.attrs().bool("compute_v")? {
        let (e, v) = (g.output(0), g.output(1));
        let turned = adjoint(g, v)?;
        let f = inverse_differences(g, e)?;
        let f = g.conj(f)?;
        let product = matmul(g, turned, dv, false, false)?;
        let diagonal = g.op("MatrixDiagPart", &[product])?;
        let real = g.part("Real", diagonal)?;
        let zeros = g.zeros_like(real)?;
        let real = g.complex(real, zeros)?;
        let real = g.op("MatrixDiag", &[real])?;
        let lengths = matmul(g, turned, v, false, false)?;
        let along = matmul(g, lengths, real, false, false)?;
        let rest = g.sub(product, along)?;
        let scaled = g.mul(f, rest)?;
        middle = g.op("AddV2", &[middle, scaled])?;
        (v, turned)
    } else {
        let pair = AttrValue::data_type(g.data_type(g.output(0)));
        let values = g.op_with("Eig", &[g.input(0)], &[("compute_v", AttrValue::Bool(true)), ("Tout", pair)])?;
        let v = Output { index: 1, ..values };
        (v, adjoint(g, v)?)
    };
    let right = matmul(g, middle, v, false, true)?;
    let solution = g.op("MatrixSolve", &[turned, right])?;
    let data_type = AttrValue::data_type(g.data_type(g.input(0)));
    Ok(vec![Some(g.op_with("Cast", &[solution], &[("DstT", data_type)])?)])
}
