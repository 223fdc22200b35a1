//! ConcatV2, Concat, ParallelConcat and ConcatOffset: tensors joined along an axis.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{AttrValue, AttrsExt, NodeId, Output, PartialShape, Shape};
use plimsoll_request::expr::{BinaryOp, ExprBuilder};
use plimsoll_request::movement::Movement;

use crate::gradient::{Grad, from_one};
use crate::infer::{int_vector, merge_shapes, of_rank, sum_dims};
use crate::recipe::Ingredient;
use crate::registry::Gradient;
use crate::{Call, GraphBuilder, InferCx, KernelCx, Lower, OpRules, Recipe};

/// The rules of ConcatV2, Concat, ParallelConcat and ConcatOffset.
pub const RULES: &[OpRules] = &[
    OpRules { name: "ConcatV2", infer: concat_v2, lower: Lower::Kernel(prepare_v2), gradient: Gradient::Rule(gradient_v2) },
    OpRules { name: "Concat", infer: concat_v1, lower: Lower::Kernel(prepare_v1), gradient: Gradient::Rule(gradient_v1) },
    OpRules { name: "ParallelConcat", infer: parallel, lower: Lower::Kernel(prepare_parallel), gradient: Gradient::Unknown },
    OpRules { name: "ConcatOffset", infer: offset, lower: Lower::Recipe(offsets), gradient: Gradient::Stops },
];

/// Where the values of a concatenation are among its inputs, and where its axis is.
#[derive(Clone, Copy)]
struct Layout {
    first: usize,
    count: usize,
    axis: usize,
}

fn v2(inputs: usize) -> Layout {
    Layout { first: 0, count: inputs.saturating_sub(1), axis: inputs.saturating_sub(1) }
}

fn v1(inputs: usize) -> Layout {
    Layout { first: 1, count: inputs.saturating_sub(1), axis: 0 }
}

fn concat_v2(cx: &mut InferCx<'_>) -> Result<()> {
    concat(cx, v2(cx.inputs.len()))
}

fn concat_v1(cx: &mut InferCx<'_>) -> Result<()> {
    concat(cx, v1(cx.inputs.len()))
}

/// Each operand is a row of the shape that the node states.
fn parallel(cx: &mut InferCx<'_>) -> Result<()> {
    let shape = cx.attrs().shape("shape")?.clone();
    let Some((rows, inner)) = shape.0.as_ref().and_then(|dims| dims.split_first()) else {
        return Err(Error::invalid_argument("shape must be fully defined, and of rank 1 at least"));
    };
    if cx.inputs.is_empty() || *rows != Some(cx.inputs.len() as u64) || inner.contains(&None) {
        return Err(Error::invalid_argument(format!("{} rows for a result of shape {shape}", cx.inputs.len())));
    }
    let row = PartialShape(Some([&[Some(1)], inner].concat()));
    for (input, fact) in cx.inputs.iter().enumerate() {
        merge_shapes(&row, &fact.shape)
            .map_err(|_| Error::invalid_argument(format!("values[{input}] has shape {} and not {row}", fact.shape)))?;
    }
    cx.set(0, shape);
    Ok(())
}

fn prepare_parallel(cx: &KernelCx<'_>) -> Result<Call> {
    let shapes = cx.inputs.iter().map(|meta| meta.shape.to_vec()).collect();
    Ok(Call::moving(cx.element(0)?, Movement::Concat { shapes, axis: 0 }, (0..cx.inputs.len()).collect::<Vec<usize>>()))
}

/// The axis among `rank`.
fn axis_in(axis: i64, rank: usize) -> Result<usize> {
    let position = if axis < 0 { axis + rank as i64 } else { axis };
    usize::try_from(position).ok().filter(|axis| *axis < rank).ok_or_else(|| {
        Error::invalid_argument(format!("ConcatOp : Expected concatenating dimensions in the range [-{rank}, {rank}), but got {axis}"))
    })
}

fn concat(cx: &mut InferCx<'_>, layout: Layout) -> Result<()> {
    let values = &cx.inputs[layout.first..layout.first + layout.count];
    let Some(known) = values.iter().position(|fact| fact.shape.0.is_some()) else { return Ok(()) };
    let first = &values[known].shape;
    let rank = first.0.as_ref().map_or(0, Vec::len);
    for (position, fact) in values.iter().enumerate() {
        if fact.shape.0.as_ref().is_some_and(|dims| dims.len() != rank) {
            return Err(Error::invalid_argument(format!(
                "ConcatOp : Ranks of all input tensors should match: shape[{known}] = {first} vs. shape[{position}] = {}",
                fact.shape
            )));
        }
    }
    let Some(axis) = cx.int(layout.axis) else {
        cx.set(0, of_rank(Some(rank)));
        return Ok(());
    };
    let axis = axis_in(axis, rank)?;
    let mut together = of_rank(Some(rank));
    for (position, fact) in values.iter().enumerate() {
        let mut open = fact.shape.clone();
        if let Some(dims) = &mut open.0 {
            dims[axis] = None;
        }
        together = merge_shapes(&together, &open).map_err(|_| {
            let clash = |other: usize| values[0].shape.0.iter().flatten().nth(other) != fact.shape.0.iter().flatten().nth(other);
            let dim = (0..rank).find(|other| *other != axis && clash(*other)).unwrap_or(0);
            Error::invalid_argument(format!(
                "ConcatOp : Dimension {dim} in both shapes must be equal: shape[0] = {} vs. shape[{position}] = {}",
                values[0].shape, fact.shape
            ))
        })?;
    }
    let length = sum_dims(values.iter().map(|fact| fact.shape.0.as_ref().and_then(|dims| dims[axis])));
    if let Some(dims) = &mut together.0 {
        dims[axis] = length;
    }
    if rank == 1 {
        let parts = (layout.first..layout.first + layout.count).map(|input| cx.some_ints(input));
        if let Some(parts) = parts.collect::<Option<Vec<_>>>() {
            cx.set_partial(parts.concat());
        }
    }
    cx.set(0, together);
    Ok(())
}

fn prepare_v2(cx: &KernelCx<'_>) -> Result<Call> {
    prepare(cx, v2(cx.inputs.len()))
}

fn prepare_v1(cx: &KernelCx<'_>) -> Result<Call> {
    prepare(cx, v1(cx.inputs.len()))
}

fn prepare(cx: &KernelCx<'_>, layout: Layout) -> Result<Call> {
    let values: Vec<usize> = (layout.first..layout.first + layout.count).collect();
    let axis = axis_in(cx.int(layout.axis)?, cx.dims(layout.first).len())?;
    let shapes = values.iter().map(|input| cx.dims(*input).to_vec()).collect();
    Ok(Call::moving(cx.element(layout.first)?, Movement::Concat { shapes, axis }, values))
}

fn gradient_v2(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    let layout = v2(builder.node(node).inputs.len());
    from_one(builder, node, gradients, |g, gradient| pieces(g, gradient, layout))
}

fn gradient_v1(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    let layout = v1(builder.node(node).inputs.len());
    from_one(builder, node, gradients, |g, gradient| pieces(g, gradient, layout))
}

/// The gradient of each value is its piece of the gradient.
fn pieces(g: &mut Grad<'_>, gradient: Output, layout: Layout) -> Result<Vec<Option<Output>>> {
    let mut result = vec![None; g.input_count()];
    let values: Vec<Output> = (0..layout.count).map(|value| g.input(layout.first + value)).collect();
    if let [_] = values[..] {
        result[layout.first] = Some(gradient);
        return Ok(result);
    }
    let rank = values.iter().find_map(|value| g.rank_of(*value));
    let axis = g.ints_of(g.input(layout.axis)).and_then(|axis| axis.first().copied());
    if let (Some(rank), Some(axis)) = (rank, axis) {
        let axis = axis_in(axis, rank)?;
        let sizes: Option<Vec<u64>> = values.iter().map(|value| g.shape_of(*value).0.and_then(|dims| dims[axis])).collect();
        if let Some(sizes) = sizes {
            let mut begin = 0;
            for (value, size) in sizes.into_iter().enumerate() {
                let (mut begins, mut lengths) = (vec![0; rank], vec![-1; rank]);
                (begins[axis], lengths[axis]) = (begin, size as i64);
                begin += size as i64;
                let (begins, lengths) = (g.ints(&begins)?, g.ints(&lengths)?);
                result[layout.first + value] = Some(g.op("Slice", &[gradient, begins, lengths])?);
            }
            return Ok(result);
        }
    }
    let rank = g.op("Rank", &[values[0]])?;
    let axis = g.op("FloorMod", &[g.input(layout.axis), rank])?;
    let shapes = g.op_with("ShapeN", &values, &[("N", AttrValue::Int(layout.count as i64))])?;
    let shapes: Vec<Output> = (0..layout.count as u32).map(|index| Output { index, ..shapes }).collect();
    let mut inputs = vec![axis];
    inputs.extend(&shapes);
    let offsets = g.op("ConcatOffset", &inputs)?;
    for (value, shape) in shapes.into_iter().enumerate() {
        let begin = Output { index: value as u32, ..offsets };
        result[layout.first + value] = Some(g.op("Slice", &[gradient, begin, shape])?);
    }
    Ok(result)
}

/// Output i is where value i begins in the concatenation.
fn offset(cx: &mut InferCx<'_>) -> Result<()> {
    let count = cx.outputs.len();
    let shapes: Option<Vec<Vec<i64>>> = (1..=count).map(|index| cx.ints(index)).collect();
    let (Some(axis), Some(shapes)) = (cx.int(0), shapes) else {
        (0..count).for_each(|index| cx.set(index, cx.shape(index + 1).clone()));
        return Ok(());
    };
    let rank = shapes.first().map_or(0, Vec::len);
    let position = if axis < 0 { axis + rank as i64 } else { axis };
    let place = usize::try_from(position).ok().filter(|place| *place < rank);
    let place = place.ok_or_else(|| Error::invalid_argument(format!("Concat dim is out of range: {axis} vs. {rank}")))?;
    let text = |dims: &[i64]| dims.iter().map(i64::to_string).collect::<Vec<_>>().join(" ");
    let mut begin = 0i64;
    for (index, shape) in shapes.iter().enumerate() {
        let fits = shape.len() == rank && (0..rank).all(|other| other == place || shape[other] == shapes[0][other]);
        if !fits {
            return Err(Error::invalid_argument(format!(
                "All dimensions except {place} must match. Input {index} has shape [{}] and doesn't match input 0 with shape [{}].",
                text(shape),
                text(&shapes[0])
            )));
        }
        let mut offset = vec![0; rank];
        offset[place] = begin;
        begin = begin.checked_add(shape[place]).ok_or_else(|| Error::invalid_argument("the concatenation overflows"))?;
        let value = int_vector(&offset, cx.outputs[index].data_type)?;
        cx.set_value(index, value);
    }
    Ok(())
}

/// For shapes that only the run knows: along the axis the sum of the sizes before, 0 elsewhere.
fn offsets(cx: &KernelCx<'_>) -> Result<Recipe> {
    let mut recipe = Recipe::new();
    let axis = recipe.input(cx, 0).reshaped(Shape::scalar())?;
    let shapes: Vec<Ingredient> = (1..cx.inputs.len()).map(|index| recipe.input(cx, index)).collect();
    let Some(first) = shapes.first() else { return Err(Error::invalid_argument("an offset of no shapes")) };
    let (data_type, rank) = (first.data_type(), first.meta.shape.elements()?);
    if shapes.iter().any(|shape| shape.dims() != [rank]) {
        return Err(Error::invalid_argument(format!("All shapes must be vectors of {rank} elements")));
    }
    let places = recipe.numbered(DataType::Int32, rank)?;
    let mut e = ExprBuilder::new();
    let zero = e.number(data_type, 0.0)?;
    let mut before = recipe.expression(e.finish(vec![zero]), [], [rank]).swap_remove(0);
    let mut results = vec![before.clone()];
    for shape in &shapes[..shapes.len() - 1] {
        let mut e = ExprBuilder::new();
        let (place, axis_in) = (e.input(DataType::Int32)?, e.input(DataType::Int32)?);
        let (sum, size) = (e.input(data_type)?, e.input(data_type)?);
        let (zero, none, ranks) = (e.number(DataType::Int32, 0.0)?, e.number(data_type, 0.0)?, e.number(DataType::Int32, rank as f64)?);
        let (is_negative, from_end) = (e.binary(BinaryOp::Less, axis_in, zero)?, e.binary(BinaryOp::Add, axis_in, ranks)?);
        let axis_at = e.select(is_negative, from_end, axis_in)?;
        let (is_axis, sum) = (e.binary(BinaryOp::Equal, place, axis_at)?, e.binary(BinaryOp::Add, sum, size)?);
        let sum = e.select(is_axis, sum, none)?;
        before = recipe.expression(e.finish(vec![sum]), [places.clone(), axis.clone(), before, shape.clone()], [rank]).swap_remove(0);
        results.push(before.clone());
    }
    Ok(recipe.finish(results))
}
