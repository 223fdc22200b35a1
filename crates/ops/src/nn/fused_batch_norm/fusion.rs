//! Fusions of batch normalizations.

use plimsoll_base::DataType;
use plimsoll_request::KernelRequest;
use plimsoll_request::anchor::{Anchor, Epilogue};
use plimsoll_request::expr::ExprBuilder;
use plimsoll_request::norm::BatchNormSpec;
use plimsoll_request::window::Layout;

use crate::fusion::{Becomes, Computes, Fusion, Patch, Stage, View, WorkId, Works};

/// - A ReluGrad by the Relu of a normalization, which only the normalization's gradient reads, is part of that: it finds anew which results were above 0.
/// - An expression of what a normalization computes, which nothing else reads, and of tensors as large is part of the normalization.
/// - The convolution before a normalization by the batch's statistics sums each channel of its result, where both together are predicted to be faster.
pub const FUSIONS: &[Fusion] = &[
    Fusion { name: "batch_norm_grad_of_relu", stage: Stage::Lowered, find: of_relu },
    Fusion { name: "batch_norm_epilogue", stage: Stage::Joined, find: epilogue },
    Fusion { name: "batch_norm_of_sums", stage: Stage::Joined, find: of_sums },
];

/// The normalization without epilogue whose y a value is: the work, its sizes, and whether statistics are those of the batch.
fn norm_of(works: &dyn Works, y: &View) -> Option<(WorkId, BatchNormSpec, bool)> {
    let norm = works.maker(y.value).filter(|norm| works.outputs(*norm).first() == Some(&y.value))?;
    match works.computes(norm) {
        Computes::Request(KernelRequest::BatchNorm { spec, training, epilogue: None, .. }) if y.data_type == spec.data_type => {
            Some((norm, *spec, *training))
        }
        _ => None,
    }
}

/// The operands of an expression that a node of that operation alone became.
fn operands_of<'a>(works: &'a dyn Works, work: WorkId, op: &str) -> Option<&'a [View]> {
    (works.op(work) == op && matches!(works.computes(work), Computes::Expr(..))).then(|| works.inputs(work))
}

fn of_relu(works: &dyn Works, work: WorkId) -> Option<Patch> {
    let Computes::Request(KernelRequest::BatchNormGrad { spec, training: true, relu: false }) = works.computes(work) else { return None };
    let [gradient, x, scale, mean, variance] = works.inputs(work) else { return None };
    let relu_grad = works.maker(gradient.value)?;
    let [by_relu, features] = operands_of(works, relu_grad, "ReluGrad")? else { return None };
    let [y] = operands_of(works, works.maker(features.value)?, "Relu")? else { return None };
    let (norm, normalized, training) = norm_of(works, y)?;
    let [input, factor, offset, ..] = works.inputs(norm) else { return None };
    let [_, _, _, batch_mean, batch_variance, ..] = works.outputs(norm) else { return None };
    // The running statistics are no part of the gradient.
    let numbers = |spec: &BatchNormSpec| BatchNormSpec { exponential_avg_factor: 1.0, ..*spec };
    let is_it = training
        && numbers(&normalized) == numbers(spec)
        && (input.value, factor.value) == (x.value, scale.value)
        && (*batch_mean, *batch_variance) == (mean.value, variance.value)
        && [by_relu, features].iter().all(|view| view.elements() == x.elements() && view.data_type == spec.data_type);
    let is_alone = works.readers(gradient.value) == [work] && !works.is_kept(gradient.value) && works.absorbs(work, relu_grad);
    if !is_it || !is_alone {
        return None;
    }
    let inputs = [by_relu, x, scale, mean, variance, offset].map(View::clone).to_vec();
    let becomes = Becomes::Request(KernelRequest::BatchNormGrad { spec: *spec, training: true, relu: true });
    Some(Patch::new(works).change(work, becomes, inputs, works.outputs(work).to_vec()))
}

fn epilogue(works: &dyn Works, work: WorkId) -> Option<Patch> {
    (0..works.inputs(work).len()).find_map(|operand| behind_norm(works, work, operand))
}

/// The expression is part of the normalization that makes this operand.
fn behind_norm(works: &dyn Works, work: WorkId, operand: usize) -> Option<Patch> {
    let Computes::Expr(expr, shape) = works.computes(work) else { return None };
    let ([result], inputs) = (works.outputs(work), works.inputs(work)) else { return None };
    let y = &inputs[operand];
    let (norm, ..) = norm_of(works, y)?;
    let elements = shape.elements().ok().filter(|elements| *elements > 0)?;
    let others: Vec<View> = inputs.iter().enumerate().filter(|(at, _)| *at != operand).map(|(_, view)| view.clone()).collect();
    let is_between = works.readers(y.value) == [work] && others.iter().all(|other| other.value != y.value);
    let is_alone = is_between && !works.is_kept(y.value) && !works.is_kept(*result);
    if expr.can_fail() || !is_alone || inputs.iter().any(|view| view.elements() != elements) || !works.absorbs(work, norm) {
        return None;
    }
    let mut builder = ExprBuilder::new();
    let first = builder.input(y.data_type).ok()?;
    let mut registers = Vec::with_capacity(inputs.len());
    for (at, view) in inputs.iter().enumerate() {
        registers.push(if at == operand { first } else { builder.input(view.data_type).ok()? });
    }
    let results = builder.inline(expr, &registers).ok()?;
    let epilogue = Epilogue { expr: builder.finish(results), operands: others.iter().map(|view| view.shape.to_vec()).collect() };
    let Computes::Request(KernelRequest::BatchNorm { spec, training, reserve_3, .. }) = works.computes(norm) else { return None };
    let (spec, training, reserve_3) = (*spec, *training, *reserve_3);
    let joined = KernelRequest::BatchNorm { spec, training, reserve_3, summed: false, epilogue: Some(epilogue) };
    if !works.answers(work, &joined) || !works.is_next(norm, work) {
        return None;
    }
    let inputs = [works.inputs(norm), &others].concat();
    let outputs = [&[*result], &works.outputs(norm)[1..]].concat();
    Some(Patch::new(works).join(&[norm], work, Becomes::Request(joined), inputs, outputs))
}

/// The normalization takes sums that the convolution before it makes. What that computes stays where it is: its gradient reads it, too.
fn of_sums(works: &dyn Works, work: WorkId) -> Option<Patch> {
    let Computes::Request(apart) = works.computes(work) else { return None };
    let KernelRequest::BatchNorm { spec, training: true, reserve_3, summed: false, epilogue } = apart else { return None };
    let [x, scale, offset, mean, variance, further @ ..] = works.inputs(work) else { return None };
    let convolution = works.maker(x.value)?;
    let Computes::Anchor(anchor @ Anchor::Conv(sizes), None) = works.computes(convolution) else { return None };
    let [input, filter] = works.inputs(convolution) else { return None };
    let is_its = x.data_type == spec.data_type && sizes.data_type == spec.data_type && sizes.out_c == spec.channels;
    let is_whole = sizes.layout == Layout::ChannelsLast && x.elements() == spec.rows.checked_mul(spec.channels)?;
    if !is_its || !is_whole || !works.absorbs(work, convolution) {
        return None;
    }
    let (bare, summing) = (KernelRequest::Anchor { anchor: *anchor, epilogue: None, pooling: None }, KernelRequest::ConvStatistics(*sizes));
    let (spec, reserve_3, epilogue) = (*spec, *reserve_3, epilogue.clone());
    let summed = KernelRequest::BatchNorm { spec, training: true, reserve_3, summed: true, epilogue };
    // Processors refuse the normalization: nothing more is asked for then. The convolution comes last, as an engine may have to be compiled.
    let normalized = works.seconds(work, &summed)?;
    let together = normalized + works.seconds(convolution, &summing)?;
    if together >= works.seconds(work, apart)? + works.seconds(convolution, &bare)? {
        return None;
    }
    let mut patch = Patch::new(works);
    let bytes = DataType::Float.bytes_of(spec.channels)?;
    let sums = [(); 2].map(|()| patch.value(bytes));
    let view = |value| View { value, data_type: DataType::Float, shape: [spec.channels].into() };
    let made = [works.outputs(convolution), &sums].concat();
    let given = [x, scale, offset, mean, variance].map(View::clone).into_iter().chain(sums.map(view)).chain(further.iter().cloned());
    let patch = patch.change(convolution, Becomes::Request(summing), vec![input.clone(), filter.clone()], made);
    Some(patch.change(work, Becomes::Request(summed), given.collect(), works.outputs(work).to_vec()))
}
