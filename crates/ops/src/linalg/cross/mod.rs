//! Cross: products of vectors of three elements.

use plimsoll_base::{Code, Error, Result};
use plimsoll_graph::{NodeId, Output};
use plimsoll_request::KernelRequest;
use plimsoll_request::expr::{BinaryOp, ExprBuilder};
use plimsoll_request::movement::Movement;

use crate::gradient::from_one;
use crate::infer::merge_shapes;
use crate::recipe::Ingredient;
use crate::registry::Gradient;
use crate::{GraphBuilder, InferCx, KernelCx, Lower, OpRules, Recipe};

/// The rules of Cross.
pub const RULES: &[OpRules] = &[OpRules { name: "Cross", infer, lower: Lower::Recipe(recipe), gradient: Gradient::Rule(gradient) }];

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let differ = |_| Error::invalid_argument(format!("Both inputs must be of same shape: {} vs. {}", cx.shape(0), cx.shape(1)));
    let shape = merge_shapes(cx.shape(0), cx.shape(1)).map_err(differ)?;
    if let Some(dims) = &shape.0 {
        let last = dims.last().ok_or_else(|| Error::invalid_argument("Input must be at least 1D"))?;
        if last.is_some_and(|size| size != 3) {
            return Err(Error::new(Code::FailedPrecondition, "Cross-products are only defined for 3-element vectors."));
        }
    }
    cx.set(0, shape);
    Ok(())
}

/// `a1 b2 - a2 b1` and so on: each operand turned by one place, and by two.
fn recipe(cx: &KernelCx<'_>) -> Result<Recipe> {
    let mut recipe = Recipe::new();
    let mut turned = Vec::with_capacity(4);
    for operand in [recipe.input(cx, 0), recipe.input(cx, 1)] {
        for by in [1, 2] {
            turned.push(self::turned(&mut recipe, &operand, by)?);
        }
    }
    let mut builder = ExprBuilder::new();
    let terms = turned.iter().map(|operand| builder.input(operand.data_type())).collect::<Result<Vec<_>>>()?;
    let (one, other) = (builder.binary(BinaryOp::Mul, terms[0], terms[3])?, builder.binary(BinaryOp::Mul, terms[1], terms[2])?);
    let result = builder.binary(BinaryOp::Sub, one, other)?;
    let shape = cx.outputs[0].shape.clone();
    let result = recipe.expression(builder.finish(vec![result]), turned, shape);
    Ok(recipe.finish(result))
}

/// The elements from `by` on, then those before.
fn turned(recipe: &mut Recipe, operand: &Ingredient, by: u64) -> Result<Ingredient> {
    let shape = operand.dims().to_vec();
    let axis = shape.len() - 1;
    let mut parts = Vec::with_capacity(2);
    for (begin, size) in [(by, 3 - by), (0, by)] {
        let (mut begins, mut sizes) = (vec![0; shape.len()], shape.clone());
        (begins[axis], sizes[axis]) = (begin, size);
        let movement = Movement::Slice { shape: shape.clone(), begin: begins, sizes: sizes.clone() };
        parts.push(recipe.moved(movement, operand, sizes)?);
    }
    let movement = Movement::Concat { shapes: parts.iter().map(|part| part.dims().to_vec()).collect(), axis };
    let element = operand.meta.element()? as usize;
    Ok(recipe.one(KernelRequest::Movement { element, movement }, parts, operand.meta.clone()))
}

fn gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, gradient| {
        let (a, b) = (g.input(0), g.input(1));
        Ok(vec![Some(g.op("Cross", &[b, gradient])?), Some(g.op("Cross", &[gradient, a])?)])
    })
}
