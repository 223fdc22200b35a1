//! GatherV2, Gather and ResourceGather: slices of a tensor (or a variable) picked by index along an axis.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{AttrsExt, NodeId, Output, PartialShape, Shape};
use plimsoll_request::KernelRequest;
use plimsoll_request::gather::Gather;

use crate::gradient::{Grad, from_one};
use crate::infer::{int_tensor, merge_shapes, of_rank};
use crate::registry::Gradient;
use crate::{Call, GraphBuilder, InferCx, KernelCx, Lower, OpRules};

/// The rules of GatherV2, Gather and ResourceGather.
pub const RULES: &[OpRules] = &[
    OpRules { name: "GatherV2", infer: infer_v2, lower: Lower::Kernel(prepare_v2), gradient: Gradient::Rule(gradient_v2) },
    OpRules { name: "Gather", infer: infer_v1, lower: Lower::Kernel(prepare_v1), gradient: Gradient::Rule(gradient_v1) },
    OpRules {
        name: "ResourceGather",
        infer: infer_resource,
        lower: Lower::Kernel(prepare_resource),
        gradient: Gradient::Rule(gradient_resource),
    },
];

/// Along which axis, and how many leading axes go hand in hand.
#[derive(Clone, Copy)]
struct Axes {
    axis: usize,
    batch: usize,
}

impl Axes {
    fn new(axis: i64, batch: i64, params_rank: usize, indices_rank: usize) -> Result<Axes> {
        let batch_dims = if batch < 0 { batch + indices_rank as i64 } else { batch };
        let batch = usize::try_from(batch_dims).ok().filter(|batch| *batch <= indices_rank).ok_or_else(|| {
            Error::invalid_argument(format!("Expected batch_dims in the range [-{indices_rank}, {indices_rank}], but got {batch}"))
        })?;
        let position = if axis < 0 { axis + params_rank as i64 } else { axis };
        let Ok(position) = usize::try_from(position) else {
            return Err(Error::invalid_argument(format!("Shape must be at least rank {} but is rank {params_rank}", axis.unsigned_abs())));
        };
        if position >= params_rank {
            return Err(Error::invalid_argument(format!("Shape must be at least rank {} but is rank {params_rank}", position + 1)));
        }
        if batch > position {
            return Err(Error::invalid_argument(format!("batch_dims ({batch}) must be less than or equal to axis ({position}).")));
        }
        Ok(Axes { axis: position, batch })
    }
}

fn infer_v2(cx: &mut InferCx<'_>) -> Result<()> {
    cx.with_rank(2, 0)?;
    let axis = cx.int(2);
    let params = cx.shape(0).clone();
    infer(cx, &params, axis, cx.attrs().int("batch_dims")?)
}

fn infer_v1(cx: &mut InferCx<'_>) -> Result<()> {
    let params = cx.shape(0).clone();
    infer(cx, &params, Some(0), 0)
}

fn infer_resource(cx: &mut InferCx<'_>) -> Result<()> {
    let Some((_, params)) = cx.inputs[0].handle.clone() else { return Ok(()) };
    let batch = cx.attrs().int("batch_dims")?;
    infer(cx, &params, Some(batch), batch)
}

fn infer(cx: &mut InferCx<'_>, params: &PartialShape, axis: Option<i64>, batch: i64) -> Result<()> {
    let (Some(params), Some(indices)) = (&params.0, cx.dims(1)) else { return Ok(()) };
    let Some(axis) = axis else {
        let batch = if batch < 0 { batch + indices.len() as i64 } else { batch };
        cx.set(0, of_rank((params.len() + indices.len()).checked_sub(1 + batch.max(0) as usize)));
        return Ok(());
    };
    let Axes { axis, batch } = Axes::new(axis, batch, params.len(), indices.len())?;
    let mut out = params[..axis].to_vec();
    for place in 0..batch {
        let together = merge_shapes(&PartialShape(Some(vec![params[place]])), &PartialShape(Some(vec![indices[place]])));
        out[place] = together.ok().and_then(|shape| shape.0).and_then(|dims| dims.first().copied()).ok_or_else(|| {
            let size = |dim: Option<u64>| dim.unwrap_or_default();
            Error::invalid_argument(format!(
                "params.shape[{place}]: {} should be equal to indices.shape[{place}]: {}",
                size(params[place]),
                size(indices[place])
            ))
        })?;
    }
    out.extend(&indices[batch..]);
    out.extend(&params[axis + 1..]);
    cx.set_dims(0, out);
    Ok(())
}

fn prepare_v2(cx: &KernelCx<'_>) -> Result<Call> {
    let axes = Axes::new(cx.int(2)?, cx.attrs().int("batch_dims")?, cx.dims(0).len(), cx.dims(1).len())?;
    prepare(cx, axes)
}

fn prepare_v1(cx: &KernelCx<'_>) -> Result<Call> {
    prepare(cx, Axes::new(0, 0, cx.dims(0).len(), cx.dims(1).len())?)
}

fn prepare_resource(cx: &KernelCx<'_>) -> Result<Call> {
    let batch = cx.attrs().int("batch_dims")?;
    let (variable, said) = (cx.inputs[0].data_type, cx.outputs[0].data_type);
    if variable != said {
        return Err(Error::invalid_argument(format!("Trying to access a variable of type {variable} as {said}")));
    }
    prepare(cx, Axes::new(batch, batch, cx.dims(0).len(), cx.dims(1).len())?)
}

fn prepare(cx: &KernelCx<'_>, axes: Axes) -> Result<Call> {
    let request = Gather::Take {
        element: cx.element(0)?,
        params: cx.dims(0).to_vec(),
        indices: cx.dims(1).to_vec(),
        axis: axes.axis,
        batch_dims: axes.batch,
        index_type: cx.inputs[1].data_type,
    };
    Ok(Call::new(KernelRequest::Gather(request), [0, 1]))
}

fn gradient_v2(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, gradient| {
        let axis = g.ints_of(g.input(2)).and_then(|axis| axis.first().copied());
        let axis =
            axis.ok_or_else(|| Error::unimplemented("the gradient of a gather along an axis that is known only when the graph runs"))?;
        let batch = g.attrs().int("batch_dims")?;
        Ok(vec![Some(add_up(g, gradient, axis, batch)?), None, None])
    })
}

fn gradient_v1(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, gradient| Ok(vec![Some(add_up(g, gradient, 0, 0)?), None]))
}

/// The gradient of the variable.
fn gradient_resource(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, gradient| {
        let (params, indices) = (g.handle_shape(g.input(0)).complete(), g.shape_of(g.input(1)).complete());
        let batch = g.attrs().int("batch_dims")?;
        let (Some(params), Some(indices)) = (params, indices) else {
            return Err(Error::unimplemented("not yet: the gradient of ResourceGather of shapes that are not known"));
        };
        let axes = Axes::new(batch, batch, params.rank(), indices.rank())?;
        Ok(vec![Some(add_up_known(g, gradient, &params, &indices, axes)?), None])
    })
}

/// The gradients of each slice that was picked, summed: dense, where TensorFlow has IndexedSlices.
fn add_up(g: &mut Grad<'_>, gradient: Output, axis: i64, batch: i64) -> Result<Output> {
    let (params, indices) = (g.input(0), g.input(1));
    let (params_shape, indices_shape) = (g.shape_of(params), g.shape_of(indices));
    if let (Some(params_shape), Some(indices_shape)) = (params_shape.complete(), indices_shape.complete()) {
        let axes = Axes::new(axis, batch, params_shape.rank(), indices_shape.rank())?;
        return add_up_known(g, gradient, &params_shape, &indices_shape, axes);
    }
    if axis != 0 || batch != 0 {
        return Err(Error::unimplemented("the gradient of a gather along an inner axis of a tensor whose shape is not known"));
    }
    let shape = g.shape(params)?;
    let (zero, one, end, flat) = (g.ints(&[0])?, g.ints(&[1])?, g.ints(&[-1])?, g.ints(&[-1])?);
    let tail = g.op("Slice", &[shape, one, end])?;
    let (axis, rows) = (g.int(0)?, g.op("Slice", &[shape, zero, one])?);
    let scalar = g.ints(&[])?;
    let rows = g.reshape(rows, scalar)?;
    let count = g.op("Size", &[indices])?;
    let count = g.reshape(count, one)?;
    let rows_shape = g.op("ConcatV2", &[count, tail, axis])?;
    let values = g.reshape(gradient, rows_shape)?;
    let indices = g.reshape(indices, flat)?;
    g.op("UnsortedSegmentSum", &[values, indices, rows])
}

/// With params `[batch, middle, picked, inner]` and indices `[batch, count]`.
fn add_up_known(g: &mut Grad<'_>, gradient: Output, params: &Shape, indices: &Shape, axes: Axes) -> Result<Output> {
    let product = |dims: &[u64]| dims.iter().fold(1, |product: u64, dim| product.saturating_mul(*dim)) as i64;
    let (batch, middle) = (product(&params[..axes.batch]), product(&params[axes.batch..axes.axis]));
    let (picked, inner) = (params[axes.axis] as i64, product(&params[axes.axis + 1..]));
    let count = product(&indices[axes.batch..]);
    let shape = |g: &mut Grad<'_>, x: Output, dims: &[i64]| -> Result<Output> {
        let dims = g.ints(dims)?;
        g.reshape(x, dims)
    };
    let swap = |g: &mut Grad<'_>, x: Output| -> Result<Output> {
        let order = g.ints(&[0, 2, 1, 3])?;
        g.op("Transpose", &[x, order])
    };
    let mut values = gradient;
    if middle != 1 {
        values = shape(g, values, &[batch, middle, count, inner])?;
        values = swap(g, values)?;
    }
    values = shape(g, values, &[batch * count, middle * inner])?;
    let mut places = g.input(1);
    if batch != 1 {
        places = shape(g, places, &[batch, count])?;
        let index = g.data_type(places);
        let starts: Vec<i64> = (0..batch).map(|row| row * picked).collect();
        let starts = g.constant(int_tensor(&starts, [batch as u64, 1].into(), index)?)?;
        places = g.op("AddV2", &[places, starts])?;
    }
    places = shape(g, places, &[batch * count])?;
    let rows = g.constant(int_tensor(&[batch * picked], Shape::scalar(), DataType::Int32)?)?;
    let mut sum = g.op("UnsortedSegmentSum", &[values, places, rows])?;
    if middle != 1 {
        sum = shape(g, sum, &[batch, picked, middle, inner])?;
        sum = swap(g, sum)?;
    }
    shape(g, sum, &params.iter().map(|dim| *dim as i64).collect::<Vec<_>>())
}
