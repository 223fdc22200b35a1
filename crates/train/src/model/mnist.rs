//! The network of TensorFlow's MNIST tutorial (`tutorials/image/mnist/convolutional.py`), without its dropout.

use plimsoll::builder::GraphBuilder;
use plimsoll::builder::{Initializer, Reuse};
use plimsoll::{Output, Result};

use super::{Decay, Losses, Model, OptimizerKind, layers};

/// The tutorial's training: momentum, its rate times 0.95 every epoch.
pub const MNIST: Model = Model {
    name: "mnist",
    layers: "conv32-conv64-512-10",
    network: mnist,
    optimizer: OptimizerKind::Momentum,
    rates: [0.1, 0.01, 0.001],
    decay: Some(Decay { epochs: 1.0, factor: 0.95 }),
    moving_average: None,
};

/// Two convolutions with pooling, two dense layers with weight decay, softmax: `inputs` are images, float `[n, 28, 28, 1]` (or
/// `[n, 784]`), and labels, int32 `[n]`. Variables stand on `/cpu:0`.
///
/// # Errors
/// INVALID_ARGUMENT for inputs of other types or shapes.
pub fn mnist(b: &mut GraphBuilder, inputs: &[Output]) -> Result<Losses> {
    let [images, labels] = layers::images_and_labels(inputs)?;
    let normal = |layer: i64| Initializer::truncated_normal(0.1, Some(layer));
    let images = b.reshape(images, &[-1, 28, 28, 1]).build()?;
    let conv1 = layers::convolution(b, "conv1", images, [5, 5, 1, 32], &normal(0), 0.0)?;
    let pool1 = b.max_pool(conv1, [2, 2], [2, 2], "SAME").name("pool1").build()?;
    let conv2 = layers::convolution(b, "conv2", pool1, [5, 5, 32, 64], &normal(1), 0.1)?;
    let pool2 = b.max_pool(conv2, [2, 2], [2, 2], "SAME").name("pool2").build()?;
    let width = layers::features(b, pool2)?;
    let mut decays = Vec::new();
    let fc1 = b.variable_scope("fc1", Reuse::No, |b| {
        let flat = b.reshape(pool2, &[-1, width as i64]).build()?;
        let sums = dense(b, flat, [width, 512], &normal(2), &mut decays)?;
        b.relu(sums).name("fc1").build()
    })?;
    let logits = b.variable_scope("fc2", Reuse::No, |b| dense(b, fc1, [512, 10], &normal(3), &mut decays))?;
    let scores = layers::scores(b, logits, labels)?;
    layers::with_decays(b, scores, &decays)
}

/// `x * weights + biases`; the decays of both go to `decays`, as in the tutorial.
fn dense(b: &mut GraphBuilder, x: Output, shape: [u64; 2], weights: &Initializer, decays: &mut Vec<Output>) -> Result<Output> {
    let (weights, biases) = layers::weights_and_biases(b, &shape, weights, 0.1)?;
    decays.push(layers::weight_decay(b, &weights, 5e-4)?);
    decays.push(layers::weight_decay(b, &biases, 5e-4)?);
    let product = b.matmul(x, weights.value).build()?;
    b.bias_add(product, biases.value).build()
}
