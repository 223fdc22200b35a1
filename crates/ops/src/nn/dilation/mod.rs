//! Dilation2D and its gradients: of each window the largest sum of an element and the filter's (greyscale morphology).

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{AttrList, Attrs, AttrsExt, NodeId, Output, PartialShape};
use plimsoll_request::KernelRequest;
use plimsoll_request::expr::{BinaryOp, ExprBuilder, Scalar};
use plimsoll_request::movement::Movement;
use plimsoll_request::reduce::{ReduceOp, Reduction};

use super::window::taken_over;
use crate::gradient::from_one;
use crate::infer::{merge_shapes, of_rank};
use crate::recipe::{Ingredient, Recipe};
use crate::registry::Gradient;
use crate::{GraphBuilder, InferCx, KernelCx, Lower, Meta, OpRules};

const fn backwards(name: &'static str, input: usize, make: fn(&KernelCx<'_>) -> Result<Recipe>) -> OpRules {
    let infer = if input == 0 { infer_input } else { infer_filter };
    OpRules { name, infer, lower: Lower::Recipe(make), gradient: Gradient::Unknown }
}

/// The rules of dilations.
pub const RULES: &[OpRules] = &[
    OpRules { name: "Dilation2D", infer, lower: Lower::Recipe(dilate), gradient: Gradient::Rule(gradient) },
    backwards("Dilation2DBackpropInput", 0, to_input),
    backwards("Dilation2DBackpropFilter", 1, to_filter),
];

/// Taps of a filter that a recipe has steps for.
const MOST_TAPS: usize = 1024;

/// How windows lie along one axis.
#[derive(Clone, Copy)]
struct Axis {
    stride: u64,
    rate: u64,
    same: bool,
}

impl Axis {
    /// The axes of rows and columns.
    fn both(attrs: &Attrs) -> Result<[Axis; 2]> {
        let same = attrs.text("padding")? == "SAME";
        let of = |list: &AttrList, name: &str| match list.ints[..] {
            [1, rows, columns, 1] if rows > 0 && columns > 0 => Ok([rows as u64, columns as u64]),
            _ => Err(Error::invalid_argument(format!("{name} has to be 1, two positive numbers, 1, got {:?}", list.ints))),
        };
        let (strides, rates) = (of(attrs.list("strides")?, "strides")?, of(attrs.list("rates")?, "rates")?);
        Ok([0, 1].map(|axis| Axis { stride: strides[axis], rate: rates[axis], same }))
    }

    /// How many windows there are, and how far before the first element the first begins.
    fn windows(self, size: u64, taps: u64) -> Result<(u64, u64)> {
        let reach = taps.saturating_sub(1).checked_mul(self.rate).and_then(|reach| reach.checked_add(1));
        let reach = reach.filter(|reach| *reach <= 1 << 47).ok_or_else(|| Error::invalid_argument("a filter's rate is too large"))?;
        if self.same {
            let count = size.div_ceil(self.stride);
            let needed = count.saturating_sub(1).saturating_mul(self.stride).saturating_add(reach);
            return Ok((count, needed.saturating_sub(size) / 2));
        }
        Ok(((size + 1).saturating_sub(reach).div_ceil(self.stride), 0))
    }
}

/// The dimensions of the result, where those of input and filter are known.
fn result(cx: &InferCx<'_>) -> Result<PartialShape> {
    let axes = Axis::both(cx.attrs())?;
    let (Some(input), Some(filter)) = (cx.with_rank(0, 4)?, cx.with_rank(1, 3)?) else { return Ok(of_rank(Some(4))) };
    let depth = match (input[3], filter[2]) {
        (Some(input), Some(filter)) if input != filter => {
            return Err(Error::invalid_argument(format!("input and filter must have the same depth: {input} vs {filter}")));
        }
        (input, filter) => input.or(filter),
    };
    let mut dims = vec![input[0], None, None, depth];
    for (at, axis) in axes.into_iter().enumerate() {
        if let (Some(size), Some(taps)) = (input[at + 1], filter[at]) {
            dims[at + 1] = Some(axis.windows(size, taps)?.0);
        }
    }
    Ok(PartialShape(Some(dims)))
}

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let shape = result(cx)?;
    cx.set(0, shape);
    Ok(())
}

fn check_gradient(cx: &InferCx<'_>) -> Result<()> {
    let shape = result(cx)?;
    merge_shapes(&shape, cx.shape(2))
        .map(drop)
        .map_err(|_| Error::invalid_argument(format!("out_backprop has incompatible size: {} instead of {shape}", cx.shape(2))))
}

fn infer_input(cx: &mut InferCx<'_>) -> Result<()> {
    check_gradient(cx)?;
    cx.set(0, cx.shape(0).clone());
    Ok(())
}

fn infer_filter(cx: &mut InferCx<'_>) -> Result<()> {
    check_gradient(cx)?;
    cx.set(0, cx.shape(1).clone());
    Ok(())
}

/// A tap of the filter, and the first element that it lies on in the padded input.
struct Tap {
    place: [u64; 2],
    begin: [u64; 2],
}

/// A dilation whose sizes are known.
struct Dilation {
    /// The input's shape, and that of the result.
    input: Vec<u64>,
    output: Vec<u64>,
    strides: [u64; 2],
    /// What is padded around the input, along each of its dimensions.
    paddings: Vec<(u64, u64)>,
    /// Taps that lie on elements, row by row.
    taps: Vec<Tap>,
    data_type: DataType,
}

/// The places of taps along an axis that lie on elements for some window, and the padding that they need.
fn places(size: u64, taps: u64, windows: u64, before: u64, axis: Axis) -> (Vec<(u64, i64)>, (u64, u64)) {
    let last = (windows.saturating_sub(1) * axis.stride) as i64;
    let used = |place: &(u64, i64)| {
        // The first window, if any, whose tap is not before the elements.
        let skipped = (-place.1).max(0).cast_unsigned().div_ceil(axis.stride);
        windows > skipped && place.1 + ((skipped * axis.stride) as i64) < size as i64
    };
    let offset = |tap: u64| (tap, (tap * axis.rate) as i64 - before as i64);
    let used: Vec<(u64, i64)> = (0..taps).map(offset).filter(used).collect();
    let low = used.iter().map(|(_, offset)| -offset).max().unwrap_or(0).max(0).cast_unsigned();
    let high = used.iter().map(|(_, offset)| offset + last + 1 - size as i64).max().unwrap_or(0).max(0).cast_unsigned();
    (used, (low, high))
}

impl Dilation {
    fn of(cx: &KernelCx<'_>, output: &[u64]) -> Result<Dilation> {
        let (input, filter) = (cx.dims(0).to_vec(), cx.dims(1));
        let axes = Axis::both(cx.attrs())?;
        let data_type = cx.inputs[0].data_type;
        let mut found = Vec::new();
        for (at, axis) in axes.into_iter().enumerate() {
            let (windows, before) = axis.windows(input[at + 1], filter[at])?;
            found.push(places(input[at + 1], filter[at], windows, before, axis));
        }
        let (rows, columns) = (&found[0], &found[1]);
        if rows.0.len().saturating_mul(columns.0.len()) > MOST_TAPS {
            return Err(Error::unimplemented(format!("a dilation by a filter of {} x {}", filter[0], filter[1])));
        }
        let begin = |offset: i64, padding: (u64, u64)| (offset + padding.0 as i64).cast_unsigned();
        let tap = |row: &(u64, i64), column: &(u64, i64)| Tap {
            place: [row.0, column.0],
            begin: [begin(row.1, rows.1), begin(column.1, columns.1)],
        };
        let taps = rows.0.iter().flat_map(|row| columns.0.iter().map(move |column| tap(row, column))).collect();
        let paddings = vec![(0, 0), rows.1, columns.1, (0, 0)];
        Ok(Dilation { input, output: output.to_vec(), strides: axes.map(|axis| axis.stride), paddings, taps, data_type })
    }

    fn meta(&self, shape: &[u64]) -> Meta {
        Meta { data_type: self.data_type, shape: shape.to_vec().into() }
    }

    fn padded_shape(&self) -> Vec<u64> {
        self.input.iter().zip(&self.paddings).map(|(size, (before, after))| before + size + after).collect()
    }

    fn strides(&self) -> Vec<i64> {
        vec![1, self.strides[0] as i64, self.strides[1] as i64, 1]
    }

    /// Where the elements under a tap begin.
    fn begin(tap: &Tap) -> Vec<u64> {
        vec![0, tap.begin[0], tap.begin[1], 0]
    }

    /// The largest sums, and the number of the first tap that has each: -1 where there is none.
    fn largest(&self, recipe: &mut Recipe, cx: &KernelCx<'_>) -> Result<[Ingredient; 2]> {
        let (input, filter) = (recipe.input(cx, 0), recipe.input(cx, 1));
        let element = input.meta.element()? as usize;
        // No sum with an infinity is larger than another; of integers, those that are padded are left out by name.
        let floats = self.data_type.is_floating();
        let lowest = Scalar::from_f64(self.data_type, if floats { f64::NEG_INFINITY } else { 0.0 });
        let lowest = lowest.ok_or_else(|| Error::unimplemented(format!("dilations of {}", self.data_type)))?;
        let value = lowest.bits().to_le_bytes()[..element].to_vec();
        let padded = self.padded_shape();
        let pad = Movement::Pad { shape: self.input.clone(), paddings: self.paddings.clone(), value: Some(value) };
        let elements = recipe.moved(pad, &input, padded.clone())?;
        let inside = if floats { None } else { Some(self.inside(recipe)?) };

        let mut e = ExprBuilder::new();
        let (lowest, none) = (e.number(self.data_type, least(self.data_type))?, e.constant(Scalar::I32(-1)));
        let mut best = recipe.expression(e.finish(vec![lowest, none]), [], self.output.clone());
        for (number, tap_place) in self.taps.iter().enumerate() {
            let slice = Movement::StridedSlice {
                shape: padded.clone(),
                begin: Dilation::begin(tap_place),
                strides: self.strides(),
                sizes: self.output.clone(),
            };
            let under = recipe.moved(slice, &elements, self.output.clone())?;
            let channels = filter.dims()[2];
            let weight = Movement::Slice {
                shape: filter.dims().to_vec(),
                begin: vec![tap_place.place[0], tap_place.place[1], 0],
                sizes: vec![1, 1, channels],
            };
            let weight = recipe.moved(weight, &filter, [channels])?;
            let mut e = ExprBuilder::new();
            let (old, old_tap) = (e.input(self.data_type)?, e.input(DataType::Int32)?);
            let (under_tap, own) = (e.input(self.data_type)?, e.input(self.data_type)?);
            let tap = e.constant(Scalar::I32(number as i32));
            let sum = e.binary(BinaryOp::Add, under_tap, own)?;
            let mut larger = e.binary(BinaryOp::Greater, sum, old)?;
            let mut inputs = vec![best[0].clone(), best[1].clone(), under, weight];
            if let Some(inside) = &inside {
                let mut sizes = self.output.clone();
                (sizes[0], sizes[3]) = (1, 1);
                let (shape, strides) = (inside.dims().to_vec(), self.strides());
                let slice = Movement::StridedSlice { shape, begin: Dilation::begin(tap_place), strides, sizes: sizes.clone() };
                inputs.push(recipe.moved(slice, inside, sizes)?);
                let (inside, none) = (e.input(DataType::Int32)?, e.constant(Scalar::I32(0)));
                let inside = e.binary(BinaryOp::NotEqual, inside, none)?;
                larger = e.binary(BinaryOp::LogicalAnd, larger, inside)?;
            }
            let (new, new_tap) = (e.select(larger, sum, old)?, e.select(larger, tap, old_tap)?);
            best = recipe.expression(e.finish(vec![new, new_tap]), inputs, self.output.clone());
        }
        Ok([best[0].clone(), best[1].clone()])
    }

    /// 1 for each element of an image, and 0 for those that are padded.
    fn inside(&self, recipe: &mut Recipe) -> Result<Ingredient> {
        let image = vec![1, self.input[1], self.input[2], 1];
        let mut e = ExprBuilder::new();
        let one = e.constant(Scalar::I32(1));
        let ones = recipe.expression(e.finish(vec![one]), [], image.clone()).swap_remove(0);
        let padded = image.iter().zip(&self.paddings).map(|(size, (before, after))| before + size + after).collect::<Vec<u64>>();
        let pad = Movement::Pad { shape: image, paddings: self.paddings.clone(), value: Some(vec![0; 4]) };
        recipe.moved(pad, &ones, padded)
    }

    /// The gradient by the result where the largest sum is that of tap `number`, else 0.
    fn share(&self, recipe: &mut Recipe, cx: &KernelCx<'_>, chosen: &Ingredient, number: usize) -> Result<Ingredient> {
        let mut e = ExprBuilder::new();
        let (gradient, tap) = (e.input(self.data_type)?, e.input(DataType::Int32)?);
        let (own, zero) = (e.constant(Scalar::I32(number as i32)), e.number(self.data_type, 0.0)?);
        let is_own = e.binary(BinaryOp::Equal, tap, own)?;
        let share = e.select(is_own, gradient, zero)?;
        let inputs = [recipe.input(cx, 2), chosen.clone()];
        Ok(recipe.expression(e.finish(vec![share]), inputs, self.output.clone()).swap_remove(0))
    }
}

/// The lowest finite number of a type: the largest of no sums.
fn least(data_type: DataType) -> f64 {
    match data_type {
        DataType::Half => -65504.0,
        DataType::Bfloat16 => -f64::from(f32::from_bits(0x7F7F_0000)),
        DataType::Float => f64::from(f32::MIN),
        DataType::Double => f64::MIN,
        DataType::Int8 => f64::from(i8::MIN),
        DataType::Int16 => f64::from(i16::MIN),
        DataType::Int32 => f64::from(i32::MIN),
        DataType::Int64 => i64::MIN as f64,
        _ => 0.0,
    }
}

/// A result of zeros.
fn zeros(recipe: &mut Recipe, meta: &Meta) -> Result<Ingredient> {
    let mut e = ExprBuilder::new();
    let zero = e.number(meta.data_type, 0.0)?;
    Ok(recipe.expression(e.finish(vec![zero]), [], meta.shape.clone()).swap_remove(0))
}

fn dilate(cx: &KernelCx<'_>) -> Result<Recipe> {
    let mut recipe = Recipe::new();
    let output = &cx.outputs[0];
    if output.shape.elements()? == 0 {
        let result = zeros(&mut recipe, output)?;
        return Ok(recipe.finish([result]));
    }
    let [largest, _] = Dilation::of(cx, output.shape.dims())?.largest(&mut recipe, cx)?;
    Ok(recipe.finish([largest]))
}

/// Whether there is nothing to add up.
fn is_empty(cx: &KernelCx<'_>) -> Result<bool> {
    Ok(cx.inputs[2].shape.elements()? == 0 || cx.outputs[0].shape.elements()? == 0)
}

/// The gradient goes to the element of the largest sum.
fn to_input(cx: &KernelCx<'_>) -> Result<Recipe> {
    let mut recipe = Recipe::new();
    let mut total = zeros(&mut recipe, &cx.outputs[0])?;
    if is_empty(cx)? {
        return Ok(recipe.finish([total]));
    }
    let dilation = Dilation::of(cx, cx.dims(2))?;
    let [_, chosen] = dilation.largest(&mut recipe, cx)?;
    let padded = dilation.padded_shape();
    total = zeros(&mut recipe, &dilation.meta(&padded))?;
    for (number, tap) in dilation.taps.iter().enumerate() {
        let share = dilation.share(&mut recipe, cx, &chosen, number)?;
        let spread = Movement::StridedSliceGrad {
            shape: padded.clone(),
            begin: Dilation::begin(tap),
            strides: dilation.strides(),
            sizes: dilation.output.clone(),
        };
        let spread = recipe.moved(spread, &share, padded.clone())?;
        total = recipe.binary(BinaryOp::Add, [&total, &spread], padded.clone())?;
    }
    let begin = dilation.paddings.iter().map(|(before, _)| *before).collect();
    let inner = Movement::Slice { shape: padded, begin, sizes: dilation.input.clone() };
    let result = recipe.moved(inner, &total, dilation.input.clone())?;
    Ok(recipe.finish([result]))
}

/// The gradient goes to the tap of the largest sum.
fn to_filter(cx: &KernelCx<'_>) -> Result<Recipe> {
    let mut recipe = Recipe::new();
    let output = cx.outputs[0].clone();
    let mut total = zeros(&mut recipe, &output)?;
    if is_empty(cx)? {
        return Ok(recipe.finish([total]));
    }
    let dilation = Dilation::of(cx, cx.dims(2))?;
    let [_, chosen] = dilation.largest(&mut recipe, cx)?;
    let channels = output.shape[2];
    for (number, tap) in dilation.taps.iter().enumerate() {
        let share = dilation.share(&mut recipe, cx, &chosen, number)?;
        let sum = Reduction::Reduce {
            op: ReduceOp::Sum,
            data_type: dilation.data_type,
            shape: dilation.output.clone(),
            axes: vec![0, 1, 2],
            divided: false,
        };
        let sum = recipe.one(KernelRequest::Reduction(sum), [share], dilation.meta(&[channels]));
        let spread = Movement::StridedSliceGrad {
            shape: output.shape.to_vec(),
            begin: vec![tap.place[0], tap.place[1], 0],
            strides: vec![1, 1, 1],
            sizes: vec![1, 1, channels],
        };
        let spread = recipe.moved(spread, &sum, output.shape.clone())?;
        total = recipe.binary(BinaryOp::Add, [&total, &spread], output.shape.clone())?;
    }
    Ok(recipe.finish([total]))
}

fn gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, dy| {
        let attrs = taken_over(g.attrs(), &["strides", "rates", "padding"]);
        let inputs = [g.input(0), g.input(1), dy];
        let to_input = g.op_with("Dilation2DBackpropInput", &inputs, &attrs)?;
        Ok(vec![Some(to_input), Some(g.op_with("Dilation2DBackpropFilter", &inputs, &attrs)?)])
    })
}
