//! Times the kernels of a batch normalization in training on one core, with operands in no near cache:
//! `cargo run --release -p plimsoll-kernels --example norm [part of a name]`.

use std::time::Instant;

use plimsoll_base::DataType;
use plimsoll_device::{Args, CpuLibrary, DeviceSpec, InstructionSet, KernelCall, Library, Prepared};
use plimsoll_kernels::CpuKernels;
use plimsoll_kernels::simd::Isa;
use plimsoll_request::KernelRequest;
use plimsoll_request::norm::BatchNormSpec;

/// Memory that is written between two kernels: what another kernel leaves in the last cache.
const BETWEEN: usize = 64 << 20;
const ROUNDS: usize = 12;

/// Nanoseconds: the sum of each piece's best, so that other programs on the machine do not count.
struct Timed {
    prepared: Prepared,
    memory: Vec<Vec<f32>>,
    worker: Vec<[u64; 8]>,
    best: Vec<f64>,
}

impl Timed {
    fn new(prepared: Prepared, arguments: &[u64]) -> Timed {
        let floats = |bytes: &u64| (0..bytes / 4 + 32).map(|at| (at % 17) as f32 * 0.125 - 1.0).collect();
        let worker = vec![[0u64; 8]; prepared.per_worker as usize / 64 + 2];
        let best = vec![f64::INFINITY; prepared.chunks as usize];
        Timed { memory: arguments.iter().map(floats).collect(), worker, best, prepared }
    }

    fn run(&mut self) {
        let aligned = |pointer: *mut u8| pointer.wrapping_add(pointer.align_offset(64));
        let pointers: Vec<*mut u8> = self.memory.iter_mut().map(|buffer| aligned(buffer.as_mut_ptr().cast())).collect();
        let args = Args { pointers: &pointers, scratch: std::ptr::null_mut(), worker: aligned(self.worker.as_mut_ptr().cast()) };
        for (piece, best) in (0u32..).zip(&mut self.best) {
            let start = Instant::now();
            // SAFETY: the arguments have as many elements as the kernel was prepared for, at 64-byte boundaries.
            let _ = unsafe { self.prepared.kernel.run(piece..piece + 1, &args) };
            *best = best.min(start.elapsed().as_nanos() as f64);
        }
    }
}

fn main() -> plimsoll_base::Result<()> {
    let only = std::env::args().nth(1).unwrap_or_default();
    let instructions = if Isa::best() == Isa::Avx512 { InstructionSet::Avx512 } else { InstructionSet::Avx2 };
    let device = DeviceSpec::cpu(0, None, 1, instructions);
    let mut between = vec![0u8; BETWEEN];
    println!("{:?}: microseconds, GB/s of arguments", Isa::best());
    for (name, rows, channels) in [
        ("resnet20 16", 128 * 32 * 32, 16),
        ("resnet20 32", 128 * 16 * 16, 32),
        ("resnet20 64", 128 * 8 * 8, 64),
        ("resnet50 256", 8 * 56 * 56, 256),
        ("odd 24", 128 * 16 * 16, 24),
    ] {
        if !name.contains(&only) {
            continue;
        }
        let spec = BatchNormSpec { data_type: DataType::Float, rows, channels, epsilon: 0.001, exponential_avg_factor: 1.0 };
        print!("  {name:14}");
        for request in [
            KernelRequest::BatchNorm { spec, training: true, reserve_3: true, summed: false, epilogue: None },
            KernelRequest::BatchNormGrad { spec, training: true, relu: false },
            KernelRequest::BatchNormGrad { spec, training: true, relu: true },
        ] {
            let arguments = request.arguments()?;
            let bytes: Vec<u64> = arguments.inputs.iter().chain(&arguments.outputs).copied().collect();
            let Some(variant) = CpuKernels.variants(&device, &request)?.pop() else { continue };
            for (number, step) in variant.steps.iter().enumerate() {
                let call = KernelCall { request: request.clone().into(), variant: variant.clone().into(), step: number as u32 };
                let prepared = CpuKernels.code(&device, &call)?;
                let all: Vec<u64> = match &step.args {
                    None => bytes.clone(),
                    Some(args) => args
                        .iter()
                        .map(|arg| match arg {
                            plimsoll_device::StepArg::Argument(argument) => bytes[*argument as usize],
                            plimsoll_device::StepArg::Between(between) => variant.between[*between as usize],
                        })
                        .collect(),
                };
                let moved = prepared.cost.bytes;
                let mut timed = Timed::new(prepared, &all);
                for round in 0..ROUNDS {
                    between.fill(round as u8);
                    timed.run();
                }
                let taken: f64 = timed.best.iter().sum();
                print!("  {:7.1} ({:4.1})", taken / 1e3, moved / taken);
            }
        }
        println!();
    }
    Ok(())
}
