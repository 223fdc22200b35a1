//! Reshape, ExpandDims, Squeeze: the same elements in another shape.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{AttrsExt, NodeId, Output, PartialShape};

use crate::gradient::from_one;
use crate::infer::of_rank;
use crate::registry::Gradient;
use crate::{GraphBuilder, InferCx, Lower, OpRules};

/// The rules of Reshape, ExpandDims and Squeeze.
pub const RULES: &[OpRules] = &[
    OpRules { name: "Reshape", infer: reshape, lower: Lower::Alias, gradient: Gradient::Rule(reshape_gradient) },
    OpRules { name: "ExpandDims", infer: expand_dims, lower: Lower::Alias, gradient: Gradient::Rule(to_input_shape) },
    OpRules { name: "Squeeze", infer: squeeze, lower: Lower::Alias, gradient: Gradient::Rule(to_input_shape) },
];

fn reshape(cx: &mut InferCx<'_>) -> Result<()> {
    let shape = match cx.ints(1) {
        Some(sizes) => resolve(cx.shape(0), &sizes)?,
        None if cx.dims(1).is_some_and(<[_]>::is_empty) => of_rank(Some(1)),
        None => of_rank(cx.vector_len(1)),
    };
    cx.set(0, shape);
    Ok(())
}

/// The shape that `sizes` ask for; one of them may be −1, for the rest. Zeros are left out of that division.
fn resolve(input: &PartialShape, sizes: &[i64]) -> Result<PartialShape> {
    let overflow = || Error::invalid_argument("the requested shape has more than 2^63 elements");
    let (mut wildcard, mut product, mut dims) = (None, 1u64, Vec::with_capacity(sizes.len()));
    for (position, &size) in sizes.iter().enumerate() {
        if size == -1 {
            if let Some(first) = wildcard.replace(position) {
                return Err(Error::invalid_argument(format!("Only one input size may be -1, not both {first} and {position}")));
            }
            dims.push(None);
            continue;
        }
        let size = u64::try_from(size).map_err(|_| Error::invalid_argument(format!("Size {position} must be non-negative, not {size}")))?;
        product = product.checked_mul(size.max(1)).ok_or_else(overflow)?;
        dims.push(Some(size));
    }
    let Some(input) = input.complete() else { return Ok(PartialShape(Some(dims))) };
    let elements = input.elements()?;
    if let Some(wildcard) = wildcard {
        // Where a zero is asked for, those of the input are left out too; otherwise nothing is left of nothing.
        let to_share = if sizes.contains(&0) {
            input.iter().try_fold(1u64, |product, dim| product.checked_mul((*dim).max(1))).ok_or_else(overflow)?
        } else {
            elements
        };
        if elements > 0 && !to_share.is_multiple_of(product) {
            return Err(Error::invalid_argument(format!(
                "Input to reshape is a tensor with {elements} values, but the requested shape requires a multiple of {product}"
            )));
        }
        dims[wildcard] = Some(to_share / product);
    }
    let shape = PartialShape(Some(dims));
    let requested = shape.complete().map_or(Ok(elements), |shape| shape.elements())?;
    if requested != elements {
        return Err(Error::invalid_argument(format!(
            "Input to reshape is a tensor with {elements} values, but the requested shape has {requested}"
        )));
    }
    Ok(shape)
}

fn expand_dims(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dims) = cx.dims(0) else { return Ok(()) };
    let Some(axis) = cx.int(1) else {
        cx.set(0, of_rank(Some(dims.len() + 1)));
        return Ok(());
    };
    let (rank, position) = (dims.len() as i64, if axis < 0 { axis + dims.len() as i64 + 1 } else { axis });
    if !(0..=rank).contains(&position) {
        return Err(Error::invalid_argument(format!("Tried to expand dim index {axis} for tensor with {rank} dimensions.")));
    }
    let mut dims = dims.to_vec();
    dims.insert(position as usize, Some(1));
    cx.set_dims(0, dims);
    Ok(())
}

fn squeeze(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dims) = cx.dims(0) else { return Ok(()) };
    let axes = &cx.attrs().list("squeeze_dims")?.ints;
    let mut drop = vec![false; dims.len()];
    for &axis in axes {
        let position = if axis < 0 { axis + dims.len() as i64 } else { axis };
        let dim = usize::try_from(position).ok().and_then(|position| Some((position, dims.get(position)?)));
        let (position, dim) = dim.ok_or_else(|| {
            Error::invalid_argument(format!("Tried to squeeze dim index {axis} for tensor with {} dimensions.", dims.len()))
        })?;
        if let Some(size) = dim.filter(|size| *size != 1) {
            return Err(Error::invalid_argument(format!("Can not squeeze dim[{position}], expected a dimension of 1, got {size}")));
        }
        drop[position] = true;
    }
    if axes.is_empty() {
        if dims.contains(&None) {
            return Ok(());
        }
        drop.iter_mut().zip(dims).for_each(|(drop, dim)| *drop = *dim == Some(1));
    }
    let kept = dims.iter().zip(drop).filter(|(_, drop)| !drop).map(|(dim, _)| *dim).collect();
    cx.set_dims(0, kept);
    Ok(())
}

/// One dimension that is not known is spelled −1, so that no Shape is needed.
fn reshape_gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, gradient| {
        let input = g.shape_of(g.input(0));
        let open = input.0.as_ref().filter(|dims| dims.iter().filter(|dim| dim.is_none()).count() == 1 && !dims.contains(&Some(0)));
        let shape = match open {
            Some(dims) => g.ints(&dims.iter().map(|dim| dim.map_or(-1, |dim| dim as i64)).collect::<Vec<_>>())?,
            None => g.shape(g.input(0))?,
        };
        Ok(vec![Some(g.reshape(gradient, shape)?), None])
    })
}

fn to_input_shape(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, gradient| {
        let shape = g.shape(g.input(0))?;
        let mut result = vec![None; g.input_count()];
        result[0] = Some(g.reshape(gradient, shape)?);
        Ok(result)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wildcard_takes_what_is_left() {
        let dims = |dims: &[Option<u64>]| PartialShape(Some(dims.to_vec()));
        let input = dims(&[Some(2), Some(6)]);
        assert_eq!(resolve(&input, &[-1, 4]).unwrap(), dims(&[Some(3), Some(4)]));
        assert_eq!(resolve(&dims(&[None, Some(6)]), &[-1, 3]).unwrap(), dims(&[None, Some(3)]));
        assert_eq!(resolve(&dims(&[Some(0), Some(3)]), &[0, -1]).unwrap(), dims(&[Some(0), Some(3)]));
        assert_eq!(resolve(&dims(&[Some(0), Some(3)]), &[-1, 5]).unwrap(), dims(&[Some(0), Some(5)]));
        assert_eq!(resolve(&dims(&[Some(0), Some(3)]), &[-1, 3]).unwrap(), dims(&[Some(0), Some(3)]));
        assert_eq!(resolve(&PartialShape::unknown(), &[2, -1]).unwrap(), dims(&[Some(2), None]));
        assert!(resolve(&PartialShape::unknown(), &[i64::MAX, i64::MAX]).is_err());
    }
}
