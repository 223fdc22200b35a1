//! HistogramFixedWidth: how many numbers lie in each of the equal parts of a range.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_request::KernelRequest;
use plimsoll_request::check::Requirement;
use plimsoll_request::expr::{BinaryOp, ExprBuilder, UnaryOp};
use plimsoll_request::gather::{Gather, SegmentOp};
use plimsoll_request::movement::Movement;

use crate::registry::Gradient;
use crate::{InferCx, KernelCx, Lower, OpRules, Recipe};

/// The rules of HistogramFixedWidth.
pub const RULES: &[OpRules] = &[OpRules { name: "HistogramFixedWidth", infer, lower: Lower::Recipe(recipe), gradient: Gradient::Stops }];

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    if let Some(dims) = cx.with_rank(1, 1)?
        && dims[0].is_some_and(|size| size != 2)
    {
        return Err(Error::invalid_argument(format!("value_range should be a vector of 2 elements, got shape {}", cx.shape(1))));
    }
    cx.with_rank(2, 0)?;
    let bins = cx.int(2).map(|bins| match u64::try_from(bins) {
        Ok(bins) if bins > 0 => Ok(bins),
        _ => Err(Error::invalid_argument(format!("nbins should be a positive number, but got '{bins}'"))),
    });
    cx.set_dims(0, vec![bins.transpose()?]);
    Ok(())
}

/// Numbers outside of the range count to its ends. The place of a number is computed with doubles.
fn recipe(cx: &KernelCx<'_>) -> Result<Recipe> {
    use BinaryOp::{Div, Less, Maximum, Minimum, Sub};
    let mut recipe = Recipe::new();
    let output = cx.outputs[0].clone();
    let (values, range) = (recipe.input(cx, 0), recipe.input(cx, 1));
    let (data_type, bins, count) = (values.data_type(), output.shape[0], values.meta.shape.elements()?);
    let end = |recipe: &mut Recipe, at| recipe.moved(Movement::Slice { shape: vec![2], begin: vec![at], sizes: vec![1] }, &range, [1]);
    let ends = [end(&mut recipe, 0)?, end(&mut recipe, 1)?];
    let ordered = recipe.binary(Less, [&ends[0], &ends[1]], [1])?;
    recipe.require(Requirement::ValueRange, ordered);
    if data_type.is_floating() {
        let is_nan = recipe.unary(UnaryOp::IsNan, &values)?;
        let is_number = recipe.unary(UnaryOp::LogicalNot, &is_nan)?;
        recipe.require(Requirement::HistogramValues, is_number);
    }

    let mut e = ExprBuilder::new();
    let (value, low, high) = (e.input(data_type)?, e.input(data_type)?, e.input(data_type)?);
    let width = e.binary(Sub, high, low)?;
    let width = e.cast(DataType::Double, width)?;
    let parts = e.number(DataType::Double, bins as f64)?;
    let step = e.binary(Div, width, parts)?;
    let inside = e.binary(Maximum, value, low)?;
    let inside = e.binary(Minimum, inside, high)?;
    let distance = e.binary(Sub, inside, low)?;
    let distance = e.cast(DataType::Double, distance)?;
    let place = e.binary(Div, distance, step)?;
    let last = e.number(DataType::Double, bins as f64 - 1.0)?;
    // An infinite number of an infinite range has no place; it counts to the last part.
    let within = e.binary(Less, place, last)?;
    let place = e.select(within, place, last)?;
    let place = e.cast(DataType::Int64, place)?;
    let [low, high] = ends;
    let values = values.reshaped([count])?;
    let places = recipe.expression(e.finish(vec![place]), [values, low, high], [count]).swap_remove(0);

    let mut e = ExprBuilder::new();
    let one = e.number(output.data_type, 1.0)?;
    let ones = recipe.expression(e.finish(vec![one]), [], [count]).swap_remove(0);
    let request = Gather::Segment {
        op: SegmentOp::Sum,
        data_type: output.data_type,
        index_type: DataType::Int64,
        shape: vec![count],
        ids_shape: vec![count],
        segments: bins,
    };
    let counts = recipe.one(KernelRequest::Gather(request), [ones, places], output);
    Ok(recipe.finish([counts]))
}
