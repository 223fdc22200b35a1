//! Relu and its kin, with their gradients, as expressions.

mod gradients;

use plimsoll_base::{Bf16, DataType, Error, F16, Result};
use plimsoll_graph::AttrsExt;
use plimsoll_request::expr::{BinaryOp, Expr, ExprBuilder, Reg, Scalar, UnaryOp};

use crate::infer::{merge_shapes, same};
use crate::registry::{Gradient, GradientFn};
use crate::{InferCx, KernelCx, Lower, OpRules};

type MakeExpr = fn(&KernelCx<'_>) -> Result<Expr>;

const fn rule(name: &'static str, expr: MakeExpr, gradient: GradientFn) -> OpRules {
    OpRules { name, infer: same, lower: Lower::Elementwise(expr), gradient: Gradient::Rule(gradient) }
}

const fn grad_rule(name: &'static str, expr: MakeExpr, gradient: Gradient) -> OpRules {
    OpRules { name, infer: pair, lower: Lower::Elementwise(expr), gradient }
}

/// The rules of activations.
pub const RULES: &[OpRules] = &[
    rule("Relu", relu, gradients::relu),
    rule("Relu6", relu6, gradients::relu6),
    rule("LeakyRelu", leaky_relu, gradients::leaky_relu),
    rule("Elu", elu, gradients::elu),
    rule("Selu", selu, gradients::selu),
    rule("Softplus", softplus, gradients::softplus),
    rule("Softsign", softsign, gradients::softsign),
    grad_rule("ReluGrad", relu_grad, Gradient::Rule(gradients::relu_grad)),
    grad_rule("Relu6Grad", relu6_grad, Gradient::Rule(gradients::relu6_grad)),
    grad_rule("LeakyReluGrad", leaky_relu_grad, Gradient::Rule(gradients::leaky_relu_grad)),
    grad_rule("EluGrad", elu_grad, Gradient::Rule(gradients::elu_grad)),
    grad_rule("SeluGrad", selu_grad, Gradient::Rule(gradients::selu_grad)),
    grad_rule("SoftplusGrad", softplus_grad, Gradient::Rule(gradients::softplus_grad)),
    grad_rule("SoftsignGrad", softsign_grad, Gradient::Unknown),
];

/// Gradients and features have one shape.
fn pair(cx: &mut InferCx<'_>) -> Result<()> {
    let shape = merge_shapes(cx.shape(0), cx.shape(1))?;
    cx.set(0, shape);
    Ok(())
}

/// Instructions on the inputs of one node.
struct Steps {
    builder: ExprBuilder,
    inputs: Vec<Reg>,
}

impl Steps {
    fn new(cx: &KernelCx<'_>) -> Result<Steps> {
        let mut builder = ExprBuilder::new();
        let inputs = cx.inputs.iter().map(|meta| builder.input(meta.data_type)).collect::<Result<_>>()?;
        Ok(Steps { builder, inputs })
    }

    fn number(&mut self, value: f64) -> Result<Reg> {
        let data_type = self.builder.type_of(self.inputs[0]);
        let scalar = Scalar::from_f64(data_type, value).ok_or_else(|| Error::unimplemented(format!("activations of {data_type}")))?;
        Ok(self.builder.constant(scalar))
    }

    fn binary(&mut self, op: BinaryOp, a: Reg, b: Reg) -> Result<Reg> {
        self.builder.binary(op, a, b)
    }

    fn finish(self, result: Reg) -> Result<Expr> {
        Ok(self.builder.finish(vec![result]))
    }
}

/// `max(x, 0)`.
fn relu(cx: &KernelCx<'_>) -> Result<Expr> {
    let mut s = Steps::new(cx)?;
    let zero = s.number(0.0)?;
    let result = s.binary(BinaryOp::Maximum, s.inputs[0], zero)?;
    s.finish(result)
}

/// `min(max(x, 0), 6)`.
fn relu6(cx: &KernelCx<'_>) -> Result<Expr> {
    let mut s = Steps::new(cx)?;
    let (zero, six) = (s.number(0.0)?, s.number(6.0)?);
    let floor = s.binary(BinaryOp::Maximum, s.inputs[0], zero)?;
    let result = s.binary(BinaryOp::Minimum, floor, six)?;
    s.finish(result)
}

/// The gradient where the feature is above 0.
fn relu_grad(cx: &KernelCx<'_>) -> Result<Expr> {
    let mut s = Steps::new(cx)?;
    let zero = s.number(0.0)?;
    let on = s.binary(BinaryOp::Greater, s.inputs[1], zero)?;
    let result = s.builder.select(on, s.inputs[0], zero)?;
    s.finish(result)
}

/// The gradient where the feature is between 0 and 6.
fn relu6_grad(cx: &KernelCx<'_>) -> Result<Expr> {
    let mut s = Steps::new(cx)?;
    let (zero, six) = (s.number(0.0)?, s.number(6.0)?);
    let above = s.binary(BinaryOp::Greater, s.inputs[1], zero)?;
    let below = s.binary(BinaryOp::Less, s.inputs[1], six)?;
    let on = s.binary(BinaryOp::LogicalAnd, above, below)?;
    let result = s.builder.select(on, s.inputs[0], zero)?;
    s.finish(result)
}

/// `x`, or `alpha * x` below 0.
fn leaky_relu(cx: &KernelCx<'_>) -> Result<Expr> {
    let mut s = Steps::new(cx)?;
    let (zero, alpha) = (s.number(0.0)?, s.number(cx.attrs().float("alpha")?.into())?);
    let scaled = s.binary(BinaryOp::Mul, s.inputs[0], alpha)?;
    let on = s.binary(BinaryOp::Greater, s.inputs[0], zero)?;
    let result = s.builder.select(on, s.inputs[0], scaled)?;
    s.finish(result)
}

fn leaky_relu_grad(cx: &KernelCx<'_>) -> Result<Expr> {
    let mut s = Steps::new(cx)?;
    let (zero, alpha) = (s.number(0.0)?, s.number(cx.attrs().float("alpha")?.into())?);
    let scaled = s.binary(BinaryOp::Mul, s.inputs[0], alpha)?;
    let on = s.binary(BinaryOp::Greater, s.inputs[1], zero)?;
    let result = s.builder.select(on, s.inputs[0], scaled)?;
    s.finish(result)
}

/// `x`, or `exp(x) - 1` below 0.
fn elu(cx: &KernelCx<'_>) -> Result<Expr> {
    let mut s = Steps::new(cx)?;
    let zero = s.number(0.0)?;
    let below = s.binary(BinaryOp::Less, s.inputs[0], zero)?;
    let exp = s.builder.unary(UnaryOp::Expm1, s.inputs[0])?;
    let result = s.builder.select(below, exp, s.inputs[0])?;
    s.finish(result)
}

/// From the result `y`: the gradient, times `y + 1` where `y` is below 0.
fn elu_grad(cx: &KernelCx<'_>) -> Result<Expr> {
    let mut s = Steps::new(cx)?;
    let (zero, one) = (s.number(0.0)?, s.number(1.0)?);
    let below = s.binary(BinaryOp::Less, s.inputs[1], zero)?;
    let slope = s.binary(BinaryOp::Add, s.inputs[1], one)?;
    let scaled = s.binary(BinaryOp::Mul, slope, s.inputs[0])?;
    let result = s.builder.select(below, scaled, s.inputs[0])?;
    s.finish(result)
}

/// The factors of Selu: of all values, and of those below 0.
const SELU_SCALE: f64 = 1.050_700_987_355_480_5;
const SELU_SCALE_ALPHA: f64 = 1.758_099_340_847_376_9;

/// `scale * x`, or `scale * alpha * (exp(x) - 1)` below 0.
fn selu(cx: &KernelCx<'_>) -> Result<Expr> {
    let mut s = Steps::new(cx)?;
    let (zero, scale, scale_alpha) = (s.number(0.0)?, s.number(SELU_SCALE)?, s.number(SELU_SCALE_ALPHA)?);
    let below = s.binary(BinaryOp::Less, s.inputs[0], zero)?;
    let (one, exp) = (s.number(1.0)?, s.builder.unary(UnaryOp::Exp, s.inputs[0])?);
    let exp = s.binary(BinaryOp::Sub, exp, one)?;
    let (lower, upper) = (s.binary(BinaryOp::Mul, scale_alpha, exp)?, s.binary(BinaryOp::Mul, scale, s.inputs[0])?);
    let result = s.builder.select(below, lower, upper)?;
    s.finish(result)
}

/// From the result `y`: the gradient times `y + scale * alpha` where `y` is below 0, else times the scale.
fn selu_grad(cx: &KernelCx<'_>) -> Result<Expr> {
    let mut s = Steps::new(cx)?;
    let (zero, scale, scale_alpha) = (s.number(0.0)?, s.number(SELU_SCALE)?, s.number(SELU_SCALE_ALPHA)?);
    let below = s.binary(BinaryOp::Less, s.inputs[1], zero)?;
    let slope = s.binary(BinaryOp::Add, s.inputs[1], scale_alpha)?;
    let (lower, upper) = (s.binary(BinaryOp::Mul, s.inputs[0], slope)?, s.binary(BinaryOp::Mul, s.inputs[0], scale)?);
    let result = s.builder.select(below, lower, upper)?;
    s.finish(result)
}

/// `x / (1 + |x|)`.
fn softsign(cx: &KernelCx<'_>) -> Result<Expr> {
    let mut s = Steps::new(cx)?;
    let one = s.number(1.0)?;
    let size = s.builder.unary(UnaryOp::Abs, s.inputs[0])?;
    let divisor = s.binary(BinaryOp::Add, one, size)?;
    let result = s.binary(BinaryOp::Div, s.inputs[0], divisor)?;
    s.finish(result)
}

/// `gradient / (1 + |x|)^2`.
fn softsign_grad(cx: &KernelCx<'_>) -> Result<Expr> {
    let mut s = Steps::new(cx)?;
    let one = s.number(1.0)?;
    let size = s.builder.unary(UnaryOp::Abs, s.inputs[1])?;
    let sum = s.binary(BinaryOp::Add, one, size)?;
    let square = s.builder.unary(UnaryOp::Square, sum)?;
    let result = s.binary(BinaryOp::Div, s.inputs[0], square)?;
    s.finish(result)
}

/// `log(1 + exp(x))`: `x` itself where that is large, `exp(x)` where that is small (TensorFlow's thresholds).
fn softplus(cx: &KernelCx<'_>) -> Result<Expr> {
    let mut s = Steps::new(cx)?;
    // The logarithm is a number of the type.
    let threshold = match cx.inputs[0].data_type {
        DataType::Half => F16::from_f32(0.000_976_562_5f32.ln()).to_f32().into(),
        DataType::Bfloat16 => Bf16::from_f32(0.007_812_5f32.ln()).to_f32().into(),
        DataType::Double => f64::EPSILON.ln(),
        DataType::Float => f64::from(f32::EPSILON).ln(),
        other => return Err(Error::unimplemented(format!("{} of {other}", cx.node.op))),
    } + 2.0;
    let (low, high) = (s.number(threshold)?, s.number(-threshold)?);
    let x = s.inputs[0];
    let (large, small) = (s.binary(BinaryOp::Greater, x, high)?, s.binary(BinaryOp::Less, x, low)?);
    let exp = s.builder.unary(UnaryOp::Exp, x)?;
    let log = s.builder.unary(UnaryOp::Log1p, exp)?;
    let lower = s.builder.select(small, exp, log)?;
    let result = s.builder.select(large, x, lower)?;
    s.finish(result)
}

/// `gradient / (exp(-x) + 1)`.
fn softplus_grad(cx: &KernelCx<'_>) -> Result<Expr> {
    let mut s = Steps::new(cx)?;
    let one = s.number(1.0)?;
    let neg = s.builder.unary(UnaryOp::Neg, s.inputs[1])?;
    let exp = s.builder.unary(UnaryOp::Exp, neg)?;
    let divisor = s.binary(BinaryOp::Add, exp, one)?;
    let result = s.binary(BinaryOp::Div, s.inputs[0], divisor)?;
    s.finish(result)
}
