//! RaggedRange: a range for each row.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{AttrsExt, HostTensor, Node, Shape};

use super::super::{indices, rule};
use crate::OpRules;
use crate::infer::InferCx;

pub(super) const RULE: OpRules = rule("RaggedRange", infer, compute);

/// More values than this are not made.
const MOST: u64 = 1 << 28;

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let lengths = (0..3).map(|input| match cx.dims(input) {
        Some([length]) => Ok(*length),
        Some([]) | None => Ok(None),
        Some(_) => Err(Error::invalid_argument("starts, limits, and deltas must be scalars or vectors")),
    });
    let lengths = lengths.collect::<Result<Vec<_>>>()?;
    let are_scalars = (0..3).all(|input| cx.dims(input).is_some_and(<[_]>::is_empty));
    let rows = if are_scalars { Some(1) } else { lengths.into_iter().flatten().next() };
    cx.set_dims(0, vec![rows.and_then(|rows| rows.checked_add(1))]);
    cx.set_dims(1, vec![None]);
    Ok(())
}

/// How many numbers there are from one to another.
fn size(start: f64, limit: f64, delta: f64) -> f64 {
    ((limit - start) / delta).ceil().max(0.0)
}

fn compute(node: &Node, inputs: &[&HostTensor]) -> Result<Vec<HostTensor>> {
    let lengths: Vec<u64> = inputs.iter().filter_map(|input| input.shape().first().copied()).collect();
    if lengths.windows(2).any(|pair| pair[0] != pair[1]) || inputs.iter().any(|input| input.shape().rank() > 1) {
        return Err(Error::invalid_argument("starts, limits, and deltas must have the same shape"));
    }
    let rows = lengths.first().copied().unwrap_or(1) as usize;
    let data_type = inputs[0].data_type();
    let mut values = Vec::new();
    let mut ends = vec![0];
    for row in 0..rows {
        let at = |index: usize| if inputs[index].shape().rank() == 0 { 0 } else { row };
        values.push(match data_type {
            DataType::Int32 | DataType::Int64 => {
                let int = |index: usize| inputs[index].to_i64s().and_then(|ints| ints.get(at(index)).copied()).unwrap_or(0);
                let (start, limit, delta) = (i128::from(int(0)), i128::from(int(1)), i128::from(int(2)));
                if delta == 0 {
                    return Err(Error::invalid_argument("Requires delta != 0"));
                }
                let count = ((limit - start + delta - delta.signum()) / delta).max(0);
                within(ends.last().copied().unwrap_or(0) as f64 + count as f64)?;
                let ints: Vec<i64> = (0..count).map(|step| (start + step * delta) as i64).collect();
                crate::infer::int_vector(&ints, data_type)?
            }
            DataType::Float => {
                let float = |index: usize| inputs[index].as_slice::<f32>().map(|floats| floats[at(index)]);
                let (start, limit, delta) = (float(0)?, float(1)?, float(2)?);
                of_floats(f64::from(delta), size(f64::from(start), f64::from(limit), f64::from(delta)), &ends)?;
                let count = size(f64::from(start), f64::from(limit), f64::from(delta)) as usize;
                HostTensor::from_slice([count as u64], &floats(start, delta, count))?
            }
            DataType::Double => {
                let float = |index: usize| inputs[index].as_slice::<f64>().map(|floats| floats[at(index)]);
                let (start, limit, delta) = (float(0)?, float(1)?, float(2)?);
                of_floats(delta, size(start, limit, delta), &ends)?;
                let count = size(start, limit, delta) as usize;
                let all: Vec<f64> = std::iter::successors(Some(start), |value| Some(value + delta)).take(count).collect();
                HostTensor::from_slice([count as u64], &all)?
            }
            other => return Err(Error::unimplemented(format!("not yet: ranges of {other}"))),
        });
        let end = ends.last().copied().unwrap_or(0) + values.last().map_or(0, |row: &HostTensor| row.elements() as usize);
        ends.push(end);
    }
    let mut all = Vec::new();
    values.iter().filter_map(HostTensor::bytes).for_each(|bytes| all.extend_from_slice(bytes));
    let count = ends.last().copied().unwrap_or(0) as u64;
    let splits = indices(&ends, node.attrs.data_type("Tsplits")?)?;
    Ok(vec![splits, HostTensor::from_bytes(data_type, Shape::from([count]), &all)?])
}

/// Each number is the one before and the step, as TensorFlow adds them up.
fn floats(start: f32, delta: f32, count: usize) -> Vec<f32> {
    std::iter::successors(Some(start), |value| Some(value + delta)).take(count).collect()
}

fn of_floats(delta: f64, size: f64, ends: &[usize]) -> Result<()> {
    if delta == 0.0 {
        return Err(Error::invalid_argument("Requires delta != 0"));
    }
    within(ends.last().copied().unwrap_or(0) as f64 + size)
}

fn within(size: f64) -> Result<()> {
    if size <= MOST as f64 {
        return Ok(());
    }
    Err(Error::unimplemented(format!("not yet: ranges of more than {MOST} values")))
}
