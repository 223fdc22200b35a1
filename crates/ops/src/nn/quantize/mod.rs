//! QuantizeV2 and Dequantize: floats as integers of a range, and back. Quantized types have the elements of the integers.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{Attrs, AttrsExt, PartialShape};
use plimsoll_request::check::Requirement;
use plimsoll_request::expr::{BinaryOp, ExprBuilder, Reg, Scalar, UnaryOp};

use crate::infer::of_rank;
use crate::recipe::{Ingredient, Recipe};
use crate::registry::Gradient;
use crate::{InferCx, KernelCx, Lower, OpRules};

/// The rules of numbers that are quantized.
pub const RULES: &[OpRules] = &[
    OpRules { name: "QuantizeV2", infer: infer_quantized, lower: Lower::Recipe(quantize), gradient: Gradient::Unknown },
    OpRules { name: "Dequantize", infer: infer_numbers, lower: Lower::Recipe(dequantize), gradient: Gradient::Unknown },
];

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    MinCombined,
    MinFirst,
    Scaled,
}

/// How numbers are quantized, as the attributes say it.
struct Quantization {
    mode: Mode,
    narrow: bool,
    /// The axis of the slices, where each has a range of its own.
    axis: Option<usize>,
}

impl Quantization {
    fn of(attrs: &Attrs) -> Result<Quantization> {
        let mode = match attrs.text("mode")? {
            "MIN_COMBINED" => Mode::MinCombined,
            "MIN_FIRST" => Mode::MinFirst,
            "SCALED" => Mode::Scaled,
            other => {
                let other = other.escape_debug();
                return Err(Error::invalid_argument(format!("mode is one of MIN_COMBINED, MIN_FIRST and SCALED, not '{other}'")));
            }
        };
        let axis = attrs.int("axis")?;
        if axis < -1 {
            return Err(Error::invalid_argument(format!("axis should be at least -1, got {axis}")));
        }
        Ok(Quantization { mode, narrow: attrs.bool("narrow_range")?, axis: usize::try_from(axis).ok() })
    }

    /// The shape of a range that has one number for each slice, as the operation gives it: one slice has scalars.
    fn slices(&self, cx: &InferCx<'_>) -> Result<PartialShape> {
        let Some(axis) = self.axis else {
            for input in [1, 2] {
                if cx.shape(input).complete().is_some_and(|shape| shape.elements() != Ok(1)) {
                    return Err(Error::invalid_argument(format!("a range without an axis has one number, not {}", cx.shape(input))));
                }
            }
            return Ok(of_rank(Some(0)));
        };
        let mut slices = cx.with_rank_at_least(0, axis + 1)?.and_then(|dims| dims[axis]);
        for input in [1, 2] {
            let Some([size]) = cx.with_rank(input, 1)? else { continue };
            if slices.zip(*size).is_some_and(|(slices, size)| slices != size) {
                let message = format!("a range of shape {} for axis {axis} of {}", cx.shape(input), cx.shape(0));
                return Err(Error::invalid_argument(message));
            }
            slices = slices.or(*size);
        }
        if self.mode == Mode::MinFirst && slices.is_some_and(|slices| slices != 1) {
            return Err(Error::unimplemented("MIN_FIRST mode is not implemented with axis != -1"));
        }
        Ok(match slices {
            Some(1) => of_rank(Some(0)),
            None => PartialShape(None),
            slices => PartialShape(Some(vec![slices])),
        })
    }

    /// The shape in which a range lies beside the numbers.
    fn beside(&self, dims: &[u64]) -> Vec<u64> {
        dims.iter().enumerate().map(|(at, size)| if self.axis == Some(at) { *size } else { 1 }).collect()
    }
}

fn infer_quantized(cx: &mut InferCx<'_>) -> Result<()> {
    let quantization = Quantization::of(cx.attrs())?;
    if cx.attrs().text("round_mode")? == "HALF_TO_EVEN" && quantization.mode != Mode::Scaled {
        return Err(Error::invalid_argument("Round mode 'HALF_TO_EVEN' only supported for mode 'SCALED'"));
    }
    let slices = quantization.slices(cx)?;
    cx.set(0, cx.shape(0).clone());
    cx.set(1, slices.clone());
    cx.set(2, slices);
    Ok(())
}

fn infer_numbers(cx: &mut InferCx<'_>) -> Result<()> {
    let quantization = Quantization::of(cx.attrs())?;
    let to = cx.attrs().data_type("dtype")?;
    if to == DataType::Bfloat16 && quantization.mode != Mode::MinCombined {
        return Err(Error::invalid_argument("When output type is bfloat16, Mode string must be 'MIN_COMBINED'"));
    }
    quantization.slices(cx)?;
    cx.set(0, cx.shape(0).clone());
    Ok(())
}

/// The integers that have the elements of a quantized type, with their lowest and highest.
fn integers(data_type: DataType) -> Result<(DataType, f64, f64)> {
    Ok(match data_type {
        DataType::Qint8 => (DataType::Int8, -128.0, 127.0),
        DataType::Quint8 => (DataType::Uint8, 0.0, 255.0),
        DataType::Qint16 => (DataType::Int16, -32768.0, 32767.0),
        DataType::Quint16 => (DataType::Uint16, 0.0, 65535.0),
        DataType::Qint32 => (DataType::Int32, -2_147_483_648.0, 2_147_483_647.0),
        other => return Err(Error::unimplemented(format!("quantized numbers of {other}"))),
    })
}

/// Arithmetic of floats.
struct Floats(ExprBuilder);

impl Floats {
    fn input(&mut self) -> Result<Reg> {
        self.0.input(DataType::Float)
    }

    fn number(&mut self, value: f32) -> Reg {
        self.0.constant(Scalar::F32(value))
    }

    fn binary(&mut self, op: BinaryOp, x: Reg, y: Reg) -> Result<Reg> {
        self.0.binary(op, x, y)
    }

    /// The second where it is less than the first.
    fn least(&mut self, x: Reg, y: Reg) -> Result<Reg> {
        let is_less = self.binary(BinaryOp::Less, y, x)?;
        self.0.select(is_less, y, x)
    }

    /// The second where it is more than the first.
    fn most(&mut self, x: Reg, y: Reg) -> Result<Reg> {
        let is_more = self.binary(BinaryOp::Less, x, y)?;
        self.0.select(is_more, y, x)
    }

    /// To the nearest integer, halves away from zero.
    fn rounded(&mut self, x: Reg) -> Result<Reg> {
        let (zero, half, one) = (self.number(0.0), self.number(0.5), self.number(1.0));
        let size = self.0.unary(UnaryOp::Abs, x)?;
        let whole = self.0.unary(UnaryOp::Floor, size)?;
        let rest = self.binary(BinaryOp::Sub, size, whole)?;
        let up = self.binary(BinaryOp::GreaterEqual, rest, half)?;
        let next = self.binary(BinaryOp::Add, whole, one)?;
        let size = self.0.select(up, next, whole)?;
        let negative = self.0.unary(UnaryOp::Neg, size)?;
        let is_negative = self.binary(BinaryOp::Less, x, zero)?;
        self.0.select(is_negative, negative, size)
    }

    /// `number / x` by doubles.
    fn divided(&mut self, number: f64, x: Reg) -> Result<Reg> {
        let (number, x) = (self.0.constant(Scalar::F64(number)), self.0.cast(DataType::Double, x)?);
        let quotient = self.binary(BinaryOp::Div, number, x)?;
        self.0.cast(DataType::Float, quotient)
    }
}

/// The range that is quantized to, wide enough and with 0 in it, and for each of its numbers two factors: by what numbers are
/// multiplied, and what is taken away from them then.
fn range(recipe: &mut Recipe, cx: &KernelCx<'_>, quantization: &Quantization) -> Result<Vec<Ingredient>> {
    use BinaryOp::{Add, Div, Greater, Mul, Sub};
    let (_, lowest, highest) = integers(cx.outputs[0].data_type)?;
    let count = cx.inputs[1].shape.elements()?;
    let given = [recipe.input(cx, 1).reshaped([count])?, recipe.input(cx, 2).reshaped([count])?];
    let less = recipe.binary(BinaryOp::Less, [&given[1], &given[0]], [count])?;
    let ordered = recipe.unary(UnaryOp::LogicalNot, &less)?;
    recipe.require(Requirement::QuantizedRange, ordered);

    let mut f = Floats(ExprBuilder::new());
    let (low, high) = (f.input()?, f.input()?);
    let (zero, one, spread) = (f.number(0.0), f.number(1.0), f.number(cx.attrs().float("ensure_minimum_range")?));
    let mut min = f.least(zero, low)?;
    let sizes = [f.0.unary(UnaryOp::Abs, low)?, f.0.unary(UnaryOp::Abs, high)?];
    let size = f.most(sizes[0], sizes[1])?;
    let size = f.most(one, size)?;
    let least = f.binary(Mul, size, spread)?;
    let least = f.binary(Add, min, least)?;
    let max = f.most(high, least)?;
    let mut max = f.most(zero, max)?;
    let (scale, offset) = match quantization.mode {
        Mode::MinCombined => {
            let width = f.binary(Sub, max, min)?;
            (f.divided(highest - lowest, width)?, zero)
        }
        Mode::MinFirst => {
            let width = f.binary(Sub, max, min)?;
            let is_empty = f.binary(BinaryOp::Equal, max, min)?;
            let scale = f.divided(highest - lowest, width)?;
            let scale = f.0.select(is_empty, zero, scale)?;
            let scaled = f.binary(Mul, min, scale)?;
            let (scaled, lowest) = (f.rounded(scaled)?, f.number(lowest as f32));
            (scale, f.binary(Sub, scaled, lowest)?)
        }
        Mode::Scaled => {
            let lowest = f.number((lowest + if quantization.narrow { 1.0 } else { 0.0 }) as f32);
            let (highest, unbounded) = (f.number(highest as f32), f.number(f32::MAX));
            let mut side = |level: Reg, end: Reg| {
                let product = f.binary(Mul, level, end)?;
                let same_side = f.binary(Greater, product, zero)?;
                let scale = f.binary(Div, level, end)?;
                f.0.select(same_side, scale, unbounded)
            };
            let (of_min, of_max) = (side(lowest, min)?, side(highest, max)?);
            let scale = f.least(of_min, of_max)?;
            (min, max) = (f.binary(Div, lowest, scale)?, f.binary(Div, highest, scale)?);
            (scale, zero)
        }
    };
    Ok(recipe.expression(f.0.finish(vec![min, max, scale, offset]), given, [count]))
}

fn quantize(cx: &KernelCx<'_>) -> Result<Recipe> {
    use BinaryOp::{Add, Maximum, Minimum, Mul, Sub};
    let quantization = Quantization::of(cx.attrs())?;
    let to = cx.outputs[0].data_type;
    let (whole, lowest, highest) = integers(to)?;
    let mut recipe = Recipe::new();
    let range = range(&mut recipe, cx, &quantization)?;

    let mut f = Floats(ExprBuilder::new());
    let (x, min, max, scale, offset) = (f.input()?, f.input()?, f.input()?, f.input()?, f.input()?);
    let level = match quantization.mode {
        Mode::MinFirst => {
            let scaled = f.binary(Mul, x, scale)?;
            let rounded = f.rounded(scaled)?;
            let level = f.binary(Sub, rounded, offset)?;
            // The largest float below 2^31.
            let (lowest, highest) = (f.number(lowest as f32), f.number((highest as f32).min(2_147_483_520.0)));
            let level = f.binary(Maximum, level, lowest)?;
            f.binary(Minimum, level, highest)?
        }
        mode => {
            let inside = f.binary(Minimum, x, max)?;
            let inside = f.binary(Maximum, inside, min)?;
            match mode {
                Mode::MinCombined => {
                    let above = f.binary(Sub, inside, min)?;
                    let scaled = f.binary(Mul, above, scale)?;
                    if lowest < 0.0 {
                        let half = f.number(((highest - lowest + 1.0) / 2.0) as f32);
                        let level = f.binary(Sub, scaled, half)?;
                        f.rounded(level)?
                    } else {
                        let half = f.number(0.5);
                        f.binary(Add, scaled, half)?
                    }
                }
                _ => {
                    let scaled = f.binary(Mul, inside, scale)?;
                    match cx.attrs().text("round_mode")? {
                        "HALF_TO_EVEN" => f.0.unary(UnaryOp::Rint, scaled)?,
                        _ => f.rounded(scaled)?,
                    }
                }
            }
        }
    };
    let level = f.0.cast(whole, level)?;
    let beside = quantization.beside(cx.dims(0));
    let inputs = range.iter().map(|part| part.reshaped(beside.clone())).collect::<Result<Vec<_>>>()?;
    let inputs = [vec![recipe.input(cx, 0)], inputs].concat();
    let levels = recipe.expression(f.0.finish(vec![level]), inputs, cx.outputs[0].shape.clone());
    let ends = [1, 2].map(|output| range[output - 1].reshaped(cx.outputs[output].shape.clone()));
    let [min, max] = ends;
    Ok(recipe.finish([levels[0].seen_as(to)?, min?, max?]))
}

fn dequantize(cx: &KernelCx<'_>) -> Result<Recipe> {
    use BinaryOp::{Add, Div, Mul, Sub};
    let quantization = Quantization::of(cx.attrs())?;
    let (whole, lowest, highest) = integers(cx.inputs[0].data_type)?;
    let mut recipe = Recipe::new();
    let count = cx.inputs[1].shape.elements()?;
    let ends = [recipe.input(cx, 1).reshaped([count])?, recipe.input(cx, 2).reshaped([count])?];

    let mut f = Floats(ExprBuilder::new());
    let (min, max) = (f.input()?, f.input()?);
    let zero = f.number(0.0);
    let (scale, offset) = match quantization.mode {
        Mode::MinCombined => {
            let (width, levels) = (f.binary(Sub, max, min)?, f.number(highest as f32 - lowest as f32));
            (f.binary(Div, width, levels)?, min)
        }
        Mode::MinFirst => {
            let width = f.binary(Sub, max, min)?;
            let (width, levels) = (f.0.cast(DataType::Double, width)?, f.0.constant(Scalar::F64(highest - lowest)));
            let scale = f.binary(Div, width, levels)?;
            let scale = f.0.cast(DataType::Float, scale)?;
            let is_empty = f.binary(BinaryOp::Equal, max, min)?;
            let steps = f.binary(Div, min, scale)?;
            let steps = f.rounded(steps)?;
            let rounded = f.binary(Mul, steps, scale)?;
            let rounded = f.0.select(is_empty, min, rounded)?;
            let lowest = f.number(lowest as f32);
            let below = f.binary(Mul, lowest, scale)?;
            (scale, f.binary(Sub, rounded, below)?)
        }
        Mode::Scaled => {
            let level = f.number(highest as f32);
            let of_max = f.binary(Div, max, level)?;
            if lowest == 0.0 {
                (of_max, zero)
            } else {
                let level = f.number((lowest + if quantization.narrow { 1.0 } else { 0.0 }) as f32);
                let of_min = f.binary(Div, min, level)?;
                (f.most(of_min, of_max)?, zero)
            }
        }
    };
    let range = recipe.expression(f.0.finish(vec![scale, offset]), ends, [count]);

    let mut f = Floats(ExprBuilder::new());
    let level = f.0.input(whole)?;
    let (scale, offset) = (f.input()?, f.input()?);
    let mut number = f.0.cast(DataType::Float, level)?;
    if quantization.mode == Mode::Scaled && whole == DataType::Int32 && count == 1 {
        // TensorFlow goes by way of floats to integers again: what is rounded up to 2^31 wraps.
        let level = f.0.cast(DataType::Int32, number)?;
        number = f.0.cast(DataType::Float, level)?;
    }
    if quantization.mode == Mode::MinCombined && lowest < 0.0 {
        let half = f.number((highest as f32 - lowest as f32 + 1.0) / 2.0);
        number = f.binary(Add, number, half)?;
    }
    number = f.binary(Mul, number, scale)?;
    if quantization.mode != Mode::Scaled {
        number = f.binary(Add, number, offset)?;
    }
    let number = f.0.cast(cx.outputs[0].data_type, number)?;
    let beside = quantization.beside(cx.dims(0));
    let range = range.iter().map(|part| part.reshaped(beside.clone())).collect::<Result<Vec<_>>>()?;
    let inputs = [vec![recipe.input(cx, 0).seen_as(whole)?], range].concat();
    let result = recipe.expression(f.0.finish(vec![number]), inputs, cx.outputs[0].shape.clone());
    Ok(recipe.finish(result))
}
