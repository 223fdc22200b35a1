//! Images: resized, cropped, moved, and their colours.

use crate::OpRules;

pub mod colour;
pub mod crop_and_resize;
pub mod draw_boxes;
pub mod extract_patches;
pub mod projective;
pub mod resize;
pub mod scale_and_translate;

/// The rules of this family.
pub const RULES: &[&[OpRules]] = &[
    colour::RULES,
    crop_and_resize::RULES,
    draw_boxes::RULES,
    extract_patches::RULES,
    projective::RULES,
    resize::RULES,
    scale_and_translate::RULES,
];
