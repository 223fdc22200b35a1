//! BroadcastTo: a tensor repeated until it has a shape.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{NodeId, Output, PartialShape};
use plimsoll_request::movement::Movement;

use crate::array::fill::stated_shape;
use crate::gradient::from_one;
use crate::infer::broadcast_shapes;
use crate::registry::Gradient;
use crate::{Call, GraphBuilder, InferCx, KernelCx, Lower, OpRules};

/// The rules of BroadcastTo.
pub const RULES: &[OpRules] = &[OpRules { name: "BroadcastTo", infer, lower: Lower::Move(prepare), gradient: Gradient::Rule(gradient) }];

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    cx.with_rank(1, 1)?;
    let wanted = stated_shape(cx, 1)?;
    let (Some(dims), Some(out)) = (cx.dims(0), &wanted.0) else {
        cx.set(0, wanted);
        return Ok(());
    };
    if dims.len() > out.len() {
        return Err(Error::invalid_argument(format!(
            "Rank of input ({}) must be no greater than rank of output shape ({}).",
            dims.len(),
            out.len()
        )));
    }
    let clash = || Error::invalid_argument(format!("Incompatible shapes: {} vs. {wanted}", cx.shape(0)));
    let together = broadcast_shapes(cx.shape(0), &wanted).map_err(|_| clash())?;
    // An operand may grow, the wanted shape may not.
    let grown = out.iter().zip(together.0.iter().flatten()).any(|(wanted, got)| wanted.is_some() && wanted != got);
    if grown {
        return Err(clash());
    }
    let shape = PartialShape(Some(out.clone()));
    cx.set(0, shape);
    Ok(())
}

fn prepare(cx: &KernelCx<'_>) -> Result<Call> {
    Ok(Call::moving(cx.element(0)?, Movement::BroadcastTo { from: cx.dims(0).to_vec(), to: cx.outputs[0].shape.to_vec() }, [0]))
}

fn gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, gradient| {
        let (input, mut wanted) = (g.input(0), g.input(1));
        let shape = match g.shape_of(g.output(0)).complete() {
            Some(_) => {
                wanted = g.shape(g.output(0))?;
                g.shape(input)?
            }
            None => g.shape_as(input, g.data_type(wanted))?,
        };
        let axes = g.op("BroadcastGradientArgs", &[wanted, shape])?;
        let sum = g.sum(gradient, Output { index: 1, ..axes }, true)?;
        let shape = if g.data_type(shape) == DataType::Int32 { shape } else { g.shape(input)? };
        Ok(vec![Some(g.reshape(sum, shape)?), None])
    })
}
