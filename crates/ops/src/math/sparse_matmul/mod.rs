//! SparseTensorDenseMatMul: a sparse matrix times a dense one. Rows of the dense one, times the numbers of the sparse one, are added
//! in the order of these.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{AttrValue, AttrsExt, NodeId, Output};
use plimsoll_request::KernelRequest;
use plimsoll_request::expr::{BinaryOp, ExprBuilder, UnaryOp};
use plimsoll_request::gather::{Gather, SegmentOp};
use plimsoll_request::movement::Movement;

use crate::gradient::{Grad, from_one};
use crate::recipe::Ingredient;
use crate::registry::Gradient;
use crate::{GraphBuilder, InferCx, KernelCx, Lower, Meta, OpRules, Recipe};

/// The rules of SparseTensorDenseMatMul.
pub const RULES: &[OpRules] =
    &[OpRules { name: "SparseTensorDenseMatMul", infer, lower: Lower::Recipe(recipe), gradient: Gradient::Rule(gradient) }];

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let (indices, values) = (cx.with_rank(0, 2)?, cx.with_rank(1, 1)?);
    if indices.and_then(|dims| dims[1]).is_some_and(|depth| depth != 2) {
        return Err(Error::invalid_argument(format!("Tensor 'a_indices' must have 2 columns, got shape {}", cx.shape(0))));
    }
    if let (Some(indices), Some(values)) = (indices.and_then(|dims| dims[0]), values.and_then(|dims| dims[0]))
        && indices != values
    {
        return Err(Error::invalid_argument(format!(
            "Number of rows of a_indices does not match number of values: {indices} vs. {values}"
        )));
    }
    if cx.with_rank(2, 1)?.and_then(|dims| dims[0]).is_some_and(|size| size != 2) {
        return Err(Error::invalid_argument(format!("Tensor 'a_shape' must have 2 elements, got shape {}", cx.shape(2))));
    }
    let (adjoint_a, adjoint_b) = (cx.attrs().bool("adjoint_a")?, cx.attrs().bool("adjoint_b")?);
    let b = cx.with_rank(3, 2)?.map_or([None; 2], |dims| [dims[0], dims[1]]);
    let [inner, columns] = if adjoint_b { [b[1], b[0]] } else { b };
    let mut rows = None;
    if let Some(shape) = cx.ints(2) {
        let size = |at: usize| {
            let size = shape.get(at).and_then(|size| u64::try_from(*size).ok());
            size.ok_or_else(|| Error::invalid_argument(format!("a_shape {shape:?} is no shape of a matrix")))
        };
        let (outer, own) = if adjoint_a { (size(1)?, size(0)?) } else { (size(0)?, size(1)?) };
        if let Some(inner) = inner
            && inner != own
        {
            return Err(Error::invalid_argument(format!(
                "Cannot multiply A and B because inner dimension does not match: {own} vs. {inner}.  Did you forget a transpose?  Dimensions of A: {shape:?}.  Dimensions of B: {}",
                cx.shape(3)
            )));
        }
        rows = Some(outer);
    }
    cx.set_dims(0, vec![rows, columns]);
    Ok(())
}

/// The indices of the sparse numbers along a dimension.
fn column(recipe: &mut Recipe, indices: &Ingredient, at: u64) -> Result<Ingredient> {
    let count = indices.dims()[0];
    recipe.moved(Movement::Slice { shape: vec![count, 2], begin: vec![0, at], sizes: vec![count, 1] }, indices, [count])
}

fn recipe(cx: &KernelCx<'_>) -> Result<Recipe> {
    let mut recipe = Recipe::new();
    let output = cx.outputs[0].clone();
    if output.shape.elements()? == 0 {
        let mut e = ExprBuilder::new();
        let zero = e.number(output.data_type, 0.0)?;
        let result = recipe.expression(e.finish(vec![zero]), [], output.shape);
        return Ok(recipe.finish(result));
    }
    let (adjoint_a, adjoint_b) = (cx.attrs().bool("adjoint_a")?, cx.attrs().bool("adjoint_b")?);
    let (indices, mut values, mut b) = (recipe.input(cx, 0), recipe.input(cx, 1), recipe.input(cx, 3));
    let (data_type, index_type, count) = (b.data_type(), indices.data_type(), indices.dims()[0]);
    if data_type.is_complex() && adjoint_a {
        values = recipe.unary(UnaryOp::Conj, &values)?;
    }
    if adjoint_b {
        b = recipe.transposed(&b, &[1, 0])?;
        if data_type.is_complex() {
            b = recipe.unary(UnaryOp::Conj, &b)?;
        }
    }
    let (rows, columns) = (output.shape[0], output.shape[1]);
    let outer = column(&mut recipe, &indices, u64::from(adjoint_a))?;
    let inner = column(&mut recipe, &indices, u64::from(!adjoint_a))?;
    // A negative segment would be left out: it is one too many.
    let mut e = ExprBuilder::new();
    let (row, zero, none) = (e.input(index_type)?, e.number(index_type, 0.0)?, e.number(index_type, rows as f64)?);
    let negative = e.binary(BinaryOp::Less, row, zero)?;
    let row = e.select(negative, none, row)?;
    let outer = recipe.expression(e.finish(vec![row]), [outer], [count]).swap_remove(0);

    let params = b.dims().to_vec();
    let element = b.meta.element()? as usize;
    let take = Gather::Take { element, params, indices: vec![count], axis: 0, batch_dims: 0, index_type };
    let taken = Meta { data_type, shape: [count, columns].into() };
    let taken = recipe.one(KernelRequest::Gather(take), [b, inner], taken);
    let values = values.reshaped([count, 1])?;
    let products = recipe.binary(BinaryOp::Mul, [&values, &taken], [count, columns])?;
    let sum = |recipe: &mut Recipe, of: Ingredient| {
        let data_type = of.data_type();
        let request = Gather::Segment {
            op: SegmentOp::Sum,
            data_type,
            index_type,
            shape: vec![count, columns],
            ids_shape: vec![count],
            segments: rows,
        };
        let meta = Meta { data_type, shape: output.shape.clone() };
        recipe.one(KernelRequest::Gather(request), [of, outer.clone()], meta)
    };
    if !data_type.is_complex() {
        let result = sum(&mut recipe, products);
        return Ok(recipe.finish([result]));
    }
    let (re, im) = (recipe.unary(UnaryOp::Real, &products)?, recipe.unary(UnaryOp::Imag, &products)?);
    let (re, im) = (sum(&mut recipe, re), sum(&mut recipe, im));
    let result = recipe.binary(BinaryOp::Complex, [&re, &im], output.shape.clone())?;
    Ok(recipe.finish([result]))
}

/// The conjugate transpose of a matrix.
fn adjoint(g: &mut Grad<'_>, matrix: Output) -> Result<Output> {
    let perm = g.ints(&[1, 0])?;
    let turned = g.op("Transpose", &[matrix, perm])?;
    g.conj(turned)
}

fn gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, gradient| {
        let (adjoint_a, adjoint_b) = (g.attrs().bool("adjoint_a")?, g.attrs().bool("adjoint_b")?);
        let (indices, values, shape, b) = (g.input(0), g.input(1), g.input(2), g.input(3));
        let turned = [("adjoint_a", AttrValue::Bool(!adjoint_a))];
        let mut to_b = g.op_with("SparseTensorDenseMatMul", &[indices, values, shape, gradient], &turned)?;
        let mut right = b;
        if adjoint_b {
            to_b = adjoint(g, to_b)?;
            right = adjoint(g, b)?;
        }
        let along = g.int(1)?;
        let at = |g: &mut Grad<'_>, place: bool| {
            let place = g.int(i64::from(place))?;
            g.op("GatherV2", &[indices, place, along])
        };
        let (outer, inner, first) = (at(g, adjoint_a)?, at(g, !adjoint_a)?, g.int(0)?);
        let (left, right) = (g.op("GatherV2", &[gradient, outer, first])?, g.op("GatherV2", &[right, inner, first])?);
        let right = g.conj(right)?;
        let products = g.mul(left, right)?;
        let mut to_values = g.op("Sum", &[products, along])?;
        if adjoint_a {
            to_values = g.conj(to_values)?;
        }
        Ok(vec![None, Some(to_values), None, Some(to_b)])
    })
}
