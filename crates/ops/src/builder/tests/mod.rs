//! Tests of the builder, with a few rules of their own.

mod gradients;
mod nodes;
mod optimizers;
mod scopes;
mod standard;
mod variables;

use std::sync::Arc;

use plimsoll_base::{Code, DataType, Result};
use plimsoll_graph::{AttrsExt, Graph, NodeId, OpTable, Output, PartialShape};

use super::{GraphBuilder, Initializer, Reuse, Variable, VariableKind};
use crate::infer::{InferFn, broadcast, same, unknown};
use crate::registry::Gradient;
use crate::{InferCx, Lower, OpRules, Registry};

const fn rule(name: &'static str, infer: InferFn, gradient: Gradient) -> OpRules {
    OpRules { name, infer, lower: Lower::Nothing, gradient }
}

/// The rules that these tests need. `Tanh` has a shape but no gradient.
const RULES: &[OpRules] = &[
    rule("Const", constant, Gradient::Stops),
    rule("Placeholder", shape_attr, Gradient::Stops),
    rule("VariableV2", shape_attr, Gradient::Stops),
    rule("VarHandleOp", handle, Gradient::Stops),
    rule("ReadVariableOp", read, Gradient::Rule(pass)),
    rule("Identity", same, Gradient::Rule(pass)),
    rule("Relu", same, Gradient::Rule(pass)),
    rule("Tanh", same, Gradient::Unknown),
    rule("StopGradient", same, Gradient::Stops),
    rule("AddN", same, Gradient::Unknown),
    rule("AddV2", broadcast, Gradient::Rule(pass_to_both)),
    rule("Mul", broadcast, Gradient::Rule(mul)),
    rule("Fill", fill, Gradient::Unknown),
    rule("Split", unknown, Gradient::Rule(split)),
];

fn constant(cx: &mut InferCx<'_>) -> Result<()> {
    let value = cx.attrs().tensor("value")?.clone();
    cx.set_value(0, value);
    Ok(())
}

fn shape_attr(cx: &mut InferCx<'_>) -> Result<()> {
    let shape = cx.attrs().shape("shape")?.clone();
    cx.set(0, shape);
    Ok(())
}

fn handle(cx: &mut InferCx<'_>) -> Result<()> {
    cx.outputs[0].handle = Some((cx.attrs().data_type("dtype")?, cx.attrs().shape("shape")?.clone()));
    Ok(())
}

fn read(cx: &mut InferCx<'_>) -> Result<()> {
    let shape = cx.inputs[0].handle.as_ref().map(|(_, shape)| shape.clone());
    cx.set(0, shape.unwrap_or_default());
    Ok(())
}

fn fill(cx: &mut InferCx<'_>) -> Result<()> {
    let dims = cx.ints(0).map(|dims| dims.iter().map(|dim| Some(*dim as u64)).collect());
    cx.set(0, PartialShape(dims));
    Ok(())
}

fn pass(_: &mut GraphBuilder, _: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    Ok(vec![gradients[0]])
}

fn pass_to_both(_: &mut GraphBuilder, _: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    Ok(vec![gradients[0], gradients[0]])
}

fn mul(b: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    let (x, y) = (b.node(node).inputs[0], b.node(node).inputs[1]);
    let Some(gradient) = gradients[0] else { return Ok(vec![None, None]) };
    Ok(vec![Some(b.mul(gradient, y).name("Mul").build()?), Some(b.mul(gradient, x).name("Mul").build()?)])
}

/// Wrong on purpose: the gradient of one of two inputs.
fn split(_: &mut GraphBuilder, _: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    Ok(vec![gradients[0]])
}

fn registry() -> Arc<Registry> {
    let mut registry = Registry::with_table(OpTable::tensorflow());
    registry.extend(RULES);
    Arc::new(registry)
}

fn builder() -> GraphBuilder {
    GraphBuilder::new(registry())
}

fn dims<const N: usize>(dims: [i64; N]) -> PartialShape {
    PartialShape(Some(dims.iter().map(|dim| u64::try_from(*dim).ok()).collect()))
}

fn float(b: &mut GraphBuilder, name: &str) -> Output {
    b.placeholder(name, DataType::Float, dims([2, 3])).build().unwrap()
}

fn weights(b: &mut GraphBuilder, name: &str) -> Variable {
    b.get_variable(name, DataType::Float, [2, 3], &Initializer::Zeros).unwrap()
}

fn name(b: &GraphBuilder, output: Output) -> String {
    b.node(output.node).name.clone()
}

/// The graph's lines without attributes: `name = Op(inputs) @device ^control`, of the nodes that begin with `prefix`.
fn lines(graph: &Graph, prefix: &str) -> Vec<String> {
    let mut plain = graph.clone();
    let ids: Vec<NodeId> = graph.nodes().ids().collect();
    ids.iter().for_each(|id| plain.node_mut(*id).attrs = Default::default());
    plain.to_string().lines().filter(|line| line.starts_with(prefix)).map(str::to_string).collect()
}

fn classes(graph: &Graph, node: &str) -> Vec<String> {
    let node = graph.node(graph.find(node).unwrap());
    let Ok(list) = node.attrs.list("_class") else { return Vec::new() };
    list.bytes.iter().map(|class| String::from_utf8(class.clone()).unwrap()).collect()
}

/// The graph spelled out and read again is the same graph, and makes sense.
fn verify(b: GraphBuilder) -> Graph {
    let registry = b.registry().clone();
    let graph = b.finish();
    assert_eq!(Graph::resolve(graph.to_def(), registry.table()).unwrap(), graph);
    graph
}

fn kinds() -> [VariableKind; 2] {
    [VariableKind::Reference, VariableKind::Resource]
}

fn assert_error<T: std::fmt::Debug>(result: Result<T>, code: Code, node: &str, fragment: &str) {
    let error = result.unwrap_err();
    assert_eq!((error.code(), error.node()), (code, Some(node).filter(|node| !node.is_empty())), "{error}");
    assert!(error.to_string().contains(fragment), "{error:?} lacks {fragment:?}");
}

/// Two towers on two GPUs, their variables shared and on the CPU.
#[test]
fn towers_share_their_variables() {
    let mut b = builder();
    let mut losses = Vec::new();
    b.variable_scope("", Reuse::No, |b| {
        for tower in 0..2 {
            let loss = b.device(&format!("/gpu:{tower}"), |b| {
                b.name_scope(&format!("tower_{tower}"), |b| {
                    let x = float(b, "x");
                    let loss = b.variable_scope("local", Reuse::No, |b| {
                        let w = b.device("/cpu:0", |b| weights(b, "weights"));
                        b.mul(x, w.value).build().unwrap()
                    });
                    b.reuse_variables();
                    loss
                })
            });
            losses.push(loss);
        }
    });
    assert_eq!(b.variables().len(), 1);
    let w = b.variables()[0].clone();
    let gradients = losses.iter().map(|loss| b.gradients(&[*loss], &[w.value]).unwrap()[0].unwrap());
    let gradients: Vec<Output> = gradients.collect::<Vec<_>>();
    assert_eq!(b.node(gradients[1].node).device, "/device:GPU:1");
    let graph = verify(b);
    assert_eq!(
        lines(&graph, ""),
        [
            "tower_0/x = Placeholder() @/device:GPU:0",
            "local/weights/Initializer/zeros = Const()",
            "local/weights = VariableV2() @/device:CPU:0",
            "local/weights/Assign = Assign(local/weights, local/weights/Initializer/zeros) @/device:CPU:0",
            "local/weights/read = Identity(local/weights) @/device:CPU:0",
            "tower_0/local/mul = Mul(tower_0/x, local/weights/read) @/device:GPU:0",
            "tower_1/x = Placeholder() @/device:GPU:1",
            "tower_1/local/mul = Mul(tower_1/x, local/weights/read) @/device:GPU:1",
            "gradients/Shape = Const() @/device:GPU:0",
            "gradients/grad_ys_0/Const = Const() @/device:GPU:0",
            "gradients/grad_ys_0 = Fill(gradients/Shape, gradients/grad_ys_0/Const) @/device:GPU:0",
            "gradients/tower_0/local/mul_grad/Mul = Mul(gradients/grad_ys_0, local/weights/read) @/device:GPU:0",
            "gradients/tower_0/local/mul_grad/Mul_1 = Mul(gradients/grad_ys_0, tower_0/x) @/device:GPU:0",
            "gradients_1/Shape = Const() @/device:GPU:1",
            "gradients_1/grad_ys_0/Const = Const() @/device:GPU:1",
            "gradients_1/grad_ys_0 = Fill(gradients_1/Shape, gradients_1/grad_ys_0/Const) @/device:GPU:1",
            "gradients_1/tower_1/local/mul_grad/Mul = Mul(gradients_1/grad_ys_0, local/weights/read) @/device:GPU:1",
            "gradients_1/tower_1/local/mul_grad/Mul_1 = Mul(gradients_1/grad_ys_0, tower_1/x) @/device:GPU:1",
        ]
    );
}
