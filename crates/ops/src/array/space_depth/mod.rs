//! SpaceToDepth and DepthToSpace: blocks of positions become channels, and the way back.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{Attrs, AttrsExt, NodeId, Output};

use crate::gradient::from_one;
use crate::registry::Gradient;
use crate::{GraphBuilder, InferCx, KernelCx, Lower, OpRules, Recipe};

/// The rules of SpaceToDepth and DepthToSpace.
pub const RULES: &[OpRules] = &[
    OpRules { name: "SpaceToDepth", infer, lower: Lower::Recipe(prepare), gradient: Gradient::Rule(gradient) },
    OpRules { name: "DepthToSpace", infer, lower: Lower::Recipe(prepare), gradient: Gradient::Rule(gradient) },
];

/// The block's side, and whether channels are last.
fn block(attrs: &Attrs) -> Result<(u64, bool)> {
    let size = attrs.int("block_size")?;
    let size = u64::try_from(size).ok().filter(|size| *size > 1);
    let size = size.ok_or_else(|| Error::invalid_argument("Block size should be > 1, but was too small"))?;
    match attrs.text("data_format")? {
        "NHWC" => Ok((size, true)),
        "NCHW" => Ok((size, false)),
        other => Err(Error::unimplemented(format!("not yet: blocks of positions with data_format {other}"))),
    }
}

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let (size, is_last) = block(cx.attrs())?;
    let to_depth = cx.node.op == "SpaceToDepth";
    let Some(dims) = cx.dims(0) else {
        cx.set_dims(0, vec![None; 4]);
        return Ok(());
    };
    let &[batch, one, two, three] = dims else {
        return Err(Error::invalid_argument(format!("Input rank should be: 4 instead of: {}", dims.len())));
    };
    let (sides, channels) = if is_last { ([one, two], three) } else { ([two, three], one) };
    let square = size.checked_mul(size).ok_or_else(|| Error::invalid_argument(format!("a block of {size} is too large")))?;
    let too_large = || Error::invalid_argument(format!("blocks of {size} make a tensor too large"));
    let grown = |dim: Option<u64>, by: u64| dim.map(|dim| dim.checked_mul(by).ok_or_else(too_large)).transpose();
    let (sides, channels) = if to_depth {
        if let Some((height, width)) = sides[0].zip(sides[1])
            && !(height.is_multiple_of(size) && width.is_multiple_of(size))
        {
            let words = format!("Image width {width} and height {height} should be divisible by block_size: {size}");
            return Err(Error::invalid_argument(words));
        }
        (sides.map(|side| side.map(|side| side / size)), grown(channels, square)?)
    } else {
        if let Some(channels) = channels.filter(|channels| !channels.is_multiple_of(square)) {
            let words = format!("Input depth dimension {channels} should be divisible by: {square}");
            return Err(Error::invalid_argument(words));
        }
        ([grown(sides[0], size)?, grown(sides[1], size)?], channels.map(|channels| channels / square))
    };
    let dims = if is_last { vec![batch, sides[0], sides[1], channels] } else { vec![batch, channels, sides[0], sides[1]] };
    cx.set_dims(0, dims);
    Ok(())
}

fn prepare(cx: &KernelCx<'_>) -> Result<Recipe> {
    let (size, is_last) = block(cx.attrs())?;
    let (input, output) = (cx.dims(0), &cx.outputs[0].shape);
    let mut recipe = Recipe::new();
    let from = recipe.input(cx, 0);
    // Of blocks: how many, and channels of one position.
    let (split, perm) = match (cx.node.op.as_str(), is_last) {
        ("SpaceToDepth", true) => (vec![input[0], output[1], size, output[2], size, input[3]], [0, 1, 3, 2, 4, 5]),
        ("SpaceToDepth", false) => (vec![input[0], input[1], output[2], size, output[3], size], [0, 3, 5, 1, 2, 4]),
        (_, true) => (vec![input[0], input[1], input[2], size, size, output[3]], [0, 1, 3, 2, 4, 5]),
        (_, false) => (vec![input[0], size, size, output[1], input[2], input[3]], [0, 3, 4, 1, 5, 2]),
    };
    let result = recipe.transposed(&from.reshaped(split)?, &perm)?.reshaped(output.clone())?;
    Ok(recipe.finish([result]))
}

fn gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, dy| {
        let back = if g.op_name() == "SpaceToDepth" { "DepthToSpace" } else { "SpaceToDepth" };
        let attrs = ["block_size", "data_format"].map(|name| (name, g.attrs().get(name).cloned()));
        let attrs: Vec<_> = attrs.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        Ok(vec![Some(g.op_with(back, &[dy], &attrs)?)])
    })
}
