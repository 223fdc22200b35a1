//! The graph as TensorFlow writes it: nodes, edges, attributes, functions, host tensors, and the table of operations.
//!
//! A graph arrives as [`NodeDef`]s (names and strings, from a file or the builder). [`Graph::resolve`] makes a [`Graph`] of it
//! (typed ids and edges). Nothing here computes, places or plans.
#![forbid(unsafe_code)]

mod attr;
mod attrs;
mod def;
mod fingerprint;
mod function;
mod graph;
pub mod id;
mod keep;
mod op_def;
mod op_table;
mod sent;
mod shape;
mod tensor;
mod text;
mod verify;

pub use attr::{AttrList, AttrValue, AttrsExt, FuncRef};
pub use attrs::{Attrs, AttrsPool};
pub use def::{GraphDef, InputRef, NodeDef, TensorName, Versions};
pub use fingerprint::Fingerprint;
pub use function::{FunctionDef, Library};
pub use graph::{Graph, Node, Output};
pub use id::{IdVec, NodeId};
pub use op_def::{ArgDef, AttrDef, OpDef};
pub use op_table::OpTable;
pub use shape::{PartialShape, Shape};
pub use tensor::{Element, HostTensor, Owner, TensorData};
pub use verify::MAX_OUTPUTS;
