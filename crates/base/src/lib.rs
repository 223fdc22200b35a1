//! The words that every other crate speaks: status codes and errors, data types, byte sizes.
#![forbid(unsafe_code)]

mod bytes;
mod data_type;
mod error;

pub use bytes::{Bytes, ParseBytesError};
pub use data_type::{ArgType, DataType};
pub use error::{Code, Error, Result};
