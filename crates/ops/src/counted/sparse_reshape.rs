//! SparseReshape: the elements of a sparse tensor, at their places in a tensor of another shape.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{HostTensor, Node};

use super::rule;
use crate::OpRules;
use crate::infer::InferCx;

/// The rules of this family.
pub const RULES: &[OpRules] = &[rule("SparseReshape", infer, compute)];

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let count = cx.with_rank(0, 2)?.and_then(|dims| dims[0]);
    cx.with_rank(1, 1)?;
    let rank = cx.with_rank(2, 1)?.and_then(|dims| dims[0]);
    cx.set_dims(0, vec![count, rank]);
    cx.set_dims(1, vec![rank]);
    Ok(())
}

/// The product of a shape's dimensions.
fn elements(shape: &[i64]) -> Result<i64> {
    let product = shape.iter().try_fold(1i64, |product, dim| product.checked_mul(*dim));
    product.ok_or_else(|| Error::invalid_argument("the shape has more elements than int64 counts"))
}

/// The shape, with the dimension that is left open.
fn target(asked: &[i64], all: i64) -> Result<Vec<i64>> {
    let mut open = None;
    for (axis, size) in asked.iter().enumerate() {
        match (*size, open) {
            (-1, Some(first)) => {
                return Err(Error::invalid_argument(format!("only one output dimension may be -1, not both {first} and {axis}")));
            }
            (-1, None) => open = Some(axis),
            (size, _) if size < 0 => return Err(Error::invalid_argument(format!("size {axis} must be non-negative, not {size}"))),
            _ => {}
        }
    }
    let mut shape = asked.to_vec();
    if let Some(axis) = open {
        let known: Vec<i64> = asked.iter().copied().filter(|size| *size != -1).collect();
        let known = elements(&known)?;
        if known == 0 {
            return Err(Error::invalid_argument(
                "reshape cannot infer the missing input size for an empty tensor unless all specified input sizes are non-zero",
            ));
        }
        shape[axis] = all / known;
        if shape[axis] * known != all {
            return Err(Error::invalid_argument(format!(
                "Input to reshape is a SparseTensor with {all} dense values, but the requested shape requires a multiple of {known}"
            )));
        }
    }
    let wanted = elements(&shape)?;
    if wanted != all {
        return Err(Error::invalid_argument(format!(
            "Input to reshape is a tensor with {all} dense values, but the requested shape has {wanted}"
        )));
    }
    Ok(shape)
}

fn compute(_node: &Node, inputs: &[&HostTensor]) -> Result<Vec<HostTensor>> {
    let [places, from, to] = inputs else { return Err(Error::internal("SparseReshape has three inputs")) };
    let [count, rank] = places.shape().dims()[..] else {
        return Err(Error::invalid_argument(format!("Input indices should be a matrix but received shape {}", places.shape())));
    };
    for (tensor, name) in [(from, "Input shape"), (to, "Target shape")] {
        if tensor.shape().rank() != 1 {
            return Err(Error::invalid_argument(format!("{name} should be a vector but received shape {}", tensor.shape())));
        }
    }
    let from = from.to_vec::<i64>()?;
    if from.len() as u64 != rank {
        return Err(Error::invalid_argument(format!("Input tensor rank must match input shape length: {rank} and {}", from.len())));
    }
    if from.iter().any(|size| *size < 0) {
        return Err(Error::invalid_argument("Input shape must not have negative dimensions"));
    }
    let shape = target(&to.to_vec::<i64>()?, elements(&from)?)?;
    let mut moved = Vec::with_capacity(count as usize * shape.len());
    for place in places.to_vec::<i64>()?.chunks_exact(from.len().max(1)) {
        // A place outside of the shape wraps, as in TensorFlow.
        let mut rest = place.iter().zip(&from).fold(0i64, |at, (index, size)| at.wrapping_mul(*size).wrapping_add(*index));
        let start = moved.len();
        moved.resize(start + shape.len(), 0i64);
        for (axis, size) in shape.iter().enumerate().rev() {
            moved[start + axis] = if axis == 0 { rest } else { rest.checked_rem(*size).unwrap_or(0) };
            rest = rest.checked_div(*size).unwrap_or(0);
        }
    }
    let rank = shape.len() as u64;
    Ok(vec![HostTensor::from_slice([count, rank], &moved)?, HostTensor::from_slice([rank], &shape)?])
}
