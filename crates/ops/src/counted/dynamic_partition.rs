//! DynamicPartition: the rows of a tensor, each to the result that its number says.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{AttrsExt, HostTensor, Node, Shape};

use super::{bytes, rule};
use crate::infer::InferCx;
use crate::registry::Gradient;
use crate::{Lower, OpRules};

/// The rules of this family.
pub const RULES: &[OpRules] =
    &[OpRules { gradient: Gradient::Unknown, lower: Lower::Counted(compute), ..rule("DynamicPartition", infer, compute) }];

/// The error for partitions that are not the first dimensions of the data.
fn misfit(data: &dyn std::fmt::Display, partitions: &dyn std::fmt::Display) -> Error {
    Error::invalid_argument(format!(
        "data.shape must start with partitions.shape, got data.shape = {data}, partitions.shape = {partitions}"
    ))
}

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let (Some(data), Some(partitions)) = (cx.dims(0), cx.dims(1)) else { return Ok(()) };
    if data.len() < partitions.len() {
        return Err(misfit(cx.shape(0), cx.shape(1)));
    }
    let row = data[partitions.len()..].to_vec();
    let rows = cx.shape(1).complete().and_then(|shape| shape.elements().ok());
    let most = rows.and_then(|rows| row.iter().copied().collect::<Option<Vec<u64>>>().map(|row| Shape::from([vec![rows], row].concat())));
    for output in 0..cx.outputs.len() {
        cx.set_dims(output, [vec![None], row.clone()].concat());
        cx.outputs[output].most = most.clone();
    }
    Ok(())
}

fn compute(node: &Node, inputs: &[&HostTensor]) -> Result<Vec<HostTensor>> {
    let [data, partitions] = inputs else { return Err(Error::internal("DynamicPartition has two inputs")) };
    let row = match data.shape().dims().strip_prefix(partitions.shape().dims()) {
        Some(row) => row.to_vec(),
        None => return Err(misfit(data.shape(), partitions.shape())),
    };
    let count = usize::try_from(node.attrs.int("num_partitions")?).unwrap_or(0);
    let size = row.iter().product::<u64>() as usize * data.data_type().size().unwrap_or(1);
    let elements = bytes(data)?;
    let mut parts: Vec<(u64, Vec<u8>)> = vec![(0, Vec::new()); count];
    for (index, part) in partitions.to_vec::<i32>()?.into_iter().enumerate() {
        let to = usize::try_from(part).ok().and_then(|part| parts.get_mut(part));
        let Some(to) = to else {
            return Err(Error::invalid_argument(format!("partitions[{index}] = {part} is not in [0, {count})")));
        };
        to.0 += 1;
        to.1.extend_from_slice(&elements[index * size..(index + 1) * size]);
    }
    let tensor =
        |(rows, bytes): (u64, Vec<u8>)| HostTensor::from_bytes(data.data_type(), Shape::from([vec![rows], row.clone()].concat()), &bytes);
    parts.into_iter().map(tensor).collect()
}
