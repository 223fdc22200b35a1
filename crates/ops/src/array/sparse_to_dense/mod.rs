//! SparseToDense: a tensor of one number, with others at indices.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{AttrsExt, NodeId, Output};
use plimsoll_request::KernelRequest;
use plimsoll_request::check::Requirement;
use plimsoll_request::expr::{BinaryOp, ExprBuilder};
use plimsoll_request::gather::{Gather, ScatterOp};
use plimsoll_request::movement::Movement;

use crate::array::fill::stated_shape;
use crate::gradient::{Grad, from_one};
use crate::recipe::Ingredient;
use crate::registry::Gradient;
use crate::{GraphBuilder, InferCx, KernelCx, Lower, OpRules, Recipe};

/// The rules of SparseToDense.
pub const RULES: &[OpRules] = &[OpRules { name: "SparseToDense", infer, lower: Lower::Recipe(recipe), gradient: Gradient::Rule(gradient) }];

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    cx.with_rank(1, 1)?;
    if cx.dims(0).is_some_and(|dims| dims.len() > 2) {
        return Err(Error::invalid_argument(format!("sparse_indices should be a scalar, vector, or matrix, got shape {}", cx.shape(0))));
    }
    if cx.dims(2).is_some_and(|dims| dims.len() > 1) {
        return Err(Error::invalid_argument(format!("sparse_values should be a scalar or a vector, got shape {}", cx.shape(2))));
    }
    cx.with_rank(3, 0)?;
    let shape = stated_shape(cx, 1)?;
    if let (Some(indices), Some(rank)) = (cx.shape(0).complete(), shape.0.as_ref().map(Vec::len)) {
        let (count, depth) = split(indices.dims());
        if depth == 0 {
            return Err(Error::invalid_argument(format!("sparse_indices of shape {indices} have no integers")));
        }
        if depth != rank as u64 {
            return Err(Error::invalid_argument(format!("output_shape has incorrect number of elements: {rank} should be: {depth}")));
        }
        if let Some([Some(values)]) = cx.dims(2)
            && *values != count
        {
            return Err(Error::invalid_argument(format!("sparse_values has incorrect shape {}, should be [] or [{count}]", cx.shape(2))));
        }
    }
    cx.set(0, shape);
    Ok(())
}

/// How many indices there are, and of how many integers each is.
fn split(dims: &[u64]) -> (u64, u64) {
    match *dims {
        [] => (1, 1),
        [count] => (count, 1),
        [count, depth, ..] => (count, depth),
    }
}

fn recipe(cx: &KernelCx<'_>) -> Result<Recipe> {
    let mut recipe = Recipe::new();
    let output = cx.outputs[0].clone();
    let (count, depth) = split(cx.dims(0));
    let indices = recipe.input(cx, 0).reshaped([count, depth])?;
    check(&mut recipe, &indices, output.shape.dims(), cx.attrs().bool("validate_indices")?)?;
    let element = output.element()? as usize;
    let fill = KernelRequest::Movement { element, movement: Movement::Fill { elements: output.shape.elements()? } };
    let filled = recipe.one(fill, [recipe.input(cx, 3)], output.clone());
    let scatter = Gather::Scatter {
        op: ScatterOp::Update,
        data_type: output.data_type,
        index_type: indices.data_type(),
        shape: output.shape.to_vec(),
        indices: count,
        depth: depth as usize,
        // A scalar for several elements.
        scalar_updates: cx.dims(2).is_empty() && count != 1,
        ignore: false,
        in_place: false,
    };
    let values = recipe.input(cx, 2);
    let result = recipe.one(KernelRequest::Gather(scatter), [filled, indices, values], output);
    Ok(recipe.finish([result]))
}

/// Refuses indices outside of a shape and, where `order`, those that are not in ascending order, each once.
fn check(recipe: &mut Recipe, indices: &Ingredient, shape: &[u64], order: bool) -> Result<()> {
    let (count, index_type) = (indices.dims()[0], indices.data_type());
    // Of the whole index, the first integer that differs from the one before decides.
    let mut e = ExprBuilder::new();
    let (mut ascends, mut same) = (e.number(DataType::Int32, 0.0)?, e.number(DataType::Int32, 1.0)?);
    let none = ascends;
    let mut operands = Vec::new();
    let mut inside = ExprBuilder::new();
    let mut valid = None;
    let mut columns = Vec::new();
    for (at, size) in shape.iter().enumerate() {
        let column = Movement::Slice { shape: indices.dims().to_vec(), begin: vec![0, at as u64], sizes: vec![count, 1] };
        let column = recipe.moved(column, indices, [count])?;
        let index = inside.input(index_type)?;
        let (zero, size) = (inside.number(index_type, 0.0)?, inside.number(index_type, *size as f64)?);
        let (from, to) = (inside.binary(BinaryOp::GreaterEqual, index, zero)?, inside.binary(BinaryOp::Less, index, size)?);
        let both = inside.binary(BinaryOp::LogicalAnd, from, to)?;
        valid = Some(match valid {
            Some(valid) => inside.binary(BinaryOp::LogicalAnd, valid, both)?,
            None => both,
        });
        columns.push(column.clone());
        if !order || count < 2 {
            continue;
        }
        let part = |begin| Movement::Slice { shape: vec![count], begin: vec![begin], sizes: vec![count - 1] };
        operands.extend([recipe.moved(part(0), &column, [count - 1])?, recipe.moved(part(1), &column, [count - 1])?]);
        let (before, after) = (e.input(index_type)?, e.input(index_type)?);
        let (less, equal) = (e.binary(BinaryOp::Less, before, after)?, e.binary(BinaryOp::Equal, before, after)?);
        let less = e.cast(DataType::Int32, less)?;
        let equal = e.cast(DataType::Int32, equal)?;
        let here = e.binary(BinaryOp::Mul, same, less)?;
        ascends = e.binary(BinaryOp::Maximum, ascends, here)?;
        same = e.binary(BinaryOp::Mul, same, equal)?;
    }
    if let Some(valid) = valid {
        let valid = recipe.expression(inside.finish(vec![valid]), columns, [count]).swap_remove(0);
        recipe.require(Requirement::InBounds, valid);
    }
    if !operands.is_empty() {
        let ascends = e.binary(BinaryOp::Greater, ascends, none)?;
        let ascends = recipe.expression(e.finish(vec![ascends]), operands, [count - 1]).swap_remove(0);
        recipe.require(Requirement::InOrder, ascends);
    }
    Ok(())
}

/// The gradient goes to the values, and that of all other elements to the default.
fn gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, gradient| {
        let sum = |g: &mut Grad<'_>, of: Output| -> Result<Output> {
            let (vector, first) = (g.ints(&[-1])?, g.int(0)?);
            let flat = g.op("Reshape", &[of, vector])?;
            g.op("Sum", &[flat, first])
        };
        let to_values = g.op("GatherNd", &[gradient, g.input(0)])?;
        let (all, own) = (sum(g, gradient)?, sum(g, to_values)?);
        let to_default = g.op("Sub", &[all, own])?;
        Ok(vec![None, None, Some(to_values), Some(to_default)])
    })
}
