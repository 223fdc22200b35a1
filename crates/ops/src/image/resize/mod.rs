//! ResizeBilinear, ResizeNearestNeighbor, ResizeBicubic, ResizeArea and their gradients.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{Attrs, AttrsExt, NodeId, Output};
use plimsoll_request::KernelRequest;
use plimsoll_request::expr::ExprBuilder;
use plimsoll_request::movement::{Movement, Pick};
use plimsoll_request::resample::{Method, Resample};

use crate::gradient::from_one;
use crate::recipe::Ingredient;
use crate::registry::Gradient;
use crate::{Call, GraphBuilder, InferCx, KernelCx, Lower, Meta, OpRules, Recipe};

/// The rules of resized images.
pub const RULES: &[OpRules] = &[
    OpRules { name: "ResizeBilinear", infer, lower: Lower::Recipe(prepare), gradient: Gradient::Rule(gradient) },
    OpRules { name: "ResizeBicubic", infer, lower: Lower::Recipe(prepare), gradient: Gradient::Rule(gradient) },
    OpRules { name: "ResizeArea", infer, lower: Lower::Recipe(prepare), gradient: Gradient::Unknown },
    OpRules { name: "ResizeNearestNeighbor", infer, lower: Lower::Kernel(nearest), gradient: Gradient::Rule(gradient_of_nearest) },
    OpRules { name: "ResizeBilinearGrad", infer: infer_like, lower: Lower::Recipe(prepare_grad), gradient: Gradient::Unknown },
    OpRules { name: "ResizeBicubicGrad", infer: infer_like, lower: Lower::Recipe(prepare_grad), gradient: Gradient::Unknown },
    OpRules {
        name: "ResizeNearestNeighborGrad",
        infer: infer_nearest_grad,
        lower: Lower::Recipe(prepare_grad),
        gradient: Gradient::Unknown,
    },
];

/// How an operation weights, by its attributes.
fn method(op: &str, attrs: &Attrs) -> Result<Method> {
    let align_corners = attrs.bool("align_corners")?;
    let half_pixel_centers = op != "ResizeArea" && attrs.bool("half_pixel_centers")?;
    if align_corners && half_pixel_centers {
        return Err(Error::invalid_argument("If half_pixel_centers is True, align_corners must be False."));
    }
    Ok(match op {
        "ResizeBilinear" | "ResizeBilinearGrad" => Method::Bilinear { align_corners, half_pixel_centers },
        "ResizeBicubic" | "ResizeBicubicGrad" => Method::Bicubic { align_corners, half_pixel_centers },
        "ResizeArea" => Method::Area { align_corners },
        _ => Method::Nearest { align_corners, half_pixel_centers },
    })
}

/// The dimensions of images with the sizes at input 1.
pub(super) fn infer_sized(cx: &mut InferCx<'_>) -> Result<()> {
    let dims = match cx.dims(0) {
        None => [None; 4],
        Some(dims) => dims.try_into().map_err(|_| Error::invalid_argument(format!("input must be 4-dimensional{}", cx.shape(0))))?,
    };
    if let Some(sizes) = cx.dims(1)
        && sizes.len() != 1
    {
        return Err(Error::invalid_argument(format!("shape_t must be 1-dimensional{}", cx.shape(1))));
    }
    if cx.vector_len(1).is_some_and(|length| length != 2) {
        return Err(Error::invalid_argument(format!("shape_t must have two elements{}", cx.shape(1))));
    }
    let mut sides = [None; 2];
    if let Some([height, width]) = cx.ints(1).as_deref() {
        if *height <= 0 || *width <= 0 {
            return Err(Error::invalid_argument("output dimensions must be positive"));
        }
        sides = [Some(*height as u64), Some(*width as u64)];
    }
    if dims[1] == Some(0) || dims[2] == Some(0) {
        return Err(Error::invalid_argument("input image must be of non-zero size"));
    }
    cx.set_dims(0, vec![dims[0], sides[0], sides[1], dims[3]]);
    Ok(())
}

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    method(&cx.node.op, cx.attrs())?;
    infer_sized(cx)
}

/// The shape of the images at input 1, whose gradient it is.
pub(super) fn infer_like(cx: &mut InferCx<'_>) -> Result<()> {
    for (index, words) in [(0, "input_grad must be 4-dimensional"), (1, "original_image must be 4-dimensional")] {
        if cx.dims(index).is_some_and(|dims| dims.len() != 4) {
            return Err(Error::invalid_argument(format!("{words}: {}", cx.shape(index))));
        }
    }
    let (grad, image) = (cx.dims(0), cx.dims(1));
    if let (Some(grad), Some(image)) = (grad, image) {
        for (axis, name) in [(0, "batch"), (3, "channels")] {
            if grad[axis].zip(image[axis]).is_some_and(|(grad, image)| grad != image) {
                return Err(Error::invalid_argument(format!("gradient and image of a different {name}: {} {}", cx.shape(0), cx.shape(1))));
            }
        }
        if image[1] == Some(0) || image[2] == Some(0) {
            return Err(Error::invalid_argument("original image must be of non-zero size"));
        }
    }
    cx.set(0, cx.shape(1).clone());
    if image.is_none() {
        cx.set_dims(0, vec![None; 4]);
    }
    Ok(())
}

fn infer_nearest_grad(cx: &mut InferCx<'_>) -> Result<()> {
    method(&cx.node.op, cx.attrs())?;
    infer_sized(cx)
}

/// A tensor as another type; itself where it has that type.
pub(super) fn cast(recipe: &mut Recipe, of: &Ingredient, data_type: DataType) -> Result<Ingredient> {
    if of.data_type() == data_type {
        return Ok(of.clone());
    }
    let mut builder = ExprBuilder::new();
    let x = builder.input(of.data_type())?;
    let result = builder.cast(data_type, x)?;
    Ok(recipe.expression(builder.finish(vec![result]), [of.clone()], of.meta.shape.clone()).swap_remove(0))
}

/// The request that makes images of shape `to` of those of shape `from`; or the gradient by the first of that by the second.
pub(super) fn resample(method: Method, data_type: DataType, from: &[u64], to: &[u64], transposed: bool) -> Result<KernelRequest> {
    let (&[batch, height, width, channels], &[_, new_height, new_width, _]) = (from, to) else {
        return Err(Error::internal("images of other than four dimensions"));
    };
    let (size, resized) = ([height, width], [new_height, new_width]);
    Ok(KernelRequest::Resample(Resample { data_type, batch, size, resized, channels, method, transposed }))
}

fn prepare(cx: &KernelCx<'_>) -> Result<Recipe> {
    let method = method(&cx.node.op, cx.attrs())?;
    let mut recipe = Recipe::new();
    let images = recipe.input(cx, 0);
    let images = cast(&mut recipe, &images, DataType::Float)?;
    let request = resample(method, DataType::Float, images.dims(), &cx.outputs[0].shape, false)?;
    let result = recipe.one(request, [images], cx.outputs[0].clone());
    Ok(recipe.finish([result]))
}

fn nearest(cx: &KernelCx<'_>) -> Result<Call> {
    let Method::Nearest { align_corners, half_pixel_centers } = method(&cx.node.op, cx.attrs())? else {
        return Err(Error::internal("neighbours that are not the nearest"));
    };
    let pick = |axis: usize| Pick::Nearest { size: cx.outputs[0].shape[axis], align_corners, half_pixel_centers };
    let picks = vec![Pick::All, pick(1), pick(2), Pick::All];
    Ok(Call::moving(cx.element(0)?, Movement::Pick { shape: cx.dims(0).to_vec(), picks }, [0]))
}

/// Summed as floats or doubles, and then as the type of the result.
fn prepare_grad(cx: &KernelCx<'_>) -> Result<Recipe> {
    let method = method(&cx.node.op, cx.attrs())?;
    let mut recipe = Recipe::new();
    let grad = recipe.input(cx, 0);
    let sums = match grad.data_type() {
        // Integers that are summed are exact in doubles.
        DataType::Double | DataType::Int32 => DataType::Double,
        _ => DataType::Float,
    };
    let grad = cast(&mut recipe, &grad, sums)?;
    let output = &cx.outputs[0];
    let request = resample(method, sums, &output.shape, grad.dims(), true)?;
    let result = recipe.one(request, [grad], Meta { data_type: sums, shape: output.shape.clone() });
    let result = cast(&mut recipe, &result, output.data_type)?;
    Ok(recipe.finish([result]))
}

fn gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, dy| {
        let image = g.input(0);
        let bicubic = g.op_name() == "ResizeBicubic";
        let image_type = g.data_type(image);
        // TensorFlow has no gradient by images of other types.
        if !image_type.is_floating() || bicubic && !matches!(image_type, DataType::Float | DataType::Double) {
            return Ok(vec![None, None]);
        }
        let op = if bicubic { "ResizeBicubicGrad" } else { "ResizeBilinearGrad" };
        let attrs = crate::nn::taken_over(g.attrs(), &["align_corners", "half_pixel_centers"]);
        Ok(vec![Some(g.op_with(op, &[dy, image], &attrs)?), None])
    })
}

fn gradient_of_nearest(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, dy| {
        let image = g.input(0);
        let sizes = match g.shape_of(image).0.as_deref() {
            Some([_, Some(height), Some(width), _]) => g.ints(&[*height as i64, *width as i64])?,
            _ => {
                let shape = g.shape(image)?;
                let (begin, size) = (g.ints(&[1])?, g.ints(&[2])?);
                g.op("Slice", &[shape, begin, size])?
            }
        };
        let attrs = crate::nn::taken_over(g.attrs(), &["align_corners", "half_pixel_centers"]);
        Ok(vec![Some(g.op_with("ResizeNearestNeighborGrad", &[dy, sizes], &attrs)?), None])
    })
}
