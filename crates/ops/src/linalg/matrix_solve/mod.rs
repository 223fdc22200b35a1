//! MatrixSolve: solutions of systems of linear equations.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{AttrValue, AttrsExt, NodeId, Output};
use plimsoll_request::KernelRequest;
use plimsoll_request::expr::{BinaryOp, ExprBuilder, UnaryOp};
use plimsoll_request::linalg::{Linalg, MatrixOp};
use plimsoll_request::movement::Movement;

use super::{matmul, squares};
use crate::gradient::from_one;
use crate::infer::count;
use crate::recipe::Ingredient;
use crate::registry::Gradient;
use crate::{GraphBuilder, InferCx, KernelCx, Lower, Meta, OpRules, Recipe};

/// The rules of MatrixSolve.
pub const RULES: &[OpRules] = &[OpRules { name: "MatrixSolve", infer, lower: Lower::Recipe(recipe), gradient: Gradient::Rule(gradient) }];

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

fn recipe(cx: &KernelCx<'_>) -> Result<Recipe> {
    let adjoint = cx.attrs().bool("adjoint")?;
    let mut recipe = Recipe::new();
    let (mut matrix, mut right) = (recipe.input(cx, 0), recipe.input(cx, 1));
    let is_complex = matrix.data_type().is_complex();
    if is_complex {
        let [re, im, minus] = parts(&mut recipe, &matrix)?;
        let (above, below) = (joined(&mut recipe, [re.clone(), minus], 1)?, joined(&mut recipe, [im, re], 1)?);
        matrix = joined(&mut recipe, [above, below], 2)?;
        let [re, im, _] = parts(&mut recipe, &right)?;
        right = joined(&mut recipe, [re, im], 2)?;
    }
    let &[ref batch @ .., size, columns] = right.dims() else { return Err(Error::internal("right sides of fewer than two dimensions")) };
    let matrices = count(batch);
    let op = MatrixOp::Solve { adjoint };
    let request = Linalg { op, data_type: matrix.data_type(), matrices, size, columns };
    let output = right.meta.clone();
    let solution = recipe.one(KernelRequest::Linalg(request), [matrix, right], output);
    if !is_complex {
        return Ok(recipe.finish([solution]));
    }
    // The real parts are above the imaginary ones.
    let half = [batch_of(&solution), &[size / 2, columns]].concat();
    let mut halves = Vec::with_capacity(2);
    for first in [0, size / 2] {
        let mut begin = vec![0; half.len()];
        begin[half.len() - 2] = first;
        let movement = Movement::Slice { shape: solution.dims().to_vec(), begin, sizes: half.clone() };
        halves.push(recipe.moved(movement, &solution, half.clone())?);
    }
    let result = recipe.binary(BinaryOp::Complex, [&halves[0], &halves[1]], half)?;
    Ok(recipe.finish([result]))
}

fn batch_of(tensor: &Ingredient) -> &[u64] {
    &tensor.dims()[..tensor.dims().len() - 2]
}

/// The real and imaginary parts, and these with the other sign: a system of complex numbers is one of twice as many real ones, with the
/// matrix `[re, -im; im, re]`.
fn parts(recipe: &mut Recipe, tensor: &Ingredient) -> Result<[Ingredient; 3]> {
    let mut builder = ExprBuilder::new();
    let x = builder.input(tensor.data_type())?;
    let (re, im) = (builder.unary(UnaryOp::Real, x)?, builder.unary(UnaryOp::Imag, x)?);
    let minus = builder.unary(UnaryOp::Neg, im)?;
    let parts = recipe.expression(builder.finish(vec![re, im, minus]), [tensor.clone()], tensor.meta.shape.clone());
    <[Ingredient; 3]>::try_from(parts).map_err(|_| Error::internal("an expression with other results"))
}

/// One tensor behind another, along an axis from the end.
fn joined(recipe: &mut Recipe, parts: [Ingredient; 2], from_end: usize) -> Result<Ingredient> {
    let mut shape = parts[0].dims().to_vec();
    let axis = shape.len() - from_end;
    shape[axis] += parts[1].dims()[axis];
    let movement = Movement::Concat { shapes: parts.iter().map(|part| part.dims().to_vec()).collect(), axis };
    let element = parts[0].meta.element()? as usize;
    let output = Meta { data_type: parts[0].data_type(), shape: shape.into() };
    Ok(recipe.one(KernelRequest::Movement { element, movement }, parts, output))
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
