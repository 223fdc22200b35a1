//! MatrixTriangularSolve: solutions of systems of which one triangle is read; the leading dimensions broadcast.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{AttrValue, AttrsExt, NodeId, Output, PartialShape};
use plimsoll_request::KernelRequest;
use plimsoll_request::linalg::{Linalg, MatrixOp};
use plimsoll_request::movement::Movement;

use super::{matmul, squares};
use crate::gradient::from_one;
use crate::infer::{broadcast_shapes, count};
use crate::math::batch_matmul::reduce_batches;
use crate::recipe::Ingredient;
use crate::registry::Gradient;
use crate::{GraphBuilder, InferCx, KernelCx, Lower, Meta, OpRules, Recipe};

/// The rules of MatrixTriangularSolve.
pub const RULES: &[OpRules] =
    &[OpRules { name: "MatrixTriangularSolve", infer, lower: Lower::Recipe(recipe), gradient: Gradient::Rule(gradient) }];

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let (Some((batch, size)), Some(right)) = (squares(cx)?, cx.with_rank_at_least(1, 2)?) else { return Ok(()) };
    let [others @ .., rows, columns] = right else { return Err(Error::internal("right sides of fewer than two dimensions")) };
    if let (Some(size), Some(rows)) = (size, rows)
        && size != *rows
    {
        return Err(Error::invalid_argument(format!("In[0] mismatch In[1] shape: {size} vs. {rows}: {} {}", cx.shape(0), cx.shape(1))));
    }
    let of = |dims: &[Option<u64>]| PartialShape(Some(dims.to_vec()));
    let together = broadcast_shapes(&of(batch), &of(others)).map_err(|_| {
        Error::invalid_argument(format!("In[0] and In[1] must have compatible batch dimensions: {} vs. {}", cx.shape(0), cx.shape(1)))
    })?;
    cx.set_dims(0, [together.0.unwrap_or_default(), vec![size.or(*rows), *columns]].concat());
    Ok(())
}

fn recipe(cx: &KernelCx<'_>) -> Result<Recipe> {
    let op = MatrixOp::TriangularSolve { lower: cx.attrs().bool("lower")?, adjoint: cx.attrs().bool("adjoint")? };
    let out = &cx.outputs[0];
    let &[ref batch @ .., size, columns] = out.shape.dims() else { return Err(Error::internal("solutions of fewer than two dimensions")) };
    let mut recipe = Recipe::new();
    let (matrix, right) = (recipe.input(cx, 0), recipe.input(cx, 1));
    let matrix = repeated(&mut recipe, matrix, [batch, &[size, size]].concat())?;
    let right = repeated(&mut recipe, right, out.shape.to_vec())?;
    let spec = Linalg { op, data_type: out.data_type, matrices: count(batch), size, columns };
    let solved = recipe.one(KernelRequest::Linalg(spec), [matrix, right], Meta { data_type: out.data_type, shape: out.shape.clone() });
    Ok(recipe.finish([solved]))
}

fn repeated(recipe: &mut Recipe, tensor: Ingredient, shape: Vec<u64>) -> Result<Ingredient> {
    if tensor.meta.shape.elements()? == count(&shape) {
        return tensor.reshaped(shape);
    }
    recipe.moved(Movement::BroadcastTo { from: tensor.dims().to_vec(), to: shape.clone() }, &tensor, shape)
}

fn gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, gradient| {
        let (matrix, solution) = (g.input(0), g.output(0));
        let (lower, adjoint) = (g.attrs().bool("lower")?, g.attrs().bool("adjoint")?);
        let attrs = [("lower", AttrValue::Bool(lower)), ("adjoint", AttrValue::Bool(!adjoint))];
        let right = g.op_with("MatrixTriangularSolve", &[matrix, gradient], &attrs)?;
        let (left, other) = if adjoint { (solution, right) } else { (right, solution) };
        let product = matmul(g, left, other, false, true)?;
        let negative = g.neg(product)?;
        let (all, none) = (g.int(-1)?, g.int(0)?);
        let bounds = if lower { [all, none] } else { [none, all] };
        let triangle = g.op("MatrixBandPart", &[negative, bounds[0], bounds[1]])?;
        reduce_batches(g, [matrix, g.input(1)], [triangle, right])
    })
}
