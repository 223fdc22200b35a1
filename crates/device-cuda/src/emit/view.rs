//! Views: where the elements of a shape are in a tensor.

use plimsoll_base::{Error, Result};

/// Dimensions of a shape and, for each of some tensors, the stride of that dimension; joined where all tensors allow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Joined {
    /// The sizes, none of them 1.
    pub sizes: Vec<u64>,
    /// For each tensor, a stride for each dimension; 0 where it is repeated.
    pub strides: Vec<Vec<u64>>,
}

/// Operands that broadcast to a shape, with as few dimensions as possible.
///
/// # Errors
/// INVALID_ARGUMENT where they do not.
pub(super) fn broadcast(shape: &[u64], operands: &[Vec<u64>]) -> Result<Joined> {
    let fits = |operand: &Vec<u64>| {
        operand.len() <= shape.len() && operand.iter().rev().zip(shape.iter().rev()).all(|(from, to)| from == to || *from == 1)
    };
    if let Some(operand) = operands.iter().find(|operand| !fits(operand)) {
        return Err(Error::invalid_argument(format!("{operand:?} does not broadcast to {shape:?}")));
    }
    let strides: Vec<Vec<u64>> = operands
        .iter()
        .map(|operand| {
            let missing = shape.len() - operand.len();
            let mut strides = vec![0; shape.len()];
            let mut step = 1;
            for axis in (0..operand.len()).rev() {
                if operand[axis] != 1 {
                    strides[missing + axis] = step;
                }
                step *= operand[axis];
            }
            strides
        })
        .collect();
    Ok(join(shape, &strides))
}

/// The same with fewer dimensions: those of size 1 are dropped, and neighbours become one where every tensor runs through both alike.
pub(super) fn join(sizes: &[u64], strides: &[Vec<u64>]) -> Joined {
    let mut joined = Joined { sizes: Vec::new(), strides: vec![Vec::new(); strides.len()] };
    for axis in (0..sizes.len()).filter(|axis| sizes[*axis] != 1) {
        let size = sizes[axis];
        let fits =
            joined.sizes.last().is_some() && (0..strides.len()).all(|of| joined.strides[of].last() == Some(&(strides[of][axis] * size)));
        if fits {
            let last = joined.sizes.len() - 1;
            joined.sizes[last] *= size;
            for (into, from) in joined.strides.iter_mut().zip(strides) {
                into[last] = from[axis];
            }
        } else {
            joined.sizes.push(size);
            for (into, from) in joined.strides.iter_mut().zip(strides) {
                into.push(from[axis]);
            }
        }
    }
    joined
}

/// Row-major strides.
pub(super) fn dense(shape: &[u64]) -> Vec<u64> {
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis];
    }
    strides
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_join_where_all_operands_allow() {
        let same = broadcast(&[2, 3, 4], &[vec![2, 3, 4], vec![2, 3, 4]]).unwrap();
        assert_eq!((same.sizes, same.strides), (vec![24], vec![vec![1], vec![1]]));
        let bias = broadcast(&[2, 3, 4], &[vec![2, 3, 4], vec![4]]).unwrap();
        assert_eq!((bias.sizes, bias.strides), (vec![6, 4], vec![vec![4, 1], vec![0, 1]]));
        let scalar = broadcast(&[2, 1, 4], &[vec![2, 1, 4], vec![]]).unwrap();
        assert_eq!((scalar.sizes, scalar.strides), (vec![8], vec![vec![1], vec![0]]));
        let rows = broadcast(&[2, 3, 4], &[vec![2, 1, 1], vec![3, 1]]).unwrap();
        assert_eq!((rows.sizes, rows.strides), (vec![2, 3, 4], vec![vec![1, 0, 0], vec![0, 1, 0]]));
        for operand in [vec![2], vec![1, 1, 1, 1], vec![3, 2]] {
            assert!(broadcast(&[2, 3, 4], &[operand]).is_err());
        }
    }
}
