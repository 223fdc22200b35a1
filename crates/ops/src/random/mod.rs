//! Random numbers.

use crate::OpRules;

pub mod candidates;
pub mod multinomial;
pub mod stateful;
pub mod stateless;

/// The rules of this family.
pub const RULES: &[&[OpRules]] = &[candidates::RULES, multinomial::RULES, stateful::RULES, stateless::RULES];
