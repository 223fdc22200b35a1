//! Select and SelectV2: one value or another for each element.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{NodeId, Output};
use plimsoll_request::expr::{Expr, ExprBuilder};

use crate::gradient::from_one;
use crate::infer::{broadcast, merge_shapes};
use crate::recipe::Recipe;
use crate::registry::Gradient;
use crate::{GraphBuilder, InferCx, KernelCx, Lower, OpRules};

/// The rules of Select and SelectV2.
pub const RULES: &[OpRules] = &[
    OpRules { name: "Select", infer: select, lower: Lower::Recipe(recipe), gradient: Gradient::Rule(gradient_v1) },
    OpRules { name: "SelectV2", infer: select_v2, lower: Lower::Elementwise(expr), gradient: Gradient::Rule(gradient_v2) },
];

/// Both values have the result's shape; the condition too, or it is a scalar, or it holds one element for each row.
fn select(cx: &mut InferCx<'_>) -> Result<()> {
    let shape = merge_shapes(cx.shape(1), cx.shape(2)).map_err(|_| {
        Error::invalid_argument(format!("'then' and 'else' must have the same size.  but received: {} vs. {}", cx.shape(1), cx.shape(2)))
    })?;
    if let (Some(condition), Some(dims)) = (cx.dims(0), &shape.0) {
        if let ([Some(batches)], [Some(rows), ..]) = (condition, &dims[..])
            && batches != rows
        {
            return Err(Error::invalid_argument(format!(
                "Number of batches of 'then' must match size of 'cond', but saw: {rows} vs. {batches}"
            )));
        }
        if condition.len() > 1 && merge_shapes(cx.shape(0), &shape).is_err() {
            return Err(Error::invalid_argument(format!(
                "'cond' must be a scalar, a vector or of the shape of 'then', but saw: {} vs. {shape}",
                cx.shape(0)
            )));
        }
    }
    cx.set(0, shape);
    Ok(())
}

fn select_v2(cx: &mut InferCx<'_>) -> Result<()> {
    broadcast(cx).map_err(|_| {
        let [condition, then, other] = [0, 1, 2].map(|input| cx.shape(input));
        Error::invalid_argument(format!("condition {condition}, then {then}, and else {other} must be broadcastable"))
    })
}

/// A condition for each row is one for each element of the row.
fn recipe(cx: &KernelCx<'_>) -> Result<Recipe> {
    let mut recipe = Recipe::new();
    let [mut condition, a, b] = [0, 1, 2].map(|input| recipe.input(cx, input));
    if let ([rows], [_, rest @ ..]) = (cx.dims(0), cx.dims(1)) {
        condition = condition.reshaped([&[*rows], &vec![1; rest.len()][..]].concat())?;
    }
    let results = recipe.expression(expr(cx)?, [condition, a, b], cx.outputs[0].shape.clone());
    Ok(recipe.finish(results))
}

fn expr(cx: &KernelCx<'_>) -> Result<Expr> {
    let mut builder = ExprBuilder::new();
    let condition = builder.input(cx.inputs[0].data_type)?;
    let (a, b) = (builder.input(cx.inputs[1].data_type)?, builder.input(cx.inputs[2].data_type)?);
    let result = builder.select(condition, a, b)?;
    Ok(builder.finish(vec![result]))
}

fn gradient_v1(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, gradient| {
        let zeros = g.zeros_like(g.input(1))?;
        let condition = g.input(0);
        Ok(vec![None, Some(g.op("Select", &[condition, gradient, zeros])?), Some(g.op("Select", &[condition, zeros, gradient])?)])
    })
}

fn gradient_v2(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, gradient| {
        let zero = g.number(gradient, 0.0)?;
        let (condition, result) = (g.input(0), g.output(0));
        let (to_a, to_b) = (g.select(condition, gradient, zero)?, g.select(condition, zero, gradient)?);
        let to_a = g.unbroadcast([g.input(1), result], [Some(to_a), None])?;
        let to_b = g.unbroadcast([g.input(2), result], [Some(to_b), None])?;
        Ok(vec![None, to_a[0], to_b[0]])
    })
}
