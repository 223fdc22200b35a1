//! Split and SplitV: a tensor cut along an axis.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{NodeId, Output};
use plimsoll_request::movement::Movement;

use crate::gradient::Grad;
use crate::infer::of_rank;
use crate::registry::Gradient;
use crate::{Call, GraphBuilder, InferCx, KernelCx, Lower, OpRules};

/// The rules of Split and SplitV.
pub const RULES: &[OpRules] = &[
    OpRules { name: "Split", infer: split, lower: Lower::Kernel(prepare_split), gradient: Gradient::Rule(split_gradient) },
    OpRules { name: "SplitV", infer: split_v, lower: Lower::Kernel(prepare_split_v), gradient: Gradient::Rule(split_v_gradient) },
];

fn axis_in(axis: i64, rank: usize) -> Result<usize> {
    let position = if axis < 0 { axis + rank as i64 } else { axis };
    let fits = usize::try_from(position).ok().filter(|axis| *axis < rank);
    fits.ok_or_else(|| Error::invalid_argument(format!("-input rank(-{rank}) <= split_dim < input rank ({rank}), but got {axis}")))
}

fn split(cx: &mut InferCx<'_>) -> Result<()> {
    let count = cx.outputs.len() as u64;
    let rank = cx.dims(1).map(<[_]>::len);
    let mut shape = of_rank(rank);
    if let (Some(dims), Some(axis)) = (cx.dims(1), cx.int(0)) {
        let at = axis_in(axis, dims.len())?;
        let mut dims = dims.to_vec();
        if let Some(size) = dims[at] {
            if count == 0 || !size.is_multiple_of(count) {
                return Err(Error::invalid_argument(format!(
                    "Number of ways to split should evenly divide the split dimension, but got split_dim {axis} (size = {size}) and num_split {count}"
                )));
            }
            dims[at] = Some(size / count);
        }
        shape.0 = Some(dims);
    }
    (0..cx.outputs.len()).for_each(|index| cx.set(index, shape.clone()));
    Ok(())
}

fn prepare_split(cx: &KernelCx<'_>) -> Result<Call> {
    let axis = axis_in(cx.int(0)?, cx.dims(1).len())?;
    prepare(cx, 1, axis)
}

fn prepare_split_v(cx: &KernelCx<'_>) -> Result<Call> {
    let axis = axis_in(cx.int(2)?, cx.dims(0).len())?;
    prepare(cx, 0, axis)
}

fn prepare(cx: &KernelCx<'_>, value: usize, axis: usize) -> Result<Call> {
    let sizes: Vec<u64> = cx.outputs.iter().map(|output| output.shape[axis]).collect();
    Ok(Call::moving(cx.element(value)?, Movement::Split { shape: cx.dims(value).to_vec(), axis, sizes }, [value]))
}

fn split_v(cx: &mut InferCx<'_>) -> Result<()> {
    let rank = cx.dims(0).map(<[_]>::len);
    let mut shapes = vec![of_rank(rank); cx.outputs.len()];
    if let (Some(dims), Some(axis)) = (cx.dims(0), cx.int(2)) {
        let at = axis_in(axis, dims.len())?;
        let sizes = match cx.ints(1) {
            Some(sizes) if sizes.len() == shapes.len() => resolve(&sizes, dims[at])?,
            Some(sizes) => {
                return Err(Error::invalid_argument(format!(
                    "size_splits must have as many elements as there are outputs: {} vs. {}",
                    sizes.len(),
                    shapes.len()
                )));
            }
            None => vec![None; shapes.len()],
        };
        for (shape, size) in shapes.iter_mut().zip(sizes) {
            let mut dims = dims.to_vec();
            dims[at] = size;
            shape.0 = Some(dims);
        }
    }
    shapes.into_iter().enumerate().for_each(|(index, shape)| cx.set(index, shape));
    Ok(())
}

/// The sizes; one may be −1, for the rest of `total`.
fn resolve(sizes: &[i64], total: Option<u64>) -> Result<Vec<Option<u64>>> {
    let open = sizes.iter().filter(|size| **size == -1).count();
    if open > 1 {
        return Err(Error::invalid_argument("There can only be one -1 in the input."));
    }
    if let Some(negative) = sizes.iter().find(|size| **size < -1) {
        return Err(Error::invalid_argument(format!("Split size cannot be {negative}")));
    }
    let stated = sizes.iter().filter(|size| **size >= 0).try_fold(0u64, |sum, size| sum.checked_add(*size as u64));
    let stated = stated.ok_or_else(|| Error::invalid_argument("the sizes overflow"))?;
    if total.is_some_and(|total| if open == 0 { stated != total } else { stated > total }) {
        return Err(Error::invalid_argument(format!(
            "Determined shape must either match input shape along split_dim exactly if fully specified, or be less than the size of the input along split_dim if not fully specified.  Got: {stated}"
        )));
    }
    let size = |size: &i64| if *size == -1 { total.map(|total| total - stated) } else { Some(*size as u64) };
    Ok(sizes.iter().map(size).collect())
}

fn split_gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    let mut g = Grad::new(builder, node);
    let joined = join(&mut g, gradients, 0)?;
    Ok(vec![None, joined])
}

fn split_v_gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    let mut g = Grad::new(builder, node);
    let joined = join(&mut g, gradients, 2)?;
    Ok(vec![joined, None, None])
}

/// The pieces' gradients, joined along the axis at input `axis`.
fn join(g: &mut Grad<'_>, gradients: &[Option<Output>], axis: usize) -> Result<Option<Output>> {
    if gradients.iter().all(Option::is_none) {
        return Ok(None);
    }
    let mut parts = g.zeros_for_none(gradients)?;
    if let [part] = parts[..] {
        return Ok(Some(part));
    }
    let count = plimsoll_graph::AttrValue::Int(parts.len() as i64);
    parts.push(g.input(axis));
    g.op_with("ConcatV2", &parts, &[("N", count)]).map(Some)
}
