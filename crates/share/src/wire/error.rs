//! Why a value does not go over the wire.

use std::fmt;

use plimsoll_base::Code;

/// A value that cannot be written or read.
#[derive(Debug)]
pub(crate) enum WireError {
    /// The flaw, in words.
    Value(String),
    /// There is no memory for it.
    Memory(String),
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (WireError::Value(message) | WireError::Memory(message)) = self;
        f.write_str(message)
    }
}

impl std::error::Error for WireError {}

impl serde::ser::Error for WireError {
    fn custom<T: fmt::Display>(message: T) -> WireError {
        WireError::Value(message.to_string())
    }
}

impl serde::de::Error for WireError {
    fn custom<T: fmt::Display>(message: T) -> WireError {
        WireError::Value(message.to_string())
    }
}

impl From<plimsoll_base::Error> for WireError {
    fn from(error: plimsoll_base::Error) -> WireError {
        match error.code() {
            Code::ResourceExhausted => WireError::Memory(error.to_string()),
            _ => WireError::Value(error.to_string()),
        }
    }
}
