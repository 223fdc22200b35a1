//! SpaceToBatchND, BatchToSpaceND and their older forms: blocks of positions become images of their own, and the way back.

mod fusion;

use plimsoll_base::{Error, Result};
use plimsoll_graph::{AttrsExt, NodeId, Output};
use plimsoll_request::movement::Movement;

use crate::gradient::from_one;
use crate::registry::Gradient;
use crate::{GraphBuilder, InferCx, KernelCx, Lower, OpRules, Recipe};

pub use fusion::FUSIONS;

/// The rules of SpaceToBatchND, BatchToSpaceND, SpaceToBatch and BatchToSpace.
pub const RULES: &[OpRules] = &[
    OpRules { name: "SpaceToBatchND", infer, lower: Lower::Recipe(space_to_batch), gradient: Gradient::Rule(gradient) },
    OpRules { name: "SpaceToBatch", infer, lower: Lower::Recipe(space_to_batch), gradient: Gradient::Rule(gradient) },
    OpRules { name: "BatchToSpaceND", infer: infer_back, lower: Lower::Recipe(batch_to_space), gradient: Gradient::Rule(gradient) },
    OpRules { name: "BatchToSpace", infer: infer_back, lower: Lower::Recipe(batch_to_space), gradient: Gradient::Rule(gradient) },
];

/// Sizes of blocks, and what is padded or cropped before and after, along each axis.
struct Blocks {
    sizes: Vec<u64>,
    borders: Vec<(u64, u64)>,
}

impl Blocks {
    fn new(sizes: &[i64], borders: &[i64], name: &str) -> Result<Blocks> {
        let positive = |size: &i64| {
            let size = u64::try_from(*size).ok().filter(|size| *size > 0);
            size.ok_or_else(|| Error::invalid_argument("All values in block_shape must be positive, one or more are non-positive."))
        };
        let side = |side: i64| {
            let words = || Error::invalid_argument(format!("{name} must be non-negative: {side}"));
            u64::try_from(side).map_err(|_| words())
        };
        if borders.len() != 2 * sizes.len() {
            let words = format!("{name} should have shape [{}, 2] instead of {} elements", sizes.len(), borders.len());
            return Err(Error::invalid_argument(words));
        }
        Ok(Blocks {
            sizes: sizes.iter().map(positive).collect::<Result<_>>()?,
            borders: borders.chunks_exact(2).map(|pair| Ok((side(pair[0])?, side(pair[1])?))).collect::<Result<_>>()?,
        })
    }

    /// How many blocks there are.
    fn count(&self) -> Result<u64> {
        let count = self.sizes.iter().try_fold(1u64, |count, size| count.checked_mul(*size));
        count.ok_or_else(|| Error::invalid_argument(format!("blocks of {:?} are too large", self.sizes)))
    }

    /// The size of each axis of a result: a function of the size, the block and the border.
    fn along(&self, dims: &mut [Option<u64>], of: impl Fn(usize, u64, u64, (u64, u64)) -> Result<u64>) -> Result<()> {
        for (axis, (size, border)) in self.sizes.iter().zip(&self.borders).enumerate() {
            dims[axis + 1] = dims[axis + 1].map(|dim| of(axis, dim, *size, *border)).transpose()?;
        }
        Ok(())
    }
}

/// The blocks of a node, where they are known: their sizes may be an attribute, and so one of two axes.
fn blocks_of(
    op: &str,
    block_size: Option<i64>,
    shape: impl FnOnce() -> Option<Vec<i64>>,
    borders: Option<Vec<i64>>,
) -> Result<Option<Blocks>> {
    let sizes = match block_size {
        Some(size) => Some(vec![size; 2]),
        None => shape(),
    };
    let name = if op.starts_with("Space") { "paddings" } else { "crops" };
    sizes.zip(borders).map(|(sizes, borders)| Blocks::new(&sizes, &borders, name)).transpose()
}

/// The input that has the paddings or crops.
fn borders_at(op: &str) -> usize {
    if op.ends_with("ND") { 2 } else { 1 }
}

fn block_size(cx: &InferCx<'_>) -> Result<Option<i64>> {
    if cx.node.op.ends_with("ND") { Ok(None) } else { cx.attrs().int("block_size").map(Some) }
}

/// The dimensions of the input, as far as they are known.
type Dims = Option<Vec<Option<u64>>>;

/// The dimensions of the input with the blocks, as far as both are known.
fn known(cx: &InferCx<'_>) -> Result<(Dims, Option<Blocks>)> {
    let at = borders_at(&cx.node.op);
    if let Some(dims) = cx.dims(at)
        && (dims.len() != 2 || dims[1].is_some_and(|two| two != 2))
    {
        return Err(Error::invalid_argument(format!("borders must be a matrix with 2 columns, got shape {}", cx.shape(at))));
    }
    let blocks = blocks_of(&cx.node.op, block_size(cx)?, || cx.ints(1), cx.ints(at))?;
    let axes = blocks.as_ref().map(|blocks| blocks.sizes.len()).or_else(|| if at == 1 { Some(2) } else { cx.vector_len(1) });
    if let (Some(dims), Some(axes)) = (cx.dims(0), axes)
        && dims.len() < 1 + axes
    {
        return Err(Error::invalid_argument(format!("input rank should be >= {} instead of {}", 1 + axes, dims.len())));
    }
    Ok((cx.dims(0).map(<[_]>::to_vec), blocks))
}

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let (dims, blocks) = known(cx)?;
    let Some(mut dims) = dims else { return Ok(()) };
    let Some(blocks) = blocks else {
        let trailing = if borders_at(&cx.node.op) == 1 { Some(2) } else { cx.vector_len(1) };
        return unknown_axes(cx, dims, trailing);
    };
    let count = blocks.count()?;
    let too_large = || Error::invalid_argument("the padded shape overflows");
    dims[0] = dims[0].map(|batch| batch.checked_mul(count).ok_or_else(too_large)).transpose()?;
    blocks.along(&mut dims, |axis, dim, size, (before, after)| {
        let padded = dim.checked_add(before).and_then(|dim| dim.checked_add(after)).ok_or_else(too_large)?;
        if !padded.is_multiple_of(size) {
            let words = format!("padded_shape[{axis}]={padded} is not divisible by block_shape[{axis}]={size}");
            return Err(Error::invalid_argument(words));
        }
        Ok(padded / size)
    })?;
    cx.set_dims(0, dims);
    Ok(())
}

fn infer_back(cx: &mut InferCx<'_>) -> Result<()> {
    let (dims, blocks) = known(cx)?;
    let Some(mut dims) = dims else { return Ok(()) };
    let Some(blocks) = blocks else {
        let trailing = if borders_at(&cx.node.op) == 1 { Some(2) } else { cx.vector_len(1) };
        return unknown_axes(cx, dims, trailing);
    };
    let count = blocks.count()?;
    if let Some(batch) = dims[0] {
        if !batch.is_multiple_of(count) {
            let words = format!("input batch dimension ({batch}) is not divisible by product of block sizes ({count})");
            return Err(Error::invalid_argument(words));
        }
        dims[0] = Some(batch / count);
    }
    blocks.along(&mut dims, |axis, dim, size, (before, after)| {
        let whole = dim.checked_mul(size).ok_or_else(|| Error::invalid_argument("the shape of all blocks overflows"))?;
        let cropped = before.checked_add(after).and_then(|both| whole.checked_sub(both));
        cropped.ok_or_else(|| {
            let asked = i128::from(whole) - i128::from(before) - i128::from(after);
            Error::invalid_argument(format!("cropped_shape[{axis}]={asked} must be non-negative"))
        })
    })?;
    cx.set_dims(0, dims);
    Ok(())
}

/// The batch and so many axes are not known; all is unknown where their number is.
fn unknown_axes(cx: &mut InferCx<'_>, mut dims: Vec<Option<u64>>, axes: Option<usize>) -> Result<()> {
    let open = axes.map_or(dims.len(), |axes| 1 + axes).min(dims.len());
    dims[..open].fill(None);
    cx.set_dims(0, dims);
    Ok(())
}

fn blocks(cx: &KernelCx<'_>) -> Result<Blocks> {
    let is_nd = cx.node.op.ends_with("ND");
    let block_size = if is_nd { None } else { Some(cx.attrs().int("block_size")?) };
    let shape = if is_nd { Some(cx.ints(1)?) } else { None };
    let borders = cx.ints(borders_at(&cx.node.op))?;
    let blocks = blocks_of(&cx.node.op, block_size, || shape, Some(borders))?;
    blocks.ok_or_else(|| Error::internal("blocks that are known are not"))
}

/// Padded, then `[batch, rows, block, ..]` becomes `[block, .., batch, rows, ..]`.
fn space_to_batch(cx: &KernelCx<'_>) -> Result<Recipe> {
    let blocks = blocks(cx)?;
    let mut recipe = Recipe::new();
    let mut input = recipe.input(cx, 0);
    let rank = input.dims().len();
    let axes = blocks.sizes.len();
    if blocks.borders.iter().any(|border| *border != (0, 0)) {
        let mut paddings = vec![(0, 0); rank];
        paddings[1..=axes].copy_from_slice(&blocks.borders);
        let padded: Vec<u64> = input.dims().iter().zip(&paddings).map(|(dim, (before, after))| dim + before + after).collect();
        let value = Some(vec![0; input.meta.element()? as usize]);
        input = recipe.moved(Movement::Pad { shape: input.dims().to_vec(), paddings, value }, &input, padded)?;
    }
    let mut split = vec![input.dims()[0]];
    for (dim, size) in input.dims()[1..].iter().zip(&blocks.sizes) {
        split.extend([dim / size, *size]);
    }
    split.extend(&input.dims()[1 + axes..]);
    let perm: Vec<usize> = (0..axes).map(|axis| 2 + 2 * axis).chain([0]).chain((0..axes).map(|axis| 1 + 2 * axis)).collect();
    let perm = [perm, (1 + 2 * axes..split.len()).collect()].concat();
    let result = recipe.transposed(&input.reshaped(split)?, &perm)?;
    let result = result.reshaped(cx.outputs[0].shape.clone())?;
    Ok(recipe.finish([result]))
}

/// `[block, .., batch, rows, ..]` becomes `[batch, rows, block, ..]`, of which the middle is kept.
fn batch_to_space(cx: &KernelCx<'_>) -> Result<Recipe> {
    let blocks = blocks(cx)?;
    let mut recipe = Recipe::new();
    let input = recipe.input(cx, 0);
    let axes = blocks.sizes.len();
    let dims = input.dims().to_vec();
    let batch = dims[0] / blocks.count()?;
    let split = [&blocks.sizes[..], &[batch], &dims[1..]].concat();
    let perm: Vec<usize> = [axes].into_iter().chain((0..axes).flat_map(|axis| [axes + 1 + axis, axis])).collect();
    let perm = [perm, (2 * axes + 1..split.len()).collect()].concat();
    let mut whole = dims;
    whole[0] = batch;
    for (dim, size) in whole[1..].iter_mut().zip(&blocks.sizes) {
        *dim *= size;
    }
    let mut result = recipe.transposed(&input.reshaped(split)?, &perm)?.reshaped(whole.clone())?;
    let sizes = cx.outputs[0].shape.to_vec();
    if whole != sizes {
        let mut begin = vec![0; whole.len()];
        for (begin, (before, _)) in begin[1..].iter_mut().zip(&blocks.borders) {
            *begin = *before;
        }
        result = recipe.moved(Movement::Slice { shape: whole, begin, sizes: sizes.clone() }, &result, sizes)?;
    }
    Ok(recipe.finish([result]))
}

/// The way back of the gradient.
fn gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, dy| {
        let back = match g.op_name() {
            "SpaceToBatchND" => "BatchToSpaceND",
            "BatchToSpaceND" => "SpaceToBatchND",
            "SpaceToBatch" => "BatchToSpace",
            _ => "SpaceToBatch",
        };
        let attrs: Vec<_> = g.attrs().get("block_size").map(|size| ("block_size", size.clone())).into_iter().collect();
        let mut inputs = vec![dy];
        inputs.extend((1..g.input_count()).map(|input| g.input(input)));
        let mut result = vec![None; inputs.len()];
        result[0] = Some(g.op_with(back, &inputs, &attrs)?);
        Ok(result)
    })
}
