//! Roll: elements shifted along axes, those that leave at the end come in at the beginning.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{NodeId, Output};
use plimsoll_request::KernelRequest;
use plimsoll_request::block::{Begin, Block, Outside};
use plimsoll_request::expr::{BinaryOp, ExprBuilder, Scalar, UnaryOp};
use plimsoll_request::gather::Gather;
use plimsoll_request::movement::Movement;

use crate::gradient::from_one;
use crate::recipe::{Ingredient, Recipe};
use crate::registry::Gradient;
use crate::{GraphBuilder, InferCx, KernelCx, Lower, Meta, OpRules};

/// The rules of Roll.
pub const RULES: &[OpRules] = &[OpRules { name: "Roll", infer, lower: Lower::Recipe(recipe), gradient: Gradient::Rule(gradient) }];

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dims) = cx.with_rank_at_least(0, 1)? else { return Ok(()) };
    for input in [1, 2] {
        if cx.dims(input).is_some_and(|dims| dims.len() > 1) {
            return Err(Error::invalid_argument(format!("shift and axis must be scalars or vectors, got shape {}", cx.shape(input))));
        }
    }
    if let (Some(shift), Some(axis)) = (cx.shape(1).complete(), cx.shape(2).complete())
        && shift != axis
    {
        return Err(Error::invalid_argument(format!("shift and axis must have the same size, got shapes {shift} and {axis}")));
    }
    axes(cx.ints(2).unwrap_or_default(), dims.len())?;
    cx.set(0, cx.shape(0).clone());
    Ok(())
}

fn axes(axes: Vec<i64>, rank: usize) -> Result<Vec<usize>> {
    let axis = |axis: i64| {
        let place = if axis < 0 { axis.saturating_add(rank as i64) } else { axis };
        let place = usize::try_from(place).ok().filter(|place| *place < rank);
        place.ok_or_else(|| Error::invalid_argument(format!("axis {axis} is out of range")))
    };
    axes.into_iter().map(axis).collect()
}

/// One axis after the other.
fn recipe(cx: &KernelCx<'_>) -> Result<Recipe> {
    let mut recipe = Recipe::new();
    let mut rolled = recipe.input(cx, 0);
    let shifts = cx.ints(1).ok();
    for (number, axis) in axes(cx.ints(2)?, cx.dims(0).len())?.into_iter().enumerate() {
        let dim = rolled.dims()[axis] as i64;
        match &shifts {
            _ if dim == 0 => {}
            Some(shifts) => {
                let shift = shifts.get(number).map_or(0, |shift| shift.rem_euclid(dim)) as u64;
                rolled = by_known(&mut recipe, rolled, axis, shift)?;
            }
            None => rolled = by_named(&mut recipe, rolled, axis, cx, number)?,
        }
    }
    if rolled == recipe.input(cx, 0) {
        let shape = cx.dims(0).to_vec();
        let begin = vec![0; shape.len()];
        rolled = recipe.moved(Movement::Slice { sizes: shape.clone(), begin, shape: shape.clone() }, &rolled, shape)?;
    }
    Ok(recipe.finish([rolled]))
}

/// The last `shift` places in front of the others.
fn by_known(recipe: &mut Recipe, of: Ingredient, axis: usize, shift: u64) -> Result<Ingredient> {
    if shift == 0 {
        return Ok(of);
    }
    let shape = of.dims().to_vec();
    let mut part = |begin: u64, size: u64| {
        let (mut begins, mut sizes) = (vec![0; shape.len()], shape.clone());
        (begins[axis], sizes[axis]) = (begin, size);
        recipe.moved(Movement::Slice { shape: shape.clone(), begin: begins, sizes: sizes.clone() }, &of, sizes)
    };
    let parts = [part(shape[axis] - shift, shift)?, part(0, shape[axis] - shift)?];
    joined(recipe, parts, axis)
}

/// A block of the tensor twice, one behind the other: it begins where element `number` of input 1 says.
fn by_named(recipe: &mut Recipe, of: Ingredient, axis: usize, cx: &KernelCx<'_>, number: usize) -> Result<Ingredient> {
    let (shape, count) = (of.dims().to_vec(), cx.inputs[1].shape.elements()?);
    let shift = recipe.input(cx, 1).reshaped([count])?;
    let shift = match count {
        1 => shift,
        _ => recipe.moved(Movement::Slice { shape: vec![count], begin: vec![number as u64], sizes: vec![1] }, &shift, [1])?,
    };
    let mut begin = ExprBuilder::new();
    let value = begin.input(shift.data_type())?;
    let dim = Scalar::from_f64(shift.data_type(), shape[axis] as f64);
    let dim = begin.constant(dim.ok_or_else(|| Error::unimplemented(format!("Roll by {}", shift.data_type())))?);
    let place = begin.binary(BinaryOp::FloorMod, value, dim)?;
    let back = begin.unary(UnaryOp::Neg, place)?;
    let place = begin.binary(BinaryOp::Add, back, dim)?;
    let index_type = shift.data_type();
    let name = recipe.expression(begin.finish(vec![place]), [shift], [1]).swap_remove(0);
    let twice = joined(recipe, [of.clone(), of.clone()], axis)?;
    let begins = (0..shape.len()).map(|other| match other == axis {
        true => Begin::Named { position: 0, outside: Outside::Nearest },
        false => Begin::At(0),
    });
    let block = Block {
        shape: twice.dims().to_vec(),
        begins: begins.collect(),
        strides: vec![1; shape.len()],
        sizes: shape,
        names: Some((index_type, 1)),
    };
    let element = of.meta.element()? as usize;
    Ok(recipe.one(KernelRequest::Gather(Gather::Block { element, block }), [twice, name], of.meta))
}

fn joined(recipe: &mut Recipe, parts: [Ingredient; 2], axis: usize) -> Result<Ingredient> {
    let shapes: Vec<Vec<u64>> = parts.iter().map(|part| part.dims().to_vec()).collect();
    let mut shape = shapes[0].clone();
    shape[axis] += shapes[1][axis];
    let output = Meta { data_type: parts[0].data_type(), shape: shape.into() };
    let element = output.element()? as usize;
    Ok(recipe.one(KernelRequest::Movement { element, movement: Movement::Concat { shapes, axis } }, parts, output))
}

/// Shifted back.
fn gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, gradient| {
        let back = g.neg(g.input(1))?;
        Ok(vec![Some(g.op("Roll", &[gradient, back, g.input(2)])?), None, None])
    })
}
