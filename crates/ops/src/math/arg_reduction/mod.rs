//! ArgMax and ArgMin: where along an axis the largest (smallest) element is; the first of equal ones.

use plimsoll_base::{Error, Result};
use plimsoll_request::KernelRequest;
use plimsoll_request::reduce::Reduction;

use crate::infer::of_rank;
use crate::registry::Gradient;
use crate::{Call, InferCx, KernelCx, Lower, OpRules};

/// The rules of ArgMax and ArgMin.
pub const RULES: &[OpRules] = &[
    OpRules { name: "ArgMax", infer, lower: Lower::Kernel(prepare_max), gradient: Gradient::Stops },
    OpRules { name: "ArgMin", infer, lower: Lower::Kernel(prepare_min), gradient: Gradient::Stops },
];

fn axis_in(axis: i64, rank: usize) -> Result<usize> {
    let position = if axis < 0 { axis + rank as i64 } else { axis };
    let fits = usize::try_from(position).ok().filter(|axis| *axis < rank);
    fits.ok_or_else(|| Error::invalid_argument(format!("Expected dimension in the range [{}, {rank}), but got {axis}", -(rank as i64))))
}

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    cx.with_rank(1, 0)?;
    let Some(dims) = cx.dims(0) else { return Ok(()) };
    let Some(axis) = cx.int(1) else {
        cx.set(0, of_rank(dims.len().checked_sub(1)));
        return Ok(());
    };
    let axis = axis_in(axis, dims.len())?;
    if dims[axis] == Some(0) {
        return Err(Error::invalid_argument(format!("Reduction axis {axis} is empty in shape {}", cx.shape(0))));
    }
    let mut dims = dims.to_vec();
    dims.remove(axis);
    cx.set_dims(0, dims);
    Ok(())
}

fn prepare_max(cx: &KernelCx<'_>) -> Result<Call> {
    prepare(cx, false)
}

fn prepare_min(cx: &KernelCx<'_>) -> Result<Call> {
    prepare(cx, true)
}

fn prepare(cx: &KernelCx<'_>, smallest: bool) -> Result<Call> {
    let axis = axis_in(cx.int(1)?, cx.dims(0).len())?;
    let (data_type, output_type) = (cx.inputs[0].data_type, cx.outputs[0].data_type);
    let request = Reduction::Arg { smallest, data_type, output_type, shape: cx.dims(0).to_vec(), axis };
    Ok(Call::new(KernelRequest::Reduction(request), [0]))
}
