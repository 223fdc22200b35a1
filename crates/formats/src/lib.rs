//! What lies in files: graphs, options, saved models, checkpoints, arrays. Wire to our structs and back, without loss.
//!
//! Nothing here trusts a byte. A file that makes no sense is an error that says where, in time and memory that are a small
//! multiple of the file's size.
#![forbid(unsafe_code)]

mod attr_value;
mod file;
mod flaw;
mod graph_def;
mod message;
mod schema;
mod tensor_proto;
mod text;
mod wire;

pub use file::{Format, print_graph_def, read_graph_def, write_graph_def};
