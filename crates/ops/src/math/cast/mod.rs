//! Cast: the same numbers in another type.

use plimsoll_base::{DataType, Result};
use plimsoll_graph::{AttrValue, AttrsExt, NodeId, Output};
use plimsoll_request::expr::{Expr, ExprBuilder};

use crate::gradient::from_one;
use crate::infer::same;
use crate::registry::Gradient;
use crate::{GraphBuilder, KernelCx, Lower, OpRules};

/// The rules of Cast.
pub const RULES: &[OpRules] = &[OpRules { name: "Cast", infer: same, lower: Lower::Elementwise(expr), gradient: Gradient::Rule(gradient) }];

fn expr(cx: &KernelCx<'_>) -> Result<Expr> {
    let mut builder = ExprBuilder::new();
    let x = builder.input(cx.inputs[0].data_type)?;
    let result = builder.cast(cx.attrs().data_type("DstT")?, x)?;
    Ok(builder.finish(vec![result]))
}

/// Goes through between floats (and complex numbers) only, or between all numbers where the builder says so.
fn gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    let all = builder.has_integer_gradients();
    from_one(builder, node, gradients, |g, gradient| {
        let smooth = |data_type: DataType| data_type.is_floating() || data_type.is_complex() || (all && data_type.is_integer());
        let source = g.data_type(g.input(0));
        if !smooth(source) || !smooth(g.data_type(gradient)) {
            return Ok(vec![None]);
        }
        Ok(vec![Some(g.op_with("Cast", &[gradient], &[("DstT", AttrValue::data_type(source))])?)])
    })
}
