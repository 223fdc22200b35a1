//! Writes small training graphs that the builder makes, one for each kind of variable and optimizer:
//! `export_training FOLDER` writes `FOLDER/KIND-OPTIMIZER.pb`. `scripts/check_builder_export.py` runs them in TensorFlow.

use std::path::Path;
use std::sync::Arc;

use plimsoll_base::{DataType, Result};
use plimsoll_graph::{Graph, HostTensor, Output, PartialShape};
use plimsoll_kernels::CpuKernels;
use plimsoll_ops::builder::optimizer::{
    Adam, ExponentialMovingAverage, GradientDescent, Momentum, Optimizer, average_gradients, compute_gradients, exponential_decay,
};
use plimsoll_ops::{GraphBuilder, Initializer, Registry, Reuse, Variable, VariableKind};

fn main() {
    let folder = std::env::args().nth(1).unwrap_or_else(|| ".".to_string());
    let registry = Arc::new(Registry::standard(Arc::new(CpuKernels)));
    for (kind, kind_name) in [(VariableKind::Reference, "reference"), (VariableKind::Resource, "resource")] {
        for optimizer in ["sgd", "momentum", "nesterov", "adam"] {
            let graph = training(&registry, kind, optimizer).expect("the graph is built");
            let path = Path::new(&folder).join(format!("{kind_name}-{optimizer}.pb"));
            std::fs::write(&path, plimsoll_formats::write_graph_def(&graph.to_def())).expect("the folder can be written to");
        }
    }
}

/// Two towers of a network 4-5-3 whose gradients are averaged: feed `tower_K/x` (float, N x 4) and `tower_K/y` (int64, N),
/// fetch `total`, run `train`.
fn training(registry: &Arc<Registry>, kind: VariableKind, optimizer: &str) -> Result<Graph> {
    let mut b = GraphBuilder::new(registry.clone());
    b.set_variable_kind(kind);
    b.set_gate_gradients(true);
    b.set_seed(Some(3));
    let step = b.get_untrained_variable("global_step", DataType::Int64, [], &Initializer::Zeros)?;
    let rate = exponential_decay(&mut b, 0.1, &step, 2.0, 0.5, true)?;
    let mut optimizer: Box<dyn Optimizer> = match optimizer {
        "sgd" => Box::new(GradientDescent::new(rate)),
        "adam" => Box::new(Adam::new(rate)),
        momentum => Box::new(Momentum::new(rate, 0.9).nesterov(momentum == "nesterov")),
    };
    let (mut losses, mut gradients) = (Vec::new(), Vec::new());
    for number in 0..2 {
        let (loss, of_tower) = b.device("/cpu:0", |b| b.name_scope(&format!("tower_{number}"), tower))?;
        losses.push(loss);
        gradients.push(of_tower);
    }
    let gradients = average_gradients(&mut b, &gradients)?;
    let applied = optimizer.apply_gradients_and_count(&mut b, &gradients, &step, "")?;
    let variables: Vec<Variable> = gradients.iter().map(|(_, variable)| variable.clone()).collect();
    let averaged = b.control_dependencies(&[applied], |b| ExponentialMovingAverage::new(0.99).num_updates(&step).apply(b, &variables))?;
    b.group(&[applied, averaged], "train")?;
    b.add_n(losses).name("total").build()?;
    b.untrained_variable("glorot", DataType::Float, [60, 40], &Initializer::glorot_uniform(None))?;
    b.untrained_variable("he", DataType::Float, [3, 3, 16, 8], &Initializer::he_normal(Some(4)))?;
    b.untrained_variable("normal", DataType::Float, [60, 40], &Initializer::random_normal(0.5, Some(4)))?;
    b.global_variables_initializer()?;
    Ok(b.finish())
}

type Gradients = Vec<(Output, Variable)>;

fn tower(b: &mut GraphBuilder) -> Result<(Output, Gradients)> {
    let x = b.placeholder("x", DataType::Float, PartialShape(Some(vec![None, Some(4)]))).build()?;
    let y = b.placeholder("y", DataType::Int64, PartialShape(Some(vec![None]))).build()?;
    let hidden = b.variable_scope("hidden", Reuse::Auto, |b| layer(b, x, [4, 5]))?;
    let hidden = b.relu(hidden).build()?;
    let logits = b.variable_scope("output", Reuse::Auto, |b| layer(b, hidden, [5, 3]))?;
    let losses = b.sparse_softmax_cross_entropy(logits, y).build()?;
    let mean = b.reduce_mean(losses, None).build()?;
    let variables = b.trainable_variables();
    let decay = b.l2_loss(variables[0].value).build()?;
    let loss = b.add(mean, decay).name("loss").build()?;
    Ok((loss, compute_gradients(b, loss, &variables)?))
}

fn layer(b: &mut GraphBuilder, x: Output, shape: [u64; 2]) -> Result<Output> {
    let first: Vec<f32> = (0..shape[0] * shape[1]).map(|number| number as f32 * 0.1 - 0.7).collect();
    let weights = b.get_variable("weights", DataType::Float, shape, &Initializer::Value(HostTensor::from_slice(shape, &first)?))?;
    let biases = b.get_variable("biases", DataType::Float, [shape[1]], &Initializer::Constant(0.1))?;
    let product = b.matmul(x, weights.value).build()?;
    b.bias_add(product, biases.value).build()
}
