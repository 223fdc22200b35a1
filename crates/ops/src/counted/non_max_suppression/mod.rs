//! NonMaxSuppression in all its versions: of boxes that overlap, those with the highest scores.
//!
//! Source of the rules: TensorFlow's `non_max_suppression_op.cc`. Boxes of equal scores are taken in their order.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{AttrsExt, HostTensor, Node, Shape};

use super::{float, floats, int, of_floats, rule};
use crate::OpRules;
use crate::infer::InferCx;

/// The rules of this family.
pub const RULES: &[OpRules] = &[
    rule("NonMaxSuppression", infer, compute),
    rule("NonMaxSuppressionV2", infer, compute),
    rule("NonMaxSuppressionV3", infer, compute),
    rule("NonMaxSuppressionV4", infer_v4, compute),
    rule("NonMaxSuppressionV5", infer_v5, compute),
    rule("NonMaxSuppressionWithOverlaps", infer, compute),
];

/// A box as its edges: top, left, bottom, right.
pub(super) type Edges = [f32; 4];

/// The edges of a box that is given by two opposite corners.
pub(super) fn edges(corners: &[f32]) -> Edges {
    let [y, x, other_y, other_x] = corners[..] else { return [0.0; 4] };
    [y.min(other_y), x.min(other_x), y.max(other_y), x.max(other_x)]
}

/// The area that two boxes share, over the area that they cover together.
pub(super) fn overlap(one: &Edges, other: &Edges) -> f32 {
    let area = |edges: &Edges| (edges[2] - edges[0]) * (edges[3] - edges[1]);
    let (mine, theirs) = (area(one), area(other));
    if mine <= 0.0 || theirs <= 0.0 {
        return 0.0;
    }
    let height = (one[2].min(other[2]) - one[0].max(other[0])).max(0.0);
    let width = (one[3].min(other[3]) - one[1].max(other[1])).max(0.0);
    let shared = height * width;
    shared / (mine + theirs - shared)
}

/// A box that may be selected.
pub(super) struct Candidate {
    pub score: f32,
    pub index: usize,
    /// It was compared with the boxes that were selected before this one.
    pub compared: usize,
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Candidate) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Candidate {}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Candidate) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Candidate {
    /// The highest score last; of equal ones the first box.
    fn cmp(&self, other: &Candidate) -> Ordering {
        self.score.partial_cmp(&other.score).unwrap_or(Ordering::Equal).then(other.index.cmp(&self.index))
    }
}

/// How boxes are selected.
pub(super) struct Selection {
    pub most: usize,
    /// What overlaps more than this is left out.
    pub overlap: f32,
    /// What has no higher score than this is left out.
    pub score: f32,
    /// Where it is not 0, scores are lowered by overlaps instead.
    pub soft: f32,
    /// The type in which scores are lowered.
    pub data_type: DataType,
}

/// The selected boxes with their scores.
pub(super) fn select(scores: &[f32], how: &Selection, overlap: impl Fn(usize, usize) -> f32) -> Vec<(usize, f32)> {
    let candidates = scores.iter().enumerate().filter(|(_, score)| **score > how.score);
    let mut queue: BinaryHeap<Candidate> = candidates.map(|(index, score)| Candidate { score: *score, index, compared: 0 }).collect();
    let mut selected: Vec<(usize, f32)> = Vec::new();
    let is_soft = how.soft > 0.0;
    let round = |value: f32| match how.data_type {
        DataType::Half => plimsoll_base::F16::from_f32(value).to_f32(),
        _ => value,
    };
    let scale = if is_soft { round(-0.5 / how.soft) } else { 0.0 };
    while selected.len() < how.most {
        let Some(mut next) = queue.pop() else { break };
        let before = next.score;
        let mut is_out = false;
        for (other, _) in selected[next.compared..].iter().rev() {
            let shared = round(overlap(next.index, *other));
            if !is_soft && shared > how.overlap {
                is_out = true;
                break;
            }
            if is_soft {
                let weight = round(round(round(scale * shared) * shared).exp());
                next.score = round(next.score * weight);
                if next.score <= how.score {
                    break;
                }
            }
        }
        next.compared = selected.len();
        if is_out {
            continue;
        }
        if next.score == before {
            selected.push((next.index, next.score));
        } else if next.score > how.score {
            queue.push(next);
        }
    }
    selected
}

fn check(cx: &InferCx<'_>) -> Result<Option<u64>> {
    let is_matrix = cx.node.op == "NonMaxSuppressionWithOverlaps";
    let boxes = cx.with_rank(0, 2)?.and_then(|dims| dims[0]);
    if let (false, Some([_, Some(columns)])) = (is_matrix, cx.dims(0))
        && *columns != 4
    {
        return Err(Error::invalid_argument(format!("Dimension must be 4 but is {columns}")));
    }
    let scores = cx.with_rank(1, 1)?.and_then(|dims| dims[0]);
    if let (Some(boxes), Some(scores)) = (boxes, scores)
        && boxes != scores
    {
        return Err(Error::invalid_argument(format!("Dimensions must be equal, but are {boxes} and {scores}")));
    }
    for index in 2..cx.inputs.len() {
        cx.with_rank(index, 0)?;
    }
    Ok(boxes.or(scores))
}

/// How many are selected at most: no more than there are boxes, and than are asked for.
fn most(cx: &InferCx<'_>) -> Result<Option<u64>> {
    let boxes = check(cx)?;
    let asked = cx.int(2).map(|asked| u64::try_from(asked).unwrap_or(0));
    Ok(boxes.into_iter().chain(asked).min())
}

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let most = most(cx)?;
    cx.set_dims(0, vec![None]);
    cx.outputs[0].most = most.map(|most| Shape::from([most]));
    Ok(())
}

fn infer_v4(cx: &mut InferCx<'_>) -> Result<()> {
    infer(cx)?;
    pad(cx)?;
    cx.set(1, (&Shape::scalar()).into());
    Ok(())
}

fn infer_v5(cx: &mut InferCx<'_>) -> Result<()> {
    let most = most(cx)?;
    for output in 0..2 {
        cx.set_dims(output, vec![None]);
        cx.outputs[output].most = most.map(|most| Shape::from([most]));
    }
    pad(cx)?;
    cx.set(2, (&Shape::scalar()).into());
    Ok(())
}

/// Padded results have as many elements as are asked for.
fn pad(cx: &mut InferCx<'_>) -> Result<()> {
    if !cx.attrs().bool("pad_to_max_output_size")? {
        return Ok(());
    }
    let asked = cx.int(2).and_then(|asked| u64::try_from(asked).ok());
    for output in 0..cx.outputs.len() - 1 {
        cx.set_dims(output, vec![asked]);
        cx.outputs[output].most = None;
    }
    Ok(())
}

fn compute(node: &Node, inputs: &[&HostTensor]) -> Result<Vec<HostTensor>> {
    let (boxes, scores) = (inputs[0], inputs[1]);
    let data_type = scores.data_type();
    let is_matrix = node.op == "NonMaxSuppressionWithOverlaps";
    let count = scores.shape().dims().first().copied().unwrap_or(0);
    let columns = if is_matrix { count } else { 4 };
    if scores.shape().rank() != 1 {
        return Err(Error::invalid_argument(format!("scores must be 1-D{}", scores.shape())));
    }
    if boxes.shape().rank() != 2 {
        return Err(Error::invalid_argument(format!("boxes must be 2-D{}", boxes.shape())));
    }
    if boxes.shape().dims() != [count, columns] {
        let what = if is_matrix {
            "overlaps must be a square matrix as large as scores"
        } else {
            "boxes must have 4 columns, and as many rows as there are scores"
        };
        return Err(Error::invalid_argument(format!("{what}, got {} and {}", boxes.shape(), scores.shape())));
    }
    let asked =
        usize::try_from(int(inputs[2], "max_output_size")?).map_err(|_| Error::invalid_argument("output size must be non-negative"))?;
    let threshold = |index: usize, name: &str| inputs.get(index).map(|input| float(input, name)).transpose();
    let how = Selection {
        most: asked,
        overlap: match node.op.as_str() {
            "NonMaxSuppression" => node.attrs.float("iou_threshold")?,
            _ => threshold(3, "iou_threshold")?.unwrap_or(0.0),
        },
        score: threshold(4, "score_threshold")?.unwrap_or(f32::MIN),
        soft: threshold(5, "soft_nms_sigma")?.unwrap_or(0.0),
        data_type,
    };
    if !is_matrix && !(0.0..=1.0).contains(&how.overlap) {
        return Err(Error::invalid_argument("iou_threshold must be in [0, 1]"));
    }
    if how.soft < 0.0 {
        return Err(Error::invalid_argument("soft_nms_sigma_threshold must be non-negative"));
    }
    let (boxes, scores) = (floats(boxes)?, floats(scores)?);
    let selected = match is_matrix {
        true => select(&scores, &how, |one, other| boxes[one * count as usize + other]),
        false => {
            let edges: Vec<Edges> = boxes.chunks_exact(4).map(edges).collect();
            select(&scores, &how, |one, other| overlap(&edges[one], &edges[other]))
        }
    };
    let (mut numbers, mut kept): (Vec<i32>, Vec<f32>) = selected.iter().map(|(index, score)| (*index as i32, *score)).unzip();
    let has_count = matches!(node.op.as_str(), "NonMaxSuppressionV4" | "NonMaxSuppressionV5");
    if has_count && node.attrs.bool("pad_to_max_output_size")? {
        let shape = Shape::from([asked as u64]);
        shape.bytes(data_type)?;
        numbers.resize(asked, 0);
        kept.resize(asked, 0.0);
    }
    let shape = Shape::from([numbers.len() as u64]);
    let mut results = vec![HostTensor::from_slice(shape.clone(), &numbers)?];
    if node.op == "NonMaxSuppressionV5" {
        results.push(of_floats(&kept, shape, data_type)?);
    }
    if has_count {
        results.push(HostTensor::scalar(selected.len() as i32));
    }
    Ok(results)
}
