//! SegmentSum, SparseSegmentSum and their kin: rows combined by the segment that each names, in ascending order.
//!
//! How many segments there are follows from the ids, unless an operand says it: then the ids may be computed.

mod gradients;

pub use gradients::RULES as GRADIENTS;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::PartialShape;
use plimsoll_request::KernelRequest;
use plimsoll_request::check::Requirement;
use plimsoll_request::expr::{BinaryOp, ExprBuilder, Scalar, UnaryOp};
use plimsoll_request::gather::{Gather, SegmentOp};
use plimsoll_request::movement::Movement;
use plimsoll_request::reduce::{ReduceOp, Reduction};

use crate::recipe::{Ingredient, Recipe};
use crate::registry::Gradient;
use crate::{InferCx, KernelCx, Lower, Meta, OpRules};

const fn dense(name: &'static str, make: fn(&KernelCx<'_>) -> Result<Recipe>, gradient: Gradient) -> OpRules {
    OpRules { name, infer, lower: Lower::Recipe(make), gradient }
}

const fn sparse(name: &'static str, make: fn(&KernelCx<'_>) -> Result<Recipe>) -> OpRules {
    OpRules { name, infer: infer_sparse, lower: Lower::Recipe(make), gradient: Gradient::Rule(gradients::sparse) }
}

/// The rules of segments in ascending order.
pub const RULES: &[OpRules] = &[
    dense("SegmentSum", |cx| combined(cx, SegmentOp::Sum), Gradient::Rule(gradients::sum)),
    dense("SegmentProd", |cx| combined(cx, SegmentOp::Prod), Gradient::Unknown),
    dense("SegmentMax", |cx| combined(cx, SegmentOp::Max), Gradient::Rule(gradients::chosen)),
    dense("SegmentMin", |cx| combined(cx, SegmentOp::Min), Gradient::Rule(gradients::chosen)),
    dense("SegmentMean", |cx| divided(cx, Divisor::Count), Gradient::Rule(gradients::mean)),
    sparse("SparseSegmentSum", |cx| combined(cx, SegmentOp::Sum)),
    sparse("SparseSegmentMean", |cx| divided(cx, Divisor::Count)),
    sparse("SparseSegmentSqrtN", |cx| divided(cx, Divisor::Root)),
    sparse("SparseSegmentSumWithNumSegments", |cx| combined(cx, SegmentOp::Sum)),
    sparse("SparseSegmentMeanWithNumSegments", |cx| divided(cx, Divisor::Count)),
    sparse("SparseSegmentSqrtNWithNumSegments", |cx| divided(cx, Divisor::Root)),
];

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let segments = segments(cx, 1, None)?;
    shape(cx, 1, segments)
}

fn infer_sparse(cx: &mut InferCx<'_>) -> Result<()> {
    if let (Some(indices), Some(ids)) = (cx.with_rank(1, 1)?, cx.with_rank(2, 1)?)
        && indices[0].zip(ids[0]).is_some_and(|(indices, ids)| indices != ids)
    {
        return Err(Error::invalid_argument("segment_ids and indices should have same size."));
    }
    let stated = if cx.inputs.len() > 3 { Some(3) } else { None };
    let segments = segments(cx, 2, stated)?;
    shape(cx, 2, segments)
}

/// How many segments there are, where it is known; ids that are known are checked.
fn segments(cx: &InferCx<'_>, ids: usize, stated: Option<usize>) -> Result<Option<u64>> {
    cx.with_rank(ids, 1)?;
    let stated = match stated {
        Some(input) => {
            cx.with_rank(input, 0)?;
            let count = |count: i64| {
                u64::try_from(count)
                    .map_err(|_| Error::invalid_argument(format!("Cannot specify a negative value for num_segments: {count}")))
            };
            Some(cx.int(input).map(count).transpose()?)
        }
        None => None,
    };
    let Some(known) = cx.ints(ids) else { return Ok(stated.flatten()) };
    if known.first().is_some_and(|first| *first < 0) {
        return Err(Error::invalid_argument("segment ids must be >= 0"));
    }
    if !known.is_sorted() {
        return Err(Error::invalid_argument("segment ids are not increasing"));
    }
    let needed = known.last().map_or(0, |last| *last as u64 + 1);
    match stated {
        Some(Some(count)) if count < needed => {
            Err(Error::invalid_argument(format!("segment ids must be < num_segments: {needed} > {count}")))
        }
        Some(count) => Ok(count),
        None => Ok(Some(needed)),
    }
}

fn shape(cx: &mut InferCx<'_>, ids: usize, segments: Option<u64>) -> Result<()> {
    let Some(data) = cx.with_rank_at_least(0, 1)? else { return Ok(()) };
    if ids == 1
        && let (Some(rows), Some([Some(ids)])) = (data[0], cx.dims(1))
        && rows != *ids
    {
        return Err(Error::invalid_argument("segment_ids should be the same size as dimension 0 of input."));
    }
    cx.set(0, PartialShape(Some([&[segments], &data[1..]].concat())));
    Ok(())
}

fn number(data_type: DataType, value: f64) -> Result<Scalar> {
    Scalar::from_f64(data_type, value).ok_or_else(|| Error::unimplemented(format!("segments of {data_type}")))
}

/// The rows, and the ids of their segments. Ids that are computed are checked when they are there.
fn rows(recipe: &mut Recipe, cx: &KernelCx<'_>) -> Result<(Ingredient, Ingredient)> {
    let (data, is_sparse) = (recipe.input(cx, 0), cx.node.op.starts_with("Sparse"));
    let ids = recipe.input(cx, if is_sparse { 2 } else { 1 });
    if cx.ints(if is_sparse { 2 } else { 1 }).is_err() {
        check(recipe, &ids)?;
    }
    if !is_sparse {
        return Ok((data, ids));
    }
    let (indices, params) = (recipe.input(cx, 1), data.dims().to_vec());
    let shape = [indices.dims(), &params[1..]].concat();
    let request = Gather::Take {
        element: data.meta.element()? as usize,
        params,
        indices: indices.dims().to_vec(),
        axis: 0,
        batch_dims: 0,
        index_type: indices.data_type(),
    };
    let output = Meta { data_type: data.data_type(), shape: shape.into() };
    Ok((recipe.one(KernelRequest::Gather(request), [data, indices], output), ids))
}

/// Refuses ids that are negative or not in ascending order, when they are there.
fn check(recipe: &mut Recipe, ids: &Ingredient) -> Result<()> {
    let (count, data_type) = (ids.dims()[0], ids.data_type());
    if count == 0 {
        return Ok(());
    }
    let part = |begin| Movement::Slice { shape: vec![count], begin: vec![begin], sizes: vec![count - 1] };
    let before = recipe.moved(part(0), ids, [count - 1])?;
    let after = recipe.moved(part(1), ids, [count - 1])?;
    let ascending = recipe.binary(BinaryOp::LessEqual, [&before, &after], [count - 1])?;
    let mut builder = ExprBuilder::new();
    let id = builder.input(data_type)?;
    let zero = builder.constant(number(data_type, 0.0)?);
    let natural = builder.binary(BinaryOp::GreaterEqual, id, zero)?;
    let natural = recipe.expression(builder.finish(vec![natural]), [ids.clone()], [count]).swap_remove(0);
    for condition in [ascending, natural] {
        let shape = condition.dims().to_vec();
        let request = Reduction::Reduce { op: ReduceOp::All, data_type: DataType::Bool, shape, axes: vec![0], divided: false };
        let scalar = Meta { data_type: DataType::Bool, shape: Vec::new().into() };
        let holds = recipe.one(KernelRequest::Reduction(request), [condition], scalar);
        recipe.request(KernelRequest::Require(Requirement::Ascending), [holds], []);
    }
    Ok(())
}

fn segment(recipe: &mut Recipe, op: SegmentOp, rows: Ingredient, ids: Ingredient, segments: u64) -> Ingredient {
    let (shape, data_type) = (rows.dims().to_vec(), rows.data_type());
    let output = Meta { data_type, shape: [&[segments], &shape[1..]].concat().into() };
    let ids_shape = ids.dims().to_vec();
    let request = Gather::Segment { op, data_type, index_type: ids.data_type(), shape, ids_shape, segments };
    recipe.one(KernelRequest::Gather(request), [rows, ids], output)
}

/// How many rows each segment has, in a shape that broadcasts to the result.
fn count(recipe: &mut Recipe, ids: &Ingredient, result: &Meta) -> Result<Ingredient> {
    let mut builder = ExprBuilder::new();
    let one = builder.constant(number(result.data_type, 1.0)?);
    let ones = recipe.expression(builder.finish(vec![one]), [], ids.meta.shape.clone()).swap_remove(0);
    let segments = result.shape[0];
    let counts = segment(recipe, SegmentOp::Sum, ones, ids.clone(), segments);
    let mut shape = vec![1; result.shape.rank()];
    shape[0] = segments;
    counts.reshaped(shape)
}

fn combined(cx: &KernelCx<'_>, op: SegmentOp) -> Result<Recipe> {
    let mut recipe = Recipe::new();
    let (rows, ids) = rows(&mut recipe, cx)?;
    let output = &cx.outputs[0];
    let result = segment(&mut recipe, op, rows, ids.clone(), output.shape[0]);
    if matches!(op, SegmentOp::Sum | SegmentOp::Prod) {
        return Ok(recipe.finish([result]));
    }
    // The largest of none is 0.
    let counts = count(&mut recipe, &ids, output)?;
    let mut builder = ExprBuilder::new();
    let (found, count) = (builder.input(output.data_type)?, builder.input(output.data_type)?);
    let zero = builder.constant(number(output.data_type, 0.0)?);
    let empty = builder.binary(BinaryOp::Equal, count, zero)?;
    let found = builder.select(empty, zero, found)?;
    let results = recipe.expression(builder.finish(vec![found]), [result, counts], output.shape.clone());
    Ok(recipe.finish(results))
}

/// What the sum of a segment is divided by.
#[derive(Clone, Copy)]
enum Divisor {
    Count,
    Root,
}

/// The divisor of each segment; 1 for one without rows, whose sum is 0.
fn divisor_of(recipe: &mut Recipe, counts: Ingredient, by: Divisor) -> Result<Ingredient> {
    let (data_type, shape) = (counts.data_type(), counts.meta.shape.clone());
    let mut builder = ExprBuilder::new();
    let count = builder.input(data_type)?;
    let one = builder.constant(number(data_type, 1.0)?);
    let divisor = builder.binary(BinaryOp::Maximum, count, one)?;
    let divisor = match by {
        Divisor::Count => divisor,
        Divisor::Root => builder.unary(UnaryOp::Sqrt, divisor)?,
    };
    Ok(recipe.expression(builder.finish(vec![divisor]), [counts], shape).swap_remove(0))
}

fn divided(cx: &KernelCx<'_>, by: Divisor) -> Result<Recipe> {
    let mut recipe = Recipe::new();
    let (rows, ids) = rows(&mut recipe, cx)?;
    let output = &cx.outputs[0];
    let sum = segment(&mut recipe, SegmentOp::Sum, rows, ids.clone(), output.shape[0]);
    let counts = count(&mut recipe, &ids, output)?;
    let divisor = divisor_of(&mut recipe, counts, by)?;
    let mean = recipe.binary(BinaryOp::Div, [&sum, &divisor], output.shape.clone())?;
    Ok(recipe.finish([mean]))
}
