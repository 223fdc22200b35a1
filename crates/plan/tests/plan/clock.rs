//! Plans on the virtual clock.

use std::sync::Arc;

use plimsoll_base::DataType;
use plimsoll_device::{CardPart, Costs, DeviceKind, DeviceName, DeviceSpec, InstructionSet, Library, ModelledLink, Work};
use plimsoll_graph::Shape;
use plimsoll_graph::id::Id;
use plimsoll_kernels::CpuKernels;
use plimsoll_ops::{GraphBuilder, Registry};
use plimsoll_plan::{Feed, Lines, PlaceOptions, Plan, Request, Signature, Timeline, place, plan};
use proptest::prelude::*;

/// Rows and columns of a tower's matrices, and the arithmetic operations of a product.
const SIDE: u64 = 64;
const PRODUCT: f64 = 2.0 * (SIDE * SIDE * SIDE) as f64;

/// A logical device on that card, which multiplies 1000 times a second and has memory that takes no time.
fn gpu(index: u32, card: u32, priority: i32) -> DeviceSpec {
    let link = ModelledLink { latency: 0.0, bandwidth: 1e12, peers: vec![] };
    DeviceSpec {
        name: DeviceName::local("GPU", index),
        kind: DeviceKind::Gpu,
        flops: PRODUCT * 1e3,
        bandwidth: 1e15,
        card: Some(CardPart { card, priority, modelled: Some(link), real: None }),
        ..DeviceSpec::cpu(0, None, 1, InstructionSet::Baseline)
    }
}

/// Towers of so many products each, one on each GPU, whose results are added on the processor.
fn towers(products: &[u32], gpus: &[DeviceSpec]) -> (Plan, Vec<DeviceSpec>) {
    let mut b = GraphBuilder::new(Arc::new(Registry::standard(Arc::new(CpuKernels))));
    let shape = Shape::from([SIDE, SIDE]);
    let x = b.placeholder("x", DataType::Float, &shape).build().unwrap();
    let mut results = Vec::new();
    for (tower, &products) in products.iter().enumerate() {
        let mut value = x;
        for _ in 0..products {
            value = b.op("MatMul").inputs([value, x]).device(&format!("/gpu:{tower}")).build().unwrap();
        }
        results.push(value);
    }
    b.op("AddN").inputs(results).device("/cpu:0").name("sum").build().unwrap();
    planned(b, gpus)
}

/// The plan of a graph that feeds `x` and fetches `sum`, and its devices: these behind a processor that takes no time.
fn planned(b: GraphBuilder, gpus: &[DeviceSpec]) -> (Plan, Vec<DeviceSpec>) {
    let shape = Shape::from([SIDE, SIDE]);
    let (registry, graph) = (b.registry().clone(), b.finish());
    let mut devices = vec![DeviceSpec { flops: 1e18, bandwidth: 1e18, ..DeviceSpec::cpu(0, None, 1, InstructionSet::Baseline) }];
    devices.extend_from_slice(gpus);
    let placement = place(&graph, &registry, &devices, &PlaceOptions::new(false)).unwrap();
    let feed = Feed { tensor: "x".into(), data_type: DataType::Float, shape, value: None };
    let signature = Signature { feeds: vec![feed], fetches: vec!["sum".into()], targets: vec![], ..Signature::default() };
    let libraries = vec![&CpuKernels as &dyn Library; devices.len()];
    let request = Request {
        graph: &graph,
        registry: &registry,
        devices: &devices,
        libraries: &libraries,
        costs: &Costs::committed(),
        placement: &placement,
        lines: &Lines::NONE,
        signature: &signature,
    };
    (plan(&request).unwrap(), devices)
}

fn run(products: &[u32], gpus: &[DeviceSpec]) -> (Plan, Timeline) {
    let (plan, devices) = towers(products, gpus);
    let timeline = plan.on_the_clock(&devices, |_, _| true);
    assert_eq!(timeline.makespan, plan.seconds);
    (plan, timeline)
}

/// When the queue of a GPU ends.
fn end(plan: &Plan, timeline: &Timeline, gpu: usize) -> f64 {
    let queue = plan.queues.iter().position(|queue| queue.device.index() == gpu + 1).unwrap();
    timeline.spans[queue].last().unwrap().1
}

/// Whether a time is that, but for the overhead of commands.
fn is_about(seconds: f64, expected: f64) -> bool {
    (expected..expected * 1.01).contains(&seconds)
}

#[test]
fn eight_cards_take_the_time_of_one_tower_and_one_card_that_of_eight() {
    let cards: Vec<DeviceSpec> = (0..8).map(|index| gpu(index, index, 0)).collect();
    let parts: Vec<DeviceSpec> = (0..8).map(|index| gpu(index, 0, 0)).collect();
    let one = run(&[3], &cards[..1]).1.makespan;
    let [eight, shared] = [&cards, &parts].map(|gpus| run(&[3; 8], gpus).1.makespan);
    assert!(is_about(one, 3e-3) && is_about(eight, 3e-3) && is_about(shared, 24e-3), "{one} {eight} {shared}");
}

#[test]
fn of_two_devices_on_a_card_the_one_with_the_smaller_number_goes_first() {
    for (priorities, ends) in [([0, 0], [5e-3, 6e-3]), ([-1, 0], [3e-3, 6e-3]), ([0, -1], [6e-3, 3e-3])] {
        let (plan, timeline) = run(&[3, 3], &[gpu(0, 0, priorities[0]), gpu(1, 0, priorities[1])]);
        let found = [0, 1].map(|device| end(&plan, &timeline, device));
        assert!(found.iter().zip(ends).all(|(found, expected)| is_about(*found, expected)), "{priorities:?}: {found:?}");
    }
}

#[test]
fn copies_take_the_link() {
    let bytes = (SIDE * SIDE * 4) as f64;
    let slow = |index, card, peers: &[u32]| {
        let link = ModelledLink { latency: 0.0, bandwidth: bytes, peers: peers.to_vec() };
        DeviceSpec { card: Some(CardPart { card, priority: 0, modelled: Some(link), real: None }), ..gpu(index, card, 0) }
    };
    // One second to the card, one back; side by side where the cards are two, by turns where there is one. A card computes while
    // its link is in use.
    let (_, one) = run(&[1], &[slow(0, 0, &[])]);
    let (_, two) = run(&[1, 1], &[slow(0, 0, &[]), slow(1, 1, &[])]);
    let (_, shared) = run(&[1, 1], &[slow(0, 0, &[]), slow(1, 0, &[])]);
    assert!(is_about(one.makespan, 2.001) && is_about(two.makespan, 2.001) && is_about(shared.makespan, 4.0), "{one:?} {two:?} {shared:?}");
    // From card to card: by way of the host, or directly.
    let seconds = |to: &DeviceSpec, from: &DeviceSpec| to.copy_seconds(from, bytes);
    assert_eq!(seconds(&slow(0, 0, &[]), &slow(1, 1, &[])), 2.0);
    assert_eq!(seconds(&slow(0, 0, &[1]), &slow(1, 1, &[0])), 1.0);
    assert!(seconds(&slow(0, 0, &[]), &slow(1, 0, &[])) < 1e-6);
}

#[test]
fn links_have_a_latency_for_each_pair() {
    let card = |index, latency, peers: &[u32]| {
        let link = ModelledLink { latency, bandwidth: 10.0, peers: peers.to_vec() };
        DeviceSpec { card: Some(CardPart { card: index, priority: 0, modelled: Some(link), real: None }), ..gpu(index, index, 0) }
    };
    let cpu = DeviceSpec::cpu(0, None, 1, InstructionSet::Baseline);
    let (one, other, peer) = (card(0, 1.0, &[2]), card(1, 2.0, &[]), card(2, 4.0, &[0]));
    let seconds = |to: &DeviceSpec, from: &DeviceSpec| to.copy_seconds(from, 10.0);
    assert_eq!([seconds(&one, &cpu), seconds(&cpu, &other), seconds(&cpu, &peer)], [2.0, 3.0, 5.0]);
    // By way of the host both, one after the other; between peers once.
    assert_eq!([seconds(&one, &other), seconds(&one, &peer)], [5.0, 5.0]);
}

#[test]
fn copies_from_one_card_share_its_link() {
    let bytes = (SIDE * SIDE * 4) as f64;
    let card = |index: u32| {
        let link = ModelledLink { latency: 0.0, bandwidth: bytes, peers: (0..5).filter(|other| *other != index).collect() };
        DeviceSpec { card: Some(CardPart { card: index, priority: 0, modelled: Some(link), real: None }), ..gpu(index, index, 0) }
    };
    let cards: Vec<DeviceSpec> = (0..5).map(card).collect();
    // A value of the first card goes to all others, which give a number each back.
    for readers in 1..5u32 {
        let mut b = GraphBuilder::new(Arc::new(Registry::standard(Arc::new(CpuKernels))));
        let x = b.placeholder("x", DataType::Float, &Shape::from([SIDE, SIDE])).build().unwrap();
        let made = b.op("MatMul").inputs([x, x]).device("/gpu:0").build().unwrap();
        let mut sums = Vec::new();
        for reader in 1..=readers {
            let device = format!("/gpu:{reader}");
            let product = b.op("MatMul").inputs([made, made]).device(&device).build().unwrap();
            sums.push(b.device(&device, |b| b.reduce_sum(product, None).name(&format!("part{reader}")).build()).unwrap());
        }
        b.op("AddN").inputs(sums).device("/cpu:0").name("sum").build().unwrap();
        let (plan, devices) = planned(b, &cards);
        let seconds = plan.on_the_clock(&devices, |_, _| true).makespan;
        // One second brings the feed.
        let expected = 1.0 + f64::from(readers);
        assert!((expected..expected + 0.02).contains(&seconds), "{readers}: {seconds}");
        assert!((expected..expected + 0.02).contains(&plan.interval(&devices)), "{readers}");
    }
}

#[test]
fn what_is_passed_over_takes_no_time() {
    let (plan, devices) = towers(&[3, 5], &[gpu(0, 0, 0), gpu(1, 1, 0)]);
    let of = |queue: usize| plan.queues[queue].device.index();
    let without = plan.on_the_clock(&devices, |queue, _| of(queue) != 2);
    assert!(is_about(without.makespan, 3e-3), "{without:?}");
    assert_eq!(plan.on_the_clock(&devices, |_, _| false).makespan, 0.0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Queues keep their order and their waits, and a card computes one command at a time.
    #[test]
    fn the_clock_keeps_the_rules_of_runs(towers in prop::collection::vec((0u32..4, 0u32..3, -2i32..=0), 1..6)) {
        let gpus: Vec<DeviceSpec> = towers.iter().zip(0..).map(|((_, card, priority), index)| gpu(index, *card, *priority)).collect();
        let products: Vec<u32> = towers.iter().map(|tower| tower.0).collect();
        let (plan, timeline) = run(&products, &gpus);
        prop_assert_eq!(&timeline, &run(&products, &gpus).1);
        let mut computing: Vec<(u32, (f64, f64))> = Vec::new();
        for (queue, spans) in plan.queues.iter().zip(&timeline.spans) {
            prop_assert_eq!(queue.program.commands.len(), spans.len());
            prop_assert!(spans.windows(2).all(|pair| pair[0].1 <= pair[1].0));
            for ((command, span), seconds) in queue.program.commands.iter().zip(spans).zip(&queue.seconds) {
                prop_assert!((span.1 - span.0 - seconds).abs() < 1e-12);
                for wait in &command.waits {
                    prop_assert!(timeline.spans[wait.queue as usize][wait.commands as usize - 1].1 <= span.0);
                }
                if queue.device.index() > 0 && matches!(command.work, Work::Kernel(_)) {
                    computing.push((towers[queue.device.index() - 1].1, *span));
                }
            }
        }
        computing.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.0.total_cmp(&b.1.0)));
        prop_assert!(computing.windows(2).all(|pair| pair[0].0 != pair[1].0 || pair[0].1.1 <= pair[1].1.0));
    }
}
