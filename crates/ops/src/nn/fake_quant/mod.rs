//! FakeQuantWithMinMaxArgs, -Vars, -VarsPerChannel and their gradients: floats rounded to the numbers of a range (Jacob and others,
//! 2018).

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{AttrValue, Attrs, AttrsExt, NodeId, Output};
use plimsoll_request::KernelRequest;
use plimsoll_request::expr::{BinaryOp, ExprBuilder, Reg, Scalar, UnaryOp};
use plimsoll_request::reduce::{ReduceOp, Reduction};

use crate::gradient::{Grad, from_one};
use crate::infer::merge_shapes;
use crate::recipe::{Ingredient, Recipe};
use crate::registry::{Gradient, GradientFn};
use crate::{GraphBuilder, InferCx, KernelCx, Lower, Meta, OpRules};

const fn rule(name: &'static str, make: fn(&KernelCx<'_>) -> Result<Recipe>, gradient: GradientFn) -> OpRules {
    OpRules { name, infer, lower: Lower::Recipe(make), gradient: Gradient::Rule(gradient) }
}

const fn backwards(name: &'static str, make: fn(&KernelCx<'_>) -> Result<Recipe>) -> OpRules {
    OpRules { name, infer: infer_gradient, lower: Lower::Recipe(make), gradient: Gradient::Unknown }
}

/// The rules of fake quantization.
pub const RULES: &[OpRules] = &[
    rule("FakeQuantWithMinMaxArgs", quantize, gradient_args),
    rule("FakeQuantWithMinMaxVars", quantize, gradient_vars),
    rule("FakeQuantWithMinMaxVarsPerChannel", quantize, gradient_vars),
    backwards("FakeQuantWithMinMaxArgsGradient", quantize_gradient),
    backwards("FakeQuantWithMinMaxVarsGradient", quantize_gradient),
    backwards("FakeQuantWithMinMaxVarsPerChannelGradient", quantize_gradient),
];

/// The lowest and highest level.
fn levels(attrs: &Attrs) -> Result<(f32, f32)> {
    let bits = attrs.int("num_bits")?;
    if !(2..=16).contains(&bits) {
        return Err(Error::invalid_argument(format!("num_bits must be between 2 and 16, inclusive, was: {bits}")));
    }
    let lowest = if attrs.bool("narrow_range")? { 1.0 } else { 0.0 };
    Ok((lowest, ((1u32 << bits) - 1) as f32))
}

/// The range that attributes state.
fn stated(attrs: &Attrs) -> Result<(f32, f32)> {
    let number = |name: &str| match attrs.require(name)? {
        AttrValue::Float(number) => Ok(*number),
        _ => Err(Error::invalid_argument(format!("{name} is no number"))),
    };
    let (min, max) = (number("min")?, number("max")?);
    if min >= max || min.is_nan() || max.is_nan() {
        return Err(Error::invalid_argument(format!("min has to be smaller than max, was: {min} >= {max}")));
    }
    Ok((min, max))
}

/// Checks the range at the inputs from `first` on: two scalars, or two vectors with a number for each element of the last axis.
fn check_range(cx: &InferCx<'_>, inputs: usize, first: usize) -> Result<()> {
    levels(cx.attrs())?;
    if !cx.node.op.contains("Vars") {
        return stated(cx.attrs()).map(drop);
    }
    let per_channel = cx.node.op.contains("PerChannel");
    for (position, name) in [(first, "min"), (first + 1, "max")] {
        let Some(dims) = cx.dims(position) else { continue };
        if !per_channel && !dims.is_empty() {
            return Err(Error::invalid_argument(format!("`{name}` must be rank 0 but is rank {}", dims.len())));
        }
        let channels = cx.dims(inputs).map(|dims| dims.last().copied().flatten());
        if per_channel && (dims.len() != 1 || channels.flatten().zip(dims[0]).is_some_and(|(channels, size)| channels != size)) {
            return Err(Error::invalid_argument(format!(
                "{name} has incorrect size: {} for inputs of shape {}",
                cx.shape(position),
                cx.shape(inputs)
            )));
        }
    }
    if per_channel {
        cx.with_rank_at_least(inputs, 1)?;
    }
    Ok(())
}

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    check_range(cx, 0, 1)?;
    cx.set(0, cx.shape(0).clone());
    Ok(())
}

fn infer_gradient(cx: &mut InferCx<'_>) -> Result<()> {
    check_range(cx, 1, 2)?;
    let shape = merge_shapes(cx.shape(0), cx.shape(1))
        .map_err(|_| Error::invalid_argument(format!("gradient and input must be the same size: {} and {}", cx.shape(0), cx.shape(1))))?;
    cx.set(0, shape);
    if cx.outputs.len() == 3 {
        (1..3).for_each(|output| cx.set(output, cx.shape(output + 1).clone()));
    }
    Ok(())
}

/// The words of the expressions here: floats.
struct Floats(ExprBuilder);

impl Floats {
    fn number(&mut self, value: f32) -> Reg {
        self.0.constant(Scalar::F32(value))
    }

    fn binary(&mut self, op: BinaryOp, x: Reg, y: Reg) -> Result<Reg> {
        self.0.binary(op, x, y)
    }
}

/// The range moved so that 0 is one of its levels: its ends, the distance of levels, and whether the range is the number 0.
struct Nudged {
    min: Reg,
    max: Reg,
    scale: Reg,
    is_zero: Reg,
}

fn nudged(e: &mut Floats, min: Reg, max: Reg, (lowest, highest): (f32, f32)) -> Result<Nudged> {
    use BinaryOp::{Add, Div, Equal, LogicalAnd, Maximum, Minimum, Mul, Sub};
    let (zero, half, steps) = (e.number(0.0), e.number(0.5), e.number(highest - lowest));
    let (lowest, highest) = (e.number(lowest), e.number(highest));
    let width = e.binary(Sub, max, min)?;
    let scale = e.binary(Div, width, steps)?;
    let below = e.binary(Div, min, scale)?;
    let point = e.binary(Sub, lowest, below)?;
    // To the nearest, halves up: it is not negative inside of the levels.
    let rounded = e.binary(Add, point, half)?;
    let rounded = e.0.unary(UnaryOp::Floor, rounded)?;
    let point = e.binary(Minimum, rounded, highest)?;
    let point = e.binary(Maximum, point, lowest)?;
    let (under, over) = (e.binary(Sub, lowest, point)?, e.binary(Sub, highest, point)?);
    let (first, second) = (e.binary(Equal, min, zero)?, e.binary(Equal, max, zero)?);
    let is_zero = e.binary(LogicalAnd, first, second)?;
    Ok(Nudged { min: e.binary(Mul, under, scale)?, max: e.binary(Mul, over, scale)?, scale, is_zero })
}

/// The ends of the nudged range and the distance of its levels for each pair of ends; no inputs where attributes state them.
fn range(recipe: &mut Recipe, cx: &KernelCx<'_>, first: usize) -> Result<Vec<Ingredient>> {
    let levels = levels(cx.attrs())?;
    let mut e = Floats(ExprBuilder::new());
    let (ends, inputs, shape) = if cx.node.op.contains("Vars") {
        let ends = (e.0.input(DataType::Float)?, e.0.input(DataType::Float)?);
        (ends, vec![recipe.input(cx, first), recipe.input(cx, first + 1)], cx.inputs[first].shape.clone())
    } else {
        let (min, max) = stated(cx.attrs())?;
        ((e.number(min), e.number(max)), Vec::new(), Vec::new().into())
    };
    let Nudged { min, max, scale, is_zero } = nudged(&mut e, ends.0, ends.1, levels)?;
    Ok(recipe.expression(e.0.finish(vec![min, max, scale, is_zero]), inputs, shape))
}

/// `floor((clamped - min) / scale - zero + 0.5) * scale`, where the level `zero` is that of 0.
fn quantize(cx: &KernelCx<'_>) -> Result<Recipe> {
    use BinaryOp::{Add, Div, Maximum, Minimum, Mul, Sub};
    let mut recipe = Recipe::new();
    let range = range(&mut recipe, cx, 1)?;
    let mut e = Floats(ExprBuilder::new());
    let float = DataType::Float;
    let [x, min, max, scale] = [e.0.input(float)?, e.0.input(float)?, e.0.input(float)?, e.0.input(float)?];
    let is_zero = e.0.input(DataType::Bool)?;
    let (zero, half, one) = (e.number(0.0), e.number(0.5), e.number(1.0));
    let inverse = e.binary(Div, one, scale)?;
    let clamped = e.binary(Minimum, x, max)?;
    let clamped = e.binary(Maximum, clamped, min)?;
    let shifted = e.binary(Sub, clamped, min)?;
    let back = e.0.unary(UnaryOp::Neg, min)?;
    let back = e.binary(Mul, back, inverse)?;
    let back = e.binary(Add, back, half)?;
    let level_of_zero = e.0.unary(UnaryOp::Floor, back)?;
    let level = e.binary(Mul, shifted, inverse)?;
    let level = e.binary(Sub, level, level_of_zero)?;
    let level = e.binary(Add, level, half)?;
    let level = e.0.unary(UnaryOp::Floor, level)?;
    let value = e.binary(Mul, level, scale)?;
    let value = e.0.select(is_zero, zero, value)?;
    let inputs = [vec![recipe.input(cx, 0)], range].concat();
    let result = recipe.expression(e.0.finish(vec![value]), inputs, cx.outputs[0].shape.clone());
    Ok(recipe.finish(result))
}

/// The gradient goes to the input inside of the range, to the range's ends outside.
fn quantize_gradient(cx: &KernelCx<'_>) -> Result<Recipe> {
    use BinaryOp::{Greater, GreaterEqual, Less, LessEqual, LogicalAnd};
    let mut recipe = Recipe::new();
    let range = range(&mut recipe, cx, 2)?;
    let mut e = Floats(ExprBuilder::new());
    let float = DataType::Float;
    let [gradient, x, min, max] = [e.0.input(float)?, e.0.input(float)?, e.0.input(float)?, e.0.input(float)?];
    let is_zero = e.0.input(DataType::Bool)?;
    let zero = e.number(0.0);
    let (low, high) = (e.binary(GreaterEqual, x, min)?, e.binary(LessEqual, x, max)?);
    let inside = e.binary(LogicalAnd, low, high)?;
    let (below, above) = (e.binary(Less, x, min)?, e.binary(Greater, x, max)?);
    let inside = e.0.select(inside, gradient, zero)?;
    let inside = e.0.select(is_zero, gradient, inside)?;
    let mut results = vec![inside];
    for outside in [below, above].into_iter().take(cx.outputs.len() - 1) {
        let outside = e.0.select(outside, gradient, zero)?;
        results.push(e.0.select(is_zero, zero, outside)?);
    }
    let inputs = [vec![recipe.input(cx, 0), recipe.input(cx, 1)], vec![range[0].clone(), range[1].clone(), range[3].clone()]].concat();
    let mut results = recipe.expression(e.0.finish(results), inputs, cx.outputs[0].shape.clone());
    let shape = cx.outputs[0].shape.to_vec();
    let axes: Vec<usize> = (0..shape.len() - cx.outputs.get(1).map_or(0, |ends| ends.shape.rank())).collect();
    for (result, meta) in results.iter_mut().zip(cx.outputs).skip(1) {
        let request = Reduction::Reduce { op: ReduceOp::Sum, data_type: float, shape: shape.clone(), axes: axes.clone(), divided: false };
        *result = recipe.one(KernelRequest::Reduction(request), [result.clone()], Meta::clone(meta));
    }
    Ok(recipe.finish(results))
}

fn attrs(g: &Grad<'_>, names: &[&'static str]) -> Vec<(&'static str, AttrValue)> {
    names.iter().filter_map(|name| Some((*name, g.attrs().get(name)?.clone()))).collect()
}

fn gradient_args(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, gradient| {
        let attrs = attrs(g, &["min", "max", "num_bits", "narrow_range"]);
        Ok(vec![Some(g.op_with("FakeQuantWithMinMaxArgsGradient", &[gradient, g.input(0)], &attrs)?)])
    })
}

fn gradient_vars(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, gradient| {
        let attrs = attrs(g, &["num_bits", "narrow_range"]);
        let op = format!("{}Gradient", g.op_name());
        let to_input = g.op_with(&op, &[gradient, g.input(0), g.input(1), g.input(2)], &attrs)?;
        Ok((0..3).map(|index| Some(Output { index, ..to_input })).collect())
    })
}
