//! Threads: their number, their allocations, many runs at once. One test, since it counts the whole process.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::*;
use plimsoll_device::*;

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: everything is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::SeqCst);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn threads_of_process() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

/// Threads that ended are listed a moment longer.
fn settles_at(count: usize) -> bool {
    (0..2000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(1));
        threads_of_process() == count
    })
}

/// A program of its own: the threads of a test harness allocate, too.
fn main() {
    as_many_threads_as_asked_for();
    a_warm_step_allocates_nothing();
    many_runs_at_once();
    println!("test threads ... ok");
}

fn as_many_threads_as_asked_for() {
    let before = threads_of_process();
    if before == 0 {
        eprintln!("skipped: no /proc");
        return;
    }
    for threads in [1, 2, 3, 5] {
        let device = device(threads);
        assert_eq!(threads_of_process(), before + threads - 1);
        let (programs, cells) = woven(2, 10, 5, &Arc::default());
        let mut loaded = Loaded::new(&device, programs, cells);
        for _ in 0..10 {
            assert_eq!(loaded.step(&device), None);
        }
        assert_eq!(threads_of_process(), before + threads - 1);
        drop(loaded);
        drop(device);
        assert!(settles_at(before));
    }
}

fn a_warm_step_allocates_nothing() {
    for threads in [1, 2, 3] {
        for queues in [1, 2, 4] {
            let device = device(threads);
            let (programs, cells) = woven(queues, 20, 5, &Arc::default());
            let mut loaded = Loaded::new(&device, programs, cells);
            loaded.step(&device);
            let before = ALLOCATIONS.load(Ordering::SeqCst);
            for _ in 0..200 {
                loaded.step(&device);
            }
            assert_eq!(ALLOCATIONS.load(Ordering::SeqCst) - before, 0, "{threads} threads, {queues} queues");
        }
    }
}

fn many_runs_at_once() {
    for threads in [1, 2, 4] {
        let device = device(threads);
        let inside = Arc::new(Inside::default());
        let (programs, cells) = woven(3, 12, 5, &inside);
        let first = Loaded::new(&device, programs, cells);
        let mut alone = Loaded::with(&device, first.executables.clone(), cells);
        assert_eq!(alone.step(&device), None);
        let expected = alone.values();
        std::thread::scope(|scope| {
            for caller in 0..8 {
                let (device, expected, executables) = (&device, &expected, first.executables.clone());
                let inside = &inside;
                scope.spawn(move || {
                    let mut own = Loaded::with(device, executables, cells);
                    let failing = vec![program(0, vec![command(Does::Fail(caller), 1, 0, &[0], &[], inside)])];
                    let mut failing = Loaded::new(device, failing, 1);
                    for _ in 0..150 {
                        own.clear();
                        assert_eq!(own.step(device), None);
                        assert_eq!(own.values(), *expected);
                        assert_eq!(failing.step(device).map(|failure: Failure| failure.fault.numbers[0]), Some(caller));
                    }
                });
            }
        });
        assert!(inside.most.load(Ordering::SeqCst) <= threads as u32, "more threads compute than may");
    }
}
