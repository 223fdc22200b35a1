//! A warm step allocates nothing: batches from memory and from files, shuffling, transfers, gradients, updates.

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};

use plimsoll::{DeviceKind, Devices, HostTensor, Options};
use plimsoll_train::data::{BatchSource, Shuffled, arrays, cifar10, mnist};
use plimsoll_train::model::CIFAR10;
use plimsoll_train::{Config, Step, Trainer};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The files of a data set and of arrays, and batches of them.
fn batches_from_files_allocate_nothing(folder: &Path) {
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.join(name), bytes).unwrap();
    write("data_batch_1.bin", &[1; 50 * 3073]);
    write("train-images-idx3-ubyte", &[&[0, 0, 8, 3, 0, 0, 0, 50, 0, 0, 0, 28, 0, 0, 0, 28][..], &[7; 50 * 784]].concat());
    write("train-labels-idx1-ubyte", &[&[0, 0, 8, 1, 0, 0, 0, 50][..], &[7; 50]].concat());
    let mut array = Vec::new();
    plimsoll::npy::write(&HostTensor::from_slice([50, 3], &[0.5f32; 150]).unwrap(), &mut array).unwrap();
    write("array.npy", &array);
    for examples in [
        cifar10::training(folder, cifar10::Inputs::Distorted).unwrap(),
        mnist::training(folder, mnist::Images::Hwc).unwrap(),
        arrays::open(&[("x".to_string(), folder.join("array.npy").as_path())]).unwrap(),
    ] {
        let mut batch = examples.batch(16).unwrap();
        let mut source = Shuffled::new(examples, 1).unwrap();
        source.next_into(&mut batch).unwrap();
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        // More than three epochs.
        (0..10).for_each(|_| source.next_into(&mut batch).unwrap());
        assert_eq!(ALLOCATIONS.load(Ordering::Relaxed) - before, 0, "{:?}", source.components());
    }
}

/// Convolutions, moving averages and a decaying rate, on distorted images.
fn the_tutorials_network_allocates_nothing(folder: &Path) {
    std::fs::copy(folder.join("data_batch_1.bin"), folder.join("test_batch.bin")).unwrap();
    let devices = Devices::open(&Options::new().device_count(DeviceKind::Cpu, 2)).unwrap();
    let data = cifar10::data_set(folder, cifar10::Inputs::Distorted, 0).unwrap();
    let mut trainer = Trainer::new(&devices, &CIFAR10, data, &Config { batch_size: 4, ..Config::default() }).unwrap();
    for _ in 0..8 {
        trainer.step().unwrap();
    }
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    for _ in 0..8 {
        trainer.step().unwrap();
    }
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed) - before, 0);
}

/// Threads start, and runs are prepared, when a row of steps begins; from then on nothing is allocated.
fn towers_apart_allocate_nothing() {
    let devices = Devices::open(&Options::new().device_count(DeviceKind::Cpu, 2)).unwrap();
    let mut trainer = Trainer::digits(&devices, &Config { is_async: true, ..Config::default() }).unwrap();
    let (started, begun) = (Barrier::new(2), [AtomicU64::new(0), AtomicU64::new(0)]);
    let counts = [AtomicU64::new(0), AtomicU64::new(0)];
    let show = |step: Step| {
        // Each tower waits for the other after its first step.
        let tower = usize::from(std::thread::current().name() == Some("tower-1"));
        if begun[tower].fetch_add(1, Ordering::Relaxed) == 0 {
            started.wait();
        }
        match step.step {
            60 => counts[0].store(ALLOCATIONS.load(Ordering::Relaxed), Ordering::Relaxed),
            120 => counts[1].store(ALLOCATIONS.load(Ordering::Relaxed), Ordering::Relaxed),
            _ => {}
        }
    };
    trainer.run(160, &|| false, &show).unwrap();
    let [before, after] = counts.map(AtomicU64::into_inner);
    assert!(before > 0);
    assert_eq!(after - before, 0, "towers apart");
}

/// A program of its own: the threads of a test harness allocate, too.
fn main() {
    let folder = std::env::temp_dir().join(format!("plimsoll-train-allocations-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    batches_from_files_allocate_nothing(&folder);
    the_tutorials_network_allocates_nothing(&folder);
    towers_apart_allocate_nothing();
    std::fs::remove_dir_all(&folder).unwrap();
    for (cpus, intra_op) in [(2, 2), (1, 1)] {
        let mut options = Options::new().intra_op(intra_op);
        options.device_count.insert("CPU".to_string(), cpus);
        let devices = Devices::open(&options).unwrap();
        let mut trainer = Trainer::digits(&devices, &Config::default()).unwrap();
        for _ in 0..20 {
            trainer.step().unwrap();
        }
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        // More than three epochs.
        for _ in 0..40 {
            trainer.step().unwrap();
        }
        assert_eq!(ALLOCATIONS.load(Ordering::Relaxed) - before, 0, "{cpus} devices, {intra_op} threads");
    }
    println!("test a_warm_step_allocates_nothing ... ok");
}
