//! Floats of two bytes in sessions: each operation rounds, and fusing operations changes no bit.

use std::sync::Arc;

use plimsoll_base::{Bf16, DataType, F16};
use plimsoll_cards::Options;
use plimsoll_graph::{AttrValue, HostTensor, Output, Shape};
use plimsoll_kernels::CpuKernels;
use plimsoll_ops::{GraphBuilder, Registry};
use plimsoll_plan::{Feed, Signature};
use plimsoll_runtime::{Devices, Session};

const NODES: [&str; 9] = ["product", "sum", "relu", "images", "conv", "tanh", "pooled", "sigmoid", "loss"];

/// A product with a bias and a relu, a convolution, a pooling, a mean and its gradient.
fn build(data_type: DataType) -> (GraphBuilder, Vec<String>) {
    let mut builder = GraphBuilder::new(Arc::new(Registry::standard(Arc::new(CpuKernels))));
    let b = &mut builder;
    let x = b.placeholder("x", data_type, &Shape::from(vec![8, 48])).build().unwrap();
    let w = b.placeholder("w", data_type, &Shape::from(vec![48, 32])).build().unwrap();
    let bias = b.placeholder("b", data_type, &Shape::from(vec![32])).build().unwrap();
    let filter = b.placeholder("f", data_type, &Shape::from(vec![3, 3, 2, 4])).build().unwrap();
    let product = b.matmul(x, w).name("product").build().unwrap();
    let sum = b.op("BiasAdd").inputs([product, bias]).name("sum").build().unwrap();
    let relu = b.op("Relu").input(sum).name("relu").build().unwrap();
    let shape = b.constant(HostTensor::from_slice([4], &[8i32, 4, 4, 2]).unwrap()).build().unwrap();
    let images = b.op("Reshape").inputs([relu, shape]).name("images").build().unwrap();
    let window = |b: &mut GraphBuilder, op: &str, inputs: &[Output], size: Option<Vec<i64>>| {
        let mut node = b.op(op).inputs(inputs.iter().copied()).attr("padding", AttrValue::text("SAME"));
        node = node.attr("strides", AttrValue::ints(if size.is_some() { vec![1, 2, 2, 1] } else { vec![1; 4] }));
        if let Some(size) = size {
            node = node.attr("ksize", AttrValue::ints(size));
        }
        node.name(if op == "Conv2D" { "conv" } else { "pooled" }).build().unwrap()
    };
    let conv = window(b, "Conv2D", &[images, filter], None);
    let tanh = b.op("Tanh").input(conv).name("tanh").build().unwrap();
    let pooled = window(b, "MaxPool", &[tanh], Some(vec![1, 2, 2, 1]));
    let sigmoid = b.op("Sigmoid").input(pooled).name("sigmoid").build().unwrap();
    let axes = b.constant(HostTensor::from_slice([4], &[0i32, 1, 2, 3]).unwrap()).build().unwrap();
    let loss = b.op("Mean").inputs([sigmoid, axes]).name("loss").build().unwrap();
    let gradients = b.gradients(&[loss], &[w, bias, filter]).unwrap();
    let names = gradients.into_iter().map(|gradient| {
        let gradient = gradient.expect("the loss depends on it");
        format!("{}:{}", b.node(gradient.node).name, gradient.index)
    });
    let names = names.collect();
    (builder, names)
}

fn tensor(data_type: DataType, shape: &[u64], seed: u32) -> HostTensor {
    let count = shape.iter().product::<u64>() as u32;
    let numbers = (0..count).map(|at| ((at * 37 + seed * 101) % 97) as f32 / 97.0 - 0.4);
    let shape = Shape::from(shape.to_vec());
    match data_type {
        DataType::Half => HostTensor::from_slice(shape, &numbers.map(F16::from_f32).collect::<Vec<_>>()),
        _ => HostTensor::from_slice(shape, &numbers.map(Bf16::from_f32).collect::<Vec<_>>()),
    }
    .unwrap()
}

fn floats(tensor: &HostTensor) -> Vec<f32> {
    match tensor.data_type() {
        DataType::Half => tensor.to_vec::<F16>().unwrap().into_iter().map(F16::to_f32).collect(),
        _ => tensor.to_vec::<Bf16>().unwrap().into_iter().map(Bf16::to_f32).collect(),
    }
}

#[test]
fn fusing_changes_no_bit_and_sums_are_rounded_once() {
    for data_type in [DataType::Half, DataType::Bfloat16] {
        let (builder, gradients) = build(data_type);
        let registry = builder.registry().clone();
        let devices = Devices::open(&Options::new()).unwrap();
        let session = Session::new(&devices, &builder.finish(), registry).unwrap();
        let feeds: Vec<(&str, Vec<u64>)> = vec![("x", vec![8, 48]), ("w", vec![48, 32]), ("b", vec![32]), ("f", vec![3, 3, 2, 4])];
        let values: Vec<HostTensor> = (0u32..).zip(&feeds).map(|(seed, (_, shape))| tensor(data_type, shape, seed)).collect();
        let run = |fetches: Vec<String>| {
            let feed = |(name, shape): &(&str, Vec<u64>)| Feed {
                tensor: (*name).into(),
                data_type,
                shape: Shape::from(shape.clone()),
                value: None,
            };
            let signature = Signature { feeds: feeds.iter().map(feed).collect(), fetches, targets: vec![], ..Signature::default() };
            let callable = session.callable(&signature).unwrap();
            callable.run(&values.iter().collect::<Vec<_>>()).unwrap()
        };
        let few: Vec<String> = std::iter::once("loss:0".to_string()).chain(gradients.clone()).collect();
        let all: Vec<String> = NODES.iter().map(|node| format!("{node}:0")).chain(gradients).collect();
        let (fused, single) = (run(few), run(all));
        assert_eq!(fused, single[NODES.len() - 1..]);

        // Sums of products as doubles, rounded once, are next to sums as floats, rounded once.
        let (x, w) = (floats(&values[0]), floats(&values[1]));
        let unit = if data_type == DataType::Half { 2f32.powi(-10) } else { 2f32.powi(-7) };
        for (at, got) in floats(&single[0]).into_iter().enumerate() {
            let exact: f64 = (0..48).map(|k| f64::from(x[at / 32 * 48 + k]) * f64::from(w[k * 32 + at % 32])).sum();
            assert!((got - exact as f32).abs() <= unit * exact.abs() as f32, "{data_type} at {at}: {got} and not {exact}");
        }
    }
}
