//! Images: resized, cropped, moved, and their colours.

use crate::OpRules;

pub mod resize;
pub mod scale_and_translate;

/// The rules of this family.
pub const RULES: &[&[OpRules]] = &[resize::RULES, scale_and_translate::RULES];
