//! Checkpoints inside graphs, as `tf.compat.v1.train.Saver` puts them there: SaveV2 and RestoreV2. They are
//! works of a plan, in the order that the graph says, also between those on one file.

use plimsoll_base::{Error, Result};

use crate::infer::unknown;
use crate::registry::Gradient;
use crate::{InferCx, Lower, OpRules};

/// The rules of this family.
pub const RULES: &[&[OpRules]] = &[&[
    OpRules { name: "RestoreV2", infer: restore, lower: Lower::Restore, gradient: Gradient::Stops },
    OpRules { name: "SaveV2", infer: unknown, lower: Lower::Save, gradient: Gradient::Stops },
]];

/// The shapes are those of the variables that take the tensors.
fn restore(cx: &mut InferCx<'_>) -> Result<()> {
    cx.with_rank(0, 0)?;
    for input in [1, 2] {
        if let (Some(dims), tensors) = (cx.with_rank(input, 1)?, cx.outputs.len() as u64)
            && let Some(length) = dims[0]
            && length != tensors
        {
            return Err(Error::invalid_argument(format!("{length} names or slices for {tensors} tensors")));
        }
    }
    Ok(())
}
