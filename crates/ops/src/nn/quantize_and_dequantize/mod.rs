//! QuantizeAndDequantizeV2 to V4: floats rounded to the levels of a range, of all numbers or of each channel.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{AttrValue, AttrsExt, NodeId, Output};
use plimsoll_request::KernelRequest;
use plimsoll_request::check::Requirement;
use plimsoll_request::expr::{BinaryOp, ExprBuilder, Reg, UnaryOp};
use plimsoll_request::reduce::{ReduceOp, Reduction};

use crate::gradient::from_one;
use crate::infer::merge_shapes;
use crate::recipe::{Ingredient, Recipe};
use crate::registry::Gradient;
use crate::{GraphBuilder, InferCx, KernelCx, Lower, Meta, OpRules};

/// The rules of numbers that are quantized and at once dequantized.
pub const RULES: &[OpRules] = &[
    OpRules { name: "QuantizeAndDequantizeV2", infer, lower: Lower::Recipe(quantize), gradient: Gradient::Rule(straight) },
    OpRules { name: "QuantizeAndDequantizeV3", infer: infer_v3, lower: Lower::Recipe(quantize), gradient: Gradient::Rule(straight) },
    OpRules { name: "QuantizeAndDequantizeV4", infer, lower: Lower::Recipe(quantize), gradient: Gradient::Rule(within) },
    OpRules {
        name: "QuantizeAndDequantizeV4Grad",
        infer: infer_gradient,
        lower: Lower::Recipe(quantize_gradient),
        gradient: Gradient::Unknown,
    },
];

/// The axis of the channels, where each has a range of its own.
fn axis(attrs: &plimsoll_graph::Attrs) -> Result<Option<usize>> {
    let axis = attrs.int("axis")?;
    if axis < -1 {
        return Err(Error::invalid_argument(format!("Axis must be at least -1. Found {axis}")));
    }
    Ok(usize::try_from(axis).ok())
}

/// The lowest and the highest level of numbers of so many bits.
fn levels(attrs: &plimsoll_graph::Attrs, bits: i64) -> Result<(i64, i64)> {
    let signed = attrs.bool("signed_input")?;
    if bits < 1 || bits >= if signed { 62 } else { 63 } {
        return Err(Error::invalid_argument(format!("num_bits is out of range: {bits} with signed_input_ {}", u8::from(signed))));
    }
    if !signed {
        return Ok((0, (1 << bits) - 1));
    }
    let half = 1 << (bits - 1);
    Ok((if attrs.bool("narrow_range")? { 1 - half } else { -half }, half - 1))
}

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    levels(cx.attrs(), cx.attrs().int("num_bits")?)?;
    check_range(cx, 0, 1)?;
    cx.set(0, cx.shape(0).clone());
    Ok(())
}

fn infer_v3(cx: &mut InferCx<'_>) -> Result<()> {
    cx.with_rank(3, 0)?;
    if let Some(bits) = cx.int(3) {
        levels(cx.attrs(), bits).map_err(|error| Error::invalid_argument(error.message().replace("signed_input_", "`signed_input_`")))?;
    }
    check_range(cx, 0, 1)?;
    cx.set(0, cx.shape(0).clone());
    Ok(())
}

/// The range at the inputs from `first` on: two scalars, or two vectors with a number for each channel.
fn check_range(cx: &InferCx<'_>, input: usize, first: usize) -> Result<()> {
    let Some(axis) = axis(cx.attrs())? else {
        cx.with_rank(first, 0)?;
        cx.with_rank(first + 1, 0)?;
        return Ok(());
    };
    let channels = cx.with_rank_at_least(input, axis + 1)?.and_then(|dims| dims[axis]);
    // A range that is not read may be anything.
    if cx.attrs().contains_key("range_given") && !cx.attrs().bool("range_given")? {
        return Ok(());
    }
    for (position, name) in [(first, "input_min"), (first + 1, "input_max")] {
        if let Some([size]) = cx.with_rank(position, 1)?
            && size.zip(channels).is_some_and(|(size, channels)| size != channels)
        {
            return Err(Error::invalid_argument(format!(
                "{name} must have a number for each element of axis {axis}, got shape {} for {}",
                cx.shape(position),
                cx.shape(input)
            )));
        }
    }
    Ok(())
}

fn infer_gradient(cx: &mut InferCx<'_>) -> Result<()> {
    check_range(cx, 1, 2)?;
    let shape = merge_shapes(cx.shape(0), cx.shape(1))
        .map_err(|_| Error::invalid_argument(format!("gradient and input must be the same size: {} and {}", cx.shape(0), cx.shape(1))))?;
    cx.set(0, shape);
    cx.set(1, cx.shape(2).clone());
    cx.set(2, cx.shape(3).clone());
    Ok(())
}

/// Floats of one type.
struct Floats {
    e: ExprBuilder,
    data_type: DataType,
}

impl Floats {
    fn number(&mut self, value: f64) -> Result<Reg> {
        self.e.number(self.data_type, value)
    }

    fn binary(&mut self, op: BinaryOp, x: Reg, y: Reg) -> Result<Reg> {
        self.e.binary(op, x, y)
    }

    /// How many levels a number is of this end of the range, where the end does not lie across 0 from the level.
    fn scale(&mut self, level: Reg, end: Reg) -> Result<Reg> {
        let (zero, most) = (self.number(0.0)?, self.number(largest(self.data_type))?);
        let product = self.binary(BinaryOp::Mul, level, end)?;
        let same_side = self.binary(BinaryOp::Greater, product, zero)?;
        let scale = self.binary(BinaryOp::Div, level, end)?;
        self.e.select(same_side, scale, most)
    }
}

/// The largest finite number of a type.
fn largest(data_type: DataType) -> f64 {
    match data_type {
        DataType::Half => 65504.0,
        DataType::Bfloat16 => f64::from(f32::from_bits(0x7F7F_0000)),
        DataType::Float => f64::from(f32::MAX),
        _ => f64::MAX,
    }
}

/// Two ends of a range, seen in the input's rank; the numbers' own where none are given.
fn ends(recipe: &mut Recipe, cx: &KernelCx<'_>, axis: Option<usize>) -> Result<[Ingredient; 2]> {
    let shape = cx.dims(0).to_vec();
    let seen: Vec<u64> = shape.iter().enumerate().map(|(at, size)| if axis == Some(at) { *size } else { 1 }).collect();
    if cx.attrs().bool("range_given")? {
        let given = [recipe.input(cx, 1), recipe.input(cx, 2)];
        let ordered = recipe.binary(BinaryOp::LessEqual, [&given[0], &given[1]], given[0].meta.shape.clone())?;
        recipe.require(Requirement::QuantizedRange, ordered);
        return Ok([given[0].reshaped(seen.clone())?, given[1].reshaped(seen)?]);
    }
    let axes: Vec<usize> = (0..shape.len()).filter(|at| axis != Some(*at)).collect();
    let data_type = cx.inputs[0].data_type;
    let input = recipe.input(cx, 0);
    let kept = Meta { data_type, shape: axis.map(|axis| shape[axis]).into_iter().collect::<Vec<_>>().into() };
    let mut end = |op| {
        let request = Reduction::Reduce { op, data_type, shape: shape.clone(), axes: axes.clone(), divided: false };
        recipe.one(KernelRequest::Reduction(request), [input.clone()], kept.clone()).reshaped(seen.clone())
    };
    Ok([end(ReduceOp::Min)?, end(ReduceOp::Max)?])
}

/// `round(clamped * scale) / scale`, where the scale takes the range to the levels, and 0 to 0.
fn quantize(cx: &KernelCx<'_>) -> Result<Recipe> {
    use BinaryOp::{Div, Less, Maximum, Minimum, Mul};
    let attrs = cx.attrs();
    let bits = if cx.inputs.len() > 3 { cx.int(3)? } else { attrs.int("num_bits")? };
    let (lowest, highest) = levels(attrs, bits)?;
    let mut recipe = Recipe::new();
    let ends = ends(&mut recipe, cx, axis(attrs)?)?;
    let data_type = cx.inputs[0].data_type;

    let mut f = Floats { e: ExprBuilder::new(), data_type };
    let (min, max) = (f.e.input(data_type)?, f.e.input(data_type)?);
    let (lowest, highest) = (f.number(lowest as f64)?, f.number(highest as f64)?);
    let (of_min, of_max) = (f.scale(lowest, min)?, f.scale(highest, max)?);
    let is_min = f.binary(Less, of_min, of_max)?;
    let scale = f.e.select(is_min, of_min, of_max)?;
    let (by_min, by_max) = (f.binary(Div, min, lowest)?, f.binary(Div, max, highest)?);
    let inverse = f.e.select(is_min, by_min, by_max)?;
    let (other_min, other_max) = (f.binary(Mul, lowest, inverse)?, f.binary(Mul, highest, inverse)?);
    let min = f.e.select(is_min, min, other_min)?;
    let max = f.e.select(is_min, other_max, max)?;
    let shape = ends[0].meta.shape.clone();
    let range = recipe.expression(f.e.finish(vec![min, max, scale, inverse]), ends, shape);

    let mut f = Floats { e: ExprBuilder::new(), data_type };
    let [x, min, max, scale, inverse] = [(); 5].map(|()| f.e.input(data_type));
    let (mut x, min, max, scale, inverse) = (x?, min?, max?, scale?, inverse?);
    if attrs.bool("range_given")? {
        x = f.binary(Minimum, x, max)?;
        x = f.binary(Maximum, x, min)?;
    }
    let scaled = f.binary(Mul, x, scale)?;
    let halves_up = attrs.contains_key("round_mode") && attrs.text("round_mode")? == "HALF_UP";
    let level = if halves_up {
        let half = f.number(0.5)?;
        let above = f.binary(BinaryOp::Add, scaled, half)?;
        f.e.unary(UnaryOp::Floor, above)?
    } else {
        f.e.unary(UnaryOp::Rint, scaled)?
    };
    let value = f.binary(Mul, level, inverse)?;
    let inputs = [vec![recipe.input(cx, 0)], range].concat();
    let result = recipe.expression(f.e.finish(vec![value]), inputs, cx.outputs[0].shape.clone());
    Ok(recipe.finish(result))
}

/// The gradient goes through where the input is in the range, and none to its ends.
fn quantize_gradient(cx: &KernelCx<'_>) -> Result<Recipe> {
    let axis = axis(cx.attrs())?;
    let mut recipe = Recipe::new();
    let (data_type, shape) = (cx.inputs[0].data_type, cx.dims(0).to_vec());
    let seen: Vec<u64> = shape.iter().enumerate().map(|(at, size)| if axis == Some(at) { *size } else { 1 }).collect();
    let mut f = Floats { e: ExprBuilder::new(), data_type };
    let [gradient, x, min, max] = [(); 4].map(|()| f.e.input(data_type));
    let (gradient, x, min, max) = (gradient?, x?, min?, max?);
    let (low, high) = (f.binary(BinaryOp::GreaterEqual, x, min)?, f.binary(BinaryOp::LessEqual, x, max)?);
    let inside = f.binary(BinaryOp::LogicalAnd, low, high)?;
    let inside = f.e.cast(data_type, inside)?;
    let result = f.binary(BinaryOp::Mul, gradient, inside)?;
    let (min, max) = (recipe.input(cx, 2).reshaped(seen.clone())?, recipe.input(cx, 3).reshaped(seen)?);
    let inputs = [recipe.input(cx, 0), recipe.input(cx, 1), min, max];
    let mut results = recipe.expression(f.e.finish(vec![result]), inputs, shape);
    for meta in &cx.outputs[1..] {
        let mut e = ExprBuilder::new();
        let zero = e.number(data_type, 0.0)?;
        results.extend(recipe.expression(e.finish(vec![zero]), [], meta.shape.clone()));
    }
    Ok(recipe.finish(results))
}

/// The gradient goes through as it is.
fn straight(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, gradient| {
        let mut to_inputs = vec![None; g.input_count()];
        to_inputs[0] = Some(gradient);
        Ok(to_inputs)
    })
}

fn within(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, gradient| {
        let axis: Vec<(&str, AttrValue)> = vec![("axis", AttrValue::Int(g.attrs().int("axis")?))];
        let to_input = g.op_with("QuantizeAndDequantizeV4Grad", &[gradient, g.input(0), g.input(1), g.input(2)], &axis)?;
        Ok((0..3).map(|index| Some(Output { index, ..to_input })).collect())
    })
}
