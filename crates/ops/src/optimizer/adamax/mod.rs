//! ApplyAdaMax and ResourceApplyAdaMax (Kingma and Ba, 2014), and ResourceApplyAdamWithAmsgrad (Reddi, Kale and Kumar, 2018).

use plimsoll_base::Result;
use plimsoll_request::expr::{BinaryOp, UnaryOp};

use super::{Steps, check, rule};
use crate::{InferCx, KernelCx, OpRules, Update};

/// The rules of AdaMax and of Adam with the largest second moment.
pub const RULES: &[OpRules] = &[
    rule("ApplyAdaMax", infer, update),
    rule("ResourceApplyAdaMax", infer, update),
    rule("ResourceApplyAdamWithAmsgrad", infer_amsgrad, update_amsgrad),
];

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    check(cx, 3, 8)
}

/// `m += (grad - m) * (1 - beta1)`, `v = max(beta2 * v, |grad|)`, `var -= lr / (1 - beta1_power) * (m / (v + epsilon))`.
fn update(cx: &KernelCx<'_>) -> Result<Update> {
    let mut s = Steps::new(cx)?;
    let [variable, m, v, beta1_power, lr, beta1, beta2, epsilon, grad] = s.inputs()?;
    let one = s.one()?;
    let (weight, rest) = (s.sub(one, beta1)?, s.sub(one, beta1_power)?);
    let change = s.sub(grad, m)?;
    let change = s.mul(change, weight)?;
    let m = s.add(m, change)?;
    let (decayed, size) = (s.mul(beta2, v)?, s.unary(UnaryOp::Abs, grad)?);
    let v = s.binary(BinaryOp::Maximum, decayed, size)?;
    let rate = s.div(lr, rest)?;
    let divisor = s.add(v, epsilon)?;
    let direction = s.div(m, divisor)?;
    let step = s.mul(rate, direction)?;
    let variable = s.sub(variable, step)?;
    s.finish(&[(0, variable), (1, m), (2, v)])
}

fn infer_amsgrad(cx: &mut InferCx<'_>) -> Result<()> {
    check(cx, 4, 10)
}

/// As Adam, with `vhat = max(vhat, v)` in the place of `v`.
fn update_amsgrad(cx: &KernelCx<'_>) -> Result<Update> {
    let mut s = Steps::new(cx)?;
    let [variable, m, v, vhat, beta1_power, beta2_power, lr, beta1, beta2, epsilon, grad] = s.inputs()?;
    let one = s.one()?;
    let (rest1, rest2) = (s.sub(one, beta1_power)?, s.sub(one, beta2_power)?);
    let root = s.unary(UnaryOp::Sqrt, rest2)?;
    let alpha = s.mul(lr, root)?;
    let alpha = s.div(alpha, rest1)?;
    let (weight1, weight2) = (s.sub(one, beta1)?, s.sub(one, beta2)?);
    let change = s.sub(grad, m)?;
    let change = s.mul(change, weight1)?;
    let m = s.add(m, change)?;
    let square = s.unary(UnaryOp::Square, grad)?;
    let change = s.sub(square, v)?;
    let change = s.mul(change, weight2)?;
    let v = s.add(v, change)?;
    let vhat = s.binary(BinaryOp::Maximum, vhat, v)?;
    let scaled = s.mul(m, alpha)?;
    let root = s.unary(UnaryOp::Sqrt, vhat)?;
    let divisor = s.add(root, epsilon)?;
    let step = s.div(scaled, divisor)?;
    let variable = s.sub(variable, step)?;
    s.finish(&[(0, variable), (1, m), (2, v), (3, vhat)])
}
