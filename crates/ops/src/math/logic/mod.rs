//! Logic on bools and on the bits of integers, broadcasting.

use plimsoll_request::expr::{BinaryOp, UnaryOp};

use crate::infer::{broadcast, same};
use crate::registry::Gradient;
use crate::{Lower, OpRules};

const fn rule(name: &'static str, op: BinaryOp) -> OpRules {
    OpRules { name, infer: broadcast, lower: Lower::Binary(op), gradient: Gradient::Stops }
}

/// The rules of logic.
pub const RULES: &[OpRules] = &[
    rule("LogicalAnd", BinaryOp::LogicalAnd),
    rule("LogicalOr", BinaryOp::LogicalOr),
    OpRules { name: "LogicalNot", infer: same, lower: Lower::Unary(UnaryOp::LogicalNot), gradient: Gradient::Stops },
    rule("BitwiseAnd", BinaryOp::BitwiseAnd),
    rule("BitwiseOr", BinaryOp::BitwiseOr),
    rule("BitwiseXor", BinaryOp::BitwiseXor),
    rule("LeftShift", BinaryOp::LeftShift),
    rule("RightShift", BinaryOp::RightShift),
    OpRules { name: "Invert", infer: same, lower: Lower::Unary(UnaryOp::Invert), gradient: Gradient::Stops },
];
