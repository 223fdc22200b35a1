//! What the real compiler makes of kernels for all generations of cards: no spills, and loads of 16 bytes where rows allow.

use plimsoll_base::DataType;
use plimsoll_device_cuda::emit::{self, Kernel};
use plimsoll_ptx::Nvrtc;
use plimsoll_request::KernelRequest;
use plimsoll_request::expr::{BinaryOp, ExprBuilder};
use plimsoll_request::norm::BatchNormSpec;

use super::{anchors, forms, short_kernels};

pub fn nvrtc() -> Option<Nvrtc> {
    let nvrtc = Nvrtc::find();
    if nvrtc.is_none() {
        eprintln!("skipped: NVRTC is not installed (PLIMSOLL_CUDA_LIBS names its folder)");
    }
    nvrtc
}

/// The most arguments and steps of an expression that plans make.
const ARGUMENTS: usize = 32;
const STEPS: usize = 256;

/// Expressions of that length: of as many operands, each of which is read early and late; and of as many steps as have to wait for a later one.
fn longest() -> Vec<Kernel> {
    let of = |data_type: DataType, operands: usize, waiting: usize| {
        let mut builder = ExprBuilder::new();
        let inputs: Vec<_> = (0..operands).map(|_| builder.input(data_type).unwrap()).collect();
        let mut values = inputs.clone();
        for at in 0..waiting {
            let last = values[values.len() - 1 - at % operands];
            values.push(builder.binary(BinaryOp::Mul, last, inputs[at % operands]).unwrap());
        }
        let mut sum = inputs[0];
        // The last that was made is the first that is read.
        for value in values.iter().rev() {
            sum = builder.binary(BinaryOp::Add, sum, *value).unwrap();
        }
        while (sum.0 as usize) + 1 < STEPS {
            let one = inputs[sum.0 as usize % operands];
            sum = builder.binary(BinaryOp::Sub, sum, one).unwrap();
        }
        let request =
            KernelRequest::Expr { expr: builder.finish(vec![sum]), shape: vec![1 << 20], operands: vec![vec![1 << 20]; operands] };
        emit::emit(&request).unwrap().kernels
    };
    // Of 24 tensors of two bytes a thread takes 16 bytes each, of more fewer.
    let all = [
        of(DataType::Float, ARGUMENTS - 1, 60),
        of(DataType::Float, 2, 100),
        of(DataType::Bfloat16, ARGUMENTS - 1, 60),
        of(DataType::Half, ARGUMENTS - 1, 60),
        of(DataType::Half, 23, 60),
    ];
    all.into_iter().flatten().collect()
}

#[test]
fn kernels_compile_for_all_cards_without_spills() {
    let Some(nvrtc) = nvrtc() else { return };
    assert!(compile(&nvrtc, &all_kernels()) >= 100);
}

/// Kernels of all families: of products and convolutions some of the small ones.
pub fn all_kernels() -> Vec<Kernel> {
    let some = anchors::products(10).into_iter().step_by(4).chain(anchors::convolutions(12).into_iter().step_by(6));
    let requests = short_kernels().into_iter().chain(some).map(|case| case.request).chain(anchors::large_convolutions());
    let emitted = requests.filter_map(|request| emit::emit(&request).ok()).flat_map(|emitted| emitted.kernels);
    let forms = forms::forms(16).into_iter().flat_map(|(_, emitted)| emitted.kernels);
    emitted.chain(forms).chain([emit::decide().unwrap(), emit::copy().unwrap()]).collect()
}

#[test]
#[ignore = "takes minutes: scripts/long"]
fn the_longest_expressions_do_not_spill() {
    let Some(nvrtc) = nvrtc() else { return };
    assert_eq!(compile(&nvrtc, &longest()), 5);
}

/// Compiles kernels for all generations. None of them spills registers, as the compiler says, and, where there is a disassembler, none has an
/// instruction on memory of its threads' own. Returns how many there are.
fn compile(nvrtc: &Nvrtc, kernels: &[Kernel]) -> usize {
    let (program, mut count) = (emit::program(kernels), 0);
    let disassembler = super::sass::disassembler();
    for architecture in ["sm_80", "sm_90a", "sm_100a"] {
        let options = [emit::OPTIONS, &["--ptxas-options=-v"]].concat();
        let (cubin, log) = nvrtc.cubin(&program, architecture, &options).unwrap();
        assert!(cubin.len() > 10_000, "{architecture}: {} bytes", cubin.len());
        let (mut spills, mut name, mut wrong) = (0, "", Vec::new());
        for line in log.lines() {
            if line.contains("Compiling entry function") || line.contains("Function properties for") {
                name = line;
            }
            if line.contains("spill stores") {
                spills += 1;
                let spilled: u64 = line.split(',').nth(1).and_then(|part| part.trim().split(' ').next()?.parse().ok()).unwrap();
                // Round the compiler's own functions, which divide doubles and long integers, a few registers are saved. All kernels have
                // two long integers as parameters.
                let kernel = kernels.iter().find(|kernel| name.contains(&kernel.entry));
                let body = |kernel: &Kernel| kernel.body.replace("const u64* stop, u64 command", "");
                let divides = kernel.is_none_or(|kernel| ["f64", "i64", "u64"].iter().any(|wide| body(kernel).contains(wide)));
                if spilled > if divides { 32 } else { 0 } {
                    wrong.push(format!("{name}: {line}"));
                }
            }
        }
        if let Some(disassembler) = &disassembler {
            for (entry, code) in disassembler.functions(&cubin).unwrap() {
                let held = super::sass::local(&code);
                wrong.extend((held > 0).then(|| format!("{entry}: {held} instructions on local memory")));
            }
        }
        assert!(wrong.is_empty(), "{architecture}:\n{}", wrong.join("\n"));
        assert!(count == 0 || count == spills, "{architecture}: the log has {spills} kernels, and not {count}");
        count = spills;
    }
    count
}

#[test]
fn rows_are_loaded_16_bytes_at_once() {
    let Some(nvrtc) = nvrtc() else { return };
    let mut builder = ExprBuilder::new();
    let (a, b) = (builder.input(DataType::Float).unwrap(), builder.input(DataType::Float).unwrap());
    let sum = builder.binary(BinaryOp::Add, a, b).unwrap();
    let expr = builder.finish(vec![sum]);
    let ptx = |operands: [Vec<u64>; 2], shape: Vec<u64>| {
        let request = KernelRequest::Expr { expr: expr.clone(), shape, operands: operands.to_vec() };
        let emitted = emit::emit(&request).unwrap();
        nvrtc.ptx(&emit::program(&emitted.kernels), "compute_90", emit::OPTIONS).unwrap()
    };
    let count = |text: &str, word: &str| text.matches(word).count();
    // A flat shape of any length, and rows with a bias.
    for text in [ptx([vec![1003], vec![1003]], vec![1003]), ptx([vec![50, 8], vec![8]], vec![50, 8])] {
        assert_eq!((count(&text, "ld.global.v4"), count(&text, "st.global.v4")), (2, 1), "{text}");
    }
    // Elements of batch normalization, of channels that 16 bytes hold and of others: no element is loaded alone, or each is.
    for channels in [64, 63] {
        let spec = BatchNormSpec { data_type: DataType::Bfloat16, rows: 512, channels, epsilon: 0.001, exponential_avg_factor: 1.0 };
        for request in [
            KernelRequest::BatchNorm { spec, training: true, reserve_3: false, summed: false, epilogue: None },
            KernelRequest::BatchNormGrad { spec, training: true, relu: false },
            KernelRequest::BatchNorm {
                spec,
                training: true,
                reserve_3: false,
                summed: false,
                epilogue: Some(super::normalizing::residual(&spec)),
            },
            KernelRequest::BatchNormGrad { spec, training: true, relu: true },
        ] {
            let emitted = emit::emit(&request).unwrap();
            let text = nvrtc.ptx(&emit::program(&emitted.kernels), "compute_90", emit::OPTIONS).unwrap();
            let counts = (count(&text, "ld.global.v") > 0, count(&text, "ld.global.u16") > 0);
            assert_eq!(counts, if channels == 64 { (true, false) } else { (false, true) }, "{text}");
        }
    }
    // Rows of 7 elements are not aligned.
    let text = ptx([vec![50, 7], vec![7]], vec![50, 7]);
    assert_eq!((count(&text, "ld.global.v4"), count(&text, "ld.global.f32")), (0, 2), "{text}");
}
