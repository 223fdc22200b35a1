//! Standard output.

use std::io::Write;

use serde::Serialize;

/// Writes `text` and a line's end. A reader that went away is no error.
pub fn print(text: impl std::fmt::Display) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

/// Writes one JSON document.
pub fn print_json(document: &impl Serialize) {
    // Our documents have text keys only, so there is nothing that JSON lacks.
    print(serde_json::to_string(document).unwrap_or_default());
}
