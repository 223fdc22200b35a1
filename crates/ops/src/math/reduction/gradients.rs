//! Gradients of reductions, each as TensorFlow's `math_grad.py` builds it.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{AttrValue, AttrsExt, NodeId, Output};

use super::reduced;
use crate::GraphBuilder;
use crate::gradient::{Grad, from_one};

type Gradients = Result<Vec<Option<Output>>>;

/// The gradient repeated along the reduced axes.
pub(super) fn sum(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Gradients {
    from_one(builder, node, gradients, |g, gradient| Ok(vec![Some(repeat(g, gradient)?), None]))
}

/// The gradient of the sum, divided by how many elements each result is the mean of.
pub(super) fn mean(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Gradients {
    from_one(builder, node, gradients, |g, gradient| {
        let repeated = repeat(g, gradient)?;
        let sizes = g.shape_of(g.input(0)).complete().zip(g.shape_of(g.output(0)).complete());
        let factor = match sizes {
            Some((input, output)) => g.number(repeated, (input.elements()? / output.elements()?.max(1)) as f64)?,
            None => {
                let shape = g.shape(g.input(0))?;
                let (_, axes) = axes(g, shape)?;
                let zero = g.int(0)?;
                let lengths = g.op("GatherV2", &[shape, axes, zero])?;
                let all = g.ints(&[-1])?;
                let lengths = g.reshape(lengths, all)?;
                let first = g.ints(&[0])?;
                let count = g.op("Prod", &[lengths, first])?;
                g.op_with("Cast", &[count], &[("DstT", AttrValue::data_type(g.data_type(repeated)))])?
            }
        };
        Ok(vec![Some(g.op("RealDiv", &[repeated, factor])?), None])
    })
}

/// The gradient times the product of all other elements, which is right where elements are zero too.
///
/// TensorFlow moves the reduced axes together first. Here one is taken after the other: the others along an axis, and then the
/// products of whole lines along the next.
pub(super) fn prod(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Gradients {
    from_one(builder, node, gradients, |g, gradient| {
        let axes = reduced_axes(g)?.ok_or_else(unknown_axes)?;
        let (mut result, mut left) = (repeat(g, gradient)?, g.input(0));
        for axis in (0..axes.len()).filter(|axis| axes[*axis]) {
            let axis = g.int(axis as i64)?;
            let exclusive = |reverse| [("exclusive", AttrValue::Bool(true)), ("reverse", AttrValue::Bool(reverse))];
            let before = g.op_with("Cumprod", &[left, axis], &exclusive(false))?;
            let after = g.op_with("Cumprod", &[left, axis], &exclusive(true))?;
            result = g.mul(result, before)?;
            result = g.mul(result, after)?;
            left = g.op_with("Prod", &[left, axis], &[("keep_dims", AttrValue::Bool(true))])?;
        }
        Ok(vec![Some(result), None])
    })
}

/// The gradient goes to the elements that were chosen, shared evenly among equal ones.
pub(super) fn extreme(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Gradients {
    from_one(builder, node, gradients, |g, gradient| {
        let chosen = keep_dims(g, g.output(0))?;
        let gradient = keep_dims(g, gradient)?;
        let equal = g.op("Equal", &[chosen, g.input(0)])?;
        let indicators = g.op_with("Cast", &[equal], &[("DstT", AttrValue::data_type(g.data_type(gradient)))])?;
        let count = g.sum(indicators, g.input(1), true)?;
        let share = g.op("RealDiv", &[indicators, count])?;
        Ok(vec![Some(g.mul(share, gradient)?), None])
    })
}

/// For each axis of the input whether it is reduced, where that is known.
fn reduced_axes(g: &Grad<'_>) -> Result<Option<Vec<bool>>> {
    let (Some(rank), Some(axes)) = (g.rank_of(g.input(0)), g.ints_of(g.input(1))) else { return Ok(None) };
    reduced(&axes, rank).map(Some)
}

fn unknown_axes() -> Error {
    Error::unimplemented("not yet: the gradient of a reduction over axes, or of a rank, that is known only when the graph runs")
}

/// The rank of the input, and the reduced axes counted from the front, both computed.
fn axes(g: &mut Grad<'_>, shape: Output) -> Result<(Output, Output)> {
    let rank = g.op("Size", &[shape])?;
    let axes = g.op_with("Cast", &[g.input(1)], &[("DstT", AttrValue::data_type(g.data_type(rank)))])?;
    let shifted = g.op("AddV2", &[axes, rank])?;
    Ok((rank, g.op("FloorMod", &[shifted, rank])?))
}

/// A tensor of the result's shape with dimensions of 1 where axes were reduced.
fn keep_dims(g: &mut Grad<'_>, tensor: Output) -> Result<Output> {
    if g.attrs().bool("keep_dims")? {
        return Ok(tensor);
    }
    let Some(reduced) = reduced_axes(g)? else {
        let shape = g.shape(g.input(0))?;
        let (rank, axes) = axes(g, shape)?;
        let (first, step) = (g.int(0)?, g.int(1)?);
        let (all, ones) = (g.op("Range", &[first, rank, step])?, g.op("OnesLike", &[axes])?);
        let kept = g.op("DynamicStitch", &[all, axes, shape, ones])?;
        return g.reshape(tensor, kept);
    };
    if let Some(shape) = g.shape_of(g.input(0)).complete() {
        let kept: Vec<i64> = shape.iter().zip(reduced).map(|(dim, reduced)| if reduced { 1 } else { *dim as i64 }).collect();
        let kept = g.ints(&kept)?;
        return g.reshape(tensor, kept);
    }
    if reduced.iter().all(|reduced| *reduced) {
        let ones = g.ints(&vec![1; reduced.len()])?;
        return g.reshape(tensor, ones);
    }
    let mut tensor = tensor;
    for axis in (0..reduced.len()).filter(|axis| reduced[*axis]) {
        let axis = g.int(axis as i64)?;
        tensor = g.op("ExpandDims", &[tensor, axis])?;
    }
    Ok(tensor)
}

fn repeat(g: &mut Grad<'_>, gradient: Output) -> Result<Output> {
    let input = g.input(0);
    let (shape, reduced) = (g.shape_of(input).complete(), reduced_axes(g)?);
    let kept = keep_dims(g, gradient)?;
    if let (Some(shape), Some(reduced)) = (shape, &reduced) {
        let multiples: Vec<i64> = shape.iter().zip(reduced).map(|(dim, reduced)| if *reduced { *dim as i64 } else { 1 }).collect();
        let multiples = g.ints(&multiples)?;
        return g.op("Tile", &[kept, multiples]);
    }
    let shape = g.shape(input)?;
    g.op("BroadcastTo", &[kept, shape])
}
