//! Conversions. Floats to integers truncate towards zero and saturate, NaN gives 0; integers wrap; to bool asks `!= 0`. Floats of two
//! bytes are widened to floats and rounded from them; [`super::super::widen`] sees to it that nothing else is asked of them.

use plimsoll_base::{Bf16, DataType, F16};

use super::StepFn;
use crate::simd::Isa;

macro_rules! from {
    ($isa:ident, $to:ident, $t:ty, $small:tt, |$x:ident| $nonzero:expr) => {
        match $to {
            DataType::Float => Some(op1!($isa, $t => f32, $small, |x| x as f32)),
            DataType::Double => Some(op1!($isa, $t => f64, 8, |x| x as f64)),
            DataType::Int32 => Some(op1!($isa, $t => i32, $small, |x| x as i32)),
            DataType::Int64 => Some(op1!($isa, $t => i64, 8, |x| x as i64)),
            DataType::Uint8 => Some(op1!($isa, $t => u8, $small, |x| x as u8)),
            DataType::Bool => Some(op1!($isa, $t => u8, $small, |$x| u8::from($nonzero))),
            _ => None,
        }
    };
}

pub(super) fn cast(from: DataType, to: DataType, isa: Isa) -> Option<StepFn> {
    match (from, to) {
        (DataType::Half, DataType::Float) => Some(op1!(isa, u16 => f32, 4, |x| F16::from_bits(x).to_f32())),
        (DataType::Bfloat16, DataType::Float) => Some(op1!(isa, u16 => f32, 4, |x| Bf16::from_bits(x).to_f32())),
        (DataType::Float, DataType::Half) => Some(op1!(isa, f32 => u16, 4, |x| F16::from_f32(x).to_bits())),
        (DataType::Float, DataType::Bfloat16) => Some(op1!(isa, f32 => u16, 4, |x| Bf16::from_f32(x).to_bits())),
        (DataType::Float, _) => from!(isa, to, f32, 4, |x| x != 0.0),
        (DataType::Double, _) => from!(isa, to, f64, 8, |x| x != 0.0),
        (DataType::Int32, _) => from!(isa, to, i32, 4, |x| x != 0),
        (DataType::Int64, _) => from!(isa, to, i64, 8, |x| x != 0),
        (DataType::Uint8 | DataType::Bool, _) => from!(isa, to, u8, 4, |x| x != 0),
        _ => None,
    }
}
