//! Conversions. Floats to integers truncate towards zero and saturate, NaN gives 0; integers wrap; to bool asks `!= 0`.

use plimsoll_base::DataType;

use super::StepFn;
use crate::simd::Isa;

macro_rules! from {
    ($isa:ident, $to:ident, $t:ty, $small:tt, |$x:ident| $nonzero:expr) => {
        Some(match $to {
            DataType::Float => op1!($isa, $t => f32, $small, |x| x as f32),
            DataType::Double => op1!($isa, $t => f64, 8, |x| x as f64),
            DataType::Int32 => op1!($isa, $t => i32, $small, |x| x as i32),
            DataType::Int64 => op1!($isa, $t => i64, 8, |x| x as i64),
            DataType::Uint8 => op1!($isa, $t => u8, $small, |x| x as u8),
            DataType::Bool => op1!($isa, $t => u8, $small, |$x| u8::from($nonzero)),
            _ => return None,
        })
    };
}

pub(super) fn cast(from: DataType, to: DataType, isa: Isa) -> Option<StepFn> {
    match from {
        DataType::Float => from!(isa, to, f32, 4, |x| x != 0.0),
        DataType::Double => from!(isa, to, f64, 8, |x| x != 0.0),
        DataType::Int32 => from!(isa, to, i32, 4, |x| x != 0),
        DataType::Int64 => from!(isa, to, i64, 8, |x| x != 0),
        DataType::Uint8 | DataType::Bool => from!(isa, to, u8, 4, |x| x != 0),
        _ => None,
    }
}
