//! Runs in stages: their promise, at the line and below it; their effects, plans and cancellation.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use plimsoll_base::{Bytes, Code, DataType};
use plimsoll_cards::Options;
use plimsoll_graph::{AttrValue, HostTensor, Output, PartialShape, Shape};
use plimsoll_kernels::CpuKernels;
use plimsoll_ops::builder::Initializer;
use plimsoll_ops::{GraphBuilder, Registry};
use plimsoll_plan::{Certainty, Footprint, Plan};
use plimsoll_runtime::{Cancellation, Devices, Session};

const SIZE: u64 = 4096;

fn builder() -> GraphBuilder {
    GraphBuilder::new(Arc::new(Registry::standard(Arc::new(CpuKernels))))
}

fn open(build: impl Fn(&mut GraphBuilder), limit: Option<Bytes>) -> (Devices, Session) {
    let mut b = builder();
    build(&mut b);
    let registry = b.registry().clone();
    let mut options = Options::new().intra_op(1);
    if let Some(limit) = limit {
        options = options.limit("CPU:0", &limit.0.to_string());
    }
    let devices = Devices::open(&options).unwrap();
    let session = Session::new(&devices, &b.finish(), registry).unwrap();
    (devices, session)
}

/// Counts a run in `runs`, and behind that takes the size of x, or four times it, as the sum of x is below zero or not. `ends` counts
/// what comes behind the condition.
fn sides(b: &mut GraphBuilder) {
    let x = b.placeholder("x", DataType::Float, PartialShape(Some(vec![Some(SIZE)]))).build().unwrap();
    let [runs, ends] = ["runs", "ends"].map(|name| b.get_variable(name, DataType::Float, [], &Initializer::Zeros).unwrap());
    let one = b.scalar(1f32).unwrap();
    let counted = b.op("AssignAdd").inputs([runs.handle, one]).build().unwrap();
    let axis = b.constant(HostTensor::scalar(0i32)).build().unwrap();
    let sum = b.op("Sum").inputs([x, axis]).control(counted.node).build().unwrap();
    let zero = b.scalar(0f32).unwrap();
    let is_low = b.op("Less").inputs([sum, zero]).build().unwrap();
    let fork = b.op("Switch").inputs([x, is_low]).build_node().unwrap();
    let [no, yes] = [0, 1].map(|index| Output { node: fork, index });
    let four = b.constant(HostTensor::from_slice([1], &[4i32]).unwrap()).build().unwrap();
    let tiled = b.op("Tile").inputs([no, four]).build().unwrap();
    let low = b.op("Neg").input(yes).build().unwrap();
    let merged = b.op("Merge").inputs([tiled, low]).attr("N", AttrValue::Int(2)).build_node().unwrap();
    let merged = Output { node: merged, index: 0 };
    let y = b.op("Exp").input(merged).name("y").build().unwrap();
    b.op("AssignAdd").inputs([ends.handle, one]).control(y.node).name("end").build_node().unwrap();
    b.global_variables_initializer().unwrap();
}

/// As `sides`, where y has as many elements as the integer part of the sum of x.
fn open_size(b: &mut GraphBuilder) {
    let x = b.placeholder("x", DataType::Float, PartialShape(Some(vec![Some(SIZE)]))).build().unwrap();
    let [runs, ends] = ["runs", "ends"].map(|name| b.get_variable(name, DataType::Float, [], &Initializer::Zeros).unwrap());
    let one = b.scalar(1f32).unwrap();
    let counted = b.op("AssignAdd").inputs([runs.handle, one]).build().unwrap();
    let axis = b.constant(HostTensor::scalar(0i32)).build().unwrap();
    let sum = b.op("Sum").inputs([x, axis]).control(counted.node).build().unwrap();
    let size = b.op("Cast").input(sum).attr("DstT", AttrValue::data_type(DataType::Int32)).build().unwrap();
    let dims = b.op("ExpandDims").inputs([size, axis]).build().unwrap();
    let filled = b.op("Fill").inputs([dims, sum]).build().unwrap();
    let y = b.op("Exp").input(filled).name("y").build().unwrap();
    b.op("AssignAdd").inputs([ends.handle, one]).control(y.node).name("end").build_node().unwrap();
    b.global_variables_initializer().unwrap();
}

fn ramp(element: f32) -> HostTensor {
    HostTensor::from_slice([SIZE], &vec![element; SIZE as usize]).unwrap()
}

fn counts(session: &Session) -> [f32; 2] {
    ["runs", "ends"].map(|name| session.read_variable(name).unwrap().to_vec::<f32>().unwrap()[0])
}

fn footprint(devices: &Devices, session: &Session) -> Footprint {
    let mut footprint = Footprint::new(devices.specs());
    let x = ramp(1.0);
    footprint.add(&session.plan(&[], &[], &["init"]).unwrap());
    footprint.add(&session.plan(&[("x", &x)], &["y"], &["end"]).unwrap());
    footprint
}

#[test]
fn a_few_ways_are_planned_before_the_first_step() {
    let (devices, session) = open(sides, None);
    let promised = footprint(&devices, &session);
    let need = &promised.needs()[0];
    assert_eq!(need.certainty, Certainty::AtMost);
    // x, and the larger side twice.
    assert!(need.peak >= Bytes(4 * SIZE * 9) && need.peak < Bytes(4 * SIZE * 14), "{}", need.peak);

    let (devices, session) = open(sides, Some(need.peak));
    session.run(&[], &[], &["init"]).unwrap();
    for (element, size, counted) in [(-0.5f32, SIZE, 1.0), (0.5, 4 * SIZE, 2.0), (-0.5, SIZE, 3.0), (0.5, 4 * SIZE, 4.0)] {
        let results = session.run(&[("x", &ramp(element))], &["y"], &["end"]).unwrap();
        assert_eq!((results[0].shape(), counts(&session)), (&Shape::from([size]), [counted; 2]));
        assert!(results[0].to_vec::<f32>().unwrap().iter().all(|value| (value - 0.5f32.exp()).abs() < 1e-6));
    }
    assert_eq!(devices.report()[0].peak, need.peak, "the larger side holds all of it");

    let (_devices, session) = open(sides, Some(Bytes(need.peak.0 - 1)));
    session.run(&[], &[], &["init"]).unwrap();
    // Also where the way that it would go fits.
    let error = session.run(&[("x", &ramp(-0.5))], &["y"], &["end"]).unwrap_err();
    assert_eq!((error.code(), counts(&session)), (Code::ResourceExhausted, [0.0; 2]), "{error}");
}

#[test]
fn where_the_peak_is_open_each_stage_is_held_against_the_line() {
    let (devices, session) = open(open_size, None);
    assert!(matches!(footprint(&devices, &session).needs()[0].certainty, Certainty::OpenFrom(_)));
    let (_devices, session) = open(open_size, Some(Bytes(256 << 10)));
    session.run(&[], &[], &["init"]).unwrap();
    let run = |size: f32| session.run(&[("x", &ramp(size / SIZE as f32))], &["y"], &["end"]);
    assert_eq!(run(2048.0).unwrap()[0].shape(), &Shape::from([2048]));
    // The first stage has run, nothing behind it has.
    let error = run(65536.0).unwrap_err();
    assert_eq!((error.code(), counts(&session)), (Code::ResourceExhausted, [2.0, 1.0]), "{error}");
    assert_eq!(run(0.0).unwrap()[0].shape(), &Shape::from([0]));
    let error = run(-4096.0).unwrap_err();
    assert_eq!((error.code(), counts(&session)), (Code::InvalidArgument, [4.0, 2.0]), "{error}");
    assert_eq!(run(4096.0).unwrap()[0].to_vec::<f32>().unwrap().len(), 4096);
    assert_eq!(counts(&session), [5.0, 3.0]);
}

#[test]
fn a_stage_is_planned_once_for_its_values() {
    let (_devices, session) = open(open_size, None);
    let plans = Arc::new(AtomicUsize::new(0));
    let counted = plans.clone();
    session.observe_plans(Box::new(move |_, _: &Plan| {
        counted.fetch_add(1, Ordering::Relaxed);
    }));
    session.run(&[], &[], &["init"]).unwrap();
    let x = |size: f32| ramp(size / SIZE as f32);
    let callable = session.callable_for(&[("x", &x(8.0))], &["y"], &["end"]).unwrap();
    assert_eq!((plans.load(Ordering::Relaxed), callable.outputs().unwrap()[0].shape()), (2, &Shape::from([0])));
    let mut y = callable.outputs().unwrap().remove(0);
    for (size, planned) in [(8, 3), (8, 3), (16, 4), (8, 4), (16, 4)] {
        callable.run_into(&[&x(size as f32)], &mut [&mut y]).unwrap();
        assert_eq!((y.shape(), plans.load(Ordering::Relaxed)), (&Shape::from([size]), planned));
    }
    let records = callable.run_with_stats(&[&x(8.0)], &mut [&mut y]).unwrap();
    let ran: Vec<&str> = records.step_stats[0].node_stats.iter().map(|node| node.node_name.as_str()).collect();
    assert!(ran.contains(&"Sum") && ran.iter().filter(|name| **name == "AssignAdd").count() == 1, "{ran:?}");
    assert!(records.step_stats[0].node_stats.is_sorted_by_key(|node| node.all_start_nanos), "{records:?}");
    for code in [
        callable.profile(&[&x(8.0)], &mut [&mut y], 1).err().map(|error| error.code()),
        session.lane(&[&callable]).and_then(|lane| callable.in_lane(&lane)).err().map(|error| error.code()),
        session.plan_file(&session.signature(&[("x", &x(8.0))], &["y"], &["end"]).unwrap()).err().map(|error| error.code()),
    ] {
        assert_eq!(code, Some(Code::Unimplemented));
    }
}

#[test]
fn a_run_that_is_ended_goes_no_further() {
    let (_devices, session) = open(sides, None);
    session.run(&[], &[], &["init"]).unwrap();
    let cancellation = Cancellation::new();
    cancellation.cancel();
    let x = ramp(0.5);
    let error = session.run_until(&[("x", &x)], &["y"], &["end"], &cancellation).unwrap_err();
    assert_eq!((error.code(), counts(&session)), (Code::Cancelled, [0.0; 2]));
    // Ended when the plan of the second stage is there.
    let (_devices, session) = open(open_size, None);
    session.run(&[], &[], &["init"]).unwrap();
    let cancellation = Cancellation::new();
    let callable = session.callable_for(&[("x", &x)], &["y"], &["end"]).unwrap().until(&cancellation);
    let ends = cancellation.clone();
    session.observe_plans(Box::new(move |_, _: &Plan| ends.cancel()));
    let error = callable.run(&[&x]).unwrap_err();
    assert_eq!((error.code(), counts(&session)), (Code::Cancelled, [1.0, 0.0]));
    assert_eq!(session.run(&[("x", &x)], &["y"], &["end"]).unwrap()[0].shape(), &Shape::from([SIZE / 2]));
    assert_eq!(counts(&session), [2.0, 1.0]);
}

#[test]
fn threads_run_in_stages_side_by_side() {
    let (_devices, session) = open(sides, None);
    session.run(&[], &[], &["init"]).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let session = &session;
            scope.spawn(move || {
                for round in 0..20 {
                    let is_low = (round + thread) % 2 == 0;
                    let results = session.run(&[("x", &ramp(if is_low { -0.5 } else { 0.5 }))], &["y"], &["end"]).unwrap();
                    assert_eq!(results[0].elements(), if is_low { SIZE } else { 4 * SIZE });
                }
            });
        }
    });
    assert_eq!(counts(&session), [80.0; 2]);
}
