//! Bucketize: the number of the bucket between boundaries that each element lies in.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{AttrValue, Attrs, AttrsExt};
use plimsoll_request::expr::{BinaryOp, Expr, ExprBuilder, Scalar, UnaryOp};

use crate::registry::Gradient;
use crate::{InferCx, KernelCx, Lower, OpRules};

/// The rules of Bucketize.
pub const RULES: &[OpRules] = &[OpRules { name: "Bucketize", infer, lower: Lower::Elementwise(expression), gradient: Gradient::Stops }];

fn boundaries(attrs: &Attrs) -> Result<Vec<f32>> {
    match attrs.require("boundaries")? {
        AttrValue::List(list) if list.floats.is_sorted() => Ok(list.floats.to_vec()),
        AttrValue::List(_) => Err(Error::invalid_argument("Expected sorted boundaries")),
        _ => Err(Error::invalid_argument("boundaries are no list of numbers")),
    }
}

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    boundaries(cx.attrs())?;
    cx.set(0, cx.shape(0).clone());
    Ok(())
}

/// The number of boundaries that an element is not less than; doubles are compared as doubles, anything else as floats.
fn expression(cx: &KernelCx<'_>) -> Result<Expr> {
    let mut builder = ExprBuilder::new();
    let x = builder.input(cx.inputs[0].data_type)?;
    let compared = if cx.inputs[0].data_type == DataType::Double { DataType::Double } else { DataType::Float };
    let x = builder.cast(compared, x)?;
    let mut count = builder.constant(Scalar::I32(0));
    for boundary in boundaries(cx.attrs())? {
        let boundary = match compared {
            DataType::Double => Scalar::F64(f64::from(boundary)),
            _ => Scalar::F32(boundary),
        };
        let boundary = builder.constant(boundary);
        let less = builder.binary(BinaryOp::Less, x, boundary)?;
        let reached = builder.unary(UnaryOp::LogicalNot, less)?;
        let one = builder.cast(DataType::Int32, reached)?;
        count = builder.binary(BinaryOp::Add, count, one)?;
    }
    Ok(builder.finish(vec![count]))
}
