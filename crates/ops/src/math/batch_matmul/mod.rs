//! BatchMatMulV3, BatchMatMulV2 and BatchMatMul: products of matrices in pairs, the leading dimensions broadcasting.

mod fusion;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{AttrValue, AttrsExt, NodeId, Output, PartialShape};
use plimsoll_request::expr::ExprBuilder;
use plimsoll_request::product::ProductSpec;

use crate::gradient::{Grad, from_one};
use crate::infer::{broadcast_shapes, count};
use crate::math::contraction::{Labelled, contract};
use crate::math::product::{in_parts, product};
use crate::recipe::Ingredient;
use crate::registry::Gradient;
use crate::{GraphBuilder, InferCx, KernelCx, Lower, OpRules, Recipe};

pub use fusion::FUSIONS;

/// The rules of BatchMatMulV3, BatchMatMulV2 and BatchMatMul.
pub const RULES: &[OpRules] = &[
    OpRules { name: "BatchMatMulV3", infer, lower: Lower::Recipe(recipe), gradient: Gradient::Rule(gradient) },
    OpRules { name: "BatchMatMulV2", infer, lower: Lower::Recipe(recipe), gradient: Gradient::Rule(gradient) },
    OpRules { name: "BatchMatMul", infer, lower: Lower::Recipe(recipe), gradient: Gradient::Rule(gradient) },
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

fn recipe(cx: &KernelCx<'_>) -> Result<Recipe> {
    let (transpose_a, transpose_b) = (cx.attrs().bool("adj_x")?, cx.attrs().bool("adj_y")?);
    let conj = [transpose_a, transpose_b];
    let mut recipe = Recipe::new();
    let data_type = cx.outputs[0].data_type;
    let (x, y) = (recipe.input(cx, 0), recipe.input(cx, 1));
    let (x, y) = (cast(&mut recipe, x, data_type)?, cast(&mut recipe, y, data_type)?);
    let out = cx.outputs[0].shape.dims();
    let batch = out.len() - 2;
    let (batch_x, matrix_x) = x.dims().split_at(x.dims().len() - 2);
    let (batch_y, matrix_y) = y.dims().split_at(y.dims().len() - 2);
    if batch_x == batch_y {
        let k = matrix_x[usize::from(!transpose_a)];
        let many = count(batch_x);
        let spec = ProductSpec { m: out[batch], n: out[batch + 1], k, transpose_a, transpose_b, batch: many, places: None };
        let result = product(&mut recipe, spec, [x, y], conj, out.to_vec())?;
        return Ok(recipe.finish([result]));
    }
    // Labels: the leading dimensions, the rows, the columns, the terms.
    let (rows, columns, terms) = (batch, batch + 1, batch + 2);
    let of_x = if transpose_a { [terms, rows] } else { [rows, terms] };
    let of_y = if transpose_b { [columns, terms] } else { [terms, columns] };
    let labels = |leading: usize, matrix: [usize; 2]| (batch - leading..batch).chain(matrix).collect::<Vec<usize>>();
    let (labels_x, labels_y) = (labels(batch_x.len(), of_x), labels(batch_y.len(), of_y));
    let sizes = [out, &[matrix_y[usize::from(transpose_b)]]].concat();
    let out: Vec<usize> = (0..out.len()).collect();
    let result = in_parts(&mut recipe, [x, y], conj, |recipe, [x, y]| {
        let operands = [Labelled { tensor: x, labels: labels_x.clone() }, Labelled { tensor: y, labels: labels_y.clone() }];
        contract(recipe, operands, &out, &sizes)
    })?;
    Ok(recipe.finish([result]))
}

/// A factor in the type of the result: those of BatchMatMulV3 may be narrower.
fn cast(recipe: &mut Recipe, factor: Ingredient, data_type: DataType) -> Result<Ingredient> {
    if factor.data_type() == data_type {
        return Ok(factor);
    }
    let mut builder = ExprBuilder::new();
    let x = builder.input(factor.data_type())?;
    let result = builder.cast(data_type, x)?;
    let shape = factor.meta.shape.clone();
    Ok(recipe.expression(builder.finish(vec![result]), [factor], shape).swap_remove(0))
}

fn gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, gradient| {
        let (x, y) = (g.input(0), g.input(1));
        let (adj_x, adj_y) = (g.attrs().bool("adj_x")?, g.attrs().bool("adj_y")?);
        let types = [x, y].map(|factor| g.data_type(factor));
        let mut multiply = |side: usize, left, right, adj_x: bool, adj_y: bool| {
            let mut attrs = vec![("adj_x", AttrValue::Bool(adj_x)), ("adj_y", AttrValue::Bool(adj_y))];
            if types == [g.data_type(gradient); 2] {
                return g.op_with("BatchMatMulV2", &[left, right], &attrs);
            }
            attrs.push(("Tout", AttrValue::data_type(types[side])));
            g.op_with("BatchMatMulV3", &[left, right], &attrs)
        };
        let (to_x, to_y) = match (adj_x, adj_y) {
            (false, false) => (multiply(0, gradient, y, false, true)?, multiply(1, x, gradient, true, false)?),
            (false, true) => (multiply(0, gradient, y, false, false)?, multiply(1, gradient, x, true, false)?),
            (true, false) => (multiply(0, y, gradient, false, true)?, multiply(1, x, gradient, false, false)?),
            (true, true) => (multiply(0, y, gradient, true, true)?, multiply(1, gradient, x, true, true)?),
        };
        reduce_batches(g, [x, y], [to_x, to_y])
    })
}

/// Sums gradients over the leading dimensions along which an operand was repeated.
pub(crate) fn reduce_batches(g: &mut Grad<'_>, operands: [Output; 2], gradients: [Output; 2]) -> Result<Vec<Option<Output>>> {
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
