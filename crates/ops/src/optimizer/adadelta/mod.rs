//! ApplyAdadelta and ResourceApplyAdadelta (Zeiler, 2012).

use plimsoll_base::Result;
use plimsoll_request::expr::{Reg, UnaryOp};

use super::{Steps, check, rule};
use crate::{InferCx, KernelCx, OpRules, Update};

/// The rules of Adadelta.
pub const RULES: &[OpRules] = &[rule("ApplyAdadelta", infer, update), rule("ResourceApplyAdadelta", infer, update)];

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    check(cx, 3, 6)
}

/// `accum = accum * rho + grad^2 * (1 - rho)`, `step = sqrt(accum_update + epsilon) * rsqrt(accum + epsilon) * grad`,
/// `var -= step * lr`, `accum_update = accum_update * rho + step^2 * (1 - rho)`.
pub(super) fn update(cx: &KernelCx<'_>) -> Result<Update> {
    let mut s = Steps::new(cx)?;
    let [variable, accum, accum_update, lr, rho, epsilon, grad] = s.inputs()?;
    let one = s.one()?;
    let rest = s.sub(one, rho)?;
    let mean_of_squares = |s: &mut Steps, old: Reg, new: Reg| {
        let (kept, square) = (s.mul(old, rho)?, s.unary(UnaryOp::Square, new)?);
        let added = s.mul(square, rest)?;
        s.add(kept, added)
    };
    let accum = mean_of_squares(&mut s, accum, grad)?;
    let (past, now) = (s.add(accum_update, epsilon)?, s.add(accum, epsilon)?);
    let (past, now) = (s.unary(UnaryOp::Sqrt, past)?, s.unary(UnaryOp::Rsqrt, now)?);
    let ratio = s.mul(past, now)?;
    let step = s.mul(ratio, grad)?;
    let scaled = s.mul(step, lr)?;
    let variable = s.sub(variable, scaled)?;
    let accum_update = mean_of_squares(&mut s, accum_update, step)?;
    s.finish(&[(0, variable), (1, accum), (2, accum_update)])
}
