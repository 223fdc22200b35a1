//! OneHot: rows that are one number at an index and another elsewhere.

use plimsoll_base::{Error, Result};
use plimsoll_graph::AttrsExt;
use plimsoll_request::KernelRequest;
use plimsoll_request::gather::Gather;

use crate::infer::of_rank;
use crate::registry::Gradient;
use crate::{Call, InferCx, KernelCx, Lower, OpRules};

/// The rules of OneHot.
pub const RULES: &[OpRules] = &[OpRules { name: "OneHot", infer, lower: Lower::Kernel(prepare), gradient: Gradient::Stops }];

/// Where the new axis is among `rank + 1`.
fn axis_in(axis: i64, rank: usize) -> Result<usize> {
    if axis == -1 {
        return Ok(rank);
    }
    let fits = usize::try_from(axis).ok().filter(|axis| *axis <= rank);
    fits.ok_or_else(|| Error::invalid_argument(format!("Expected axis to be -1 or between [0, {}).  But received: {axis}", rank + 1)))
}

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    [1, 2, 3].into_iter().try_for_each(|index| cx.with_rank(index, 0).map(drop))?;
    let Some(dims) = cx.dims(0) else {
        cx.set(0, of_rank(None));
        return Ok(());
    };
    let axis = axis_in(cx.attrs().int("axis")?, dims.len())?;
    let depth = cx
        .int(1)
        .map(|depth| u64::try_from(depth).map_err(|_| Error::invalid_argument(format!("depth must be non-negative, got: {depth}"))));
    let mut dims = dims.to_vec();
    dims.insert(axis, depth.transpose()?);
    cx.set_dims(0, dims);
    Ok(())
}

fn prepare(cx: &KernelCx<'_>) -> Result<Call> {
    let axis = axis_in(cx.attrs().int("axis")?, cx.dims(0).len())?;
    let depth = cx.outputs[0].shape[axis];
    let (index_type, shape) = (cx.inputs[0].data_type, cx.dims(0).to_vec());
    let request = Gather::OneHot { element: cx.element(2)?, index_type, shape, depth, axis };
    Ok(Call::new(KernelRequest::Gather(request), [0, 2, 3]))
}
