//! Sums of rounded operands against plain loops in doubles.

use std::ops::Range;

use plimsoll_base::{Bf16, Random};
use plimsoll_device::{Bf16Instructions, StepArg};
use plimsoll_request::KernelRequest;
use plimsoll_request::anchor::{Anchor, Epilogue};
use plimsoll_request::conv::ConvSpec;
use plimsoll_request::expr::{BinaryOp, ExprBuilder, UnaryOp};
use plimsoll_request::pool::{Maxima, PoolSpec, Pooling, Positions};
use plimsoll_request::product::{Place, Places, ProductSpec};
use plimsoll_request::window::{Axes, Layout, WindowAxis};
use proptest::prelude::*;

use super::prepare;
use crate::library::Made;
use crate::simd::Isa;
use crate::testing;

/// Whether the processor has the instructions; says where it has not.
fn has_instructions() -> bool {
    let has = Bf16Instructions::detect().is_some();
    if !has {
        eprintln!("skipped: the processor has no AVX512-BF16");
    }
    has
}

fn numbers(count: u64, random: &mut Random) -> Vec<f32> {
    (0..count).map(|_| (random.next() >> 40) as f32 / (1 << 23) as f32 - 1.0).collect()
}

/// The number as the instructions round it.
fn rounded(number: f32) -> f64 {
    f64::from(Bf16::from_f32(number).to_f32())
}

/// The results of all kernels of a request: at once, and piece by piece from the last, with guards around all memory.
fn run(made: &Made, inputs: &[Vec<f32>], outputs: &[u64]) -> Vec<Vec<u8>> {
    let one = |backwards: bool| {
        let mut arguments: Vec<Vec<u8>> = inputs.iter().map(|values| testing::bytes(values)).collect();
        arguments.extend(outputs.iter().map(|bytes| vec![0xEE; *bytes as usize]));
        let mut between: Vec<Option<Vec<u8>>> = vec![None; made.between.len()];
        for (prepared, args) in &made.steps {
            let all = || (0..arguments.len() as u32).map(StepArg::Argument).collect();
            let args = args.clone().unwrap_or_else(all);
            let is_output = |arg: &StepArg| match arg {
                StepArg::Argument(index) => *index as usize >= inputs.len(),
                StepArg::Between(index) => between[*index as usize].is_none(),
            };
            let of = |arg: &StepArg| match arg {
                StepArg::Argument(index) => arguments[*index as usize].clone(),
                StepArg::Between(index) => {
                    between[*index as usize].clone().unwrap_or_else(|| vec![0xEE; made.between[*index as usize] as usize])
                }
            };
            let (read, written): (Vec<&StepArg>, Vec<&StepArg>) = args.iter().partition(|arg| !is_output(arg));
            let read: Vec<Vec<u8>> = read.into_iter().map(of).collect();
            let read: Vec<&[u8]> = read.iter().map(Vec::as_slice).collect();
            let mut results: Vec<Vec<u8>> = written.iter().map(|arg| of(arg)).collect();
            let all = 0..prepared.chunks;
            let pieces: Vec<Range<u32>> = all.clone().rev().map(|piece| piece..piece + 1).collect();
            let calls = if backwards { &pieces[..] } else { std::slice::from_ref(&all) };
            testing::run_pieces(prepared, &read, &mut results, calls, &[]).unwrap();
            for (arg, result) in written.into_iter().zip(results) {
                match arg {
                    StepArg::Argument(index) => arguments[*index as usize] = result,
                    StepArg::Between(index) => between[*index as usize] = Some(result),
                }
            }
        }
        arguments.split_off(inputs.len())
    };
    let whole = one(false);
    assert!(whole == one(true), "pieces change the bits");
    whole
}

/// The results of a request, of floats.
fn results(request: &KernelRequest, inputs: &[Vec<f32>]) -> Option<Vec<f32>> {
    let (made, loads) = prepare(request).unwrap()?;
    assert_eq!(made.steps.len(), loads.len());
    Some(testing::values(&run(&made, inputs, &request.arguments().unwrap().outputs)[0]))
}

/// Sums of products with the sums of their absolute values.
type Sums = Vec<(f64, f64)>;

fn add(sum: &mut (f64, f64), a: f32, b: f32) {
    let term = rounded(a) * rounded(b);
    *sum = (sum.0 + term, sum.1 + term.abs());
}

fn close(what: &str, got: &[f32], expected: &Sums) {
    assert_eq!(got.len(), expected.len(), "{what}");
    for (at, (value, (exact, scale))) in got.iter().zip(expected).enumerate() {
        assert!((f64::from(*value) - exact).abs() <= 4e-6 * scale + 1e-30, "{what} at {at}: {value} and not {exact}");
    }
}

fn anchor(anchor: Anchor, epilogue: Option<Epilogue>) -> KernelRequest {
    KernelRequest::Anchor { anchor, epilogue, pooling: None }
}

/// What follows the larger of 0 and a number with a bias added.
#[derive(Clone, Copy)]
enum Behind {
    /// Times an element.
    Scale,
    /// Its tanh, times an element: a chain with a function.
    TanhScale,
    /// The tanh of it times an element, plus the number: no chain.
    ScaleTanh,
}

impl Behind {
    fn of(self, relu: f32, scale: f32) -> f32 {
        match self {
            Behind::Scale => relu * scale,
            Behind::TanhScale => relu.tanh() * scale,
            Behind::ScaleTanh => (relu * scale).tanh() + relu,
        }
    }
}

fn finish(columns: u64, shape: &[u64], behind: Behind) -> Epilogue {
    let mut b = ExprBuilder::new();
    let [x, bias, scale] = [(); 3].map(|()| b.input(plimsoll_base::DataType::Float).unwrap());
    let zero = b.number(plimsoll_base::DataType::Float, 0.0).unwrap();
    let sum = b.binary(BinaryOp::Add, x, bias).unwrap();
    let relu = b.binary(BinaryOp::Maximum, sum, zero).unwrap();
    let first = if let Behind::TanhScale = behind { b.unary(UnaryOp::Tanh, relu).unwrap() } else { relu };
    let mut result = b.binary(BinaryOp::Mul, first, scale).unwrap();
    if let Behind::ScaleTanh = behind {
        let tanh = b.unary(UnaryOp::Tanh, result).unwrap();
        result = b.binary(BinaryOp::Add, tanh, relu).unwrap();
    }
    Epilogue { expr: b.finish(vec![result]), operands: vec![vec![columns], shape.to_vec()] }
}

/// A request with an epilogue gives what its results without one become by it.
fn check_finish(of: impl Fn(Option<Epilogue>) -> KernelRequest, inputs: &[Vec<f32>], plain: &[f32], shape: &[u64], random: &mut Random) {
    let columns = shape[shape.len() - 1];
    let [bias, scale] = [columns, shape.iter().product()].map(|count| numbers(count, random));
    for behind in [Behind::Scale, Behind::TanhScale, Behind::ScaleTanh] {
        let inputs = [inputs, &[bias.clone(), scale.clone()]].concat();
        let got = results(&of(Some(finish(columns, shape, behind))), &inputs).unwrap();
        for (at, (got, plain)) in got.iter().zip(plain).enumerate() {
            let relu = (plain + bias[at % columns as usize]).max(0.0);
            let expected = behind.of(relu, scale[at]);
            // A few units in the last place of the tanh, which is at most 1, and of what it is added to.
            let bound = match behind {
                Behind::Scale => 0.0,
                Behind::TanhScale => 1e-6,
                Behind::ScaleTanh => 1e-6 * relu.max(1.0),
            };
            assert!((got - expected).abs() <= bound, "{at}: {got} and not {expected}");
        }
    }
}

fn check_product(spec: ProductSpec, seed: u64) {
    let mut random = Random::new(seed);
    let places = spec.places();
    let [a, b, c] = spec.extents().unwrap();
    let inputs = vec![numbers(a, &mut random), numbers(b, &mut random)];
    let request = anchor(Anchor::Product(plimsoll_base::DataType::Float, spec), None);
    let Some(got) = results(&request, &inputs) else {
        assert!(spec.k < 16 || spec.n < 16, "{spec:?}");
        return;
    };
    let mut expected = vec![(f64::NAN, 0.0); c as usize];
    let matrices = crate::product::Matrices::new(&places);
    for matrix in 0..spec.batch {
        let [a, b, c] = matrices.of(matrix as usize);
        for (row, column) in (0..spec.m).flat_map(|row| (0..spec.n).map(move |column| (row, column))) {
            let mut sum = (0.0, 0.0);
            for term in 0..spec.k {
                let left = if spec.transpose_a { term * places.a.row + row } else { row * places.a.row + term };
                let right = if spec.transpose_b { column * places.b.row + term } else { term * places.b.row + column };
                add(&mut sum, inputs[0][a + left as usize], inputs[1][b + right as usize]);
            }
            expected[c + (row * places.c.row + column) as usize] = sum;
        }
    }
    let (got_there, there): (Vec<f32>, Sums) = got.iter().zip(&expected).filter(|(_, (exact, _))| !exact.is_nan()).unzip();
    close(&format!("{spec:?}"), &got_there, &there);
    if spec.batch == 1 && spec.places.is_none() {
        let of = |epilogue| anchor(Anchor::Product(plimsoll_base::DataType::Float, spec), epilogue);
        check_finish(of, &inputs, &got, &[spec.m, spec.n], &mut random);
    }
}

/// Calls `visit` with the indices of input, filter and result for every term that is not on the padding.
fn terms(spec: &ConvSpec, mut visit: impl FnMut(usize, usize, usize)) {
    let [_, y, x] = spec.axes.filled();
    let pairs = |one: u64, other: u64| (0..one).flat_map(move |a| (0..other).map(move |b| (a, b)));
    let seen = |axis: &WindowAxis, position: u64, tap: u64| {
        (position * axis.stride + tap * axis.dilation).checked_sub(axis.pad).filter(|index| *index < axis.size)
    };
    for (image, (row, column)) in (0..spec.batch).flat_map(|image| pairs(y.positions, x.positions).map(move |at| (image, at))) {
        for (tap_y, tap_x) in pairs(y.taps, x.taps) {
            let (Some(line), Some(place)) = (seen(&y, row, tap_y), seen(&x, column, tap_x)) else { continue };
            for (i, o) in pairs(spec.in_c, spec.out_c) {
                let input = ((image * y.size + line) * x.size + place) * spec.in_c + i;
                let filter = ((tap_y * x.taps + tap_x) * spec.in_c + i) * spec.out_c + o;
                let output = ((image * y.positions + row) * x.positions + column) * spec.out_c + o;
                visit(input as usize, filter as usize, output as usize);
            }
        }
    }
}

fn check_conv(spec: ConvSpec, seed: u64) {
    let mut random = Random::new(seed);
    let count = |shape: Vec<u64>| shape.iter().product::<u64>();
    let [x, w, g] = [spec.input(), spec.filter(), spec.output()].map(|shape| numbers(count(shape), &mut random));
    let (mut y, mut dx, mut dw) = (vec![(0.0, 0.0); g.len()], vec![(0.0, 0.0); x.len()], vec![(0.0, 0.0); w.len()]);
    terms(&spec, |i, f, o| {
        add(&mut y[o], x[i], w[f]);
        add(&mut dx[i], w[f], g[o]);
        add(&mut dw[f], x[i], g[o]);
    });
    let taps: u64 = spec.filter()[..2].iter().product();
    for (of, inputs, expected, shape, channels, summed) in [
        (Anchor::Conv(spec), [&x, &w], &y, spec.output(), spec.out_c, spec.in_c),
        (Anchor::ConvBackpropInput(spec), [&w, &g], &dx, spec.input(), spec.in_c, spec.out_c),
    ] {
        let inputs = inputs.map(Vec::clone);
        let of = |epilogue| anchor(of, epilogue);
        let Some(got) = results(&of(None), &inputs) else {
            assert!(channels < 16 || taps * summed < 16, "{spec:?}");
            continue;
        };
        close(&format!("{:?}", of(None)), &got, expected);
        check_finish(of, &inputs, &got, &shape, &mut random);
    }
    let request = KernelRequest::ConvBackpropFilter { spec, unpooled: None };
    match results(&request, &[x, g]) {
        Some(got) => close(&format!("{request:?}"), &got, &dw),
        None => assert!(spec.out_c < 16 || spec.batch == 0 || y.is_empty(), "{spec:?}"),
    }
}

fn spec(batch: u64, in_c: u64, out_c: u64, axes: &[WindowAxis]) -> ConvSpec {
    let (data_type, layout) = (plimsoll_base::DataType::Float, Layout::ChannelsLast);
    ConvSpec { data_type, batch, in_c, out_c, axes: Axes::new(axes).unwrap(), layout, groups: 1 }
}

fn products() -> impl Strategy<Value = ProductSpec> {
    let size = || prop_oneof![1..20u64, 16..80u64, Just(130u64)];
    let matrices = prop_oneof![4 => Just(1u64), 1 => 0..4u64];
    (matrices, 0..60u64, size(), size(), any::<bool>(), any::<bool>()).prop_map(|(batch, m, n, k, transpose_a, transpose_b)| ProductSpec {
        batch,
        m,
        n,
        k,
        transpose_a,
        transpose_b,
        places: None,
    })
}

fn convs() -> impl Strategy<Value = ConvSpec> {
    let channels = || prop_oneof![1..6u64, Just(16), 15..40u64, Just(67), Just(130)];
    let axis = || {
        (1..6u64, 1..4u64, 1..3u64, 1..14u64).prop_flat_map(|(taps, stride, dilation, size)| {
            let extent = (taps - 1) * dilation + 1;
            (0..extent, 0..extent).prop_map(move |(pad, after)| {
                let positions = (size + pad + after + stride).saturating_sub(extent) / stride;
                WindowAxis { size, positions, taps, stride, dilation, pad }
            })
        })
    };
    (0..4u64, axis(), axis(), channels(), channels()).prop_map(|(batch, y, x, in_c, out_c)| spec(batch, in_c, out_c, &[y, x]))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn products_agree_with_plain_loops(spec in products(), seed in any::<u64>()) {
        if has_instructions() {
            check_product(spec, seed);
        }
    }

    #[test]
    fn convolutions_and_their_gradients_agree_with_plain_loops(spec in convs(), seed in any::<u64>()) {
        if has_instructions() {
            check_conv(spec, seed);
        }
    }
}

/// Products of many pieces, and of matrices that lie apart.
#[test]
fn large_products_agree_with_plain_loops() {
    if !has_instructions() {
        return;
    }
    let plain = |batch, m, n, k| ProductSpec { batch, m, n, k, transpose_a: false, transpose_b: false, places: None };
    for spec in [plain(1, 300, 200, 500), plain(1, 7, 900, 333), plain(1, 1000, 33, 64), plain(5, 64, 64, 48)] {
        for (transpose_a, transpose_b) in [(false, false), (true, false), (false, true), (true, true)] {
            check_product(ProductSpec { transpose_a, transpose_b, ..spec }, spec.m);
        }
    }
    // Heads beside each other, with one right side for all, and with one for each.
    let (batch, time, heads, depth) = (3, 17, 2, 16);
    let head = Place { row: heads * depth, matrix: [0, 0, time * heads * depth, depth] };
    let scores = Place { row: time, matrix: [0, 0, heads * time * time, time * time] };
    let places = Places { sizes: [1, 1, batch, heads], a: head, b: head, c: scores };
    for b in [head, Place { matrix: [0; Places::DIMS], ..head }] {
        let places = Some(Places { b, ..places });
        check_product(ProductSpec { m: time, n: time, k: depth, transpose_a: false, transpose_b: true, batch: batch * heads, places }, 3);
    }
}

fn same(size: u64, taps: u64, stride: u64) -> WindowAxis {
    let positions = size.div_ceil(stride);
    let pad = ((positions - 1) * stride + taps).saturating_sub(size) / 2;
    WindowAxis { size, positions, taps, stride, dilation: 1, pad }
}

/// Of many pieces: of images together, of rows of an image, of panels; and channels in groups.
#[test]
fn large_convolutions_agree_with_plain_loops() {
    if !has_instructions() {
        return;
    }
    for (batch, in_c, out_c, size, taps, stride) in
        [(1, 150, 200, 9, 3, 1), (1, 3, 64, 50, 7, 2), (40, 20, 33, 4, 3, 1), (9, 64, 64, 12, 5, 1), (2, 200, 100, 14, 1, 2)]
    {
        check_conv(spec(batch, in_c, out_c, &[same(size, taps, stride), same(size + 1, taps, stride)]), batch ^ in_c);
    }
}

/// What is pooled at once has the bits of what is pooled later.
#[test]
fn results_are_pooled_at_once_with_the_same_bits() {
    if !has_instructions() {
        return;
    }
    for spec in [spec(5, 3, 64, &[same(24, 5, 1); 2]), spec(9, 20, 60, &[same(5, 3, 1), same(7, 3, 1)])] {
        let mut random = Random::new(spec.in_c);
        let [y, x] = [1, 2].map(|at| same(spec.axes.filled()[at].positions, 3, 2));
        let axes = Axes::new(&[y, x]).unwrap();
        let pool = PoolSpec { data_type: spec.data_type, batch: spec.batch, channels: spec.out_c, axes, layout: spec.layout };
        let [input, filter] = [spec.input(), spec.filter()].map(|shape| numbers(shape.iter().product(), &mut random));
        for positions in [Positions::None, Positions::All, Positions::Positive] {
            let pooling = Pooling { spec: pool, maxima: Maxima::First, positions };
            let request = KernelRequest::Anchor { anchor: Anchor::Conv(spec), epilogue: None, pooling: Some(pooling) };
            let outputs = request.arguments().unwrap().outputs;
            let inputs = [input.clone(), filter.clone()];
            let at_once = run(&prepare(&request).unwrap().unwrap().0, &inputs, &outputs);
            let plain = results(&anchor(Anchor::Conv(spec), None), &inputs).unwrap();
            let separate = crate::library::make(Isa::Avx512, &KernelRequest::MaxPool(pooling)).unwrap();
            assert!(at_once == run(&separate, &[plain], &outputs), "{positions:?} {spec:?}");
        }
    }
}

/// Only sums that a number is part of become infinite, or no number, by it.
#[test]
fn what_is_no_number_stays_where_it_belongs() {
    if !has_instructions() {
        return;
    }
    let spec = spec(2, 3, 17, &[same(5, 3, 1), same(7, 3, 1)]);
    let mut random = Random::new(1);
    let [x, w, g] = [spec.input(), spec.filter(), spec.output()].map(|shape| numbers(shape.iter().product(), &mut random));
    for bad in [f32::NAN, f32::INFINITY] {
        for at in [0, 20, x.len() - 1] {
            let mut x = x.clone();
            x[at] = bad;
            let (mut y, mut dw) = (vec![true; g.len()], vec![true; w.len()]);
            terms(&spec, |i, f, o| {
                y[o] &= i != at;
                dw[f] &= i != at;
            });
            let got = results(&anchor(Anchor::Conv(spec), None), &[x.clone(), w.clone()]).unwrap();
            assert!(got.iter().zip(&y).all(|(got, is_finite)| got.is_finite() == *is_finite), "{bad} at {at}");
            let got = results(&KernelRequest::ConvBackpropFilter { spec, unpooled: None }, &[x, g.clone()]).unwrap();
            assert!(got.iter().zip(&dw).all(|(got, is_finite)| got.is_finite() == *is_finite), "{bad} at {at}, by filter");
        }
    }
}
