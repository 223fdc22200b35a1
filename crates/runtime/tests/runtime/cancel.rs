//! Runs that end early, while they compute and while they wait.

use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_base::{Bytes, Code, DataType, Kind};
use plimsoll_cards::Options;
use plimsoll_device::DeviceKind;
use plimsoll_graph::HostTensor;
use plimsoll_kernels::CpuKernels;
use plimsoll_ops::builder::Initializer;
use plimsoll_ops::{GraphBuilder, Registry};
use plimsoll_runtime::{Cancellation, Devices, Session};

/// Products in a row that take far longer than any test waits, between a write of `first` and one of `last`; `short` writes `first`
/// and nothing else.
fn session(devices: &Devices) -> Session {
    let mut b = GraphBuilder::new(Arc::new(Registry::standard(Arc::new(CpuKernels))));
    let [first, last] = ["first", "last"].map(|name| b.get_variable(name, DataType::Float, [], &Initializer::Zeros).unwrap());
    b.global_variables_initializer().unwrap();
    let one = b.scalar(1f32).unwrap();
    let begin = b.assign_add(&first, one).unwrap();
    b.group(&[begin], "short").unwrap();
    let x = b.placeholder("x", DataType::Float, plimsoll_graph::PartialShape(Some(vec![Some(256), Some(256)]))).build().unwrap();
    let end = b.control_dependencies(&[begin], |b| {
        let mut product = x;
        for _ in 0..4000 {
            product = b.matmul(product, x).build().unwrap();
        }
        let sum = b.reduce_sum(product, None).build().unwrap();
        b.assign_add(&last, sum).unwrap()
    });
    b.group(&[end], "long").unwrap();
    let registry = b.registry().clone();
    Session::new(devices, &b.finish(), registry).unwrap()
}

fn x() -> HostTensor {
    HostTensor::from_slice([256, 256], &vec![0f32; 256 * 256]).unwrap()
}

fn value(session: &Session, name: &str) -> f32 {
    session.read_variable(name).unwrap().to_vec::<f32>().unwrap()[0]
}

/// Waits until a run that `cancellation` can end is under way.
fn begins(cancellation: &Cancellation) {
    let begin = Instant::now();
    while cancellation.runs_under_way() == 0 {
        assert!(begin.elapsed() < Duration::from_secs(60), "no run begins");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn open(threads: i32) -> Devices {
    Devices::open(&Options::new().intra_op(threads)).unwrap()
}

#[test]
fn what_was_done_stays_and_the_rest_does_not_happen() {
    for threads in [1, 3] {
        let devices = open(threads);
        let session = session(&devices);
        session.run(&[], &[], &["init"]).unwrap();
        let x = x();
        let ended = Cancellation::after(Duration::from_millis(30)).unwrap();
        let error = session.run_until(&[("x", &x)], &[], &["long"], &ended).unwrap_err();
        assert!(error.code() == Code::DeadlineExceeded && error.kind() == Kind::Deadline, "{error}");
        assert_eq!(value(&session, "last"), 0.0, "it is behind the products");
        let cancelled = Cancellation::new();
        std::thread::scope(|scope| {
            let run = scope.spawn(|| session.run_until(&[("x", &x)], &[], &["long"], &cancelled));
            std::thread::sleep(Duration::from_millis(30));
            cancelled.cancel();
            let error = run.join().unwrap().unwrap_err();
            assert!(error.code() == Code::Cancelled && error.kind() == Kind::Cancelled, "{error}");
        });
        // It stays cancelled: nothing of later runs happens.
        let before = value(&session, "first");
        assert!((0.0..=2.0).contains(&before), "{before}");
        assert_eq!(session.run_until(&[], &[], &["short"], &cancelled).unwrap_err().code(), Code::Cancelled);
        assert_eq!(value(&session, "first"), before);
        // The session works as before, and a run that is over is not ended.
        let open = Cancellation::new();
        session.run_until(&[], &[], &["short"], &open).unwrap();
        open.cancel();
        session.run(&[], &[], &["short"]).unwrap();
        assert_eq!(value(&session, "first"), before + 2.0);
        session.release_unused();
        session.close();
        assert!(devices.report().iter().all(|device| device.reserved == Bytes::ZERO), "{:?}", devices.report());
    }
}

#[test]
fn runs_that_wait_for_a_variable_end_too() {
    let devices = open(1);
    let session = session(&devices);
    session.run(&[], &[], &["init"]).unwrap();
    let (x, long) = (x(), Cancellation::new());
    std::thread::scope(|scope| {
        let run = scope.spawn(|| session.run_until(&[("x", &x)], &[], &["long"], &long));
        std::thread::sleep(Duration::from_millis(20));
        // The run above has `first` as long as it goes on.
        let short = Cancellation::after(Duration::from_millis(20)).unwrap();
        assert_eq!(session.run_until(&[], &[], &["short"], &short).unwrap_err().code(), Code::DeadlineExceeded);
        long.cancel();
        assert_eq!(run.join().unwrap().unwrap_err().code(), Code::Cancelled);
    });
    session.run(&[], &[], &["short"]).unwrap();
}

#[test]
fn runs_that_wait_for_room_end_too_in_any_order() {
    let devices = open(1);
    let first = session(&devices);
    first.run(&[], &[], &["init"]).unwrap();
    let x = x();
    let peak = first.plan(&[("x", &x)], &[], &["long"]).unwrap().devices[0].peak.total();
    first.release_unused();
    let stays = devices.report()[0].reserved;
    drop(first);
    // Room for the memory that four sessions keep, and for one run.
    let limit = Bytes(3 * stays.0 + peak.0 + (peak.0 - stays.0) / 2);
    let options = Options::new().intra_op(1).limit("CPU:0", &limit.0.to_string());
    let devices = Devices::open(&options).unwrap();
    let sessions = [0; 4].map(|_| session(&devices));
    sessions.iter().for_each(|session| drop(session.run(&[], &[], &["init"]).unwrap()));
    let ends = [0; 4].map(|_| Cancellation::new());
    std::thread::scope(|scope| {
        let runs: Vec<_> = sessions
            .iter()
            .zip(&ends)
            .map(|(session, end)| {
                let x = &x;
                let run = scope.spawn(move || session.run_until(&[("x", x)], &[], &["long"], end));
                std::thread::sleep(Duration::from_millis(20));
                run
            })
            .collect();
        // Those in the middle of the queue, its end, and then the one that runs.
        for index in [2, 1, 3, 0] {
            ends[index].cancel();
            std::thread::sleep(Duration::from_millis(20));
        }
        for run in runs {
            let error = run.join().unwrap().unwrap_err();
            assert_eq!(error.code(), Code::Cancelled, "{error}");
        }
    });
    sessions.iter().for_each(|session| drop(session.run(&[], &[], &["short"]).unwrap()));
}

/// A run whose second device waits for the first.
#[test]
fn a_queue_that_waits_for_another_queue_ends_at_once() {
    let options = Options::new().intra_op(2).device_count(DeviceKind::Cpu, 2).sim_gpus("1x64MiB").limit("GPU:0", "32MiB");
    let devices = Devices::open(&options).unwrap();
    for second in ["/cpu:1", "/gpu:0"] {
        let mut b = GraphBuilder::new(Arc::new(Registry::standard(Arc::new(CpuKernels))));
        let x = b.placeholder("x", DataType::Float, plimsoll_graph::PartialShape(Some(vec![Some(256), Some(256)]))).build().unwrap();
        let product = b.device("/cpu:0", |b| (0..4000).try_fold(x, |product, _| b.matmul(product, x).build())).unwrap();
        b.device(second, |b| b.mul(product, product).name("y").build()).unwrap();
        let registry = b.registry().clone();
        let session = Session::new(&devices, &b.finish(), registry).unwrap();
        let (x, cancelled) = (self::x(), Cancellation::new());
        let y = session.callable_for(&[("x", &x)], &["y"], &[]).unwrap().until(&cancelled);
        std::thread::scope(|scope| {
            let run = scope.spawn(|| y.run(&[&x]));
            begins(&cancelled);
            let asked = Instant::now();
            cancelled.cancel();
            assert_eq!(run.join().unwrap().unwrap_err().code(), Code::Cancelled, "{second}");
            assert!(asked.elapsed() < Duration::from_secs(1), "{second}: {:?}", asked.elapsed());
        });
        assert!(cancelled.has_interrupted());
    }
}

#[test]
fn a_run_under_way_may_come_to_its_end_when_no_other_begins() {
    let devices = open(1);
    let session = session(&devices);
    session.run(&[], &[], &["init"]).unwrap();
    let (x, cancelled) = (x(), Cancellation::new());
    let until = session.until(&cancelled);
    let long = until.callable_for(&[("x", &x)], &[], &["long"]).unwrap();
    std::thread::scope(|scope| {
        let run = scope.spawn(|| long.run(&[&x]));
        begins(&cancelled);
        cancelled.finish();
        run.join().unwrap().unwrap();
    });
    assert_eq!(until.run(&[], &[], &["short"]).unwrap_err().code(), Code::Cancelled);
    assert!(!cancelled.has_interrupted());
    assert_eq!(value(&session, "first"), 1.0);
}

/// A session that is prepared while another one's run has the room, and one whose card another program has.
#[test]
fn loading_that_waits_for_room_ends_too() {
    let x = x();
    let alone = open(1);
    let first = session(&alone);
    first.run(&[], &[], &["init"]).unwrap();
    let limit = first.plan(&[("x", &x)], &[], &["long"]).unwrap().devices[0].peak.total();
    let devices = Devices::open(&Options::new().intra_op(1).limit("CPU:0", &limit.0.to_string())).unwrap();
    let (first, second, long) = (session(&devices), session(&devices), Cancellation::new());
    first.run(&[], &[], &["init"]).unwrap();
    std::thread::scope(|scope| {
        let run = scope.spawn(|| first.run_until(&[("x", &x)], &[], &["long"], &long));
        begins(&long);
        let short = Cancellation::after(Duration::from_millis(20)).unwrap();
        let error = second.until(&short).run(&[], &[], &["init"]).unwrap_err();
        assert_eq!(error.code(), Code::DeadlineExceeded, "{error}");
        long.cancel();
        run.join().unwrap().unwrap_err();
    });

    let cards = Options::new().intra_op(1).sim_gpus("1x48MiB").allow_growth(true).wait(Duration::from_secs(60));
    let programs = [0; 2].map(|_| Devices::open(&cards).unwrap());
    let filled = programs.each_ref().map(|devices| {
        let mut b = GraphBuilder::new(Arc::new(Registry::standard(Arc::new(CpuKernels))));
        b.device("/gpu:0", |b| b.get_variable("v", DataType::Float, [8 << 20], &Initializer::Zeros)).unwrap();
        b.global_variables_initializer().unwrap();
        let registry = b.registry().clone();
        Session::new(devices, &b.finish(), registry).unwrap()
    });
    filled[0].run(&[], &[], &["init"]).unwrap();
    let short = Cancellation::after(Duration::from_millis(100)).unwrap();
    let asked = Instant::now();
    let error = filled[1].until(&short).run(&[], &[], &["init"]).unwrap_err();
    assert_eq!(error.code(), Code::DeadlineExceeded, "{error}");
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
    filled[0].close();
    programs[0].empty_cache();
    filled[1].run(&[], &[], &["init"]).unwrap();
}

#[test]
fn planning_ends_between_two_passes() {
    let devices = open(1);
    let session = session(&devices);
    let cancelled = Cancellation::new();
    cancelled.cancel();
    let error = session.until(&cancelled).plan(&[("x", &x())], &[], &["long"]).unwrap_err();
    assert!(error.code() == Code::Cancelled && error.kind() == Kind::Cancelled, "{error}");
    let soon = Cancellation::after(Duration::from_millis(1)).unwrap();
    std::thread::sleep(Duration::from_millis(5));
    let error = session.until(&soon).callable_for(&[("x", &x())], &[], &["long"]).err().unwrap();
    assert_eq!(error.code(), Code::DeadlineExceeded, "{error}");
    session.plan(&[("x", &x())], &[], &["long"]).unwrap();
}
