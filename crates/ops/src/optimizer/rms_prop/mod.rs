//! ApplyRMSProp, ApplyCenteredRMSProp and their resource forms.

use plimsoll_base::Result;
use plimsoll_request::expr::{Reg, UnaryOp};

use super::{Steps, check, rule};
use crate::{InferCx, KernelCx, OpRules, Update};

/// The rules of RMSProp.
pub const RULES: &[OpRules] = &[
    rule("ApplyRMSProp", infer, update),
    rule("ResourceApplyRMSProp", infer, update),
    rule("ApplyCenteredRMSProp", infer_centered, update_centered),
    rule("ResourceApplyCenteredRMSProp", infer_centered, update_centered),
];

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    check(cx, 3, 7)
}

fn infer_centered(cx: &mut InferCx<'_>) -> Result<()> {
    check(cx, 4, 8)
}

/// Which of two equal formulas TensorFlow's kernel has: they round differently.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    Dense,
    Sparse,
}

fn form(cx: &KernelCx<'_>) -> Form {
    if cx.node.op.contains("Sparse") { Form::Sparse } else { Form::Dense }
}

/// `slot + (value - slot) * (1 - rho)`; sparse: `slot * rho + value * (1 - rho)`.
fn decay(s: &mut Steps, form: Form, slot: Reg, value: Reg, rho: Reg) -> Result<Reg> {
    let one = s.one()?;
    let weight = s.sub(one, rho)?;
    if form == Form::Sparse {
        let (kept, added) = (s.mul(slot, rho)?, s.mul(value, weight)?);
        return s.add(kept, added);
    }
    let change = s.sub(value, slot)?;
    let change = s.mul(change, weight)?;
    s.add(slot, change)
}

/// `mom * momentum + grad * lr / sqrt(divisor)`; sparse: the root's inverse times `lr`, times `grad`.
fn velocity(s: &mut Steps, form: Form, mom: [Reg; 2], [grad, lr]: [Reg; 2], divisor: Reg) -> Result<Reg> {
    let kept = s.mul(mom[0], mom[1])?;
    let step = if form == Form::Sparse {
        let root = s.unary(UnaryOp::Rsqrt, divisor)?;
        let scaled = s.mul(root, lr)?;
        s.mul(scaled, grad)?
    } else {
        let scaled = s.mul(grad, lr)?;
        let root = s.unary(UnaryOp::Sqrt, divisor)?;
        s.div(scaled, root)?
    };
    s.add(kept, step)
}

/// `ms += (grad^2 - ms) * (1 - rho); mom = mom * momentum + grad * lr / sqrt(ms + epsilon); var -= mom`.
pub(super) fn update(cx: &KernelCx<'_>) -> Result<Update> {
    let (mut s, form) = (Steps::new(cx)?, form(cx));
    let [variable, ms, mom, lr, rho, momentum, epsilon, grad] = s.inputs()?;
    let square = s.unary(UnaryOp::Square, grad)?;
    let ms = decay(&mut s, form, ms, square, rho)?;
    let divisor = s.add(ms, epsilon)?;
    let mom = velocity(&mut s, form, [mom, momentum], [grad, lr], divisor)?;
    let variable = s.sub(variable, mom)?;
    s.finish(&[(0, variable), (1, ms), (2, mom)])
}

/// As [`update`], with `ms - mg^2` in the place of `ms` under the root and `mg += (grad - mg) * (1 - rho)`.
pub(super) fn update_centered(cx: &KernelCx<'_>) -> Result<Update> {
    let (mut s, form) = (Steps::new(cx)?, form(cx));
    let [variable, mg, ms, mom, lr, rho, momentum, epsilon, grad] = s.inputs()?;
    let square = s.unary(UnaryOp::Square, grad)?;
    let ms = decay(&mut s, form, ms, square, rho)?;
    let mg = decay(&mut s, form, mg, grad, rho)?;
    let mean = s.unary(UnaryOp::Square, mg)?;
    let variance = s.sub(ms, mean)?;
    let divisor = s.add(variance, epsilon)?;
    let mom = velocity(&mut s, form, [mom, momentum], [grad, lr], divisor)?;
    let variable = s.sub(variable, mom)?;
    s.finish(&[(0, variable), (1, mg), (2, ms), (3, mom)])
}
