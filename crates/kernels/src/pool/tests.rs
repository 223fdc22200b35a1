//! Tests of pooling against plain loops and against values recorded from TensorFlow.

use std::ops::Range;

use plimsoll_base::DataType;
use plimsoll_device::Prepared;
use proptest::prelude::*;

use super::*;
use crate::simd::Isa;
use crate::testing;
use crate::testing::run_one;
use plimsoll_request::pool::{ArgMax, Maxima};
use plimsoll_request::window::Axes;

/// Few different numbers, so that there are ties.
fn numbers(count: u64, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2) | 1;
    let mut next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 60) as f32 * 0.25 - 2.0
    };
    (0..count).map(|_| next()).collect()
}

fn backwards(prepared: &Prepared) -> Vec<Range<u32>> {
    (0..prepared.chunks).rev().map(|piece| piece..piece + 1).collect()
}

fn run(prepared: &Prepared, inputs: &[&[u8]], sizes: &[usize]) -> Vec<Vec<u8>> {
    let mut outputs: Vec<Vec<u8>> = sizes.iter().map(|size| vec![0xEE; *size]).collect();
    testing::run(prepared, inputs, &mut outputs).unwrap();
    let mut again: Vec<Vec<u8>> = sizes.iter().map(|size| vec![0xDD; *size]).collect();
    testing::run_pieces(prepared, inputs, &mut again, &backwards(prepared), &[]).unwrap();
    assert_eq!(outputs, again);
    outputs
}

/// For each result its window's elements: position in the window, and index of the input.
fn windows(spec: &PoolSpec) -> Vec<Vec<(u32, usize)>> {
    let axes = spec.axes.filled();
    let boxed = |sizes: [u64; 3]| {
        let all = (0..sizes[0]).flat_map(move |z| (0..sizes[1]).map(move |y| (z, y)));
        all.flat_map(move |(z, y)| (0..sizes[2]).map(move |x| [z, y, x]))
    };
    let index = |at: [u64; 3], sizes: [u64; 3]| (at[0] * sizes[1] + at[1]) * sizes[2] + at[2];
    let (sizes, taps) = (axes.map(|axis| axis.size), axes.map(|axis| axis.taps));
    let mut all = Vec::new();
    for (n, position) in (0..spec.batch).flat_map(|n| boxed(axes.map(|axis| axis.positions)).map(move |position| (n, position))) {
        for c in 0..spec.channels {
            let mut window = Vec::new();
            for tap in boxed(taps) {
                let seen = [0, 1, 2].map(|at| (position[at] * axes[at].stride + tap[at]).wrapping_sub(axes[at].pad));
                if (0..3).all(|at| seen[at] < sizes[at]) {
                    let at = (n * sizes.iter().product::<u64>() + index(seen, sizes)) * spec.channels + c;
                    window.push((index(tap, taps) as u32, at as usize));
                }
            }
            all.push(window);
        }
    }
    all
}

fn check(spec: &PoolSpec, seed: u64) -> std::result::Result<(), TestCaseError> {
    let (ins, outs) = (spec.input().iter().product::<u64>(), spec.output().iter().product::<u64>());
    let (x, g) = (numbers(ins, seed), numbers(outs, seed ^ 5));
    let windows = windows(spec);
    let (mut max, mut place, mut average) = (Vec::new(), Vec::new(), Vec::new());
    let (mut max_grad, mut every_grad, mut average_grad) = (vec![0f32; x.len()], vec![0f32; x.len()], vec![0f32; x.len()]);
    for (window, grad) in windows.iter().zip(&g) {
        let mut best = window.first().copied();
        for (number, index) in window {
            if best.is_none_or(|best| x[*index] > x[best.1]) {
                best = Some((*number, *index));
            }
        }
        max.push(best.map_or(f32::MIN, |best| x[best.1]));
        place.push(best.map_or(0, |best| best.0));
        average.push(window.iter().fold(0.0, |sum, (_, index)| sum + x[*index]) / window.len().max(1) as f32);
        if let Some(best) = best {
            max_grad[best.1] += grad;
        }
        for (_, index) in window {
            if best.is_some_and(|best| x[best.1] == x[*index]) {
                every_grad[*index] += grad;
            }
            average_grad[*index] += 1.0 / window.len() as f32 * grad;
        }
    }
    let (x_bytes, g_bytes) = (testing::bytes(&x), testing::bytes(&g));
    let (in_size, out_size) = (x_bytes.len(), g_bytes.len());
    let kept_size = out_size / 4 * ArgMax::of(spec).data_type().size().unwrap();
    for isa in Isa::available() {
        let what = format!("{isa:?} {spec:?}");
        let floats = |bytes: &[u8]| testing::values::<f32>(bytes);
        let plain = run(&max_pool_on(isa, *spec, Maxima::First).unwrap(), &[&x_bytes], &[out_size]);
        prop_assert_eq!(&floats(&plain[0]), &max, "{}", what);
        let kept = run(&max_pool_with_argmax_on(isa, *spec, false).unwrap(), &[&x_bytes], &[out_size, kept_size]);
        prop_assert_eq!(&kept[0], &plain[0], "{}", what);
        let places = match ArgMax::of(spec) {
            ArgMax::U8 => kept[1].iter().map(|place| u32::from(*place)).collect(),
            ArgMax::U32 => testing::values::<u32>(&kept[1]),
        };
        prop_assert_eq!(&places, &place, "{}", what);
        let grad = run(&max_pool_grad_on(isa, *spec).unwrap(), &[&kept[1], &g_bytes], &[in_size]);
        prop_assert_eq!(&floats(&grad[0]), &max_grad, "{}", what);
        let positive = run(&max_pool_with_argmax_on(isa, *spec, true).unwrap(), &[&x_bytes], &[out_size, kept_size]);
        prop_assert_eq!(&positive[0], &plain[0], "{}", what);
        let masked = run(&max_pool_grad_on(isa, *spec).unwrap(), &[&positive[1], &g_bytes], &[in_size]);
        let expected: Vec<f32> = x.iter().zip(&max_grad).map(|(x, grad)| if *x > 0.0 { *grad } else { 0.0 }).collect();
        prop_assert_eq!(&floats(&masked[0]), &expected, "{}", what);
        let anew = run(&max_pool_grad_of_input_on(isa, *spec, Maxima::First).unwrap(), &[&x_bytes, &plain[0], &g_bytes], &[in_size]);
        prop_assert_eq!(&anew[0], &grad[0], "{}", what);
        if windows.iter().all(|window| !window.is_empty()) {
            let every = run(&max_pool_on(isa, *spec, Maxima::Every).unwrap(), &[&x_bytes], &[out_size]);
            prop_assert_eq!(&every[0], &plain[0], "{}", what);
        }
        let every = run(&max_pool_grad_of_input_on(isa, *spec, Maxima::Every).unwrap(), &[&x_bytes, &plain[0], &g_bytes], &[in_size]);
        prop_assert_eq!(&floats(&every[0]), &every_grad, "{}", what);
        let mean = run(&avg_pool_on(isa, *spec).unwrap(), &[&x_bytes], &[out_size]);
        prop_assert_eq!(&floats(&mean[0]), &average, "{}", what);
        let grad = run(&avg_pool_grad_on(isa, *spec).unwrap(), &[&g_bytes], &[in_size]);
        for (got, expected) in floats(&grad[0]).iter().zip(&average_grad) {
            prop_assert!((got - expected).abs() <= 1e-5, "{what}: {got} and not {expected}");
        }
    }
    Ok(())
}

fn specs() -> impl Strategy<Value = PoolSpec> {
    let axis = (0..14u64, 1..5u64, 1..4u64, 0..3u64, 0..3u64).prop_map(|(size, taps, stride, pad, after)| {
        let positions = (size + pad + after).checked_sub(taps).map_or(0, |room| room / stride + 1);
        WindowAxis { size, positions, taps, stride, dilation: 1, pad }
    });
    let axes = proptest::collection::vec(axis, 1..=3).prop_map(|mut axes| {
        // Planes cost much, and few say all.
        if let [planes, _, _] = &mut axes[..] {
            (planes.size, planes.positions) = (planes.size.min(5), planes.positions.min(3));
        }
        axes
    });
    let channels = prop_oneof![1..6u64, Just(16), 15..40u64, Just(67)];
    (prop_oneof![Just(1u64), 0..4u64], axes, channels).prop_map(|(batch, axes, channels)| spec(batch, channels, &axes))
}

fn spec(batch: u64, channels: u64, axes: &[WindowAxis]) -> PoolSpec {
    PoolSpec { data_type: DataType::Float, batch, channels, axes: Axes::new(axes).unwrap(), layout: Layout::ChannelsLast }
}

/// An axis without padding.
fn valid(size: u64, taps: u64, stride: u64) -> WindowAxis {
    WindowAxis { size, positions: (size - taps) / stride + 1, taps, stride, dilation: 1, pad: 0 }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pooling_agrees_with_plain_loops(spec in specs(), seed in any::<u64>()) {
        check(&spec, seed)?;
    }
}

fn base() -> PoolSpec {
    spec(2, 64, &[WindowAxis { positions: 12, ..valid(24, 3, 2) }; 2])
}

#[test]
fn large_windows_and_many_pieces() {
    check(&base(), 1).unwrap();
    check(&PoolSpec { batch: 20, channels: 33, ..base() }, 2).unwrap();
    check(&spec(2, 5, &[valid(24, 17, 8), valid(24, 15, 16)]), 5).unwrap();
    check(&spec(2, 5, &[valid(24, 17, 8), valid(24, 16, 16)]), 3).unwrap();
    check(&spec(1, 330, &[valid(30, 2, 2); 2]), 4).unwrap();
    check(&spec(2, 20, &[valid(8, 3, 2), valid(30, 2, 2), valid(31, 2, 1)]), 6).unwrap();
    check(&spec(1, 2, &[valid(7, 7, 1), valid(7, 7, 1), valid(8, 7, 1)]), 7).unwrap();
}

/// As TensorFlow 2.21 does it.
#[test]
fn not_a_number_is_no_maximum_but_a_place() {
    let spec = spec(1, 1, &[valid(1, 1, 1), valid(6, 2, 2)]);
    let x = [f32::NAN, 1.0, 1.0, f32::NAN, f32::NAN, f32::NAN];
    assert_eq!(testing::run_one::<f32>(&max_pool(spec, Maxima::First).unwrap(), &[&x], 3).unwrap(), [1.0, 1.0, f32::MIN]);
    let grad = max_pool_grad_of_input(spec, Maxima::First).unwrap();
    assert_eq!(testing::run_one::<f32>(&grad, &[&x, &[0.0; 3], &[1.0; 3]], 6).unwrap(), [1.0, 0.0, 1.0, 0.0, 1.0, 0.0]);
    let kept = run(&max_pool_with_argmax(spec, true).unwrap(), &[&testing::bytes(&x)], &[12, 3]);
    assert_eq!(kept[1], [0xFF, 0, 0xFF]);
    // MaxPool3D.
    let most = testing::run_one::<f32>(&max_pool(spec, Maxima::Every).unwrap(), &[&x], 3).unwrap();
    assert!(most[0] == 1.0 && most[1].is_nan() && most[2].is_nan());
    let grad = max_pool_grad_of_input(spec, Maxima::Every).unwrap();
    assert_eq!(testing::run_one::<f32>(&grad, &[&x, &most, &[1.0; 3]], 6).unwrap(), [0.0, 1.0, 0.0, 0.0, 0.0, 0.0]);
}

#[test]
fn sizes_that_make_no_sense_are_refused() {
    let with = |change: fn(&mut WindowAxis)| {
        let mut spec = base();
        change(&mut spec.axes[1]);
        spec
    };
    for spec in [
        with(|axis| axis.taps = 0),
        with(|axis| axis.stride = 0),
        with(|axis| axis.pad = u64::MAX),
        with(|axis| axis.dilation = 2),
        PoolSpec { channels: 1 << 60, ..base() },
        with(|axis| axis.taps = u64::MAX),
        PoolSpec { layout: Layout::ChannelsFirst, ..base() },
    ] {
        for maxima in [Maxima::First, Maxima::Every] {
            assert!(max_pool(spec, maxima).is_err(), "{spec:?}");
            assert!(max_pool_grad_of_input(spec, maxima).is_err(), "{spec:?}");
        }
        assert!(max_pool_with_argmax(spec, false).is_err(), "{spec:?}");
        assert!(max_pool_grad(spec).is_err(), "{spec:?}");
        assert!(avg_pool(spec).is_err(), "{spec:?}");
        assert!(avg_pool_grad(spec).is_err(), "{spec:?}");
    }
}

/// Of windows with one maximum each, the bilinear forms of the gradient and of its gradient are one.
#[test]
fn the_gradient_of_the_gradient_is_its_adjoint() {
    let axis = |size: u64, taps: u64, stride: u64, pad: u64| WindowAxis {
        size,
        positions: (size + 2 * pad - taps) / stride + 1,
        taps,
        stride,
        dilation: 1,
        pad,
    };
    for axes in [vec![axis(7, 3, 2, 1), axis(9, 2, 1, 0)], vec![axis(4, 2, 2, 0), axis(5, 3, 1, 1), axis(6, 2, 2, 0)]] {
        let axes = Axes::new(&axes).unwrap();
        let spec = PoolSpec { data_type: DataType::Float, batch: 3, channels: 21, axes, layout: Layout::ChannelsLast };
        let (ins, outs) = (spec.input().iter().product::<u64>() as usize, spec.output().iter().product::<u64>() as usize);
        // Numbers that are far from each other.
        let x: Vec<f32> = (0..ins).map(|at| (at * 7919 % ins) as f32).collect();
        let (by_y, by_x): (Vec<f32>, Vec<f32>) =
            ((0..outs).map(|at| (at % 13) as f32).collect(), (0..ins).map(|at| (at % 11) as f32).collect());
        for isa in Isa::available() {
            let y = run_one(&max_pool_on(isa, spec, Maxima::First).unwrap(), &[&x], outs).unwrap();
            let grad = run_one(&max_pool_grad_of_input_on(isa, spec, Maxima::First).unwrap(), &[&x, &y, &by_y], ins).unwrap();
            let grad_grad = run_one(&max_pool_grad_grad_on(isa, spec).unwrap(), &[&x, &y, &by_x], outs).unwrap();
            let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(a * b)).sum::<f64>();
            assert_eq!(dot(&grad, &by_x), dot(&grad_grad, &by_y), "{isa:?} {spec:?}");
            let none = vec![f32::NAN; outs];
            assert_eq!(run_one(&max_pool_grad_grad_on(isa, spec).unwrap(), &[&x, &none, &by_x], outs).unwrap(), vec![0.0; outs]);
        }
    }
}
