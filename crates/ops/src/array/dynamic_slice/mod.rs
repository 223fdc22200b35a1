//! XlaDynamicSlice and XlaDynamicUpdateSlice: a block that begins where integers say, moved to where it fits.

use plimsoll_base::{Error, Result};
use plimsoll_request::KernelRequest;
use plimsoll_request::block::Outside;
use plimsoll_request::gather::Gather;

use crate::array::fill::stated_shape;
use crate::array::slice::named;
use crate::registry::Gradient;
use crate::{Call, InferCx, KernelCx, Lower, OpRules};

/// The rules of XlaDynamicSlice and XlaDynamicUpdateSlice. TensorFlow has no gradients of them.
pub const RULES: &[OpRules] = &[
    OpRules { name: "XlaDynamicSlice", infer: slice, lower: Lower::Kernel(prepare_slice), gradient: Gradient::Unknown },
    OpRules { name: "XlaDynamicUpdateSlice", infer: update, lower: Lower::Kernel(prepare_update), gradient: Gradient::Unknown },
];

/// Refuses a block that does not fit in the tensor of input 0, or that input `begins` has not a place for each axis of.
fn check(cx: &InferCx<'_>, begins: usize, sizes: Option<&[Option<u64>]>) -> Result<()> {
    cx.with_rank(begins, 1)?;
    let Some(dims) = cx.dims(0) else { return Ok(()) };
    if cx.vector_len(begins).is_some_and(|length| length != dims.len()) || sizes.is_some_and(|sizes| sizes.len() != dims.len()) {
        return Err(Error::invalid_argument(format!(
            "{} of a tensor of shape {} needs a beginning and a size for each of its dimensions",
            cx.node.op,
            cx.shape(0)
        )));
    }
    for (axis, (dim, size)) in dims.iter().zip(sizes.into_iter().flatten()).enumerate() {
        if let (Some(dim), Some(size)) = (dim, size)
            && size > dim
        {
            return Err(Error::invalid_argument(format!("a block of {size} elements does not fit in dimension {axis} of {}", cx.shape(0))));
        }
    }
    Ok(())
}

fn slice(cx: &mut InferCx<'_>) -> Result<()> {
    cx.with_rank(2, 1)?;
    let sizes = stated_shape(cx, 2)?;
    check(cx, 1, sizes.0.as_deref())?;
    cx.set(0, sizes);
    Ok(())
}

fn prepare_slice(cx: &KernelCx<'_>) -> Result<Call> {
    let block = named(cx, 1, cx.dims(0).to_vec(), cx.outputs[0].shape.to_vec(), Outside::Nearest)?;
    Ok(Call::new(KernelRequest::Gather(Gather::Block { element: cx.element(0)?, block }), [0, 1]))
}

fn update(cx: &mut InferCx<'_>) -> Result<()> {
    check(cx, 2, cx.dims(1))?;
    cx.set(0, cx.shape(0).clone());
    Ok(())
}

fn prepare_update(cx: &KernelCx<'_>) -> Result<Call> {
    let from = cx.dims(1).to_vec();
    let block = named(cx, 2, cx.dims(0).to_vec(), from.clone(), Outside::Nearest)?;
    Ok(Call::new(KernelRequest::Gather(Gather::Embed { element: cx.element(0)?, block, from, onto: true }), [0, 2, 1]))
}
