//! TopKV2: the largest along the last axis, and their places.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{AttrValue, NodeId, Output};
use plimsoll_request::KernelRequest;
use plimsoll_request::reduce::Reduction;

use crate::gradient::from_one;
use crate::infer::of_rank;
use crate::registry::Gradient;
use crate::{Call, GraphBuilder, InferCx, KernelCx, Lower, OpRules};

/// The rules of TopKV2. Results are sorted, asked for or not.
pub const RULES: &[OpRules] = &[OpRules { name: "TopKV2", infer, lower: Lower::Kernel(prepare), gradient: Gradient::Rule(gradient) }];

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    cx.with_rank(1, 0)?;
    let k = cx.int(1);
    let k = k.map(|k| u64::try_from(k).map_err(|_| Error::invalid_argument(format!("Need k >= 0, got {k}")))).transpose()?;
    let Some(dims) = cx.with_rank_at_least(0, 1)? else { return Ok(()) };
    let mut dims = dims.to_vec();
    if let Some(last) = dims.last_mut() {
        if let (Some(columns), Some(k)) = (*last, k)
            && columns < k
        {
            return Err(Error::invalid_argument(format!("input must have at least k columns. Had {columns}, needed {k}")));
        }
        *last = k;
    }
    cx.set_dims(0, dims.clone());
    cx.set_dims(1, dims);
    Ok(())
}

fn prepare(cx: &KernelCx<'_>) -> Result<Call> {
    let none = || Error::invalid_argument("input must be >= 1-D, got a scalar");
    let (classes, rows) = cx.dims(0).split_last().ok_or_else(none)?;
    let rows = rows
        .iter()
        .try_fold(1u64, |product, dim| product.checked_mul(*dim))
        .ok_or_else(|| Error::invalid_argument(format!("the shape {} has more elements than memory can hold", cx.inputs[0].shape)))?;
    let k = cx.outputs[0].shape.dims().last().copied().ok_or_else(none)?;
    let request = Reduction::TopK { data_type: cx.inputs[0].data_type, index_type: cx.outputs[1].data_type, rows, classes: *classes, k };
    Ok(Call::new(KernelRequest::Reduction(request), [0]))
}

/// The gradients of the largest, at their places among zeros.
fn gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, gradient| {
        let (input, places) = (g.input(0), g.output(1));
        let places = match g.data_type(places) {
            DataType::Int32 => places,
            _ => g.op_with("Cast", &[places], &[("DstT", AttrValue::data_type(DataType::Int32))])?,
        };
        if g.shape_of(input).0 == of_rank(None).0 {
            return Err(Error::unimplemented("not yet: the gradient of TopKV2 of a tensor whose rank is not known"));
        }
        let shape = g.shape(input)?;
        let (minus_one, zero, one) = (g.ints(&[-1])?, g.int(0)?, g.int(1)?);
        let last = g.rank_of(input).unwrap_or(1) as i64 - 1;
        let last = g.int(last)?;
        let (columns, size) = (g.op("GatherV2", &[shape, last, zero])?, g.op("Size", &[input])?);
        let starts = g.op("Range", &[zero, size, columns])?;
        // Where there are rows, each has that many places.
        let found = g.shape(places)?;
        let k = g.op("GatherV2", &[found, last, zero])?;
        let rows = g.op("Size", &[starts])?;
        let two = g.op("Pack", &[rows, k])?;
        let places = g.reshape(places, two)?;
        let starts = g.op("ExpandDims", &[starts, one])?;
        let places = g.op("AddV2", &[places, starts])?;
        let places = g.reshape(places, minus_one)?;
        let flat = g.reshape(gradient, minus_one)?;
        let sum = g.op("UnsortedSegmentSum", &[flat, places, size])?;
        Ok(vec![Some(g.reshape(sum, shape)?), None])
    })
}
