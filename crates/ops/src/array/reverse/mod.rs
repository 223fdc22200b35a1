//! ReverseV2: the order of elements turned around along axes.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{NodeId, Output};
use plimsoll_request::movement::Movement;

use crate::gradient::from_one;
use crate::registry::Gradient;
use crate::{Call, GraphBuilder, InferCx, KernelCx, Lower, OpRules};

/// The rules of ReverseV2.
pub const RULES: &[OpRules] = &[OpRules { name: "ReverseV2", infer, lower: Lower::Move(prepare), gradient: Gradient::Rule(gradient) }];

fn axes(ints: &[i64], rank: usize) -> Result<Vec<usize>> {
    let mut axes = Vec::with_capacity(ints.len());
    for (position, &int) in ints.iter().enumerate() {
        let axis = usize::try_from(if int < 0 { int + rank as i64 } else { int }).ok().filter(|axis| *axis < rank);
        let axis = axis
            .ok_or_else(|| Error::invalid_argument(format!("'axis'[{position}] = {int} is out of valid range [0, {}]", rank as i64 - 1)))?;
        if axes.contains(&axis) {
            return Err(Error::invalid_argument(format!("axis {axis} specified more than once.")));
        }
        axes.push(axis);
    }
    Ok(axes)
}

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    cx.with_rank(1, 1)?;
    if let (Some(dims), Some(ints)) = (cx.dims(0), cx.ints(1)) {
        axes(&ints, dims.len())?;
    }
    cx.set(0, cx.shape(0).clone());
    Ok(())
}

fn prepare(cx: &KernelCx<'_>) -> Result<Call> {
    let axes = axes(&cx.ints(1)?, cx.dims(0).len())?;
    Ok(Call::moving(cx.element(0)?, Movement::Reverse { shape: cx.dims(0).to_vec(), axes }, [0]))
}

fn gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, gradient| Ok(vec![Some(g.op("ReverseV2", &[gradient, g.input(1)])?), None]))
}
