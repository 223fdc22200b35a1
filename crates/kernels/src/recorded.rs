//! Convolutions, pooling and LRN against values that scripts/record_conv.py recorded from TensorFlow.

use plimsoll_base::{DataType, Result};
use plimsoll_device::Prepared;

use crate::conv::*;
use crate::lrn::{lrn_grad_on, lrn_on};
use crate::pool::*;
use crate::simd::Isa;
use crate::testing;
use plimsoll_request::conv::ConvSpec;
use plimsoll_request::lrn::LrnSpec;
use plimsoll_request::pool::{Maxima, PoolSpec};
use plimsoll_request::window::{Axes, Layout, WindowAxis};

/// As `made` in the script.
fn made(count: u64, salt: u64) -> Vec<f32> {
    let one = |at: u64| ((at.wrapping_mul(2_654_435_761).wrapping_add(salt * 40503 + 12345) % (1 << 32)) >> 13) % 65;
    (0..count).map(|at| (one(at) as f32 - 32.0) / 32.0).collect()
}

fn count(shape: Vec<u64>) -> u64 {
    shape.iter().product()
}

fn sizes_of_conv(s: &[u64]) -> ConvSpec {
    let dilation = |at: usize| s.get(13 + at).map_or(1, |dilation| *dilation);
    let axis = |at: usize| WindowAxis {
        size: s[1 + at],
        positions: s[4 + at],
        taps: s[7 + at],
        stride: s[9 + at],
        dilation: dilation(at),
        pad: s[11 + at],
    };
    let axes = Axes::new(&[axis(0), axis(1)]).unwrap();
    ConvSpec { data_type: DataType::Float, batch: s[0], in_c: s[3], out_c: s[6], axes, layout: Layout::ChannelsLast, groups: 1 }
}

fn sizes_of_pool(s: &[u64]) -> PoolSpec {
    let axis =
        |at: usize| WindowAxis { size: s[1 + at], positions: s[4 + at], taps: s[6 + at], stride: s[8 + at], dilation: 1, pad: s[10 + at] };
    let axes = Axes::new(&[axis(0), axis(1)]).unwrap();
    PoolSpec { data_type: DataType::Float, batch: s[0], channels: s[3], axes, layout: Layout::ChannelsLast }
}

fn execute(prepared: Result<Prepared>, inputs: &[&[f32]], len: u64) -> Vec<f32> {
    testing::run_one(&prepared.unwrap(), inputs, len as usize).unwrap()
}

/// The results of the operation for inputs made by the formula.
fn result(isa: Isa, op: &str, sizes: &[u64], attributes: &[f32]) -> Vec<f32> {
    match op {
        "Conv2D" | "Conv2DBackpropInput" | "Conv2DBackpropFilter" => {
            let spec = sizes_of_conv(sizes);
            let (inputs, weights, outputs) = (count(spec.input()), count(spec.filter()), count(spec.output()));
            let (x, w, g) = (made(inputs, 1), made(weights, 2), made(outputs, 3));
            match op {
                "Conv2D" => execute(conv_on(isa, spec, None), &[&x, &w], outputs),
                "Conv2DBackpropInput" => execute(conv_backprop_input_on(isa, spec, None), &[&w, &g], inputs),
                _ => execute(conv_backprop_filter_on(isa, spec), &[&x, &g], weights),
            }
        }
        "DepthwiseConv2dNative" | "DepthwiseConv2dNativeBackpropInput" | "DepthwiseConv2dNativeBackpropFilter" => {
            // Recorded with the multiplier in the place of the result's channels.
            let mut spec = sizes_of_conv(sizes);
            spec.out_c *= spec.in_c;
            let (inputs, weights, outputs) = (count(spec.input()), spec.taps() * spec.out_c, count(spec.output()));
            let (x, w, g) = (made(inputs, 1), made(weights, 2), made(outputs, 3));
            match op {
                "DepthwiseConv2dNative" => execute(depthwise_conv_on(isa, spec, None), &[&x, &w], outputs),
                "DepthwiseConv2dNativeBackpropInput" => execute(depthwise_conv_backprop_input_on(isa, spec), &[&w, &g], inputs),
                _ => execute(depthwise_conv_backprop_filter_on(isa, spec), &[&x, &g], weights),
            }
        }
        "MaxPool" | "MaxPoolGrad" | "AvgPool" | "AvgPoolGrad" => {
            let spec = sizes_of_pool(sizes);
            let (inputs, outputs) = (count(spec.input()), count(spec.output()));
            let (x, g) = (made(inputs, 1), made(outputs, 3));
            match op {
                "MaxPool" => execute(max_pool_on(isa, spec, Maxima::First), &[&x], outputs),
                "MaxPoolGrad" => {
                    let y = execute(max_pool_on(isa, spec, Maxima::First), &[&x], outputs);
                    execute(max_pool_grad_of_input_on(isa, spec, Maxima::First), &[&x, &y, &g], inputs)
                }
                "AvgPool" => execute(avg_pool_on(isa, spec), &[&x], outputs),
                _ => execute(avg_pool_grad_on(isa, spec), &[&g], inputs),
            }
        }
        "LRN" | "LRNGrad" => {
            let (rows, channels) = (sizes[0], sizes[1]);
            let [radius, bias, alpha, beta] = attributes.try_into().unwrap();
            let spec = LrnSpec { data_type: DataType::Float, rows, channels, depth_radius: radius as u64, bias, alpha, beta };
            let total = rows * channels;
            let (x, g) = (made(total, 1), made(total, 3));
            let y = execute(lrn_on(isa, spec), &[&x], total);
            if op == "LRN" { y } else { execute(lrn_grad_on(isa, spec), &[&g, &x, &y], total) }
        }
        other => panic!("{other}"),
    }
}

#[test]
fn as_recorded_from_tensorflow() {
    let mut lines = 0;
    for line in include_str!("testdata/conv.txt").lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let sizes: Vec<u64> = words[1].split(',').map(|size| size.parse().unwrap()).collect();
        let attributes: Vec<f32> = words[2].split(',').filter(|word| *word != "-").map(|word| word.parse().unwrap()).collect();
        let (len, sum): (usize, f64) = (words[3].parse().unwrap(), words[4].parse().unwrap());
        for isa in Isa::available() {
            let got = result(isa, words[0], &sizes, &attributes);
            let what = format!("{} {} {isa:?}", words[0], words[1]);
            assert_eq!(got.len(), len, "{what}");
            for word in &words[5..] {
                let (at, expected) = word.split_once('=').unwrap();
                let (at, expected): (usize, f32) = (at.parse().unwrap(), expected.parse().unwrap());
                assert!((got[at] - expected).abs() <= 2e-5 * (1.0 + expected.abs()), "{what} at {at}: {} and not {expected}", got[at]);
            }
            let total: f64 = got.iter().map(|value| f64::from(*value)).sum();
            assert!((total - sum).abs() <= 1e-6 * len as f64 + 1e-4, "{what}: {total} and not {sum}");
        }
        lines += 1;
    }
    assert!(lines >= 60, "{lines}");
}
