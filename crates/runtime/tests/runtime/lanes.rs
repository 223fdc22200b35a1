//! Runs of several threads: which go side by side, which wait, and lanes of memory for each.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use plimsoll_base::{Bytes, Code, DataType};
use plimsoll_cards::Options;
use plimsoll_graph::{HostTensor, PartialShape};
use plimsoll_kernels::CpuKernels;
use plimsoll_ops::builder::Initializer;
use plimsoll_ops::{GraphBuilder, Registry};
use plimsoll_plan::{Feed, Signature};
use plimsoll_runtime::{Callable, Devices, Session};

const WORKERS: usize = 3;
const SIZE: u64 = 4096;

/// For each worker `i` a variable `own_i` that `copy_i` sets to the variable `shared`, and `push_i`, which adds `own_i * 0 + 1`
/// to `shared`; `work_i` of matrix `x`.
fn session(devices: &Devices) -> Session {
    let mut b = GraphBuilder::new(Arc::new(Registry::standard(Arc::new(CpuKernels))));
    let shared = b.get_variable("shared", DataType::Float, [SIZE], &Initializer::Zeros).unwrap();
    let x = b.placeholder("x", DataType::Float, PartialShape(Some(vec![None, Some(64)]))).build().unwrap();
    for i in 0..WORKERS {
        let own = b.get_variable(&format!("own_{i}"), DataType::Float, [SIZE], &Initializer::Zeros).unwrap();
        let copy = b.assign(&own, shared.value).unwrap();
        b.group(&[copy], &format!("copy_{i}")).unwrap();
        let (zero, one) = (b.scalar(0f32).unwrap(), b.scalar(1f32).unwrap());
        let nothing = b.mul(own.value, zero).build().unwrap();
        let change = b.add(nothing, one).build().unwrap();
        let push = b.assign_add(&shared, change).unwrap();
        b.group(&[push], &format!("push_{i}")).unwrap();
        let product = b.op("MatMul").inputs([x, x]).attr("transpose_b", plimsoll_graph::AttrValue::Bool(true)).build().unwrap();
        let sum = b.reduce_sum(product, None).build().unwrap();
        let spread = b.reduce_sum(own.value, None).build().unwrap();
        b.add(sum, spread).name(&format!("work_{i}")).build().unwrap();
    }
    b.global_variables_initializer().unwrap();
    let registry = b.registry().clone();
    let session = Session::new(devices, &b.finish(), registry).unwrap();
    session.run(&[], &[], &["init"]).unwrap();
    session.release_unused();
    session
}

fn target(session: &Session, name: String) -> Callable {
    session.callable(&Signature { targets: vec![name], ..Signature::default() }).unwrap()
}

fn work(session: &Session, i: usize) -> Callable {
    let feed = Feed { tensor: "x".into(), data_type: DataType::Float, shape: [100, 64].into(), value: None };
    session.callable(&Signature { feeds: vec![feed], fetches: vec![format!("work_{i}")], targets: vec![], ..Signature::default() }).unwrap()
}

fn x() -> HostTensor {
    HostTensor::from_slice([100, 64], &[0.25f32; 6400]).unwrap()
}

#[test]
fn a_reader_sees_all_of_a_write_or_nothing_of_it() {
    let devices = Devices::open(&Options::new().intra_op(3)).unwrap();
    let session = session(&devices);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|i| {
                let session = &session;
                scope.spawn(move || {
                    let (copy, push) = (target(session, format!("copy_{i}")), target(session, format!("push_{i}")));
                    for _ in 0..100 {
                        copy.run(&[]).unwrap();
                        push.run(&[]).unwrap();
                    }
                })
            })
            .collect();
        let looker = scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                for name in ["shared", "own_1"] {
                    let value = session.read_variable(name).unwrap().to_vec::<f32>().unwrap();
                    assert!(value.iter().all(|element| *element == value[0]), "{name}");
                }
            }
        });
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        done.store(true, Ordering::Release);
        looker.join().unwrap();
    });
    let value = session.read_variable("shared").unwrap().to_vec::<f32>().unwrap();
    assert!(value.iter().all(|element| *element == (100 * WORKERS) as f32), "no push is lost");
}

#[test]
fn lanes_take_what_their_callables_need_and_nothing_more_while_they_run() {
    let devices = Devices::open(&Options::new().intra_op(2)).unwrap();
    let session = session(&devices);
    let variables = devices.report()[0].in_use;
    let x = x();
    let mut want = None;
    let mut lanes = Vec::new();
    for i in 0..WORKERS {
        let (copy, work) = (target(&session, format!("copy_{i}")), work(&session, i));
        let lane = session.lane(&[&copy, &work]).unwrap();
        let plan = work.plan();
        let taken = plan.devices[0].peak.total() - plan.devices[0].peak.variables - plan.devices[0].peak.constants;
        assert_eq!(*want.get_or_insert(taken), taken);
        lanes.push((copy.in_lane(&lane).unwrap(), work.in_lane(&lane).unwrap()));
        assert_eq!(work.in_lane(&session.lane(&[&copy]).unwrap()).err().unwrap().code(), Code::InvalidArgument);
    }
    let constants: Bytes = lanes.iter().flat_map(|(copy, work)| [copy, work].map(|c| c.plan().devices[0].peak.constants)).sum();
    session.release_unused();
    devices.reset_peaks();
    let expected = variables + constants + Bytes(want.unwrap().0 * WORKERS as u64);
    std::thread::scope(|scope| {
        for (copy, work) in &lanes {
            let x = &x;
            scope.spawn(move || {
                let mut times = work.times();
                let mut outputs = work.outputs().unwrap();
                for _ in 0..20 {
                    copy.run(&[]).unwrap();
                    work.run_timed(&[x], &mut outputs.iter_mut().collect::<Vec<_>>(), &mut times).unwrap();
                    assert_eq!(outputs[0].to_vec::<f32>().unwrap(), [100.0 * 100.0 * 64.0 / 16.0]);
                }
                assert_eq!(times.runs, 20);
                assert!(times.busy[0] > Duration::ZERO && times.busy[0] <= times.running, "{times:?}");
            });
        }
    });
    assert_eq!((devices.report()[0].peak, devices.report()[0].in_use), (expected, expected));
    session.close();
    assert_eq!(devices.report()[0].in_use, Bytes::ZERO);
    assert_eq!(lanes[0].0.run(&[]).unwrap_err().code(), Code::Cancelled);
}

#[test]
fn a_lane_that_does_not_fit_is_refused_before_anything_runs() {
    let devices = Devices::open(&Options::new().limit("CPU:0", "192KiB")).unwrap();
    let session = session(&devices);
    let x = x();
    let works: Vec<Callable> = (0..WORKERS).map(|i| work(&session, i)).collect();
    let first = session.lane(&[&works[0]]).unwrap();
    assert_eq!(session.lane(&[&works[1]]).unwrap_err().code(), Code::ResourceExhausted);
    works[0].in_lane(&first).unwrap().run(&[&x]).unwrap();
    drop(first);
    session.lane(&[&works[1]]).unwrap();
}
