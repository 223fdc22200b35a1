//! Einsum of one or two tensors: diagonals and sums of each, then one product, then its place in the output.

mod equation;
mod gradient;

use plimsoll_base::{Error, Result};
use plimsoll_graph::AttrsExt;
use plimsoll_request::movement::Movement;
use plimsoll_request::reduce::ReduceOp;

use self::equation::{Equation, Subscripts};
use super::contraction::{Labelled, contract};
use super::product::in_parts;
use super::reduction::folded;
use crate::infer::count;
use crate::recipe::Ingredient;
use crate::registry::Gradient;
use crate::{InferCx, KernelCx, Lower, Meta, OpRules, Recipe};

/// The rules of Einsum.
pub const RULES: &[OpRules] =
    &[OpRules { name: "Einsum", infer, lower: Lower::Recipe(recipe), gradient: Gradient::Rule(gradient::gradient) }];

/// Labels are numbers: a name is its byte, and the dimensions of ellipses follow, from the last one of the shape.
const NAMES: usize = 256;

/// The labels of a tensor of that rank.
fn labels_of(subscripts: &Subscripts, rank: usize, input: usize) -> Result<Vec<usize>> {
    let named = subscripts.labels().count();
    if subscripts.has_ellipsis && rank < named {
        return Err(Error::invalid_argument(format!("Expected input {input} to have rank at least {named} but got: {rank}")));
    }
    if !subscripts.has_ellipsis && rank != named {
        return Err(Error::invalid_argument(format!("Expected input {input} to have rank {named} but got: {rank}")));
    }
    Ok(spread(subscripts, rank - named))
}

/// The labels of a tensor with so many dimensions in its ellipsis.
fn spread(subscripts: &Subscripts, unnamed: usize) -> Vec<usize> {
    let [before, after] = &subscripts.named;
    let names = |labels: &[u8]| labels.iter().map(|label| *label as usize).collect::<Vec<usize>>();
    let unnamed = if subscripts.has_ellipsis { unnamed } else { 0 };
    [names(before), (0..unnamed).rev().map(|at| NAMES + at).collect(), names(after)].concat()
}

fn equation(text: &str, inputs: usize) -> Result<Equation> {
    let equation = Equation::parse(text)?;
    if equation.inputs.len() != inputs {
        let expected = equation.inputs.len();
        return Err(Error::invalid_argument(format!("Expected {expected} inputs for equation {text} but got: {inputs}")));
    }
    Ok(equation)
}

/// The output's labels, and the sizes of labels, those of ellipses as broadcast.
fn resolve(equation: &Equation, shapes: &[&[Option<u64>]]) -> Result<(Vec<usize>, Vec<Option<u64>>)> {
    let inputs = equation.inputs.iter().zip(shapes).enumerate();
    let labels = inputs.map(|(input, (subscripts, dims))| labels_of(subscripts, dims.len(), input)).collect::<Result<Vec<_>>>()?;
    let unnamed = labels.iter().map(|labels| labels.iter().filter(|label| **label >= NAMES).count()).max().unwrap_or(0);
    if unnamed > 0 && !equation.output.has_ellipsis {
        return Err(Error::invalid_argument(format!(
            "Output contains {unnamed} broadcasting dimension(s) but no ellipsis (...) was found in the output subscripts."
        )));
    }
    let mut sizes = vec![None; NAMES + unnamed];
    for (labels, dims) in labels.iter().zip(shapes) {
        for (axis, (label, dim)) in labels.iter().zip(dims.iter()).enumerate() {
            let Some(dim) = *dim else { continue };
            sizes[*label] = Some(match sizes[*label] {
                None => dim,
                Some(known) if known == dim => dim,
                Some(1) if *label >= NAMES => dim,
                Some(known) if *label >= NAMES && dim == 1 => known,
                Some(known) if *label >= NAMES => {
                    return Err(Error::invalid_argument(format!("Broadcasting dimensions must be equal or 1: {known} vs. {dim}")));
                }
                Some(known) => {
                    let shape = dims.iter().map(|dim| dim.map_or("?".to_string(), |dim| dim.to_string())).collect::<Vec<_>>().join(",");
                    return Err(Error::invalid_argument(format!(
                        "Expected dimension {known} at axis {axis} of the input shaped [{shape}] but got dimension {dim}"
                    )));
                }
            });
        }
    }
    // A dimension that may be 1 broadcasts to another that is not known.
    for (labels, dims) in labels.iter().zip(shapes) {
        for (label, dim) in labels.iter().zip(dims.iter()) {
            if *label >= NAMES && dim.is_none() && sizes[*label] == Some(1) {
                sizes[*label] = None;
            }
        }
    }
    Ok((spread(&equation.output, unnamed), sizes))
}

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let equation = equation(cx.attrs().text("equation")?, cx.inputs.len())?;
    let shapes: Option<Vec<&[Option<u64>]>> = (0..cx.inputs.len()).map(|input| cx.dims(input)).collect();
    let Some(shapes) = shapes else {
        if !equation.output.has_ellipsis {
            cx.set_dims(0, vec![None; equation.output.labels().count()]);
        }
        return Ok(());
    };
    let (labels, sizes) = resolve(&equation, &shapes)?;
    cx.set_dims(0, labels.into_iter().map(|label| sizes[label]).collect());
    Ok(())
}

fn recipe(cx: &KernelCx<'_>) -> Result<Recipe> {
    let equation = equation(cx.attrs().text("equation")?, cx.inputs.len())?;
    let shapes: Vec<Vec<Option<u64>>> = (0..cx.inputs.len()).map(|input| cx.dims(input).iter().copied().map(Some).collect()).collect();
    let (output, sizes) = resolve(&equation, &shapes.iter().map(Vec::as_slice).collect::<Vec<_>>())?;
    let sizes: Vec<u64> = sizes.into_iter().map(|size| size.unwrap_or(1)).collect();
    let mut recipe = Recipe::new();
    let mut operands = Vec::with_capacity(2);
    for (input, subscripts) in equation.inputs.iter().enumerate() {
        let tensor = recipe.input(cx, input);
        let labels = labels_of(subscripts, tensor.dims().len(), input)?;
        operands.push(diagonals(&mut recipe, Labelled { tensor, labels })?);
    }
    let all: Vec<Vec<usize>> = operands.iter().map(|operand| operand.labels.clone()).collect();
    for (number, operand) in operands.iter_mut().enumerate() {
        let other = all.get(1 - number);
        let is_used = |label: &usize| output.contains(label) || other.is_some_and(|other| other.contains(label));
        *operand = summed(&mut recipe, operand, is_used)?;
    }
    let mut once = output.clone();
    once.sort_unstable();
    once.dedup();
    once.sort_by_key(|label| output.iter().position(|other| other == label));
    let result = match <[Labelled; 2]>::try_from(operands) {
        Ok([x, y]) => in_parts(&mut recipe, [x.tensor, y.tensor], [false; 2], |recipe, [left, right]| {
            let left = Labelled { tensor: left, labels: x.labels.clone() };
            let right = Labelled { tensor: right, labels: y.labels.clone() };
            contract(recipe, [left, right], &once, &sizes)
        })?,
        Err(one) => {
            let [Labelled { tensor, labels }] = &one[..] else { return Err(Error::internal("an Einsum of no operands")) };
            let place = |label: &usize| labels.iter().position(|other| other == label);
            let perm: Option<Vec<usize>> = once.iter().map(place).collect();
            recipe.transposed(tensor, &perm.ok_or_else(|| Error::internal("an output label without operand"))?)?
        }
    };
    let result = inflated(&mut recipe, result, &once, &output)?;
    Ok(recipe.finish([result]))
}

/// The tensor with each label once: its diagonals where labels are repeated.
fn diagonals(recipe: &mut Recipe, mut operand: Labelled) -> Result<Labelled> {
    while let Some(label) = repeated(&operand.labels) {
        let is_other = |dim: &usize| operand.labels[*dim] != label;
        let rank = operand.labels.len();
        let (others, same): (Vec<usize>, Vec<usize>) = (0..rank).partition(is_other);
        let turned = recipe.transposed(&operand.tensor, &[&others[..], &same].concat())?;
        let (rows, size, step) = blocks(&turned, others.len());
        let flat = turned.reshaped([rows, size.saturating_pow(same.len() as u32)])?;
        let sizes = vec![rows, size];
        let picked =
            Movement::StridedSlice { shape: flat.dims().to_vec(), begin: vec![0, 0], strides: vec![1, step], sizes: sizes.clone() };
        let picked = recipe.moved(picked, &flat, sizes)?;
        let shape = [&turned.dims()[..others.len()], &[size]].concat();
        let labels = others.iter().map(|dim| operand.labels[*dim]).chain([label]).collect();
        operand = Labelled { tensor: picked.reshaped(shape)?, labels };
    }
    Ok(operand)
}

/// A label that is there more than once.
fn repeated(labels: &[usize]) -> Option<usize> {
    labels.iter().enumerate().find(|(at, label)| labels[..*at].contains(label)).map(|(_, label)| *label)
}

/// Of a tensor whose dimensions from `first` on are equal: the product of those before, the size, and from one element of the diagonal
/// to the next.
fn blocks(tensor: &Ingredient, first: usize) -> (u64, u64, i64) {
    let (others, same) = tensor.dims().split_at(first);
    let size = same.first().copied().unwrap_or(1);
    (count(others), size, step(size, same.len()))
}

/// From one element to the next of the diagonal of so many dimensions of that size.
fn step(size: u64, dims: usize) -> i64 {
    let distances = (0..dims as u32).map(|power| i64::try_from(size.saturating_pow(power)).unwrap_or(i64::MAX));
    distances.fold(0, i64::saturating_add)
}

/// The sum over the labels that nothing else has.
fn summed(recipe: &mut Recipe, operand: &Labelled, is_used: impl Fn(&usize) -> bool) -> Result<Labelled> {
    let (kept, axes): (Vec<usize>, Vec<usize>) = (0..operand.labels.len()).partition(|dim| is_used(&operand.labels[*dim]));
    let labels = kept.iter().map(|dim| operand.labels[*dim]).collect();
    let (data_type, shape) = (operand.tensor.data_type(), operand.tensor.dims().to_vec());
    let sizes: Vec<u64> = kept.iter().map(|dim| shape[*dim]).collect();
    if axes.iter().all(|axis| shape[*axis] == 1) {
        return Ok(Labelled { tensor: operand.tensor.reshaped(sizes)?, labels });
    }
    let tensor =
        recipe.one(folded(ReduceOp::Sum, data_type, shape, axes), [operand.tensor.clone()], Meta { data_type, shape: sizes.into() });
    Ok(Labelled { tensor, labels })
}

/// The tensor of labels `once` as the diagonal of zeros wherever `output` has a label more than once.
fn inflated(recipe: &mut Recipe, mut tensor: Ingredient, once: &[usize], output: &[usize]) -> Result<Ingredient> {
    let mut labels = once.to_vec();
    for label in once {
        let times = output.iter().filter(|other| *other == label).count();
        if times < 2 {
            continue;
        }
        // The label's dimension goes last, and becomes as many.
        let (mut perm, same): (Vec<usize>, Vec<usize>) = (0..labels.len()).partition(|dim| labels[*dim] != *label);
        perm.extend(same);
        tensor = recipe.transposed(&tensor, &perm)?;
        labels = perm.iter().map(|dim| labels[*dim]).collect();
        let others = tensor.dims()[..tensor.dims().len() - 1].to_vec();
        let size = tensor.dims()[others.len()];
        let shape = [&others[..], &vec![size; times]].concat();
        let block = vec![count(&others), size];
        let block = tensor.reshaped(block)?;
        let step = step(size, times);
        let zeros = vec![block.dims()[0], size.saturating_pow(times as u32)];
        let movement =
            Movement::StridedSliceGrad { shape: zeros.clone(), begin: vec![0, 0], strides: vec![1, step], sizes: block.dims().to_vec() };
        tensor = recipe.moved(movement, &block, zeros)?.reshaped(shape)?;
        labels.extend(vec![*label; times - 1]);
    }
    // Where a label is there several times, all its dimensions are equal.
    let mut left = labels.clone();
    let mut perm = Vec::with_capacity(output.len());
    for label in output {
        let place = left.iter().position(|other| other == label).ok_or_else(|| Error::internal("an output label without dimension"))?;
        left[place] = usize::MAX;
        perm.push(place);
    }
    recipe.transposed(&tensor, &perm)
}
