//! StridedSlice and StridedSliceGrad: Python's `x[a:b:c, ..., newaxis, i]`.

mod spec;
mod update;

use plimsoll_base::{Error, Result};
use plimsoll_graph::{AttrValue, NodeId, Output, PartialShape};
use plimsoll_request::KernelRequest;
use plimsoll_request::block::{Begin, Block, Outside};
use plimsoll_request::gather::Gather;
use plimsoll_request::movement::Movement;

use crate::array::fill::stated_shape;
use crate::gradient::{Grad, from_one};
use crate::registry::Gradient;
use crate::{Call, GraphBuilder, InferCx, KernelCx, Lower, OpRules};
use spec::{Slice, Spec};

/// The rules of StridedSlice, StridedSliceGrad and updates of slices.
pub const RULES: &[OpRules] = &[
    OpRules { name: "StridedSlice", infer, lower: Lower::Move(prepare), gradient: Gradient::Rule(gradient) },
    OpRules { name: "StridedSliceGrad", infer: infer_grad, lower: Lower::Kernel(prepare_grad), gradient: Gradient::Rule(gradient_of_grad) },
    OpRules {
        name: "TensorStridedSliceUpdate",
        infer: update::infer,
        lower: Lower::Kernel(update::prepare),
        gradient: Gradient::Rule(update::gradient),
    },
    update::assign("ResourceStridedSliceAssign"),
    update::assign("StridedSliceAssign"),
];

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let dims = cx.dims(0);
    if let Some(slice) = infer_slice(cx, dims)? {
        cx.set_dims(0, slice.shape);
    }
    Ok(())
}

/// The slice of a tensor with these dimensions by inputs 1, 2 and 3, as far as it is known.
fn infer_slice(cx: &InferCx<'_>, dims: Option<&[Option<u64>]>) -> Result<Option<Slice>> {
    [1, 2, 3].into_iter().try_for_each(|input| cx.with_rank(input, 1).map(drop))?;
    let (Some(dims), Some(strides)) = (dims, cx.ints(3)) else { return Ok(None) };
    Spec::new(cx.attrs(), cx.some_ints(1), cx.some_ints(2), strides)?.resolve(dims).map(Some)
}

/// The block that a slice of a tensor of shape `dims` is, where the result's shape is `result`: by inputs 1, 2 and 3. It is known,
/// or input 1 holds its names. And the axis that each dimension of the result comes from; none for a new one.
fn block_of(cx: &KernelCx<'_>, dims: &[u64], result: &[u64]) -> Result<(Block, Vec<Option<usize>>)> {
    let known = |input: usize| cx.ints(input).ok().map(|ints| ints.into_iter().map(Some).collect());
    let spec = Spec::new(cx.attrs(), known(1), known(2), cx.ints(3)?)?;
    let slice = spec.resolve(&dims.iter().copied().map(Some).collect::<Vec<_>>())?;
    let late = || cx.ints(1).map(drop).err().unwrap_or_else(|| Error::internal("a slice of an unknown size"));
    // The result may say more than what is known of the ends here.
    let size = |axis: usize| match slice.places.iter().position(|place| *place == Some(axis)) {
        _ if slice.sizes[axis].is_some() => Ok(slice.sizes[axis]),
        Some(place) if result.len() == slice.places.len() => result.get(place).copied().map(Some).ok_or_else(late),
        _ => Err(late()),
    };
    let sizes = (0..dims.len()).map(|axis| size(axis).map(Option::unwrap_or_default)).collect::<Result<Vec<u64>>>()?;
    let empty = sizes.contains(&0);
    let begin = |axis: usize| match (slice.begin[axis], slice.entries[axis]) {
        // First elements of an empty slice do not matter.
        (Some(_), _) if empty => Ok(Begin::At(0)),
        (Some(begin), _) => Ok(Begin::At(begin as u64)),
        (None, Some(position)) if slice.places.contains(&Some(axis)) => match slice.strides[axis] {
            1 => Ok(Begin::Named { position, outside: Outside::Range }),
            _ => Err(late()),
        },
        (None, Some(position)) => Ok(Begin::Named { position, outside: Outside::FromEnd }),
        (None, None) => Err(late()),
    };
    let begins = (0..dims.len()).map(begin).collect::<Result<Vec<_>>>()?;
    let stride = |(begin, stride): (&Begin, &i64)| match begin {
        Begin::At(_) => *stride,
        // The stride of a single element does not matter.
        Begin::Named { .. } => 1,
    };
    let strides = begins.iter().zip(&slice.strides).map(stride).collect();
    let names = begins.iter().any(|begin| matches!(begin, Begin::Named { .. }));
    let names = if names { Some((cx.inputs[1].data_type, cx.inputs[1].shape.elements()?)) } else { None };
    Ok((Block { shape: dims.to_vec(), begins, strides, sizes, names }, slice.places))
}

/// The first elements, where all are known.
fn known_begins(block: &Block) -> Option<Vec<u64>> {
    let known = |begin: &Begin| match begin {
        Begin::At(begin) => Some(*begin),
        Begin::Named { .. } => None,
    };
    block.begins.iter().map(known).collect()
}

fn prepare(cx: &KernelCx<'_>) -> Result<Call> {
    let (element, (block, _)) = (cx.element(0)?, block_of(cx, cx.dims(0), cx.outputs[0].shape.dims())?);
    Ok(match known_begins(&block) {
        Some(begin) => {
            let Block { shape, strides, sizes, .. } = block;
            Call::moving(element, Movement::StridedSlice { shape, begin, strides, sizes }, [0])
        }
        None => Call::new(KernelRequest::Gather(Gather::Block { element, block }), [0, 1]),
    })
}

fn infer_grad(cx: &mut InferCx<'_>) -> Result<()> {
    let shape = stated_shape(cx, 0)?;
    if let Some(slice) = infer_slice(cx, shape.0.as_deref())? {
        let expected = PartialShape(Some(slice.shape));
        if crate::infer::merge_shapes(&expected, cx.shape(4)).is_err() {
            return Err(Error::invalid_argument(format!("shape of dy was {} instead of {expected}", cx.shape(4))));
        }
    }
    cx.set(0, shape);
    Ok(())
}

fn prepare_grad(cx: &KernelCx<'_>) -> Result<Call> {
    let (element, (block, _)) = (cx.element(4)?, block_of(cx, cx.outputs[0].shape.dims(), cx.dims(4))?);
    Ok(match known_begins(&block) {
        Some(begin) => {
            let Block { shape, strides, sizes, .. } = block;
            Call::moving(element, Movement::StridedSliceGrad { shape, begin, strides, sizes }, [4])
        }
        None => {
            let from = block.sizes.clone();
            Call::new(KernelRequest::Gather(Gather::Embed { element, block, from, onto: false }), [1, 4])
        }
    })
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
