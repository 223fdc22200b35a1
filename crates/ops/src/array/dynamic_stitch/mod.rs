//! DynamicStitch: rows of several tensors put where indices say. Gradients of reductions use it on shapes, which are known when the plan
//! is made.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{HostTensor, Node, Shape};

use crate::infer::merge_shapes;
use crate::registry::Gradient;
use crate::{InferCx, Lower, OpRules};

/// The rules of DynamicStitch.
pub const RULES: &[OpRules] = &[
    OpRules { name: "DynamicStitch", infer, lower: Lower::Counted(compute), gradient: Gradient::Unknown },
    OpRules { name: "ParallelDynamicStitch", infer, lower: Lower::Counted(compute), gradient: Gradient::Unknown },
];

/// A result with more rows than this is taken for a mistake.
const MAX_ROWS: u64 = 1 << 16;

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let count = cx.inputs.len() / 2;
    let (mut rows, mut inner) = (Some(0u64), crate::infer::of_rank(None));
    for pair in 0..count {
        rows = match (rows, cx.ints(pair)) {
            (Some(rows), Some(indices)) => Some(indices.iter().try_fold(rows, |rows, index| match u64::try_from(*index) {
                Ok(index) => Ok(rows.max(index + 1)),
                Err(_) => Err(Error::invalid_argument(format!("indices[{index}] is out of range"))),
            })?),
            _ => None,
        };
        let (Some(indices), Some(data)) = (cx.dims(pair), cx.dims(count + pair)) else { continue };
        let leading = data.get(..indices.len()).map(|dims| plimsoll_graph::PartialShape(Some(dims.to_vec())));
        if leading.is_none_or(|leading| merge_shapes(&leading, cx.shape(pair)).is_err()) {
            return Err(Error::invalid_argument(format!(
                "data[{pair}].shape = {} does not start with indices[{pair}].shape = {}",
                cx.shape(count + pair),
                cx.shape(pair)
            )));
        }
        inner = merge_shapes(&inner, &plimsoll_graph::PartialShape(Some(data[indices.len()..].to_vec())))?;
    }
    if let (Some(rows), Some(inner)) = (rows, inner.complete())
        && let Some(value) = merged(cx, count, rows, &inner)?
    {
        cx.set_value(0, value);
        return Ok(());
    }
    if let Some(inner) = inner.0 {
        cx.set_dims(0, [&[rows], &inner[..]].concat());
    }
    Ok(())
}

/// The result, where everything is known.
fn merged(cx: &InferCx<'_>, count: usize, rows: u64, inner: &Shape) -> Result<Option<HostTensor>> {
    let shape: Shape = std::iter::once(rows).chain(inner.iter().copied()).collect();
    if rows > MAX_ROWS || shape.elements()? > MAX_ROWS {
        return Ok(None);
    }
    let mut result = HostTensor::zeros(cx.outputs[0].data_type, shape)?;
    let row_bytes = result.byte_len() as usize / (rows as usize).max(1);
    for pair in 0..count {
        let (Some(indices), Some(data)) = (cx.ints(pair), cx.value(count + pair)) else { return Ok(None) };
        let data = data.dense()?;
        let (Some(bytes), Some(out)) = (data.bytes(), result.bytes_mut()) else { return Ok(None) };
        for (position, index) in indices.into_iter().enumerate() {
            let (from, to) = (position * row_bytes, index as usize * row_bytes);
            out[to..to + row_bytes].copy_from_slice(&bytes[from..from + row_bytes]);
        }
    }
    Ok(Some(result))
}

/// Rows that no index names are zero.
fn compute(_node: &Node, inputs: &[&HostTensor]) -> Result<Vec<HostTensor>> {
    let (all_indices, all_data) = inputs.split_at(inputs.len() / 2);
    let mut pairs = Vec::with_capacity(all_data.len());
    let (mut rows, mut inner) = (0u64, None);
    for (indices, data) in all_indices.iter().zip(all_data) {
        let misfit = || {
            let shapes = format!("data.shape = {} does not start with indices.shape = {}", data.shape(), indices.shape());
            Error::invalid_argument(shapes)
        };
        let row = data.shape().dims().strip_prefix(indices.shape().dims()).ok_or_else(misfit)?;
        if *inner.get_or_insert_with(|| row.to_vec()) != *row {
            return Err(misfit());
        }
        let indices = indices.to_vec::<i32>()?;
        for index in &indices {
            let index = u64::try_from(*index).map_err(|_| Error::invalid_argument(format!("indices[{index}] is out of range")))?;
            rows = rows.max(index + 1);
        }
        pairs.push((indices, data.bytes().ok_or_else(|| Error::unimplemented(format!("not yet: rows of {}", data.data_type())))?));
    }
    let data_type = all_data.first().map(|data| data.data_type()).ok_or_else(|| Error::internal("DynamicStitch of nothing"))?;
    let shape: Shape = std::iter::once(rows).chain(inner.unwrap_or_default()).collect();
    let mut result = HostTensor::zeros(data_type, shape)?;
    let size = result.byte_len() as usize / (rows as usize).max(1);
    let out = result.bytes_mut().ok_or_else(|| Error::internal("a tensor of zeros is not dense"))?;
    for (indices, bytes) in pairs {
        for (index, row) in indices.into_iter().zip(bytes.chunks_exact(size.max(1))) {
            out[index as usize * size..][..size].copy_from_slice(row);
        }
    }
    Ok(vec![result])
}
