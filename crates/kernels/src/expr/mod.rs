//! Elementwise operations as expressions: any chain of them runs as one kernel, tile by tile.

mod ir;

pub use ir::{BinaryOp, Expr, ExprBuilder, Instr, Reg, Scalar, UnaryOp};
