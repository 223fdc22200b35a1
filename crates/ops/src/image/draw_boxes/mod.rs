//! DrawBoundingBoxes: images with the edges of boxes, one box over those before it.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_request::expr::{BinaryOp, ExprBuilder, Reg, Scalar};
use plimsoll_request::movement::Movement;

use crate::infer::merge_shapes;
use crate::recipe::{Ingredient, Recipe};
use crate::registry::Gradient;
use crate::{InferCx, KernelCx, Lower, OpRules};

/// The rules of boxes that are drawn.
pub const RULES: &[OpRules] = &[
    OpRules { name: "DrawBoundingBoxes", infer, lower: Lower::Recipe(draw), gradient: Gradient::Unknown },
    OpRules { name: "DrawBoundingBoxesV2", infer: infer_coloured, lower: Lower::Recipe(draw), gradient: Gradient::Unknown },
];

/// The colours of boxes where none are given: yellow, blue, red, lime, purple, olive, maroon, navy blue, aqua, fuchsia.
const COLOURS: [[f32; 4]; 10] = [
    [1.0, 1.0, 0.0, 1.0],
    [0.0, 0.0, 1.0, 1.0],
    [1.0, 0.0, 0.0, 1.0],
    [0.0, 1.0, 0.0, 1.0],
    [0.5, 0.0, 0.5, 1.0],
    [0.5, 0.5, 0.0, 1.0],
    [0.5, 0.0, 0.0, 1.0],
    [0.0, 0.0, 0.5, 1.0],
    [0.0, 1.0, 1.0, 1.0],
    [1.0, 0.0, 1.0, 1.0],
];

/// Boxes of an image that a recipe has steps for.
const MOST_BOXES: u64 = 1024;

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let (images, boxes) = (cx.with_rank(0, 4)?, cx.with_rank(1, 3)?);
    if let Some(depth) = images.and_then(|dims| dims[3]).filter(|depth| !matches!(depth, 1 | 3 | 4)) {
        return Err(Error::invalid_argument(format!("Channel depth should be either 1 (GRY), 3 (RGB), or 4 (RGBA), not {depth}")));
    }
    if let (Some(images), Some(boxes)) = (images, boxes)
        && images[0].zip(boxes[0]).is_some_and(|(images, boxes)| images != boxes)
    {
        return Err(Error::invalid_argument(format!("The batch sizes should be the same: {} and {}", cx.shape(0), cx.shape(1))));
    }
    if let Some(size) = boxes.and_then(|dims| dims[2]).filter(|size| *size != 4) {
        return Err(Error::invalid_argument(format!("The size of the third dimension of the box must be 4. Received: {size}")));
    }
    let shape = merge_shapes(cx.shape(0), &crate::infer::of_rank(Some(4)))?;
    cx.set(0, shape);
    Ok(())
}

fn infer_coloured(cx: &mut InferCx<'_>) -> Result<()> {
    infer(cx)?;
    let (images, colours) = (cx.dims(0), cx.with_rank(2, 2)?);
    if let Some((depth, given)) =
        images.and_then(|dims| dims[3]).zip(colours.and_then(|dims| dims[1])).filter(|(depth, given)| given < depth)
    {
        return Err(Error::invalid_argument(format!("colors must have as many channels as the image, {depth}, and have {given}")));
    }
    Ok(())
}

/// A vector as it lies along an axis of the images.
fn along(of: &Ingredient, axis: usize) -> Result<Ingredient> {
    let mut dims = [1; 4];
    dims[axis] = of.meta.shape.elements()?;
    of.reshaped(dims)
}

/// The colour of the box with that number.
fn colour(recipe: &mut Recipe, cx: &KernelCx<'_>, number: u64) -> Result<Ingredient> {
    let depth = cx.dims(0)[3];
    let given = cx.inputs.get(2).map_or(0, |colours| colours.shape[0]);
    if given > 0 {
        let (colours, shape) = (recipe.input(cx, 2), cx.dims(2).to_vec());
        let row = Movement::Slice { shape, begin: vec![number % given, 0], sizes: vec![1, depth] };
        return along(&recipe.moved(row, &colours, [depth])?, 3);
    }
    let colour = COLOURS[(number % COLOURS.len() as u64) as usize];
    // A grey image has white boxes.
    let channel = |at: usize| if depth == 1 { 1.0 } else { colour[at] };
    let mut e = ExprBuilder::new();
    let at = e.input(DataType::Int32)?;
    let mut value = e.constant(Scalar::F32(channel(0)));
    for next in 1..depth as i32 {
        let (own, next_value) = (e.constant(Scalar::I32(next)), e.constant(Scalar::F32(channel(next as usize))));
        let is_own = e.binary(BinaryOp::Equal, at, own)?;
        value = e.select(is_own, next_value, value)?;
    }
    let numbers = recipe.numbered(DataType::Int32, depth)?;
    along(&recipe.expression(e.finish(vec![value]), [numbers], [depth])[0], 3)
}

/// Whether a place is on an edge of the box or between its edges, along one axis; and whether the box lies along it at all.
struct Side {
    on: Reg,
    between: Reg,
    drawn: Reg,
}

/// `at` is a place along an axis with `size` places, and `low` and `high` are the ends of a box in shares of it.
fn side(e: &mut ExprBuilder, at: Reg, low: Reg, high: Reg, size: u64) -> Result<Side> {
    use BinaryOp::{Equal, GreaterEqual, Less, LessEqual, LogicalAnd, LogicalOr, Mul};
    let last = e.constant(Scalar::F32((size - 1) as f32));
    let mut place = |end: Reg| {
        let place = e.binary(Mul, end, last)?;
        e.cast(DataType::Int64, place)
    };
    let (low, high) = (place(low)?, place(high)?);
    let (zero, size) = (e.constant(Scalar::I64(0)), e.constant(Scalar::I64(size as i64)));
    let on = [e.binary(Equal, at, low)?, e.binary(Equal, at, high)?];
    let on = e.binary(LogicalOr, on[0], on[1])?;
    let between = [e.binary(LessEqual, low, at)?, e.binary(LessEqual, at, high)?];
    let between = e.binary(LogicalAnd, between[0], between[1])?;
    let inside = [e.binary(Less, low, size)?, e.binary(GreaterEqual, high, zero)?, e.binary(LessEqual, low, high)?];
    let drawn = e.binary(LogicalAnd, inside[0], inside[1])?;
    let drawn = e.binary(LogicalAnd, drawn, inside[2])?;
    Ok(Side { on, between, drawn })
}

fn draw(cx: &KernelCx<'_>) -> Result<Recipe> {
    let mut recipe = Recipe::new();
    let (images, boxes) = (cx.dims(0).to_vec(), cx.dims(1).to_vec());
    if boxes[1] > MOST_BOXES {
        return Err(Error::unimplemented(format!("{} boxes for each image", boxes[1])));
    }
    let data_type = cx.inputs[0].data_type;
    let mut canvas = recipe.input(cx, 0);
    let drawn = if cx.outputs[0].shape.elements()? == 0 { 0 } else { boxes[1] };
    if drawn == 0 {
        let mut e = ExprBuilder::new();
        let same = e.input(data_type)?;
        let result = recipe.expression(e.finish(vec![same]), [canvas], images);
        return Ok(recipe.finish(result));
    }
    let numbers = [1, 2].map(|axis| {
        let numbers = recipe.numbered(DataType::Int64, images[axis])?;
        along(&numbers, axis)
    });
    let [rows, columns] = numbers;
    let (rows, columns) = (rows?, columns?);
    let all = recipe.input(cx, 1);
    for number in 0..drawn {
        let colour = colour(&mut recipe, cx, number)?;
        let mut ends = Vec::with_capacity(4);
        for end in 0..4 {
            let slice = Movement::Slice { shape: boxes.clone(), begin: vec![0, number, end], sizes: vec![boxes[0], 1, 1] };
            ends.push(along(&recipe.moved(slice, &all, [boxes[0]])?, 0)?);
        }
        let mut e = ExprBuilder::new();
        let (old, new) = (e.input(data_type)?, e.input(DataType::Float)?);
        let (row, column) = (e.input(DataType::Int64)?, e.input(DataType::Int64)?);
        let [top, left, bottom, right] = [(); 4].map(|()| e.input(DataType::Float));
        let down = side(&mut e, row, top?, bottom?, images[1])?;
        let across = side(&mut e, column, left?, right?, images[2])?;
        let edge = [(down.on, across.between), (across.on, down.between)];
        let edge = edge.map(|(on, between)| e.binary(BinaryOp::LogicalAnd, on, between));
        let [horizontal, vertical] = edge;
        let edge = e.binary(BinaryOp::LogicalOr, horizontal?, vertical?)?;
        let drawn = e.binary(BinaryOp::LogicalAnd, down.drawn, across.drawn)?;
        let edge = e.binary(BinaryOp::LogicalAnd, edge, drawn)?;
        let new = e.cast(data_type, new)?;
        let value = e.select(edge, new, old)?;
        let inputs = [vec![canvas, colour, rows.clone(), columns.clone()], ends].concat();
        canvas = recipe.expression(e.finish(vec![value]), inputs, images.clone()).swap_remove(0);
    }
    Ok(recipe.finish([canvas]))
}
