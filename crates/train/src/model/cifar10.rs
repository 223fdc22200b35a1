//! The network of TensorFlow's CIFAR-10 tutorial (`tutorials/image/cifar10/cifar10.py`), with its names.

use plimsoll::builder::GraphBuilder;
use plimsoll::builder::{Initializer, Reuse};
use plimsoll::graph::AttrValue;
use plimsoll::{Output, Result};

use super::{Decay, Losses, Model, OptimizerKind, layers};

/// The tutorial's training: gradient descent, its rate times 0.1 every 350 epochs; moving averages of all variables.
pub const CIFAR10: Model = Model {
    name: "cifar10",
    layers: "conv64-conv64-384-192-10",
    network: cifar10,
    optimizer: OptimizerKind::Sgd,
    rates: [0.1, 0.01, 0.001],
    decay: Some(Decay { epochs: 350.0, factor: 0.1 }),
    moving_average: Some(0.9999),
};

/// Two convolutions with pooling and local response normalisation, two dense layers with weight decay, softmax: `inputs` are
/// images, float `[n, height, width, 3]`, and labels, int32 `[n]`. Variables stand on `/cpu:0`.
///
/// # Errors
/// INVALID_ARGUMENT for inputs of other types or shapes.
pub fn cifar10(b: &mut GraphBuilder, inputs: &[Output]) -> Result<Losses> {
    let [images, labels] = layers::images_and_labels(inputs)?;
    // Seeds are the layers' numbers, so that they do not depend on how many nodes there are before.
    let normal = |stddev: f32, layer: i64| Initializer::truncated_normal(stddev, Some(layer));
    let conv1 = layers::convolution(b, "conv1", images, [5, 5, 3, 64], &normal(5e-2, 0), 0.0)?;
    let pool1 = b.max_pool(conv1, [3, 3], [2, 2], "SAME").name("pool1").build()?;
    let norm1 = norm(b, pool1, "norm1")?;
    let conv2 = layers::convolution(b, "conv2", norm1, [5, 5, 64, 64], &normal(5e-2, 1), 0.1)?;
    let norm2 = norm(b, conv2, "norm2")?;
    let pool2 = b.max_pool(norm2, [3, 3], [2, 2], "SAME").name("pool2").build()?;
    let mut decays = Vec::new();
    let width = layers::features(b, pool2)?;
    let local3 = b.variable_scope("local3", Reuse::No, |b| {
        let flat = b.reshape(pool2, &[-1, width as i64]).build()?;
        local(b, "local3", flat, [width, 384], &normal(0.04, 2), &mut decays)
    })?;
    let local4 = b.variable_scope("local4", Reuse::No, |b| local(b, "local4", local3, [384, 192], &normal(0.04, 3), &mut decays))?;
    let logits = b.variable_scope("softmax_linear", Reuse::No, |b| {
        let (weights, biases) = layers::weights_and_biases(b, &[192, 10], &normal(1.0 / 192.0, 4), 0.0)?;
        let product = b.matmul(local4, weights.value).build()?;
        b.add(product, biases.value).name("softmax_linear").build()
    })?;
    let scores = layers::scores(b, logits, labels)?;
    layers::with_decays(b, scores, &decays)
}

/// Local response normalisation over nine channels.
fn norm(b: &mut GraphBuilder, x: Output, name: &str) -> Result<Output> {
    let node = b.lrn(x).attr("depth_radius", AttrValue::Int(4)).attr("bias", AttrValue::Float(1.0));
    node.attr("alpha", AttrValue::Float(0.001 / 9.0)).attr("beta", AttrValue::Float(0.75)).name(name).build()
}

/// `relu(x * weights + biases)`; the decay of the weights goes to `decays`.
fn local(b: &mut GraphBuilder, name: &str, x: Output, shape: [u64; 2], weights: &Initializer, decays: &mut Vec<Output>) -> Result<Output> {
    let (weights, biases) = layers::weights_and_biases(b, &shape, weights, 0.1)?;
    decays.push(layers::weight_decay(b, &weights, 0.004)?);
    let product = b.matmul(x, weights.value).build()?;
    let sums = b.add(product, biases.value).build()?;
    b.relu(sums).name(name).build()
}
