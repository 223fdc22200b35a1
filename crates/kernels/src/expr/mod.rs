//! Elementwise operations as expressions: any chain of them runs as one kernel, tile by tile.

mod compile;
mod elementwise;
mod ir;
mod layout;
mod ops;
mod program;
mod split;
#[cfg(test)]
mod tests;

pub use elementwise::{elementwise, elementwise_on};
pub use ir::{BinaryOp, Expr, ExprBuilder, Instr, Reg, Scalar, UnaryOp};
pub(crate) use layout::elements;
pub use program::{Bases, TileProgram};
pub use split::{Part, PartOperand};
