//! Tests of convolutions and their gradients against plain loops, on every instruction set, and against each other.

mod bands;
mod chains;
mod large;
mod panels;
mod winograd;

use std::ops::Range;

use proptest::prelude::*;

use plimsoll_base::{Bf16, DataType, F16};

use super::*;
use crate::element::InFloats;
use crate::library::make;
use crate::pool::{max_pool_grad_on, max_pool_on, max_pool_with_argmax_on};
use crate::testing::{self, floats as numbers};
use plimsoll_request::KernelRequest;
use plimsoll_request::anchor::Anchor;
use plimsoll_request::expr::{BinaryOp, ExprBuilder, Scalar};
use plimsoll_request::pool::{Maxima, PoolSpec, Pooling, Positions};
use plimsoll_request::window::{Axes, WindowAxis};

fn count(shape: Vec<u64>) -> u64 {
    shape.iter().product()
}

/// Calls `visit` with the indices of input, filter and result for every term that is not on the padding.
fn terms(spec: &ConvSpec, mut visit: impl FnMut(usize, usize, usize)) {
    let axes = spec.axes.filled();
    let boxed = |sizes: [u64; 3]| {
        let all = (0..sizes[0]).flat_map(move |z| (0..sizes[1]).map(move |y| (z, y)));
        all.flat_map(move |(z, y)| (0..sizes[2]).map(move |x| [z, y, x]))
    };
    let index = |at: [u64; 3], sizes: [u64; 3]| (at[0] * sizes[1] + at[1]) * sizes[2] + at[2];
    let (sizes, positions, taps) = (axes.map(|axis| axis.size), axes.map(|axis| axis.positions), axes.map(|axis| axis.taps));
    let volume = |sizes: [u64; 3]| sizes.iter().product::<u64>();
    for n in 0..spec.batch {
        for (position, tap) in boxed(positions).flat_map(|position| boxed(taps).map(move |tap| (position, tap))) {
            let seen = [0, 1, 2].map(|at| (position[at] * axes[at].stride + tap[at] * axes[at].dilation).wrapping_sub(axes[at].pad));
            if (0..3).any(|at| seen[at] >= sizes[at]) {
                continue;
            }
            let (of_in, of_out) = (spec.in_c / spec.groups, spec.out_c / spec.groups);
            for (i, o) in (0..spec.in_c).flat_map(|i| (0..spec.out_c).map(move |o| (i, o))) {
                if i / of_in != o / of_out {
                    continue;
                }
                let input = (n * volume(sizes) + index(seen, sizes)) * spec.in_c + i;
                let filter = (index(tap, taps) * of_in + i % of_in) * spec.out_c + o;
                let output = (n * volume(positions) + index(position, positions)) * spec.out_c + o;
                visit(input as usize, filter as usize, output as usize);
            }
        }
    }
}

/// Sums of products with the sums of their absolute values.
type Sums = Vec<(f64, f64)>;

fn add(sums: &mut Sums, at: usize, a: f32, b: f32) {
    let term = f64::from(a) * f64::from(b);
    sums[at].0 += term;
    sums[at].1 += term.abs();
}

fn close(what: &str, got: &[f32], expected: &Sums) -> std::result::Result<(), TestCaseError> {
    prop_assert_eq!(got.len(), expected.len());
    for (at, (value, (exact, scale))) in got.iter().zip(expected).enumerate() {
        prop_assert!((f64::from(*value) - exact).abs() <= 2e-6 * scale + 1e-30, "{what} at {at}: {value} and not {exact}");
    }
    Ok(())
}

fn run(prepared: &Prepared, inputs: &[&[f32]], len: u64, calls: &[Range<u32>]) -> Vec<f32> {
    let inputs: Vec<Vec<u8>> = inputs.iter().map(|values| testing::bytes(values)).collect();
    let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    let mut outputs = vec![vec![0xEE; len as usize * 4]];
    testing::run_pieces(prepared, &inputs, &mut outputs, calls, &[]).unwrap();
    testing::values(&outputs[0])
}

/// All pieces at once, having checked that they make the same one by one from the last.
fn run_both(prepared: &Prepared, inputs: &[&[f32]], len: u64) -> Vec<f32> {
    let all = 0..prepared.chunks;
    let whole = run(prepared, inputs, len, std::slice::from_ref(&all));
    let backwards: Vec<Range<u32>> = (0..prepared.chunks).rev().map(|piece| piece..piece + 1).collect();
    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&whole), bits(&run(prepared, inputs, len, &backwards)), "{prepared:?}");
    whole
}

fn check(spec: &ConvSpec, seed: u64) -> std::result::Result<(), TestCaseError> {
    let (x, w, g) = (numbers(count(spec.input()), seed), numbers(count(spec.filter()), seed ^ 7), numbers(count(spec.output()), seed ^ 13));
    let (mut y, mut dx, mut dw) = (vec![(0.0, 0.0); g.len()], vec![(0.0, 0.0); x.len()], vec![(0.0, 0.0); w.len()]);
    let mut flops = 0.0;
    terms(spec, |i, f, o| {
        add(&mut y, o, x[i], w[f]);
        add(&mut dx, i, w[f], g[o]);
        add(&mut dw, f, x[i], g[o]);
        flops += 2.0;
    });
    for isa in Isa::available() {
        let forward = conv_on(isa, *spec, None).unwrap();
        prop_assert_eq!(forward.cost.flops, flops);
        close(&format!("{isa:?} {spec:?}"), &run_both(&forward, &[&x, &w], g.len() as u64), &y)?;
        let input = conv_backprop_input_on(isa, *spec, None).unwrap();
        close(&format!("by input {isa:?} {spec:?}"), &run_both(&input, &[&w, &g], x.len() as u64), &dx)?;
        let filter = conv_backprop_filter_on(isa, *spec).unwrap();
        close(&format!("by filter {isa:?} {spec:?}"), &run_both(&filter, &[&x, &g], w.len() as u64), &dw)?;
        let (parts, filter) = conv_backprop_filter_in_parts_on(isa, *spec).unwrap();
        let parts = run_both(&filter, &[&x, &g], parts * w.len() as u64);
        let sum = |at: usize| parts.iter().skip(at).step_by(w.len()).sum::<f32>();
        let sums: Vec<f32> = (0..w.len()).map(sum).collect();
        close(&format!("by filter in parts {isa:?} {spec:?}"), &sums, &dw)?;
    }
    Ok(())
}

fn check_depthwise(spec: &ConvSpec, seed: u64) -> std::result::Result<(), TestCaseError> {
    let multiplier = (spec.out_c / spec.in_c) as usize;
    let taps = spec.taps() * spec.out_c;
    let (x, w, g) = (numbers(count(spec.input()), seed), numbers(taps, seed ^ 7), numbers(count(spec.output()), seed ^ 13));
    let (mut y, mut dx, mut dw) = (vec![(0.0, 0.0); g.len()], vec![(0.0, 0.0); x.len()], vec![(0.0, 0.0); w.len()]);
    let (in_c, out_c) = (spec.in_c as usize, spec.out_c as usize);
    terms(spec, |i, f, o| {
        // Of the full filter's elements those that join a channel with its own.
        if o % out_c / multiplier == i % in_c {
            let f = f / (in_c * out_c) * out_c + o % out_c;
            add(&mut y, o, x[i], w[f]);
            add(&mut dx, i, w[f], g[o]);
            add(&mut dw, f, x[i], g[o]);
        }
    });
    for isa in Isa::available() {
        let forward = depthwise_conv_on(isa, *spec, None).unwrap();
        close(&format!("depthwise {isa:?} {spec:?}"), &run_both(&forward, &[&x, &w], g.len() as u64), &y)?;
        let input = depthwise_conv_backprop_input_on(isa, *spec).unwrap();
        close(&format!("depthwise by input {isa:?} {spec:?}"), &run_both(&input, &[&w, &g], x.len() as u64), &dx)?;
        let filter = depthwise_conv_backprop_filter_on(isa, *spec).unwrap();
        close(&format!("depthwise by filter {isa:?} {spec:?}"), &run_both(&filter, &[&x, &g], w.len() as u64), &dw)?;
    }
    Ok(())
}

/// Whole numbers and halves, such that all sums are exact.
fn exact<E: InFloats>(count: u64, seed: u64) -> Vec<E> {
    numbers(count, seed).into_iter().map(|value| E::narrow((value * 8.0).round() / 2.0)).collect()
}

fn exact_sums<E: InFloats>(len: u64, mut each: impl FnMut(&mut dyn FnMut(usize, E, E))) -> Vec<E> {
    let mut sums = vec![0f32; len as usize];
    each(&mut |at, a: E, b: E| sums[at] += a.widen() * b.widen());
    sums.into_iter().map(E::narrow).collect()
}

/// Convolutions of floats of two bytes and their gradients are exact sums, rounded once.
fn check_two_bytes<E: InFloats + testing::Element>(spec: &ConvSpec, seed: u64) -> std::result::Result<(), TestCaseError> {
    let spec = &ConvSpec { data_type: E::TYPE, ..*spec };
    let [inputs, weights, outputs] = [spec.input(), spec.filter(), spec.output()].map(count);
    let (x, w, g) = (exact::<E>(inputs, seed), exact::<E>(weights, seed ^ 7), exact::<E>(outputs, seed ^ 13));
    let y = exact_sums(outputs, |add| terms(spec, |i, f, o| add(o, x[i], w[f])));
    let dx = exact_sums(inputs, |add| terms(spec, |i, f, o| add(i, w[f], g[o])));
    let dw = exact_sums(weights, |add| terms(spec, |i, f, o| add(f, x[i], g[o])));
    for isa in Isa::available() {
        let forward: Vec<E> = run_two_bytes(&conv_on(isa, *spec, None).unwrap(), &[&x, &w], outputs);
        prop_assert!(forward == y, "{isa:?} {spec:?}");
        let input: Vec<E> = run_two_bytes(&conv_backprop_input_on(isa, *spec, None).unwrap(), &[&w, &g], inputs);
        prop_assert!(input == dx, "by input {isa:?} {spec:?}");
        let filter: Vec<E> = run_two_bytes(&conv_backprop_filter_on(isa, *spec).unwrap(), &[&x, &g], weights);
        prop_assert!(filter == dw, "by filter {isa:?} {spec:?}");
        let (parts, filter) = conv_backprop_filter_in_parts_on(isa, *spec).unwrap();
        let filter: Vec<E> = match parts {
            1 => run_two_bytes(&filter, &[&x, &g], weights),
            _ => {
                let sums: Vec<f32> = run_two_bytes(&filter, &[&x, &g], parts * weights);
                let sum = |at: usize| sums.iter().skip(at).step_by(w.len()).sum::<f32>();
                (0..w.len()).map(|at| E::narrow(sum(at))).collect()
            }
        };
        prop_assert!(filter == dw, "by filter in parts {isa:?} {spec:?}");
    }
    Ok(())
}

fn check_depthwise_two_bytes<E: InFloats + testing::Element>(spec: &ConvSpec, seed: u64) -> std::result::Result<(), TestCaseError> {
    let spec = &ConvSpec { data_type: E::TYPE, ..*spec };
    let multiplier = (spec.out_c / spec.in_c) as usize;
    let (in_c, out_c) = (spec.in_c as usize, spec.out_c as usize);
    let (inputs, weights, outputs) = (count(spec.input()), spec.taps() * spec.out_c, count(spec.output()));
    let (x, w, g) = (exact::<E>(inputs, seed), exact::<E>(weights, seed ^ 7), exact::<E>(outputs, seed ^ 13));
    let each = |visit: &mut dyn FnMut(usize, usize, usize)| {
        terms(spec, |i, f, o| {
            if o % out_c / multiplier == i % in_c {
                visit(i, f / (in_c * out_c) * out_c + o % out_c, o);
            }
        });
    };
    let y = exact_sums(outputs, |add| each(&mut |i, f, o| add(o, x[i], w[f])));
    let dx = exact_sums(inputs, |add| each(&mut |i, f, o| add(i, w[f], g[o])));
    let dw = exact_sums(weights, |add| each(&mut |i, f, o| add(f, x[i], g[o])));
    for isa in Isa::available() {
        let forward: Vec<E> = run_two_bytes(&depthwise_conv_on(isa, *spec, None).unwrap(), &[&x, &w], outputs);
        prop_assert!(forward == y, "depthwise {isa:?} {spec:?}");
        let input: Vec<E> = run_two_bytes(&depthwise_conv_backprop_input_on(isa, *spec).unwrap(), &[&w, &g], inputs);
        prop_assert!(input == dx, "depthwise by input {isa:?} {spec:?}");
        let filter: Vec<E> = run_two_bytes(&depthwise_conv_backprop_filter_on(isa, *spec).unwrap(), &[&x, &g], weights);
        prop_assert!(filter == dw, "depthwise by filter {isa:?} {spec:?}");
    }
    Ok(())
}

/// All pieces from the last.
fn run_two_bytes<E: testing::Element, R: testing::Element>(prepared: &Prepared, inputs: &[&[E]], len: u64) -> Vec<R> {
    let inputs: Vec<Vec<u8>> = inputs.iter().map(|values| testing::bytes(values)).collect();
    let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    let mut outputs = vec![vec![0xEE; len as usize * size_of::<R>()]];
    let backwards: Vec<Range<u32>> = (0..prepared.chunks).rev().map(|piece| piece..piece + 1).collect();
    testing::run_pieces(prepared, &inputs, &mut outputs, &backwards, &[]).unwrap();
    testing::values(&outputs[0])
}

/// Operands of two bytes are widened a few positions at a time: scratch does not grow with them.
#[test]
fn convolutions_of_two_bytes_need_little_scratch() {
    for (batch, in_c, out_c, axes) in [
        (64, 64, 64, vec![same(224, 3, 1); 2]),
        (1, 2048, 2048, vec![same(64, 3, 1); 2]),
        (1, 512, 1 << 16, vec![same(8, 3, 1); 2]),
        (1, 1 << 16, 8, vec![same(8, 3, 1); 2]),
        (1, 16, 16, vec![same(1 << 22, 9, 1)]),
        (2, 1, 1, vec![same(2048, 11, 4); 2]),
        (1, 8, 8, vec![same(256, 3, 1); 3]),
    ] {
        let spec = ConvSpec { data_type: DataType::Half, ..spec(batch, in_c, out_c, &axes) };
        for isa in [Isa::Portable, Isa::Avx2, Isa::Avx512] {
            let made = [
                ("forward", conv_on(isa, spec, None).unwrap(), 1 << 20),
                ("by input", conv_backprop_input_on(isa, spec, None).unwrap(), 1 << 20),
                ("by filter", conv_backprop_filter_on(isa, spec).unwrap(), 3 << 20),
            ];
            for anchor in [Anchor::Conv(spec), Anchor::ConvBackpropInput(spec)] {
                let made = make(isa, &KernelRequest::Anchor { anchor, epilogue: None, pooling: None }).unwrap();
                assert!(made.between.is_empty() && made.steps.len() == 1);
            }
            for (what, prepared, most) in made {
                assert_eq!(prepared.scratch, 0);
                assert!(prepared.per_worker <= most, "{what} {isa:?} {spec:?}: {}", prepared.per_worker);
            }
        }
    }
}

/// Sizes of a result as SAME, VALID or anything else would have them, along so many axes.
fn specs(axes: std::ops::RangeInclusive<usize>, dilation: u64) -> impl Strategy<Value = ConvSpec> {
    let channels = || prop_oneof![1..6u64, Just(16), 15..40u64, Just(67)];
    let axis = (0..14u64, 1..6u64, 1..4u64, 0..5u64, 0..4u64, 1..=dilation).prop_map(|(size, taps, stride, pad, after, dilation)| {
        let room = (size + pad + after).checked_sub((taps - 1) * dilation + 1);
        WindowAxis { size, positions: room.map_or(0, |room| room / stride + 1), taps, stride, dilation, pad }
    });
    let axes = proptest::collection::vec(axis, axes).prop_map(|mut axes| {
        // Planes cost much, and few say all.
        if let [planes, _, _] = &mut axes[..] {
            (planes.size, planes.positions) = (planes.size.min(5), planes.positions.min(3));
        }
        axes
    });
    (prop_oneof![Just(1u64), 0..4u64], axes, channels(), channels()).prop_map(|(batch, axes, in_c, out_c)| spec(batch, in_c, out_c, &axes))
}

fn spec(batch: u64, in_c: u64, out_c: u64, axes: &[WindowAxis]) -> ConvSpec {
    ConvSpec { data_type: DataType::Float, batch, in_c, out_c, axes: Axes::new(axes).unwrap(), layout: Layout::ChannelsLast, groups: 1 }
}

/// An axis that is padded as SAME says.
fn same(size: u64, taps: u64, stride: u64) -> WindowAxis {
    let positions = size.div_ceil(stride);
    let pad = ((positions - 1) * stride + taps).saturating_sub(size) / 2;
    WindowAxis { size, positions, taps, stride, dilation: 1, pad }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn convolutions_and_gradients_agree_with_plain_loops(spec in specs(2..=2, 1), seed in any::<u64>()) {
        check(&spec, seed)?;
        check_two_bytes::<Bf16>(&spec, seed)?;
    }

    #[test]
    fn convolutions_along_any_axes_with_dilation_and_gradients_agree_with_plain_loops(spec in specs(1..=3, 3), seed in any::<u64>()) {
        check(&spec, seed)?;
        check_two_bytes::<F16>(&spec, seed)?;
    }

    #[test]
    fn convolutions_in_groups_and_gradients_agree_with_plain_loops(spec in specs(1..=3, 2), groups in 2..6u64, seed in any::<u64>()) {
        let spec = ConvSpec { in_c: (spec.in_c / 2 + 1) * groups, out_c: (spec.out_c / 2 + 1) * groups, groups, ..spec };
        check(&spec, seed)?;
        check_two_bytes::<F16>(&spec, seed)?;
    }

    #[test]
    fn depthwise_convolutions_and_gradients_agree_with_plain_loops(spec in specs(1..=2, 3), multiplier in 1..4u64, seed in any::<u64>()) {
        let spec = ConvSpec { out_c: spec.in_c * multiplier, ..spec };
        check_depthwise(&spec, seed)?;
        check_depthwise_two_bytes::<F16>(&spec, seed)?;
        check_depthwise_two_bytes::<Bf16>(&spec, seed)?;
    }

    /// `<conv(x, w), g> = <x, by input> = <w, by filter>`.
    #[test]
    fn gradients_are_adjoint(spec in specs(1..=3, 3), seed in any::<u64>()) {
        let (x, w, g) = (numbers(count(spec.input()), seed), numbers(count(spec.filter()), seed ^ 7), numbers(count(spec.output()), seed ^ 13));
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
        let y = run_both(&conv(spec, None).unwrap(), &[&x, &w], g.len() as u64);
        let dx = run_both(&conv_backprop_input(spec, None).unwrap(), &[&w, &g], x.len() as u64);
        let dw = run_both(&conv_backprop_filter(spec).unwrap(), &[&x, &g], w.len() as u64);
        let products = [dot(&y, &g), dot(&x, &dx), dot(&w, &dw)];
        let most = 1e-5 * (1.0 + y.iter().zip(&g).map(|(a, b)| f64::from((a * b).abs())).sum::<f64>());
        prop_assert!((products[0] - products[1]).abs() <= most && (products[0] - products[2]).abs() <= most, "{spec:?}: {products:?}");
    }
}

fn base() -> ConvSpec {
    spec(1, 3, 5, &[same(6, 3, 1), same(7, 3, 1)])
}

#[test]
fn many_channels_are_summed_in_blocks() {
    let check = |spec: &ConvSpec, seed| {
        check_two_bytes::<F16>(spec, seed)?;
        super::tests::check(spec, seed)
    };
    check(&ConvSpec { in_c: 400, out_c: 70, ..base() }, 1).unwrap();
    check(&spec(1, 1100, 9, &[same(3, 3, 1); 2]), 2).unwrap();
    check(&spec(1, 9, 1100, &[same(3, 3, 1); 2]), 3).unwrap();
    check(&spec(5, 300, 40, &[same(4, 3, 2); 2]), 4).unwrap();
    check(&spec(2, 300, 40, &[same(3, 3, 1), same(4, 2, 2), same(3, 3, 1)]), 5).unwrap();
}

#[test]
fn many_images_are_cut() {
    let check = |spec: &ConvSpec, seed| {
        check_two_bytes::<Bf16>(spec, seed)?;
        super::tests::check(spec, seed)
    };
    let many = spec(70, 16, 32, &[same(12, 5, 1); 2]);
    assert!(conv(many, None).unwrap().chunks > 8);
    check(&many, 5).unwrap();
    let few = ConvSpec { in_c: 3, ..many };
    assert!(conv_backprop_filter_in_parts(few).unwrap().0 > 1);
    check(&few, 6).unwrap();
    let deep = spec(3, 5, 17, &[same(7, 3, 1), same(24, 3, 1), same(24, 3, 1)]);
    assert!(conv(deep, None).unwrap().chunks > 3);
    check(&deep, 7).unwrap();
}

/// Rows whose operands or results are more than scratch has room for.
#[test]
fn long_rows_of_two_bytes_are_cut() {
    for spec in [
        spec(1, 3, 40, &[same(5000, 5, 1)]),
        spec(1, 40, 3, &[same(3000, 3, 2)]),
        spec(1, 24, 40, &[same(3, 3, 1), same(4000, 3, 1)]),
        spec(1, 4, 6000, &[same(5, 3, 1), same(17, 3, 1)]),
    ] {
        check_two_bytes::<F16>(&spec, 8).unwrap();
    }
    let long = ConvSpec { data_type: DataType::Half, ..spec(1, 3, 40, &[same(5000, 5, 1)]) };
    assert!(conv(long, None).unwrap().chunks > 1);
}

#[test]
fn depthwise_convolutions_are_cut() {
    let spec = spec(3, 96, 96, &[same(28, 3, 1); 2]);
    assert!(depthwise_conv(spec, None).unwrap().chunks > 1);
    check_depthwise(&spec, 6).unwrap();
    assert!(depthwise_conv(ConvSpec { out_c: 97, ..spec }, None).is_err());
    assert!(depthwise_conv(ConvSpec { in_c: 0, ..spec }, None).is_err());
    assert!(conv(ConvSpec { groups: 5, ..spec }, None).is_err());
    assert!(conv(ConvSpec { groups: 0, ..spec }, None).is_err());
    assert!(depthwise_conv(ConvSpec { axes: Axes::new(&[same(28, 3, 1); 3]).unwrap(), ..spec }, None).is_err());
}

/// Rows of every length up to three tiles, of which positions see one tap fewer, or two, on either side or on none; whole vectors of channels
/// and parts of them.
#[test]
fn depthwise_convolutions_agree_at_the_edges_of_rows() {
    for (size, pad, after) in (1..20u64).flat_map(|size| (0..9u64).map(move |at| (size, at / 3, at % 3))) {
        let Some(room) = (size + pad + after).checked_sub(3) else { continue };
        let row = WindowAxis { size, positions: room + 1, taps: 3, stride: 1, dilation: 1, pad };
        for channels in [16, 21] {
            check_depthwise(&spec(1, channels, channels, &[same(3, 3, 1), row]), 8).unwrap();
        }
    }
}

/// The same with another first axis.
fn with(mut spec: ConvSpec, change: impl Fn(&mut WindowAxis)) -> ConvSpec {
    change(&mut spec.axes[0]);
    spec
}

#[test]
fn sizes_that_make_no_sense_are_refused() {
    for spec in [
        with(base(), |axis| axis.taps = 0),
        with(base(), |axis| axis.stride = 0),
        with(base(), |axis| axis.pad = u64::MAX),
        ConvSpec { in_c: u64::MAX, ..base() },
        ConvSpec { batch: 1 << 40, out_c: 1 << 40, ..base() },
        with(base(), |axis| axis.taps = 1 << 62),
        with(base(), |axis| axis.dilation = 0),
        with(base(), |axis| axis.dilation = u64::MAX),
        ConvSpec { layout: Layout::ChannelsFirst, ..base() },
    ] {
        assert!(conv(spec, None).is_err(), "{spec:?}");
        assert!(conv_backprop_input(spec, None).is_err(), "{spec:?}");
        assert!(conv_backprop_filter(spec).is_err(), "{spec:?}");
    }
}

/// `max(conv + bias, 0)` and, if `positive`, whether that is more than 0.
fn relu(channels: u64, positive: bool, kept: bool) -> Epilogue {
    let mut builder = ExprBuilder::new();
    let (conv, bias) = (builder.input(DataType::Float).unwrap(), builder.input(DataType::Float).unwrap());
    let zero = builder.constant(Scalar::from_f64(DataType::Float, 0.0).unwrap());
    let sum = builder.binary(BinaryOp::Add, conv, bias).unwrap();
    let value = builder.binary(BinaryOp::Maximum, sum, zero).unwrap();
    let mut outputs = Vec::new();
    if positive {
        outputs.push(builder.binary(BinaryOp::Greater, value, zero).unwrap());
    }
    if kept {
        outputs.push(value);
    }
    Epilogue { expr: builder.finish(outputs), operands: vec![vec![channels]] }
}

/// Of a computation of `result` from so many numbers and so many others.
fn check_epilogue(from: [u64; 2], result: Vec<u64>, prepare: impl Fn(Isa, Option<Epilogue>) -> Result<Prepared>) {
    let channels = *result.last().unwrap();
    let (x, w, bias) = (numbers(from[0], 1), numbers(from[1], 2), numbers(channels, 3));
    let len = count(result.clone()) as usize;
    for isa in Isa::available() {
        let plain = run_both(&prepare(isa, None).unwrap(), &[&x, &w], len as u64);
        let expected: Vec<f32> = plain.iter().enumerate().map(|(at, value)| (value + bias[at % bias.len()]).max(0.0)).collect();
        for (positive, kept) in [(false, true), (true, true), (true, false)] {
            let prepared = prepare(isa, Some(relu(channels, positive, kept))).unwrap();
            let inputs = [testing::bytes(&x), testing::bytes(&w), testing::bytes(&bias)];
            let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
            let mut outputs = Vec::new();
            if positive {
                outputs.push(vec![0xEE; len]);
            }
            if kept {
                outputs.push(vec![0xEE; 4 * len]);
            }
            let calls: Vec<Range<u32>> = (0..prepared.chunks).rev().map(|piece| piece..piece + 1).collect();
            testing::run_pieces(&prepared, &inputs, &mut outputs, &calls, &[]).unwrap();
            if kept {
                assert_eq!(testing::values::<f32>(outputs.last().unwrap()), expected, "{isa:?} {result:?}");
            }
            if positive {
                let signs: Vec<bool> = expected.iter().map(|value| *value > 0.0).collect();
                assert_eq!(testing::values::<bool>(&outputs[0]), signs, "{isa:?} {result:?}");
            }
        }
    }
}

#[test]
fn epilogues_are_applied_to_every_element_once() {
    for spec in [
        base(),
        ConvSpec { out_c: 200, batch: 3, ..base() },
        spec(40, 3, 64, &[same(24, 3, 1); 2]),
        spec(1, 64, 500, &[same(30, 3, 2); 2]),
        spec(2, 3, 200, &[same(4, 3, 1), same(9, 2, 2), same(8, 3, 1)]),
    ] {
        let [input, filter, output] = [spec.input(), spec.filter(), spec.output()].map(count);
        check_epilogue([input, filter], spec.output(), |isa, epilogue| conv_on(isa, spec, epilogue));
        check_epilogue([filter, output], spec.input(), |isa, epilogue| conv_backprop_input_on(isa, spec, epilogue));
    }
    for (channels, multiplier) in [(3, 1), (144, 1), (20, 2)] {
        let spec = spec(5, channels, channels * multiplier, &[same(20, 3, 1); 2]);
        let from = [count(spec.input()), spec.taps() * spec.out_c];
        check_epilogue(from, spec.output(), |isa, epilogue| depthwise_conv_on(isa, spec, epilogue));
    }
}

/// `max(conv + other, 0)`, with another operand that is as large as the result, which may be written over it.
fn check_in_place(from: [u64; 2], result: Vec<u64>, prepare: impl Fn(Isa, Option<Epilogue>) -> Result<Prepared>) {
    let len = count(result.clone());
    let (x, w, other) = (numbers(from[0], 1), numbers(from[1], 2), numbers(len, 3));
    for isa in Isa::available() {
        let plain = run_both(&prepare(isa, None).unwrap(), &[&x, &w], len);
        let expected: Vec<f32> = plain.iter().zip(&other).map(|(value, other)| (value + other).max(0.0)).collect();
        let epilogue = Epilogue { operands: vec![result.clone()], ..relu(len, false, true) };
        let prepared = prepare(isa, Some(epilogue)).unwrap();
        assert_eq!(prepared.in_place, [(2, 0)], "{isa:?} {result:?}");
        let inputs = [testing::bytes(&x), testing::bytes(&w), testing::bytes(&other)];
        let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        let calls: Vec<Range<u32>> = (0..prepared.chunks).rev().map(|piece| piece..piece + 1).collect();
        for pairs in [&[][..], &[(2, 0)]] {
            let mut outputs = [vec![0xEE; 4 * len as usize]];
            testing::run_pieces(&prepared, &inputs, &mut outputs, &calls, pairs).unwrap();
            assert!(testing::values::<f32>(&outputs[0]) == expected, "{isa:?} {result:?} {pairs:?}");
        }
    }
}

#[test]
fn results_are_written_over_operands_of_an_epilogue() {
    for spec in [
        base(),
        ConvSpec { out_c: 200, batch: 3, ..base() },
        spec(40, 3, 64, &[same(24, 3, 1); 2]),
        spec(2, 64, 500, &[same(30, 3, 2); 2]),
        spec(9, 100, 300, &[same(5, 3, 1), same(7, 3, 1)]),
        spec(2, 3, 200, &[same(4, 3, 1), same(9, 2, 2), same(8, 3, 1)]),
    ] {
        let [input, filter, output] = [spec.input(), spec.filter(), spec.output()].map(count);
        check_in_place([input, filter], spec.output(), |isa, epilogue| conv_on(isa, spec, epilogue));
        check_in_place([filter, output], spec.input(), |isa, epilogue| conv_backprop_input_on(isa, spec, epilogue));
    }
    let spec = spec(5, 144, 144, &[same(20, 3, 1); 2]);
    let from = [count(spec.input()), spec.taps() * spec.out_c];
    check_in_place(from, spec.output(), |isa, epilogue| depthwise_conv_on(isa, spec, epilogue));
}

#[test]
fn epilogues_that_do_not_fit_are_refused() {
    let mut epilogue = relu(base().out_c, false, true);
    epilogue.operands.clear();
    assert!(conv(base(), Some(epilogue)).is_err());
    let mut epilogue = relu(base().out_c, false, true);
    epilogue.operands[0] = vec![base().out_c + 1];
    assert!(conv(base(), Some(epilogue)).is_err());
}

fn pooled(spec: &ConvSpec) -> PoolSpec {
    let axis = |axis: &WindowAxis, taps, pad| WindowAxis {
        size: axis.positions,
        positions: axis.positions.div_ceil(2),
        taps,
        stride: 2,
        dilation: 1,
        pad,
    };
    let axes = Axes::new(&[axis(&spec.axes[0], 3, 1), axis(&spec.axes[1], 2, 0)]).unwrap();
    PoolSpec { data_type: DataType::Float, batch: spec.batch, channels: spec.out_c, axes, layout: Layout::ChannelsLast }
}

/// What a kernel makes of these bytes, the last piece first: outputs of so many bytes.
fn backwards(prepared: &Prepared, inputs: &[&[u8]], sizes: &[usize]) -> Vec<Vec<u8>> {
    let mut outputs: Vec<Vec<u8>> = sizes.iter().map(|size| vec![0xEE; *size]).collect();
    let pieces: Vec<Range<u32>> = (0..prepared.chunks).rev().map(|piece| piece..piece + 1).collect();
    testing::run_pieces(prepared, inputs, &mut outputs, &pieces, &[]).unwrap();
    outputs
}

/// Results that are pooled at once, and results that are never made, give the bits of results that are made first.
#[test]
fn pooling_is_the_same_at_once() {
    for spec in
        [base(), spec(40, 3, 64, &[same(24, 3, 1); 2]), spec(9, 20, 70, &[same(5, 3, 1), same(7, 3, 1)]), ConvSpec { batch: 0, ..base() }]
    {
        let pool = pooled(&spec);
        let numbers = [count(spec.input()), count(spec.filter()), spec.out_c, count(pool.output())].map(|count| numbers(count, count));
        let [x, w, bias, g] = numbers.map(|numbers| testing::bytes(&numbers));
        let (made, left) = (4 * count(spec.output()) as usize, count(pool.output()) as usize);
        let run = |prepared: Prepared, inputs: &[&[u8]], sizes: &[usize]| backwards(&prepared, inputs, sizes);
        for isa in Isa::available() {
            let epilogue = || Some(relu(spec.out_c, false, true));
            let conv = run(conv_on(isa, spec, epilogue()).unwrap(), &[&x, &w, &bias], &[made]);
            let pooling =
                |positions| conv_pooled_on(isa, spec, epilogue(), Pooling { spec: pool, maxima: Maxima::First, positions }).unwrap();
            let expected = run(max_pool_on(isa, pool, Maxima::First).unwrap(), &[&conv[0]], &[4 * left]);
            assert_eq!(run(pooling(Positions::None), &[&x, &w, &bias], &[4 * left]), expected, "{isa:?} {spec:?}");
            for positions in [Positions::All, Positions::Positive] {
                let separate = max_pool_with_argmax_on(isa, pool, positions == Positions::Positive).unwrap();
                let expected = run(separate, &[&conv[0]], &[4 * left, left]);
                let got = run(pooling(positions), &[&x, &w, &bias], &[4 * left, left]);
                assert_eq!(got, expected, "{isa:?} {spec:?} {positions:?}");
                let Some((parts, unpooled)) = conv_backprop_filter_unpooled_on(isa, spec, pool).unwrap() else { continue };
                let grad = run(max_pool_grad_on(isa, pool).unwrap(), &[&got[1], &g], &[made]);
                let (same_parts, prepared) = conv_backprop_filter_in_parts_on(isa, spec).unwrap();
                assert_eq!(parts, same_parts);
                let size = 4 * (parts * count(spec.filter())) as usize;
                let expected = run(prepared, &[&x, &grad[0]], &[size]);
                assert_eq!(run(unpooled, &[&x, &got[1], &g], &[size]), expected, "{isa:?} {spec:?} {positions:?}");
            }
        }
    }
}

#[test]
fn pooling_at_once_has_to_fit() {
    let spec = spec(40, 3, 64, &[same(24, 3, 1); 2]);
    let pool = pooled(&spec);
    assert!(conv_backprop_filter_unpooled(spec, pool).unwrap().is_some());
    let mut other = pool;
    other.axes[0].size = 23;
    assert!(conv_backprop_filter_unpooled(spec, other).is_err());
    assert!(conv_pooled(spec, None, Pooling { spec: other, maxima: Maxima::First, positions: Positions::None }).is_err());
    let several = Some(relu(64, true, true));
    assert!(conv_pooled(spec, several, Pooling { spec: pool, maxima: Maxima::First, positions: Positions::None }).is_err());
}
