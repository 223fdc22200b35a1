//! ExtractImagePatches: the windows of an image, each as the channels of one pixel.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{Attrs, AttrsExt, NodeId, Output, Shape};
use plimsoll_request::movement::{Movement, Pick};

use crate::gradient::{Grad, from_one};
use crate::infer::int_tensor;
use crate::registry::Gradient;
use crate::{GraphBuilder, InferCx, KernelCx, Lower, OpRules, Recipe};

/// The rules of ExtractImagePatches.
pub const RULES: &[OpRules] =
    &[OpRules { name: "ExtractImagePatches", infer, lower: Lower::Recipe(prepare), gradient: Gradient::Rule(gradient) }];

/// The most elements along rows or columns of all windows, for the gradient.
const MOST: u64 = 1 << 24;

/// The windows along rows or columns.
#[derive(Clone, Copy, Debug)]
struct Side {
    taps: u64,
    stride: u64,
    rate: u64,
    same: bool,
}

/// How windows lie on an axis of known size.
#[derive(Clone, Copy, Debug)]
struct Placed {
    positions: u64,
    /// Zeros before and after the axis.
    pad: (u64, u64),
}

impl Side {
    /// From the first element of a window to the one behind its last.
    fn extent(&self) -> Result<u64> {
        let extent = (self.taps - 1).checked_mul(self.rate).and_then(|extent| extent.checked_add(1));
        extent.ok_or_else(|| Error::invalid_argument("the windows of ExtractImagePatches overflow"))
    }

    fn on(&self, size: u64) -> Result<Placed> {
        let extent = self.extent()?;
        if !self.same {
            let positions = if size < extent { 0 } else { (size - extent) / self.stride + 1 };
            return Ok(Placed { positions, pad: (0, 0) });
        }
        let positions = size.div_ceil(self.stride);
        let reach = positions.saturating_sub(1).checked_mul(self.stride).and_then(|last| last.checked_add(extent));
        let reach = reach.ok_or_else(|| Error::invalid_argument("the windows of ExtractImagePatches overflow"))?;
        let missing = if positions == 0 { 0 } else { reach.saturating_sub(size) };
        Ok(Placed { positions, pad: (missing / 2, missing - missing / 2) })
    }

    /// For each position and tap the index that it sees; -1 on the padding.
    fn seen(&self, size: u64) -> Result<Vec<i64>> {
        let Placed { positions, pad } = self.on(size)?;
        let index = |position: u64, tap: u64| (position * self.stride + tap * self.rate).checked_sub(pad.0).filter(|index| *index < size);
        let all = (0..positions).flat_map(|position| (0..self.taps).map(move |tap| (position, tap)));
        Ok(all.map(|(position, tap)| index(position, tap).map_or(-1, |index| index as i64)).collect())
    }
}

/// The windows along rows and columns.
fn sides(attrs: &Attrs) -> Result<[Side; 2]> {
    let list = |name: &str| -> Result<[u64; 2]> {
        let words = || Error::invalid_argument(format!("{name} must be four positive integers, the first and last of them 1"));
        match attrs.list(name)?.ints[..] {
            [1, rows, columns, 1] if rows > 0 && columns > 0 => Ok([rows as u64, columns as u64]),
            _ => Err(words()),
        }
    };
    let (taps, strides, rates) = (list("ksizes")?, list("strides")?, list("rates")?);
    let same = match attrs.text("padding")? {
        "SAME" => true,
        "VALID" => false,
        other => return Err(Error::invalid_argument(format!("Unknown padding type: {other}"))),
    };
    Ok([0, 1].map(|side| Side { taps: taps[side], stride: strides[side], rate: rates[side], same }))
}

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let [rows, columns] = sides(cx.attrs())?;
    let Some(dims) = cx.with_rank(0, 4)? else { return Ok(()) };
    let (batch, height, width, channels) = (dims[0], dims[1], dims[2], dims[3]);
    let positions = |side: Side, size: Option<u64>| -> Result<Option<u64>> {
        Ok(match size {
            Some(size) => Some(side.on(size)?.positions),
            None => None,
        })
    };
    let depth = match channels {
        None => None,
        Some(channels) => {
            let depth = rows.taps.checked_mul(columns.taps).and_then(|taps| taps.checked_mul(channels));
            Some(depth.ok_or_else(|| Error::invalid_argument("the windows of ExtractImagePatches overflow"))?)
        }
    };
    cx.set_dims(0, vec![batch, positions(rows, height)?, positions(columns, width)?, depth]);
    Ok(())
}

/// Rows and columns of all windows, one behind another, and then the taps beside the channels.
fn prepare(cx: &KernelCx<'_>) -> Result<Recipe> {
    let [rows, columns] = sides(cx.attrs())?;
    let mut recipe = Recipe::new();
    let images = recipe.input(cx, 0);
    let &[batch, height, width, channels] = images.dims() else {
        return Err(Error::internal("images of other than four dimensions"));
    };
    let (y, x) = (rows.on(height)?, columns.on(width)?);
    if cx.outputs[0].shape.elements()? == 0 {
        let picks = vec![Pick::All; 4];
        let nothing =
            recipe.moved(Movement::Slice { shape: images.dims().to_vec(), begin: vec![0; 4], sizes: vec![0; 4] }, &images, [0; 4])?;
        let nothing = recipe.moved(Movement::Pick { shape: vec![0; 4], picks }, &nothing, [0; 4])?;
        return Ok(recipe.finish([nothing.reshaped(cx.outputs[0].shape.clone())?]));
    }
    let mut padded = images;
    if y.pad != (0, 0) || x.pad != (0, 0) {
        let paddings = vec![(0, 0), y.pad, x.pad, (0, 0)];
        let grown = |size: u64, pad: (u64, u64)| size.checked_add(pad.0).and_then(|size| size.checked_add(pad.1));
        let sizes = grown(height, y.pad).zip(grown(width, x.pad));
        let (tall, wide) = sizes.ok_or_else(|| Error::invalid_argument("the padded shape overflows"))?;
        let value = Some(vec![0; cx.element(0)?]);
        let movement = Movement::Pad { shape: padded.dims().to_vec(), paddings, value };
        padded = recipe.moved(movement, &padded, [batch, tall, wide, channels])?;
    }
    let pick =
        |side: Side, placed: Placed| Pick::Windows { positions: placed.positions, taps: side.taps, stride: side.stride, rate: side.rate };
    let picks = vec![Pick::All, pick(rows, y), pick(columns, x), Pick::All];
    let picked = [batch, y.positions * rows.taps, x.positions * columns.taps, channels];
    let picked = recipe.moved(Movement::Pick { shape: padded.dims().to_vec(), picks }, &padded, picked)?;
    let picked = picked.reshaped([batch, y.positions, rows.taps, x.positions, columns.taps, channels])?;
    let patches = recipe.transposed(&picked, &[0, 1, 3, 2, 4, 5])?;
    let result = patches.reshaped(cx.outputs[0].shape.clone())?;
    Ok(recipe.finish([result]))
}

/// Each element's gradient is the sum over the windows that see it: first along rows, then along columns.
fn gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, dy| {
        let [rows, columns] = sides(g.attrs())?;
        let dims = g.shape_of(g.input(0)).0.unwrap_or_default();
        let &[batch, Some(height), Some(width), Some(channels)] = &dims[..] else {
            return Err(Error::unimplemented("the gradient of ExtractImagePatches of an image whose size is not known"));
        };
        let (y, x) = (rows.on(height)?.positions, columns.on(width)?.positions);
        let batch = batch.map_or(-1, |batch| batch as i64);
        let shape = g.ints(&[batch, y as i64, x as i64, rows.taps as i64, columns.taps as i64, channels as i64])?;
        let patches = g.reshape(dy, shape)?;
        let by_row = transposed(g, patches, &[1, 3, 0, 2, 4, 5])?;
        let summed = summed(g, by_row, rows, [y, height])?;
        let by_column = transposed(g, summed, &[2, 3, 1, 0, 4])?;
        let summed = self::summed(g, by_column, columns, [x, width])?;
        Ok(vec![Some(transposed(g, summed, &[1, 2, 0, 3])?)])
    })
}

fn transposed(g: &mut Grad<'_>, of: Output, perm: &[i64]) -> Result<Output> {
    let perm = g.ints(perm)?;
    g.op("Transpose", &[of, perm])
}

/// `[positions, taps, ..]` to `[size, ..]`; what lies on the padding is dropped.
fn summed(g: &mut Grad<'_>, of: Output, side: Side, [positions, size]: [u64; 2]) -> Result<Output> {
    if positions.checked_mul(side.taps).is_none_or(|places| places > MOST) {
        return Err(Error::unimplemented(format!("the gradient of {positions} windows of {} elements", side.taps)));
    }
    let ids = g.constant(int_tensor(&side.seen(size)?, Shape::from([positions, side.taps]), DataType::Int32)?)?;
    let size = g.int(size as i64)?;
    g.op("UnsortedSegmentSum", &[of, ids, size])
}
