//! Machine code for each step of an expression: a loop over a tile, compiled for every instruction set.

#[macro_use]
mod loops;
mod cast;
mod complex;
mod float;
mod integer;
mod logic;

use plimsoll_base::DataType;
use plimsoll_device::Fault;

use crate::simd::Isa;
use plimsoll_request::expr::{BinaryOp, Scalar, UnaryOp};

/// `(n, a, b, c, out)`: computes `n` elements. The operands that a step has not are not looked at. `out` may be the same
/// address as an operand with elements of the same size; otherwise they do not overlap.
///
/// Safety: the operands hold `n` initialised elements of the step's types, and `out` has room for `n`. All are aligned to the
/// element. The processor has the instruction set that the function was chosen for.
pub(crate) type StepFn = unsafe fn(usize, *const u8, *const u8, *const u8, *mut u8) -> Status;

/// 0, or the error.
pub(crate) type Status = u32;

pub(crate) const OK: Status = 0;
pub(crate) const DIVISION_BY_ZERO: Status = 1;
pub(crate) const NEGATIVE_POWER: Status = 2;

/// The fault that a status means.
#[cold]
pub(crate) fn fault(status: Status) -> Fault {
    match status {
        NEGATIVE_POWER => Fault::invalid("Integers to negative integer powers are not allowed", [0, 0]),
        _ => Fault::invalid("Integer division by zero", [0, 0]),
    }
}

/// The loop of an operation on one value.
pub(crate) fn unary(op: UnaryOp, data_type: DataType, isa: Isa) -> Option<StepFn> {
    match data_type {
        DataType::Float => float::unary_f32(op, isa),
        DataType::Double => float::unary_f64(op, isa),
        DataType::Int32 => integer::unary_i32(op, isa),
        DataType::Int64 => integer::unary_i64(op, isa),
        DataType::Int8 => integer::unary_i8(op, isa),
        DataType::Int16 => integer::unary_i16(op, isa),
        DataType::Uint8 => integer::unary_u8(op, isa),
        DataType::Uint16 => integer::unary_u16(op, isa),
        DataType::Uint32 => integer::unary_u32(op, isa),
        DataType::Uint64 => integer::unary_u64(op, isa),
        DataType::Bool => logic::unary(op, isa),
        DataType::Complex64 => complex::part_of_c64(op, isa),
        DataType::Complex128 => complex::part_of_c128(op, isa),
        _ => None,
    }
}

/// The loop of an operation on two values.
pub(crate) fn binary(op: BinaryOp, data_type: DataType, isa: Isa) -> Option<StepFn> {
    match data_type {
        DataType::Float => float::binary_f32(op, isa),
        DataType::Double => float::binary_f64(op, isa),
        DataType::Int32 => integer::binary_i32(op, isa),
        DataType::Int64 => integer::binary_i64(op, isa),
        DataType::Int8 => integer::binary_i8(op, isa),
        DataType::Int16 => integer::binary_i16(op, isa),
        DataType::Uint8 => integer::binary_u8(op, isa),
        DataType::Uint16 => integer::binary_u16(op, isa),
        DataType::Uint32 => integer::binary_u32(op, isa),
        DataType::Uint64 => integer::binary_u64(op, isa),
        DataType::Bool => logic::binary(op, isa),
        _ => None,
    }
}

/// The loop on one value with the same results as the power with this exponent, bit by bit; for some exponents.
pub(crate) fn power(exponent: Scalar, isa: Isa) -> Option<StepFn> {
    match exponent {
        Scalar::F32(exponent) => float::power_f32(exponent, isa),
        _ => None,
    }
}

/// The loop of a choice between two values of elements with `size` bytes.
pub(crate) fn select(size: usize, isa: Isa) -> Option<StepFn> {
    Some(match size {
        1 => loops::select::<u8, 64, 32, 16>(isa),
        2 => loops::select::<u16, 32, 16, 8>(isa),
        4 => loops::select::<u32, 16, 8, 4>(isa),
        8 => loops::select::<u64, 8, 4, 2>(isa),
        _ => return None,
    })
}

/// The loop that converts.
pub(crate) fn cast(from: DataType, to: DataType, isa: Isa) -> Option<StepFn> {
    cast::cast(from, to, isa)
}

/// The loop that copies elements with `size` bytes.
pub(crate) fn copy(size: usize) -> Option<StepFn> {
    Some(match size {
        1 => loops::copy::<u8>,
        2 => loops::copy::<u16>,
        4 => loops::copy::<u32>,
        8 => loops::copy::<u64>,
        16 => loops::copy::<[u64; 2]>,
        _ => return None,
    })
}
