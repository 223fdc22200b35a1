//! Comparisons, broadcasting: bool results.

use plimsoll_request::expr::BinaryOp;

use crate::infer::broadcast;
use crate::registry::Gradient;
use crate::{Lower, OpRules};

const fn rule(name: &'static str, op: BinaryOp) -> OpRules {
    OpRules { name, infer: broadcast, lower: Lower::Binary(op), gradient: Gradient::Stops }
}

/// The rules of comparisons.
pub const RULES: &[OpRules] = &[
    rule("Equal", BinaryOp::Equal),
    rule("NotEqual", BinaryOp::NotEqual),
    rule("Less", BinaryOp::Less),
    rule("LessEqual", BinaryOp::LessEqual),
    rule("Greater", BinaryOp::Greater),
    rule("GreaterEqual", BinaryOp::GreaterEqual),
];
