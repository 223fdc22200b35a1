//! Products of tensors that are transposed read and write them where they lie, with the bits of tensors that are moved. So does attention,
//! whose scores are nowhere as a whole.

use std::sync::Arc;

use plimsoll_base::{DataType, Random};
use plimsoll_cards::Options;
use plimsoll_device::Work;
use plimsoll_graph::{AttrValue, HostTensor, Output, Shape};
use plimsoll_kernels::CpuKernels;
use plimsoll_ops::{GraphBuilder, Registry};
use plimsoll_plan::{Feed, Signature};
use plimsoll_request::KernelRequest;
use plimsoll_request::movement::Movement;
use plimsoll_runtime::{Devices, Session};
use proptest::prelude::*;

/// The orders of four dimensions: one for each operand and one for the result.
fn orders() -> impl Strategy<Value = [[usize; 4]; 3]> {
    let order = || Just([0, 1, 2, 3]).prop_shuffle();
    [order(), order(), order()]
}

struct Network {
    session: Session,
    sizes: [Vec<u64>; 2],
    /// What is transposed, and the result.
    transposed: Vec<String>,
    result: String,
}

/// A product of batches of matrices of that type, of operands that are transposed; its result is transposed, too.
fn network(
    data_type: DataType,
    [a, b]: [u64; 2],
    [m, n, k]: [u64; 3],
    [x_order, y_order, order]: [[usize; 4]; 3],
    adjoint: [bool; 2],
) -> Network {
    let mut g = GraphBuilder::new(Arc::new(Registry::standard(Arc::new(CpuKernels))));
    let wanted = [if adjoint[0] { [a, b, k, m] } else { [a, b, m, k] }, if adjoint[1] { [a, b, n, k] } else { [a, b, k, n] }];
    let mut sizes = [vec![0; 4], vec![0; 4]];
    let mut transposed = Vec::new();
    let mut turn = |g: &mut GraphBuilder, tensor: Output, order: [usize; 4]| {
        let order = HostTensor::from_slice([4], &order.map(|axis| axis as i32)).unwrap();
        let turned = g.op("Transpose").input(tensor).constant_input("order", order).build().unwrap();
        transposed.push(g.node(turned.node).name.clone());
        turned
    };
    let mut operands = Vec::new();
    for (side, (name, order)) in ["x", "y"].into_iter().zip([x_order, y_order]).enumerate() {
        for (axis, from) in order.into_iter().enumerate() {
            sizes[side][from] = wanted[side][axis];
        }
        let fed = g.placeholder(name, DataType::Float, &Shape::new(sizes[side].clone())).build().unwrap();
        let narrow = g.op("Cast").input(fed).attr("DstT", AttrValue::data_type(data_type)).build().unwrap();
        operands.push(turn(&mut g, narrow, order));
    }
    let product = g
        .op("BatchMatMulV2")
        .inputs(operands)
        .attr("adj_x", AttrValue::Bool(adjoint[0]))
        .attr("adj_y", AttrValue::Bool(adjoint[1]))
        .build()
        .unwrap();
    let result = turn(&mut g, product, order);
    let result = g.op("Cast").input(result).attr("DstT", AttrValue::data_type(DataType::Float)).build().unwrap();
    let result = g.node(result.node).name.clone();
    transposed.pop();
    transposed.push(g.node(product.node).name.clone());
    let registry = g.registry().clone();
    let session = Session::new(&Devices::open(&Options::new()).unwrap(), &g.finish(), registry).unwrap();
    Network { session, sizes, transposed, result }
}

impl Network {
    fn run(&self, fetches: &[&str]) -> Vec<f32> {
        let feeds = [0, 1].map(|side| {
            let mut random = Random::new(side as u64);
            let count = self.sizes[side].iter().product::<u64>();
            let numbers: Vec<f32> = (0..count).map(|_| (random.next() >> 40) as f32 / (1 << 23) as f32 - 1.0).collect();
            HostTensor::from_slice(self.sizes[side].clone(), &numbers).unwrap()
        });
        self.session.run(&[("x", &feeds[0]), ("y", &feeds[1])], fetches, &[]).unwrap()[0].to_vec().unwrap()
    }

    /// How many tensors a step of the result moves.
    fn moved(&self) -> usize {
        let feed = |side: usize, name: &str| Feed {
            tensor: name.into(),
            data_type: DataType::Float,
            shape: Shape::new(self.sizes[side].clone()),
            value: None,
        };
        let signature = Signature { feeds: vec![feed(0, "x"), feed(1, "y")], fetches: vec![self.result.clone()], ..Signature::default() };
        let plan = self.session.plan_signature(&signature).unwrap();
        let commands = plan.queues.iter().flat_map(|queue| &queue.program.commands);
        let is_moved = |work: &Work| {
            let Work::Kernel(call) = work else { return false };
            matches!(*call.request, KernelRequest::Movement { movement: Movement::Transpose { .. }, .. })
        };
        commands.filter(|command| is_moved(&command.work)).count()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn transposed_tensors_are_read_and_written_with_the_bits_of_moved_ones(
        data_type in prop_oneof![3 => Just(DataType::Float), 1 => Just(DataType::Double), 1 => Just(DataType::Half), 1 => Just(DataType::Bfloat16)],
        batch in [1u64..4, 1u64..4],
        sizes in [1u64..20, 1u64..40, 1u64..20],
        orders in orders(),
        adjoint in any::<[bool; 2]>(),
    ) {
        let network = network(data_type, batch, sizes, orders, adjoint);
        let all: Vec<&str> = std::iter::once(&network.result).chain(&network.transposed).map(String::as_str).collect();
        prop_assert_eq!(network.run(&[&network.result]), network.run(&all));
    }
}

#[test]
fn heads_are_not_moved() {
    let heads = [0, 2, 1, 3];
    let network = network(DataType::Float, [2, 4], [16, 16, 32], [heads, heads, heads], [false, true]);
    assert_eq!(network.moved(), 0);
}

/// Attention over the heads of projections, with a mask. Its result, and what is between.
fn heads_with_attention(options: &Options) -> (Session, String, Vec<String>) {
    let mut g = GraphBuilder::new(Arc::new(Registry::standard(Arc::new(CpuKernels))));
    let ints = |numbers: [i32; 4]| HostTensor::from_slice([4], &numbers).unwrap();
    let mut between = Vec::new();
    let fed = ["q", "k", "v"].map(|name| g.placeholder(name, DataType::Float, &Shape::new([2, 48, 4, 24])).build().unwrap());
    let mask = g.placeholder("mask", DataType::Float, &Shape::new([2, 1, 1, 48])).build().unwrap();
    let [q, k, v] = fed.map(|fed| g.op("Transpose").input(fed).constant_input("order", ints([0, 2, 1, 3])).build().unwrap());
    let scores = g.op("BatchMatMulV2").inputs([q, k]).attr("adj_y", AttrValue::Bool(true)).build().unwrap();
    let masked = g.op("AddV2").inputs([scores, mask]).build().unwrap();
    let shares = g.op("Softmax").input(masked).build().unwrap();
    let heads = g.op("BatchMatMulV2").inputs([shares, v]).build().unwrap();
    let result = g.op("Transpose").input(heads).constant_input("order", ints([0, 2, 1, 3])).name("result").build().unwrap();
    between.extend([scores, shares, heads].map(|output| g.node(output.node).name.clone()));
    let result = g.node(result.node).name.clone();
    let registry = g.registry().clone();
    (Session::new(&Devices::open(options).unwrap(), &g.finish(), registry).unwrap(), result, between)
}

#[test]
fn scores_that_nobody_wants_take_no_memory() {
    let numbers = |shape: &[u64], seed: u64| {
        let mut random = Random::new(seed);
        let numbers: Vec<f32> = (0..shape.iter().product::<u64>()).map(|_| (random.next() >> 40) as f32 / (1 << 23) as f32 - 1.0).collect();
        HostTensor::from_slice(shape.to_vec(), &numbers).unwrap()
    };
    let heads = [1, 2, 3].map(|seed| numbers(&[2, 48, 4, 24], seed));
    let mask = numbers(&[2, 1, 1, 48], 4);
    let run = |(session, result, between): &(Session, String, Vec<String>), all: bool| -> Vec<f32> {
        let between = between.iter().filter(|_| all);
        let fetches: Vec<&str> = std::iter::once(result).chain(between).map(String::as_str).collect();
        let feeds = [("q", &heads[0]), ("k", &heads[1]), ("v", &heads[2]), ("mask", &mask)];
        let made = session.run(&feeds, &fetches, &[]).unwrap()[0].to_vec().unwrap();
        let report = session.devices().report();
        // The scores alone are 73,728 bytes.
        assert_eq!(report[0].peak.0 > 300_000, all, "{report:?}");
        made
    };
    let expected = run(&heads_with_attention(&Options::new()), true);
    for threads in [1, 2, 5] {
        assert_eq!(run(&heads_with_attention(&Options::new().intra_op(threads)), false), expected, "{threads} threads");
    }
}
