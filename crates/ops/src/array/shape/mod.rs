//! Shape, ShapeN, Size, Rank, BroadcastArgs and BroadcastGradientArgs: values that follow from shapes. No kernel ever computes them.

use plimsoll_base::{Error, Result};
use plimsoll_graph::Shape;

use crate::array::shape_value;
use crate::infer::{int_tensor, int_vector, scalar, shape_of_ints};
use crate::registry::Gradient;
use crate::{InferCx, Lower, OpRules};

const fn rule(name: &'static str, infer: crate::infer::InferFn) -> OpRules {
    OpRules { name, infer, lower: Lower::Nothing, gradient: Gradient::Stops }
}

/// The rules of Shape, ShapeN, Size, Rank, BroadcastArgs and BroadcastGradientArgs.
pub const RULES: &[OpRules] = &[
    rule("Shape", shapes),
    rule("ShapeN", shapes),
    rule("Size", size),
    rule("Rank", rank),
    rule("BroadcastGradientArgs", broadcast_args),
    rule("BroadcastArgs", broadcast_shape),
];

/// Output i is the shape of input i.
fn shapes(cx: &mut InferCx<'_>) -> Result<()> {
    (0..cx.outputs.len()).try_for_each(|index| shape_value(cx, index, cx.shape(index)))
}

fn size(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(shape) = cx.shape(0).complete() else { return scalar(cx) };
    let value = int_tensor(&[shape.elements()? as i64], Shape::scalar(), cx.outputs[0].data_type)?;
    cx.set_value(0, value);
    Ok(())
}

fn rank(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dims) = cx.dims(0) else { return scalar(cx) };
    let value = int_tensor(&[dims.len() as i64], Shape::scalar(), cx.outputs[0].data_type)?;
    cx.set_value(0, value);
    Ok(())
}

/// The shape that two shapes have together.
fn broadcast_shape(cx: &mut InferCx<'_>) -> Result<()> {
    cx.with_rank(0, 1)?;
    cx.with_rank(1, 1)?;
    let (Some(x), Some(y)) = (cx.ints(0), cx.ints(1)) else {
        let length = cx.vector_len(0).zip(cx.vector_len(1)).map(|(x, y)| x.max(y) as u64);
        cx.set_dims(0, vec![length]);
        return Ok(());
    };
    let rank = x.len().max(y.len());
    let dim = |dims: &[i64], axis: usize| (axis + dims.len()).checked_sub(rank).map_or(1, |axis| dims[axis]);
    let together = |axis: usize| match (dim(&x, axis), dim(&y, axis)) {
        (x, y) if x == y || y == 1 => Ok(x),
        (1, y) => Ok(y),
        _ => {
            let (x, y) = (shape_of_ints(&x)?, shape_of_ints(&y)?);
            Err(Error::invalid_argument(format!("Incompatible shapes: {x} vs. {y}")))
        }
    };
    let shape = (0..rank).map(together).collect::<Result<Vec<i64>>>()?;
    let value = int_vector(&shape, cx.outputs[0].data_type)?;
    cx.set_value(0, value);
    Ok(())
}

fn broadcast_args(cx: &mut InferCx<'_>) -> Result<()> {
    cx.with_rank(0, 1)?;
    cx.with_rank(1, 1)?;
    let (Some(x), Some(y)) = (cx.ints(0), cx.ints(1)) else {
        cx.set_dims(0, vec![None]);
        cx.set_dims(1, vec![None]);
        return Ok(());
    };
    let axes = reduced_axes(&x, &y)?;
    for (output, axes) in axes.iter().enumerate() {
        let value = int_vector(axes, cx.outputs[output].data_type)?;
        cx.set_value(output, value);
    }
    Ok(())
}

/// The axes to sum over so that a gradient of the broadcast shape becomes one of each operand's shape. Equal shapes have none;
/// otherwise an axis that is 1 in both counts for both.
fn reduced_axes(x: &[i64], y: &[i64]) -> Result<[Vec<i64>; 2]> {
    let mut axes = [Vec::new(), Vec::new()];
    if x == y {
        return Ok(axes);
    }
    let rank = x.len().max(y.len());
    let dim = |dims: &[i64], axis: usize| (axis + dims.len()).checked_sub(rank).map_or(1, |axis| dims[axis]);
    for axis in 0..rank {
        let (p, q) = (dim(x, axis), dim(y, axis));
        if p != q && p != 1 && q != 1 {
            return Err(Error::invalid_argument(format!("Incompatible shapes: {} vs. {}", shape_of_ints(x)?, shape_of_ints(y)?)));
        }
        if p == 1 {
            axes[0].push(axis as i64);
        }
        if q == 1 {
            axes[1].push(axis as i64);
        }
    }
    Ok(axes)
}
