//! GatherNd and ResourceGatherNd: slices of a tensor (or a variable) that vectors of integers name.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{Attrs, AttrsExt, NodeId, Output, PartialShape};
use plimsoll_request::KernelRequest;
use plimsoll_request::gather::Gather;

use crate::gradient::from_one;
use crate::infer::of_rank;
use crate::registry::Gradient;
use crate::{Call, GraphBuilder, InferCx, KernelCx, Lower, OpRules};

/// The rules of GatherNd and ResourceGatherNd.
pub const RULES: &[OpRules] = &[
    OpRules { name: "GatherNd", infer, lower: Lower::Kernel(prepare), gradient: Gradient::Rule(gradient) },
    OpRules { name: "ResourceGatherNd", infer, lower: Lower::Kernel(prepare), gradient: Gradient::Rule(gradient_resource) },
];

/// The integers of an index: one for each of the first dimensions of `of`.
///
/// # Errors
/// INVALID_ARGUMENT for more integers than there are dimensions, in TensorFlow's words.
pub(crate) fn depth_of(indices: &[Option<u64>], of: &[Option<u64>]) -> Result<Option<usize>> {
    let Some((depth, _)) = indices.split_last() else {
        return Err(Error::invalid_argument("Shape must be at least rank 1 but is rank 0: indices must be vectors"));
    };
    let Some(depth) = *depth else { return Ok(None) };
    let fits = usize::try_from(depth).ok().filter(|depth| *depth <= of.len());
    fits.map(Some).ok_or_else(|| {
        Error::invalid_argument(format!("index innermost dimension length must be <= params rank; saw: {depth} vs. {}", of.len()))
    })
}

/// Whether an index outside takes no effect.
///
/// # Errors
/// INVALID_ARGUMENT for another word than TensorFlow has.
pub(crate) fn ignores(attrs: &Attrs) -> Result<bool> {
    match attrs.get("bad_indices_policy").map(|_| attrs.text("bad_indices_policy")).transpose()? {
        None | Some("" | "DEFAULT" | "ERROR") => Ok(false),
        Some("IGNORE") => Ok(true),
        Some(other) => Err(Error::invalid_argument(format!("Unknown bad_indices_policy: {other}"))),
    }
}

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let params = match &cx.inputs[0].handle {
        Some((_, shape)) => shape.clone(),
        None if cx.node.op == "ResourceGatherNd" => of_rank(None),
        None => cx.shape(0).clone(),
    };
    let (Some(params), Some(indices)) = (params.0, cx.dims(1)) else { return Ok(()) };
    let Some(depth) = depth_of(indices, &params)? else { return Ok(()) };
    let out = [&indices[..indices.len() - 1], &params[depth..]].concat();
    cx.set(0, PartialShape(Some(out)));
    Ok(())
}

fn prepare(cx: &KernelCx<'_>) -> Result<Call> {
    let (variable, said) = (cx.inputs[0].data_type, cx.outputs[0].data_type);
    if variable != said {
        return Err(Error::invalid_argument(format!("Trying to access a variable of type {variable} as {said}")));
    }
    let (indices, depth) = split(cx.dims(1))?;
    if indices > 0 && cx.dims(0).contains(&0) {
        return Err(Error::invalid_argument(format!(
            "Requested more than 0 entries, but params is empty.  Params shape: {}",
            cx.inputs[0].shape
        )));
    }
    let request = Gather::TakeNd {
        element: cx.element(0)?,
        params: cx.dims(0).to_vec(),
        indices,
        depth,
        index_type: cx.inputs[1].data_type,
        ignore: ignores(cx.attrs())?,
    };
    Ok(Call::new(KernelRequest::Gather(request), [0, 1]))
}

/// How many indices a tensor of a shape holds, and the integers of each.
///
/// # Errors
/// INVALID_ARGUMENT for a scalar.
pub(crate) fn split(indices: &[u64]) -> Result<(u64, usize)> {
    let (depth, count) = indices.split_last().ok_or_else(|| Error::invalid_argument("indices must be vectors"))?;
    let too_many = || Error::invalid_argument(format!("more indices than memory holds: {indices:?}"));
    let count = count.iter().try_fold(1u64, |product, dim| product.checked_mul(*dim)).ok_or_else(too_many)?;
    Ok((count, usize::try_from(*depth).map_err(|_| too_many())?))
}

/// The gradients of each slice that was taken, added up.
fn gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, gradient| {
        let shape = g.shape_as(g.input(0), g.data_type(g.input(1)))?;
        let policy = [("bad_indices_policy", g.attrs().require("bad_indices_policy")?.clone())];
        Ok(vec![Some(g.op_with("ScatterNd", &[g.input(1), gradient, shape], &policy)?), None])
    })
}

/// The gradient of the variable.
fn gradient_resource(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, gradient| {
        let Some(shape) = g.handle_shape(g.input(0)).complete() else {
            return Err(Error::unimplemented("not yet: the gradient of ResourceGatherNd of a variable whose shape is not known"));
        };
        let shape = g.constant(crate::variable::shape_tensor(&shape, g.data_type(g.input(1)))?)?;
        Ok(vec![Some(g.op("ScatterNd", &[g.input(1), gradient, shape])?), None])
    })
}
