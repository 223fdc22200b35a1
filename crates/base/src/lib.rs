//! The words that every other crate speaks: status codes and errors, data types, byte sizes, names that are alike.
#![forbid(unsafe_code)]

mod bytes;
mod data_type;
mod error;
mod file;
mod half;
mod kind;
pub mod memory;
mod panels;
mod random;
mod size;
mod suggest;
mod table;

pub use bytes::{Bytes, ParseBytesError};
pub use data_type::{ArgType, DataType};
pub use error::{Code, Error, Result};
pub use file::{
    Input, check_memory, create_file, create_output, file_error, keep_file, open_file, open_input, read_file, read_input, read_pipe,
    read_whole, write_file,
};
pub use half::{Bf16, F16};
pub use kind::{Kind, Shortage, Unfed};
pub use panels::Panels;
pub use random::Random;
pub use size::exact;
pub use suggest::{closest, did_you_mean};
pub use table::{column_width, pad_left, pad_right};
