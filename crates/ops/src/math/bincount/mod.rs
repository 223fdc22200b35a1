//! Bincount and DenseBincount: how often each number occurs, or the sum of weights where it does.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::AttrsExt;
use plimsoll_request::KernelRequest;
use plimsoll_request::check::Requirement;
use plimsoll_request::expr::{BinaryOp, Expr, ExprBuilder, Reg, Scalar};
use plimsoll_request::gather::{Gather, SegmentOp};
use plimsoll_request::reduce::{ReduceOp, Reduction, ScanOp};

use crate::recipe::{Ingredient, Recipe};
use crate::registry::Gradient;
use crate::{InferCx, KernelCx, Lower, Meta, OpRules};

/// The rules of Bincount and DenseBincount.
pub const RULES: &[OpRules] = &[
    OpRules { name: "Bincount", infer, lower: Lower::Recipe(|cx| count(cx, false)), gradient: Gradient::Stops },
    OpRules {
        name: "DenseBincount",
        infer: infer_dense,
        lower: Lower::Recipe(|cx| count(cx, cx.attrs().bool("binary_output")?)),
        gradient: Gradient::Stops,
    },
];

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let size = size(cx)?;
    check_weights(cx)?;
    cx.set_dims(0, vec![size]);
    Ok(())
}

fn infer_dense(cx: &mut InferCx<'_>) -> Result<()> {
    let size = size(cx)?;
    check_weights(cx)?;
    let Some(dims) = cx.dims(0) else { return Ok(()) };
    let out = match *dims {
        [] | [_] => vec![size],
        [rows, _] => vec![rows, size],
        _ => return Err(Error::invalid_argument(format!("Shape must be at most rank 2 but is rank {}", dims.len()))),
    };
    cx.set_dims(0, out);
    Ok(())
}

fn size(cx: &InferCx<'_>) -> Result<Option<u64>> {
    cx.with_rank(1, 0)?;
    let size = |size: i64| u64::try_from(size).map_err(|_| Error::invalid_argument(format!("size ({size}) must be non-negative")));
    cx.int(1).map(size).transpose()
}

/// Weights are of the numbers' shape, or there are none.
fn check_weights(cx: &InferCx<'_>) -> Result<()> {
    let (Some(shape), Some(weights)) = (cx.shape(0).complete(), cx.shape(2).complete()) else { return Ok(()) };
    if shape == weights || weights.elements()? == 0 {
        return Ok(());
    }
    Err(Error::invalid_argument(format!(
        "`weights` must be the same shape as `arr` or a length-0 `Tensor`, got shape {weights} for {shape}"
    )))
}

/// The number `value` for every element.
fn all(value: Scalar) -> Expr {
    let mut builder = ExprBuilder::new();
    let number = builder.constant(value);
    builder.finish(vec![number])
}

fn number(data_type: DataType, value: f64) -> Result<Scalar> {
    Scalar::from_f64(data_type, value).ok_or_else(|| Error::unimplemented(format!("counts as {data_type}")))
}

fn count(cx: &KernelCx<'_>, binary: bool) -> Result<Recipe> {
    let mut recipe = Recipe::new();
    let (index_type, data_type) = (cx.inputs[0].data_type, cx.outputs[0].data_type);
    let numbers = recipe.input(cx, 0);
    let size = cx.outputs[0].shape.dims().last().copied().unwrap_or(0);
    let places = match cx.outputs[0].shape.rank() {
        2 => places_of_rows(&mut recipe, &numbers, size)?,
        _ => places(&mut recipe, &numbers, size, None)?,
    };
    let elements = numbers.meta.shape.elements()?;
    let weights = if binary || cx.inputs[2].shape.elements()? == 0 {
        recipe.expression(all(number(data_type, 1.0)?), [], [elements]).swap_remove(0)
    } else {
        recipe.input(cx, 2).reshaped([elements])?
    };
    let op = if binary { SegmentOp::Max } else { SegmentOp::Sum };
    let segments = cx.outputs[0].shape.elements()?;
    let request = Gather::Segment { op, data_type, index_type, shape: vec![elements], ids_shape: vec![elements], segments };
    let counts = Meta { data_type, shape: [segments].into() };
    let mut counts = recipe.one(KernelRequest::Gather(request), [weights, places.reshaped([elements])?], counts);
    if binary {
        // The largest of none is less than 0.
        let mut builder = ExprBuilder::new();
        let (largest, zero) = (builder.input(data_type)?, builder.constant(number(data_type, 0.0)?));
        let found = builder.binary(BinaryOp::Maximum, largest, zero)?;
        counts = recipe.expression(builder.finish(vec![found]), [counts], [segments]).swap_remove(0);
    }
    let counts = counts.reshaped(cx.outputs[0].shape.clone())?;
    Ok(recipe.finish([counts]))
}

/// The place of each number among `size`, which is none where it is larger; a negative one is an error.
fn places(recipe: &mut Recipe, numbers: &Ingredient, size: u64, rows: Option<Ingredient>) -> Result<Ingredient> {
    let (data_type, shape) = (numbers.data_type(), numbers.meta.shape.clone());
    let mut builder = ExprBuilder::new();
    let value = builder.input(data_type)?;
    let row = rows.as_ref().map(|rows| builder.input(rows.data_type())).transpose()?;
    let constant = |builder: &mut ExprBuilder, value: i64| -> Result<Reg> {
        let scalar = Scalar::from_le_bytes(data_type, &value.to_le_bytes()[..data_type.size().unwrap_or(0)]);
        scalar.map(|scalar| builder.constant(scalar)).ok_or_else(|| Error::unimplemented(format!("counts of {data_type}")))
    };
    let most = if data_type == DataType::Int32 { i64::from(i32::MAX) } else { i64::MAX };
    let (zero, none) = (constant(&mut builder, 0)?, constant(&mut builder, -1)?);
    let last = constant(&mut builder, (size as i64).min(most))?;
    let valid = builder.binary(BinaryOp::GreaterEqual, value, zero)?;
    let inside = builder.binary(BinaryOp::Less, value, last)?;
    let place = match row {
        Some(row) => builder.binary(BinaryOp::Add, row, value)?,
        None => value,
    };
    let place = builder.select(inside, place, none)?;
    let inputs: Vec<Ingredient> = std::iter::once(numbers.clone()).chain(rows).collect();
    let mut made = recipe.expression(builder.finish(vec![place, valid]), inputs, shape.clone());
    let axes = (0..shape.rank()).collect();
    let request = Reduction::Reduce { op: ReduceOp::All, data_type: DataType::Bool, shape: shape.to_vec(), axes, divided: false };
    let scalar = Meta { data_type: DataType::Bool, shape: Vec::new().into() };
    let valid = recipe.one(KernelRequest::Reduction(request), [made.swap_remove(1)], scalar);
    recipe.request(KernelRequest::Require(Requirement::NotNegative), [valid], []);
    Ok(made.swap_remove(0))
}

/// As [`places`], where each row has `size` places of its own.
fn places_of_rows(recipe: &mut Recipe, numbers: &Ingredient, size: u64) -> Result<Ingredient> {
    let (data_type, rows) = (numbers.data_type(), numbers.dims()[0]);
    let total = rows.checked_mul(size).filter(|total| data_type != DataType::Int32 || i32::try_from(*total).is_ok());
    if total.is_none() {
        return Err(Error::unimplemented(format!("{rows} rows of {size} counts by numbers of {data_type}")));
    }
    let sizes = recipe.expression(all(number(data_type, size as f64)?), [], [rows]).swap_remove(0);
    let scan = Reduction::Scan { op: ScanOp::Sum, data_type, shape: vec![rows], axis: 0, exclusive: true, reverse: false };
    let starts = recipe.one(KernelRequest::Reduction(scan), [sizes.clone()], sizes.meta);
    places(recipe, numbers, size, Some(starts.reshaped([rows, 1])?))
}
