//! ComputeAccidentalHits: the candidates of a sampled loss that are true classes of a row.

use std::collections::HashMap;

use plimsoll_base::{Error, Result};
use plimsoll_graph::{AttrsExt, HostTensor, Node, Shape};

use super::{indices, rule};
use crate::OpRules;
use crate::infer::{InferCx, int_vector};

/// The rule of ComputeAccidentalHits.
pub const RULES: &[OpRules] = &[rule("ComputeAccidentalHits", infer, compute)];

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let truths = cx.attrs().int("num_true")?;
    let rows = cx.with_rank(0, 2)?;
    if let Some([_, Some(columns)]) = rows
        && i64::try_from(*columns).ok() != Some(truths)
    {
        return Err(Error::invalid_argument(format!("true_candidates must have {truths} columns, got shape {}", cx.shape(0))));
    }
    cx.with_rank(1, 1)?;
    let most = rows.and_then(|dims| dims[0]?.checked_mul(dims[1]?));
    for output in 0..3 {
        cx.set_dims(output, vec![None]);
        cx.outputs[output].most = most.map(|most| Shape::from([most]));
    }
    Ok(())
}

/// Of candidates that are the same class the last one counts.
fn compute(_: &Node, inputs: &[&HostTensor]) -> Result<Vec<HostTensor>> {
    let (truths, sampled) = (inputs[0].to_vec::<i64>()?, inputs[1].to_vec::<i64>()?);
    let columns = inputs[0].shape().dims().get(1).map_or(1, |columns| (*columns).max(1)) as usize;
    let places: HashMap<i64, usize> = sampled.iter().enumerate().map(|(place, class)| (*class, place)).collect();
    let hits = truths.iter().enumerate().filter_map(|(at, class)| Some((at / columns, *places.get(class)?)));
    let (rows, ids): (Vec<usize>, Vec<i64>) = hits.map(|(row, place)| (row, place as i64)).unzip();
    let weights = vec![-f32::MAX; rows.len()];
    Ok(vec![
        indices(&rows, plimsoll_base::DataType::Int32)?,
        int_vector(&ids, plimsoll_base::DataType::Int64)?,
        HostTensor::from_slice(Shape::from([weights.len() as u64]), &weights)?,
    ])
}
