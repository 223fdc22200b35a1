//! Fusions of depthwise convolutions with the convolutions before and behind them.

use plimsoll_base::DataType;
use plimsoll_request::KernelRequest;
use plimsoll_request::anchor::Anchor;
use plimsoll_request::bands::{BandStage, Bands};

use crate::fusion::{Becomes, Computes, Fusion, Patch, Stage, WorkId, Works};

/// Of two convolutions of which one is by channels, the first is part of the second where nothing else reads its results and their device
/// gains by that. So are three.
pub const FUSIONS: &[Fusion] = &[Fusion { name: "convolutions_by_bands", stage: Stage::Joined, find: by_bands }];

fn by_bands(works: &dyn Works, work: WorkId) -> Option<Patch> {
    if !matches!(works.computes(work), Computes::Anchor(Anchor::Conv(_) | Anchor::DepthwiseConv(_), _)) {
        return None;
    }
    let between = works.inputs(work).first()?;
    let first = works.maker(between.value)?;
    let is_alone = works.outputs(first) == [between.value] && works.readers(between.value) == [work] && !works.is_kept(between.value);
    let is_once = works.inputs(work).iter().filter(|view| view.value == between.value).count() == 1;
    if !is_alone || !is_once || between.data_type != DataType::Float || !works.absorbs(work, first) {
        return None;
    }
    let (before, after) = (works.request(first)?, works.request(work)?);
    let bands = match &before {
        KernelRequest::Bands(bands) => bands.clone(),
        KernelRequest::Anchor { .. } => Bands { stages: vec![stage(&before)?] },
        _ => return None,
    };
    let joined = bands.then(stage(&after)?);
    if joined.check().is_err() || !works.takes(work, &before, &after) {
        return None;
    }
    let joined = KernelRequest::Bands(joined);
    if !works.answers(work, &joined) || !works.is_next(first, work) {
        return None;
    }
    let inputs = [works.inputs(first), &works.inputs(work)[1..]].concat();
    Some(Patch::new(works).join(&[first], work, Becomes::Request(joined), inputs, works.outputs(work).to_vec()))
}

/// A convolution with its epilogue.
fn stage(request: &KernelRequest) -> Option<BandStage> {
    match request {
        KernelRequest::Anchor { anchor, epilogue, pooling: None } => Some(BandStage { anchor: *anchor, epilogue: epilogue.clone() }),
        _ => None,
    }
}
