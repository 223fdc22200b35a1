//! CTCGreedyDecoder: the best class of each moment, without blanks (Graves and others, 2006).

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{AttrsExt, HostTensor, Node, Shape};

use super::rule;
use crate::OpRules;
use crate::infer::{InferCx, int_tensor, int_vector};

/// The rule of CTCGreedyDecoder.
pub const RULES: &[OpRules] = &[rule("CTCGreedyDecoder", infer, compute)];

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let inputs = cx.with_rank(0, 3)?;
    let lengths = cx.with_rank(1, 1)?.and_then(|dims| dims[0]);
    let batch = inputs.and_then(|dims| dims[1]);
    if let (Some(batch), Some(lengths)) = (batch, lengths)
        && batch != lengths
    {
        return Err(Error::invalid_argument(format!(
            "len(sequence_length) != batch_size.  len(sequence_length):  {lengths} batch_size: {batch}"
        )));
    }
    let most = inputs.and_then(|dims| dims[0]?.checked_mul(dims[1]?));
    cx.set_dims(0, vec![None, Some(2)]);
    cx.outputs[0].most = most.map(|most| Shape::from([most, 2]));
    cx.set_dims(1, vec![None]);
    cx.outputs[1].most = most.map(|most| Shape::from([most]));
    cx.set_dims(2, vec![Some(2)]);
    cx.set_dims(3, vec![batch.or(lengths), Some(1)]);
    Ok(())
}

/// The numbers of a tensor as doubles, which hold them all.
fn doubles(tensor: &HostTensor) -> Result<Vec<f64>> {
    match tensor.data_type() {
        DataType::Float => Ok(tensor.to_vec::<f32>()?.into_iter().map(f64::from).collect()),
        DataType::Double => tensor.to_vec::<f64>(),
        other => Err(Error::unimplemented(format!("not yet: CTCGreedyDecoder of {other}"))),
    }
}

fn compute(node: &Node, inputs: &[&HostTensor]) -> Result<Vec<HostTensor>> {
    let (values, data_type) = (doubles(inputs[0])?, inputs[0].data_type());
    let [times, batch, classes] = *inputs[0].shape().dims() else {
        return Err(Error::invalid_argument("inputs is not a 3-Tensor"));
    };
    if classes == 0 {
        return Err(Error::invalid_argument("inputs must not have 0 classes"));
    }
    let merges = node.attrs.bool("merge_repeated")?;
    let blank = node.attrs.int("blank_index")?;
    let blank = if blank < 0 { blank.saturating_add_unsigned(classes) } else { blank };
    if !(0..classes as i64).contains(&blank) {
        let stated = node.attrs.int("blank_index")?;
        return Err(Error::invalid_argument(format!(
            "blank_index expected to be between {} and {} but was {stated}",
            -(classes as i64),
            classes as i64 - 1
        )));
    }
    let lengths = inputs[1].to_vec::<i32>()?;
    let (mut places, mut decoded, mut longest, mut scores) = (Vec::new(), Vec::new(), 0, Vec::new());
    for (row, length) in lengths.iter().enumerate() {
        if i64::from(*length) > times as i64 {
            return Err(Error::failed_precondition(format!("sequence_length({row}) <= {times}")));
        }
        // Sums of floats round to floats.
        let (mut score, mut before, mut found) = (0.0f64, -1, 0i64);
        for time in 0..usize::try_from(*length).unwrap_or(0) {
            let logits = &values[(time * batch as usize + row) * classes as usize..][..classes as usize];
            let best = (1..logits.len()).fold(0, |best, class| if logits[class] > logits[best] { class } else { best });
            score -= logits[best];
            if data_type == DataType::Float {
                score = f64::from(score as f32);
            }
            let class = best as i64;
            if class != blank && !(merges && class == before) {
                places.extend([row as i64, found]);
                decoded.push(class);
                found += 1;
            }
            before = class;
        }
        longest = longest.max(found);
        scores.push(score);
    }
    let shape = Shape::from([batch, 1]);
    let scores = match data_type {
        DataType::Float => HostTensor::from_slice(shape, &scores.iter().map(|score| *score as f32).collect::<Vec<f32>>())?,
        _ => HostTensor::from_slice(shape, &scores)?,
    };
    Ok(vec![
        int_tensor(&places, Shape::from([decoded.len() as u64, 2]), DataType::Int64)?,
        int_vector(&decoded, DataType::Int64)?,
        int_vector(&[batch as i64, longest], DataType::Int64)?,
        scores,
    ])
}
