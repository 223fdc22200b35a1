//! The network for the handwritten digits: 64-128-64-10.

use plimsoll::Output;
use plimsoll::builder::GraphBuilder;
use plimsoll::builder::{Initializer, Reuse};
use plimsoll::{DataType, Result};

use super::{Losses, Model, OptimizerKind, layers};
use crate::data::digits::{CLASSES, PIXELS};

/// A small network for small images.
pub const DIGITS: Model = Model {
    name: "digits",
    layers: "64-128-64-10",
    network: digits,
    optimizer: OptimizerKind::Adam,
    rates: [0.5, 0.1, 0.002],
    decay: None,
    moving_average: None,
};

/// Units of the hidden layers.
const HIDDEN: [u64; 2] = [128, 64];

/// Two hidden layers with relu, sparse softmax cross-entropy: `inputs` are images, float `[n, 64]`, and labels, int32 `[n]`.
/// Variables stand on `/cpu:0`.
///
/// # Errors
/// INVALID_ARGUMENT for inputs of other types or shapes.
pub fn digits(b: &mut GraphBuilder, inputs: &[Output]) -> Result<Losses> {
    let [images, labels] = layers::images_and_labels(inputs)?;
    let mut activations = images;
    let mut width = PIXELS as u64;
    for (number, (units, name)) in HIDDEN.iter().zip(["hidden1", "hidden2"]).enumerate() {
        activations = b.variable_scope(name, Reuse::No, |b| {
            let sums = dense(b, activations, [width, *units], number as i64)?;
            b.relu(sums).build()
        })?;
        width = *units;
    }
    let logits = b.variable_scope("softmax_linear", Reuse::No, |b| dense(b, activations, [width, CLASSES as u64], HIDDEN.len() as i64))?;
    layers::scores(b, logits, labels)
}

/// `x * weights + biases`. The layer's number is the seed of its weights, beside the graph's.
fn dense(b: &mut GraphBuilder, x: Output, shape: [u64; 2], number: i64) -> Result<Output> {
    let variables = |b: &mut GraphBuilder| {
        let weights = b.get_variable("weights", DataType::Float, shape, &Initializer::he_normal(Some(number)))?;
        let biases = b.get_variable("biases", DataType::Float, [shape[1]], &Initializer::Zeros)?;
        Ok::<_, plimsoll::Error>((weights, biases))
    };
    let (weights, biases) = b.device("/cpu:0", variables)?;
    let product = b.matmul(x, weights.value).build()?;
    b.bias_add(product, biases.value).build()
}
