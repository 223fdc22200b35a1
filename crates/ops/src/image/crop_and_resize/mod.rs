//! CropAndResize and its gradients.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{AttrValue, Attrs, AttrsExt, NodeId, Output, Shape};
use plimsoll_request::KernelRequest;
use plimsoll_request::crop::{Crop, Makes};

use super::resize::cast;
use crate::gradient::from_one;
use crate::registry::Gradient;
use crate::{GraphBuilder, InferCx, KernelCx, Lower, Meta, OpRules, Recipe};

/// The rules of CropAndResize, CropAndResizeGradImage and CropAndResizeGradBoxes.
pub const RULES: &[OpRules] = &[
    OpRules { name: "CropAndResize", infer, lower: Lower::Recipe(prepare), gradient: Gradient::Rule(gradient) },
    OpRules { name: "CropAndResizeGradImage", infer: infer_image, lower: Lower::Recipe(prepare_image), gradient: Gradient::Unknown },
    OpRules { name: "CropAndResizeGradBoxes", infer: infer_boxes, lower: Lower::Recipe(prepare_boxes), gradient: Gradient::Unknown },
];

fn is_bilinear(attrs: &Attrs) -> Result<bool> {
    match attrs.text("method")? {
        "bilinear" => Ok(true),
        "nearest" => Ok(false),
        _ => Err(Error::invalid_argument("method must be 'bilinear' or 'nearest'")),
    }
}

/// The number of boxes, where boxes are input `boxes` and their images the next one.
fn count(cx: &InferCx<'_>, boxes: usize) -> Result<Option<u64>> {
    let (corners, names) = (cx.with_rank(boxes, 2)?, cx.with_rank(boxes + 1, 1)?);
    if corners.is_some_and(|dims| dims[1].is_some_and(|four| four != 4)) {
        return Err(Error::invalid_argument("boxes must have 4 columns"));
    }
    let (count, named) = (corners.and_then(|dims| dims[0]), names.and_then(|dims| dims[0]));
    if count.zip(named).is_some_and(|(count, named)| count != named) {
        return Err(Error::invalid_argument("box_index has incompatible shape"));
    }
    Ok(count.or(named))
}

/// Refuses images without pixels, once rows and columns are known.
fn require_pixels(dims: &[Option<u64>]) -> Result<()> {
    if dims.get(1) == Some(&Some(0)) || dims.get(2) == Some(&Some(0)) {
        return Err(Error::invalid_argument("image dimensions must be positive"));
    }
    Ok(())
}

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    is_bilinear(cx.attrs())?;
    let images = cx.with_rank(0, 4)?.unwrap_or(&[None; 4]);
    require_pixels(images)?;
    let boxes = count(cx, 1)?;
    if cx.dims(3).is_some_and(|dims| dims.len() != 1) || cx.vector_len(3).is_some_and(|length| length != 2) {
        return Err(Error::invalid_argument(format!("crop_size must have two elements: {}", cx.shape(3))));
    }
    let mut crop = [None; 2];
    if let Some([height, width]) = cx.ints(3).as_deref() {
        if *height <= 0 || *width <= 0 {
            return Err(Error::invalid_argument("crop dimensions must be positive"));
        }
        crop = [Some(*height as u64), Some(*width as u64)];
    }
    let channels = images[3];
    cx.set_dims(0, vec![boxes, crop[0], crop[1], channels]);
    Ok(())
}

fn infer_image(cx: &mut InferCx<'_>) -> Result<()> {
    is_bilinear(cx.attrs())?;
    let crops = cx.with_rank(0, 4)?.map(<[_]>::to_vec);
    let boxes = count(cx, 1)?;
    if cx.dims(3).is_some_and(|dims| dims.len() != 1) || cx.vector_len(3).is_some_and(|length| length != 4) {
        return Err(Error::invalid_argument(format!("image_size must have four elements: {}", cx.shape(3))));
    }
    let mut dims = vec![None; 4];
    if let Some(size) = cx.ints(3) {
        let size = size.iter().map(|size| u64::try_from(*size).ok()).collect::<Option<Vec<u64>>>();
        let size = size.ok_or_else(|| Error::invalid_argument("image dimensions must be positive"))?;
        dims = size.into_iter().map(Some).collect();
    }
    require_pixels(&dims)?;
    check_crops(crops.as_deref(), boxes, dims.get(3).copied().flatten())?;
    cx.set_dims(0, dims);
    Ok(())
}

fn infer_boxes(cx: &mut InferCx<'_>) -> Result<()> {
    if !is_bilinear(cx.attrs())? {
        return Err(Error::invalid_argument("method must be 'bilinear'"));
    }
    let crops = cx.with_rank(0, 4)?.map(<[_]>::to_vec);
    let images = cx.with_rank(1, 4)?.unwrap_or(&[None; 4]);
    require_pixels(images)?;
    let boxes = count(cx, 2)?;
    check_crops(crops.as_deref(), boxes, images[3])?;
    cx.set_dims(0, vec![boxes, Some(4)]);
    Ok(())
}

/// Refuses gradients of other crops than those of so many boxes and channels.
fn check_crops(crops: Option<&[Option<u64>]>, boxes: Option<u64>, channels: Option<u64>) -> Result<()> {
    let Some(&[count, _, _, depth]) = crops else { return Ok(()) };
    if count.zip(boxes).is_some_and(|(count, boxes)| count != boxes) {
        return Err(Error::invalid_argument("boxes and grads have incompatible shape"));
    }
    if depth.zip(channels).is_some_and(|(depth, channels)| depth != channels) {
        return Err(Error::invalid_argument("image_size and grads are incompatible"));
    }
    Ok(())
}

/// The request for images and crops of these shapes.
fn request(cx: &KernelCx<'_>, images: &[u64], crops: &[u64], makes: Makes) -> Result<KernelRequest> {
    let (&[batch, height, width, channels], &[boxes, rows, columns, _]) = (images, crops) else {
        return Err(Error::internal("images of other than four dimensions"));
    };
    let (size, crop, bilinear) = ([height, width], [rows, columns], is_bilinear(cx.attrs())?);
    Ok(KernelRequest::Crop(Crop { batch, size, channels, boxes, crop, bilinear, makes }))
}

/// Images of all types are computed as floats, as TensorFlow does.
fn prepare(cx: &KernelCx<'_>) -> Result<Recipe> {
    let mut recipe = Recipe::new();
    let images = recipe.input(cx, 0);
    let images = cast(&mut recipe, &images, DataType::Float)?;
    let (boxes, names) = (recipe.input(cx, 1), recipe.input(cx, 2));
    let makes = Makes::Crops { outside: cx.attrs().float("extrapolation_value")?.to_bits() };
    let request = request(cx, images.dims(), cx.outputs[0].shape.dims(), makes)?;
    let result = recipe.one(request, [images, boxes, names], cx.outputs[0].clone());
    Ok(recipe.finish([result]))
}

fn prepare_image(cx: &KernelCx<'_>) -> Result<Recipe> {
    let mut recipe = Recipe::new();
    let (slopes, boxes, names) = (recipe.input(cx, 0), recipe.input(cx, 1), recipe.input(cx, 2));
    let shape: Shape = cx.outputs[0].shape.clone();
    let request = request(cx, shape.dims(), slopes.dims(), Makes::Images)?;
    let result = recipe.one(request, [slopes, boxes, names], Meta { data_type: DataType::Float, shape });
    let result = cast(&mut recipe, &result, cx.outputs[0].data_type)?;
    Ok(recipe.finish([result]))
}

fn prepare_boxes(cx: &KernelCx<'_>) -> Result<Recipe> {
    let mut recipe = Recipe::new();
    let (slopes, images) = (recipe.input(cx, 0), recipe.input(cx, 1));
    let images = cast(&mut recipe, &images, DataType::Float)?;
    let (boxes, names) = (recipe.input(cx, 2), recipe.input(cx, 3));
    let request = request(cx, images.dims(), slopes.dims(), Makes::Boxes)?;
    let result = recipe.one(request, [slopes, images, boxes, names], cx.outputs[0].clone());
    Ok(recipe.finish([result]))
}

/// By the image, where that is of floats, and by the boxes.
fn gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, dy| {
        let (image, boxes, names) = (g.input(0), g.input(1), g.input(2));
        let data_type = g.data_type(image);
        let by_image = match data_type {
            DataType::Half | DataType::Float | DataType::Double => {
                let method = AttrValue::text(g.attrs().text("method")?.to_owned());
                let attrs = [("T", AttrValue::data_type(data_type)), ("method", method)];
                let shape = g.shape(image)?;
                Some(g.op_with("CropAndResizeGradImage", &[dy, boxes, names, shape], &attrs)?)
            }
            _ => None,
        };
        let by_boxes = g.op("CropAndResizeGradBoxes", &[dy, image, boxes, names])?;
        Ok(vec![by_image, Some(by_boxes), None, None])
    })
}
