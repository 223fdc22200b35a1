//! TensorStridedSliceUpdate, ResourceStridedSliceAssign and StridedSliceAssign: a slice of a tensor or variable replaced.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{NodeId, Output, PartialShape};
use plimsoll_request::KernelRequest;
use plimsoll_request::gather::Gather;

use super::{block_of, infer_slice, masks};
use crate::gradient::from_one;
use crate::registry::Gradient;
use crate::{Call, GraphBuilder, InferCx, KernelCx, Lower, OpRules};

pub(super) const fn assign(name: &'static str) -> OpRules {
    OpRules { name, infer, lower: Lower::UpdateInPlace(prepare), gradient: Gradient::Stops }
}

/// The value broadcasts to the slice.
pub(super) fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let shape = cx.inputs[0].handle.as_ref().map_or_else(|| cx.shape(0).clone(), |(_, shape)| shape.clone());
    let is_handle = cx.inputs[0].data_type == plimsoll_base::DataType::Resource;
    let dims = if is_handle && cx.inputs[0].handle.is_none() { None } else { shape.0.as_deref() };
    if let Some(slice) = infer_slice(cx, dims)? {
        let slice = PartialShape(Some(slice.shape));
        if !broadcasts(cx.shape(4), &slice) {
            return Err(Error::invalid_argument(format!(
                "a value of shape {} does not broadcast to a slice of shape {slice}",
                cx.shape(4)
            )));
        }
    }
    if !cx.outputs.is_empty() {
        cx.set(0, shape);
    }
    Ok(())
}

/// Whether a value broadcasts to a shape, as far as it is known.
fn broadcasts(value: &PartialShape, to: &PartialShape) -> bool {
    let (Some(value), Some(to)) = (&value.0, &to.0) else { return true };
    let fits = |(value, to): (&Option<u64>, &Option<u64>)| value.is_none_or(|value| value == 1 || to.is_none_or(|to| to == value));
    value.len() <= to.len() && value.iter().rev().zip(to.iter().rev()).all(fits)
}

/// The value replaces the slice of input 0.
pub(super) fn prepare(cx: &KernelCx<'_>) -> Result<Call> {
    let (data_type, value) = (cx.inputs[0].data_type, cx.inputs[4].data_type);
    if data_type != value {
        return Err(Error::invalid_argument(format!("a slice of {data_type} cannot become {value}")));
    }
    let (element, dims) = (cx.element(4)?, cx.dims(0));
    let (block, places) = block_of(cx, dims, cx.dims(4))?;
    // The value's dimensions by axis. Missing ones on the left, and axes of single elements, are 1.
    let value = cx.dims(4);
    let dim = |axis: usize| {
        let place = places.iter().position(|place| *place == Some(axis))?;
        value.get((place + value.len()).checked_sub(places.len())?).copied()
    };
    let from = (0..dims.len()).map(|axis| dim(axis).unwrap_or(1)).collect();
    let inputs = if block.names.is_some() { vec![0, 1, 4] } else { vec![0, 4] };
    Ok(Call::new(KernelRequest::Gather(Gather::Embed { element, block, from, onto: true }), inputs))
}

/// The gradient but for the slice, and its slice.
pub(super) fn gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, gradient| {
        let spec = [g.input(1), g.input(2), g.input(3)];
        let (masks, zeros) = (masks(g), g.zeros_like(g.input(4))?);
        let inputs = [gradient, spec[0], spec[1], spec[2], zeros];
        let rest = g.op_with("TensorStridedSliceUpdate", &inputs, &masks)?;
        let part = g.op_with("StridedSlice", &[gradient, spec[0], spec[1], spec[2]], &masks)?;
        Ok(vec![Some(rest), None, None, None, Some(part)])
    })
}
