//! Constants on devices: equal values of a session's plans are there once. Those that no run uses are given back before a run is
//! refused.

use std::sync::{Arc, Barrier};

use plimsoll_base::{Bytes, Code, DataType};
use plimsoll_cards::Options;
use plimsoll_device::{Device, DeviceKind, DeviceName, DeviceSpec};
use plimsoll_device_cpu::{CpuDevice, CpuPool};
use plimsoll_device_sim::SimDevice;
use plimsoll_graph::{HostTensor, PartialShape};
use plimsoll_kernels::CpuKernels;
use plimsoll_memory::Ledger;
use plimsoll_ops::{GraphBuilder, Registry};
use plimsoll_plan::Footprint;
use plimsoll_runtime::{Callable, Devices, Session};

/// The bytes of each constant.
const MATRIX: Bytes = Bytes(128 << 10);

/// A processor or a card by its position and its name.
const PLACES: [(usize, &str); 2] = [(0, "/cpu:0"), (1, "/gpu:0")];

/// A processor and a card, the one at `index` with a limit.
fn open(index: usize, limit: Option<Bytes>) -> Devices {
    let limit_of = |device: usize| limit.filter(|_| device == index);
    let options = Options::new().intra_op(1);
    let cpu = DeviceSpec { memory_limit: limit_of(0), ..options.resolve().unwrap().remove(0) };
    let name = DeviceName::local("GPU", 0);
    let card = DeviceSpec { name, kind: DeviceKind::Gpu, memory_limit: limit_of(1), ..cpu.clone() };
    let ledger = Ledger::new(card.name.to_string(), card.memory_limit);
    let pool = CpuPool::new(1).unwrap();
    let cpu = CpuDevice::new(cpu, pool, Arc::new(CpuKernels));
    let card = SimDevice::new(card, ledger, Arc::new(CpuKernels)).unwrap();
    Devices::with(vec![Arc::new(cpu) as Arc<dyn Device>, Arc::new(card)], &options).unwrap()
}

fn matrix(rows: u64, step: u64) -> HostTensor {
    let elements: Vec<f32> = (0..MATRIX.0 / 4).map(|i| ((i * step) % 17) as f32 / 16.0 - 0.5).collect();
    HostTensor::from_slice([rows, MATRIX.0 / 4 / rows], &elements).unwrap()
}

/// `head_0` to `head_2`: `x` times a matrix that is the same for all of them, times one of its own. The third has the same matrix in
/// another node, and in another shape.
fn session(devices: &Devices, place: &str) -> Session {
    let mut b = GraphBuilder::new(Arc::new(Registry::standard(Arc::new(CpuKernels))));
    b.device(place, |b| {
        let x = b.placeholder("x", DataType::Float, PartialShape(Some(vec![None, Some(128)]))).build().unwrap();
        let common = b.constant(matrix(128, 3)).build().unwrap();
        let elements = b.constant(matrix(256, 3)).build().unwrap();
        let shape = b.constant(HostTensor::from_slice([2], &[128i32, 256]).unwrap()).build().unwrap();
        let again = b.op("Reshape").input(elements).input(shape).build().unwrap();
        for (index, common) in [common, common, again].into_iter().enumerate() {
            let own = b.constant(matrix(256, 5 + index as u64)).build().unwrap();
            let inner = b.matmul(x, common).build().unwrap();
            b.matmul(inner, own).name(&format!("head_{index}")).build().unwrap();
        }
    });
    let registry = b.registry().clone();
    Session::new(devices, &b.finish(), registry).unwrap()
}

fn x() -> HostTensor {
    HostTensor::from_slice([3, 128], &(0..3 * 128).map(|i| (i % 7) as f32).collect::<Vec<_>>()).unwrap()
}

fn head(session: &Session, index: usize) -> Callable {
    session.callable_for(&[("x", &x())], &[&format!("head_{index}")], &[]).unwrap()
}

fn run(callable: &Callable) -> HostTensor {
    callable.run(&[&x()]).unwrap().remove(0)
}

/// The results of each head in a session of its own, and the bytes that its device takes.
fn alone(index: usize, place: &str) -> [(HostTensor, Bytes); 3] {
    [0, 1, 2].map(|number| {
        let devices = open(index, None);
        let callable = head(&session(&devices, place), number);
        let y = run(&callable);
        let peak = callable.plan().devices[index].peak;
        assert_eq!(peak.constants, Bytes(2 * MATRIX.0), "{place}");
        assert_eq!((devices.report()[index].peak, devices.report()[index].reserved), (peak.total(), peak.total() - ends(&callable, index)));
        (y, peak.total())
    })
}

/// Fed and fetched tensors count on the processor while a run uses them.
fn ends(callable: &Callable, index: usize) -> Bytes {
    if index == 0 { callable.plan().devices[0].peak.transfer } else { Bytes::ZERO }
}

#[test]
fn equal_values_of_several_plans_are_there_once() {
    for (index, place) in PLACES {
        let want = alone(index, place);
        let devices = open(index, None);
        let session = session(&devices, place);
        let held = || devices.report()[index].reserved;
        let mut callables = Vec::new();
        for number in 0..3 {
            callables.push(head(&session, number));
            assert_eq!(held(), Bytes((number as u64 + 2) * MATRIX.0), "{place}: head {number}");
        }
        for (callable, (y, _)) in callables.iter().zip(&want) {
            assert_eq!(run(callable), *y, "{place}");
        }
        session.release_unused();
        // The promise of plans that are loaded together.
        let mut footprint = Footprint::new(devices.specs());
        let lanes: Vec<Vec<_>> = callables.iter().map(|callable| vec![callable.plan()]).collect();
        footprint.add_lanes(&lanes);
        assert_eq!((footprint.needs()[index].parts.constants, held()), (Bytes(4 * MATRIX.0), Bytes(4 * MATRIX.0)), "{place}");
        drop(callables.remove(0));
        session.release_unused();
        assert_eq!(held(), Bytes(3 * MATRIX.0), "{place}");
        assert_eq!([run(&callables[0]), run(&callables[1])], [want[1].0.clone(), want[2].0.clone()], "{place}");
        drop(callables);
        session.release_unused();
        assert_eq!(held(), Bytes::ZERO, "{place}");
    }
}

#[test]
fn the_least_recently_used_are_given_back_for_a_run() {
    for ((index, place), order) in PLACES.into_iter().flat_map(|place| [(place, [0, 1]), (place, [1, 0])]) {
        let want = alone(index, place);
        let limit = want[0].1 + MATRIX;
        let devices = open(index, Some(limit));
        let session = session(&devices, place);
        let mut heads = [0, 1].map(|number| Some(head(&session, number)));
        for number in order {
            assert_eq!(heads[number].as_ref().map(run), Some(want[number].0.clone()), "{place}");
        }
        session.release_unused();
        let held = || devices.report()[index].reserved;
        assert_eq!(held(), Bytes(3 * MATRIX.0), "{place}: both are there");
        let third = head(&session, 2);
        assert_eq!(run(&third), want[2].0, "{place}");
        session.release_unused();
        assert_eq!(held(), Bytes(3 * MATRIX.0), "{place}: one has gone");
        let (first, second) = (heads[order[0]].take(), heads[order[1]].take());
        // The one that has gone takes nothing with it, the other one does.
        drop(first);
        session.release_unused();
        assert_eq!(held(), Bytes(3 * MATRIX.0), "{place}: {order:?}");
        drop(second);
        session.release_unused();
        assert_eq!(held(), Bytes(2 * MATRIX.0), "{place}: {order:?}");
        assert_eq!(run(&head(&session, order[0])), want[order[0]].0, "{place}");
        assert_eq!(run(&third), want[2].0, "{place}");
        assert!(devices.report()[index].peak <= limit, "{place}");
    }
}

#[test]
fn a_plan_that_fits_alone_runs_though_others_are_held() {
    for (index, place) in PLACES {
        let want = alone(index, place);
        let limit = want.iter().map(|(_, bytes)| *bytes).max().unwrap();
        let devices = open(index, Some(limit));
        let sessions = [session(&devices, place), session(&devices, place)];
        let heads: Vec<(Callable, &HostTensor)> =
            sessions.iter().flat_map(|session| (0..3).map(|number| (head(session, number), &want[number].0))).collect();
        for (callable, y) in &heads {
            assert_eq!(run(callable), **y, "{place}");
        }
        let start = Barrier::new(heads.len());
        std::thread::scope(|scope| {
            for (callable, y) in &heads {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    for _ in 0..20 {
                        assert_eq!(run(callable), **y, "{place}");
                    }
                });
            }
        });
        assert!(devices.report()[index].peak <= limit, "{place}: {:?} of {limit}", devices.report());
        drop(heads);
        let devices = open(index, Some(limit - Bytes(1)));
        let refused = session(&devices, place).callable_for(&[("x", &x())], &["head_0"], &[]).err();
        assert_eq!(refused.map(|error| error.code()), Some(Code::ResourceExhausted), "{place}");
    }
}

#[test]
fn constants_of_a_lane_stay() {
    for (index, place) in PLACES {
        let want = alone(index, place);
        let promised = |devices: &Devices| {
            let session = session(devices, place);
            let heads = [0, 1].map(|number| head(&session, number));
            let mut footprint = Footprint::new(devices.specs());
            footprint.add_lanes(&heads.each_ref().map(|head| vec![head.plan()]));
            footprint.needs()[index].peak
        };
        let limit = promised(&open(index, None));
        let devices = open(index, Some(limit));
        let session = session(&devices, place);
        let lanes = [0, 1].map(|number| {
            let callable = head(&session, number);
            callable.in_lane(&session.lane(&[&callable]).unwrap()).unwrap()
        });
        session.release_unused();
        devices.reset_peaks();
        for number in [0, 1, 1, 0] {
            assert_eq!(run(&lanes[number]), want[number].0, "{place}");
        }
        assert_eq!(devices.report()[index].peak, limit, "{place}");
        let refused = session.callable_for(&[("x", &x())], &["head_2"], &[]).err();
        assert_eq!(refused.map(|error| error.code()), Some(Code::ResourceExhausted), "{place}");
        assert_eq!([run(&lanes[0]), run(&lanes[1])], [want[0].0.clone(), want[1].0.clone()], "{place}");
        // What a lane has is there again when it has gone.
        drop(lanes);
        assert_eq!(run(&head(&session, 2)), want[2].0, "{place}");
        let callable = head(&session, 0);
        session.close();
        assert_eq!(devices.report()[index].reserved, Bytes::ZERO, "{place}");
        assert_eq!(callable.run(&[&x()]).unwrap_err().code(), Code::Cancelled, "{place}");
    }
}
