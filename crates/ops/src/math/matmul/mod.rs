//! MatMul: the product of two matrices, either transposed if asked.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{AttrValue, AttrsExt, NodeId, Output};
use plimsoll_request::anchor::Anchor;
use plimsoll_request::product::ProductSpec;

use crate::registry::Gradient;
use crate::{AnchorCall, GraphBuilder, InferCx, KernelCx, Lower, OpRules};

/// The rules of MatMul.
pub const RULES: &[OpRules] = &[OpRules { name: "MatMul", infer, lower: Lower::Anchor(product), gradient: Gradient::Rule(gradient) }];

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let (transpose_a, transpose_b) = (cx.attrs().bool("transpose_a")?, cx.attrs().bool("transpose_b")?);
    let (a, b) = (cx.with_rank(0, 2)?, cx.with_rank(1, 2)?);
    let dim = |dims: Option<&[Option<u64>]>, second: bool| dims.and_then(|dims| dims[usize::from(second)]);
    let (inner_a, inner_b) = (dim(a, !transpose_a), dim(b, transpose_b));
    if let (Some(x), Some(y)) = (inner_a, inner_b)
        && x != y
    {
        return Err(Error::invalid_argument(format!("Matrix size-incompatible: In[0]: {}, In[1]: {}", cx.shape(0), cx.shape(1))));
    }
    cx.set_dims(0, vec![dim(a, transpose_a), dim(b, !transpose_b)]);
    Ok(())
}

fn product(cx: &KernelCx<'_>) -> Result<AnchorCall> {
    let (transpose_a, transpose_b) = (cx.attrs().bool("transpose_a")?, cx.attrs().bool("transpose_b")?);
    let (a, out) = (cx.dims(0), cx.outputs[0].shape.dims());
    let spec = ProductSpec { m: out[0], n: out[1], k: a[usize::from(!transpose_a)], transpose_a, transpose_b, batch: 1, places: None };
    Ok(AnchorCall { anchor: Anchor::Product(cx.inputs[0].data_type, spec), inputs: [0, 1] })
}

fn gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    let Some(gradient) = gradients[0] else { return Ok(vec![None, None]) };
    let (a, b) = (builder.node(node).inputs[0], builder.node(node).inputs[1]);
    let attrs = &builder.node(node).attrs;
    let (transpose_a, transpose_b) = (attrs.bool("transpose_a")?, attrs.bool("transpose_b")?);
    let mut matmul = |left, right, transpose_left: bool, transpose_right: bool, grad: &str| {
        builder
            .op("MatMul")
            .inputs([left, right])
            .attr("transpose_a", AttrValue::Bool(transpose_left))
            .attr("transpose_b", AttrValue::Bool(transpose_right))
            .attr(grad, AttrValue::Bool(true))
            .build()
    };
    let (to_a, to_b) = match (transpose_a, transpose_b) {
        (false, false) => (matmul(gradient, b, false, true, "grad_a")?, matmul(a, gradient, true, false, "grad_b")?),
        (false, true) => (matmul(gradient, b, false, false, "grad_a")?, matmul(gradient, a, true, false, "grad_b")?),
        (true, false) => (matmul(b, gradient, false, true, "grad_a")?, matmul(a, gradient, false, false, "grad_b")?),
        (true, true) => (matmul(b, gradient, true, true, "grad_a")?, matmul(gradient, a, true, true, "grad_b")?),
    };
    Ok(vec![Some(to_a), Some(to_b)])
}
