//! Networks made at random whose images do not depend on each other, with their gradients, under ten lines: works that are done part by part
//! give the same bits, and all that [`super::lines`] says holds.

use std::cell::Cell;
use std::sync::Arc;

use plimsoll_base::{Bytes, DataType};
use plimsoll_cards::Options;
use plimsoll_device::DeviceKind;
use plimsoll_graph::{AttrValue, HostTensor, NodeId, Output, PartialShape};
use plimsoll_kernels::CpuKernels;
use plimsoll_ops::builder::{Initializer, Variable, VariableKind};
use plimsoll_ops::{GraphBuilder, Registry};
use plimsoll_plan::{Feed, Signature};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::lines::{Machine, at_every_line, cases, run, session, waves};
use super::random_graphs::{Made, bits, guarded};

/// So many images: what some numbers of parts divide, and what none does.
fn images() -> impl Strategy<Value = [u64; 4]> {
    prop_oneof![Just(12), Just(13), Just(16), 5u64..40].prop_map(|images| [images, 8, 8, 4])
}

/// A layer: its operation and the values that it takes.
#[derive(Clone, Debug)]
struct Layer {
    what: u8,
    a: u16,
    b: u16,
}

fn layers() -> impl Strategy<Value = Vec<Layer>> {
    let layer = (0u8..14, any::<u16>(), any::<u16>()).prop_map(|(what, a, b)| Layer { what, a, b });
    prop::collection::vec(layer, 3..24)
}

/// All values have the shape of the images. Later layers mostly take what came last.
fn make(layers: &[Layer], images: [u64; 4], kind: VariableKind, device: &str) -> Made {
    let mut b = GraphBuilder::new(Arc::new(Registry::standard(Arc::new(CpuKernels))));
    b.set_variable_kind(kind);
    let x = b.placeholder("x", DataType::Float, PartialShape::unknown()).build().unwrap();
    let (mut values, mut changes) = (vec![x], Vec::new());
    let variables = b.device(device, |b| {
        let mut variable = |name: &str, shape: &[u64]| {
            let values: Vec<f32> = (0..shape.iter().product::<u64>()).map(|at| ((at * 7 % 11) as f32 - 5.0) * 0.0625).collect();
            let initial = Initializer::Value(HostTensor::from_slice(shape.to_vec(), &values).unwrap());
            b.get_variable(name, DataType::Float, shape.to_vec(), &initial).unwrap()
        };
        vec![variable("filter", &[3, 3, 4, 4]), variable("row", &[4]), variable("square", &[4, 4])]
    });
    b.global_variables_initializer().unwrap();
    for layer in layers {
        b.device(device, |b| add(b, (layer, images), &variables, &mut values, &mut changes));
    }
    b.group(&changes, "changes").unwrap();
    let values = values.iter().map(|value| b.graph().tensor_name(*value)).collect();
    Made { graph: b.finish(), values, variables }
}

fn window(b: &mut GraphBuilder, op: &str, inputs: &[Output], size: Option<i64>) -> Output {
    let node =
        b.op(op).inputs(inputs.iter().copied()).attr("strides", AttrValue::ints([1, 1, 1, 1])).attr("padding", AttrValue::text("SAME"));
    let node = if let Some(size) = size { node.attr("ksize", AttrValue::ints([1, size, size, 1])) } else { node };
    node.build().unwrap()
}

fn add(
    b: &mut GraphBuilder,
    (layer, images): (&Layer, [u64; 4]),
    variables: &[Variable],
    values: &mut Vec<Output>,
    changes: &mut Vec<NodeId>,
) {
    // The later half of what there is.
    let pick = |at: u16| values[values.len() - 1 - at as usize % values.len().div_ceil(2)];
    let (p, q) = (pick(layer.a), pick(layer.b));
    let one = |b: &mut GraphBuilder, op: &str, inputs: &[Output]| b.op(op).inputs(inputs.iter().copied()).build().unwrap();
    let ints =
        |b: &mut GraphBuilder, values: &[i32]| b.constant(HostTensor::from_slice([values.len() as u64], values).unwrap()).build().unwrap();
    let shape = images.map(|size| size as i32);
    let made = match layer.what {
        0 | 1 => {
            let (filter, row) = (b.read(&variables[0]).unwrap(), b.read(&variables[1]).unwrap());
            let conv = window(b, "Conv2D", &[p, filter], None);
            let sum = one(b, "BiasAdd", &[conv, row]);
            one(b, "Relu", &[sum])
        }
        2 => {
            let sum = one(b, "AddV2", &[p, q]);
            one(b, "Tanh", &[sum])
        }
        3 => {
            let row = b.read(&variables[1]).unwrap();
            let product = one(b, "Mul", &[p, row]);
            one(b, "Sigmoid", &[product])
        }
        4 => {
            let pooled = window(b, "MaxPool", &[p], Some(3));
            let gradient = window(b, "MaxPoolGrad", &[p, pooled, q], Some(3));
            values.push(pooled);
            one(b, "ReluGrad", &[gradient, p])
        }
        5 => one(b, "LRN", &[p]),
        6 => {
            let normal = one(b, "LRN", &[p]);
            one(b, "LRNGrad", &[q, p, normal])
        }
        7 => window(b, "AvgPool", &[p], Some(2)),
        8 => {
            let matrix = b.reshape(p, &[-1, 4]).build().unwrap();
            let square = b.read(&variables[2]).unwrap();
            let product = b.matmul(matrix, square).build().unwrap();
            let back = b.reshape(product, &images.map(|size| size as i64)).build().unwrap();
            one(b, "Tanh", &[back])
        }
        9 => {
            // All images together.
            let sums = b.reduce_mean(p, Some(&[0])).build().unwrap();
            let product = one(b, "Mul", &[q, sums]);
            one(b, "Tanh", &[product])
        }
        10 => {
            let filter = b.read(&variables[0]).unwrap();
            let sizes = ints(b, &shape);
            let by_input = window(b, "Conv2DBackpropInput", &[sizes, filter, p], None);
            one(b, "ReluGrad", &[by_input, q])
        }
        11 => {
            let flat = b.reshape(p, &[images[0] as i64 * 64, 4]).build().unwrap();
            let soft = one(b, "Softmax", &[flat]);
            b.reshape(soft, &images.map(|size| size as i64)).build().unwrap()
        }
        12 => {
            // Of each image the first columns behind the last ones.
            let (begin, middle) = (ints(b, &[0, 0, 0, 0]), ints(b, &[0, 0, 4, 0]));
            let (half, axis) = (ints(b, &[-1, -1, 4, -1]), b.scalar(2i32).unwrap());
            let [first, last] = [begin, middle].map(|from| one(b, "Slice", &[p, from, half]));
            one(b, "ConcatV2", &[last, first, axis])
        }
        _ => {
            let sizes = ints(b, &[3, 3, 4, 4]);
            let by_filter = window(b, "Conv2DBackpropFilter", &[p, sizes, q], None);
            let small = one(b, "Tanh", &[by_filter]);
            let scale = b.scalar(0.125f32).unwrap();
            let change = one(b, "Mul", &[small, scale]);
            changes.push(b.assign_sub(&variables[0], change).unwrap());
            return;
        }
    };
    values.push(made);
}

#[test]
fn parts_hold_at_ten_limits() {
    let mut runner = TestRunner::new(Config { cases: cases(), ..Config::default() });
    let (chains, uneven) = (Cell::new(0), Cell::new(0));
    runner
        .run(&(layers(), images(), any::<u16>(), any::<bool>()), |(layers, images, chosen, resource)| {
            let kind = if resource { VariableKind::Resource } else { VariableKind::Reference };
            let made = make(&layers, images, kind, "/cpu:0");
            if made.values.len() < 2 {
                return Ok(());
            }
            let x = waves(&images);
            let fetch = made.values[1 + chosen as usize % (made.values.len() - 1)].clone();
            let (_, _, fitting) = at_every_line(&made, (&x, &fetch), Machine::ONE)?;
            let of_prime = [13, 17, 19, 23, 29, 31, 37].contains(&images[0]);
            chains.set(chains.get() + fitting.parts.len());
            uneven.set(uneven.get() + if of_prime { fitting.parts.len() } else { 0 });
            // On a card whose values may wait on the host, too.
            let options = Options::new().intra_op(2);
            let on_host = run(&session(&made, &guarded(&options)), &made, (&x, &fetch)).unwrap();
            let made = make(&layers, images, kind, "/gpu:0");
            let devices = guarded(&options.device_count(DeviceKind::Gpu, 1));
            let low = session(&made, &devices).with_lines(vec![Some(Bytes::ZERO); devices.specs().len()]).unwrap();
            prop_assert_eq!(run(&low, &made, (&x, &fetch)).unwrap(), on_host, "on a card");
            Ok(())
        })
        .unwrap();
    assert!(chains.get() > 0, "no plan has works in parts");
    assert!(cases() < 20 || uneven.get() > 0, "no plan has works in parts of a prime number of images");
}

/// Images, something made of them, and its sums: the gradient by a filter, with and without a pooling behind, and that by a row.
fn sums() -> Made {
    let mut b = GraphBuilder::new(Arc::new(Registry::standard(Arc::new(CpuKernels))));
    let x = b.placeholder("x", DataType::Float, PartialShape::unknown()).build().unwrap();
    let mut variable = |name: &str, shape: &[u64]| b.get_variable(name, DataType::Float, shape.to_vec(), &Initializer::Zeros).unwrap();
    let variables = vec![variable("filter", &[3, 3, 8, 8]), variable("row", &[8]), variable("pooled", &[3, 3, 8, 8])];
    b.global_variables_initializer().unwrap();
    let sizes = b.constant(HostTensor::from_slice([4], &[3i32, 3, 8, 8]).unwrap()).build().unwrap();
    let square = b.op("Mul").inputs([x, x]).build().unwrap();
    let gradient = b.op("Tanh").input(square).name("gradient").build().unwrap();
    let by_filter = window(&mut b, "Conv2DBackpropFilter", &[x, sizes, gradient], None);
    let by_row = b.op("BiasAddGrad").input(gradient).build().unwrap();
    let pooled = window(&mut b, "MaxPool", &[x], Some(3));
    let unpooled = window(&mut b, "MaxPoolGrad", &[x, pooled, gradient], Some(3));
    let by_pooled = window(&mut b, "Conv2DBackpropFilter", &[x, sizes, unpooled], None);
    let changes: Vec<NodeId> = variables
        .iter()
        .zip([by_filter, by_row, by_pooled])
        .map(|(variable, sum)| {
            let mean = b.scalar(1.0f32 / 1024.0).unwrap();
            let change = b.op("Mul").inputs([sum, mean]).build().unwrap();
            b.assign_sub(variable, change).unwrap()
        })
        .collect();
    b.group(&changes, "changes").unwrap();
    let total = b.reduce_sum(by_row, None).build().unwrap();
    let values = vec![b.graph().tensor_name(total)];
    Made { graph: b.finish(), values, variables }
}

#[test]
fn sums_over_images_are_added_up_part_by_part() {
    for images in [16, 31, 53] {
        sums_hold(images);
    }
}

/// Of the chains that have the gradient in common, some line has one: it makes each part of the gradient once, for both gradients by filters.
#[test]
fn what_sums_have_in_common_is_made_once() {
    let (made, images) = (sums(), 16);
    let (x, fetch) = (waves(&[images, 32, 32, 8]), made.values[0].clone());
    let devices = guarded(&Options::new().intra_op(1));
    let plain = session(&made, &devices);
    let plan = |most: Option<Bytes>| {
        let low = plain.with_lines(vec![most; devices.specs().len()]).unwrap();
        low.plan(&[("x", &x)], &[fetch.as_str()], &["changes"]).unwrap()
    };
    let [highest, least] = [None, Some(Bytes::ZERO)].map(|most| plan(most).devices[0].peak.total().0);
    let counted = |line: u64| {
        let plan = plan(Some(Bytes(least + (highest - least) * line / 16)));
        let parts =
            plan.fitting.iter().flat_map(|fitting| &fitting.parts).map(|(_, count)| *count as usize).max().unwrap_or(usize::MAX / 2);
        let commands = || plan.queues.iter().flat_map(|queue| &queue.program.commands);
        let count = |name: &str| commands().filter(|command| command.label.starts_with(name)).count();
        (parts, ["gradient", "Conv2DBackpropFilter"].map(count))
    };
    let counts: Vec<_> = (0..16).map(counted).collect();
    let is_made_once = |(parts, [made, sums]): &(usize, [usize; 2])| *sums >= 2 * parts && (*parts..2 * parts).contains(made);
    assert!(counts.iter().any(is_made_once), "{counts:?}");
}

fn sums_hold(images: u64) {
    let (made, shape) = (sums(), [images, 32, 32, 8]);
    let (x, fetch) = (waves(&shape), made.values[0].clone());
    let (least, highest, fitting) = at_every_line(&made, (&x, &fetch), Machine::ONE).unwrap();
    // What the sums are of is never there as a whole.
    let image_bytes = Bytes(4 * shape.iter().product::<u64>());
    let room = if images == 16 { Bytes::ZERO } else { Bytes(image_bytes.0 / 8) };
    assert!(least < image_bytes + image_bytes + room, "{least}, and {highest} as it is");
    let ops: Vec<&str> = fitting.parts.iter().map(|(node, _)| made.graph.node(*node).op.as_str()).collect();
    // Where parts are not equal, what sums by row is left as it is.
    assert!(ops.contains(&"Conv2DBackpropFilter") && (images != 16 || ops.contains(&"BiasAddGrad")), "{images}: {ops:?}");

    // On any number of threads, and from a file.
    let feed = Feed { tensor: "x".into(), data_type: DataType::Float, shape: shape.into(), value: None };
    let signature = Signature { feeds: vec![feed], fetches: vec![fetch.clone()], targets: vec!["changes".into()], ..Signature::default() };
    let plain = session(&made, &guarded(&Options::new().intra_op(1)));
    let expected = run(&plain, &made, (&x, &fetch)).unwrap();
    for threads in if images == 16 { 1..=4 } else { 3..=3 } {
        let devices = guarded(&Options::new().intra_op(threads));
        let low = session(&made, &devices).with_lines(vec![Some(Bytes::ZERO); devices.specs().len()]).unwrap();
        assert_eq!(run(&low, &made, (&x, &fetch)).unwrap(), expected, "{threads} threads");
        let json = low.plan_file(&signature).unwrap();
        let other = session(&made, &devices);
        other.run(&[], &[], &["init"]).unwrap();
        let callable = other.callable_of(&other.open_plan(&json).unwrap()).unwrap();
        assert!(!callable.plan().fitting.as_ref().unwrap().parts.is_empty());
        for _ in 0..2 {
            callable.run(&[&x]).unwrap();
        }
        let values: Vec<Vec<u32>> = made.variables.iter().map(|variable| bits(&other.read_variable(&variable.name).unwrap())).collect();
        assert_eq!(values, expected[expected.len() - 3..], "{threads} threads, from a file");
    }
}
