//! Fusions of SpaceToBatchND and BatchToSpaceND.

use crate::fusion::Fusion;

/// None yet.
pub const FUSIONS: &[Fusion] = &[];
