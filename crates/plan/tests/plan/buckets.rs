//! Plans of one size in the memory of another.

use std::sync::Arc;

use plimsoll_base::{Bytes, DataType};
use plimsoll_cards::Options;
use plimsoll_device::{BufferRef, Command, Costs, InstructionSet, Library, Place};
use plimsoll_graph::{HostTensor, PartialShape, Shape};
use plimsoll_kernels::CpuKernels;
use plimsoll_ops::{GraphBuilder, Registry};
use plimsoll_plan::{Feed, Lines, PlaceOptions, Plan, Request, Signature, place, plan, within};

/// Calls `check` with the request and the plan of a size of a small network.
fn with_plan<T>(rows: u64, check: impl FnOnce(&Request<'_>, Plan) -> T) -> T {
    let mut b = GraphBuilder::new(Arc::new(Registry::standard(Arc::new(CpuKernels))));
    let x = b.placeholder("x", DataType::Float, PartialShape(Some(vec![None, Some(64)]))).build().unwrap();
    let values: Vec<f32> = (0..64 * 64).map(|i| (i % 13) as f32).collect();
    let matrix = b.constant(HostTensor::from_slice([64, 64], &values).unwrap()).build().unwrap();
    let soft = b.softmax(x).build().unwrap();
    let product = b.matmul(soft, matrix).build().unwrap();
    let again = b.softmax(product).build().unwrap();
    let sum = b.add(again, soft).build().unwrap();
    b.reduce_sum(sum, None).name("y").build().unwrap();
    let registry = b.registry().clone();
    let graph = b.finish();
    let devices = Options::new().intra_op(1).resolve_on(1, InstructionSet::Avx512).unwrap();
    let placement = place(&graph, &registry, &devices, &PlaceOptions::new(true)).unwrap();
    let feed = Feed { tensor: "x".into(), data_type: DataType::Float, shape: Shape::new([rows, 64]), value: None };
    let signature = Signature { feeds: vec![feed], fetches: vec!["y".into()], ..Signature::default() };
    let libraries = [&CpuKernels as &dyn Library];
    let costs = Costs::committed();
    let request = Request {
        graph: &graph,
        registry: &registry,
        devices: &devices,
        libraries: &libraries,
        costs: &costs,
        placement: &placement,
        lines: &Lines::NONE,
        signature: &signature,
    };
    let made = plan(&request).unwrap();
    check(&request, made)
}

/// The same plan, with its buffers so much further up in a larger arena.
fn shifted(plan: &Plan, by: u64) -> Plan {
    let mut plan = plan.clone();
    let queues = &mut plan.queues;
    let shift = |buffer: &mut BufferRef| buffer.offset += if matches!(buffer.place, Place::Arena(_)) { by } else { 0 };
    for command in queues.iter_mut().flat_map(|queue| &mut Arc::make_mut(&mut queue.program).commands) {
        let Command { args, scratch, worker_scratch, guard, .. } = command;
        args.iter_mut().chain(scratch).chain(worker_scratch).chain(guard).for_each(shift);
    }
    for device in &mut plan.devices {
        device.arena += Bytes(by);
        device.packed += Bytes(by);
        device.peak.activations += Bytes(by);
    }
    plan
}

#[test]
fn a_plan_that_takes_more_for_less_is_laid_out_as_the_larger_one() {
    let outer = with_plan(40, |_, plan| plan);
    with_plan(20, |request, own| {
        let (mine, theirs) = (own.devices[0].arena, outer.devices[0].arena);
        assert!(mine < theirs);
        let kept = within(request, own.clone(), &outer).unwrap();
        assert_eq!(kept.to_string(), own.to_string(), "it takes less as it is");

        let large = shifted(&own, 1 << 20);
        let moved = within(request, large.clone(), &outer).unwrap();
        assert_eq!(moved.devices[0].arena, theirs);
        assert_eq!(moved.devices[0].peak.total() - own.devices[0].peak.total(), theirs - mine, "{moved}");
        let ends = |plan: &Plan| {
            let buffers = plan.queues[0].program.commands.iter().flat_map(|command| &command.args);
            buffers.filter(|buffer| matches!(buffer.place, Place::Arena(_))).map(|buffer| buffer.offset + buffer.bytes).max()
        };
        assert!(ends(&moved).unwrap() <= theirs.0 && ends(&large).unwrap() > theirs.0);

        let mut raised = own.clone();
        raised.take_as_much_as(&outer);
        assert_eq!((raised.devices[0].arena, raised.devices[0].peak.total()), (theirs, moved.devices[0].peak.total()));
    });
}

#[test]
fn a_plan_of_other_commands_keeps_its_layout() {
    let outer = with_plan(40, |_, plan| plan);
    with_plan(20, |request, own| {
        let large = shifted(&own, 1 << 20);
        let mut other = outer.clone();
        let queues = &mut other.queues;
        Arc::make_mut(&mut queues[0].program).commands.pop();
        assert_eq!(within(request, large.clone(), &other).unwrap().to_string(), large.to_string());
    });
}
