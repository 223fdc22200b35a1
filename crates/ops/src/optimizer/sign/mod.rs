//! ApplyAddSign, ApplyPowerSign and their resource forms (Bello and others, 2017).

use plimsoll_base::Result;
use plimsoll_request::expr::{Reg, UnaryOp};

use super::{Steps, check, rule};
use crate::{InferCx, KernelCx, OpRules, Update};

/// The rules of updates by whether gradient and momentum agree.
pub const RULES: &[OpRules] = &[
    rule("ApplyAddSign", infer, add_sign),
    rule("ResourceApplyAddSign", infer, add_sign),
    rule("ApplyPowerSign", infer, power_sign),
    rule("ResourceApplyPowerSign", infer, power_sign),
];

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    check(cx, 2, 6)
}

/// `m * beta + grad * (1 - beta)`, and whether it has the gradient's sign: 1, 0 or -1.
fn momentum(s: &mut Steps, m: Reg, beta: Reg, grad: Reg) -> Result<(Reg, Reg)> {
    let one = s.one()?;
    let weight = s.sub(one, beta)?;
    let (kept, new) = (s.mul(m, beta)?, s.mul(grad, weight)?);
    let m = s.add(kept, new)?;
    let (sign, other) = (s.unary(UnaryOp::Sign, grad)?, s.unary(UnaryOp::Sign, m)?);
    Ok((m, s.mul(sign, other)?))
}

/// `var -= lr * (alpha + sign_decay * agree) * grad`.
fn add_sign(cx: &KernelCx<'_>) -> Result<Update> {
    let mut s = Steps::new(cx)?;
    let [variable, m, lr, alpha, sign_decay, beta, grad] = s.inputs()?;
    let (m, agree) = momentum(&mut s, m, beta, grad)?;
    let bonus = s.mul(sign_decay, agree)?;
    let scale = s.add(alpha, bonus)?;
    let scaled = s.mul(lr, scale)?;
    let step = s.mul(scaled, grad)?;
    let variable = s.sub(variable, step)?;
    s.finish(&[(0, variable), (1, m)])
}

/// `var -= lr * exp(logbase * sign_decay * agree) * grad`.
fn power_sign(cx: &KernelCx<'_>) -> Result<Update> {
    let mut s = Steps::new(cx)?;
    let [variable, m, lr, logbase, sign_decay, beta, grad] = s.inputs()?;
    let (m, agree) = momentum(&mut s, m, beta, grad)?;
    let exponent = s.mul(logbase, sign_decay)?;
    let exponent = s.mul(exponent, agree)?;
    let scale = s.unary(UnaryOp::Exp, exponent)?;
    let scaled = s.mul(lr, scale)?;
    let step = s.mul(scaled, grad)?;
    let variable = s.sub(variable, step)?;
    s.finish(&[(0, variable), (1, m)])
}
