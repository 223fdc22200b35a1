//! Sum, Mean, Prod, Max, Min, All, Any: tensors folded along axes.

mod fusion;
mod gradients;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::AttrsExt;
use plimsoll_request::KernelRequest;
use plimsoll_request::reduce::{ReduceOp, Reduction};

use crate::infer::of_rank;
use crate::registry::Gradient;
use crate::{Call, InferCx, KernelCx, Lower, OpRules};

const fn rule(name: &'static str, prepare: fn(&KernelCx<'_>) -> Result<Call>, gradient: Gradient) -> OpRules {
    OpRules { name, infer, lower: Lower::Kernel(prepare), gradient }
}

pub use fusion::FUSIONS;

/// The rules of reductions.
pub const RULES: &[OpRules] = &[
    rule("Sum", |cx| prepare(cx, ReduceOp::Sum), Gradient::Rule(gradients::sum)),
    rule("Mean", |cx| prepare(cx, ReduceOp::Mean), Gradient::Rule(gradients::mean)),
    rule("Prod", |cx| prepare(cx, ReduceOp::Prod), Gradient::Rule(gradients::prod)),
    rule("Max", |cx| prepare(cx, ReduceOp::Max), Gradient::Rule(gradients::extreme)),
    rule("Min", |cx| prepare(cx, ReduceOp::Min), Gradient::Rule(gradients::extreme)),
    rule("All", |cx| prepare(cx, ReduceOp::All), Gradient::Stops),
    rule("Any", |cx| prepare(cx, ReduceOp::Any), Gradient::Stops),
];

/// For each of `rank` axes whether it is reduced.
fn reduced(axes: &[i64], rank: usize) -> Result<Vec<bool>> {
    let mut reduced = vec![false; rank];
    for &axis in axes {
        let position = if axis < 0 { axis + rank as i64 } else { axis };
        let place = usize::try_from(position).ok().and_then(|axis| reduced.get_mut(axis));
        let place = place
            .ok_or_else(|| Error::invalid_argument(format!("Invalid reduction dimension ({axis} for input with {rank} dimension(s)")))?;
        if *place {
            return Err(Error::invalid_argument(format!("Invalid reduction arguments: Axes contains duplicate dimension: {position}")));
        }
        *place = true;
    }
    Ok(reduced)
}

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let keep = cx.attrs().bool("keep_dims")?;
    let Some(dims) = cx.dims(0) else { return Ok(()) };
    let Some(axes) = cx.ints(1) else {
        let count = cx.vector_len(1).or(if cx.dims(1).is_some_and(<[_]>::is_empty) { Some(1) } else { None });
        let left = if keep { Some(dims.len()) } else { count.and_then(|count| dims.len().checked_sub(count)) };
        cx.set(0, of_rank(left));
        return Ok(());
    };
    let reduced = reduced(&axes, dims.len())?;
    let kept = dims.iter().zip(reduced).filter_map(|(dim, reduced)| match (reduced, keep) {
        (false, _) => Some(*dim),
        (true, true) => Some(Some(1)),
        (true, false) => None,
    });
    cx.set_dims(0, kept.collect());
    Ok(())
}

fn prepare(cx: &KernelCx<'_>, op: ReduceOp) -> Result<Call> {
    let reduced = reduced(&cx.ints(1)?, cx.dims(0).len())?;
    let axes: Vec<usize> = (0..reduced.len()).filter(|axis| reduced[*axis]).collect();
    Ok(reduction(op, cx, axes))
}

/// Input 0, reduced over the axes.
pub(crate) fn reduction(op: ReduceOp, cx: &KernelCx<'_>, axes: Vec<usize>) -> Call {
    Call::new(folded(op, cx.inputs[0].data_type, cx.dims(0).to_vec(), axes), [0])
}

/// A tensor of that type and shape, reduced over the axes. Sums and means of complex numbers are those of their parts.
pub(crate) fn folded(op: ReduceOp, data_type: DataType, mut shape: Vec<u64>, axes: Vec<usize>) -> KernelRequest {
    let part = data_type.part().filter(|_| matches!(op, ReduceOp::Sum | ReduceOp::Mean));
    shape.extend(part.map(|_| 2));
    KernelRequest::Reduction(Reduction::Reduce { op, data_type: part.unwrap_or(data_type), shape, axes, divided: true })
}
