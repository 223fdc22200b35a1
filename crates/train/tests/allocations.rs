//! A warm step allocates nothing: batches, shuffling, transfers, gradients, updates.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use plimsoll::{Devices, Options};
use plimsoll_train::{Config, Trainer};

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

#[test]
fn a_warm_step_allocates_nothing() {
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
}
