//! ApplyMomentum, ResourceApplyMomentum and Keras' form of it.

use plimsoll_base::Result;
use plimsoll_graph::AttrsExt;

use super::{Steps, check, rule};
use crate::{InferCx, KernelCx, OpRules, Update};

/// The rules of momentum.
pub const RULES: &[OpRules] = &[
    rule("ApplyMomentum", infer, update),
    rule("ResourceApplyMomentum", infer, update),
    rule("ResourceApplyKerasMomentum", infer, update_keras),
];

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    check(cx, 2, 3)
}

/// `accum = accum * momentum + grad; var -= lr * accum`, or with Nesterov's `var -= grad * lr + accum * momentum * lr`.
pub(super) fn update(cx: &KernelCx<'_>) -> Result<Update> {
    let mut s = Steps::new(cx)?;
    let [variable, accum, lr, grad, momentum] = s.inputs()?;
    let decayed = s.mul(accum, momentum)?;
    let accum = s.add(decayed, grad)?;
    let step = if cx.attrs().bool("use_nesterov")? {
        let now = s.mul(grad, lr)?;
        let ahead = s.mul(accum, momentum)?;
        let ahead = s.mul(ahead, lr)?;
        s.add(now, ahead)?
    } else {
        s.mul(accum, lr)?
    };
    let variable = s.sub(variable, step)?;
    s.finish(&[(0, variable), (1, accum)])
}

/// `accum = accum * momentum - grad * lr; var += accum`, or with Nesterov's `var += accum * momentum - grad * lr`.
pub(super) fn update_keras(cx: &KernelCx<'_>) -> Result<Update> {
    let mut s = Steps::new(cx)?;
    let [variable, accum, lr, grad, momentum] = s.inputs()?;
    let (decayed, scaled) = (s.mul(accum, momentum)?, s.mul(grad, lr)?);
    let accum = s.sub(decayed, scaled)?;
    let step = if cx.attrs().bool("use_nesterov")? {
        let ahead = s.mul(accum, momentum)?;
        s.sub(ahead, scaled)?
    } else {
        accum
    };
    let variable = s.add(variable, step)?;
    s.finish(&[(0, variable), (1, accum)])
}
