//! Pack and Unpack: tensors of one shape stacked along a new axis, and taken apart.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{AttrValue, AttrsExt, NodeId, Output};
use plimsoll_request::movement::Movement;

use crate::gradient::{Grad, from_one};
use crate::infer::{merge_shapes, of_rank};
use crate::registry::Gradient;
use crate::{Call, GraphBuilder, InferCx, KernelCx, Lower, OpRules};

/// The rules of Pack and Unpack.
pub const RULES: &[OpRules] = &[
    OpRules { name: "Pack", infer: pack, lower: Lower::Kernel(prepare_pack), gradient: Gradient::Rule(pack_gradient) },
    OpRules { name: "Unpack", infer: unpack, lower: Lower::Kernel(prepare_unpack), gradient: Gradient::Rule(unpack_gradient) },
];

fn axis_in(axis: i64, rank: usize) -> Result<usize> {
    let position = if axis < 0 { axis + rank as i64 } else { axis };
    let fits = usize::try_from(position).ok().filter(|axis| *axis < rank);
    fits.ok_or_else(|| Error::invalid_argument(format!("axis = {axis} not in [-{rank}, {rank})")))
}

fn pack(cx: &mut InferCx<'_>) -> Result<()> {
    let mut together = of_rank(None);
    for (position, fact) in cx.inputs.iter().enumerate() {
        together = merge_shapes(&together, &fact.shape).map_err(|_| {
            Error::invalid_argument(format!(
                "Shapes of all inputs must match: values[0].shape = {} != values[{position}].shape = {}",
                cx.inputs[0].shape, fact.shape
            ))
        })?;
    }
    let Some(mut dims) = together.0 else { return Ok(()) };
    let axis = axis_in(cx.attrs().int("axis")?, dims.len() + 1)?;
    if dims.is_empty() {
        cx.set_partial((0..cx.inputs.len()).map(|input| cx.int(input)).collect());
    }
    dims.insert(axis, Some(cx.inputs.len() as u64));
    cx.set_dims(0, dims);
    Ok(())
}

fn prepare_pack(cx: &KernelCx<'_>) -> Result<Call> {
    let axis = axis_in(cx.attrs().int("axis")?, cx.dims(0).len() + 1)?;
    let inputs: Vec<usize> = (0..cx.inputs.len()).collect();
    Ok(Call::moving(cx.element(0)?, Movement::Pack { shape: cx.dims(0).to_vec(), count: inputs.len(), axis }, inputs))
}

fn pack_gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, gradient| {
        let axis = g.attrs().require("axis")?.clone();
        let count = g.input_count();
        let parts = g.op_with("Unpack", &[gradient], &[("num", AttrValue::Int(count as i64)), ("axis", axis)])?;
        Ok((0..count as u32).map(|index| Some(Output { index, ..parts })).collect())
    })
}

fn unpack(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dims) = cx.dims(0) else { return Ok(()) };
    let (axis, count) = (axis_in(cx.attrs().int("axis")?, dims.len())?, cx.outputs.len());
    if dims[axis].is_some_and(|dim| dim != count as u64) {
        return Err(Error::invalid_argument(format!("Input shape axis {axis} must equal {count}, got shape {}", cx.shape(0))));
    }
    let mut dims = dims.to_vec();
    dims.remove(axis);
    (0..count).for_each(|index| cx.set_dims(index, dims.clone()));
    Ok(())
}

fn prepare_unpack(cx: &KernelCx<'_>) -> Result<Call> {
    let axis = axis_in(cx.attrs().int("axis")?, cx.dims(0).len())?;
    Ok(Call::moving(cx.element(0)?, Movement::Unpack { shape: cx.dims(0).to_vec(), axis }, [0]))
}

fn unpack_gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    let mut g = Grad::new(builder, node);
    if gradients.iter().all(Option::is_none) {
        return Ok(vec![None]);
    }
    let axis = g.attrs().require("axis")?.clone();
    let parts = g.zeros_for_none(gradients)?;
    Ok(vec![Some(g.op_with("Pack", &parts, &[("axis", axis)])?)])
}
