//! A warm step allocates nothing on the heap: counted by the global allocator, on every thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use plimsoll_base::DataType;
use plimsoll_cards::Options;
use plimsoll_device::DeviceKind;
use plimsoll_graph::{Graph, HostTensor, PartialShape};
use plimsoll_kernels::CpuKernels;
use plimsoll_ops::builder::Initializer;
use plimsoll_ops::{GraphBuilder, Registry};
use plimsoll_plan::{Feed, Signature};
use plimsoll_runtime::{Devices, Session};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// One layer, a product with bias and relu, a reduction, a Fourier transform and an update of the weights, half of it on another device.
fn session(options: &Options) -> Session {
    let mut b = GraphBuilder::new(Arc::new(Registry::standard(Arc::new(CpuKernels))));
    let x = b.placeholder("x", DataType::Float, PartialShape::unknown()).build().unwrap();
    let w = b.get_variable("w", DataType::Float, [32, 16], &Initializer::Constant(0.01)).unwrap();
    let bias = b.get_variable("bias", DataType::Float, [16], &Initializer::Constant(0.5)).unwrap();
    let product = b.matmul(x, w.value).build().unwrap();
    let sum = b.device("/cpu:1", |b| b.add(product, bias.value).build()).unwrap();
    let hidden = b.relu(sum).build().unwrap();
    b.reduce_sum(hidden, None).name("loss").build().unwrap();
    let row = b.reduce_sum(hidden, Some(&[0])).build().unwrap();
    let length = b.constant(HostTensor::from_slice([1], &[16i32]).unwrap()).build().unwrap();
    let spectrum = b.op("RFFT").inputs([row, length]).build().unwrap();
    b.op("ComplexAbs").inputs([spectrum]).name("sizes").build().unwrap();
    let update = b.assign_sub(&bias, row).unwrap();
    b.group(&[update], "train").unwrap();
    b.global_variables_initializer().unwrap();
    let registry = b.registry().clone();
    Session::new(&Devices::open(options).unwrap(), &b.finish(), registry).unwrap()
}

/// A program of its own: the threads of a test harness allocate, too.
fn main() {
    for (cpus, threads) in [(1, 1), (1, 2), (2, 1), (2, 2)] {
        let mut options = Options::new().intra_op(threads);
        options.device_count.insert("CPU".into(), cpus);
        let session = session(&options);
        session.run(&[], &[], &["init"]).unwrap();
        let x = HostTensor::from_slice([64, 32], &vec![0.25f32; 64 * 32]).unwrap();
        let signature = Signature {
            feeds: vec![Feed { tensor: "x".into(), data_type: DataType::Float, shape: x.shape().clone(), value: None }],
            fetches: vec!["loss:0".into(), "sizes:0".into()],
            targets: vec!["train".into()],
            ..Signature::default()
        };
        let callable = session.callable(&signature).unwrap();
        let [mut loss, mut sizes] = <[HostTensor; 2]>::try_from(callable.outputs().unwrap()).unwrap();
        for _ in 0..3 {
            callable.run_into(&[&x], &mut [&mut loss, &mut sizes]).unwrap();
        }
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        for _ in 0..100 {
            callable.run_into(&[&x], &mut [&mut loss, &mut sizes]).unwrap();
        }
        let after = ALLOCATIONS.load(Ordering::Relaxed);
        assert_eq!(after - before, 0, "{cpus} devices, {threads} threads");
        assert!(loss.to_vec::<f32>().unwrap()[0].is_finite());
    }
    println!("test a_warm_step_allocates_nothing ... ok");
    // Carried values, lists that are read and written, lists that a gradient pushes on and pops from, arrays, a loop in a loop, and a
    // body on two devices.
    for case in ["while_until", "while_lists", "while_gradient", "frame_arrays", "while_nested", "while_two_devices"] {
        for threads in [1, 2] {
            warm_loop(case, threads);
        }
    }
    println!("test a_warm_loop_allocates_nothing ... ok");
}

/// A recorded loop, with the tensors that its last step feeds.
fn warm_loop(case: &str, threads: i32) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/tests/cases").join(case);
    let read = |name: &str| std::fs::read(folder.join(name)).unwrap();
    let steps: serde_json::Value = serde_json::from_slice(&read("case.json")).unwrap();
    let step = steps["steps"].as_array().unwrap().last().unwrap();
    let registry = Arc::new(Registry::standard(Arc::new(CpuKernels)));
    let graph = Graph::resolve(plimsoll_formats::read_graph_def(&read("graph.pb")).unwrap(), registry.table()).unwrap();
    let devices = Devices::open(&Options::new().intra_op(threads).device_count(DeviceKind::Cpu, 2)).unwrap();
    let session = Session::new(&devices, &graph, registry).unwrap();
    let fed: Vec<(&String, HostTensor)> = step["feeds"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, file)| (name, plimsoll_formats::npy::read(&read(file.as_str().unwrap())).unwrap()))
        .collect();
    let feed = |(name, x): &(&String, HostTensor)| Feed {
        tensor: name.to_string(),
        data_type: x.data_type(),
        shape: x.shape().clone(),
        value: None,
    };
    let signature = Signature {
        feeds: fed.iter().map(feed).collect(),
        fetches: step["fetches"].as_object().unwrap().keys().cloned().collect(),
        ..Signature::default()
    };
    let callable = session.callable(&signature).unwrap();
    let mut fetched = callable.outputs().unwrap();
    let feeds: Vec<&HostTensor> = fed.iter().map(|(_, tensor)| tensor).collect();
    let mut fetches: Vec<&mut HostTensor> = fetched.iter_mut().collect();
    for _ in 0..3 {
        callable.run_into(&feeds, &mut fetches).unwrap();
    }
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    for _ in 0..100 {
        callable.run_into(&feeds, &mut fetches).unwrap();
    }
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed) - before, 0, "{case}, {threads} threads");
}
