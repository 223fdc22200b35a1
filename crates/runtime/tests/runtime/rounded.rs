//! Operands of products that are rounded to bf16: near the values of floats, with the same bits for all threads and limits.

use std::sync::Arc;

use plimsoll_base::{Bytes, DataType, Error, Random};
use plimsoll_cards::{MatmulPrecision, Options};
use plimsoll_device::{Bf16Instructions, Work};
use plimsoll_graph::{HostTensor, Shape};
use plimsoll_kernels::CpuKernels;
use plimsoll_ops::{GraphBuilder, Registry};
use plimsoll_plan::{Feed, Footprint, Signature};
use plimsoll_runtime::{Devices, Session};

const SHAPE: [u64; 4] = [24, 12, 12, 32];

fn open(precision: MatmulPrecision, threads: i32, limit: Option<Bytes>) -> Result<Devices, Error> {
    let options = Options::new().intra_op(threads).matmul_precision(precision);
    Devices::open(&limit.map_or(options.clone(), |limit| options.limit("CPU:0", &format!("{}B", limit.0))))
}

fn numbers(shape: &[u64], seed: u64) -> HostTensor {
    let mut random = Random::new(seed);
    let numbers: Vec<f32> = (0..shape.iter().product::<u64>()).map(|_| (random.next() >> 40) as f32 / (1 << 23) as f32 - 1.0).collect();
    HostTensor::from_slice(shape.to_vec(), &numbers).unwrap()
}

/// Two convolutions and a product, with the gradients by their weights. Also what is fetched: the result and the gradients. Nothing between
/// them depends on the sign of a number: rounding could change it.
fn session(devices: &Devices) -> (Session, Vec<String>) {
    let mut b = GraphBuilder::new(Arc::new(Registry::standard(Arc::new(CpuKernels))));
    let x = b.placeholder("x", DataType::Float, &Shape::new(SHAPE)).build().unwrap();
    let [u, v, w] = [[3, 3, 32, 48], [1, 1, 48, 64], [1, 1, 2304, 40]].map(|shape| numbers(&shape, shape.iter().sum()));
    let [u, v, w] = [u, v, w].map(|weights| b.constant(weights).build().unwrap());
    let w = b.op("Reshape").input(w).constant_input("shape", HostTensor::from_slice([2], &[2304, 40i32]).unwrap()).build().unwrap();
    let y = b.conv2d(x, u, [2, 2], "SAME").build().unwrap();
    let y = b.conv2d(y, v, [1, 1], "VALID").build().unwrap();
    let flat = b.op("Reshape").input(y).constant_input("rows", HostTensor::from_slice([2], &[24, 2304i32]).unwrap()).build().unwrap();
    let y = b.matmul(flat, w).name("y").build().unwrap();
    let mut wanted = vec![y];
    wanted.extend(b.gradients(&[y], &[u, v, w]).unwrap().into_iter().flatten());
    let fetches = wanted.iter().map(|output| b.node(output.node).name.clone()).collect();
    let registry = b.registry().clone();
    (Session::new(devices, &b.finish(), registry).unwrap(), fetches)
}

fn run((session, fetches): &(Session, Vec<String>)) -> Vec<Vec<f32>> {
    let fetches: Vec<&str> = fetches.iter().map(String::as_str).collect();
    let made = session.run(&[("x", &numbers(&SHAPE, 3))], &fetches, &[]).unwrap();
    made.iter().map(|tensor| tensor.to_vec().unwrap()).collect()
}

fn footprint((session, fetches): &(Session, Vec<String>)) -> (Footprint, Vec<String>) {
    let feed = Feed { tensor: "x".into(), data_type: DataType::Float, shape: Shape::new(SHAPE), value: None };
    let plan = session.plan_signature(&Signature { feeds: vec![feed], fetches: fetches.clone(), ..Signature::default() }).unwrap();
    let mut footprint = Footprint::new(session.devices().specs());
    footprint.add(&plan);
    let commands = plan.queues.iter().flat_map(|queue| &queue.program.commands);
    let names =
        commands.filter_map(|command| if let Work::Kernel(call) = &command.work { Some(call.variant.name.to_string()) } else { None });
    (footprint, names.filter(|name| name.contains("bf16")).collect())
}

#[test]
fn rounded_operands_give_near_values_and_the_same_bits_for_threads_and_limits() {
    let floats = session(&open(MatmulPrecision::Float32, 2, None).unwrap());
    assert_eq!(footprint(&floats).1, [""; 0]);
    let expected = run(&floats);
    let rounded = session(&open(MatmulPrecision::Bf16, 2, None).unwrap());
    let (taken, names) = footprint(&rounded);
    let made = run(&rounded);
    if Bf16Instructions::detect().is_none() {
        eprintln!("skipped: the processor has no AVX512-BF16");
        assert!(names.is_empty() && made == expected);
        return;
    }
    // Two commands for each of the three products, and more for their gradients.
    assert!(names.len() > 6 && made != expected, "{names:?}");
    for (made, expected) in made.iter().zip(&expected) {
        let largest = expected.iter().fold(0f32, |largest, value| largest.max(value.abs()));
        let worst = made.iter().zip(expected).fold(0f32, |worst, (made, expected)| worst.max((made - expected).abs()));
        assert!(worst > 0.0 && worst <= largest / 64.0, "{worst} of {largest}");
    }
    assert!(run(&session(&open(MatmulPrecision::Bf16, 1, None).unwrap())) == made);
    // The line holds to the byte, with the same bits, down to the least.
    let least = footprint(&session(&open(MatmulPrecision::Bf16, 2, Some(Bytes(1))).unwrap())).0.minimum_limit();
    assert!(least < taken.minimum_limit(), "{least}");
    for limit in [taken.minimum_limit(), least] {
        let devices = open(MatmulPrecision::Bf16, 2, Some(limit)).unwrap();
        assert!(run(&session(&devices)) == made, "{limit}");
        assert!(devices.report().iter().all(|device| device.peak <= limit), "{limit}");
    }
}

#[test]
fn exact_convolutions_and_rounded_operands_contradict_each_other() {
    let options = Options::new().matmul_precision(MatmulPrecision::Bf16).exact_convolutions(true);
    let error = Devices::open(&options).unwrap_err();
    assert!(error.message().contains("--matmul-precision bf16"), "{error}");
    assert!("bf8".parse::<MatmulPrecision>().is_err());
}
