//! The gradient of Einsum (`_EinsumGrad` of TensorFlow's `linalg_grad.py`): an Einsum for each operand.

use plimsoll_base::{DataType, Result};
use plimsoll_graph::{AttrValue, AttrsExt, NodeId, Output};

use super::equation::{Equation, Subscripts};
use crate::GraphBuilder;
use crate::gradient::{Grad, from_one};

pub(super) fn gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, gradient| {
        let equation = Equation::parse(g.attrs().text("equation")?)?;
        let output = &equation.output.text;
        if let [input] = &equation.inputs[..] {
            return Ok(vec![Some(restored(g, gradient, output, g.input(0), input, |label| equation.output.has(label))?)]);
        }
        // An operand without ellipsis repeats along the output's.
        let mut subscripts: Vec<String> = equation.inputs.iter().map(|input| input.text.clone()).collect();
        for (text, input) in subscripts.iter_mut().zip(&equation.inputs) {
            if equation.output.has_ellipsis && !input.has_ellipsis {
                text.push_str("...");
            }
        }
        let mut to_inputs = Vec::with_capacity(2);
        for (side, own) in subscripts.iter().enumerate() {
            let other = &equation.inputs[1 - side];
            let is_kept = |label: u8| equation.output.has(label) || other.has(label);
            let kept = without(own, is_kept);
            let wanted = format!("{output},{}->{kept}", other.text);
            let product = {
                let other = g.conj(g.input(1 - side))?;
                einsum(g, &[gradient, other], &wanted)?
            };
            let own = Subscripts { text: own.clone(), ..equation.inputs[side].clone() };
            to_inputs.push(restored(g, product, &kept, g.input(side), &own, is_kept)?);
        }
        if equation.output.has_ellipsis {
            to_inputs = unbroadcast(g, &subscripts, &to_inputs)?;
        }
        Ok(to_inputs.into_iter().map(Some).collect())
    })
}

fn einsum(g: &mut Grad<'_>, inputs: &[Output], equation: &str) -> Result<Output> {
    g.op_with("Einsum", inputs, &[("equation", AttrValue::text(equation))])
}

/// Subscripts with those labels alone, and their ellipsis.
fn without(text: &str, is_kept: impl Fn(u8) -> bool) -> String {
    text.chars().filter(|letter| *letter == '.' || !letter.is_ascii() || is_kept(*letter as u8)).collect()
}

/// `gradient`, whose dimensions are `labels`, as the dimensions of `input`: repeated along those that had been summed.
fn restored(
    g: &mut Grad<'_>,
    gradient: Output,
    labels: &str,
    input: Output,
    subscripts: &Subscripts,
    is_kept: impl Fn(u8) -> bool,
) -> Result<Output> {
    let mut summed: Vec<(u8, i64)> = Vec::new();
    let behind = subscripts.named[1].len() as i64;
    let places = (0..).zip(subscripts.named[0].iter()).chain((-behind..).zip(subscripts.named[1].iter()));
    for (axis, label) in places {
        if !is_kept(*label) && !summed.iter().any(|(other, _)| other == label) {
            summed.push((*label, axis));
        }
    }
    if summed.is_empty() {
        return if labels == subscripts.text { Ok(gradient) } else { einsum(g, &[gradient], &format!("{labels}->{}", subscripts.text)) };
    }
    let (shape, of_input) = (g.shape(gradient)?, g.shape(input)?);
    let mut sizes = Vec::with_capacity(summed.len() + 1);
    for (_, axis) in &summed {
        sizes.push(part(g, of_input, *axis, Some(axis + 1).filter(|end| *end != 0))?);
    }
    sizes.push(shape);
    let ones = g.ints(&vec![1; summed.len()])?;
    let narrow = joined(g, &[ones, shape])?;
    let wide = joined(g, &sizes)?;
    let narrow = g.reshape(gradient, narrow)?;
    let wide = g.op("BroadcastTo", &[narrow, wide])?;
    let names: String = summed.iter().map(|(label, _)| *label as char).collect();
    einsum(g, &[wide], &format!("{names}{labels}->{}", subscripts.text))
}

/// Elements `begin..end` of a vector; negative places count from the end.
fn part(g: &mut Grad<'_>, vector: Output, begin: i64, end: Option<i64>) -> Result<Output> {
    let (first, last, step) = (g.ints(&[begin])?, g.ints(&[end.unwrap_or(0)])?, g.ints(&[1])?);
    g.op_with("StridedSlice", &[vector, first, last, step], &[("end_mask", AttrValue::Int(i64::from(end.is_none())))])
}

fn joined(g: &mut Grad<'_>, vectors: &[Output]) -> Result<Output> {
    let axis = g.int(0)?;
    g.op("ConcatV2", &[vectors, &[axis]].concat())
}

/// Sums gradients over the dimensions of ellipses along which an operand was repeated.
fn unbroadcast(g: &mut Grad<'_>, subscripts: &[String], gradients: &[Output]) -> Result<Vec<Output>> {
    let bounds: Vec<(i64, Option<i64>)> = subscripts
        .iter()
        .map(|text| {
            let (before, after) = text.split_once("...").unwrap_or((text, ""));
            (before.len() as i64, Some(-(after.len() as i64)).filter(|end| *end != 0))
        })
        .collect();
    let known = |g: &Grad<'_>, side: usize| -> Option<Vec<u64>> {
        let dims = g.shape_of(g.input(side)).complete()?.to_vec();
        let end = (dims.len() as i64 + bounds[side].1.unwrap_or(0)) as usize;
        dims.get(bounds[side].0 as usize..end).map(<[u64]>::to_vec)
    };
    if known(g, 0).is_some() && known(g, 0) == known(g, 1) {
        return Ok(gradients.to_vec());
    }
    let mut shapes = Vec::with_capacity(2);
    let mut unnamed = Vec::with_capacity(2);
    for (side, (begin, end)) in bounds.iter().enumerate() {
        let shape = g.shape_as(g.input(side), DataType::Int32)?;
        unnamed.push(part(g, shape, *begin, *end)?);
        shapes.push(shape);
    }
    let axes = g.op("BroadcastGradientArgs", &[unnamed[0], unnamed[1]])?;
    let mut reduced = Vec::with_capacity(2);
    for side in 0..2 {
        let first = g.int(bounds[side].0)?;
        let over = g.op("AddV2", &[Output { index: side as u32, ..axes }, first])?;
        let sum = g.sum(gradients[side], over, false)?;
        reduced.push(g.reshape(sum, shapes[side])?);
    }
    Ok(reduced)
}
