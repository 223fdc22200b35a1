//! The words that every other crate speaks: status codes and errors, data types, byte sizes, names that are alike.
#![forbid(unsafe_code)]

mod bytes;
mod data_type;
mod error;
mod kind;
mod read_file;
mod suggest;
mod table;

pub use bytes::{Bytes, ParseBytesError};
pub use data_type::{ArgType, DataType};
pub use error::{Code, Error, Result};
pub use kind::{Kind, Shortage, Unfed};
pub use read_file::read_file;
pub use suggest::{closest, did_you_mean};
pub use table::{column_width, pad_left, pad_right};
