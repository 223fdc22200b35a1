//! Fusions of SpaceToBatchND and BatchToSpaceND: a convolution between them is one with dilation.
//!
//! Position `q` of the whole is position `q / block` of the block's remainder. So a tap that is one further there is `block` further
//! here, and borders that are padded and cropped are padding of the convolution.

use plimsoll_graph::Shape;
use plimsoll_request::KernelRequest;
use plimsoll_request::anchor::Anchor;
use plimsoll_request::conv::ConvSpec;
use plimsoll_request::movement::Movement;
use plimsoll_request::window::{Layout, WindowAxis};

use crate::fusion::{Becomes, Computes, Fusion, Patch, Stage, View, WorkId, Works};

/// - A convolution of blocks whose results become whole again is one with dilation, and so is its gradient by the input.
/// - The gradient by the filter of two tensors of blocks is that of a convolution with dilation.
pub const FUSIONS: &[Fusion] = &[
    Fusion { name: "convolution_of_blocks", stage: Stage::Lowered, find: whole_again },
    Fusion { name: "filter_gradient_of_blocks", stage: Stage::Lowered, find: by_filter },
];

/// An axis of a tensor of images that is, or was, divided into blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Side {
    /// Positions in a block's remainder, and remainders.
    count: u64,
    block: u64,
    /// Positions of the whole, of which so many before were padded or cropped.
    whole: u64,
    before: u64,
}

/// A tensor of images before it was divided into blocks, or after it became whole again.
struct Whole {
    view: View,
    batch: u64,
    /// Of all dimensions between images and channels.
    sides: Vec<Side>,
}

fn movement(works: &dyn Works, work: WorkId) -> Option<&Movement> {
    match works.computes(work) {
        Computes::Request(KernelRequest::Movement { movement, .. }) => Some(movement),
        _ => None,
    }
}

/// What a value was before SpaceToBatchND, on the device of `reader`.
fn before_blocks(works: &dyn Works, value: &View, reader: WorkId) -> Option<Whole> {
    let work = works.maker(value.value)?;
    let Movement::Transpose { shape, perm } = movement(works, work)? else { return None };
    let axes = perm.iter().position(|axis| *axis == 0)?;
    let expected = (0..axes).map(|axis| 2 + 2 * axis).chain([0]).chain((0..axes).map(|axis| 1 + 2 * axis));
    let is_blocks = axes > 0 && perm.iter().copied().eq(expected.chain(2 * axes + 1..shape.len()));
    if works.op(work) != "SpaceToBatchND" || !is_blocks || shape.len() < 2 * axes + 2 || !works.absorbs(reader, work) {
        return None;
    }
    let mut sides: Vec<Side> = shape[1..=2 * axes]
        .chunks_exact(2)
        .map(|pair| Side { count: pair[0], block: pair[1], whole: pair[0] * pair[1], before: 0 })
        .collect();
    let rest = &shape[2 * axes + 1..shape.len() - 1];
    sides.extend(rest.iter().map(|size| Side { count: *size, block: 1, whole: *size, before: 0 }));
    let mut view = works.inputs(work).first()?.clone();
    if let Some(pad) = works.maker(view.value)
        && let Some(Movement::Pad { shape: inner, paddings, value: Some(zero) }) = movement(works, pad)
        && works.op(pad) == "SpaceToBatchND"
        && zero.iter().all(|byte| *byte == 0)
        && inner.len() == sides.len() + 2
        && works.absorbs(reader, pad)
    {
        for (side, (size, (before, _))) in sides.iter_mut().zip(inner[1..].iter().zip(&paddings[1..])) {
            (side.whole, side.before) = (*size, *before);
        }
        view = works.inputs(pad).first()?.clone();
    }
    Some(Whole { view, batch: shape[0], sides })
}

/// What a value becomes by BatchToSpaceND, which alone reads it; and the works that do that.
fn after_blocks(works: &dyn Works, value: &View) -> Option<(Whole, WorkId, Option<WorkId>)> {
    let [work] = *works.readers(value.value) else { return None };
    let Movement::Transpose { shape, perm } = movement(works, work)? else { return None };
    let axes = *perm.first()?;
    let expected = [axes].into_iter().chain((0..axes).flat_map(|axis| [axes + 1 + axis, axis])).chain(2 * axes + 1..shape.len());
    let is_blocks = axes > 0 && shape.len() >= 2 * axes + 2 && perm.iter().copied().eq(expected);
    if works.op(work) != "BatchToSpaceND" || !is_blocks || works.is_kept(value.value) {
        return None;
    }
    let side = |axis: usize| {
        let (block, count) = (shape[axis], shape[axes + 1 + axis]);
        Side { count, block, whole: count * block, before: 0 }
    };
    let mut sides: Vec<Side> = (0..axes).map(side).collect();
    let rest = &shape[2 * axes + 1..shape.len() - 1];
    sides.extend(rest.iter().map(|size| Side { count: *size, block: 1, whole: *size, before: 0 }));
    let &[result] = works.outputs(work) else { return None };
    let mut view = View { value: result, data_type: value.data_type, shape: Shape::scalar() };
    let mut cropped = None;
    if let [slice] = *works.readers(result)
        && let Some(Movement::Slice { shape: whole, begin, sizes }) = movement(works, slice)
        && works.op(slice) == "BatchToSpaceND"
        && whole.len() == sides.len() + 2
        && !works.is_kept(result)
        && works.absorbs(slice, work)
    {
        for (side, (begin, size)) in sides.iter_mut().zip(begin[1..].iter().zip(&sizes[1..])) {
            (side.whole, side.before) = (*size, *begin);
        }
        view.value = *works.outputs(slice).first()?;
        cropped = Some(slice);
    }
    Some((Whole { view, batch: shape[axes], sides }, work, cropped))
}

/// The convolution of `from` that makes `to`, where `spec` is that of their blocks.
fn dilated(spec: &ConvSpec, from: &Whole, to: &Whole) -> Option<ConvSpec> {
    let missing = spec.axes.len().checked_sub(from.sides.len())?;
    let blocks = from.sides.iter().map(|side| side.block).product::<u64>();
    let fits = from.sides.len() == to.sides.len()
        && from.batch == to.batch
        && from.batch.checked_mul(blocks) == Some(spec.batch)
        && spec.layout == Layout::ChannelsLast
        && spec.axes[..missing].iter().all(|axis| (axis.size, axis.positions) == (1, 1));
    if !fits {
        return None;
    }
    let mut axes = spec.axes;
    for (axis, (from, to)) in axes[missing..].iter_mut().zip(from.sides.iter().zip(&to.sides)) {
        let is_of_blocks = (axis.size, axis.positions, axis.stride, to.block) == (from.count, to.count, 1, from.block);
        if !is_of_blocks {
            return None;
        }
        *axis = WindowAxis {
            size: from.whole,
            positions: to.whole,
            taps: axis.taps,
            stride: 1,
            dilation: axis.dilation.checked_mul(from.block)?,
            pad: axis.pad.checked_mul(from.block)?.checked_add(from.before)?.checked_sub(to.before)?,
        };
    }
    Some(ConvSpec { batch: from.batch, axes, ..*spec })
}

/// A whole tensor as a convolution's operand of that shape.
fn seen(whole: &Whole, shape: Vec<u64>) -> Option<View> {
    let view = View { shape: shape.into(), ..whole.view.clone() };
    (view.elements() == whole.view.elements()).then_some(view)
}

fn whole_again(works: &dyn Works, work: WorkId) -> Option<Patch> {
    type Rebuild = fn(ConvSpec) -> Becomes;
    let gradient = |spec: ConvSpec| Becomes::Request(KernelRequest::DepthwiseConvBackpropInput(spec));
    // The spec, which input is blocks, whether it is the gradient, and what it becomes.
    let (spec, operand, is_gradient, rebuild): (ConvSpec, usize, bool, Rebuild) = match works.computes(work) {
        Computes::Anchor(anchor, None) | Computes::Request(KernelRequest::Anchor { anchor, epilogue: None, pooling: None }) => match anchor
        {
            Anchor::Conv(spec) => (*spec, 0, false, |spec| Becomes::Anchor(Anchor::Conv(spec))),
            Anchor::DepthwiseConv(spec) => (*spec, 0, false, |spec| Becomes::Anchor(Anchor::DepthwiseConv(spec))),
            Anchor::ConvBackpropInput(spec) => (*spec, 1, true, |spec| Becomes::Anchor(Anchor::ConvBackpropInput(spec))),
            Anchor::Product(..) => return None,
        },
        Computes::Request(KernelRequest::DepthwiseConvBackpropInput(spec)) => (*spec, 1, true, gradient),
        _ => return None,
    };
    let mut inputs = works.inputs(work).to_vec();
    let from = before_blocks(works, inputs.get(operand)?, work)?;
    let &[result] = works.outputs(work) else { return None };
    let result = View { value: result, data_type: spec.data_type, shape: Shape::scalar() };
    let (to, joined, cropped) = after_blocks(works, &result)?;
    if !works.absorbs(joined, work) {
        return None;
    }
    let spec = if is_gradient { dilated(&spec, &to, &from)? } else { dilated(&spec, &from, &to)? };
    inputs[operand] = seen(&from, if is_gradient { spec.output() } else { spec.input() })?;
    let patch = Patch::new(works).join(&[work], joined, rebuild(spec), inputs, vec![to.view.value]);
    Some(match cropped {
        Some(slice) => patch.remove(slice),
        None => patch,
    })
}

fn by_filter(works: &dyn Works, work: WorkId) -> Option<Patch> {
    let (spec, is_depthwise) = match works.computes(work) {
        Computes::Request(KernelRequest::ConvBackpropFilter { spec, unpooled: None }) => (*spec, false),
        Computes::Request(KernelRequest::DepthwiseConvBackpropFilter(spec)) => (*spec, true),
        _ => return None,
    };
    let [input, gradient] = works.inputs(work) else { return None };
    let (from, to) = (before_blocks(works, input, work)?, before_blocks(works, gradient, work)?);
    let spec = dilated(&spec, &from, &to)?;
    let inputs = vec![seen(&from, spec.input())?, seen(&to, spec.output())?];
    let request = match is_depthwise {
        false => KernelRequest::ConvBackpropFilter { spec, unpooled: None },
        true => KernelRequest::DepthwiseConvBackpropFilter(spec),
    };
    Some(Patch::new(works).change(work, Becomes::Request(request), inputs, works.outputs(work).to_vec()))
}
