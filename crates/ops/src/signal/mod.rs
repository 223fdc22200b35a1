//! Signals: Fourier transforms.

use crate::OpRules;

pub mod fft;

/// The rules of this family.
pub const RULES: &[&[OpRules]] = &[fft::RULES];
