//! The network of TensorFlow's CIFAR-10 tutorial under half of its activations, about.

use plimsoll_base::{Bytes, DataType};
use plimsoll_cards::Options;
use plimsoll_graph::Output;
use plimsoll_ops::GraphBuilder;
use plimsoll_ops::builder::{Initializer, Variable};
use plimsoll_plan::{Lines, Plan, plan};

use crate::plans::{Run, builder, float, requested};

const IMAGES: u64 = 128;

/// A variable of ones.
fn variable(b: &mut GraphBuilder, name: &str, shape: &[u64]) -> Variable {
    b.get_variable(name, DataType::Float, shape.to_vec(), &Initializer::Ones).unwrap()
}

/// A convolution of 5 x 5 taps with a bias and Relu, and its variables.
fn convolution(b: &mut GraphBuilder, x: Output, name: &str, from: u64, variables: &mut Vec<Variable>) -> Output {
    let filter = variable(b, &format!("{name}/filter"), &[5, 5, from, 64]);
    let bias = variable(b, &format!("{name}/bias"), &[64]);
    let conv = b.conv2d(x, filter.value, [1, 1], "SAME").name(&format!("{name}/conv")).build().unwrap();
    let sum = b.bias_add(conv, bias.value).build().unwrap();
    variables.extend([filter, bias]);
    b.relu(sum).build().unwrap()
}

/// A step of gradient descent: both convolutions with their poolings and normalizations, and three dense layers.
fn step(lines: &Lines) -> Plan {
    let mut b = builder();
    let x = float(&mut b, "x");
    let mut variables = Vec::new();
    let pooled = |b: &mut GraphBuilder, y: Output| b.max_pool(y, [3, 3], [2, 2], "SAME").build().unwrap();
    let one = convolution(&mut b, x, "one", 3, &mut variables);
    let one = pooled(&mut b, one);
    let one = b.lrn(one).build().unwrap();
    let two = convolution(&mut b, one, "two", 64, &mut variables);
    let two = b.lrn(two).build().unwrap();
    let two = pooled(&mut b, two);
    let mut y = b.reshape(two, &[IMAGES as i64, 6 * 6 * 64]).build().unwrap();
    for (name, shape) in [("three", [6 * 6 * 64, 384]), ("four", [384, 192]), ("five", [192, 10])] {
        let weights = variable(&mut b, name, &shape);
        let product = b.matmul(y, weights.value).build().unwrap();
        y = b.relu(product).build().unwrap();
        variables.push(weights);
    }
    let loss = b.reduce_mean(y, None).name("loss").build().unwrap();
    let values: Vec<Output> = variables.iter().map(|variable| variable.value).collect();
    let gradients = b.gradients(&[loss], &values).unwrap();
    let rate = b.scalar(0.1f32).unwrap();
    let updates = variables.iter().zip(gradients).map(|(variable, gradient)| {
        let update = b.op("ApplyGradientDescent").inputs([variable.handle, rate, gradient.unwrap()]);
        update.build_node().unwrap()
    });
    let updates: Vec<_> = updates.collect();
    b.group(&updates, "train").unwrap();
    requested(lines, b, Options::new(), Run(&[("x", &[IMAGES, 24, 24, 3])], &["loss"], &["train"]), plan).unwrap()
}

/// Cheap works run again in chains for a line, and no convolution does; where that is not enough, chains have more parts.
#[test]
fn about_half_of_the_activations_take_a_tenth_more_time() {
    let as_it_is = step(&Lines::NONE);
    let peak = &as_it_is.devices[0].peak;
    for (percent, longer) in [(54, 1.08), (53, 1.11)] {
        let line = peak.total() - Bytes((peak.activations + peak.workspace).0 / 100 * (100 - percent));
        let plan = step(&Lines { most: vec![Some(line)], ..Lines::NONE });
        assert!(plan.devices[0].peak.total() <= line, "{:?} are over {line}", plan.devices[0].peak);
        assert!(plan.seconds <= longer * as_it_is.seconds, "{percent} %: {} and {} seconds", as_it_is.seconds, plan.seconds);
    }
}
