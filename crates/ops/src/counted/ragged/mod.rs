//! Ragged tensors: rows of different lengths, as their values one behind another and the limits of rows (*splits*).

use plimsoll_base::{Error, Result};
use plimsoll_graph::HostTensor;

use crate::OpRules;

mod gather;
mod range;
mod to_sparse;
mod to_tensor;

/// The rules of this family.
pub const RULES: &[OpRules] = &[gather::RULE, range::RULE, to_sparse::RULE, to_tensor::RULE];

/// The limits of rows, which have to begin at 0, not to fall, and to end at `count`, where that is given.
fn splits(tensor: &HostTensor, count: Option<usize>) -> Result<Vec<usize>> {
    let wrong = |what: &str| Error::invalid_argument(format!("Ragged splits {what}"));
    let ints = tensor.to_i64s().ok_or_else(|| wrong("must be int32 or int64"))?;
    let splits: Option<Vec<usize>> = ints.iter().map(|split| usize::try_from(*split).ok()).collect();
    let splits = splits.ok_or_else(|| wrong("must not be negative"))?;
    if splits.first() != Some(&0) {
        return Err(wrong("must have at least one element, and the first has to be 0"));
    }
    if splits.windows(2).any(|pair| pair[0] > pair[1]) {
        return Err(wrong("must not fall"));
    }
    if count.is_some_and(|count| splits.last() != Some(&count)) {
        return Err(wrong("must end at the number of values"));
    }
    Ok(splits)
}

/// The number of rows in the first dimension.
fn rows(tensor: &HostTensor) -> usize {
    tensor.shape().first().copied().unwrap_or(0) as usize
}
