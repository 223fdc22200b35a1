//! MatMul: the product of two matrices, either transposed if asked.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{AttrValue, AttrsExt, NodeId, Output};
use plimsoll_request::product::ProductSpec;

use super::product::product;
use crate::gradient::from_one;
use crate::registry::Gradient;
use crate::{GraphBuilder, InferCx, KernelCx, Lower, OpRules, Recipe};

/// The rules of MatMul.
pub const RULES: &[OpRules] = &[OpRules { name: "MatMul", infer, lower: Lower::Recipe(recipe), gradient: Gradient::Rule(gradient) }];

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

fn recipe(cx: &KernelCx<'_>) -> Result<Recipe> {
    let (transpose_a, transpose_b) = (cx.attrs().bool("transpose_a")?, cx.attrs().bool("transpose_b")?);
    let (a, out) = (cx.dims(0), cx.outputs[0].shape.dims());
    let spec = ProductSpec { m: out[0], n: out[1], k: a[usize::from(!transpose_a)], transpose_a, transpose_b, batch: 1, places: None };
    let mut recipe = Recipe::new();
    let operands = [recipe.input(cx, 0), recipe.input(cx, 1)];
    let result = product(&mut recipe, spec, operands, [false; 2], out.to_vec())?;
    Ok(recipe.finish([result]))
}

fn gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, gradient| {
        let (a, b) = (g.conj(g.input(0))?, g.conj(g.input(1))?);
        let (transpose_a, transpose_b) = (g.attrs().bool("transpose_a")?, g.attrs().bool("transpose_b")?);
        let mut matmul = |left, right, transpose_left: bool, transpose_right: bool, grad: &str| {
            let attrs = [("transpose_a", transpose_left), ("transpose_b", transpose_right), (grad, true)];
            g.op_with("MatMul", &[left, right], &attrs.map(|(name, value)| (name, AttrValue::Bool(value))))
        };
        let (to_a, to_b) = match (transpose_a, transpose_b) {
            (false, false) => (matmul(gradient, b, false, true, "grad_a")?, matmul(a, gradient, true, false, "grad_b")?),
            (false, true) => (matmul(gradient, b, false, false, "grad_a")?, matmul(gradient, a, true, false, "grad_b")?),
            (true, false) => (matmul(b, gradient, false, true, "grad_a")?, matmul(a, gradient, false, false, "grad_b")?),
            (true, true) => (matmul(b, gradient, true, true, "grad_a")?, matmul(gradient, a, true, true, "grad_b")?),
        };
        Ok(vec![Some(to_a), Some(to_b)])
    })
}
