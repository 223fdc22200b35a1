//! ApplyFtrl, ApplyFtrlV2 and their resource forms (McMahan and others, 2013).

use plimsoll_base::Result;
use plimsoll_graph::AttrsExt;
use plimsoll_request::expr::{BinaryOp, Reg, UnaryOp};

use super::{Steps, check, rule};
use crate::{InferCx, KernelCx, OpRules, Update};

/// The rules of FTRL.
pub const RULES: &[OpRules] = &[
    rule("ApplyFtrl", infer, update),
    rule("ResourceApplyFtrl", infer, update),
    rule("ApplyFtrlV2", infer, update_v2),
    rule("ResourceApplyFtrlV2", infer, update_v2),
];

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    check(cx, 3, 3)
}

pub(super) fn update(cx: &KernelCx<'_>) -> Result<Update> {
    let s = Steps::new(cx)?;
    let [variable, accum, linear, grad, lr, l1, l2, power] = s.inputs()?;
    ftrl(s, cx, [variable, accum, linear, grad], [lr, l1, l2, power], grad)
}

/// The gradient that `linear` sees is `grad + 2 * l2_shrinkage * var`.
pub(super) fn update_v2(cx: &KernelCx<'_>) -> Result<Update> {
    let mut s = Steps::new(cx)?;
    let [variable, accum, linear, grad, lr, l1, l2, shrinkage, power] = s.inputs()?;
    let two = s.number(2.0)?;
    let factor = s.mul(two, shrinkage)?;
    let shrunk = s.mul(factor, variable)?;
    let shrunk = s.add(grad, shrunk)?;
    ftrl(s, cx, [variable, accum, linear, grad], [lr, l1, l2, power], shrunk)
}

/// With `q = accum^-power` before and after `accum += grad^2`: `linear += seen - (q' - q) / lr * var`, and
/// `var = (sign(linear) * l1 - linear) / (q' / lr + 2 * l2)` where `|linear| > l1`, else 0. With `multiply_linear_by_lr`, `linear` and
/// what it is compared with are `lr` times these.
fn ftrl(mut s: Steps, cx: &KernelCx<'_>, tensors: [Reg; 4], scalars: [Reg; 4], seen: Reg) -> Result<Update> {
    let ([variable, accum, linear, grad], [lr, l1, l2, power]) = (tensors, scalars);
    let by_lr = cx.attrs().bool("multiply_linear_by_lr")?;
    let square = s.unary(UnaryOp::Square, grad)?;
    let new = s.add(accum, square)?;
    let half = s.number(-0.5)?;
    let is_root = s.binary(BinaryOp::Equal, power, half)?;
    let exponent = s.unary(UnaryOp::Neg, power)?;
    let raised = |s: &mut Steps, x: Reg| {
        let (root, raised) = (s.unary(UnaryOp::Sqrt, x)?, s.binary(BinaryOp::Pow, x, exponent)?);
        s.builder.select(is_root, root, raised)
    };
    let (before, after) = (raised(&mut s, accum)?, raised(&mut s, new)?);
    let change = s.sub(after, before)?;
    let change = if by_lr { change } else { s.div(change, lr)? };
    let pull = s.mul(change, variable)?;
    let seen = if by_lr { s.mul(seen, lr)? } else { seen };
    let added = s.sub(seen, pull)?;
    let linear = s.add(linear, added)?;
    let bound = if by_lr { s.mul(l1, lr)? } else { l1 };
    let sign = s.unary(UnaryOp::Sign, linear)?;
    let x = s.mul(bound, sign)?;
    let x = s.sub(x, linear)?;
    let two = s.number(2.0)?;
    let decay = s.mul(two, l2)?;
    let y = if by_lr {
        let decay = s.mul(decay, lr)?;
        s.add(after, decay)?
    } else {
        let rate = s.div(after, lr)?;
        s.add(rate, decay)?
    };
    let quotient = s.div(x, y)?;
    let size = s.unary(UnaryOp::Abs, linear)?;
    let far = s.binary(BinaryOp::Greater, size, bound)?;
    let zero = s.number(0.0)?;
    let variable = s.builder.select(far, quotient, zero)?;
    s.finish(&[(0, variable), (1, new), (2, linear)])
}
