//! Sizes in errors.

use crate::Bytes;

/// A size in its own unit and, unless that says it exactly, in bytes.
pub fn exact(bytes: Bytes) -> String {
    match bytes.0 {
        0..1024 => bytes.to_string(),
        _ => format!("{bytes} ({} bytes)", bytes.0),
    }
}
