//! Times convolutions and their gradients on one core: `cargo run --release -p plimsoll-kernels --example conv [part of a name]`.

use std::time::Instant;

use plimsoll_device::{Args, Prepared};
use plimsoll_kernels::conv::{ConvSpec, conv2d_backprop_filter_on, conv2d_backprop_input_on, conv2d_on};
use plimsoll_kernels::simd::Isa;

/// Nanoseconds of one call.
fn time(prepared: &Prepared, arguments: &[[u64; 4]]) -> f64 {
    let count = |shape: &[u64; 4]| shape.iter().product::<u64>();
    let mut memory: Vec<Vec<f32>> =
        arguments.iter().map(|shape| (0..count(shape) + 32).map(|at| (at % 17) as f32 * 0.125 - 1.0).collect()).collect();
    let pointers: Vec<*mut u8> =
        memory.iter_mut().map(|buffer| buffer.as_mut_ptr().cast::<u8>()).map(|p| p.wrapping_add(p.align_offset(64))).collect();
    let mut worker = vec![[0u64; 8]; prepared.per_worker as usize / 64 + 2];
    let pointer = worker.as_mut_ptr().cast::<u8>();
    let args = Args { pointers: &pointers, scratch: std::ptr::null_mut(), worker: pointer.wrapping_add(pointer.align_offset(64)) };
    let mut best = f64::INFINITY;
    let begin = Instant::now();
    while begin.elapsed().as_millis() < 250 {
        let start = Instant::now();
        // SAFETY: the arguments have as many elements as the kernel was prepared for, at 64-byte boundaries.
        let _ = unsafe { prepared.kernel.run(0..prepared.chunks, &args) };
        best = best.min(start.elapsed().as_nanos() as f64);
    }
    best
}

/// As TensorFlow's SAME.
fn same(batch: u64, size: u64, in_c: u64, taps: u64, stride: u64, out_c: u64) -> ConvSpec {
    let out = size.div_ceil(stride);
    let pad = ((out - 1) * stride + taps).saturating_sub(size) / 2;
    ConvSpec {
        batch,
        in_h: size,
        in_w: size,
        in_c,
        out_h: out,
        out_w: out,
        out_c,
        k_h: taps,
        k_w: taps,
        stride_h: stride,
        stride_w: stride,
        pad_top: pad,
        pad_left: pad,
    }
}

fn main() -> plimsoll_base::Result<()> {
    let only = std::env::args().nth(1).unwrap_or_default();
    let shapes = [
        ("cifar conv1", same(128, 24, 3, 5, 1, 64)),
        ("cifar conv2", same(128, 12, 64, 5, 1, 64)),
        ("resnet20 16", same(128, 32, 16, 3, 1, 16)),
        ("resnet20 32", same(128, 16, 32, 3, 1, 32)),
        ("resnet20 64", same(128, 8, 64, 3, 1, 64)),
        ("resnet20 down", same(128, 32, 16, 3, 2, 32)),
        ("resnet50 stem", same(1, 224, 3, 7, 2, 64)),
        ("resnet50 3x3 64", same(1, 56, 64, 3, 1, 64)),
        ("resnet50 3x3 128", same(1, 28, 128, 3, 1, 128)),
        ("resnet50 3x3 256", same(1, 14, 256, 3, 1, 256)),
        ("resnet50 3x3 512", same(1, 7, 512, 3, 1, 512)),
        ("resnet50 1x1", same(1, 56, 64, 1, 1, 256)),
        ("resnet50 1x1 late", same(1, 7, 2048, 1, 1, 512)),
        ("resnet50 1x1 down", same(1, 56, 256, 1, 2, 512)),
        ("mobilenet 1x1", same(1, 14, 96, 1, 1, 576)),
        ("mobilenet stem", same(1, 224, 3, 3, 2, 32)),
    ];
    for isa in Isa::available().into_iter().rev() {
        println!("{isa:?}, GFLOP/s without taps on padding: forward, by input, by filter");
        for (name, spec) in shapes.iter().filter(|shape| shape.0.contains(&only)) {
            let kernels = [
                (conv2d_on(isa, *spec, None)?, [spec.input(), spec.filter(), spec.output()]),
                (conv2d_backprop_input_on(isa, *spec)?, [spec.filter(), spec.output(), spec.input()]),
                (conv2d_backprop_filter_on(isa, *spec)?, [spec.input(), spec.output(), spec.filter()]),
            ];
            print!("  {name:18}");
            for (prepared, arguments) in &kernels {
                let taken = time(prepared, arguments);
                print!(
                    "  {:6.1} ({:8.1} us, {:3} pieces, {:4} KiB)",
                    prepared.cost.flops / taken,
                    taken / 1e3,
                    prepared.chunks,
                    prepared.per_worker >> 10
                );
            }
            println!();
        }
    }
    Ok(())
}
