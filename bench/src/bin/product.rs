//! Our product beside the `gemm` crate's on one thread: GFLOP/s, medians.
//!
//!     cargo run --release --manifest-path bench/Cargo.toml --features gemm --bin product

use std::time::Instant;

use plimsoll_device::Args;
use plimsoll_kernels::product::product;
use plimsoll_request::product::ProductSpec;

/// `(m, n, k, transpose_a, transpose_b)`: the products of a 784-300-100-10 network at batch 50 and 512, and square ones.
const SHAPES: &[(u64, u64, u64, bool, bool)] = &[
    (50, 300, 784, false, false),
    (784, 300, 50, true, false),
    (50, 300, 100, false, true),
    (50, 10, 100, false, false),
    (512, 300, 784, false, false),
    (784, 300, 512, true, false),
    (512, 300, 100, false, true),
    (512, 512, 512, false, false),
    (1024, 1024, 1024, false, false),
];

fn median(mut run: impl FnMut(), flops: f64) -> f64 {
    let repeats = (2e7 / flops).clamp(1.0, 1e4) as usize;
    let mut rates: Vec<f64> = (0..15)
        .map(|_| {
            let start = Instant::now();
            (0..repeats).for_each(|_| run());
            flops * repeats as f64 / start.elapsed().as_secs_f64() / 1e9
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    rates[7]
}

fn main() {
    for &(m, n, k, transpose_a, transpose_b) in SHAPES {
        let spec = ProductSpec { m, n, k, transpose_a, transpose_b, batch: 1, places: None };
        let flops = 2.0 * (m * n * k) as f64;
        let values = |count: u64| (0..count).map(|i| (i % 7) as f32 - 3.0).collect::<Vec<f32>>();
        let (a, b, mut c) = (values(m * k), values(k * n), vec![0f32; (m * n) as usize]);
        let prepared = product(spec, None).expect("it can be prepared");
        let mut worker = vec![0u64; prepared.per_worker as usize / 8 + 16];
        let worker = worker.as_mut_ptr().cast::<u8>();
        let pointers = [a.as_ptr().cast_mut().cast(), b.as_ptr().cast_mut().cast(), c.as_mut_ptr().cast()];
        let args = Args { pointers: &pointers, scratch: std::ptr::null_mut(), worker: worker.wrapping_add(worker.align_offset(64)) };
        // SAFETY: the arguments have as many elements as the product was prepared for, and scratch as much as it asks for.
        let ours = median(|| unsafe { prepared.kernel.run(0..prepared.chunks, &args) }.expect("it runs"), flops);
        let (m, n, k) = (m as usize, n as usize, k as usize);
        let (a_row, a_column) = if transpose_a { (1, m as isize) } else { (k as isize, 1) };
        let (b_row, b_column) = if transpose_b { (1, k as isize) } else { (n as isize, 1) };
        let theirs = median(
            // SAFETY: the strides describe slices of these lengths.
            || unsafe {
                gemm::gemm(
                    m,
                    n,
                    k,
                    c.as_mut_ptr(),
                    1,
                    n as isize,
                    false,
                    a.as_ptr(),
                    a_column,
                    a_row,
                    b.as_ptr(),
                    b_column,
                    b_row,
                    0.0f32,
                    1.0f32,
                    false,
                    false,
                    false,
                    gemm::Parallelism::None,
                )
            },
            flops,
        );
        println!(
            "{m:5} x {n:4} x {k:4} {}{}  ours {ours:6.1}  gemm {theirs:6.1} GFLOP/s  ratio {:.2}",
            mark(transpose_a),
            mark(transpose_b),
            ours / theirs
        );
    }
}

fn mark(transposed: bool) -> char {
    if transposed { 'T' } else { 'N' }
}
