//! Bitcast: the same bytes as elements of another type.

use plimsoll_base::{Error, Result};
use plimsoll_graph::Shape;

use crate::registry::Gradient;
use crate::{InferCx, Lower, OpRules};

/// The rules of Bitcast.
pub const RULES: &[OpRules] = &[OpRules { name: "Bitcast", infer, lower: Lower::Alias, gradient: Gradient::Stops }];

/// Smaller elements are a new last dimension; larger ones swallow it.
fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let (from, to) = (cx.inputs[0].data_type, cx.outputs[0].data_type);
    let (Some(size), Some(new_size)) = (from.size(), to.size()) else {
        return Err(Error::invalid_argument(format!("Cannot bitcast from {from} to {to}")));
    };
    let Some(dims) = cx.dims(0) else { return Ok(()) };
    let mut dims = dims.to_vec();
    if size > new_size && size.is_multiple_of(new_size) {
        dims.push(Some((size / new_size) as u64));
    } else if size < new_size && new_size.is_multiple_of(size) {
        let times = (new_size / size) as u64;
        if dims.pop().is_none_or(|last| last.is_some_and(|last| last != times)) {
            return Err(Error::invalid_argument(format!("Cannot bitcast from {from} to {to}: shape {}", cx.shape(0))));
        }
    } else if size != new_size {
        return Err(Error::invalid_argument(format!("Cannot bitcast from {from} to {to}")));
    }
    cx.set_dims(0, dims);
    if let (Some(value), Some(shape)) = (&cx.inputs[0].value, cx.outputs[0].shape.complete()) {
        let dense = value.dense()?;
        let value = plimsoll_graph::HostTensor::from_bytes(to, Shape::clone(&shape), dense.bytes().unwrap_or_default())?;
        cx.set_value(0, value);
    }
    Ok(())
}
