//! Arithmetic on two values, broadcasting.

mod gradients;
mod next_after;

use plimsoll_base::Result;
use plimsoll_request::expr::{BinaryOp, Expr, ExprBuilder, UnaryOp};

use crate::infer::broadcast;
use crate::registry::{Gradient, GradientFn};
use crate::{KernelCx, Lower, OpRules};

const fn rule(name: &'static str, op: BinaryOp, gradient: GradientFn) -> OpRules {
    OpRules { name, infer: broadcast, lower: Lower::Binary(op), gradient: Gradient::Rule(gradient) }
}

/// The rules of arithmetic.
pub const RULES: &[OpRules] = &[
    rule("Add", BinaryOp::Add, gradients::add),
    rule("AddV2", BinaryOp::Add, gradients::add),
    rule("Sub", BinaryOp::Sub, gradients::sub),
    rule("Mul", BinaryOp::Mul, gradients::mul),
    rule("Div", BinaryOp::Div, gradients::div),
    rule("RealDiv", BinaryOp::Div, gradients::real_div),
    rule("DivNoNan", BinaryOp::DivNoNan, gradients::div_no_nan),
    rule("FloorMod", BinaryOp::FloorMod, gradients::floor_mod),
    rule("Minimum", BinaryOp::Minimum, gradients::minimum),
    rule("Maximum", BinaryOp::Maximum, gradients::maximum),
    rule("Pow", BinaryOp::Pow, gradients::pow),
    rule("Atan2", BinaryOp::Atan2, gradients::atan2),
    rule("Xdivy", BinaryOp::Xdivy, gradients::xdivy),
    rule("Xlogy", BinaryOp::Xlogy, gradients::xlogy),
    rule("Xlog1py", BinaryOp::Xlog1py, gradients::xlog1py),
    rule("Polygamma", BinaryOp::Polygamma, gradients::polygamma),
    rule("Zeta", BinaryOp::Zeta, gradients::zeta),
    rule("Igamma", BinaryOp::Igamma, gradients::igamma),
    rule("Igammac", BinaryOp::Igammac, gradients::igammac),
    OpRules { name: "IgammaGradA", infer: broadcast, lower: Lower::Binary(BinaryOp::IgammaGradA), gradient: Gradient::Unknown },
    OpRules {
        name: "NextAfter",
        infer: broadcast,
        lower: Lower::Recipe(next_after::lower),
        gradient: Gradient::Rule(gradients::next_after),
    },
    OpRules { name: "Mod", infer: broadcast, lower: Lower::Binary(BinaryOp::TruncateMod), gradient: Gradient::Unknown },
    OpRules { name: "TruncateMod", infer: broadcast, lower: Lower::Binary(BinaryOp::TruncateMod), gradient: Gradient::Unknown },
    OpRules { name: "FloorDiv", infer: broadcast, lower: Lower::Binary(BinaryOp::FloorDiv), gradient: Gradient::Stops },
    OpRules { name: "TruncateDiv", infer: broadcast, lower: Lower::Binary(BinaryOp::Div), gradient: Gradient::Stops },
    OpRules {
        name: "SquaredDifference",
        infer: broadcast,
        lower: Lower::Elementwise(squared_difference),
        gradient: Gradient::Rule(gradients::squared_difference),
    },
    OpRules { name: "MulNoNan", infer: broadcast, lower: Lower::Elementwise(mul_no_nan), gradient: Gradient::Rule(gradients::mul_no_nan) },
];

fn squared_difference(cx: &KernelCx<'_>) -> Result<Expr> {
    let mut builder = ExprBuilder::new();
    let (x, y) = (builder.input(cx.inputs[0].data_type)?, builder.input(cx.inputs[1].data_type)?);
    let difference = builder.binary(BinaryOp::Sub, x, y)?;
    let result = if cx.inputs[0].data_type.is_complex() {
        let conjugate = builder.unary(UnaryOp::Conj, difference)?;
        builder.binary(BinaryOp::Mul, difference, conjugate)?
    } else {
        builder.unary(UnaryOp::Square, difference)?
    };
    Ok(builder.finish(vec![result]))
}

/// The product, and 0 where the second is 0.
fn mul_no_nan(cx: &KernelCx<'_>) -> Result<Expr> {
    let mut builder = ExprBuilder::new();
    let data_type = cx.inputs[0].data_type;
    let (x, y) = (builder.input(data_type)?, builder.input(cx.inputs[1].data_type)?);
    let zero = builder.number(data_type, 0.0)?;
    let nothing = builder.binary(BinaryOp::Equal, y, zero)?;
    let product = builder.binary(BinaryOp::Mul, x, y)?;
    let result = builder.select(nothing, zero, product)?;
    Ok(builder.finish(vec![result]))
}
