//! AddN: the sum of tensors of one shape.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{NodeId, Output};
use plimsoll_request::expr::{BinaryOp, Expr, ExprBuilder, Reg};

use crate::gradient::from_one;
use crate::infer::{merge_shapes, of_rank};
use crate::registry::Gradient;
use crate::{GraphBuilder, InferCx, KernelCx, Lower, OpRules};

/// The rules of AddN.
pub const RULES: &[OpRules] = &[OpRules { name: "AddN", infer, lower: Lower::Elementwise(expr), gradient: Gradient::Rule(gradient) }];

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let mut together = of_rank(None);
    for (position, fact) in cx.inputs.iter().enumerate() {
        together = merge_shapes(&together, &fact.shape).map_err(|_| {
            Error::invalid_argument(format!(
                "Inputs to operation {} of type AddN must have the same size and shape.  Input 0: {} != input {position}: {}",
                cx.node.name, cx.inputs[0].shape, fact.shape
            ))
        })?;
    }
    cx.set(0, together);
    Ok(())
}

/// In TensorFlow's order: the first group from left to right, then each further group of eight, summed by itself.
fn expr(cx: &KernelCx<'_>) -> Result<Expr> {
    let mut builder = ExprBuilder::new();
    let operands = cx.inputs.iter().map(|meta| builder.input(meta.data_type)).collect::<Result<Vec<Reg>>>()?;
    let first = match operands.len() % 8 {
        _ if operands.len() < 8 => operands.len(),
        0 => 8,
        1 => 9,
        rest => rest,
    };
    let (first, rest) = operands.split_at(first.min(operands.len()));
    let mut sum = sum_of(&mut builder, first)?;
    for group in rest.chunks(8) {
        let group = sum_of(&mut builder, group)?;
        sum = builder.binary(BinaryOp::Add, sum, group)?;
    }
    Ok(builder.finish(vec![sum]))
}

fn sum_of(builder: &mut ExprBuilder, operands: &[Reg]) -> Result<Reg> {
    let Some((first, rest)) = operands.split_first() else { return Err(Error::invalid_argument("AddN needs at least one input")) };
    rest.iter().try_fold(*first, |sum, operand| builder.binary(BinaryOp::Add, sum, *operand))
}

fn gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, gradient| Ok(vec![Some(gradient); g.input_count()]))
}
