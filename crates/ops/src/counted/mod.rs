//! Operations whose results have as many elements as those of their inputs say. The host computes them between two stages of a run.

use plimsoll_base::{Bf16, DataType, Error, F16, Result};
use plimsoll_graph::{HostTensor, Shape};

use crate::infer::{InferFn, int_vector};
use crate::lower::CountedFn;
use crate::registry::Gradient;
use crate::{Lower, OpRules};

pub mod accidental_hits;
pub mod combined_non_max_suppression;
pub mod ctc_greedy_decoder;
pub mod dynamic_partition;
pub mod list_diff;
pub mod non_max_suppression;
pub mod ragged;
pub mod sparse_fill_empty_rows;
pub mod sparse_reshape;
pub mod unique;
#[path = "where.rs"]
pub mod where_;

/// The rules of this family.
pub const RULES: &[&[OpRules]] = &[
    accidental_hits::RULES,
    combined_non_max_suppression::RULES,
    ctc_greedy_decoder::RULES,
    dynamic_partition::RULES,
    list_diff::RULES,
    non_max_suppression::RULES,
    ragged::RULES,
    sparse_fill_empty_rows::RULES,
    sparse_reshape::RULES,
    unique::RULES,
    where_::RULES,
];

const fn rule(name: &'static str, infer: InferFn, compute: CountedFn) -> OpRules {
    OpRules { name, infer, lower: Lower::Counted(compute), gradient: Gradient::Stops }
}

/// The elements of a dense tensor, as bytes.
fn bytes(tensor: &HostTensor) -> Result<&[u8]> {
    tensor.bytes().ok_or_else(|| Error::unimplemented(format!("not yet: elements of {}", tensor.data_type())))
}

/// The elements of a tensor of floats.
fn floats(tensor: &HostTensor) -> Result<Vec<f32>> {
    match tensor.data_type() {
        DataType::Float => tensor.to_vec::<f32>(),
        DataType::Half => Ok(tensor.to_vec::<F16>()?.into_iter().map(F16::to_f32).collect()),
        DataType::Bfloat16 => Ok(tensor.to_vec::<Bf16>()?.into_iter().map(Bf16::to_f32).collect()),
        other => Err(Error::unimplemented(format!("not yet: {other} as floats"))),
    }
}

/// A tensor of floats of that type.
fn of_floats(values: &[f32], shape: Shape, data_type: DataType) -> Result<HostTensor> {
    match data_type {
        DataType::Float => HostTensor::from_slice(shape, values),
        DataType::Half => HostTensor::from_slice(shape, &values.iter().map(|value| F16::from_f32(*value)).collect::<Vec<F16>>()),
        DataType::Bfloat16 => HostTensor::from_slice(shape, &values.iter().map(|value| Bf16::from_f32(*value)).collect::<Vec<Bf16>>()),
        other => Err(Error::unimplemented(format!("not yet: floats as {other}"))),
    }
}

/// The one integer of a tensor.
fn int(tensor: &HostTensor, name: &str) -> Result<i64> {
    match tensor.to_i64s().as_deref() {
        Some([int]) => Ok(*int),
        _ => Err(Error::invalid_argument(format!("{name} must be 0-D, got shape {}", tensor.shape()))),
    }
}

/// The one float of a tensor.
fn float(tensor: &HostTensor, name: &str) -> Result<f32> {
    match floats(tensor)?[..] {
        [float] => Ok(float),
        _ => Err(Error::invalid_argument(format!("{name} must be 0-D, got shape {}", tensor.shape()))),
    }
}

/// Numbers of elements as a vector of int32 or int64.
fn indices(numbers: &[usize], data_type: DataType) -> Result<HostTensor> {
    int_vector(&numbers.iter().map(|number| *number as i64).collect::<Vec<i64>>(), data_type)
}

/// Bytes that are the same for equal numbers, and none for what is not a number and so equals nothing.
fn key(element: &[u8], data_type: DataType) -> Option<Vec<u8>> {
    let (sign, exponent, parts) = match data_type {
        DataType::Half => (1, 0x7c00, 2),
        DataType::Bfloat16 => (1, 0x7f80, 2),
        DataType::Float | DataType::Complex64 => (1, 0x7f80_0000, 4),
        DataType::Double | DataType::Complex128 => (1, 0x7ff0_0000_0000_0000u64, 8),
        _ => return Some(element.to_vec()),
    };
    let mut key = Vec::with_capacity(element.len());
    for part in element.chunks_exact(parts) {
        let mut bits = [0; 8];
        bits[..parts].copy_from_slice(part);
        let bits = u64::from_le_bytes(bits);
        let size = bits & !(sign << (8 * parts - 1));
        if size > exponent {
            return None;
        }
        let bits = if size == 0 { 0 } else { bits };
        key.extend_from_slice(&bits.to_le_bytes()[..parts]);
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_equal_and_what_is_no_number_equals_nothing() {
        let key = |value: f32| key(&value.to_le_bytes(), DataType::Float);
        assert_eq!(key(0.0), key(-0.0));
        assert_ne!(key(1.0), key(-1.0));
        assert!(key(f32::NAN).is_none() && key(f32::INFINITY).is_some());
    }
}
