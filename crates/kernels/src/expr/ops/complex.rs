//! Complex numbers: their parts. [`super::super::complex`] sees to it that nothing else is asked of them.

use plimsoll_request::expr::UnaryOp;

use super::StepFn;
use crate::simd::Isa;

pub(super) fn part_of_c64(op: UnaryOp, isa: Isa) -> Option<StepFn> {
    match op {
        UnaryOp::Real => Some(op1!(isa, [f32; 2] => f32, 8, |x| x[0])),
        UnaryOp::Imag => Some(op1!(isa, [f32; 2] => f32, 8, |x| x[1])),
        _ => None,
    }
}

pub(super) fn part_of_c128(op: UnaryOp, isa: Isa) -> Option<StepFn> {
    match op {
        UnaryOp::Real => Some(op1!(isa, [f64; 2] => f64, 8, |x| x[0])),
        UnaryOp::Imag => Some(op1!(isa, [f64; 2] => f64, 8, |x| x[1])),
        _ => None,
    }
}
