//! Fusions of max poolings.

use plimsoll_request::KernelRequest;
use plimsoll_request::pool::{ArgMax, Maxima, PoolSpec, Pooling, Positions};

use crate::fusion::{Becomes, Computes, Fusion, Patch, Stage, View, WorkId, Works};

/// - MaxPool keeps the positions of its maxima, and MaxPoolGrad reads those instead of the pooling's input and output.
/// - A ReluGrad of what MaxPoolGrad computes, by the pooling's input, only leaves out maxima that are not above 0: the pooling keeps
///   no positions of those, and MaxPoolGrad computes the ReluGrad.
/// - A pooling of what a convolution computes, which nothing else reads, is part of the convolution where its device gains by that.
pub const FUSIONS: &[Fusion] = &[
    Fusion { name: "max_pool_positions", stage: Stage::Lowered, find: positions },
    Fusion { name: "max_pool_relu", stage: Stage::Lowered, find: relu },
    Fusion { name: "max_pool_of_anchor", stage: Stage::Joined, find: of_anchor },
];

/// A MaxPoolGrad by positions, with its sizes, positions, and gradient by the pooling's output.
pub(crate) fn grad_by_positions(works: &dyn Works, work: WorkId) -> Option<(PoolSpec, &View, &View)> {
    match (works.computes(work), works.inputs(work)) {
        (Computes::Request(KernelRequest::MaxPoolGrad(spec)), [positions, gradient]) => Some((*spec, positions, gradient)),
        _ => None,
    }
}

fn pooling(works: &dyn Works, work: WorkId) -> Option<Pooling> {
    match works.computes(work) {
        Computes::Request(KernelRequest::MaxPool(pooling)) => Some(*pooling),
        _ => None,
    }
}

fn positions(works: &dyn Works, work: WorkId) -> Option<Patch> {
    let Computes::Request(KernelRequest::MaxPoolGradOfInput { spec, maxima: Maxima::First }) = works.computes(work) else { return None };
    let [pooled, output, gradient] = works.inputs(work) else { return None };
    let pool = works.maker(output.value)?;
    let known = pooling(works, pool)?;
    if (known.spec, known.maxima) != (*spec, Maxima::First)
        || works.inputs(pool) != [pooled.clone()]
        || works.outputs(pool).first() != Some(&output.value)
    {
        return None;
    }
    let mut patch = Patch::new(works);
    let data_type = ArgMax::of(spec).data_type();
    let mut outputs = works.outputs(pool).to_vec();
    if known.positions == Positions::None {
        outputs.push(patch.value(data_type.bytes_of(output.elements())?));
        let becomes = Becomes::Request(KernelRequest::MaxPool(Pooling { positions: Positions::All, ..known }));
        patch = patch.change(pool, becomes, vec![pooled.clone()], outputs.clone());
    }
    let positions = View { value: *outputs.get(1)?, data_type, shape: output.shape.clone() };
    let becomes = Becomes::Request(KernelRequest::MaxPoolGrad(*spec));
    Some(patch.change(work, becomes, vec![positions, gradient.clone()], works.outputs(work).to_vec()))
}

fn relu(works: &dyn Works, work: WorkId) -> Option<Patch> {
    if works.op(work) != "ReluGrad" {
        return None;
    }
    let [gradient, features] = works.inputs(work) else { return None };
    let grad = works.maker(gradient.value)?;
    let (spec, positions, _) = grad_by_positions(works, grad)?;
    let pool = works.maker(positions.value)?;
    let known = pooling(works, pool)?;
    let is_alone = works.readers(gradient.value) == [work] && works.readers(positions.value) == [grad] && !works.is_kept(gradient.value);
    let is_same = works.inputs(pool) == [features.clone()] && gradient.shape == features.shape && works.absorbs(work, grad);
    if !is_alone || !is_same || known.spec != spec {
        return None;
    }
    let positive = Becomes::Request(KernelRequest::MaxPool(Pooling { positions: Positions::Positive, ..known }));
    let unchanged = Becomes::Request(KernelRequest::MaxPoolGrad(spec));
    let patch = Patch::new(works).change(pool, positive, works.inputs(pool).to_vec(), works.outputs(pool).to_vec());
    Some(patch.change(grad, unchanged, works.inputs(grad).to_vec(), works.outputs(work).to_vec()).remove(work))
}

fn of_anchor(works: &dyn Works, work: WorkId) -> Option<Patch> {
    let pooling = pooling(works, work)?;
    let [pooled] = works.inputs(work) else { return None };
    let anchor = works.maker(pooled.value)?;
    let Computes::Anchor(_, epilogue) = works.computes(anchor) else { return None };
    let is_alone = works.outputs(anchor) == [pooled.value] && works.readers(pooled.value) == [work] && !works.is_kept(pooled.value);
    let can_fail = epilogue.is_some_and(plimsoll_request::expr::Expr::can_fail);
    if !is_alone || can_fail || !works.absorbs(work, anchor) {
        return None;
    }
    let (first, second) = (works.request(anchor)?, KernelRequest::MaxPool(pooling));
    let KernelRequest::Anchor { anchor: computed, epilogue, pooling: None } = &first else { return None };
    let made = epilogue.as_ref().map_or(vec![computed.data_type()], |epilogue| epilogue.expr.output_types());
    if made != [pooled.data_type] || !works.takes(work, &first, &second) {
        return None;
    }
    let joined = KernelRequest::Anchor { anchor: *computed, epilogue: epilogue.clone(), pooling: Some(pooling) };
    let (inputs, outputs) = (works.inputs(anchor).to_vec(), works.outputs(work).to_vec());
    Some(Patch::new(works).join(&[anchor], work, Becomes::Request(joined), inputs, outputs))
}
