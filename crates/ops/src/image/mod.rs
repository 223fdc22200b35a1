//! Images: resized, cropped, moved, and their colours.

use crate::OpRules;

pub mod colour;
pub mod projective;
pub mod resize;
pub mod scale_and_translate;

/// The rules of this family.
pub const RULES: &[&[OpRules]] = &[colour::RULES, projective::RULES, resize::RULES, scale_and_translate::RULES];
