//! Times products: `cargo run --release -p plimsoll-kernels --example product [rows columns pack_b pack_a]`, where the last four
//! are numbers, or `-` for a choice by shape.

use std::time::Instant;

use plimsoll_device::{Args, Prepared};
use plimsoll_kernels::product::{Tuning, product_on};
use plimsoll_kernels::simd::Isa;
use plimsoll_request::product::ProductSpec;

/// Nanoseconds of one call: the sum of each piece's best, so that other programs on the machine do not count.
fn time(prepared: &Prepared, arguments: &[u64]) -> f64 {
    let mut memory: Vec<Vec<f32>> =
        arguments.iter().map(|count| (0..*count + 32).map(|at| (at % 17) as f32 * 0.125 - 1.0).collect()).collect();
    let pointers: Vec<*mut u8> =
        memory.iter_mut().map(|buffer| buffer.as_mut_ptr().cast::<u8>()).map(|p| p.wrapping_add(p.align_offset(64))).collect();
    let mut worker = vec![[0u64; 8]; prepared.per_worker as usize / 64 + 2];
    let pointer = worker.as_mut_ptr().cast::<u8>();
    let args = Args { pointers: &pointers, scratch: std::ptr::null_mut(), worker: pointer.wrapping_add(pointer.align_offset(64)) };
    let mut best = vec![f64::INFINITY; prepared.chunks as usize];
    let begin = Instant::now();
    while begin.elapsed().as_millis() < 60 {
        for (piece, best) in (0u32..).zip(&mut best) {
            let start = Instant::now();
            // SAFETY: the arguments have as many elements as the product was prepared for, at 64-byte boundaries.
            let _ = unsafe { prepared.kernel.run(piece..piece + 1, &args) };
            *best = best.min(start.elapsed().as_nanos() as f64);
        }
    }
    best.iter().sum()
}

fn main() -> plimsoll_base::Result<()> {
    let given: Vec<Option<usize>> = std::env::args().skip(1).map(|word| word.parse().ok()).collect();
    let get = |at: usize| given.get(at).copied().flatten();
    let tuning = Tuning { rows: get(0), columns: get(1), pack_b: get(2).map(|pack| pack != 0), pack_a: get(3).map(|pack| pack != 0) };
    let sizes = [
        (50, 300, 784, false, false),
        (512, 300, 784, false, false),
        (784, 300, 50, true, false),
        (784, 300, 512, true, false),
        (50, 784, 300, false, true),
        (512, 784, 300, false, true),
        (50, 300, 100, false, true),
        (512, 300, 100, false, true),
        (50, 100, 300, false, false),
        (512, 100, 300, false, false),
        (300, 100, 50, true, false),
        (300, 100, 512, true, false),
        (128, 384, 2304, false, false),
        (128, 2304, 384, false, true),
        (2304, 384, 128, true, false),
        (50, 10, 100, false, false),
        (512, 10, 100, false, false),
        (100, 10, 512, true, false),
        (512, 100, 10, false, true),
        (2304, 64, 1600, false, false),
        (1024, 1024, 1024, false, false),
        (1024, 1024, 1040, false, false),
        (1024, 1040, 1024, false, false),
        (1040, 1040, 1040, false, false),
        (1, 1000, 2048, false, false),
        (1, 1000, 2048, false, true),
        (1000, 1, 2048, false, false),
        (8, 1000, 2048, false, false),
        (50, 784, 10, false, false),
    ];
    for isa in Isa::available().into_iter().rev() {
        println!("{isa:?}");
        for (m, n, k, transpose_a, transpose_b) in sizes {
            let spec = ProductSpec { m, n, k, transpose_a, transpose_b, batch: 1, places: None };
            let prepared = product_on(isa, spec, None, tuning)?;
            let taken = time(&prepared, &[m * k, k * n, m * n]);
            let letter = |transposed: bool| if transposed { 'T' } else { 'N' };
            println!(
                "  {m:5} x {n:5} x {k:5} {}{}  {:9.2} us  {:7.1} GFLOP/s  {} pieces, {} KiB a worker",
                letter(transpose_a),
                letter(transpose_b),
                taken / 1000.0,
                prepared.cost.flops / taken,
                prepared.chunks,
                prepared.per_worker / 1024
            );
        }
    }
    Ok(())
}
