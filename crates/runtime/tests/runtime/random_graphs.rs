//! Graphs made at random give the same bits however they are planned: fused or not, on one device or three or with simulated cards, in
//! any number of threads, with buffers packed tightly, with much of it computed again. The reference fetches every value, so that nothing is fused and nothing shares bytes.

use std::sync::Arc;

use plimsoll_base::{Bytes, DataType};
use plimsoll_cards::Options;
use plimsoll_device::{CardPart, Device, DeviceKind, DeviceName, DeviceSpec, ModelledLink};
use plimsoll_device_cpu::{CpuDevice, CpuPool};
use plimsoll_device_sim::SimDevice;
use plimsoll_graph::{AttrValue, Graph, HostTensor, NodeId, Output, PartialShape, Shape};
use plimsoll_kernels::CpuKernels;
use plimsoll_memory::Ledger;
use plimsoll_ops::builder::{Initializer, Variable, VariableKind};
use plimsoll_ops::{GraphBuilder, Registry};
use plimsoll_runtime::{Devices, Session};
use proptest::prelude::*;

/// One node to be made: its operation, the earlier values it takes, its device, and whether it waits for an earlier change.
#[derive(Clone, Debug)]
pub struct Step {
    what: u8,
    a: u16,
    b: u16,
    device: u8,
    waits: bool,
}

impl Step {
    pub fn is_mean_of_concat(&self) -> bool {
        self.what == 12
    }
}

pub fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (0u8..17, any::<u16>(), any::<u16>(), 0u8..4, any::<bool>()).prop_map(|(what, a, b, device, waits)| Step {
        what,
        a,
        b,
        device,
        waits,
    });
    prop::collection::vec(step, 1..40)
}

/// A network behind a scaled input, whose values wait in a file where its line is the least.
pub fn needs_a_file() -> Vec<Step> {
    let step = |what, a, b, device| Step { what, a, b, device, waits: true };
    vec![step(6, 6488, 30029, 2), step(15, 62168, 25667, 0)]
}

pub struct Made {
    pub graph: Graph,
    pub values: Vec<String>,
    pub variables: Vec<Variable>,
}

pub const ROWS: u64 = 4;
pub const COLUMNS: u64 = 6;

/// The devices that steps and variables are on; none where the placer chooses.
pub const CPUS: &[&str] = &["/cpu:0", "/cpu:1", "/cpu:2"];
pub const CARDS: &[&str] = &["/cpu:0", "/gpu:0", "/gpu:1"];

pub fn make(steps: &[Step], kind: VariableKind, devices: &[&str]) -> Made {
    let mut b = GraphBuilder::new(Arc::new(Registry::standard(Arc::new(CpuKernels))));
    b.set_variable_kind(kind);
    let x = b.placeholder("x", DataType::Float, PartialShape::unknown()).build().unwrap();
    // Every value is [4, 6]; the variables are a matrix of it, a row and a square.
    let initial = |dims: &[u64], from: f32| {
        let count: u64 = dims.iter().product();
        let values: Vec<f32> = (0..count).map(|i| from + i as f32 * 0.125).collect();
        Initializer::Value(HostTensor::from_slice(dims.to_vec(), &values).unwrap())
    };
    let on = |index: usize| devices.get(index).copied().unwrap_or_default();
    let mut variable = |device: usize, name: &str, dims: &[u64], from: f32| {
        b.device(on(device), |b| b.get_variable(name, DataType::Float, dims.to_vec(), &initial(dims, from)).unwrap())
    };
    let whole = variable(0, "whole", &[ROWS, COLUMNS], -1.0);
    let row = variable(1, "row", &[COLUMNS], 0.25);
    let square = variable(2, "square", &[COLUMNS, COLUMNS], -2.0);
    b.global_variables_initializer().unwrap();
    let variables = vec![whole, row, square];
    let mut values: Vec<Output> = vec![x, variables[0].value];
    let mut changes: Vec<NodeId> = Vec::new();
    for step in steps {
        let device = on(usize::from(step.device));
        let after: Vec<NodeId> = if step.waits { changes.last().copied().into_iter().collect() } else { Vec::new() };
        b.device(device, |b| b.control_dependencies(&after, |b| one(b, step, &variables, &mut values, &mut changes)));
    }
    // Updates are colocated with their variables; all of them run.
    b.group(&changes, "changes").unwrap();
    let values = values.iter().map(|value| b.graph().tensor_name(*value)).collect();
    Made { graph: b.finish(), values, variables }
}

/// Keeps numbers small, so that nothing overflows in forty steps.
fn tame(b: &mut GraphBuilder, value: Output) -> Output {
    b.op("Tanh").input(value).build().unwrap()
}

fn one(b: &mut GraphBuilder, step: &Step, variables: &[Variable], values: &mut Vec<Output>, changes: &mut Vec<NodeId>) {
    let [p, q] = [step.a, step.b].map(|index| values[index as usize % values.len()]);
    let made = match step.what {
        0 => b.add(p, q).build().unwrap(),
        1 => b.mul(p, q).build().unwrap(),
        2 => b.sub(p, q).build().unwrap(),
        3 => b.relu(p).build().unwrap(),
        4 => {
            let row = b.read(&variables[1]).unwrap();
            b.add(p, row).build().unwrap()
        }
        5 => {
            let square = b.read(&variables[2]).unwrap();
            let product = b.matmul(p, square).build().unwrap();
            tame(b, product)
        }
        6 => {
            let sums = b.reduce_sum(p, Some(&[0])).build().unwrap();
            let small = tame(b, sums);
            b.mul(q, small).build().unwrap()
        }
        7 => {
            let flat = b.reshape(p, &[(ROWS * COLUMNS) as i64]).build().unwrap();
            let back = b.reshape(flat, &[ROWS as i64, COLUMNS as i64]).build().unwrap();
            b.identity(back).build().unwrap()
        }
        8 => b.read(&variables[0]).unwrap(),
        9 => {
            let small = tame(b, p);
            changes.push(b.assign_sub(&variables[0], small).unwrap());
            return;
        }
        10 => {
            let sums = b.reduce_mean(p, Some(&[0])).build().unwrap();
            let small = tame(b, sums);
            changes.push(b.assign(&variables[1], small).unwrap());
            return;
        }
        11 => {
            let made = image(b, variables, p, q, step.device.is_multiple_of(2));
            values.extend(made);
            return;
        }
        12 => {
            let pieces = [p, q, p].map(|value| b.reshape(value, &[1, ROWS as i64, COLUMNS as i64]).build().unwrap());
            let first = b.constant(HostTensor::from_slice([] as [u64; 0], &[0i32]).unwrap()).build().unwrap();
            let together = b.op("ConcatV2").inputs(pieces).input(first).build().unwrap();
            b.reduce_mean(together, Some(&[0])).build().unwrap()
        }
        13 => {
            values.extend(batch_norm(b, variables, p, q, step.device.is_multiple_of(2)));
            return;
        }
        14 => {
            values.push(dropout(b, p, step.a));
            return;
        }
        15 => {
            values.extend(network(b, step, p, q));
            return;
        }
        _ => {
            let product = b.op("MatMul").inputs([p, q]).attr("transpose_a", AttrValue::Bool(true)).build().unwrap();
            let small = tame(b, product);
            changes.push(b.assign_add(&variables[2], small).unwrap());
            return;
        }
    };
    let made = if step.what < 3 { tame(b, made) } else { made };
    values.push(made);
}

/// `p` as an image, or as `many` images, that are convolved and pooled, with the gradients where `q` is that of the pooling's result;
/// that by the input only of one.
fn image(b: &mut GraphBuilder, variables: &[Variable], p: Output, q: Output, many: bool) -> Vec<Output> {
    let dims: [i64; 4] = if many { [12, 1, 1, 2] } else { [1, 4, 3, 2] };
    let square = b.read(&variables[2]).unwrap();
    let [image, gradient] = [p, q].map(|value| b.reshape(value, &dims).build().unwrap());
    let filter = b.reshape(square, &[3, 3, 2, 2]).build().unwrap();
    let window = |b: &mut GraphBuilder, op: &str, inputs: &[Output], size: Option<[i64; 4]>| {
        let mut node =
            b.op(op).inputs(inputs.iter().copied()).attr("strides", AttrValue::ints([1, 1, 1, 1])).attr("padding", AttrValue::text("SAME"));
        if let Some(size) = size {
            node = node.attr("ksize", AttrValue::ints(size));
        }
        node.build().unwrap()
    };
    let conv = window(b, "Conv2D", &[image, filter], None);
    let small = tame(b, conv);
    let features = b.relu(small).build().unwrap();
    let pool = Some([1, 2, 3, 1]);
    let pooled = window(b, "MaxPool", &[features], pool);
    let unpooled = window(b, "MaxPoolGrad", &[features, pooled, gradient], pool);
    let masked = b.op("ReluGrad").inputs([unpooled, features]).build().unwrap();
    let sizes = b.constant(HostTensor::from_slice([4], &[3i32, 3, 2, 2]).unwrap()).build().unwrap();
    let by_filter = window(b, "Conv2DBackpropFilter", &[image, sizes, masked], None);
    let by_filter = b.reshape(by_filter, &[COLUMNS as i64, COLUMNS as i64]).build().unwrap();
    let product = b.matmul(q, by_filter).build().unwrap();
    let mut images = vec![features, pooled, unpooled, masked];
    if !many {
        let sizes = b.constant(HostTensor::from_slice([4], &dims.map(|dim| dim as i32)).unwrap()).build().unwrap();
        let by_input = window(b, "Conv2DBackpropInput", &[sizes, filter, masked], None);
        images.push(b.op("ReluGrad").inputs([by_input, image]).build().unwrap());
    }
    let mut made: Vec<Output> = images.into_iter().map(|value| b.reshape(value, &[ROWS as i64, COLUMNS as i64]).build().unwrap()).collect();
    made.push(product);
    // The squashed value is the input of later nodes; the rest is there to be fetched, and so to be fused in other ways.
    made.into_iter().map(|value| tame(b, value)).collect()
}

/// `p` with numbers left out by chance, as TensorFlow 1 builds it: the generator has a state.
fn dropout(b: &mut GraphBuilder, p: Output, seed: u16) -> Output {
    let shape = b.constant(HostTensor::from_slice([2], &[ROWS as i32, COLUMNS as i32]).unwrap()).build().unwrap();
    let float = AttrValue::data_type(DataType::Float);
    let chance = b.op("RandomUniform").input(shape).attr("dtype", float).attr("seed", AttrValue::Int(seed.into()));
    let chance = chance.attr("seed2", AttrValue::Int(7)).build().unwrap();
    let half = b.scalar(0.5f32).unwrap();
    let sum = b.add(chance, half).build().unwrap();
    let kept = b.op("Floor").input(sum).build().unwrap();
    b.mul(p, kept).build().unwrap()
}

/// Layers whose gradients ask for the sign of a value, or little more, long after all else has read it: of activations that are pooled or
/// joined, with dropout between.
fn network(b: &mut GraphBuilder, step: &Step, p: Output, q: Output) -> Vec<Output> {
    let (forward, backward) = match step.device {
        0 => ("Relu6", "Relu6Grad"),
        1 => ("LeakyRelu", "LeakyReluGrad"),
        2 => ("Elu", "EluGrad"),
        _ => ("Relu", "ReluGrad"),
    };
    let first = b.op(forward).input(p).build().unwrap();
    let second = b.op(forward).input(q).build().unwrap();
    let dims = [1, ROWS as i64, COLUMNS as i64, 1];
    let pool = |b: &mut GraphBuilder, value: Output| {
        let image = b.reshape(value, &dims).build().unwrap();
        let size = AttrValue::ints([1, 2, 2, 1]);
        let node = b.op("AvgPool").input(image).attr("ksize", size).attr("strides", AttrValue::ints([1, 1, 1, 1]));
        let pooled = node.attr("padding", AttrValue::text("SAME")).build().unwrap();
        let flat = b.reshape(pooled, &[ROWS as i64, COLUMNS as i64]).build().unwrap();
        tame(b, flat)
    };
    let (pooled, left) = (pool(b, first), dropout(b, second, step.b));
    let sum = b.add(pooled, left).build().unwrap();
    let middle = tame(b, sum);
    let again = pool(b, middle);
    // Of the activations' results; of LeakyRelu, as TensorFlow has it, of what it reads.
    let by_first = b.op(backward).inputs([again, if forward == "LeakyRelu" { p } else { first }]).build().unwrap();
    let by_second = b.op(backward).inputs([again, if forward == "LeakyRelu" { q } else { second }]).build().unwrap();
    let sum = b.add(by_first, by_second).build().unwrap();
    vec![middle, tame(b, sum)]
}

/// `p` normalized, by its own statistics or by given ones, and the gradients where `q` is that of the result.
fn batch_norm(b: &mut GraphBuilder, variables: &[Variable], p: Output, q: Output, training: bool) -> Vec<Output> {
    let [x, dy] = [p, q].map(|value| b.reshape(value, &[1, 2, 2, COLUMNS as i64]).build().unwrap());
    let row = b.read(&variables[1]).unwrap();
    let variance = b.mul(row, row).build().unwrap();
    let is_training = AttrValue::Bool(training);
    let normal = b.op("FusedBatchNormV3").inputs([x, row, row, row, variance]).attr("is_training", is_training.clone());
    let normal = normal.attr("exponential_avg_factor", AttrValue::Float(0.5)).build_node().unwrap();
    let output = |node: NodeId, index: u32| Output { node, index };
    let [mean, variance] = if training { [3, 4].map(|index| output(normal, index)) } else { [row, variance] };
    let gradient = b.op("FusedBatchNormGradV3").inputs([dy, x, row, mean, variance, output(normal, 5)]);
    let gradient = gradient.attr("is_training", is_training).build_node().unwrap();
    let images = [output(normal, 0), output(gradient, 0)];
    let rows = [output(normal, 1), output(normal, 2), output(gradient, 1), output(gradient, 2)];
    let mut made = images.map(|value| b.reshape(value, &[ROWS as i64, COLUMNS as i64]).build().unwrap()).to_vec();
    made.extend(rows.map(|row| b.add(q, row).build().unwrap()));
    made.into_iter().map(|value| tame(b, value)).collect()
}

pub fn bits(tensor: &HostTensor) -> Vec<u32> {
    tensor.to_vec::<f32>().unwrap().into_iter().map(f32::to_bits).collect()
}

/// Devices whose blocks lie between pages that fault when they are touched: a kernel that leaves its memory ends the test.
pub fn guarded(options: &Options) -> Devices {
    let pool = CpuPool::new(options.threads().unwrap()).unwrap();
    let device = |spec| Arc::new(CpuDevice::new(spec, pool.clone(), Arc::new(CpuKernels)).with_guards()) as Arc<dyn Device>;
    let mut devices: Vec<Arc<dyn Device>> = options.resolve().unwrap().into_iter().map(device).collect();
    let cards = options.device_count.get("GPU").copied().unwrap_or(0);
    let cpu = devices[0].spec().clone();
    devices.extend((0..cards as u32).map(|index| card(index, &cpu)));
    Devices::with(devices, options).unwrap()
}

/// A simulated card without a line. Its link is slow: copies pay beside its works.
fn card(index: u32, cpu: &DeviceSpec) -> Arc<dyn Device> {
    let link = ModelledLink { latency: 0.0, bandwidth: 1e5, peers: vec![] };
    let part = CardPart { card: index, priority: 0, modelled: Some(link), real: None };
    let spec = DeviceSpec { name: DeviceName::local("GPU", index), kind: DeviceKind::Gpu, card: Some(part), ..cpu.clone() };
    let ledger = Ledger::new(spec.name.to_string(), None);
    Arc::new(SimDevice::new(spec, ledger, Arc::new(CpuKernels)).unwrap())
}

/// As [`run`], with plans of the lowest peaks: as much as can be is computed again.
fn run_low(made: &Made, options: &Options, fetches: &[&str]) -> (Vec<Vec<u32>>, Vec<Vec<u32>>) {
    let devices = guarded(options);
    let session = Session::new(&devices, &made.graph, Arc::new(Registry::standard(Arc::new(CpuKernels)))).unwrap();
    run_in(&session.with_lines(vec![Some(Bytes::ZERO); devices.specs().len()]).unwrap(), made, fetches)
}

/// Runs twice (so that the second step starts from changed variables) and gives the fetched values and the variables.
fn run(made: &Made, options: &Options, fetches: &[&str]) -> (Vec<Vec<u32>>, Vec<Vec<u32>>) {
    run_in(&Session::new(&guarded(options), &made.graph, Arc::new(Registry::standard(Arc::new(CpuKernels)))).unwrap(), made, fetches)
}

fn run_in(session: &Session, made: &Made, fetches: &[&str]) -> (Vec<Vec<u32>>, Vec<Vec<u32>>) {
    let values: Vec<f32> = (0..ROWS * COLUMNS).map(|i| (i as f32 * 0.37).sin()).collect();
    let x = HostTensor::from_slice(Shape::from([ROWS, COLUMNS]), &values).unwrap();
    session.run(&[], &[], &["init"]).unwrap();
    let mut results = Vec::new();
    for _ in 0..2 {
        results.extend(session.run(&[("x", &x)], fetches, &["changes"]).unwrap().iter().map(bits));
    }
    (results, made.variables.iter().map(|variable| bits(&session.read_variable(&variable.name).unwrap())).collect())
}

/// How many graphs are tried: `PLIMSOLL_GRAPHS`, or few.
fn cases() -> u32 {
    std::env::var("PLIMSOLL_GRAPHS").ok().and_then(|cases| cases.parse().ok()).unwrap_or(16)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn plans_agree_with_the_reference(steps in steps(), chosen in any::<u16>(), resource in any::<bool>()) {
        let kind = if resource { VariableKind::Resource } else { VariableKind::Reference };
        let plain = make(&steps, kind, &[]);
        // x itself is fed: it cannot be fetched.
        let all: Vec<&str> = plain.values[1..].iter().map(String::as_str).collect();
        let (every, variables) = run(&plain, &Options::new().intra_op(1), &all);
        let which = chosen as usize % all.len();
        let expected = vec![every[which].clone(), every[all.len() + which].clone()];
        let [on_cpus, on_cards] = [CPUS, CARDS].map(|devices| make(&steps, kind, devices));
        prop_assert_eq!((&on_cpus.values, &on_cards.values), (&plain.values, &plain.values));
        for threads in [1, 2] {
            let one = Options::new().intra_op(threads);
            let three = one.clone().device_count(DeviceKind::Cpu, 3);
            let cards = one.clone().device_count(DeviceKind::Gpu, 2);
            for (made, options) in [(&plain, one), (&on_cpus, three), (&on_cards, cards)] {
                let (values, after) = run(made, &options, &[all[which]]);
                prop_assert_eq!(&values, &expected);
                prop_assert_eq!(&after, &variables);
                let (values, after) = run_low(made, &options, &[all[which]]);
                prop_assert_eq!(&values, &expected);
                prop_assert_eq!(&after, &variables);
            }
        }
    }
}
