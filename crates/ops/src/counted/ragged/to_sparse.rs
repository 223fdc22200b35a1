//! RaggedTensorToSparse: the values of a ragged tensor with their indices.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{HostTensor, Node, Shape};

use super::super::rule;
use super::{rows, splits};
use crate::OpRules;
use crate::infer::InferCx;

pub(super) const RULE: OpRules = rule("RaggedTensorToSparse", infer, compute);

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let depth = cx.inputs.len() - 1;
    let values = cx.shape(depth).clone();
    let rank = values.0.as_ref().map(|dims| (depth + dims.len()) as u64);
    let count = values.complete().and_then(|shape| shape.elements().ok());
    cx.set_dims(0, vec![count, rank]);
    cx.set_dims(1, vec![count]);
    cx.set_dims(2, vec![rank]);
    Ok(())
}

fn compute(_node: &Node, inputs: &[&HostTensor]) -> Result<Vec<HostTensor>> {
    let depth = inputs.len() - 1;
    let values = inputs[depth];
    if depth == 0 || values.shape().rank() == 0 {
        return Err(Error::invalid_argument("RaggedTensorToSparse of a tensor that is not ragged"));
    }
    // The index of each row of the level at hand.
    let mut indices: Vec<Vec<i64>> = Vec::new();
    let mut shape: Vec<i64> = Vec::new();
    for (level, tensor) in inputs[..depth].iter().enumerate() {
        let below = if level + 1 < depth { rows(inputs[level + 1]).saturating_sub(1) } else { rows(values) };
        let splits = splits(tensor, Some(below))?;
        if level == 0 {
            indices = (0..splits.len() as i64 - 1).map(|row| vec![row]).collect();
            shape.push(splits.len() as i64 - 1);
        }
        let mut next = Vec::with_capacity(below);
        for (row, pair) in splits.windows(2).enumerate() {
            next.extend((0..(pair[1] - pair[0]) as i64).map(|at| [&indices[row][..], &[at]].concat()));
        }
        shape.push(splits.windows(2).map(|pair| (pair[1] - pair[0]) as i64).max().unwrap_or(0));
        indices = next;
    }
    for dim in values.shape().iter().skip(1) {
        indices = indices.into_iter().flat_map(|index| (0..*dim as i64).map(move |at| [&index[..], &[at]].concat())).collect();
        shape.push(*dim as i64);
    }
    let flat: Vec<i64> = indices.iter().flatten().copied().collect();
    let count = values.elements();
    Ok(vec![
        HostTensor::from_slice([count, shape.len() as u64], &flat)?,
        values.reshaped(Shape::from([count]))?,
        HostTensor::from_slice([shape.len() as u64], &shape)?,
    ])
}
