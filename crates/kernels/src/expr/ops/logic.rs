//! Bools, stored as the bytes 0 and 1.

use super::StepFn;
use crate::simd::Isa;
use plimsoll_request::expr::{BinaryOp, UnaryOp};

pub(super) fn unary(op: UnaryOp, isa: Isa) -> Option<StepFn> {
    match op {
        UnaryOp::LogicalNot => Some(op1!(isa, u8 => u8, 1, |x| x ^ 1)),
        _ => None,
    }
}

pub(super) fn binary(op: BinaryOp, isa: Isa) -> Option<StepFn> {
    Some(match op {
        BinaryOp::LogicalAnd => op2!(isa, u8 => u8, 1, |x, y| x & y),
        BinaryOp::LogicalOr => op2!(isa, u8 => u8, 1, |x, y| x | y),
        BinaryOp::Equal => op2!(isa, u8 => u8, 1, |x, y| u8::from(x == y)),
        BinaryOp::NotEqual => op2!(isa, u8 => u8, 1, |x, y| u8::from(x != y)),
        _ => return None,
    })
}
