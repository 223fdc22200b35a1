//! UnsortedSegmentSum and its kin: rows combined by the segment that each names.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{AttrValue, NodeId, Output, PartialShape};
use plimsoll_request::KernelRequest;
use plimsoll_request::gather::{Gather, SegmentOp};

use crate::gradient::{Grad, from_one};
use crate::infer::merge_shapes;
use crate::registry::Gradient;
use crate::{Call, GraphBuilder, InferCx, KernelCx, Lower, OpRules};

const fn rule(name: &'static str, prepare: fn(&KernelCx<'_>) -> Result<Call>, gradient: Gradient) -> OpRules {
    OpRules { name, infer, lower: Lower::Kernel(prepare), gradient }
}

/// The rules of unsorted segments.
pub const RULES: &[OpRules] = &[
    rule("UnsortedSegmentSum", |cx| prepare(cx, SegmentOp::Sum), Gradient::Rule(gradient)),
    rule("UnsortedSegmentProd", |cx| prepare(cx, SegmentOp::Prod), Gradient::Unknown),
    rule("UnsortedSegmentMax", |cx| prepare(cx, SegmentOp::Max), Gradient::Rule(gradient_chosen)),
    rule("UnsortedSegmentMin", |cx| prepare(cx, SegmentOp::Min), Gradient::Rule(gradient_chosen)),
];

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let segments = cx.int(2).map(|segments| {
        u64::try_from(segments).map_err(|_| Error::invalid_argument(format!("Input num_segments == {segments} must not be negative.")))
    });
    let segments = segments.transpose()?;
    let (Some(data), Some(ids)) = (cx.dims(0), cx.dims(1)) else { return Ok(()) };
    let leading = data.get(..ids.len()).map(|dims| PartialShape(Some(dims.to_vec())));
    if leading.is_none_or(|leading| merge_shapes(&leading, cx.shape(1)).is_err()) {
        return Err(Error::invalid_argument(format!(
            "data.shape = {} does not start with segment_ids.shape = {}",
            cx.shape(0),
            cx.shape(1)
        )));
    }
    let mut dims = vec![segments];
    dims.extend(&data[ids.len()..]);
    cx.set_dims(0, dims);
    Ok(())
}

fn prepare(cx: &KernelCx<'_>, op: SegmentOp) -> Result<Call> {
    let (data, ids) = (&cx.inputs[0], &cx.inputs[1]);
    // Sums of complex numbers are those of their parts.
    let part = data.data_type.part().filter(|_| op == SegmentOp::Sum);
    let request = Gather::Segment {
        op,
        data_type: part.unwrap_or(data.data_type),
        index_type: ids.data_type,
        shape: data.shape.iter().copied().chain(part.map(|_| 2)).collect(),
        ids_shape: ids.shape.to_vec(),
        segments: cx.outputs[0].shape[0],
    };
    Ok(Call::new(KernelRequest::Gather(request), [0, 1]))
}

/// The rows of a tensor of segments that the ids name, and whether each of their elements is of a segment: rows with a negative
/// id were dropped.
fn rows_of(g: &mut Grad<'_>, segments: Output) -> Result<(Output, Output)> {
    let (data, ids) = (g.input(0), g.input(1));
    let zeros = g.zeros_like(ids)?;
    let clipped = g.op("Maximum", &[ids, zeros])?;
    let axis = g.int(0)?;
    let gathered = g.op("GatherV2", &[segments, clipped, axis])?;
    let zero = g.number(ids, 0.0)?;
    let mut kept = g.op("GreaterEqual", &[ids, zero])?;
    let (Some(rank), Some(ids_rank)) = (g.rank_of(data), g.rank_of(ids)) else {
        return Err(Error::unimplemented(format!("not yet: the gradient of {} of tensors whose rank is not known", g.op_name())));
    };
    for axis in ids_rank..rank {
        let axis = g.int(axis as i64)?;
        kept = g.op("ExpandDims", &[kept, axis])?;
    }
    Ok((gathered, kept))
}

/// Each row's gradient is that of its segment; zeros for rows with a negative id.
fn gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, gradient| {
        let (gathered, kept) = rows_of(g, gradient)?;
        let nothing = g.zeros_like(gathered)?;
        Ok(vec![Some(g.select(kept, gathered, nothing)?), None, None])
    })
}

/// The gradient of each segment goes to the elements that were chosen, in equal parts.
fn gradient_chosen(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, gradient| {
        let (data, ids, segments) = (g.input(0), g.input(1), g.input(2));
        let (chosen, kept) = rows_of(g, g.output(0))?;
        let equal = g.op("Equal", &[data, chosen])?;
        let equal = g.op("LogicalAnd", &[equal, kept])?;
        let data_type = AttrValue::data_type(g.data_type(data));
        let counted = g.op_with("Cast", &[equal], &[("DstT", data_type)])?;
        let count = g.op("UnsortedSegmentSum", &[counted, ids, segments])?;
        let share = g.op("RealDiv", &[gradient, count])?;
        let (share, _) = rows_of(g, share)?;
        let nothing = g.zeros_like(share)?;
        Ok(vec![Some(g.select(equal, share, nothing)?), None, None])
    })
}
