//! ImageProjectiveTransformV3 and its older form.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{Attrs, AttrsExt};
use plimsoll_request::KernelRequest;
use plimsoll_request::expr::{ExprBuilder, Scalar};
use plimsoll_request::warp::{Outside, Warp};

use super::resize::cast;
use crate::registry::Gradient;
use crate::{InferCx, KernelCx, Lower, Meta, OpRules, Recipe};

/// The rules of ImageProjectiveTransformV2 and ImageProjectiveTransformV3.
pub const RULES: &[OpRules] = &[
    OpRules { name: "ImageProjectiveTransformV2", infer, lower: Lower::Recipe(prepare), gradient: Gradient::Unknown },
    OpRules { name: "ImageProjectiveTransformV3", infer, lower: Lower::Recipe(prepare), gradient: Gradient::Unknown },
];

/// Whether neighbours are weighted, and what lies outside.
fn ways(attrs: &Attrs) -> Result<(bool, Outside)> {
    let bilinear = match attrs.text("interpolation")? {
        "NEAREST" => false,
        "BILINEAR" => true,
        other => return Err(Error::invalid_argument(format!("Invalid interpolation {other}. Supported types: NEAREST, BILINEAR"))),
    };
    let outside = match attrs.text("fill_mode")? {
        "CONSTANT" => Outside::Constant,
        "REFLECT" => Outside::Reflect,
        "WRAP" => Outside::Wrap,
        "NEAREST" => Outside::Nearest,
        other => {
            let words = format!("Invalid mode {other}. Supported types: REFLECT, WRAP, CONSTANT, NEAREST");
            return Err(Error::invalid_argument(words));
        }
    };
    Ok((bilinear, outside))
}

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    ways(cx.attrs())?;
    let dims = match cx.dims(0) {
        None => [None; 4],
        Some(dims) => dims.try_into().map_err(|_| Error::invalid_argument("images must have rank 4"))?,
    };
    if let Some(transforms) = cx.dims(1) {
        let &[rows, eight] = transforms else {
            return Err(Error::invalid_argument("Input transform should be num_images x 8 or 1 x 8"));
        };
        let is_other = rows.zip(dims[0]).is_some_and(|(rows, images)| rows != 1 && rows != images);
        if eight.is_some_and(|eight| eight != 8) || is_other {
            return Err(Error::invalid_argument("Input transform should be num_images x 8 or 1 x 8"));
        }
    }
    if cx.dims(2).is_some_and(|dims| dims.len() != 1) {
        return Err(Error::invalid_argument("output shape must be 1-dimensional"));
    }
    if cx.vector_len(2).is_some_and(|length| length != 2) {
        return Err(Error::invalid_argument("output shape must have two elements"));
    }
    let mut sides = [None; 2];
    if let Some([height, width]) = cx.ints(2).as_deref() {
        if *height <= 0 || *width <= 0 {
            return Err(Error::invalid_argument("output dimensions must be positive"));
        }
        sides = [Some(*height as u64), Some(*width as u64)];
    }
    cx.set_dims(0, vec![dims[0], sides[0], sides[1], dims[3]]);
    Ok(())
}

/// Computed as floats, or as doubles where the type has more digits.
fn prepare(cx: &KernelCx<'_>) -> Result<Recipe> {
    let (bilinear, outside) = ways(cx.attrs())?;
    let mut recipe = Recipe::new();
    let images = recipe.input(cx, 0);
    let data_type = match images.data_type() {
        DataType::Double | DataType::Int32 | DataType::Int64 => DataType::Double,
        _ => DataType::Float,
    };
    let images = cast(&mut recipe, &images, data_type)?;
    let fill = if cx.inputs.len() > 3 {
        cx.require_one(3, "fill_value")?;
        recipe.input(cx, 3)
    } else {
        let mut builder = ExprBuilder::new();
        let zero = builder.constant(Scalar::F32(0.0));
        recipe.expression(builder.finish(vec![zero]), [], plimsoll_graph::Shape::scalar()).swap_remove(0)
    };
    let (&[batch, height, width, channels], &[_, new_height, new_width, _]) = (images.dims(), cx.outputs[0].shape.dims()) else {
        return Err(Error::internal("images of other than four dimensions"));
    };
    let (size, resized) = ([height, width], [new_height, new_width]);
    let is_shared = cx.dims(1).first() == Some(&1);
    let spec = Warp { data_type, batch, size, resized, channels, is_shared, bilinear, outside };
    let transforms = recipe.input(cx, 1);
    let meta = Meta { data_type, shape: cx.outputs[0].shape.clone() };
    let result = recipe.one(KernelRequest::Warp(spec), [images, transforms, fill], meta);
    let result = cast(&mut recipe, &result, cx.outputs[0].data_type)?;
    Ok(recipe.finish([result]))
}
