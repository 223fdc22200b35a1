//! Colours: RGBToHSV, HSVToRGB, AdjustContrastv2, AdjustHue, AdjustSaturation.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_request::KernelRequest;
use plimsoll_request::expr::{BinaryOp, ExprBuilder, Reg, Scalar, UnaryOp};
use plimsoll_request::movement::Movement;
use plimsoll_request::reduce::{ReduceOp, Reduction};

use super::resize::cast;
use crate::recipe::Ingredient;
use crate::registry::Gradient;
use crate::{InferCx, KernelCx, Lower, Meta, OpRules, Recipe};

/// The rules of colours.
pub const RULES: &[OpRules] = &[
    OpRules { name: "RGBToHSV", infer: infer_colours, lower: Lower::Recipe(rgb_to_hsv), gradient: Gradient::Unknown },
    OpRules { name: "HSVToRGB", infer: infer_colours, lower: Lower::Recipe(hsv_to_rgb), gradient: Gradient::Unknown },
    OpRules { name: "AdjustHue", infer: infer_adjusted, lower: Lower::Recipe(adjust_hue), gradient: Gradient::Unknown },
    OpRules { name: "AdjustSaturation", infer: infer_adjusted, lower: Lower::Recipe(adjust_saturation), gradient: Gradient::Unknown },
    OpRules { name: "AdjustContrastv2", infer: infer_contrast, lower: Lower::Recipe(adjust_contrast), gradient: Gradient::Unknown },
];

fn infer_colours(cx: &mut InferCx<'_>) -> Result<()> {
    if let Some(dims) = cx.with_rank_at_least(0, 1)?
        && dims.last().is_some_and(|last| last.is_some_and(|last| last != 3))
    {
        return Err(Error::invalid_argument("input must have 3 channels but instead has other channels"));
    }
    cx.set(0, cx.shape(0).clone());
    Ok(())
}

fn infer_adjusted(cx: &mut InferCx<'_>) -> Result<()> {
    if let Some(dims) = cx.dims(0) {
        if dims.len() < 3 {
            return Err(Error::invalid_argument(format!("input must be at least 3-D, got shape{}", cx.shape(0))));
        }
        if let Some(channels) = dims.last().copied().flatten().filter(|channels| *channels != 3) {
            return Err(Error::invalid_argument(format!("input must have 3 channels but instead has {channels} channels.")));
        }
    }
    scalar(cx)
}

fn infer_contrast(cx: &mut InferCx<'_>) -> Result<()> {
    if cx.dims(0).is_some_and(|dims| dims.len() < 3) {
        return Err(Error::invalid_argument(format!("input must be at least 3-D, got shape{}", cx.shape(0))));
    }
    scalar(cx)
}

/// The shape of the images, which a scalar changes.
fn scalar(cx: &mut InferCx<'_>) -> Result<()> {
    if cx.dims(1).is_some_and(|dims| !dims.is_empty()) {
        return Err(Error::invalid_argument(format!("the change of images must be scalar: {}", cx.shape(1))));
    }
    cx.set(0, cx.shape(0).clone());
    Ok(())
}

/// An expression under way, in the type that images are computed in.
struct Colours {
    builder: ExprBuilder,
    data_type: DataType,
}

impl Colours {
    fn number(&mut self, value: f64) -> Result<Reg> {
        let scalar = Scalar::from_f64(self.data_type, value);
        Ok(self.builder.constant(scalar.ok_or_else(|| Error::unimplemented(format!("colours of {}", self.data_type)))?))
    }

    fn binary(&mut self, op: BinaryOp, a: Reg, b: Reg) -> Result<Reg> {
        self.builder.binary(op, a, b)
    }

    fn with(&mut self, op: BinaryOp, a: Reg, b: f64) -> Result<Reg> {
        let b = self.number(b)?;
        self.binary(op, a, b)
    }

    fn bounded(&mut self, x: Reg) -> Result<Reg> {
        let x = self.with(BinaryOp::Maximum, x, 0.0)?;
        self.with(BinaryOp::Minimum, x, 1.0)
    }

    /// Hue, the largest and the range of three numbers.
    fn hue(&mut self, [r, g, b]: [Reg; 3]) -> Result<[Reg; 3]> {
        let gb = self.binary(BinaryOp::Maximum, g, b)?;
        let value = self.binary(BinaryOp::Maximum, r, gb)?;
        let gb = self.binary(BinaryOp::Minimum, g, b)?;
        let least = self.binary(BinaryOp::Minimum, r, gb)?;
        let range = self.binary(BinaryOp::Sub, value, least)?;
        let norm = self.builder.unary(UnaryOp::Reciprocal, range)?;
        let norm = self.with(BinaryOp::Mul, norm, 1.0 / 6.0)?;
        let sixth = |colours: &mut Colours, a: Reg, b: Reg, start: f64| {
            let difference = colours.binary(BinaryOp::Sub, a, b)?;
            let part = colours.binary(BinaryOp::Mul, norm, difference)?;
            if start == 0.0 { Ok::<_, Error>(part) } else { colours.with(BinaryOp::Add, part, start) }
        };
        let (red, green, blue) = (sixth(self, g, b, 0.0)?, sixth(self, b, r, 2.0 / 6.0)?, sixth(self, r, g, 4.0 / 6.0)?);
        let is_green = self.binary(BinaryOp::Equal, g, value)?;
        let hue = self.builder.select(is_green, green, blue)?;
        let is_red = self.binary(BinaryOp::Equal, r, value)?;
        let hue = self.builder.select(is_red, red, hue)?;
        let zero = self.number(0.0)?;
        let is_coloured = self.binary(BinaryOp::Greater, range, zero)?;
        let hue = self.builder.select(is_coloured, hue, zero)?;
        let turned = self.with(BinaryOp::Add, hue, 1.0)?;
        let is_negative = self.binary(BinaryOp::Less, hue, zero)?;
        Ok([self.builder.select(is_negative, turned, hue)?, value, range])
    }

    fn saturation(&mut self, value: Reg, range: Reg) -> Result<Reg> {
        let zero = self.number(0.0)?;
        let ratio = self.binary(BinaryOp::Div, range, value)?;
        let is_bright = self.binary(BinaryOp::Greater, value, zero)?;
        self.builder.select(is_bright, ratio, zero)
    }

    /// How much of each colour a hue has: from 0 to 1.
    fn parts(&mut self, hue: Reg) -> Result<[Reg; 3]> {
        let six = self.with(BinaryOp::Mul, hue, 6.0)?;
        let mut parts = [six; 3];
        for (part, (middle, sign, start)) in parts.iter_mut().zip([(3.0, 1.0, -1.0), (2.0, -1.0, 2.0), (4.0, -1.0, 2.0)]) {
            let distance = self.with(BinaryOp::Sub, six, middle)?;
            let distance = self.builder.unary(UnaryOp::Abs, distance)?;
            let signed = self.with(BinaryOp::Mul, distance, sign)?;
            let moved = self.with(BinaryOp::Add, signed, start)?;
            *part = self.bounded(moved)?;
        }
        Ok(parts)
    }

    /// Red, green and blue of a hue, a saturation and a value.
    fn rgb(&mut self, hue: Reg, saturation: Reg, value: Reg) -> Result<[Reg; 3]> {
        let one = self.number(1.0)?;
        let rest = self.binary(BinaryOp::Sub, one, saturation)?;
        let mut colours = self.parts(hue)?;
        for colour in &mut colours {
            let part = self.binary(BinaryOp::Mul, saturation, *colour)?;
            let sum = self.binary(BinaryOp::Add, rest, part)?;
            *colour = self.binary(BinaryOp::Mul, sum, value)?;
        }
        Ok(colours)
    }
}

/// Three numbers of each pixel, and a scalar at input 1 where there is one, become three others.
fn each_pixel(cx: &KernelCx<'_>, make: impl FnOnce(&mut Colours, [Reg; 3], Option<Reg>) -> Result<[Reg; 3]>) -> Result<Recipe> {
    let mut recipe = Recipe::new();
    let images = recipe.input(cx, 0);
    let data_type = images.data_type().compute_type();
    let shape = images.dims().to_vec();
    let one = [&shape[..shape.len() - 1], &[1]].concat();
    let element = images.meta.element()? as usize;
    let (axis, single) = (shape.len() - 1, Meta { data_type: images.data_type(), shape: one.clone().into() });
    let split = Movement::Split { shape: shape.clone(), axis, sizes: vec![1; 3] };
    let request = KernelRequest::Movement { element, movement: split };
    let planes = recipe.request(request, [images.clone()], vec![single; 3]);
    let mut colours = Colours { builder: ExprBuilder::new(), data_type };
    let mut inputs: Vec<Ingredient> = Vec::new();
    let mut read = [None; 3];
    for (plane, read) in planes.iter().zip(&mut read) {
        let input = colours.builder.input(plane.data_type())?;
        *read = Some(colours.builder.cast(data_type, input)?);
        inputs.push(plane.clone());
    }
    let scalar = match cx.inputs.len() {
        1 => None,
        _ => {
            let scalar = recipe.input(cx, 1);
            let input = colours.builder.input(scalar.data_type())?;
            inputs.push(scalar);
            Some(colours.builder.cast(data_type, input)?)
        }
    };
    let [Some(first), Some(second), Some(third)] = read else { return Err(Error::internal("a pixel of other than three numbers")) };
    let mut results = make(&mut colours, [first, second, third], scalar)?;
    for result in &mut results {
        *result = colours.builder.cast(images.data_type(), *result)?;
    }
    let planes = recipe.expression(colours.builder.finish(results.to_vec()), inputs, one.clone());
    let join = Movement::Concat { shapes: vec![one; 3], axis };
    let result = recipe.one(KernelRequest::Movement { element, movement: join }, planes, cx.outputs[0].clone());
    Ok(recipe.finish([result]))
}

fn rgb_to_hsv(cx: &KernelCx<'_>) -> Result<Recipe> {
    each_pixel(cx, |colours, rgb, _| {
        let [hue, value, range] = colours.hue(rgb)?;
        Ok([hue, colours.saturation(value, range)?, value])
    })
}

fn hsv_to_rgb(cx: &KernelCx<'_>) -> Result<Recipe> {
    each_pixel(cx, |colours, [hue, saturation, value], _| colours.rgb(hue, saturation, value))
}

fn adjust_hue(cx: &KernelCx<'_>) -> Result<Recipe> {
    each_pixel(cx, |colours, rgb, delta| {
        let delta = delta.ok_or_else(|| Error::internal("a hue that is not changed"))?;
        let [hue, value, range] = colours.hue(rgb)?;
        let moved = colours.binary(BinaryOp::Add, hue, delta)?;
        let turned = colours.with(BinaryOp::FloorMod, moved, 1.0)?;
        let least = colours.binary(BinaryOp::Sub, value, range)?;
        let mut parts = colours.parts(turned)?;
        for part in &mut parts {
            let above = colours.binary(BinaryOp::Mul, range, *part)?;
            *part = colours.binary(BinaryOp::Add, least, above)?;
        }
        Ok(parts)
    })
}

fn adjust_saturation(cx: &KernelCx<'_>) -> Result<Recipe> {
    each_pixel(cx, |colours, rgb, scale| {
        let scale = scale.ok_or_else(|| Error::internal("a saturation that is not changed"))?;
        let [hue, value, range] = colours.hue(rgb)?;
        let saturation = colours.saturation(value, range)?;
        let scaled = colours.binary(BinaryOp::Mul, saturation, scale)?;
        let bounded = colours.bounded(scaled)?;
        colours.rgb(hue, bounded, value)
    })
}

/// Each channel's distance from its mean, scaled.
fn adjust_contrast(cx: &KernelCx<'_>) -> Result<Recipe> {
    let mut recipe = Recipe::new();
    let images = recipe.input(cx, 0);
    let (dims, channel) = (images.dims().to_vec(), images.dims().len() - 1);
    let batch = dims[..channel - 2].iter().product::<u64>();
    let pixels = dims[channel - 2].checked_mul(dims[channel - 1]);
    let pixels = pixels.ok_or_else(|| Error::invalid_argument("images that are too large"))?;
    let shape = vec![batch, pixels, dims[channel]];
    let images = cast(&mut recipe, &images, DataType::Float)?.reshaped(shape.clone())?;
    let mean = Reduction::Reduce { op: ReduceOp::Mean, data_type: DataType::Float, shape: shape.clone(), axes: vec![1], divided: true };
    let meta = Meta { data_type: DataType::Float, shape: [batch, dims[channel]].into() };
    let mean = recipe.one(KernelRequest::Reduction(mean), [images.clone()], meta).reshaped([batch, 1, dims[channel]])?;
    let factor = recipe.input(cx, 1);
    let distance = recipe.binary(BinaryOp::Sub, [&images, &mean], shape.clone())?;
    let scaled = recipe.binary(BinaryOp::Mul, [&distance, &factor], shape.clone())?;
    let result = recipe.binary(BinaryOp::Add, [&scaled, &mean], shape)?;
    let result = cast(&mut recipe, &result, cx.outputs[0].data_type)?;
    Ok(recipe.finish([result.reshaped(cx.outputs[0].shape.clone())?]))
}
