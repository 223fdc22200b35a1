//! ListDiff: the elements of one vector that another has not, and where they are.

use std::collections::HashSet;

use plimsoll_base::{Error, Result};
use plimsoll_graph::{AttrsExt, HostTensor, Node, Shape};

use super::{bytes, indices, key, rule};
use crate::OpRules;
use crate::infer::InferCx;

/// The rules of this family.
pub const RULES: &[OpRules] = &[rule("ListDiff", infer, compute)];

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let count = cx.with_rank(0, 1)?.and_then(|dims| dims[0]);
    cx.with_rank(1, 1)?;
    for output in 0..2 {
        cx.set_dims(output, vec![None]);
        cx.outputs[output].most = count.map(|count| Shape::from([count]));
    }
    Ok(())
}

fn compute(node: &Node, inputs: &[&HostTensor]) -> Result<Vec<HostTensor>> {
    for (tensor, name) in inputs.iter().zip(["x", "y"]) {
        if tensor.shape().rank() != 1 {
            return Err(Error::invalid_argument(format!("{name} should be a 1D vector.")));
        }
    }
    let data_type = inputs[0].data_type();
    let size = data_type.size().unwrap_or(1);
    let without: HashSet<Vec<u8>> = bytes(inputs[1])?.chunks_exact(size).filter_map(|element| key(element, data_type)).collect();
    let (mut kept, mut at) = (Vec::new(), Vec::new());
    for (index, element) in bytes(inputs[0])?.chunks_exact(size).enumerate() {
        if key(element, data_type).is_none_or(|key| !without.contains(&key)) {
            kept.extend_from_slice(element);
            at.push(index);
        }
    }
    let kept = HostTensor::from_bytes(data_type, Shape::from([at.len() as u64]), &kept)?;
    Ok(vec![kept, indices(&at, node.attrs.data_type("out_idx")?)?])
}
