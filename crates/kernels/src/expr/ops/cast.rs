//! Conversions. Floats to integers truncate towards zero; NaN and what int32 does not hold (int64 for wide types) are its lowest number,
//! as x86 has it, and TensorFlow with it. Integers wrap; to bool asks `!= 0`. Floats of two bytes are widened to floats and rounded
//! from them; [`super::super::widen`] sees to it that nothing else is asked of them. Types that are rare have loops of one element.

use plimsoll_base::{Bf16, DataType, F16};

use super::StepFn;
use crate::simd::Isa;

/// Floats that integers are made of.
trait Truncate: Copy {
    fn to_i32(self) -> i32;
    fn to_i64(self) -> i64;
    /// As x86 without AVX-512 does it: in two halves, joined by their bits.
    fn to_u64(self) -> u64;
}

macro_rules! truncate {
    ($t:ty, $below_i32:expr) => {
        impl Truncate for $t {
            #[inline(always)]
            fn to_i32(self) -> i32 {
                let (above, below) = (self > $below_i32, self < 2_147_483_648.0);
                let held = if above && below { self } else { -2_147_483_648.0 };
                // SAFETY: the number is in the range of int32.
                unsafe { held.to_int_unchecked() }
            }
            #[inline(always)]
            fn to_i64(self) -> i64 {
                let (above, below) = (self >= -9_223_372_036_854_775_808.0, self < 9_223_372_036_854_775_808.0);
                let held = if above && below { self } else { -9_223_372_036_854_775_808.0 };
                // SAFETY: the number is in the range of int64.
                unsafe { held.to_int_unchecked() }
            }
            #[inline(always)]
            fn to_u64(self) -> u64 {
                let (low, high) = (self.to_i64(), (self - 9_223_372_036_854_775_808.0).to_i64());
                (low | (high & (low >> 63))) as u64
            }
        }
    };
}
// The floats before -2^31 and the doubles that are truncated to it.
truncate!(f32, -2_147_483_904.0);
truncate!(f64, -2_147_483_649.0);

macro_rules! from_float {
    ($isa:ident, $to:ident, $t:ty, $small:tt) => {
        match $to {
            DataType::Float => Some(op1!($isa, $t => f32, $small, |x| x as f32)),
            DataType::Double => Some(op1!($isa, $t => f64, 8, |x| x as f64)),
            DataType::Int8 => Some(op1!($isa, $t => i8, $small, |x| x.to_i32() as i8)),
            DataType::Int16 => Some(op1!($isa, $t => i16, 0, |x| x.to_i32() as i16)),
            DataType::Int32 => Some(op1!($isa, $t => i32, $small, |x| x.to_i32())),
            DataType::Int64 => Some(op1!($isa, $t => i64, 8, |x| x.to_i64())),
            DataType::Uint8 => Some(op1!($isa, $t => u8, $small, |x| x.to_i32() as u8)),
            DataType::Uint16 => Some(op1!($isa, $t => u16, 0, |x| x.to_i32() as u16)),
            DataType::Uint32 => Some(op1!($isa, $t => u32, 0, |x| x.to_i64() as u32)),
            DataType::Uint64 => Some(op1!($isa, $t => u64, 0, |x| x.to_u64())),
            DataType::Bool => Some(op1!($isa, $t => u8, $small, |x| u8::from(x != 0.0))),
            _ => None,
        }
    };
}

/// From an integer, with blocks of `$small` or `$large` bytes to the types that are not rare.
macro_rules! from_integer {
    ($isa:ident, $to:ident, $t:ty, $small:tt, $large:tt) => {
        match $to {
            DataType::Float => Some(op1!($isa, $t => f32, $small, |x| x as f32)),
            DataType::Double => Some(op1!($isa, $t => f64, $large, |x| x as f64)),
            DataType::Int8 => Some(op1!($isa, $t => i8, 0, |x| x as i8)),
            DataType::Int16 => Some(op1!($isa, $t => i16, 0, |x| x as i16)),
            DataType::Int32 => Some(op1!($isa, $t => i32, $small, |x| x as i32)),
            DataType::Int64 => Some(op1!($isa, $t => i64, $large, |x| x as i64)),
            DataType::Uint8 => Some(op1!($isa, $t => u8, $small, |x| x as u8)),
            DataType::Uint16 => Some(op1!($isa, $t => u16, 0, |x| x as u16)),
            DataType::Uint32 => Some(op1!($isa, $t => u32, 0, |x| x as u32)),
            DataType::Uint64 => Some(op1!($isa, $t => u64, 0, |x| x as u64)),
            DataType::Bool => Some(op1!($isa, $t => u8, $small, |x| u8::from(x != 0))),
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
        (DataType::Float, _) => from_float!(isa, to, f32, 4),
        (DataType::Double, _) => from_float!(isa, to, f64, 8),
        (DataType::Int8, _) => from_integer!(isa, to, i8, 4, 0),
        (DataType::Int16, _) => from_integer!(isa, to, i16, 0, 0),
        (DataType::Int32, _) => from_integer!(isa, to, i32, 4, 8),
        (DataType::Int64, _) => from_integer!(isa, to, i64, 8, 8),
        (DataType::Uint8 | DataType::Bool, _) => from_integer!(isa, to, u8, 4, 8),
        (DataType::Uint16, _) => from_integer!(isa, to, u16, 0, 0),
        (DataType::Uint32, _) => from_integer!(isa, to, u32, 0, 0),
        (DataType::Uint64, _) => from_integer!(isa, to, u64, 0, 0),
        _ => None,
    }
}
