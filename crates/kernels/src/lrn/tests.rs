//! Tests of LRN and its gradient against plain loops.

use proptest::prelude::*;

use super::*;
use crate::testing::{self, floats as numbers};
use plimsoll_base::DataType;

/// The output and the gradient by the input of one row, by definition.
fn plain(spec: &LrnSpec, x: &[f32], y: &[f32], g: &[f32]) -> (Vec<f64>, Vec<f64>) {
    let near = |c: usize| {
        let radius = spec.depth_radius.min(x.len() as u64) as usize;
        c.saturating_sub(radius)..(c + radius + 1).min(x.len())
    };
    let sum = |range: std::ops::Range<usize>, f: &dyn Fn(usize) -> f64| range.map(f).sum::<f64>();
    let (alpha, beta) = (f64::from(spec.alpha), f64::from(spec.beta));
    let norm = |c: usize| f64::from(spec.bias) + alpha * sum(near(c), &|k| f64::from(x[k]).powi(2));
    let output = (0..x.len()).map(|c| f64::from(x[c]) * norm(c).powf(-beta)).collect();
    let gradient = |c: usize| {
        let share = sum(near(c), &|k| f64::from(g[k]) * f64::from(y[k]) / norm(k));
        f64::from(g[c]) * norm(c).powf(-beta) - 2.0 * alpha * beta * f64::from(x[c]) * share
    };
    (output, (0..x.len()).map(gradient).collect())
}

fn close(what: &str, got: &[f32], expected: &[f64]) -> std::result::Result<(), TestCaseError> {
    for (got, expected) in got.iter().zip(expected) {
        prop_assert!((f64::from(*got) - expected).abs() <= 1e-5 * (1.0 + expected.abs()), "{what}: {got} and not {expected}");
    }
    Ok(())
}

fn check(spec: &LrnSpec, seed: u64) -> std::result::Result<(), TestCaseError> {
    let total = (spec.rows * spec.channels) as usize;
    let (x, g) = (numbers(total as u64, seed), numbers(total as u64, seed ^ 3));
    for isa in Isa::available() {
        let what = format!("{isa:?} {spec:?}");
        let y = testing::run_one(&lrn_on(isa, *spec).unwrap(), &[&x], total).unwrap();
        let prepared = lrn_grad_on(isa, *spec).unwrap();
        let dx = testing::run_one(&prepared, &[&g, &x, &y], total).unwrap();
        let width = spec.channels.max(1) as usize;
        for row in 0..total / width {
            let range = row * width..(row + 1) * width;
            let (output, gradient) = plain(spec, &x[range.clone()], &y[range.clone()], &g[range.clone()]);
            close(&what, &y[range.clone()], &output)?;
            close(&what, &dx[range], &gradient)?;
        }
        // The same bits in any order, and where an input lies.
        let inputs = [testing::bytes(&g), testing::bytes(&x), testing::bytes(&y)];
        let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        let backwards = backwards_of(&prepared);
        for pair in prepared.in_place.clone() {
            let mut outputs = vec![vec![0xEE; 4 * total]];
            testing::run_pieces(&prepared, &inputs, &mut outputs, &backwards, &[pair]).unwrap();
            prop_assert_eq!(&outputs[0], &testing::bytes(&dx), "{} {:?}", what, pair);
        }
        let mut outputs = vec![vec![0xEE; 4 * total]];
        testing::run_pieces(
            &lrn_on(isa, *spec).unwrap(),
            &inputs[1..2],
            &mut outputs,
            &backwards_of(&lrn_on(isa, *spec).unwrap()),
            &[(0, 0)],
        )
        .unwrap();
        prop_assert_eq!(&outputs[0], &testing::bytes(&y), "{}", what);
    }
    Ok(())
}

fn backwards_of(prepared: &Prepared) -> Vec<Range<u32>> {
    (0..prepared.chunks).rev().map(|piece| piece..piece + 1).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn normalization_agrees_with_plain_loops(
        rows in 0u64..6,
        channels in prop_oneof![0..5u64, Just(16u64), 17..40u64, Just(64)],
        depth_radius in prop_oneof![0..7u64, Just(1000)],
        bias in 0.5f32..3.0,
        alpha in 0f32..2.0,
        beta in prop_oneof![Just(0.5f32), Just(0.75), Just(1.0), 0.1f32..2.0],
        seed in any::<u64>(),
    ) {
        check(&LrnSpec { data_type: DataType::Float, rows, channels, depth_radius, bias, alpha, beta }, seed)?;
    }
}

#[test]
fn many_rows_are_cut() {
    let spec = LrnSpec { data_type: DataType::Float, rows: 1500, channels: 64, depth_radius: 4, bias: 1.0, alpha: 0.001 / 9.0, beta: 0.75 };
    assert!(lrn(spec).unwrap().chunks > 4);
    check(&spec, 9).unwrap();
}

#[test]
fn large_numbers_become_zero_and_large_sizes_are_refused() {
    let spec = LrnSpec { data_type: DataType::Float, rows: 1, channels: 3, depth_radius: 1, bias: 1.0, alpha: 1.0, beta: 0.75 };
    assert_eq!(testing::run_one(&lrn(spec).unwrap(), &[&[1e30f32, 0.0, 1.0]], 3).unwrap()[0], 0.0);
    assert!(lrn(LrnSpec { rows: u64::MAX, ..spec }).is_err());
    assert!(lrn_grad(LrnSpec { channels: 1 << 62, ..spec }).is_err());
}

/// Over all numbers above 0, in steps.
#[test]
fn powers_without_roots_are_exact_to_a_few_bits() {
    let mut worst = 0.0f64;
    for bits in (1..=f32::MAX.to_bits()).step_by(4099).chain([f32::MAX.to_bits(), f32::MIN_POSITIVE.to_bits(), 2]) {
        let norm = f32::from_bits(bits);
        let exact = f64::from(norm).powf(-0.75);
        for power in [three_quarters::<true>(norm), three_quarters::<false>(norm)] {
            worst = worst.max((f64::from(power) / exact - 1.0).abs());
        }
    }
    // A unit in the last place is at most this.
    assert!(worst <= 3.0 * f64::from(f32::EPSILON), "{worst:e}");
}

#[test]
fn powers_of_zero_and_of_what_is_no_number() {
    for (norm, expected) in
        [(0.0f32, f32::INFINITY), (f32::INFINITY, 0.0), (-1.0, f32::NAN), (f32::NAN, f32::NAN), (-f32::INFINITY, f32::NAN)]
    {
        for power in [three_quarters::<true>(norm), three_quarters::<false>(norm)] {
            assert!(power == expected || (power.is_nan() && expected.is_nan()), "{norm}: {power}");
        }
    }
}
