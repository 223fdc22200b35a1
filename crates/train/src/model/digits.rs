//! The network for the handwritten digits: 64-128-64-10.

use plimsoll::GraphBuilder;
use plimsoll::builder::{Initializer, Reuse};
use plimsoll::{AttrValue, Output};
use plimsoll::{DataType, Result};

use super::Losses;
use crate::data::digits::{CLASSES, PIXELS};

/// Units of the hidden layers.
const HIDDEN: [u64; 2] = [128, 64];

/// Two hidden layers with relu, sparse softmax cross-entropy: `inputs` are images, float `[n, 64]`, and labels, int32 `[n]`.
/// Variables stand on `/cpu:0`.
///
/// # Errors
/// INVALID_ARGUMENT for inputs of other types or shapes.
pub fn digits(b: &mut GraphBuilder, inputs: &[Output]) -> Result<Losses> {
    let [images, labels] = *inputs else {
        return Err(plimsoll::Error::invalid_argument(format!("the network takes images and labels, not {} tensors", inputs.len())));
    };
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
    let each = b.sparse_softmax_cross_entropy(logits, labels).name("cross_entropy").build()?;
    let loss = b.reduce_mean(each, None).name("loss").build()?;
    let predicted = b.arg_max(logits, 1).attr("output_type", AttrValue::data_type(DataType::Int32)).name("predicted").build()?;
    let is_right = b.equal(predicted, labels).build()?;
    let as_number = b.cast(is_right, DataType::Int32).build()?;
    let correct = b.reduce_sum(as_number, None).name("correct").build()?;
    Ok(Losses { loss, correct })
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
