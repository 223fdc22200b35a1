//! Why a value does not go over the wire.

use std::fmt;

/// A value that cannot be written or read, in words.
#[derive(Debug)]
pub(crate) struct WireError(pub String);

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WireError {}

impl serde::ser::Error for WireError {
    fn custom<T: fmt::Display>(message: T) -> WireError {
        WireError(message.to_string())
    }
}

impl serde::de::Error for WireError {
    fn custom<T: fmt::Display>(message: T) -> WireError {
        WireError(message.to_string())
    }
}

impl From<plimsoll_base::Error> for WireError {
    fn from(error: plimsoll_base::Error) -> WireError {
        WireError(error.to_string())
    }
}
