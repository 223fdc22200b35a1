//! The operations: a folder for each operation or family, with its rules (types and shapes, lowering, gradient, use of variables).
//! Beside them the builder that makes graphs.
//!
//! [`Registry`] is a value: tests bring their own. Nothing here knows a device crate.
#![forbid(unsafe_code)]

pub mod builder;
mod evaluate;
pub mod fusion;
mod gradient;
pub mod infer;
mod kernels;
mod lower;
pub mod recipe;
mod registry;
mod types;

pub mod array;
pub mod checkpoint;
pub mod control;
pub mod counted;
pub mod image;
pub mod linalg;
pub mod list;
pub mod math;
pub mod nn;
pub mod optimizer;
pub mod random;
pub mod signal;
pub mod source;
pub mod variable;

pub use builder::{GraphBuilder, Initializer, OpBuilder, Reuse, Variable, VariableKind};
pub use evaluate::evaluate;
pub use infer::{Each, Fact, InferCx, ListFact, Said, infer_asking, infer_node};
pub use kernels::{Constraint, DEFAULT_DEVICE, Found, KernelDef, KernelRegistry};
pub use lower::{AnchorCall, Call, CountedFn, KernelCx, ListOp, Lower, Meta, StatefulCall, Update};
pub use recipe::Recipe;
pub use registry::{Gradient, OpRules, Registry};
pub use types::types;
