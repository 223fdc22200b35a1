//! Batch normalization and its gradient against plain loops in double precision.

use std::ops::Range;

use proptest::prelude::*;

use super::*;
use crate::testing;
use plimsoll_base::DataType;
use plimsoll_request::expr::{BinaryOp, ExprBuilder};

type Checked = std::result::Result<(), TestCaseError>;

fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2) | 1;
    let mut next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// The results of `prepared`: in one call, and the same bits piece by piece backwards, and where an input lies.
fn run(prepared: &Prepared, inputs: &[&[f32]], lengths: &[usize]) -> std::result::Result<Vec<Vec<f32>>, TestCaseError> {
    let inputs: Vec<Vec<u8>> = inputs.iter().map(|values| testing::bytes(values)).collect();
    let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    let fresh = || lengths.iter().map(|length| vec![0xEE; 4 * length]).collect::<Vec<Vec<u8>>>();
    let mut outputs = fresh();
    testing::run(prepared, &inputs, &mut outputs).unwrap();
    let backwards: Vec<Range<u32>> = (0..prepared.chunks).rev().map(|piece| piece..piece + 1).collect();
    for pair in std::iter::once(None).chain(prepared.in_place.iter().copied().map(Some)) {
        let mut again = fresh();
        testing::run_pieces(prepared, &inputs, &mut again, &backwards, pair.as_slice()).unwrap();
        prop_assert_eq!(&again, &outputs, "in place: {:?}", pair);
    }
    Ok(outputs.iter().map(|bytes| testing::values(bytes)).collect())
}

fn close(what: &str, got: &[f32], expected: impl Iterator<Item = f64>, size: f64) -> Checked {
    for (at, (got, expected)) in got.iter().zip(expected).enumerate() {
        let near = (f64::from(*got) - expected).abs() <= 2e-5 * (size + expected.abs());
        prop_assert!(near || (got.is_nan() && expected.is_nan()), "{what}, element {at}: {got} and not {expected}");
    }
    Ok(())
}

/// The column of channel `c`.
fn column(values: &[f32], channels: usize, c: usize) -> impl Iterator<Item = f64> + Clone + '_ {
    values.iter().skip(c).step_by(channels.max(1)).map(|value| f64::from(*value))
}

/// Means and variances, by definition.
fn statistics(x: &[f32], spec: &BatchNormSpec) -> (Vec<f64>, Vec<f64>) {
    let (rows, channels) = (spec.rows as f64, spec.channels as usize);
    let of = |c: usize| {
        let mean = column(x, channels, c).sum::<f64>() / rows;
        (mean, column(x, channels, c).map(|value| (value - mean).powi(2)).sum::<f64>() / rows)
    };
    (0..channels).map(of).unzip()
}

/// `max(y + other, 0)`.
fn sum_and_relu(spec: &BatchNormSpec) -> Epilogue {
    let mut builder = ExprBuilder::new();
    let [y, other] = [0, 1].map(|_| builder.input(DataType::Float).unwrap());
    let sum = builder.binary(BinaryOp::Add, y, other).unwrap();
    let zero = builder.number(DataType::Float, 0.0).unwrap();
    let relu = builder.binary(BinaryOp::Maximum, sum, zero).unwrap();
    Epilogue { expr: builder.finish(vec![relu]), operands: vec![vec![1, spec.rows, spec.channels]] }
}

/// Whether two lists of results are the same bits.
fn same(one: &[Vec<f32>], other: &[Vec<f32>]) -> bool {
    let bits = |all: &[Vec<f32>]| all.iter().map(|values| testing::bytes(values)).collect::<Vec<_>>();
    bits(one) == bits(other)
}

fn check(spec: BatchNormSpec, seed: u64, mean: f32) -> Checked {
    let (rows, channels) = (spec.rows as usize, spec.channels as usize);
    let total = rows * channels;
    let x: Vec<f32> = numbers(total, seed).iter().map(|value| value + mean).collect();
    let dy = numbers(total, seed ^ 5);
    let [scale, offset, old_mean] = [1, 2, 3].map(|more| numbers(channels, seed + more));
    let old_variance: Vec<f32> = numbers(channels, seed + 4).iter().map(|value| value.abs() + 0.5).collect();
    let (means, variances) = statistics(&x, &spec);
    let at = |values: &[f32], c: usize| f64::from(values[c]);
    let (epsilon, factor) = (f64::from(spec.epsilon), f64::from(spec.exponential_avg_factor));
    let between = 2 * channels * between(&spec)[0] as usize;
    // The error of rounding in x alone.
    let rounded = f64::from(mean.abs()) / 50.0 + 1.0;
    for isa in Isa::available() {
        let what = |name: &str| format!("{name} {isa:?} {spec:?}");
        let parts = run(&moments_on(isa, spec).unwrap(), &[&x], &[between])?.remove(0);
        let second = normalize_on(isa, spec, Statistics::Batch, true, None).unwrap();
        let lengths = [total, channels, channels, channels, channels, 1];
        let y = run(&second, &[&parts, &x, &scale, &offset, &old_mean, &old_variance], &lengths)?;
        let normal = |i: usize| {
            let c = i % channels;
            (f64::from(x[i]) - means[c]) * at(&scale, c) / (variances[c] + epsilon).sqrt() + at(&offset, c)
        };
        close(&what("y"), &y[0], (0..total).map(normal), rounded)?;
        let running_mean = |c| (1.0 - factor) * at(&old_mean, c) + factor * means[c];
        let sample = if rows == 0 { f64::NAN } else { rows as f64 / (rows as f64 - 1.0).max(1.0) };
        let running_variance = |c| (1.0 - factor) * at(&old_variance, c) + factor * sample * variances[c];
        close(&what("running mean"), &y[1], (0..channels).map(running_mean), 1.0)?;
        close(&what("running variance"), &y[2], (0..channels).map(running_variance), rounded)?;
        let or_zero = |value: f64| if rows == 0 { 0.0 } else { value };
        close(&what("mean"), &y[3], means.iter().map(|mean| or_zero(*mean)), 1.0)?;
        close(&what("variance"), &y[4], variances.iter().map(|variance| or_zero(*variance)), rounded)?;
        prop_assert_eq!(&y[5], &[0.0]);

        let given = normalize_on(isa, spec, Statistics::Given, false, None).unwrap();
        let y_given = run(&given, &[&x, &scale, &offset, &old_mean, &old_variance], &lengths[..5])?;
        let normal = |i: usize| {
            let c = i % channels;
            (f64::from(x[i]) - at(&old_mean, c)) * at(&scale, c) / (at(&old_variance, c) + epsilon).sqrt() + at(&offset, c)
        };
        close(&what("y by given"), &y_given[0], (0..total).map(normal), 1.0)?;
        // The bits of what is computed afterwards; statistics as without.
        let other = numbers(total, seed ^ 9);
        let changed = |y: &[f32]| -> Vec<f32> { y.iter().zip(&other).map(|(y, other)| (y + other).max(0.0)).collect() };
        let epilogue = sum_and_relu(&spec);
        let second = normalize_on(isa, spec, Statistics::Batch, true, Some(&epilogue)).unwrap();
        let behind = run(&second, &[&parts, &x, &scale, &offset, &old_mean, &old_variance, &other], &lengths)?;
        prop_assert_eq!(&behind[0], &changed(&y[0]), "{}", what("behind"));
        prop_assert!(same(&behind[1..], &y[1..]), "{}", what("statistics"));
        let given = normalize_on(isa, spec, Statistics::Given, false, Some(&epilogue)).unwrap();
        let behind = run(&given, &[&x, &scale, &offset, &old_mean, &old_variance, &other], &lengths[..5])?;
        prop_assert_eq!(&behind[0], &changed(&y_given[0]), "{}", what("behind given statistics"));
        prop_assert!(same(&behind[1..], &y_given[1..]), "{}", what("statistics"));
        let kept = |values: &[f32], got: &[f32]| got == values || (rows == 0 && got.iter().all(|value| value.is_nan()));
        prop_assert!(kept(&old_mean, &y_given[1]) && kept(&old_variance, &y_given[2]), "{}", what("given statistics"));
        prop_assert!(y_given[3..5].iter().flatten().all(|value| *value == 0.0));

        for (statistics, mean, variance) in [(Statistics::Batch, &y[3], &y[4]), (Statistics::Given, &old_mean, &old_variance)] {
            let sums = run(&grad_sums_on(isa, spec, false).unwrap(), &[&dy, &x, mean], &[between])?.remove(0);
            let second = grad_on(isa, spec, statistics, false).unwrap();
            let got = run(&second, &[&sums, &dy, &x, &scale, mean, variance], &[total, channels, channels, 0, 0])?;
            let root = |c: usize| (at(variance, c) + epsilon).sqrt();
            let by_offset: Vec<f64> = (0..channels).map(|c| column(&dy, channels, c).sum()).collect();
            let by_scale: Vec<f64> = (0..channels)
                .map(|c| column(&dy, channels, c).zip(column(&x, channels, c)).map(|(dy, x)| dy * (x - at(mean, c))).sum::<f64>() / root(c))
                .collect();
            let by_x = |i: usize| {
                let (c, n) = (i % channels, rows as f64);
                let normal = (f64::from(x[i]) - at(mean, c)) / root(c);
                let taken = if statistics == Statistics::Batch { (by_offset[c] + normal * by_scale[c]) / n } else { 0.0 };
                at(&scale, c) / root(c) * (f64::from(dy[i]) - taken)
            };
            close(&what("by x"), &got[0], (0..total).map(by_x), 5.0)?;
            let size = (rows as f64).sqrt() + 1.0;
            close(&what("by scale"), &got[1], by_scale.iter().copied(), size * rounded)?;
            close(&what("by offset"), &got[2], by_offset.iter().copied(), size)?;
        }

        // With a Relu: the bits of what a ReluGrad before it makes of dy.
        let lengths = [total, channels, channels, 0, 0];
        let gradients = |dy: &[f32], relu: bool| {
            let offset: &[&[f32]] = if relu { &[&offset] } else { &[] };
            let inputs = if relu { vec![dy, &x, &scale, &y[3], &y[4], offset[0]] } else { vec![dy, &x, &y[3]] };
            let sums = run(&grad_sums_on(isa, spec, relu).unwrap(), &inputs, &[between])?.remove(0);
            let inputs = [&[&sums[..], dy, &x, &scale, &y[3], &y[4]][..], offset].concat();
            run(&batch_norm_grad_on(isa, spec, true, relu).unwrap(), &inputs, &lengths)
        };
        let passed: Vec<f32> = dy.iter().zip(&y[0]).map(|(dy, y)| if *y > 0.0 { *dy } else { 0.0 }).collect();
        prop_assert!(same(&gradients(&dy, true)?, &gradients(&passed, false)?), "{}", what("with a relu"));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn small_sizes(rows in 0u64..200, channels in 0u64..90, factor in prop_oneof![Just(1.0f32), 0.0f32..1.0], seed: u64) {
        check(BatchNormSpec { data_type: DataType::Float, rows, channels, epsilon: 0.01, exponential_avg_factor: factor }, seed >> 1, 0.0)?;
    }
}

#[test]
fn many_pieces_and_parts() {
    for (rows, channels) in [(5000, 33), (300, 1000), (40_000, 1), (70, 5000)] {
        let spec = BatchNormSpec { data_type: DataType::Float, rows, channels, epsilon: 0.001, exponential_avg_factor: 1.0 };
        assert!(moments_on(Isa::best(), spec).unwrap().chunks > 1, "{spec:?}");
        check(spec, rows, 0.25).unwrap();
    }
}

/// Squares would lose all of a deviation that is small beside the mean.
#[test]
fn a_large_mean_costs_nothing() {
    for (rows, channels) in [(3000, 5), (150, 40)] {
        check(BatchNormSpec { data_type: DataType::Float, rows, channels, epsilon: 0.01, exponential_avg_factor: 1.0 }, 11, 1000.0)
            .unwrap();
    }
}

/// Only chains of changes are computed behind a normalization.
#[test]
fn other_epilogues_are_refused() {
    let spec = BatchNormSpec { data_type: DataType::Float, rows: 9, channels: 5, epsilon: 0.01, exponential_avg_factor: 1.0 };
    let mut builder = ExprBuilder::new();
    let y = builder.input(DataType::Float).unwrap();
    let square = builder.binary(BinaryOp::Mul, y, y).unwrap();
    let epilogue = Epilogue { expr: builder.finish(vec![square]), operands: Vec::new() };
    let error = batch_norm_on(Isa::best(), spec, true, Some(&epilogue)).unwrap_err();
    assert_eq!(error.code(), plimsoll_base::Code::Unimplemented);
}

/// An element of dy counts by y as it was: NaN is not above 0, and lets nothing pass.
#[test]
fn nothing_passes_where_a_result_is_nan() {
    let spec = BatchNormSpec { data_type: DataType::Float, rows: 3, channels: 17, epsilon: 0.01, exponential_avg_factor: 1.0 };
    let (dy, x) = (vec![f32::NAN; 51], vec![1.0; 51]);
    let (scale, mean, variance) = (vec![1.0; 17], vec![f32::NAN; 17], vec![1.0; 17]);
    for isa in Isa::available() {
        let sums = grad_sums_on(isa, spec, true).unwrap();
        let got = run(&sums, &[&dy, &x, &scale, &mean, &variance, &scale], &[2 * 17]).unwrap().remove(0);
        assert_eq!(got[..17], [0.0; 17], "{isa:?}");
    }
}

#[test]
fn given_statistics_and_a_relu_are_refused() {
    let spec = BatchNormSpec { data_type: DataType::Float, rows: 9, channels: 5, epsilon: 0.01, exponential_avg_factor: 1.0 };
    let error = batch_norm_grad_on(Isa::best(), spec, false, true).unwrap_err();
    assert_eq!(error.code(), plimsoll_base::Code::Unimplemented);
}

/// Registers of eight and of sixteen read other channels together: two and one of three of one size are six of the other.
#[test]
fn bits_do_not_depend_on_the_width_of_registers() {
    let sets: Vec<Isa> = Isa::available().into_iter().filter(|isa| *isa > Isa::Portable).collect();
    for (rows, channels) in [(1000usize, 48usize), (700, 32), (130, 50)] {
        let (rows_of, channels_of) = (rows as u64, channels as u64);
        let spec =
            BatchNormSpec { data_type: DataType::Float, rows: rows_of, channels: channels_of, epsilon: 0.01, exponential_avg_factor: 1.0 };
        let [x, dy] = [3, 4].map(|seed| numbers(rows * channels, seed));
        let [scale, mean, offset] = [5, 6, 7].map(|seed| numbers(channels, seed));
        let variance: Vec<f32> = scale.iter().map(|value| value.abs() + 0.5).collect();
        let between = 2 * channels * between(&spec)[0] as usize;
        let of = |isa: Isa| {
            let moments = run(&moments_on(isa, spec).unwrap(), &[&x], &[between]).unwrap();
            let sums = grad_sums_on(isa, spec, true).unwrap();
            [moments, run(&sums, &[&dy, &x, &scale, &mean, &variance, &offset], &[between]).unwrap()].concat()
        };
        assert!(sets.windows(2).all(|pair| same(&of(pair[0]), &of(pair[1]))), "{spec:?}");
    }
}

#[test]
fn sizes_beyond_memory_are_refused() {
    for (rows, channels) in [(u64::MAX, 1), (1, u64::MAX), (1 << 40, 1 << 40), (0, u64::MAX)] {
        let spec = BatchNormSpec { data_type: DataType::Float, rows, channels, epsilon: 0.01, exponential_avg_factor: 1.0 };
        for prepared in [
            moments_on(Isa::best(), spec),
            batch_norm_on(Isa::best(), spec, true, None),
            grad_sums_on(Isa::best(), spec, false),
            grad_sums_on(Isa::best(), spec, true),
            batch_norm_grad_on(Isa::best(), spec, true, false),
            batch_norm_grad_on(Isa::best(), spec, true, true),
        ] {
            assert!(prepared.is_err(), "{spec:?}");
        }
    }
}
