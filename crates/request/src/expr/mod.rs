//! Elementwise operations as expressions: any chain of them is one request.

mod ir;
mod split;
mod uses;
mod written;

pub use ir::{BinaryOp, Expr, ExprBuilder, Instr, Reg, Scalar, UnaryOp};
pub use split::{Part, PartOperand};
pub use uses::Uses;
