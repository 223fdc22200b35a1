//! Where: the indices of the elements that are true, or not zero.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{HostTensor, Node, Shape};

use super::{bytes, rule};
use crate::OpRules;
use crate::infer::InferCx;

/// The rules of this family.
pub const RULES: &[OpRules] = &[rule("Where", infer, compute)];

/// TensorFlow's kernel has no case for more dimensions.
const MOST_RANK: usize = 8;

/// Of a float: its bytes, and the bits of its exponent among the last two. TensorFlow's kernels take a number without an exponent for
/// zero.
fn exponent(data_type: DataType) -> Option<(usize, u16)> {
    Some(match data_type {
        DataType::Half => (2, 0x7c00),
        DataType::Bfloat16 => (2, 0x7f80),
        DataType::Float | DataType::Complex64 => (4, 0x7f80),
        DataType::Double | DataType::Complex128 => (8, 0x7ff0),
        _ => return None,
    })
}

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dims) = cx.dims(0) else {
        cx.set_dims(0, vec![None, None]);
        return Ok(());
    };
    let rank = dims.len() as u64;
    cx.set_dims(0, vec![None, Some(rank)]);
    let all = cx.shape(0).complete().and_then(|shape| shape.elements().ok());
    cx.outputs[0].most = all.map(|all| Shape::from([all, rank]));
    Ok(())
}

fn compute(_node: &Node, inputs: &[&HostTensor]) -> Result<Vec<HostTensor>> {
    let tensor = inputs[0];
    let (elements, element) = (bytes(tensor)?, tensor.data_type().size().unwrap_or(1));
    let dims = tensor.shape().dims();
    if !(1..=MOST_RANK).contains(&dims.len()) {
        return Err(Error::invalid_argument(format!("WhereOp : Unhandled input dimensions: {}", dims.len())));
    }
    let data_type = tensor.data_type();
    let is_true = |bytes: &[u8]| match exponent(data_type) {
        Some((size, mask)) => bytes.chunks_exact(size).any(|part| {
            let top = u16::from_le_bytes([part[size - 2], part[size - 1]]);
            top & mask != 0
        }),
        None => bytes.iter().any(|byte| *byte != 0),
    };
    let mut found: Vec<i64> = Vec::new();
    let mut index = vec![0i64; dims.len()];
    for bytes in elements.chunks_exact(element) {
        if is_true(bytes) {
            found.extend_from_slice(&index);
        }
        for (axis, at) in index.iter_mut().enumerate().rev() {
            *at += 1;
            if *at < dims[axis] as i64 {
                break;
            }
            *at = 0;
        }
    }
    let rank = dims.len();
    Ok(vec![HostTensor::from_slice([(found.len() / rank) as u64, rank as u64], &found)?])
}
