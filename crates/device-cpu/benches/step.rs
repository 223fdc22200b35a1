//! The pool's overhead: nanoseconds for a run, for a command, for sharing pieces, for crossing queues.

#[path = "../tests/common/mod.rs"]
mod common;

use std::sync::Arc;
use std::time::Instant;

use common::*;
use plimsoll_device::Program;

fn time(name: &str, threads: usize, programs: Vec<Program>, cells: usize) {
    let device = device(threads);
    let mut loaded = Loaded::new(&device, programs, cells);
    // As many runs as take some milliseconds.
    let start = Instant::now();
    for _ in 0..20 {
        loaded.step(&device);
    }
    let runs = (20 * 5_000_000 / start.elapsed().as_nanos().max(1)).clamp(20, 20_000) as u32;
    let mut times: Vec<f64> = (0..21)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..runs {
                loaded.step(&device);
            }
            start.elapsed().as_nanos() as f64 / f64::from(runs)
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!("{name}, {threads} threads: {:.0} ns a run", times[times.len() / 2]);
}

fn main() {
    let inside = Arc::default();
    for threads in [1, 2] {
        time("no command", threads, vec![program(0, vec![])], 1);
        time("one command", threads, vec![program(0, vec![command(Does::Mix(1), 1, 0, &[0], &[], &inside)])], 1);
        time("100 commands", threads, vec![program(0, vec![command(Does::Mix(1), 1, 0, &[0], &[], &inside); 100])], 1);
        time("one command of 16 pieces of nothing", threads, vec![program(0, vec![command(Does::Mix(1), 16, 0, &[0], &[], &inside)])], 16);
        time("one command of 16 pieces of 10 us", threads, vec![program(0, vec![command(Does::Mix(1), 16, 5000, &[0], &[], &inside)])], 16);
        time("10 of those", threads, vec![program(0, vec![command(Does::Mix(1), 16, 5000, &[0], &[], &inside); 10])], 16);
        let (programs, cells) = woven(2, 20, 0, &inside);
        time("two queues, 20 rounds of nothing", threads, programs, cells);
        let (programs, cells) = woven(2, 20, 1000, &inside);
        time("two queues, 20 rounds of work", threads, programs, cells);
    }
}
