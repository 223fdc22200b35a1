//! Tests of pooling against plain loops and against values recorded from TensorFlow.

use plimsoll_request::pool::ArgMax;
use std::ops::Range;

use plimsoll_device::Prepared;
use proptest::prelude::*;

use super::*;
use crate::simd::Isa;
use crate::testing;

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
    let mut all = Vec::new();
    for n in 0..spec.batch {
        for (oy, ox) in (0..spec.out_h).flat_map(|y| (0..spec.out_w).map(move |x| (y, x))) {
            for c in 0..spec.channels {
                let mut window = Vec::new();
                for (ky, kx) in (0..spec.k_h).flat_map(|y| (0..spec.k_w).map(move |x| (y, x))) {
                    let iy = (oy * spec.stride_h + ky).wrapping_sub(spec.pad_top);
                    let ix = (ox * spec.stride_w + kx).wrapping_sub(spec.pad_left);
                    if iy < spec.in_h && ix < spec.in_w {
                        let index = ((n * spec.in_h + iy) * spec.in_w + ix) * spec.channels + c;
                        window.push(((ky * spec.k_w + kx) as u32, index as usize));
                    }
                }
                all.push(window);
            }
        }
    }
    all
}

fn check(spec: &PoolSpec, seed: u64) -> std::result::Result<(), TestCaseError> {
    let (ins, outs) = (spec.input().iter().product::<u64>(), spec.output().iter().product::<u64>());
    let (x, g) = (numbers(ins, seed), numbers(outs, seed ^ 5));
    let windows = windows(spec);
    let (mut max, mut place, mut average) = (Vec::new(), Vec::new(), Vec::new());
    let (mut max_grad, mut average_grad) = (vec![0f32; x.len()], vec![0f32; x.len()]);
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
            average_grad[*index] += 1.0 / window.len() as f32 * grad;
        }
    }
    let (x_bytes, g_bytes) = (testing::bytes(&x), testing::bytes(&g));
    let (in_size, out_size) = (x_bytes.len(), g_bytes.len());
    let kept_size = out_size / 4 * ArgMax::of(spec).data_type().size().unwrap();
    for isa in Isa::available() {
        let what = format!("{isa:?} {spec:?}");
        let floats = |bytes: &[u8]| testing::values::<f32>(bytes);
        let plain = run(&max_pool_on(isa, *spec).unwrap(), &[&x_bytes], &[out_size]);
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
        let anew = run(&max_pool_grad_of_input_on(isa, *spec).unwrap(), &[&x_bytes, &plain[0], &g_bytes], &[in_size]);
        prop_assert_eq!(&anew[0], &grad[0], "{}", what);
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
    let axis = || (0..14u64, 1..5u64, 1..4u64, 0..3u64, 0..3u64);
    (prop_oneof![Just(1u64), 0..4u64], axis(), axis(), prop_oneof![1..6u64, Just(16), 15..40u64, Just(67)]).prop_map(
        |(batch, y, x, channels)| {
            let out = |(size, taps, stride, pad, after): (u64, u64, u64, u64, u64)| {
                (size + pad + after).checked_sub(taps).map_or(0, |room| room / stride + 1)
            };
            PoolSpec {
                batch,
                in_h: y.0,
                in_w: x.0,
                channels,
                out_h: out(y),
                out_w: out(x),
                k_h: y.1,
                k_w: x.1,
                stride_h: y.2,
                stride_w: x.2,
                pad_top: y.3,
                pad_left: x.3,
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pooling_agrees_with_plain_loops(spec in specs(), seed in any::<u64>()) {
        check(&spec, seed)?;
    }
}

const BASE: PoolSpec = PoolSpec {
    batch: 2,
    in_h: 24,
    in_w: 24,
    channels: 64,
    out_h: 12,
    out_w: 12,
    k_h: 3,
    k_w: 3,
    stride_h: 2,
    stride_w: 2,
    pad_top: 0,
    pad_left: 0,
};

#[test]
fn large_windows_and_many_pieces() {
    check(&BASE, 1).unwrap();
    check(&PoolSpec { batch: 20, channels: 33, ..BASE }, 2).unwrap();
    check(&PoolSpec { k_h: 17, k_w: 15, out_h: 1, out_w: 1, channels: 5, ..BASE }, 5).unwrap();
    check(&PoolSpec { k_h: 17, k_w: 16, out_h: 1, out_w: 1, channels: 5, ..BASE }, 3).unwrap();
    check(&PoolSpec { batch: 1, in_h: 30, in_w: 30, out_h: 15, out_w: 15, k_h: 2, k_w: 2, channels: 330, ..BASE }, 4).unwrap();
}

/// As TensorFlow 2.21 does it.
#[test]
fn not_a_number_is_no_maximum_but_a_place() {
    let spec = PoolSpec { batch: 1, in_h: 1, in_w: 6, channels: 1, out_h: 1, out_w: 3, k_h: 1, k_w: 2, ..BASE };
    let x = [f32::NAN, 1.0, 1.0, f32::NAN, f32::NAN, f32::NAN];
    assert_eq!(testing::run_one::<f32>(&max_pool(spec).unwrap(), &[&x], 3).unwrap(), [1.0, 1.0, f32::MIN]);
    let grad = max_pool_grad_of_input(spec).unwrap();
    assert_eq!(testing::run_one::<f32>(&grad, &[&x, &[0.0; 3], &[1.0; 3]], 6).unwrap(), [1.0, 0.0, 1.0, 0.0, 1.0, 0.0]);
    let kept = run(&max_pool_with_argmax(spec, true).unwrap(), &[&testing::bytes(&x)], &[12, 3]);
    assert_eq!(kept[1], [0xFF, 0, 0xFF]);
}

#[test]
fn sizes_that_make_no_sense_are_refused() {
    for spec in [
        PoolSpec { k_h: 0, ..BASE },
        PoolSpec { stride_w: 0, ..BASE },
        PoolSpec { pad_left: u64::MAX, ..BASE },
        PoolSpec { channels: 1 << 60, ..BASE },
        PoolSpec { k_w: u64::MAX, ..BASE },
    ] {
        assert!(max_pool(spec).is_err(), "{spec:?}");
        assert!(max_pool_with_argmax(spec, false).is_err(), "{spec:?}");
        assert!(max_pool_grad(spec).is_err(), "{spec:?}");
        assert!(max_pool_grad_of_input(spec).is_err(), "{spec:?}");
        assert!(avg_pool(spec).is_err(), "{spec:?}");
        assert!(avg_pool_grad(spec).is_err(), "{spec:?}");
    }
}
