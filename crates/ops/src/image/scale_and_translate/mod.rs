//! ScaleAndTranslate and its gradient: images resized and moved, with a filter that may be as wide as what a pixel stands for.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{AttrsExt, NodeId, Output};
use plimsoll_request::resample::{Filter, Method, Placing};

use super::resize::{cast, infer_like, infer_sized, resample};
use crate::gradient::from_one;
use crate::registry::Gradient;
use crate::{GraphBuilder, InferCx, KernelCx, Lower, OpRules, Recipe};

/// The rules of ScaleAndTranslate and ScaleAndTranslateGrad.
pub const RULES: &[OpRules] = &[
    OpRules { name: "ScaleAndTranslate", infer, lower: Lower::Recipe(prepare), gradient: Gradient::Rule(gradient) },
    OpRules { name: "ScaleAndTranslateGrad", infer: infer_grad, lower: Lower::Recipe(prepare_grad), gradient: Gradient::Unknown },
];

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    filter(cx.attrs().text("kernel_type")?)?;
    infer_sized(cx)
}

fn infer_grad(cx: &mut InferCx<'_>) -> Result<()> {
    filter(cx.attrs().text("kernel_type")?)?;
    infer_like(cx)
}

fn filter(name: &str) -> Result<Filter> {
    Ok(match name {
        "lanczos1" => Filter::Lanczos1,
        "lanczos3" => Filter::Lanczos3,
        "lanczos5" => Filter::Lanczos5,
        "gaussian" => Filter::Gaussian,
        "box" => Filter::Box,
        "triangle" => Filter::Triangle,
        "keyscubic" => Filter::KeysCubic,
        "mitchellcubic" => Filter::MitchellCubic,
        other => return Err(Error::invalid_argument(format!("Unrecognized kernel type: {other}"))),
    })
}

/// The two floats that input `index` holds.
fn floats(cx: &KernelCx<'_>, index: usize, name: &str) -> Result<[f32; 2]> {
    let value = cx.values[index]
        .as_ref()
        .ok_or_else(|| Error::needs_values(format!("not yet: {name} of {} is known only when the graph runs", cx.node.op)))?;
    let floats: Vec<f32> = value.to_vec()?;
    floats.try_into().map_err(|_| Error::invalid_argument(format!("{name} must have two elements: {}", value.shape())))
}

fn method(cx: &KernelCx<'_>, scales: usize) -> Result<Method> {
    let (scale, translation) = (floats(cx, scales, "scale")?, floats(cx, scales + 1, "translation")?);
    if scale.iter().any(|scale| scale.is_nan() || *scale <= 0.0) {
        return Err(Error::invalid_argument("scale_t.vec<float>()(0) and scale_t.vec<float>()(1) must be greater than zero."));
    }
    let place = |axis: usize| Placing { scale: scale[axis], translation: translation[axis] };
    let (filter, antialias) = (filter(cx.attrs().text("kernel_type")?)?, cx.attrs().bool("antialias")?);
    Ok(Method::Translate { filter, antialias, rows: place(0), columns: place(1) })
}

fn prepare(cx: &KernelCx<'_>) -> Result<Recipe> {
    let method = method(cx, 2)?;
    let mut recipe = Recipe::new();
    let images = recipe.input(cx, 0);
    let images = cast(&mut recipe, &images, DataType::Float)?;
    let request = resample(method, DataType::Float, images.dims(), &cx.outputs[0].shape, false)?;
    let result = recipe.one(request, [images], cx.outputs[0].clone());
    Ok(recipe.finish([result]))
}

fn prepare_grad(cx: &KernelCx<'_>) -> Result<Recipe> {
    let method = method(cx, 2)?;
    let mut recipe = Recipe::new();
    let grad = recipe.input(cx, 0);
    let request = resample(method, DataType::Float, &cx.outputs[0].shape, grad.dims(), true)?;
    let result = recipe.one(request, [grad], cx.outputs[0].clone());
    Ok(recipe.finish([result]))
}

fn gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, dy| {
        let inputs = [dy, g.input(0), g.input(2), g.input(3)];
        if g.data_type(inputs[1]) != DataType::Float {
            return Err(Error::unimplemented("the gradient of ScaleAndTranslate by images that are no floats"));
        }
        let attrs = crate::nn::taken_over(g.attrs(), &["kernel_type", "antialias"]);
        Ok(vec![Some(g.op_with("ScaleAndTranslateGrad", &inputs, &attrs)?), None, None, None])
    })
}
