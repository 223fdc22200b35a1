//! Random numbers.

use crate::OpRules;

pub mod stateful;
pub mod stateless;

/// The rules of this family.
pub const RULES: &[&[OpRules]] = &[stateful::RULES, stateless::RULES];
