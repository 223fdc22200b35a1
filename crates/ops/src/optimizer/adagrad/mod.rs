//! ApplyAdagrad, ApplyAdagradV2 and their resource forms (Duchi, Hazan and Singer, 2011).

use plimsoll_base::Result;
use plimsoll_graph::AttrsExt;
use plimsoll_request::expr::{Reg, UnaryOp};

use super::{Steps, check, rule};
use crate::{InferCx, KernelCx, OpRules, Update};

/// The rules of Adagrad.
pub const RULES: &[OpRules] = &[
    rule("ApplyAdagrad", infer, update),
    rule("ResourceApplyAdagrad", infer, update),
    rule("ApplyAdagradV2", infer_v2, update_v2),
    rule("ResourceApplyAdagradV2", infer_v2, update_v2),
];

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    check(cx, 2, 3)
}

fn infer_v2(cx: &mut InferCx<'_>) -> Result<()> {
    check(cx, 2, 4)
}

/// `accum + grad^2`, or `accum` where slots are not updated.
fn accumulate(s: &mut Steps, cx: &KernelCx<'_>, accum: Reg, grad: Reg) -> Result<Reg> {
    if !cx.attrs().bool("update_slots")? {
        return Ok(accum);
    }
    let square = s.unary(UnaryOp::Square, grad)?;
    s.add(accum, square)
}

/// `accum += grad^2; var -= grad * lr * rsqrt(accum)`.
pub(super) fn update(cx: &KernelCx<'_>) -> Result<Update> {
    let mut s = Steps::new(cx)?;
    let [variable, accum, lr, grad] = s.inputs()?;
    let accum = accumulate(&mut s, cx, accum, grad)?;
    let scaled = s.mul(grad, lr)?;
    let root = s.unary(UnaryOp::Rsqrt, accum)?;
    let step = s.mul(scaled, root)?;
    let variable = s.sub(variable, step)?;
    s.finish(&[(0, variable), (1, accum)])
}

/// `accum += grad^2; var -= grad * lr / (sqrt(accum) + epsilon)`.
pub(super) fn update_v2(cx: &KernelCx<'_>) -> Result<Update> {
    let mut s = Steps::new(cx)?;
    let [variable, accum, lr, epsilon, grad] = s.inputs()?;
    let accum = accumulate(&mut s, cx, accum, grad)?;
    let scaled = s.mul(grad, lr)?;
    let root = s.unary(UnaryOp::Sqrt, accum)?;
    let divisor = s.add(root, epsilon)?;
    let step = s.div(scaled, divisor)?;
    let variable = s.sub(variable, step)?;
    s.finish(&[(0, variable), (1, accum)])
}
