//! NextAfter: the next float on the way to another. Floats of one sign are ordered as their bits are.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_request::expr::{BinaryOp, Expr, ExprBuilder, Reg, Scalar};

use crate::{KernelCx, Recipe};

pub(super) fn lower(cx: &KernelCx<'_>) -> Result<Recipe> {
    let data_type = cx.outputs[0].data_type;
    let bits = match data_type {
        DataType::Float => DataType::Int32,
        DataType::Double => DataType::Int64,
        _ => return Err(Error::unimplemented(format!("NextAfter of {data_type}"))),
    };
    let mut recipe = Recipe::new();
    let (x, y) = (recipe.input(cx, 0), recipe.input(cx, 1));
    let (x_bits, y_bits) = (x.seen_as(bits)?, y.seen_as(bits)?);
    let results = recipe.expression(next(data_type, bits)?, [x, y, x_bits, y_bits], cx.outputs[0].shape.clone());
    let result = results[0].seen_as(data_type)?;
    Ok(recipe.finish([result]))
}

/// The bits of the result for two numbers and their bits.
fn next(data_type: DataType, bits: DataType) -> Result<Expr> {
    let mut b = ExprBuilder::new();
    let (x, y, x_bits, y_bits) = (b.input(data_type)?, b.input(data_type)?, b.input(bits)?, b.input(bits)?);
    let number = |b: &mut ExprBuilder, int32: i32, int64: i64| {
        b.constant(if bits == DataType::Int32 { Scalar::I32(int32) } else { Scalar::I64(int64) })
    };
    let (one, no_bits) = (number(&mut b, 1, 1), number(&mut b, 0, 0));
    let sign = number(&mut b, i32::MIN, i64::MIN);
    let nan = number(&mut b, f32::NAN.to_bits() as i32, f64::NAN.to_bits() as i64);
    let zero = b.constant(if bits == DataType::Int32 { Scalar::F32(0.0) } else { Scalar::F64(0.0) });
    // Away from 0 the bits grow.
    let (up, positive) = (b.binary(BinaryOp::Less, x, y)?, b.binary(BinaryOp::Less, zero, x)?);
    let away = b.binary(BinaryOp::Equal, up, positive)?;
    let (more, less) = (b.binary(BinaryOp::Add, x_bits, one)?, b.binary(BinaryOp::Sub, x_bits, one)?);
    let step = b.select(away, more, less)?;
    // The smallest number, with the sign of the way.
    let sign = b.select(up, no_bits, sign)?;
    let smallest = b.binary(BinaryOp::BitwiseOr, sign, one)?;
    let at_zero = b.binary(BinaryOp::Equal, x, zero)?;
    let moved = b.select(at_zero, smallest, step)?;
    let there = b.binary(BinaryOp::Equal, x, y)?;
    let arrived = b.select(there, y_bits, moved)?;
    let is_number = |b: &mut ExprBuilder, of: Reg| b.binary(BinaryOp::Equal, of, of);
    let (x_is, y_is) = (is_number(&mut b, x)?, is_number(&mut b, y)?);
    let both = b.binary(BinaryOp::LogicalAnd, x_is, y_is)?;
    let result = b.select(both, arrived, nan)?;
    Ok(b.finish(vec![result]))
}
