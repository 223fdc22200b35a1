//! StridedSlice and StridedSliceGrad: Python's `x[a:b:c, ..., newaxis, i]`.

mod spec;

use plimsoll_base::{Error, Result};
use plimsoll_graph::{AttrValue, NodeId, Output, PartialShape};
use plimsoll_request::movement::Movement;

use crate::array::fill::stated_shape;
use crate::gradient::{Grad, from_one};
use crate::registry::Gradient;
use crate::{Call, GraphBuilder, InferCx, KernelCx, Lower, OpRules};
use spec::{Slice, Spec};

/// The rules of StridedSlice and StridedSliceGrad.
pub const RULES: &[OpRules] = &[
    OpRules { name: "StridedSlice", infer, lower: Lower::Move(prepare), gradient: Gradient::Rule(gradient) },
    OpRules { name: "StridedSliceGrad", infer: infer_grad, lower: Lower::Kernel(prepare_grad), gradient: Gradient::Rule(gradient_of_grad) },
];

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    [1, 2, 3].into_iter().try_for_each(|input| cx.with_rank(input, 1).map(drop))?;
    let (Some(dims), Some(strides)) = (cx.dims(0), cx.ints(3)) else { return Ok(()) };
    let slice = Spec::new(cx.attrs(), cx.ints(1), cx.ints(2), strides)?.resolve(dims)?;
    cx.set_dims(0, slice.shape);
    Ok(())
}

/// The slice, where begin is input `begin` and end and strides follow it.
fn slice_of(cx: &KernelCx<'_>, dims: &[u64], begin: usize) -> Result<Slice> {
    let spec = Spec::new(cx.attrs(), Some(cx.ints(begin)?), Some(cx.ints(begin + 1)?), cx.ints(begin + 2)?)?;
    spec.resolve(&dims.iter().copied().map(Some).collect::<Vec<_>>())
}

fn sizes(slice: &Slice) -> Vec<u64> {
    slice.sizes.iter().map(|size| size.unwrap_or(0)).collect()
}

/// First elements; of an empty slice they do not matter.
fn begins(slice: &Slice) -> Vec<u64> {
    let empty = slice.sizes.contains(&Some(0));
    slice.begin.iter().map(|begin| if empty { 0 } else { *begin as u64 }).collect()
}

fn prepare(cx: &KernelCx<'_>) -> Result<Call> {
    let slice = slice_of(cx, cx.dims(0), 1)?;
    let (begin, sizes) = (begins(&slice), sizes(&slice));
    let movement = Movement::StridedSlice { shape: cx.dims(0).to_vec(), begin, strides: slice.strides, sizes };
    Ok(Call::moving(cx.element(0)?, movement, [0]))
}

fn infer_grad(cx: &mut InferCx<'_>) -> Result<()> {
    let shape = stated_shape(cx, 0)?;
    if let (Some(dims), Some(strides)) = (&shape.0, cx.ints(3)) {
        let slice = Spec::new(cx.attrs(), cx.ints(1), cx.ints(2), strides)?.resolve(dims)?;
        let expected = PartialShape(Some(slice.shape));
        if crate::infer::merge_shapes(&expected, cx.shape(4)).is_err() {
            return Err(Error::invalid_argument(format!("shape of dy was {} instead of {expected}", cx.shape(4))));
        }
    }
    cx.set(0, shape);
    Ok(())
}

fn prepare_grad(cx: &KernelCx<'_>) -> Result<Call> {
    let dims = cx.outputs[0].shape.dims();
    let slice = slice_of(cx, dims, 1)?;
    let (begin, sizes) = (begins(&slice), sizes(&slice));
    let movement = Movement::StridedSliceGrad { shape: dims.to_vec(), begin, strides: slice.strides, sizes };
    Ok(Call::moving(cx.element(4)?, movement, [4]))
}

fn masks(g: &Grad<'_>) -> Vec<(&'static str, AttrValue)> {
    let names = ["begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"];
    names.into_iter().filter_map(|name| Some((name, g.attrs().get(name)?.clone()))).collect()
}

fn gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, gradient| {
        let shape = g.shape_as(g.input(0), g.data_type(g.input(1)))?;
        let inputs = [shape, g.input(1), g.input(2), g.input(3), gradient];
        let masks = masks(g);
        Ok(vec![Some(g.op_with("StridedSliceGrad", &inputs, &masks)?), None, None, None])
    })
}

fn gradient_of_grad(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, gradient| {
        let inputs = [gradient, g.input(1), g.input(2), g.input(3)];
        let masks = masks(g);
        Ok(vec![None, None, None, None, Some(g.op_with("StridedSlice", &inputs, &masks)?)])
    })
}
