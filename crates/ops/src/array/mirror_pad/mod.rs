//! MirrorPad and MirrorPadGrad: a border of the elements on the other side of it.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{Attrs, AttrsExt, NodeId, Output};
use plimsoll_request::expr::BinaryOp;
use plimsoll_request::movement::{Movement, Pick};

use crate::gradient::from_one;
use crate::infer::of_rank;
use crate::recipe::Ingredient;
use crate::registry::Gradient;
use crate::{Call, GraphBuilder, InferCx, KernelCx, Lower, OpRules, Recipe};

/// The rules of MirrorPad and MirrorPadGrad.
pub const RULES: &[OpRules] = &[
    OpRules { name: "MirrorPad", infer, lower: Lower::Kernel(prepare), gradient: Gradient::Rule(gradient) },
    OpRules { name: "MirrorPadGrad", infer: infer_grad, lower: Lower::Recipe(prepare_grad), gradient: Gradient::Rule(gradient) },
];

/// Whether the border's own elements are repeated.
fn repeats_edge(attrs: &Attrs) -> Result<bool> {
    match attrs.text("mode")? {
        "SYMMETRIC" => Ok(true),
        "REFLECT" => Ok(false),
        other => Err(Error::invalid_argument(format!("mode must be either REFLECT or SYMMETRIC, and is {other}"))),
    }
}

/// The paddings of each dimension.
fn sides(ints: &[i64]) -> Result<Vec<(u64, u64)>> {
    let side = |pair: &[i64]| Some((u64::try_from(pair[0]).ok()?, u64::try_from(pair[1]).ok()?));
    let sides = ints.chunks_exact(2).map(|pair| side(pair).ok_or_else(|| negative(pair)));
    sides.collect()
}

fn negative(pair: &[i64]) -> Error {
    Error::invalid_argument(format!("paddings must be non-negative: {} {}", pair[0], pair[1]))
}

/// Dimensions and paddings, where both are known.
type Sides<'a> = Option<(&'a [Option<u64>], Vec<(u64, u64)>)>;

/// What is known of the input and its paddings; else the rank is set.
fn known<'a>(cx: &mut InferCx<'a>) -> Result<Sides<'a>> {
    if cx.dims(1).is_some_and(|dims| dims.len() != 2 || dims[1].is_some_and(|two| two != 2)) {
        return Err(Error::invalid_argument(format!("paddings must be a matrix with 2 columns: {}", cx.shape(1))));
    }
    let rows = cx.dims(1).and_then(|dims| dims[0]);
    let rank = cx.dims(0).map(<[_]>::len);
    if rank.zip(rows).is_some_and(|(rank, rows)| rank as u64 != rows) {
        return Err(Error::invalid_argument(format!(
            "The first dimension of paddings must be the rank of inputs{} {}",
            cx.shape(1),
            cx.shape(0)
        )));
    }
    match (cx.dims(0), cx.ints(1)) {
        (Some(dims), Some(paddings)) => Ok(Some((dims, sides(&paddings)?))),
        _ => {
            cx.set(0, of_rank(rank.or(rows.and_then(crate::infer::rank_of))));
            Ok(None)
        }
    }
}

/// Refuses paddings that are larger than what is mirrored.
fn check(dim: u64, (before, after): (u64, u64), edge: bool) -> Result<()> {
    let most = before.max(after);
    if edge && most > dim {
        let words = format!("paddings must be no greater than the dimension size: {before}, {after} greater than {dim}");
        return Err(Error::invalid_argument(words));
    }
    if !edge && most >= dim {
        let words = format!("paddings must be less than the dimension size: {before}, {after} not less than {dim}");
        return Err(Error::invalid_argument(words));
    }
    Ok(())
}

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let edge = repeats_edge(cx.attrs())?;
    let Some((dims, sides)) = known(cx)? else { return Ok(()) };
    let grown = |(dim, side): (&Option<u64>, &(u64, u64))| {
        let Some(dim) = *dim else { return Ok(None) };
        check(dim, *side, edge)?;
        let sum = dim.checked_add(side.0).and_then(|sum| sum.checked_add(side.1));
        sum.map(Some).ok_or_else(|| Error::invalid_argument("the padded shape overflows"))
    };
    let dims = dims.iter().zip(&sides).map(grown).collect::<Result<_>>()?;
    cx.set_dims(0, dims);
    Ok(())
}

fn infer_grad(cx: &mut InferCx<'_>) -> Result<()> {
    let edge = repeats_edge(cx.attrs())?;
    let Some((dims, sides)) = known(cx)? else { return Ok(()) };
    let shrunk = |(dim, side): (&Option<u64>, &(u64, u64))| {
        let Some(dim) = *dim else { return Ok(None) };
        let rest = side.0.checked_add(side.1).and_then(|both| dim.checked_sub(both));
        let words = || Error::invalid_argument(format!("paddings of {} and {} are more than the {dim} elements", side.0, side.1));
        let rest = rest.ok_or_else(words)?;
        check(rest, *side, edge)?;
        Ok(Some(rest))
    };
    let dims = dims.iter().zip(&sides).map(shrunk).collect::<Result<_>>()?;
    cx.set_dims(0, dims);
    Ok(())
}

fn prepare(cx: &KernelCx<'_>) -> Result<Call> {
    let edge = repeats_edge(cx.attrs())?;
    let pick = |(before, after)| if (before, after) == (0, 0) { Pick::All } else { Pick::Mirror { before, after, edge } };
    let picks = sides(&cx.ints(1)?)?.into_iter().map(pick).collect();
    Ok(Call::moving(cx.element(0)?, Movement::Pick { shape: cx.dims(0).to_vec(), picks }, [0]))
}

/// Along one dimension after the other: the middle, and both borders turned round, added where they come from.
fn prepare_grad(cx: &KernelCx<'_>) -> Result<Recipe> {
    let skipped = u64::from(!repeats_edge(cx.attrs())?);
    let mut recipe = Recipe::new();
    let mut sum = recipe.input(cx, 0);
    for (axis, (before, after)) in sides(&cx.ints(1)?)?.into_iter().enumerate() {
        if (before, after) == (0, 0) {
            continue;
        }
        let shape = sum.dims().to_vec();
        let size = shape[axis] - before - after;
        let slice = |recipe: &mut Recipe, from: &Ingredient, begin: u64, stride: i64, count: u64| -> Result<Ingredient> {
            let (mut begins, mut strides, mut sizes) = (vec![0; shape.len()], vec![1; shape.len()], shape.clone());
            (begins[axis], strides[axis], sizes[axis]) = (begin, stride, count);
            let movement = Movement::StridedSlice { shape: shape.clone(), begin: begins, strides, sizes: sizes.clone() };
            recipe.moved(movement, from, sizes)
        };
        let mut result = slice(&mut recipe, &sum, before, 1, size)?;
        // Where the first border's elements come from begins with the first element, or the one behind it.
        for (count, last, place) in [(before, before, skipped), (after, shape[axis], size.saturating_sub(after + skipped))] {
            if count == 0 {
                continue;
            }
            let mut border = slice(&mut recipe, &sum, last - 1, -1, count)?;
            let whole = result.dims().to_vec();
            if count < size {
                let mut paddings = vec![(0, 0); whole.len()];
                paddings[axis] = (place, size - count - place);
                let value = Some(vec![0; border.meta.element()? as usize]);
                border = recipe.moved(Movement::Pad { shape: border.dims().to_vec(), paddings, value }, &border, whole.clone())?;
            }
            result = recipe.binary(BinaryOp::Add, [&result, &border], whole)?;
        }
        sum = result;
    }
    Ok(recipe.finish([sum]))
}

/// The way back.
fn gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, dy| {
        let back = if g.op_name() == "MirrorPad" { "MirrorPadGrad" } else { "MirrorPad" };
        let mode = g.attrs().get("mode").cloned();
        let attrs: Vec<_> = mode.map(|mode| ("mode", mode)).into_iter().collect();
        Ok(vec![Some(g.op_with(back, &[dy, g.input(1)], &attrs)?), None])
    })
}
