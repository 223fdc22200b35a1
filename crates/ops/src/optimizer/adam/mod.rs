//! ApplyAdam and ResourceApplyAdam (Kingma and Ba, 2014, in TensorFlow's form).

use plimsoll_base::Result;
use plimsoll_graph::AttrsExt;
use plimsoll_request::expr::UnaryOp;

use super::{Steps, check, rule};
use crate::{InferCx, KernelCx, OpRules, Update};

/// The rules of Adam.
pub const RULES: &[OpRules] = &[rule("ApplyAdam", infer, update), rule("ResourceApplyAdam", infer, update)];

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    check(cx, 3, 9)
}

/// `alpha = lr * sqrt(1 - beta2_power) / (1 - beta1_power)`, `m += (g - m) * (1 - beta1)`, `v += (g*g - v) * (1 - beta2)`,
/// `var -= m * alpha / (sqrt(v) + epsilon)`; with Nesterov's `m * beta1 + g * (1 - beta1)` in the place of that `m`.
fn update(cx: &KernelCx<'_>) -> Result<Update> {
    let mut s = Steps::new(cx)?;
    let [variable, m, v, beta1_power, beta2_power, lr, beta1, beta2, epsilon, grad] = s.inputs()?;
    let one = s.one()?;
    let rest2 = s.sub(one, beta2_power)?;
    let root = s.unary(UnaryOp::Sqrt, rest2)?;
    let rest1 = s.sub(one, beta1_power)?;
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
    let direction = if cx.attrs().bool("use_nesterov")? {
        let now = s.mul(grad, weight1)?;
        let past = s.mul(beta1, m)?;
        s.add(now, past)?
    } else {
        m
    };
    let scaled = s.mul(direction, alpha)?;
    let root = s.unary(UnaryOp::Sqrt, v)?;
    let divisor = s.add(root, epsilon)?;
    let step = s.div(scaled, divisor)?;
    let variable = s.sub(variable, step)?;
    s.finish(&[(0, variable), (1, m), (2, v)])
}
