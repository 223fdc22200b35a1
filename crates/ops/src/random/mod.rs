//! Random numbers.

use crate::OpRules;

/// The rules of this family.
pub const RULES: &[&[OpRules]] = &[];
