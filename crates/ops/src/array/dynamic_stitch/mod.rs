//! DynamicStitch: rows of several tensors put where indices say. Worked out when the plan is made; that is where gradients
//! of reductions use it, on shapes.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{HostTensor, Shape};

use crate::infer::merge_shapes;
use crate::registry::Gradient;
use crate::{Call, InferCx, KernelCx, Lower, OpRules};

/// The rules of DynamicStitch.
pub const RULES: &[OpRules] = &[OpRules { name: "DynamicStitch", infer, lower: Lower::Kernel(late), gradient: Gradient::Unknown }];

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

/// There is no kernel yet.
fn late(_cx: &KernelCx<'_>) -> Result<Call> {
    Err(Error::needs_values("not yet: DynamicStitch of tensors that are known only when the graph runs"))
}
