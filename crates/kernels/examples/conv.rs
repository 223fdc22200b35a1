//! Times convolutions, depthwise ones, pooling and LRN, with their gradients, on one core: `cargo run --release -p plimsoll-kernels --example conv [part of a name]`.

use std::sync::Arc;
use std::time::Instant;

use plimsoll_base::DataType;
use plimsoll_device::{Args, CpuLibrary, DeviceSpec, InstructionSet, KernelCall, Library, Prepared, StepArg};
use plimsoll_kernels::CpuKernels;
use plimsoll_kernels::conv::{
    conv_backprop_filter_in_parts_on, conv_backprop_filter_on, conv_backprop_input_on, conv_on, depthwise_conv,
    depthwise_conv_backprop_filter, depthwise_conv_backprop_input,
};
use plimsoll_kernels::lrn::{lrn, lrn_grad};
use plimsoll_kernels::pool::{avg_pool, avg_pool_grad, max_pool, max_pool_grad, max_pool_grad_of_input, max_pool_with_argmax};
use plimsoll_kernels::simd::Isa;
use plimsoll_request::KernelRequest;
use plimsoll_request::anchor::Anchor;
use plimsoll_request::conv::ConvSpec;
use plimsoll_request::lrn::LrnSpec;
use plimsoll_request::pool::{Maxima, PoolSpec};
use plimsoll_request::window::{Axes, Layout, WindowAxis};

/// Nanoseconds of one call: the sum of each piece's best, so that other programs on the machine do not count.
fn time(prepared: &Prepared, arguments: &[Vec<u64>]) -> f64 {
    let count = |shape: &Vec<u64>| shape.iter().product::<u64>();
    let mut memory: Vec<Vec<f32>> =
        arguments.iter().map(|shape| (0..count(shape) + 32).map(|at| (at % 17) as f32 * 0.125 - 1.0).collect()).collect();
    let pointers: Vec<*mut u8> =
        memory.iter_mut().map(|buffer| buffer.as_mut_ptr().cast::<u8>()).map(|p| p.wrapping_add(p.align_offset(64))).collect();
    let mut worker = vec![[0u64; 8]; prepared.per_worker as usize / 64 + 2];
    let pointer = worker.as_mut_ptr().cast::<u8>();
    let args = Args { pointers: &pointers, scratch: std::ptr::null_mut(), worker: pointer.wrapping_add(pointer.align_offset(64)) };
    let mut best = vec![f64::INFINITY; prepared.chunks as usize];
    let begin = Instant::now();
    while begin.elapsed().as_millis() < 250 {
        for (piece, best) in (0u32..).zip(&mut best) {
            let start = Instant::now();
            // SAFETY: the arguments have as many elements as the kernel was prepared for, at 64-byte boundaries.
            let _ = unsafe { prepared.kernel.run(piece..piece + 1, &args) };
            *best = best.min(start.elapsed().as_nanos() as f64);
        }
    }
    best.iter().sum()
}

/// As TensorFlow's SAME, with equal axes.
fn same(batch: u64, size: u64, in_c: u64, taps: u64, stride: u64, out_c: u64) -> ConvSpec {
    along(2, batch, size, in_c, taps, stride, out_c)
}

fn along(rank: usize, batch: u64, size: u64, in_c: u64, taps: u64, stride: u64, out_c: u64) -> ConvSpec {
    let out = size.div_ceil(stride);
    let pad = ((out - 1) * stride + taps).saturating_sub(size) / 2;
    let axis = WindowAxis { size, positions: out, taps, stride, dilation: 1, pad };
    ConvSpec {
        data_type: DataType::Float,
        batch,
        in_c,
        out_c,
        axes: Axes::new(&vec![axis; rank]).expect("few axes"),
        layout: Layout::ChannelsLast,
        groups: 1,
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
        ("volumes 16", along(3, 4, 16, 16, 3, 1, 32)),
        ("c3d conv2", along(3, 1, 28, 64, 3, 1, 128)),
    ];
    for isa in Isa::available().into_iter().rev().filter(|isa| *isa > Isa::Portable) {
        println!("{isa:?}, GFLOP/s without taps on padding: forward, by input, by filter");
        for (name, spec) in shapes.iter().filter(|shape| shape.0.contains(&only)) {
            let kernels = [
                (conv_on(isa, *spec, None)?, [spec.input(), spec.filter(), spec.output()]),
                (conv_backprop_input_on(isa, *spec, None)?, [spec.filter(), spec.output(), spec.input()]),
                (conv_backprop_filter_on(isa, *spec)?, [spec.input(), spec.output(), spec.filter()]),
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
            fewer(isa, spec)?;
            let (parts, prepared) = conv_backprop_filter_in_parts_on(isa, *spec)?;
            if parts > 1 {
                let filters = [&[parts], &spec.filter()[..]].concat();
                let taken = time(&prepared, &[spec.input(), spec.output(), filters]);
                print!("  in {parts} parts {:6.1}", prepared.cost.flops / taken);
            }
            println!();
        }
    }
    others(&only)
}

/// The forms with fewer multiplications, where there are such: nanoseconds of all steps, as GFLOP/s of all multiplications.
fn fewer(isa: Isa, spec: &ConvSpec) -> plimsoll_base::Result<()> {
    let instructions = if isa == Isa::Avx512 { InstructionSet::Avx512 } else { InstructionSet::Avx2 };
    let device = DeviceSpec::cpu(0, None, 1, instructions);
    let of = |anchor: Anchor| KernelRequest::Anchor { anchor, epilogue: None, pooling: None };
    let requests =
        [of(Anchor::Conv(*spec)), of(Anchor::ConvBackpropInput(*spec)), KernelRequest::ConvBackpropFilter { spec: *spec, unpooled: None }];
    for request in requests {
        let arguments = request.arguments()?;
        let bytes: Vec<u64> = arguments.inputs.iter().chain(&arguments.outputs).copied().collect();
        let Some(variant) = CpuKernels.variants(&device, &request)?.pop().filter(|variant| variant.name.contains("winograd")) else {
            continue;
        };
        let call = KernelCall { request: Arc::new(request), variant: Arc::new(variant), step: 0 };
        print!("  fewer:");
        for (number, step) in call.variant.steps.iter().enumerate() {
            let prepared = CpuKernels.code(&device, &KernelCall { step: number as u32, ..call.clone() })?;
            let all = || (0..bytes.len() as u32).map(StepArg::Argument).collect();
            let shapes = step.args.clone().unwrap_or_else(all).into_iter().map(|arg| match arg {
                StepArg::Argument(argument) => vec![bytes[argument as usize] / 4],
                StepArg::Between(between) => vec![call.variant.between[between as usize] / 4],
            });
            let taken = time(&prepared, &shapes.collect::<Vec<_>>());
            print!(" {:8.1} us", taken / 1e3);
        }
    }
    Ok(())
}

/// Kernels that move more than they compute.
fn others(only: &str) -> plimsoll_base::Result<()> {
    println!("{:?}, GB/s of arguments", Isa::best());
    let report = |name: &str, prepared: &Prepared, arguments: &[Vec<u64>]| {
        if name.contains(only) {
            let taken = time(prepared, arguments);
            let (bytes, flops) = (prepared.cost.bytes / taken, prepared.cost.flops / taken);
            println!("  {name:34}  {bytes:6.1} ({:8.1} us, {flops:6.1} GFLOP/s, {:3} pieces)", taken / 1e3, prepared.chunks);
        }
    };
    let pooling = same(128, 24, 64, 3, 2, 64);
    let pool =
        PoolSpec { data_type: DataType::Float, batch: pooling.batch, channels: pooling.in_c, axes: pooling.axes, layout: pooling.layout };
    let few = PoolSpec { batch: 4, ..pool };
    report("max pool of 4 images", &max_pool(few, Maxima::First)?, &[few.input(), few.output()]);
    report("avg pool of 4 images", &avg_pool(few)?, &[few.input(), few.output()]);
    let (x, y) = (|| pool.input(), || pool.output());
    report("cifar max pool", &max_pool(pool, Maxima::First)?, &[x(), y()]);
    report("cifar max pool with argmax", &max_pool_with_argmax(pool, false)?, &[x(), y(), y()]);
    report("cifar max pool grad of argmax", &max_pool_grad(pool)?, &[y(), y(), x()]);
    report("cifar max pool grad of input", &max_pool_grad_of_input(pool, Maxima::First)?, &[x(), y(), y(), x()]);
    report("cifar avg pool", &avg_pool(pool)?, &[x(), y()]);
    report("cifar avg pool grad", &avg_pool_grad(pool)?, &[y(), x()]);
    let spec = LrnSpec {
        data_type: DataType::Float,
        rows: 128 * 12 * 12,
        channels: 64,
        depth_radius: 4,
        bias: 1.0,
        alpha: 0.001 / 9.0,
        beta: 0.75,
    };
    report("cifar lrn", &lrn(spec)?, &[y(), y()]);
    report("cifar lrn grad", &lrn_grad(spec)?, &[y(), y(), y(), y()]);
    let general = LrnSpec { beta: 0.6, ..spec };
    report("lrn, beta 0.6", &lrn(general)?, &[y(), y()]);
    report("lrn grad, beta 0.6", &lrn_grad(general)?, &[y(), y(), y(), y()]);
    for (name, spec) in [("56 x 144", same(1, 56, 144, 3, 1, 144)), ("14 x 576 / 2", same(8, 14, 576, 3, 2, 576))] {
        let (x, y, filter) = (|| spec.input(), || spec.output(), || vec![3, 3, spec.in_c, 1]);
        report(&format!("depthwise {name}"), &depthwise_conv(spec, None)?, &[x(), filter(), y()]);
        report(&format!("depthwise by input {name}"), &depthwise_conv_backprop_input(spec)?, &[filter(), y(), x()]);
        report(&format!("depthwise by filter {name}"), &depthwise_conv_backprop_filter(spec)?, &[x(), y(), filter()]);
    }
    Ok(())
}
