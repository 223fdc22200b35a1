//! Elementwise operations as expressions: any chain of them is one request.

mod functions;
mod ir;
mod primitives;
mod split;
mod uses;
mod written;

pub use functions::{digamma, erfinv, floor_mod, ndtri, polygamma, zeta};
pub use ir::{Expr, ExprBuilder, Instr, Reg, Scalar};
pub use primitives::{BinaryOp, UnaryOp};
pub use split::{Part, PartOperand};
pub use uses::Uses;
