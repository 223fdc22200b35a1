//! With the rules of this crate: a network on two towers, every optimizer.

use super::*;
use crate::builder::optimizer::{
    Adam, ExponentialMovingAverage, GradientDescent, Momentum, Optimizer, average_gradients, compute_gradients, exponential_decay,
};
use plimsoll_kernels::CpuKernels;
use std::sync::Arc;

type Gradients = Vec<(Output, Variable)>;

/// A layer with its parameters on the CPU.
fn layer(b: &mut GraphBuilder, scope: &str, x: Output, shape: [u64; 2]) -> Result<Output> {
    b.variable_scope(scope, Reuse::Auto, |b| {
        let zeros = &Initializer::Zeros;
        let weights = b.device("/cpu:0", |b| b.get_variable("weights", DataType::Float, shape, zeros))?;
        let biases = b.device("/cpu:0", |b| b.get_variable("biases", DataType::Float, [shape[1]], zeros))?;
        let x = b.matmul(x, weights.value).build()?;
        b.bias_add(x, biases.value).build()
    })
}

fn tower(b: &mut GraphBuilder) -> Result<(Output, Gradients)> {
    let images = b.placeholder("images", DataType::Float, dims([8, 6, 6, 4])).build()?;
    let labels = b.placeholder("labels", DataType::Int64, dims([8])).build()?;
    let flat = b.reshape(images, &[8, -1]).build()?;
    let hidden = layer(b, "local", flat, [144, 32])?;
    let hidden = b.relu(hidden).build()?;
    let logits = layer(b, "softmax", hidden, [32, 10])?;
    let losses = b.sparse_softmax_cross_entropy(logits, labels).build()?;
    let mean = b.reduce_mean(losses, None).build()?;
    let variables = b.trainable_variables();
    let norm = b.l2_loss(variables[2].value).build()?;
    let factor = b.scalar(0.004f32)?;
    let decay = b.mul(norm, factor).name("weight_loss").build()?;
    let loss = b.add_n([mean, decay]).name("total_loss").build()?;
    let best = b.arg_max(logits, 1).build()?;
    let right = b.equal(best, labels).build()?;
    let right = b.cast(right, DataType::Float).build()?;
    b.reduce_mean(right, None).name("accuracy").build()?;
    Ok((loss, compute_gradients(b, loss, &variables)?))
}

#[test]
fn towers_of_a_network_are_known_to_the_last_node() {
    let registry = Arc::new(Registry::standard(Arc::new(CpuKernels)));
    for kind in kinds() {
        let optimizers: [Box<dyn Optimizer>; 3] =
            [Box::new(GradientDescent::new(0.1)), Box::new(Momentum::new(0.1, 0.9)), Box::new(Adam::new(0.1))];
        for mut optimizer in optimizers {
            let mut b = GraphBuilder::new(registry.clone());
            b.set_variable_kind(kind);
            b.set_seed(Some(1));
            let towers: Result<Vec<_>> =
                (0..2).map(|n| b.device(&format!("/gpu:{n}"), |b| b.name_scope(&format!("tower_{n}"), tower))).collect();
            let (losses, gradients): (Vec<Output>, Vec<Gradients>) = towers.unwrap().into_iter().unzip();
            let step = b.get_untrained_variable("global_step", DataType::Int64, [], &Initializer::Zeros).unwrap();
            exponential_decay(&mut b, 0.1, &step, 350.0, 0.1, true).unwrap();
            let gradients = b.device("/cpu:0", |b| average_gradients(b, &gradients)).unwrap();
            let train = optimizer.apply_gradients_and_count(&mut b, &gradients, &step, "").unwrap();
            let variables = b.trainable_variables();
            assert_eq!(variables.len(), 4);
            b.control_dependencies(&[train], |b| ExponentialMovingAverage::new(0.999).num_updates(&step).apply(b, &variables)).unwrap();
            b.global_variables_initializer().unwrap();

            for (gradient, variable) in &gradients {
                assert_eq!(b.shape_of(*gradient), &PartialShape::from(&variable.shape));
            }
            assert_eq!(b.shape_of(losses[1]), &dims([]));
            for id in b.graph().nodes().ids() {
                let node = b.node(id);
                registry.require(&node.op).unwrap();
                for index in 0..b.output_count(id) as u32 {
                    let shape = b.shape_of(Output { node: id, index });
                    assert!(shape.complete().is_some(), "{} has shape {shape}", node.name);
                }
                if node.name.contains("local/MatMul_grad") {
                    let wanted = if node.name.contains("tower_0/") { "/device:GPU:0" } else { "/device:GPU:1" };
                    assert_eq!(node.device, wanted, "{}", node.name);
                }
            }
            verify(b);
        }
    }
}
