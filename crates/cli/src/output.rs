//! Standard output and standard error.

use std::io::{ErrorKind, Write};
use std::path::Path;

use plimsoll::{Code, Error, Result};
use serde::Serialize;

/// Writes a result and a line's end to standard output. A reader that went away is no error.
///
/// # Errors
/// RESOURCE_EXHAUSTED for a full disk, UNKNOWN for other errors of the system.
pub fn result(text: impl std::fmt::Display) -> Result<()> {
    result_if_read(text).map(drop)
}

/// As [`result`], for one of many: whether there still is a reader.
///
/// # Errors
/// As [`result`].
pub fn result_if_read(text: impl std::fmt::Display) -> Result<bool> {
    written(writeln!(std::io::stdout().lock(), "{text}"))
}

/// Whether what was written to standard output has reached it, where `outcome` is that of writing: false where nobody reads it.
///
/// # Errors
/// As [`result`].
pub fn written(outcome: std::io::Result<()>) -> Result<bool> {
    outcome.and_then(|()| std::io::stdout().flush()).map(|()| true).or_else(|error| match error.kind() {
        ErrorKind::BrokenPipe => Ok(false),
        ErrorKind::StorageFull => Err(Error::resource_exhausted(format!("standard output: {error}"))),
        _ => Err(Error::new(Code::Unknown, format!("standard output: {error}"))),
    })
}

/// As [`result`], one JSON document.
///
/// # Errors
/// As [`result`].
pub fn result_json(document: &impl Serialize) -> Result<()> {
    // Our documents have text keys only, so there is nothing that JSON lacks.
    result(serde_json::to_string(document).unwrap_or_default())
}

/// Writes a text as a file.
///
/// # Errors
/// As [`plimsoll::model::file_error`].
pub fn file(path: &Path, text: &str) -> Result<()> {
    plimsoll::model::replace_output(path, |out| out.write_all(text.as_bytes()).map_err(|error| plimsoll::model::file_error(path, &error)))
}

/// As [`result`], for lines without which the work goes on.
pub fn print(text: impl std::fmt::Display) {
    let _ = result(text);
}

/// Writes lines to standard error, without characters that a terminal would obey: texts of files are among them. A standard error
/// that cannot be written to is ignored.
pub fn note(text: impl std::fmt::Display) {
    let text: String = text.to_string().chars().map(|c| if c.is_control() && !matches!(c, '\n' | '\t') { '?' } else { c }).collect();
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// The text on one line, without characters that a terminal would obey.
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Writes a text as it is to standard output, for a terminal; whether that can still be written to.
pub fn print_raw(text: &str) -> bool {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_ok()
}
