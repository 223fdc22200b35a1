//! Sizes of tensors.

use plimsoll_base::{Error, Result};

/// The number of elements of a shape.
///
/// # Errors
/// INVALID_ARGUMENT where their bytes (16 each at most, twice) could not be addressed.
pub fn elements(shape: &[u64]) -> Result<usize> {
    // Zero dimensions count as one here, so that any part of the shape can be multiplied safely as well.
    let most = shape.iter().try_fold(1u64, |product, size| product.checked_mul((*size).max(1)));
    match most {
        Some(most) if most <= (isize::MAX as u64) / 32 => Ok(shape.iter().product::<u64>() as usize),
        _ => Err(Error::invalid_argument(format!("the shape {shape:?} has more elements than memory can hold"))),
    }
}

/// Floats as their bits: no text has all of them.
pub(crate) mod bits {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(value: &f32, serializer: S) -> Result<S::Ok, S::Error> {
        value.to_bits().serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f32, D::Error> {
        u32::deserialize(deserializer).map(f32::from_bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_beyond_memory_are_refused() {
        assert_eq!(elements(&[]).unwrap(), 1);
        assert_eq!(elements(&[2, 0, 3]).unwrap(), 0);
        assert!(elements(&[u64::MAX, 2]).is_err());
        assert!(elements(&[1 << 40, 0, 1 << 40]).is_err());
    }
}
