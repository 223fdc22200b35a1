//! RaggedGather: rows of a ragged tensor, by their numbers.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{AttrsExt, HostTensor, Node, PartialShape, Shape};

use super::super::{bytes, indices, rule};
use super::{rows, splits};
use crate::OpRules;
use crate::infer::InferCx;

pub(super) const RULE: OpRules = rule("RaggedGather", infer, compute);

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let depth = cx.inputs.len().saturating_sub(2);
    let ranks = cx.outputs.len() - 1;
    (0..ranks).for_each(|output| cx.set_dims(output, vec![None]));
    if let Some(dims) = cx.dims(depth).filter(|dims| !dims.is_empty()) {
        cx.set(ranks, PartialShape(Some([&[None], &dims[1..]].concat())));
    }
    Ok(())
}

fn compute(node: &Node, inputs: &[&HostTensor]) -> Result<Vec<HostTensor>> {
    let depth = inputs.len().saturating_sub(2);
    let (values, wanted) = (inputs[depth], inputs[depth + 1]);
    let is_ragged = depth > 0 && values.shape().rank() > 0 && wanted.shape().rank() > 0;
    let given = node.attrs.int("OUTPUT_RAGGED_RANK")?;
    if !is_ragged || given != (wanted.shape().rank() + depth) as i64 - 1 {
        let message = format!("RaggedGather of {} by {} does not give {given} ragged dimensions", values.shape(), wanted.shape());
        return Err(Error::invalid_argument(message));
    }
    let mut levels = Vec::with_capacity(depth);
    for (level, tensor) in inputs[..depth].iter().enumerate() {
        let below = if level + 1 < depth { rows(inputs[level + 1]).saturating_sub(1) } else { rows(values) };
        levels.push(splits(tensor, Some(below))?);
    }
    let count = levels.first().map_or(0, |splits| splits.len() - 1);
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for index in wanted.to_i64s().unwrap_or_default() {
        let row = usize::try_from(index).ok().filter(|row| *row < count);
        let row = row.ok_or_else(|| Error::invalid_argument(format!("indices[{}] = {index} is not in [0, {count})", ranges.len())))?;
        ranges.push((row, row + 1));
    }
    let split_type = node.attrs.data_type("Tsplits")?;
    let mut results = Vec::with_capacity(depth + 1);
    // Dimensions of the indices but the last are rows of the same length.
    let mut above = 1;
    for pair in wanted.shape().dims().windows(2) {
        above *= pair[0] as usize;
        let ends: Vec<usize> = (0..=above).map(|row| row * pair[1] as usize).collect();
        results.push(indices(&ends, split_type)?);
    }
    for splits in &levels {
        let mut ends = vec![0];
        let mut next = Vec::with_capacity(ranges.len());
        for (begin, end) in &ranges {
            for row in *begin..*end {
                ends.push(ends.last().copied().unwrap_or(0) + splits[row + 1] - splits[row]);
            }
            next.push((splits[*begin], splits[*end]));
        }
        results.push(indices(&ends, split_type)?);
        ranges = next;
    }
    let (from, size) = (bytes(values)?, values.byte_len() as usize / rows(values).max(1));
    let mut gathered = Vec::new();
    for (begin, end) in &ranges {
        gathered.extend_from_slice(&from[begin * size..end * size]);
    }
    let mut dims = values.shape().to_vec();
    dims[0] = ranges.iter().map(|(begin, end)| (end - begin) as u64).sum();
    results.push(HostTensor::from_bytes(values.data_type(), Shape::from(dims), &gathered)?);
    Ok(results)
}
