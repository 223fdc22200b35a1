//! Fusions of Softmax: attention in one work.

use plimsoll_base::DataType;
use plimsoll_request::KernelRequest;
use plimsoll_request::anchor::{Anchor, Epilogue};
use plimsoll_request::attention::Attention;
use plimsoll_request::expr::{Expr, ExprBuilder};
use plimsoll_request::nn::Nn;
use plimsoll_request::product::ProductSpec;

use super::scaled;
use crate::fusion::{Becomes, Computes, Fusion, Patch, Stage, View, WorkId, Works};

/// The product of a softmax with values, where the softmax is of products that nobody else reads: scores are nowhere as a
/// whole. Of narrow floats before anything else is joined, as engines of cards have it.
pub const FUSIONS: &[Fusion] = &[
    Fusion { name: "attention_with_gradient", stage: Stage::Lowered, find: scaled::with_gradient },
    Fusion { name: "scaled_attention", stage: Stage::Lowered, find: scaled::forward },
    Fusion { name: "attention", stage: Stage::Joined, find: attention },
];

/// What a softmax is of.
struct Scores {
    spec: ProductSpec,
    shape: Vec<u64>,
    between: Option<Epilogue>,
    /// Q, K and the operands of what is between.
    inputs: Vec<View>,
}

fn attention(works: &dyn Works, work: WorkId) -> Option<Patch> {
    let (values, None) = product(works, work)? else { return None };
    let [shares, of_values] = works.inputs(work) else { return None };
    if of_values.value == shares.value {
        return None;
    }
    let softmax = alone(works, shares, work)?;
    let Computes::Request(request @ KernelRequest::Nn(Nn::Softmax { log: false, data_type: DataType::Float, rows, classes })) =
        works.computes(softmax)
    else {
        return None;
    };
    if values.batch.checked_mul(values.m) != Some(*rows) || values.k != *classes || !works.takes(work, request, &works.request(work)?) {
        return None;
    }
    let Scores { spec, shape, between, mut inputs } = scores(works, works.inputs(softmax).first()?, softmax)?;
    let becomes = KernelRequest::Attention(Attention { scores: spec, shape, between, values });
    if becomes.arguments().is_err() || !works.answers(work, &becomes) {
        return None;
    }
    inputs.push(of_values.clone());
    Some(Patch::new(works).join(&[softmax], work, Becomes::Request(becomes), inputs, works.outputs(work).to_vec()))
}

/// The work that makes what only `reader` reads.
fn alone(works: &dyn Works, value: &View, reader: WorkId) -> Option<WorkId> {
    let work = works.maker(value.value)?;
    let is_alone = *works.readers(value.value) == [reader] && works.outputs(work).len() == 1 && !works.is_kept(value.value);
    (is_alone && works.absorbs(reader, work)).then_some(work)
}

/// The products that a value is, perhaps with an expression of them.
fn scores(works: &dyn Works, value: &View, reader: WorkId) -> Option<Scores> {
    let work = alone(works, value, reader)?;
    let inputs = works.inputs(work);
    let shapes = |operands: &[View]| operands.iter().map(|operand| operand.shape.to_vec()).collect();
    match (product(works, work), works.computes(work)) {
        (Some((spec, None)), _) => Some(Scores { spec, shape: value.shape.to_vec(), between: None, inputs: inputs.to_vec() }),
        // One product, whose expression is its epilogue.
        (Some((spec, Some(expr))), _) => {
            let between = Some(Epilogue { expr: expr.clone(), operands: shapes(&inputs[2..]) });
            Some(Scores { spec, shape: vec![spec.m, spec.n], between, inputs: inputs.to_vec() })
        }
        (None, Computes::Expr(expr, shape)) => {
            let of_product = |input: &View| {
                let maker = alone(works, input, work).filter(|_| input.shape == *shape)?;
                let (spec, first) = product(works, maker)?;
                Some((maker, spec, first))
            };
            let (at, (maker, spec, first)) = inputs.iter().enumerate().find_map(|(at, input)| Some((at, of_product(input)?)))?;
            let inputs = [works.inputs(maker), &inputs[..at], &inputs[at + 1..]].concat();
            let between = Some(Epilogue { expr: joined(first, expr, at)?, operands: shapes(&inputs[2..]) });
            Some(Scores { spec, shape: shape.to_vec(), between, inputs })
        }
        (None, _) => None,
    }
}

/// The products of floats that a work computes, and the expression behind them.
fn product(works: &dyn Works, work: WorkId) -> Option<(ProductSpec, Option<&Expr>)> {
    match works.computes(work) {
        Computes::Anchor(Anchor::Product(DataType::Float, spec), expr) => Some((*spec, expr)),
        Computes::Request(KernelRequest::Anchor { anchor: Anchor::Product(DataType::Float, spec), epilogue: None, pooling: None }) => {
            Some((*spec, None))
        }
        _ => None,
    }
}

/// The expression with that operand before the others; with `first`, of what that makes of it.
fn joined(first: Option<&Expr>, expr: &Expr, at: usize) -> Option<Expr> {
    let mut builder = ExprBuilder::new();
    let mut score = builder.input(DataType::Float).ok()?;
    if let Some(first) = first {
        let mut operands = vec![score];
        for data_type in &first.inputs()[1..] {
            operands.push(builder.input(*data_type).ok()?);
        }
        score = *builder.inline(first, &operands).ok()?.first()?;
    }
    let mut operands = Vec::with_capacity(expr.inputs().len());
    for (number, data_type) in expr.inputs().iter().enumerate() {
        operands.push(if number == at { score } else { builder.input(*data_type).ok()? });
    }
    let outputs = builder.inline(expr, &operands).ok()?;
    Some(builder.finish(outputs))
}
