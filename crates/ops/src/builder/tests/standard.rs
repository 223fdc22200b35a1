//! With the rules of this crate: a network on two towers, every optimizer.

use super::*;
use crate::builder::optimizer::{
    Adam, ExponentialMovingAverage, GradientDescent, Momentum, Optimizer, average_gradients, compute_gradients, exponential_decay,
};
use plimsoll_graph::AttrValue;
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

/// The sum of squares on one side of a condition, the tensor itself on the other.
fn condition(b: &mut GraphBuilder) -> Result<(Output, Output)> {
    let x = float(b, "x");
    let predicate = b.placeholder("p", DataType::Bool, dims([])).build()?;
    let taken = b.op("Switch").inputs([x, predicate]).build_node()?;
    let (no, yes) = (Output { node: taken, index: 0 }, Output { node: taken, index: 1 });
    let square = b.mul(yes, yes).build()?;
    let merged = b.op("Merge").inputs([no, square]).build_node()?;
    Ok((x, Output { node: merged, index: 0 }))
}

#[test]
fn gradients_go_through_the_side_that_is_taken() {
    let mut b = GraphBuilder::new(Arc::new(Registry::standard(Arc::new(CpuKernels))));
    let (x, y) = condition(&mut b).unwrap();
    let gradient = b.gradients(&[y], &[x]).unwrap()[0].unwrap();
    assert_eq!(
        lines(b.graph(), "gradients/Merge_grad"),
        [
            "gradients/Merge_grad/Const = Const()",
            "gradients/Merge_grad/Equal = Equal(Merge:1, gradients/Merge_grad/Const)",
            "gradients/Merge_grad/Switch = Switch(gradients/grad_ys_0, gradients/Merge_grad/Equal)",
        ]
    );
    assert_eq!(b.node(gradient.node).op, "Merge");
    assert_eq!(b.node(gradient.node).inputs[0], Output { node: b.graph().find("gradients/Merge_grad/Switch").unwrap(), index: 0 });
    verify(b);

    // Where nothing depends on a side, its gradient is zeros of that side.
    let mut b = GraphBuilder::new(Arc::new(Registry::standard(Arc::new(CpuKernels))));
    let x = float(&mut b, "x");
    let predicate = b.placeholder("p", DataType::Bool, dims([])).build().unwrap();
    let node = b.op("Switch").inputs([x, predicate]).build_node().unwrap();
    let y = b.relu(Output { node, index: 1 }).build().unwrap();
    assert!(b.gradients(&[y], &[x]).unwrap()[0].is_some());
    let zeros = lines(b.graph(), "gradients/Switch_grad");
    assert_eq!(zeros[0], "gradients/Switch_grad/ZerosLike = ZerosLike(x)");
    assert_eq!(zeros[1], "gradients/Switch_grad/Switch = Switch(gradients/Switch_grad/ZerosLike, p)");
    verify(b);
}

#[test]
fn a_loop_is_closed_and_has_no_gradient() {
    let mut b = GraphBuilder::new(Arc::new(Registry::standard(Arc::new(CpuKernels))));
    let frame = |name: &str| AttrValue::Bytes(name.into());
    let x = float(&mut b, "x");
    let first = b.op("Enter").input(x).attr("frame_name", frame("f")).build().unwrap();
    let step = b.op("Enter").input(x).attr("frame_name", frame("f")).attr("is_constant", AttrValue::Bool(true)).build().unwrap();
    let merge = b.op("Merge").inputs([first, first]).build_node().unwrap();
    let value = Output { node: merge, index: 0 };
    let most = b.reduce_mean(value, None).build().unwrap();
    let limit = b.reduce_mean(step, None).build().unwrap();
    let less = b.op("Less").inputs([most, limit]).build().unwrap();
    let goes_on = b.op("LoopCond").input(less).build().unwrap();
    let sides = b.op("Switch").inputs([value, goes_on]).build_node().unwrap();
    let sum = b.add(Output { node: sides, index: 1 }, step).build().unwrap();
    let next = b.op("NextIteration").input(sum).build_node().unwrap();
    let scalar = b.op("NextIteration").input(limit).build_node().unwrap();
    assert_error(b.close_loop(merge, sides), Code::InvalidArgument, "", "from a NextIteration to a Merge of two");
    assert_error(b.close_loop(sides, next), Code::InvalidArgument, "", "from a NextIteration to a Merge of two");
    assert_error(b.close_loop(merge, scalar), Code::InvalidArgument, "Merge", "an iteration gives float[] where float[2,3]");
    b.close_loop(merge, next).unwrap();
    let out = b.op("Exit").input(Output { node: sides, index: 0 }).build().unwrap();
    assert_error(b.gradients(&[out], &[x]), Code::Unimplemented, "Exit", "No gradient defined for operation 'Exit'");
}
