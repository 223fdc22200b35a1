//! BatchMatMulV2 and BatchMatMul: products of matrices in pairs, the leading dimensions broadcasting.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{AttrValue, AttrsExt, NodeId, Output, PartialShape};
use plimsoll_request::anchor::Anchor;
use plimsoll_request::product::ProductSpec;

use crate::gradient::{Grad, from_one};
use crate::infer::broadcast_shapes;
use crate::registry::Gradient;
use crate::{AnchorCall, GraphBuilder, InferCx, KernelCx, Lower, OpRules};

/// The rules of BatchMatMulV2 and BatchMatMul.
pub const RULES: &[OpRules] = &[
    OpRules { name: "BatchMatMulV2", infer, lower: Lower::Anchor(product), gradient: Gradient::Rule(gradient) },
    OpRules { name: "BatchMatMul", infer, lower: Lower::Anchor(product), gradient: Gradient::Rule(gradient) },
];

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let (adj_x, adj_y) = (cx.attrs().bool("adj_x")?, cx.attrs().bool("adj_y")?);
    let (Some(x), Some(y)) = (cx.with_rank_at_least(0, 2)?, cx.with_rank_at_least(1, 2)?) else { return Ok(()) };
    let ((batch_x, matrix_x), (batch_y, matrix_y)) = (x.split_at(x.len() - 2), y.split_at(y.len() - 2));
    if let (Some(p), Some(q)) = (matrix_x[usize::from(!adj_x)], matrix_y[usize::from(adj_y)])
        && p != q
    {
        return Err(Error::invalid_argument(format!("Matrix size-incompatible: In[0]: {}, In[1]: {}", cx.shape(0), cx.shape(1))));
    }
    let batch = |dims: &[Option<u64>]| PartialShape(Some(dims.to_vec()));
    let together = broadcast_shapes(&batch(batch_x), &batch(batch_y)).map_err(|_| {
        Error::invalid_argument(format!("In[0] and In[1] must have compatible batch dimensions: {} vs. {}", cx.shape(0), cx.shape(1)))
    })?;
    let mut dims = together.0.unwrap_or_default();
    dims.extend([matrix_x[usize::from(adj_x)], matrix_y[usize::from(!adj_y)]]);
    cx.set_dims(0, dims);
    Ok(())
}

fn product(cx: &KernelCx<'_>) -> Result<AnchorCall> {
    let (transpose_a, transpose_b) = (cx.attrs().bool("adj_x")?, cx.attrs().bool("adj_y")?);
    let (x, y, out) = (cx.dims(0), cx.dims(1), cx.outputs[0].shape.dims());
    let rank = out.len();
    if x[..x.len() - 2] != y[..y.len() - 2] {
        return Err(Error::unimplemented(format!(
            "not yet: batches of matrices that broadcast, {} and {}",
            cx.inputs[0].shape, cx.inputs[1].shape
        )));
    }
    let batch = out[..rank - 2].iter().product();
    let k = x[x.len() - 2 + usize::from(!transpose_a)];
    let spec = ProductSpec { m: out[rank - 2], n: out[rank - 1], k, transpose_a, transpose_b, batch };
    Ok(AnchorCall { anchor: Anchor::Product(cx.inputs[0].data_type, spec), inputs: [0, 1] })
}

fn gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, gradient| {
        let (x, y) = (g.input(0), g.input(1));
        let (to_x, to_y) = match (g.attrs().bool("adj_x")?, g.attrs().bool("adj_y")?) {
            (false, false) => (multiply(g, gradient, y, false, true)?, multiply(g, x, gradient, true, false)?),
            (false, true) => (multiply(g, gradient, y, false, false)?, multiply(g, gradient, x, true, false)?),
            (true, false) => (multiply(g, y, gradient, false, true)?, multiply(g, x, gradient, false, false)?),
            (true, true) => (multiply(g, y, gradient, true, true)?, multiply(g, gradient, x, true, true)?),
        };
        reduce_batches(g, [x, y], [to_x, to_y])
    })
}

fn multiply(g: &mut Grad<'_>, x: Output, y: Output, adj_x: bool, adj_y: bool) -> Result<Output> {
    g.op_with("BatchMatMulV2", &[x, y], &[("adj_x", AttrValue::Bool(adj_x)), ("adj_y", AttrValue::Bool(adj_y))])
}

/// Sums gradients over the leading dimensions along which an operand was repeated.
fn reduce_batches(g: &mut Grad<'_>, operands: [Output; 2], gradients: [Output; 2]) -> Result<Vec<Option<Output>>> {
    let batch = |g: &Grad<'_>, operand: Output| -> Option<Vec<u64>> {
        let dims = g.shape_of(operand).0?;
        dims[..dims.len().checked_sub(2)?].iter().copied().collect()
    };
    let (batch_x, batch_y) = (batch(g, operands[0]), batch(g, operands[1]));
    let matrices = operands.iter().all(|operand| g.rank_of(*operand) == Some(2));
    if matrices || (batch_x.is_some() && batch_x == batch_y) {
        return Ok(gradients.map(Some).to_vec());
    }
    let mut shapes = Vec::with_capacity(2);
    let mut leading = Vec::with_capacity(2);
    for operand in operands {
        let shape = g.shape(operand)?;
        let (begin, end, step) = (g.ints(&[0])?, g.ints(&[-2])?, g.ints(&[1])?);
        leading.push(g.op_with("StridedSlice", &[shape, begin, end, step], &[("begin_mask", AttrValue::Int(1))])?);
        shapes.push(shape);
    }
    let axes = g.op("BroadcastGradientArgs", &[leading[0], leading[1]])?;
    let mut reduced = Vec::with_capacity(2);
    for side in 0..2 {
        let sum = g.sum(gradients[side], Output { index: side as u32, ..axes }, false)?;
        reduced.push(Some(g.reshape(sum, shapes[side])?));
    }
    Ok(reduced)
}
