//! CombinedNonMaxSuppression: of each image of a batch, the boxes with the highest scores of all classes.
//!
//! Source of the rules: TensorFlow's `non_max_suppression_op.cc`. The shapes of the results are known beforehand.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{AttrsExt, HostTensor, Node, Shape};

use super::non_max_suppression::{Edges, Selection, edges, overlap, select};
use super::{float, floats, int, rule};
use crate::OpRules;
use crate::infer::InferCx;

/// The rules of this family.
pub const RULES: &[OpRules] = &[rule("CombinedNonMaxSuppression", infer, compute)];

/// How many boxes there are in the results for each image.
fn rows(per_class: u64, total: u64, classes: u64, pads_per_class: bool) -> u64 {
    if pads_per_class { total.min(per_class.saturating_mul(classes)) } else { total }
}

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let batch = cx.with_rank(0, 4)?.and_then(|dims| dims[0]);
    let scores = cx.with_rank(1, 3)?;
    let (batch, classes) = (batch.or(scores.and_then(|dims| dims[0])), scores.and_then(|dims| dims[2]));
    let size = |index: usize| cx.int(index).and_then(|size| u64::try_from(size).ok());
    let (per_class, total) = (size(2), size(3));
    let pads_per_class = cx.attrs().bool("pad_per_class")?;
    let rows = match (per_class, total, classes) {
        (_, Some(total), _) if !pads_per_class => Some(total),
        (Some(per_class), Some(total), Some(classes)) => Some(rows(per_class, total, classes, pads_per_class)),
        _ => None,
    };
    cx.set_dims(0, vec![batch, rows, Some(4)]);
    cx.set_dims(1, vec![batch, rows]);
    cx.set_dims(2, vec![batch, rows]);
    cx.set_dims(3, vec![batch]);
    Ok(())
}

/// The rows of a result, most of which may be empty.
const MOST_ROWS: u64 = 1 << 24;

/// A box of the result.
struct Found {
    score: f32,
    class: usize,
    edges: Edges,
}

fn compute(node: &Node, inputs: &[&HostTensor]) -> Result<Vec<HostTensor>> {
    let (boxes, scores) = (inputs[0], inputs[1]);
    let (&[batch, count, q, 4], &[score_batch, score_count, classes]) = (boxes.shape().dims(), scores.shape().dims()) else {
        let message = format!("boxes must be 4-D with 4 columns and scores 3-D, got {} and {}", boxes.shape(), scores.shape());
        return Err(Error::invalid_argument(message));
    };
    if (batch, count) != (score_batch, score_count) || (q != 1 && q != classes) {
        return Err(Error::invalid_argument(format!("boxes of shape {} do not fit scores of shape {}", boxes.shape(), scores.shape())));
    }
    let size = |index: usize, name: &str| {
        let size = int(inputs[index], name)?;
        u64::try_from(size).ok().filter(|size| *size > 0).ok_or_else(|| Error::invalid_argument(format!("{name} must be > 0")))
    };
    let (per_class, total) = (size(2, "max_size_per_class")?, size(3, "max_total_size")?);
    let (limit, threshold) = (float(inputs[4], "iou_threshold")?, float(inputs[5], "score_threshold")?);
    if !(0.0..=1.0).contains(&limit) {
        return Err(Error::invalid_argument("iou_threshold must be in [0, 1]"));
    }
    let rows = rows(per_class, total, classes, node.attrs.bool("pad_per_class")?);
    if batch.checked_mul(rows).is_none_or(|rows| rows > MOST_ROWS) {
        return Err(Error::unimplemented(format!("not yet: {batch} times {rows} boxes, which are more than {MOST_ROWS}")));
    }
    let clips = node.attrs.bool("clip_boxes")?;
    let how = Selection { most: per_class as usize, overlap: limit, score: threshold, soft: 0.0, data_type: DataType::Float };
    let shapes = [Shape::from([batch, rows, 4]), Shape::from([batch, rows]), Shape::from([batch, rows]), Shape::from([batch])];
    let mut results = vec![
        HostTensor::zeros(DataType::Float, shapes[0].clone())?,
        HostTensor::zeros(DataType::Float, shapes[1].clone())?,
        HostTensor::zeros(DataType::Float, shapes[2].clone())?,
        HostTensor::zeros(DataType::Int32, shapes[3].clone())?,
    ];
    let (boxes, scores) = (floats(boxes)?, floats(scores)?);
    let (count, q, classes, rows) = (count as usize, q as usize, classes as usize, rows as usize);
    for image in 0..batch as usize {
        let mut found: Vec<Found> = Vec::new();
        for class in 0..classes {
            let corners = |index: usize| {
                let from = ((image * count + index) * q + class.min(q - 1)) * 4;
                &boxes[from..from + 4]
            };
            let all: Vec<Edges> = (0..count).map(|index| edges(corners(index))).collect();
            let of_class: Vec<f32> = (0..count).map(|index| scores[(image * count + index) * classes + class]).collect();
            let selected = select(&of_class, &how, |one, other| overlap(&all[one], &all[other]));
            let whole = |index: usize| <Edges>::try_from(corners(index)).unwrap_or_default();
            found.extend(selected.into_iter().map(|(index, score)| Found { score, class, edges: whole(index) }));
        }
        found.sort_by(|one, other| other.score.total_cmp(&one.score));
        found.truncate(rows);
        results[3].as_slice_mut::<i32>()?[image] = found.len() as i32;
        for (row, found) in found.iter().enumerate() {
            let at = image * rows + row;
            let clipped = found.edges.map(|edge| if clips { edge.clamp(0.0, 1.0) } else { edge });
            results[0].as_slice_mut::<f32>()?[4 * at..4 * at + 4].copy_from_slice(&clipped);
            results[1].as_slice_mut::<f32>()?[at] = found.score;
            results[2].as_slice_mut::<f32>()?[at] = found.class as f32;
        }
    }
    Ok(results)
}
