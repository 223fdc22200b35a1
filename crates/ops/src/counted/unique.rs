//! Unique, UniqueV2, UniqueWithCounts, UniqueWithCountsV2: what a vector has, each once, in the order in which it comes first; or the
//! slices of a tensor along an axis.

use std::collections::HashMap;

use plimsoll_base::{Error, Result};
use plimsoll_graph::{AttrsExt, HostTensor, Node, Shape};

use super::{bytes, indices, key, rule};
use crate::OpRules;
use crate::infer::{InferCx, axis_of};

/// The rules of this family.
pub const RULES: &[OpRules] = &[
    rule("Unique", infer, compute),
    rule("UniqueV2", infer, compute),
    rule("UniqueWithCounts", infer, compute),
    rule("UniqueWithCountsV2", infer, compute),
];

/// The axis that input 1 says, where there is one; a vector has only one.
fn axis(ints: &[i64], rank: usize) -> Result<usize> {
    match (ints, rank) {
        ([], 1) => Ok(0),
        ([], _) => Err(Error::invalid_argument("unique expects a 1D vector.")),
        ([axis], rank) => axis_of(*axis, rank),
        _ => Err(Error::invalid_argument("axis does not support input tensors larger than 1 elements")),
    }
}

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let ints = if cx.inputs.len() > 1 { cx.ints(1) } else { Some(Vec::new()) };
    let counts = cx.outputs.len() > 2;
    if counts {
        cx.set_dims(2, vec![None]);
    }
    let Some(dims) = cx.dims(0).map(<[Option<u64>]>::to_vec) else {
        cx.set_dims(1, vec![None]);
        return Ok(());
    };
    let Some(ints) = ints else {
        cx.set_dims(0, vec![None; dims.len()]);
        cx.set_dims(1, vec![None]);
        return Ok(());
    };
    let axis = axis(&ints, dims.len())?;
    let mut unique = dims.clone();
    unique[axis] = None;
    cx.set_dims(0, unique);
    cx.set_dims(1, vec![dims[axis]]);
    let most = cx.shape(0).complete();
    if counts {
        cx.outputs[2].most = dims[axis].map(|count| Shape::from([count]));
    }
    cx.outputs[0].most = most;
    Ok(())
}

fn compute(node: &Node, inputs: &[&HostTensor]) -> Result<Vec<HostTensor>> {
    let tensor = inputs[0];
    let data_type = tensor.data_type();
    let dims = tensor.shape().dims();
    let ints = inputs.get(1).and_then(|axis| axis.to_i64s()).unwrap_or_default();
    let axis = axis(&ints, dims.len())?;
    let count = dims[axis] as usize;
    let (outer, inner): (u64, u64) = (dims[..axis].iter().product(), dims[axis + 1..].iter().product());
    let (elements, run) = (bytes(tensor)?, inner as usize * data_type.size().unwrap_or(1));
    // The bytes of slice `at`, run behind run.
    let runs = |at: usize| (0..outer as usize).map(move |outer| (outer * count + at) * run).map(|from| &elements[from..from + run]);
    let mut numbers: HashMap<Vec<u8>, usize> = HashMap::new();
    let (mut first, mut number_of, mut counts): (Vec<usize>, Vec<usize>, Vec<usize>) = (Vec::new(), Vec::new(), Vec::new());
    for at in 0..count {
        let whole: Vec<u8> = runs(at).flatten().copied().collect();
        let known = key(&whole, data_type);
        let number = match known.as_ref().and_then(|key| numbers.get(key)) {
            Some(number) => *number,
            None => {
                first.push(at);
                counts.push(0);
                known.map(|key| numbers.insert(key, first.len() - 1));
                first.len() - 1
            }
        };
        counts[number] += 1;
        number_of.push(number);
    }
    let mut unique = Vec::with_capacity(first.len() * run * outer as usize);
    for outer in 0..outer as usize {
        for &at in &first {
            let from = (outer * count + at) * run;
            unique.extend_from_slice(&elements[from..from + run]);
        }
    }
    let mut shape = dims.to_vec();
    shape[axis] = first.len() as u64;
    let index_type = node.attrs.data_type("out_idx")?;
    let mut results = vec![HostTensor::from_bytes(data_type, Shape::from(shape), &unique)?, indices(&number_of, index_type)?];
    if node.op.starts_with("UniqueWithCounts") {
        results.push(indices(&counts, index_type)?);
    }
    Ok(results)
}
