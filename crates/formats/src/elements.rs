//! The elements of a tensor as a stream of bytes, without making a compressed tensor whole.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{HostTensor, TensorData};

/// Hands the raw little-endian bytes of all elements to `put`, in order, in pieces.
///
/// # Errors
/// UNIMPLEMENTED for strings and opaque tensors; the error of `put`.
pub(crate) fn for_each_piece(tensor: &HostTensor, mut put: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
    match (tensor.data(), tensor.data_type().size()) {
        (TensorData::Dense(_), _) => put(tensor.bytes().unwrap_or_default()),
        (TensorData::Panels(_), _) => put(tensor.dense()?.bytes().unwrap_or_default()),
        (TensorData::Repeated(leading), Some(size)) => {
            put(leading)?;
            let last = &leading[leading.len() - size..];
            let block = last.repeat(1 << 12);
            let mut left = tensor.byte_len() - leading.len() as u64;
            while left > 0 {
                let length = left.min(block.len() as u64);
                put(&block[..length as usize])?;
                left -= length;
            }
            Ok(())
        }
        _ => Err(Error::unimplemented(format!("a {} tensor has no elements of fixed size", tensor.data_type()))),
    }
}

/// Turns the bytes of each number around, between little- and big-endian; `size` is that of a number, not of a complex pair.
pub(crate) fn swap_bytes(bytes: &mut [u8], size: usize) {
    if size > 1 {
        bytes.chunks_exact_mut(size).for_each(<[u8]>::reverse);
    }
}
