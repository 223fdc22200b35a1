//! ApplyProximalGradientDescent, ApplyProximalAdagrad, ApplyAdagradDA (Duchi, Hazan and Singer, 2011) and their resource forms: steps
//! that end in a shrinkage towards 0.

use plimsoll_base::Result;
use plimsoll_request::expr::{BinaryOp, Reg, UnaryOp};

use super::{Steps, check, rule};
use crate::{InferCx, KernelCx, OpRules, Update};

/// The rules of proximal updates.
pub const RULES: &[OpRules] = &[
    rule("ApplyProximalGradientDescent", infer_descent, descent),
    rule("ResourceApplyProximalGradientDescent", infer_descent, descent),
    rule("ApplyProximalAdagrad", infer_adagrad, adagrad),
    rule("ResourceApplyProximalAdagrad", infer_adagrad, adagrad),
    rule("ApplyAdagradDA", infer_averaged, averaged),
    rule("ResourceApplyAdagradDA", infer_averaged, averaged),
];

/// `sign(x) * max(|x| - by, 0)`.
fn shrunk(s: &mut Steps, x: Reg, by: Reg) -> Result<Reg> {
    let (sign, size, zero) = (s.unary(UnaryOp::Sign, x)?, s.unary(UnaryOp::Abs, x)?, s.number(0.0)?);
    let rest = s.sub(size, by)?;
    let rest = s.binary(BinaryOp::Maximum, rest, zero)?;
    s.mul(sign, rest)
}

/// The variable after a step of `grad * rate`: shrunk by `l1 * rate`, and divided by `1 + l2 * rate`.
fn stepped(s: &mut Steps, variable: Reg, grad: Reg, rate: Reg, l1: Reg, l2: Reg) -> Result<Reg> {
    let step = s.mul(grad, rate)?;
    let moved = s.sub(variable, step)?;
    let by = s.mul(rate, l1)?;
    let shrunk = shrunk(s, moved, by)?;
    let one = s.one()?;
    let decay = s.mul(l2, rate)?;
    let divisor = s.add(one, decay)?;
    s.div(shrunk, divisor)
}

fn infer_descent(cx: &mut InferCx<'_>) -> Result<()> {
    check(cx, 1, 4)
}

pub(super) fn descent(cx: &KernelCx<'_>) -> Result<Update> {
    let mut s = Steps::new(cx)?;
    let [variable, alpha, l1, l2, delta] = s.inputs()?;
    let variable = stepped(&mut s, variable, delta, alpha, l1, l2)?;
    s.finish(&[(0, variable)])
}

fn infer_adagrad(cx: &mut InferCx<'_>) -> Result<()> {
    check(cx, 2, 5)
}

/// `accum += grad^2`, and a step of rate `lr * rsqrt(accum)`.
pub(super) fn adagrad(cx: &KernelCx<'_>) -> Result<Update> {
    let mut s = Steps::new(cx)?;
    let [variable, accum, lr, l1, l2, grad] = s.inputs()?;
    let square = s.unary(UnaryOp::Square, grad)?;
    let accum = s.add(accum, square)?;
    let root = s.unary(UnaryOp::Rsqrt, accum)?;
    let rate = s.mul(lr, root)?;
    let variable = stepped(&mut s, variable, grad, rate, l1, l2)?;
    s.finish(&[(0, variable), (1, accum)])
}

fn infer_averaged(cx: &mut InferCx<'_>) -> Result<()> {
    check(cx, 3, 3)
}

/// `sum += grad`, `squares += grad^2`, `var = -lr * shrunk(sum by l1 * step) / (l2 * step * lr + sqrt(squares))`.
pub(super) fn averaged(cx: &KernelCx<'_>) -> Result<Update> {
    let mut s = Steps::new(cx)?;
    let [_, sum, squares, grad, lr, l1, l2, step] = s.inputs()?;
    let data_type = s.builder.type_of(grad);
    let step = s.builder.cast(data_type, step)?;
    let sum = s.add(sum, grad)?;
    let square = s.unary(UnaryOp::Square, grad)?;
    let squares = s.add(squares, square)?;
    let by = s.mul(l1, step)?;
    let shrunk = shrunk(&mut s, sum, by)?;
    let back = s.unary(UnaryOp::Neg, lr)?;
    let scaled = s.mul(back, shrunk)?;
    let decay = s.mul(l2, step)?;
    let decay = s.mul(decay, lr)?;
    let root = s.unary(UnaryOp::Sqrt, squares)?;
    let divisor = s.add(decay, root)?;
    let variable = s.div(scaled, divisor)?;
    s.finish(&[(0, variable), (1, sum), (2, squares)])
}
