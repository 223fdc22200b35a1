//! The common parts of networks: inputs, layers with weight decay, scores.

use plimsoll::builder::GraphBuilder;
use plimsoll::builder::{Initializer, Reuse, Variable};
use plimsoll::graph::AttrValue;
use plimsoll::{DataType, Error, HostTensor, Output, Result, Shape};

use super::Losses;

/// The device of the variables that layers make.
const VARIABLES: &str = "/cpu:0";

/// The two tensors of a batch.
pub(super) fn images_and_labels(inputs: &[Output]) -> Result<[Output; 2]> {
    inputs.try_into().map_err(|_| Error::invalid_argument(format!("the network takes images and labels, not {} tensors", inputs.len())))
}

/// A layer's variables, on the CPU: `weights` of that shape, `biases` for its last axis.
pub(super) fn weights_and_biases(b: &mut GraphBuilder, shape: &[u64], weights: &Initializer, biases: f64) -> Result<(Variable, Variable)> {
    b.device(VARIABLES, |b| {
        let units = shape.last().copied().unwrap_or(1);
        let weights = b.get_variable("weights", DataType::Float, Shape::new(shape), weights)?;
        let biases = b.get_variable("biases", DataType::Float, [units], &Initializer::Constant(biases))?;
        Ok((weights, biases))
    })
}

/// `relu(conv2d(x, weights) + biases)` with stride 1 and padding SAME, in the scope of that name.
pub(super) fn convolution(
    b: &mut GraphBuilder,
    name: &str,
    x: Output,
    shape: [u64; 4],
    weights: &Initializer,
    biases: f64,
) -> Result<Output> {
    b.variable_scope(name, Reuse::No, |b| {
        let (weights, biases) = weights_and_biases(b, &shape, weights, biases)?;
        let sums = b.conv2d(x, weights.value, [1, 1], "SAME").build()?;
        let sums = b.bias_add(sums, biases.value).build()?;
        b.relu(sums).name(name).build()
    })
}

/// `factor * l2_loss(weights)`, named `weight_loss` in the scope at hand.
pub(super) fn weight_decay(b: &mut GraphBuilder, weights: &Variable, factor: f32) -> Result<Output> {
    let loss = b.l2_loss(weights.value).build()?;
    let factor = b.constant(HostTensor::scalar(factor)).name("weight_loss/y").build()?;
    b.mul(loss, factor).name("weight_loss").build()
}

/// Sparse softmax cross-entropy of the batch, and how many of its examples are right.
pub(super) fn scores(b: &mut GraphBuilder, logits: Output, labels: Output) -> Result<Losses> {
    let each = b.sparse_softmax_cross_entropy(logits, labels).build()?;
    let loss = b.reduce_mean(each, None).name("cross_entropy").build()?;
    let predicted = b.arg_max(logits, 1).attr("output_type", AttrValue::data_type(DataType::Int32)).name("predicted").build()?;
    let is_right = b.equal(predicted, labels).build()?;
    let as_number = b.cast(is_right, DataType::Int32).build()?;
    let correct = b.reduce_sum(as_number, None).name("correct").build()?;
    Ok(Losses { loss, correct })
}

/// The scores with decays of weights added to their loss, which is named `total_loss`.
pub(super) fn with_decays(b: &mut GraphBuilder, scores: Losses, decays: &[Output]) -> Result<Losses> {
    let loss = b.add_n(decays.iter().copied().chain([scores.loss])).name("total_loss").build()?;
    Ok(Losses { loss, ..scores })
}

/// How many elements one example of `x`, of shape `[n, ...]`, has.
pub(super) fn features(b: &GraphBuilder, x: Output) -> Result<u64> {
    let dims = b.fact(x).shape.0.clone().unwrap_or_default();
    let product = dims.get(1..).and_then(|dims| dims.iter().try_fold(1u64, |product, dim| product.checked_mul((*dim)?)));
    product.ok_or_else(|| Error::invalid_argument(format!("the size of one example is not known: {}", b.fact(x).shape)))
}
