//! ApplyGradientDescent and its resource form: `var -= alpha * delta`.

use plimsoll_base::Result;
use plimsoll_request::expr::{BinaryOp, ExprBuilder};

use crate::registry::Gradient;
use crate::{InferCx, KernelCx, Lower, OpRules, Update};

/// The rules of plain gradient descent.
pub const RULES: &[OpRules] = &[
    OpRules { name: "ApplyGradientDescent", infer: reference, lower: Lower::Update(update), gradient: Gradient::Stops },
    OpRules { name: "ResourceApplyGradientDescent", infer: crate::infer::unknown, lower: Lower::Update(update), gradient: Gradient::Stops },
];

fn reference(cx: &mut InferCx<'_>) -> Result<()> {
    let shape = crate::infer::merge_shapes(cx.shape(0), cx.shape(2))?;
    cx.set(0, shape);
    Ok(())
}

fn update(cx: &KernelCx<'_>) -> Result<Update> {
    let mut builder = ExprBuilder::new();
    let [variable, alpha, delta] = [0, 1, 2].map(|input: usize| builder.input(cx.inputs[input].data_type));
    let (variable, alpha, delta) = (variable?, alpha?, delta?);
    let step = builder.binary(BinaryOp::Mul, alpha, delta)?;
    let result = builder.binary(BinaryOp::Sub, variable, step)?;
    Ok(Update { expr: builder.finish(vec![result]), writes: vec![0] })
}
