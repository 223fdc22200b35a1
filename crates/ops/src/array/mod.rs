//! Shapes and the movement of elements.

use plimsoll_base::Result;
use plimsoll_graph::{NodeId, Output, PartialShape};

use crate::fusion::Fusion;
use crate::variable::shape_tensor;
use crate::{GraphBuilder, InferCx, OpRules};

pub mod bitcast;
pub mod broadcast;
pub mod check_numerics;
pub mod concat;
pub mod dynamic_slice;
pub mod dynamic_stitch;
pub mod fill;
pub mod gather;
pub mod gather_nd;
pub mod identity;
pub mod inplace;
pub mod matrix_band_part;
pub mod matrix_diag;
pub mod mirror_pad;
pub mod one_hot;
pub mod pack;
pub mod pad;
pub mod reshape;
pub mod reverse;
pub mod reverse_sequence;
pub mod roll;
pub mod scatter_nd;
pub mod search_sorted;
pub mod shape;
pub mod slice;
pub mod space_batch;
pub mod space_depth;
pub mod sparse_to_dense;
pub mod split;
pub mod strided_slice;
pub mod tile;
pub mod transpose;

/// The fusions of this family, in the order in which they are tried.
pub const FUSIONS: &[&[Fusion]] = &[space_batch::FUSIONS];

/// The rules of this family.
pub const RULES: &[&[OpRules]] = &[
    bitcast::RULES,
    broadcast::RULES,
    check_numerics::RULES,
    concat::RULES,
    dynamic_slice::RULES,
    dynamic_stitch::RULES,
    fill::RULES,
    gather::RULES,
    gather_nd::RULES,
    identity::RULES,
    inplace::RULES,
    matrix_band_part::RULES,
    matrix_diag::RULES,
    mirror_pad::RULES,
    one_hot::RULES,
    pack::RULES,
    pad::RULES,
    reshape::RULES,
    reverse::RULES,
    reverse_sequence::RULES,
    roll::RULES,
    scatter_nd::RULES,
    search_sorted::RULES,
    shape::RULES,
    slice::RULES,
    space_batch::RULES,
    space_depth::RULES,
    sparse_to_dense::RULES,
    split::RULES,
    strided_slice::RULES,
    tile::RULES,
    transpose::RULES,
];

/// The gradient of each output is that of the input with the same number.
pub(crate) fn pass_gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    let mut to_inputs = gradients.to_vec();
    to_inputs.resize(builder.node(node).inputs.len(), None);
    Ok(to_inputs)
}

/// Output `index` is `shape` as a vector: its elements where they are known, its length where the rank is.
pub(crate) fn shape_value(cx: &mut InferCx<'_>, index: usize, shape: &PartialShape) -> Result<()> {
    match shape.complete() {
        Some(shape) => {
            let value = shape_tensor(&shape, cx.outputs[index].data_type)?;
            cx.set_value(index, value);
        }
        None => {
            let length = shape.0.as_ref().map(|dims| dims.len() as u64);
            cx.set_dims(index, vec![length]);
        }
    }
    Ok(())
}
