//! Random schedules: ratings and addresses count the same bytes at every moment, and moves count what a new schedule counts.

use std::sync::Arc;

use plimsoll_base::Bytes;
use plimsoll_device::{BufferRef, Costs, DeviceSpec, Library, Place};
use plimsoll_graph::id::Id;
use plimsoll_graph::{Attrs, Graph, IdVec, Node, NodeId};
use plimsoll_kernels::CpuKernels;
use plimsoll_ops::Registry;
use plimsoll_request::KernelRequest;
use proptest::prelude::*;

use super::Live;
use super::moves::Moves;
use crate::evaluate::evaluate;
use crate::filetests::Kernels;
use crate::lir::parse::device;
use crate::lir::{Arg, Home, Lir, View, WorkId, WorkKind};
use crate::plan::DeviceId;
use crate::{Lines, Placement, Plan, Request, Signature, order, pack, select, transfer};

struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % most
    }
}

/// Kernels that read values made before, some of them in place, with and without scratch, on these devices.
fn random_lir(works: usize, devices: usize, random: &mut Random) -> Lir {
    let mut lir = Lir::new();
    let mut made = Vec::new();
    for _ in 0..works {
        let on = DeviceId::from_index(random.below(devices));
        let count = random.below(4).min(made.len());
        let inputs: Vec<View> = (0..count)
            .map(|_| {
                let value = made[made.len() - 1 - random.below(made.len().min(12))];
                let bytes: u64 = lir.values[value].bytes;
                View::of_bytes(value, bytes)
            })
            .collect();
        let outputs: Vec<_> = (0..1 + random.below(2))
            .map(|_| lir.value(on, Home::Arena, [1, 64, 100, 256][random.below(4)], NodeId::from_index(0)))
            .collect();
        let scratch = [0, 0, 1, 200][random.below(4)];
        let name = format!("in_place=0:0,1:0,0:1 scratch={scratch} workers={}", [0, 40][random.below(2)]);
        let args = Arg::all(inputs.len(), outputs.len());
        // A library names no operand that is not there.
        let name = if inputs.len() < 2 || outputs.len() < 2 { name.replace("in_place=0:0,1:0,0:1 ", "") } else { name };
        let request = Arc::new(KernelRequest::Named(name));
        made.extend(&outputs);
        lir.work(WorkKind::Request { request, args }, on, vec![NodeId::from_index(0)], inputs, outputs);
    }
    lir
}

/// Calls `with` with a scheduled LIR and the request that it is of.
fn scheduled(works: usize, devices: usize, seed: u64, with: impl FnOnce(&Request<'_>, Lir, &mut Random)) {
    let mut graph = Graph::new();
    let node = Node {
        name: "node".into(),
        op: "NoOp".into(),
        inputs: Vec::new(),
        controls: Vec::new(),
        device: String::new(),
        attrs: Attrs::default(),
        carried: Vec::new(),
    };
    graph.add(node).unwrap();
    let specs: Vec<DeviceSpec> = (0..devices).map(|index| device(&format!("CPU:{index}")).unwrap()).collect();
    let registry = Registry::standard(Arc::new(CpuKernels));
    let placement = Placement::unplaced(&specs).unwrap();
    let libraries = vec![&Kernels as &dyn Library; devices];
    let request = Request {
        graph: &graph,
        registry: &registry,
        devices: &specs,
        libraries: &libraries,
        costs: &Costs::committed(),
        placement: &placement,
        lines: &Lines::NONE,
        signature: &Signature::default(),
    };
    let mut random = Random(seed);
    let mut lir = random_lir(works, devices, &mut random);
    transfer::transfer(&request, &mut lir).unwrap();
    select::select(&request, &mut lir, &|| Ok(())).unwrap();
    order::order(&request, &mut lir).unwrap();
    with(&request, lir, &mut random);
}

/// Bytes of an arena that are needed at each position of a plan of one queue, counted from its commands alone. Needed are bytes that
/// a command writes, and bytes that a later one reads before another writes them.
fn counted(plan: &Plan, alignment: u64) -> Vec<Bytes> {
    let commands = &plan.queues[0].program.commands;
    let slots = |buffer: BufferRef| {
        let is_arena = matches!(buffer.place, Place::Arena(_));
        (buffer.offset / alignment..(buffer.offset + buffer.bytes).div_ceil(alignment)).filter(move |_| is_arena)
    };
    let mut needed = vec![std::collections::BTreeSet::new(); commands.len()];
    let mut written: std::collections::HashMap<u64, usize> = std::collections::HashMap::new();
    for (position, command) in commands.iter().enumerate() {
        let plimsoll_device::Work::Kernel(call) = &command.work else { continue };
        let KernelRequest::Named(_) = &*call.request else { continue };
        let (inputs, outputs) = command.args.split_at(command.args.len() - made(plan, position));
        for slot in inputs.iter().flat_map(|input| slots(*input)) {
            (written[&slot]..=position).for_each(|at| _ = needed[at].insert(slot));
        }
        for slot in outputs.iter().chain(&command.scratch).chain(&command.worker_scratch).flat_map(|output| slots(*output)) {
            needed[position].insert(slot);
            written.insert(slot, position);
        }
    }
    needed.iter().map(|slots| Bytes(slots.len() as u64 * alignment)).collect()
}

/// How many of the arguments of a command are written.
fn made(plan: &Plan, position: usize) -> usize {
    let (_, written) = plan.queues[0].bytes[position];
    let args = &plan.queues[0].program.commands[position].args;
    let mut bytes = 0;
    args.iter()
        .rev()
        .take_while(|arg| {
            bytes += arg.bytes;
            bytes <= written
        })
        .count()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn ratings_and_addresses_count_the_same_bytes(seed in any::<u64>(), works in 1usize..60, devices in 1usize..4) {
        scheduled(works, devices, seed, |request, lir, _| {
            let order = lir.region().works.clone();
            let rated = evaluate(&lir, request.devices, &order).live_peak;
            let live = Live::new(&lir, &order, request.devices);
            let plan = pack::pack(request, lir, &[], None).unwrap();
            for (device, plan) in plan.devices.iter().enumerate() {
                assert_eq!(Bytes(rated[device]), plan.live);
                assert!(plan.live <= plan.packed && plan.packed <= plan.arena);
            }
            if devices == 1 {
                assert_eq!(live.arenas[0].profile, counted(&plan, request.devices[0].alignment));
            }
        });
    }

    #[test]
    fn moves_count_what_a_new_schedule_counts(seed in any::<u64>(), works in 2usize..60, devices in 1usize..4) {
        scheduled(works, devices, seed, |request, lir, random| {
            for index in 0..devices {
                let on = DeviceId::from_index(index);
                let mut moves = Moves::of(lir.clone(), request.devices, on);
                assert_eq!(moves.peak(), peak(&lir, &lir.region().works, request.devices, on));
                for _ in 0..20.min(20 * moves.len()) {
                    let from = random.below(moves.len());
                    let Some((first, last)) = moves.reach(from) else { continue };
                    let to = first + random.below(last + 1 - first);
                    let moved = moves.shift(from, to).unwrap();
                    let order = merged(&lir, on, &moves.order().collect::<Vec<_>>());
                    assert_eq!(moved, peak(&lir, &order, request.devices, on), "{from} to {to}");
                    assert_eq!((moves.shift(to, last + 1), moves.peak()), (None, moved));
                }
            }
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn a_better_order_is_an_order_with_the_peak_that_was_found(seed in any::<u64>(), works in 2usize..60, devices in 1usize..4) {
        scheduled(works, devices, seed, |request, lir, _| {
            let definitions = lir.definitions();
            for index in 0..devices {
                let on = DeviceId::from_index(index);
                let mut moves = Moves::of(lir.clone(), request.devices, on);
                let before = moves.peak();
                moves.lower(20_000);
                let found = moves.peak();
                let mut ordered = lir.clone();
                ordered.region_mut().works = moves.into_order();
                let mut done: IdVec<WorkId, bool> = IdVec::filled(false, lir.works.len());
                for (id, work) in ordered.all() {
                    assert!(ordered.predecessors(work, &definitions).all(|before| done[before]), "{id:?} comes too early");
                    done[id] = true;
                }
                assert!(lir.ids().into_iter().all(|id| done[id]));
                assert_eq!(found, peak(&ordered, &ordered.region().works, request.devices, on));
                assert!(found <= before);
                for other in (0..devices).filter(|other| *other != index).map(DeviceId::from_index) {
                    let peaks = [&lir, &ordered].map(|lir| peak(lir, &lir.region().works, request.devices, other));
                    assert_eq!(peaks[0], peaks[1], "the other devices stay as they are");
                }
            }
        });
    }
}

fn peak(lir: &Lir, order: &[WorkId], devices: &[DeviceSpec], on: DeviceId) -> Bytes {
    let live = Live::new(lir, order, devices);
    live.lanes.iter().zip(&live.arenas).find(|(lane, _)| lane.device == on).map_or(Bytes::ZERO, |(_, arena)| arena.peak())
}

/// An order of all works in which those of one device come like this, and those of each other device as they are.
fn merged(lir: &Lir, on: DeviceId, works: &[WorkId]) -> Vec<WorkId> {
    let definitions = lir.definitions();
    let mut queues: std::collections::BTreeMap<usize, Vec<WorkId>> = std::collections::BTreeMap::new();
    for (id, work) in lir.all().filter(|(_, work)| work.device != on) {
        queues.entry(work.device.index()).or_default().push(id);
    }
    queues.insert(on.index(), works.to_vec());
    let mut done: IdVec<WorkId, bool> = IdVec::filled(false, lir.works.len());
    let mut order: Vec<WorkId> = Vec::new();
    while order.len() < lir.region().works.len() {
        let ready = |queue: &&mut Vec<WorkId>| {
            queue.first().is_some_and(|id| lir.predecessors(&lir.works[*id], &definitions).all(|before| done[before]))
        };
        let next = queues.values_mut().find(ready).expect("a queue can go on").remove(0);
        done[next] = true;
        order.push(next);
    }
    order
}
