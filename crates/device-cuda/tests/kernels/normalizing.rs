//! Normalizations with their inputs.

use plimsoll_base::{Bf16, DataType, F16, Result};
use plimsoll_device::InstructionSet;
use plimsoll_kernels::CpuKernels;
use plimsoll_request::KernelRequest;
use plimsoll_request::anchor::Epilogue;
use plimsoll_request::expr::{BinaryOp, Expr, ExprBuilder, Scalar};
use plimsoll_request::lrn::LrnSpec;
use plimsoll_request::norm::BatchNormSpec;

use super::cases::{Case, Near};
use super::engines::{Engines, Run};
use super::making::{Making, times};

pub fn norms(seed: u64) -> Vec<Case> {
    let mut making = Making::new(seed);
    let mut cases = Vec::new();
    for number in 0..times(24) {
        let float = DataType::Float;
        // In each pair of a normalization and a gradient: threads with one channel, and with as many as 16 bytes hold, in one tile and in two.
        let data_type = [float, DataType::Bfloat16, DataType::Half, float][number / 2 % 4];
        let (rows, channels) = (*making.of(&[1, 2, 9, 64, 300, 1000]), *making.of(&[1, 3, 15, 31, 32, 40, 132, 264]));
        let factor = *making.of(&[1.0, 0.25]);
        let spec = BatchNormSpec { data_type, rows, channels, epsilon: 0.001, exponential_avg_factor: factor };
        let training = making.below(3) > 0;
        // Variances are positive.
        let positive = |making: &mut Making| (0..channels).flat_map(|_| (0.5 + making.below(9) as f32).to_le_bytes()).collect::<Vec<u8>>();
        let images = making.elements(data_type, rows * channels);
        let [scale, offset, mean] = [(); 3].map(|()| making.elements(float, channels));
        let variance = positive(&mut making);
        let case = if number % 2 == 0 {
            let reserve_3 = making.below(2) == 0;
            let replaced = training && factor == 1.0;
            let statistics = if replaced { [Vec::new(), Vec::new()] } else { [mean, variance] };
            let inputs = [vec![images, scale, offset], statistics.to_vec()].concat();
            let types = [vec![data_type], vec![float; if reserve_3 { 5 } else { 4 }]].concat();
            let input_types = [vec![data_type], vec![float; 4]].concat();
            let request = KernelRequest::BatchNorm { spec, training, reserve_3, summed: false, epilogue: None };
            Case { request, inputs, input_types, types, near: Near::Rounded(64.0, 32.0) }
        } else {
            let gradient = making.elements(data_type, rows * channels);
            let request = KernelRequest::BatchNormGrad { spec, training, relu: false };
            let inputs = vec![gradient, images, scale, mean, variance];
            let input_types = [vec![data_type; 2], vec![float; 3]].concat();
            let types = [vec![data_type], vec![float; 4]].concat();
            Case { request, inputs, input_types, types, near: Near::Rounded(2048.0, 32.0) }
        };
        cases.push(case);
    }
    cases
}

pub fn lrns(seed: u64) -> Vec<Case> {
    let mut making = Making::new(seed);
    let mut cases = Vec::new();
    for number in 0..times(24) {
        let float = DataType::Float;
        let (rows, channels) = (making.below(40), *making.of(&[1, 2, 9, 31, 64]));
        let (bias, alpha) = (*making.of(&[1.0, 2.0]), *making.of(&[1.0, 0.125]));
        let beta = *making.of(&[0.5, 0.75, 1.0, 0.3]);
        let depth_radius = *making.of(&[0, 1, 4, 100]);
        let spec = LrnSpec { data_type: float, rows, channels, depth_radius, bias, alpha, beta };
        let [x, y, gradient] = [(); 3].map(|()| making.elements(float, rows * channels));
        let near = Near::Of(64.0, 64.0);
        cases.push(if number % 2 == 0 {
            Case { request: KernelRequest::Lrn(spec), inputs: vec![x], input_types: vec![float], types: vec![float], near }
        } else {
            let (request, inputs) = (KernelRequest::LrnGrad(spec), vec![gradient, x, y]);
            Case { request, inputs, input_types: vec![float; 3], types: vec![float], near: Near::Of(4096.0, 64.0) }
        });
    }
    cases
}

/// `max(y + residual, 0)`.
pub fn residual(spec: &BatchNormSpec) -> Epilogue {
    let mut builder = ExprBuilder::new();
    let [y, residual] = [(); 2].map(|()| builder.input(spec.data_type).unwrap());
    let sum = builder.binary(BinaryOp::Add, y, residual).unwrap();
    let zero = builder.constant(Scalar::from_f64(spec.data_type, 0.0).unwrap());
    let result = builder.binary(BinaryOp::Maximum, sum, zero).unwrap();
    Epilogue { expr: builder.finish(vec![result]), operands: vec![vec![spec.rows, spec.channels]] }
}

/// The gradient where y is above 0, and 0 elsewhere.
fn relu_grad(data_type: DataType) -> Expr {
    let mut builder = ExprBuilder::new();
    let [gradient, y] = [(); 2].map(|()| builder.input(data_type).unwrap());
    let zero = builder.constant(Scalar::from_f64(data_type, 0.0).unwrap());
    let on = builder.binary(BinaryOp::Greater, y, zero).unwrap();
    let result = builder.select(on, gradient, zero).unwrap();
    builder.finish(vec![result])
}

/// What the processor makes of a request, or of an expression on whole tensors.
fn evaluate(request: &KernelRequest, inputs: &[&[u8]]) -> Result<Vec<Vec<u8>>> {
    CpuKernels.evaluate_on(InstructionSet::detect(), request, inputs, &request.arguments()?.outputs)
}

fn elementwise(expr: &Expr, spec: &BatchNormSpec, inputs: &[&[u8]]) -> Result<Vec<u8>> {
    let shape = vec![spec.rows, spec.channels];
    let request = KernelRequest::Expr { expr: expr.clone(), operands: vec![shape.clone(); inputs.len()], shape };
    Ok(evaluate(&request, inputs)?.remove(0))
}

/// What the processor makes of a normalization and what is behind it, or of a maximum's gradient and the normalization's, one by one. Sums that are given
/// count for nothing: it finds its own.
pub fn step_by_step(request: &KernelRequest, inputs: &[&[u8]]) -> Result<Vec<Vec<u8>>> {
    match request {
        KernelRequest::BatchNorm { summed: true, .. } => {
            let (apart, inputs) = (request.without_sums().unwrap(), [&inputs[..5], &inputs[7..]].concat());
            match &apart {
                KernelRequest::BatchNorm { epilogue: None, .. } => evaluate(&apart, &inputs),
                _ => step_by_step(&apart, &inputs),
            }
        }
        KernelRequest::BatchNorm { spec, training, reserve_3, epilogue: Some(epilogue), .. } => {
            let alone = KernelRequest::BatchNorm { spec: *spec, training: *training, reserve_3: *reserve_3, summed: false, epilogue: None };
            let mut results = evaluate(&alone, &inputs[..5])?;
            results[0] = elementwise(&epilogue.expr, spec, &[&[&results[0][..]], &inputs[5..]].concat())?;
            Ok(results)
        }
        KernelRequest::BatchNormGrad { spec, training, relu: true } => {
            let [gradient, x, scale, mean, variance, offset] = inputs else { panic!("{} inputs", inputs.len()) };
            let forward = KernelRequest::BatchNorm { spec: *spec, training: false, reserve_3: false, summed: false, epilogue: None };
            let y = evaluate(&forward, &[x, scale, offset, mean, variance])?.remove(0);
            let by_y = elementwise(&relu_grad(spec.data_type), spec, &[gradient, &y])?;
            evaluate(&KernelRequest::BatchNormGrad { spec: *spec, training: *training, relu: false }, &[&by_y, x, scale, mean, variance])
        }
        other => panic!("{other:?}"),
    }
}

/// Normalizations of a type and of sizes, with x, scale, offset, a residual and a gradient.
fn fused(seed: u64) -> Vec<(BatchNormSpec, [Vec<u8>; 5])> {
    let mut making = Making::new(seed);
    let of = |number: usize| {
        let float = DataType::Float;
        let data_type = [float, DataType::Bfloat16, DataType::Half][number % 3];
        let (rows, channels) = (*making.of(&[1, 2, 9, 64, 300, 1000]), *making.of(&[1, 3, 15, 32, 40, 132, 264]));
        let spec = BatchNormSpec { data_type, rows, channels, epsilon: 0.001, exponential_avg_factor: 1.0 };
        let [x, residual, gradient] = [(); 3].map(|()| making.elements(data_type, rows * channels));
        let [scale, offset] = [(); 2].map(|()| making.elements(float, channels));
        (spec, [x, scale, offset, residual, gradient])
    };
    (0..times(4)).map(of).collect()
}

/// Normalizations with what is behind them.
pub fn behind_norms(seed: u64) -> Vec<Case> {
    let float = DataType::Float;
    let mut cases = Vec::new();
    let mut making = Making::new(seed + 1);
    for (spec, [x, scale, offset, residual_of, gradient]) in fused(seed) {
        let mean = making.elements(float, spec.channels);
        let variance = (0..spec.channels).flat_map(|_| (0.5 + making.below(9) as f32).to_le_bytes()).collect::<Vec<u8>>();
        for training in [true, false] {
            let [m, v] = if training { [Vec::new(), Vec::new()] } else { [mean.clone(), variance.clone()] };
            cases.push(Case {
                request: KernelRequest::BatchNorm { spec, training, reserve_3: training, summed: false, epilogue: Some(residual(&spec)) },
                inputs: vec![x.clone(), scale.clone(), offset.clone(), m, v, residual_of.clone()],
                input_types: vec![spec.data_type, float, float, float, float, spec.data_type],
                types: [vec![spec.data_type], vec![float; if training { 5 } else { 4 }]].concat(),
                near: Near::Rounded(64.0, 32.0),
            });
        }
        cases.push(Case {
            request: KernelRequest::BatchNormGrad { spec, training: true, relu: true },
            inputs: vec![gradient, x, scale, mean, variance, offset],
            input_types: vec![spec.data_type, spec.data_type, float, float, float, float],
            types: [vec![spec.data_type], vec![float; 4]].concat(),
            near: Near::Rounded(2048.0, 32.0),
        });
    }
    cases
}

/// Normalizations by sums of halves and of `bfloat16`. In each second block of channels some are far from 0 beside their deviation, and some are constant.
pub fn of_sums(seed: u64) -> Vec<Case> {
    let (float, mut making) = (DataType::Float, Making::new(seed));
    let mut cases = Vec::new();
    for number in 0..times(8) {
        let data_type = [DataType::Bfloat16, DataType::Half][number % 2];
        let (rows, channels) = (*making.of(&[1, 2, 9, 300, 1000]), *making.of(&[1, 8, 15, 40, 132]));
        let factor = *making.of(&[1.0, 0.25]);
        let spec = BatchNormSpec { data_type, rows, channels, epsilon: 0.001, exponential_avg_factor: factor };
        let element = |making: &mut Making, channel: u64| match (channel / 8 % 2, channel % 3) {
            (1, 0) => 96.0 + making.below(6) as f32 * 0.5,
            (1, 1) => -7.0,
            _ => making.below(97) as f32 / 8.0 - 6.0,
        };
        let (mut x, mut sums) = (Vec::new(), [vec![0f32; channels as usize], vec![0f32; channels as usize]]);
        for at in 0..rows * channels {
            // All of these are exact in either type.
            let value = element(&mut making, at % channels);
            x.extend(match data_type {
                DataType::Half => F16::from_f32(value).to_bits().to_le_bytes(),
                _ => Bf16::from_f32(value).to_bits().to_le_bytes(),
            });
            sums[0][(at % channels) as usize] += value;
            sums[1][(at % channels) as usize] += value * value;
        }
        let sums = sums.map(|sums| sums.into_iter().flat_map(f32::to_le_bytes).collect::<Vec<u8>>());
        let given = if factor == 1.0 { [Vec::new(), Vec::new()] } else { [(); 2].map(|()| making.elements(float, channels)) };
        let [scale, offset] = [(); 2].map(|()| making.elements(float, channels));
        let epilogue = (number % 4 > 1).then(|| residual(&spec));
        let further = epilogue.iter().map(|_| making.elements(data_type, rows * channels)).collect::<Vec<_>>();
        let reserve_3 = number % 3 == 0;
        cases.push(Case {
            input_types: [vec![data_type], vec![float; 6], vec![data_type; further.len()]].concat(),
            inputs: [vec![x, scale, offset], given.to_vec(), sums.to_vec(), further].concat(),
            types: [vec![data_type], vec![float; if reserve_3 { 5 } else { 4 }]].concat(),
            request: KernelRequest::BatchNorm { spec, training: true, reserve_3, summed: true, epilogue },
            near: Near::Rounded(64.0, 32.0),
        });
    }
    cases
}

/// What is behind a normalization has the bits of kernels of its own.
pub fn bits_behind_norms(engines: &Engines) {
    let case = |request: KernelRequest, inputs: Vec<Vec<u8>>| -> Run {
        let input_types = vec![DataType::Float; inputs.len()];
        Case { request, inputs, input_types, types: Vec::new(), near: Near::Exact }.emit().unwrap()
    };
    let all = fused(17);
    let forward = |epilogue: Option<Epilogue>, spec: BatchNormSpec| KernelRequest::BatchNorm {
        spec,
        training: true,
        reserve_3: false,
        summed: false,
        epilogue,
    };
    let first: Vec<Run> = all
        .iter()
        .map(|(spec, [x, scale, offset, ..])| case(forward(None, *spec), vec![x.clone(), scale.clone(), offset.clone(), vec![], vec![]]))
        .collect();
    let outcomes = engines.run(&first);
    for of_engine in outcomes.chunks(first.len()) {
        let mut then = Vec::new();
        for ((spec, [x, scale, offset, residual_of, gradient]), outcome) in all.iter().zip(of_engine) {
            let results = outcome.result.as_ref().unwrap();
            let (y, mean, variance) = (&results[0], results[3].clone(), results[4].clone());
            let by_y = elementwise(&relu_grad(spec.data_type), spec, &[gradient, y]).unwrap();
            let inputs = vec![x.clone(), scale.clone(), offset.clone(), vec![], vec![], residual_of.clone()];
            then.push(case(forward(Some(residual(spec)), *spec), inputs));
            let grad = |relu: bool| KernelRequest::BatchNormGrad { spec: *spec, training: true, relu };
            let given = vec![x.clone(), scale.clone(), mean, variance];
            then.push(case(grad(false), [vec![by_y], given.clone()].concat()));
            then.push(case(grad(true), [vec![gradient.clone()], given, vec![offset.clone()]].concat()));
        }
        let engine = of_engine[0].engine;
        let results: Vec<_> =
            engines.run(&then).into_iter().filter(|outcome| outcome.engine == engine).map(|outcome| outcome.result.unwrap()).collect();
        for (((spec, [.., residual_of, _]), before), results) in all.iter().zip(of_engine).zip(results.chunks(3)) {
            let [behind, apart, masked] = results else { panic!("{} results", results.len()) };
            let mut expected = before.result.clone().unwrap();
            expected[0] = elementwise(&residual(spec).expr, spec, &[&expected[0], residual_of]).unwrap();
            assert!(*behind == expected, "{spec:?} by {engine}: what is behind it");
            assert!(masked == apart, "{spec:?} by {engine}: its gradient by a maximum");
            // It says something: some elements are above 0 and some are not.
            assert!(spec.rows < 9 || expected[0].iter().any(|byte| *byte != 0));
        }
    }
}
