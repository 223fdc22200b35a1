//! Operations on one value: negation, roots, exponentials, rounding and the like.

mod bessel;
mod gradients;

use plimsoll_base::Result;
use plimsoll_request::expr::{BinaryOp, Expr, ExprBuilder, UnaryOp};

use crate::infer::same;
use crate::registry::{Gradient, GradientFn};
use crate::{KernelCx, Lower, OpRules};

const fn rule(name: &'static str, op: UnaryOp, gradient: GradientFn) -> OpRules {
    OpRules { name, infer: same, lower: Lower::Unary(op), gradient: Gradient::Rule(gradient) }
}

/// A step function: nothing goes through.
const fn step(name: &'static str, lower: Lower) -> OpRules {
    OpRules { name, infer: same, lower, gradient: Gradient::Stops }
}

/// The rules of the operations on one value.
pub const RULES: &[OpRules] = &[
    rule("Neg", UnaryOp::Neg, gradients::neg),
    rule("Abs", UnaryOp::Abs, gradients::abs),
    rule("Sign", UnaryOp::Sign, gradients::sign),
    rule("Square", UnaryOp::Square, gradients::square),
    rule("Sqrt", UnaryOp::Sqrt, gradients::sqrt),
    rule("Rsqrt", UnaryOp::Rsqrt, gradients::rsqrt),
    rule("Reciprocal", UnaryOp::Reciprocal, gradients::reciprocal),
    rule("Inv", UnaryOp::Reciprocal, gradients::reciprocal),
    rule("Exp", UnaryOp::Exp, gradients::exp),
    rule("Expm1", UnaryOp::Expm1, gradients::expm1),
    rule("Log", UnaryOp::Log, gradients::log),
    rule("Log1p", UnaryOp::Log1p, gradients::log1p),
    rule("Tanh", UnaryOp::Tanh, gradients::tanh),
    rule("Sigmoid", UnaryOp::Sigmoid, gradients::sigmoid),
    rule("Erf", UnaryOp::Erf, gradients::erf),
    rule("Erfc", UnaryOp::Erfc, gradients::erfc),
    rule("Sin", UnaryOp::Sin, gradients::sin),
    rule("Cos", UnaryOp::Cos, gradients::cos),
    rule("Tan", UnaryOp::Tan, gradients::tan),
    rule("Asin", UnaryOp::Asin, gradients::asin),
    rule("Acos", UnaryOp::Acos, gradients::acos),
    rule("Atan", UnaryOp::Atan, gradients::atan),
    rule("Sinh", UnaryOp::Sinh, gradients::sinh),
    rule("Cosh", UnaryOp::Cosh, gradients::cosh),
    rule("Asinh", UnaryOp::Asinh, gradients::asinh),
    rule("Acosh", UnaryOp::Acosh, gradients::acosh),
    rule("Atanh", UnaryOp::Atanh, gradients::atanh),
    rule("Lgamma", UnaryOp::Lgamma, gradients::lgamma),
    rule("Digamma", UnaryOp::Digamma, gradients::digamma),
    rule("Erfinv", UnaryOp::Erfinv, gradients::erfinv),
    rule("Ndtri", UnaryOp::Ndtri, gradients::ndtri),
    rule("BesselI0", UnaryOp::BesselI0, bessel::i0),
    rule("BesselI0e", UnaryOp::BesselI0e, bessel::i0e),
    rule("BesselI1", UnaryOp::BesselI1, bessel::i1),
    rule("BesselI1e", UnaryOp::BesselI1e, bessel::i1e),
    rule("BesselJ0", UnaryOp::BesselJ0, bessel::j0),
    rule("BesselJ1", UnaryOp::BesselJ1, bessel::j1),
    rule("BesselK0", UnaryOp::BesselK0, bessel::k0),
    rule("BesselK0e", UnaryOp::BesselK0e, bessel::k0e),
    rule("BesselK1", UnaryOp::BesselK1, bessel::k1),
    rule("BesselK1e", UnaryOp::BesselK1e, bessel::k1e),
    rule("BesselY0", UnaryOp::BesselY0, bessel::y0),
    rule("BesselY1", UnaryOp::BesselY1, bessel::y1),
    rule("Dawsn", UnaryOp::Dawsn, bessel::dawsn),
    rule("Expint", UnaryOp::Expint, bessel::expint),
    rule("FresnelCos", UnaryOp::FresnelCos, bessel::fresnel_cos),
    rule("FresnelSin", UnaryOp::FresnelSin, bessel::fresnel_sin),
    rule("Spence", UnaryOp::Spence, bessel::spence),
    step("Floor", Lower::Unary(UnaryOp::Floor)),
    step("Ceil", Lower::Unary(UnaryOp::Ceil)),
    step("Rint", Lower::Unary(UnaryOp::Rint)),
    step("Round", Lower::Elementwise(round)),
    step("IsNan", Lower::Unary(UnaryOp::IsNan)),
    step("IsFinite", Lower::Unary(UnaryOp::IsFinite)),
    step("IsInf", Lower::Elementwise(is_inf)),
];

/// To the nearest, ties to even; integers are round already.
fn round(cx: &KernelCx<'_>) -> Result<Expr> {
    let mut builder = ExprBuilder::new();
    let x = builder.input(cx.inputs[0].data_type)?;
    let result = if cx.inputs[0].data_type.is_integer() { x } else { builder.unary(UnaryOp::Rint, x)? };
    Ok(builder.finish(vec![result]))
}

/// Neither finite nor NaN.
fn is_inf(cx: &KernelCx<'_>) -> Result<Expr> {
    let mut builder = ExprBuilder::new();
    let x = builder.input(cx.inputs[0].data_type)?;
    let (finite, nan) = (builder.unary(UnaryOp::IsFinite, x)?, builder.unary(UnaryOp::IsNan, x)?);
    let either = builder.binary(BinaryOp::LogicalOr, finite, nan)?;
    let result = builder.unary(UnaryOp::LogicalNot, either)?;
    Ok(builder.finish(vec![result]))
}
