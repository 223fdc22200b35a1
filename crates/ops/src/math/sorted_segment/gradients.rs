//! Gradients of segments in ascending order, each as TensorFlow's `math_grad.py` builds it, and the operations of their own that some
//! have.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{AttrValue, NodeId, Output, PartialShape};
use plimsoll_request::KernelRequest;
use plimsoll_request::expr::BinaryOp;
use plimsoll_request::gather::{Gather, SegmentOp};

use super::{Divisor, count, divisor_of, segment};
use crate::gradient::{Grad, from_one};
use crate::recipe::Recipe;
use crate::registry::Gradient;
use crate::{GraphBuilder, InferCx, KernelCx, Lower, Meta, OpRules};

const fn rule(name: &'static str, make: fn(&KernelCx<'_>) -> Result<Recipe>) -> OpRules {
    OpRules { name, infer, lower: Lower::Recipe(make), gradient: Gradient::Unknown }
}

/// The rules of gradients by the rows that sparse segments take.
pub const RULES: &[OpRules] = &[
    rule("SparseSegmentSumGrad", |cx| recipe(cx, None)),
    rule("SparseSegmentMeanGrad", |cx| recipe(cx, Some(Divisor::Count))),
    rule("SparseSegmentSqrtNGrad", |cx| recipe(cx, Some(Divisor::Root))),
];

type Gradients = Result<Vec<Option<Output>>>;

/// The rows of a tensor of segments that the ids at input 1 name.
fn rows_of(g: &mut Grad<'_>, segments: Output) -> Result<Output> {
    let axis = g.int(0)?;
    g.op("GatherV2", &[segments, g.input(1), axis])
}

pub(super) fn sum(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Gradients {
    from_one(builder, node, gradients, |g, gradient| Ok(vec![Some(rows_of(g, gradient)?), None]))
}

pub(super) fn mean(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Gradients {
    from_one(builder, node, gradients, |g, gradient| {
        let ones = g.op("OnesLike", &[g.input(0)])?;
        let counts = g.op("SegmentSum", &[ones, g.input(1)])?;
        let share = g.op("RealDiv", &[gradient, counts])?;
        Ok(vec![Some(rows_of(g, share)?), None])
    })
}

/// The gradient of each segment goes to the elements that were chosen, in equal parts.
pub(super) fn chosen(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Gradients {
    from_one(builder, node, gradients, |g, gradient| {
        let (data, ids) = (g.input(0), g.input(1));
        let chosen = rows_of(g, g.output(0))?;
        let equal = g.op("Equal", &[data, chosen])?;
        let data_type = AttrValue::data_type(g.data_type(data));
        let counted = g.op_with("Cast", &[equal], &[("DstT", data_type)])?;
        let counts = g.op("SegmentSum", &[counted, ids])?;
        let share = g.op("RealDiv", &[gradient, counts])?;
        let share = rows_of(g, share)?;
        let nothing = g.zeros_like(data)?;
        Ok(vec![Some(g.select(equal, share, nothing)?), None])
    })
}

pub(super) fn sparse(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Gradients {
    from_one(builder, node, gradients, |g, gradient| {
        let op = format!("{}Grad", g.op_name().trim_end_matches("WithNumSegments"));
        let shape = g.shape(g.input(0))?;
        let zero = g.int(0)?;
        let rows = g.op("GatherV2", &[shape, zero, zero])?;
        let mut to_inputs = vec![None; g.input_count()];
        to_inputs[0] = Some(g.op(&op, &[gradient, g.input(1), g.input(2), rows])?);
        Ok(to_inputs)
    })
}

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    if let (Some(indices), Some(ids)) = (cx.with_rank(1, 1)?, cx.with_rank(2, 1)?)
        && indices[0].zip(ids[0]).is_some_and(|(indices, ids)| indices != ids)
    {
        return Err(Error::invalid_argument("segment_ids and indices should have same size."));
    }
    cx.with_rank(3, 0)?;
    let rows = |rows: i64| u64::try_from(rows).map_err(|_| Error::invalid_argument(format!("output_dim0 must not be negative: {rows}")));
    let rows = cx.int(3).map(rows).transpose()?;
    let Some(gradient) = cx.with_rank_at_least(0, 1)? else { return Ok(()) };
    cx.set(0, PartialShape(Some([&[rows], &gradient[1..]].concat())));
    Ok(())
}

/// The gradients of the segments, divided as the sums were, go to the rows that the indices name.
fn recipe(cx: &KernelCx<'_>, divisor: Option<Divisor>) -> Result<Recipe> {
    let mut recipe = Recipe::new();
    let (mut gradient, indices, ids) = (recipe.input(cx, 0), recipe.input(cx, 1), recipe.input(cx, 2));
    let (params, data_type) = (gradient.dims().to_vec(), gradient.data_type());
    if let Some(by) = divisor {
        let counts = count(&mut recipe, &ids, &gradient.meta)?;
        let divisor = divisor_of(&mut recipe, counts, by)?;
        gradient = recipe.binary(BinaryOp::Div, [&gradient, &divisor], params.clone())?;
    }
    let shape = [ids.dims(), &params[1..]].concat();
    let take = Gather::Take {
        element: gradient.meta.element()? as usize,
        params,
        indices: ids.dims().to_vec(),
        axis: 0,
        batch_dims: 0,
        index_type: ids.data_type(),
    };
    let rows = recipe.one(KernelRequest::Gather(take), [gradient, ids], Meta { data_type, shape: shape.into() });
    let result = segment(&mut recipe, SegmentOp::Sum, rows, indices, cx.outputs[0].shape[0]);
    Ok(recipe.finish([result]))
}
