//! Tests of the products against plain loops: every instruction set, any cut, with and without an epilogue.

mod attention;

use std::ops::Range;

use plimsoll_base::{Bf16, Code, DataType, F16};
use plimsoll_device::Prepared;
use proptest::prelude::*;

use super::*;
use crate::element::InFloats;
use crate::expr::{Chain, Functions, elementwise_on};
use crate::library::make;
use crate::packing::panels_of;
use crate::testing::{self, floats as numbers};
use plimsoll_request::KernelRequest;
use plimsoll_request::anchor::Anchor;
use plimsoll_request::expr::{BinaryOp, ExprBuilder, Scalar, UnaryOp};
use plimsoll_request::product::{Place, Places};

fn at(spec: &ProductSpec, a: &[f32], b: &[f32], matrix: u64, i: u64, j: u64) -> (f64, f64) {
    let (mut sum, mut size) = (0.0, 0.0);
    for p in 0..spec.k {
        let left = if spec.transpose_a { p * spec.m + i } else { i * spec.k + p };
        let right = if spec.transpose_b { j * spec.k + p } else { p * spec.n + j };
        let term = f64::from(a[(matrix * spec.m * spec.k + left) as usize]) * f64::from(b[(matrix * spec.k * spec.n + right) as usize]);
        sum += term;
        size += term.abs();
    }
    (sum, size)
}

fn run(prepared: &Prepared, inputs: &[&[u8]], sizes: &[usize], calls: &[Range<u32>], in_place: &[(usize, usize)]) -> Vec<Vec<u8>> {
    let mut outputs: Vec<Vec<u8>> = sizes.iter().map(|size| vec![0xEE; *size]).collect();
    testing::run_pieces(prepared, inputs, &mut outputs, calls, in_place).unwrap();
    outputs
}

fn backwards(prepared: &Prepared) -> Vec<Range<u32>> {
    (0..prepared.chunks).rev().map(|piece| piece..piece + 1).collect()
}

fn sizes() -> impl Strategy<Value = ProductSpec> {
    let size = prop_oneof![Just(1u64), 0..20u64, 20..70u64, Just(130)];
    let terms = prop_oneof![Just(1u64), 0..40u64, Just(320), Just(321), Just(700)];
    (size.clone(), size, terms, any::<bool>(), any::<bool>(), prop_oneof![4 => Just(1u64), 1 => 0..4u64])
        .prop_map(|(m, n, k, transpose_a, transpose_b, batch)| ProductSpec { m, n, k, transpose_a, transpose_b, batch, places: None })
}

fn tunings() -> impl Strategy<Value = Tuning> {
    let number = |most: usize| prop::option::of(1..most);
    let choice = || prop::option::of(any::<bool>());
    (number(40), number(150), choice(), choice()).prop_map(|(rows, columns, pack_a, pack_b)| Tuning { rows, columns, pack_a, pack_b })
}

fn of_two_bytes<E: InFloats + testing::Element>(spec: &ProductSpec, tuning: Tuning, seed: u64) -> std::result::Result<(), TestCaseError> {
    let rounded = |count: u64, salt: u64| numbers(count, seed ^ salt).into_iter().map(E::narrow).collect::<Vec<E>>();
    let (a, b) = (rounded(spec.batch * spec.m * spec.k, 1), rounded(spec.batch * spec.k * spec.n, 2));
    let floats = |values: &[E]| testing::bytes(&values.iter().map(|value| value.widen()).collect::<Vec<f32>>());
    let count = (spec.batch * spec.m * spec.n) as usize;
    for isa in Isa::available() {
        let wide = product_on(isa, *spec, None, Tuning::default()).unwrap();
        let wide = run(&wide, &[&floats(&a), &floats(&b)], &[count * 4], &backwards(&wide), &[]);
        let expected: Vec<E> = testing::values::<f32>(&wide[0]).into_iter().map(E::narrow).collect();
        for tuning in [Tuning::default(), tuning] {
            let narrow = blocked::prepare::<E>(isa, *spec, None, tuning, crate::packing::Order::Rows).unwrap();
            let got = run(&narrow, &[&testing::bytes(&a), &testing::bytes(&b)], &[count * 2], &backwards(&narrow), &[]);
            prop_assert_eq!(&got[0], &testing::bytes(&expected), "{:?} {} {:?} {:?}", isa, E::TYPE, spec, tuning);
        }
    }
    Ok(())
}

/// Operands of two bytes are widened a panel at a time: scratch does not grow with them.
#[test]
fn products_of_two_bytes_need_little_scratch() {
    let most = 1 << 20;
    for size in [1 << 10, 1 << 12, 1 << 14] {
        for (m, n, k) in [(size, size, size), (1, size, size), (size, 1, size), (size, size, 1), (1, 1 << 24, 1), (1 << 24, 1, 1)] {
            for (transpose_a, transpose_b) in [(false, false), (true, false), (false, true), (true, true)] {
                let spec = ProductSpec { m, n, k, transpose_a, transpose_b, batch: 3, places: None };
                for isa in [Isa::Portable, Isa::Avx2, Isa::Avx512] {
                    let prepared = product_generic(isa, DataType::Half, &spec).unwrap();
                    let anchor = Anchor::Product(DataType::Half, spec);
                    let made = make(isa, &KernelRequest::Anchor { anchor, epilogue: None, pooling: None }).unwrap();
                    assert!(made.between.is_empty() && made.steps.len() == 1);
                    assert_eq!(prepared.scratch, 0);
                    assert!(prepared.per_worker <= most, "{isa:?} {spec:?}: {}", prepared.per_worker);
                }
            }
        }
    }
}

/// Sizes and places: products along two dimensions, rows apart, operands that some products share, results in any order.
fn placed() -> impl Strategy<Value = ProductSpec> {
    let size = || prop_oneof![Just(1u64), 0..20u64, Just(70)];
    let terms = prop_oneof![Just(1u64), 0..40u64, Just(321)];
    let shared = || (0..4usize, 0..5u64);
    let order = Just([0usize, 1, 2]).prop_shuffle();
    let matrices = ((size(), size(), terms), (any::<bool>(), any::<bool>()), (0..4u64, 1..4u64));
    (matrices, shared(), shared(), order).prop_map(|(((m, n, k), (transpose_a, transpose_b), (outer, inner)), a, b, order)| {
        let place = |rows: u64, columns: u64, (shared, gap): (usize, u64)| {
            let row = columns + gap;
            let matrix = rows * row + gap;
            Place { row, matrix: [0, 0, [matrix * inner, 0, matrix, 0][shared], [matrix, matrix, 0, 0][shared]] }
        };
        // The rows of C and its two other dimensions lie in any order.
        let (mut distances, mut distance) = ([0; 3], n);
        for dim in order {
            distances[dim] = distance;
            distance *= [outer, inner, m][dim];
        }
        let places = Places {
            sizes: [1, 1, outer, inner],
            a: if transpose_a { place(k, m, a) } else { place(m, k, a) },
            b: if transpose_b { place(n, k, b) } else { place(k, n, b) },
            c: Place { row: distances[2], matrix: [0, 0, distances[0], distances[1]] },
        };
        ProductSpec { m, n, k, transpose_a, transpose_b, batch: outer * inner, places: Some(places) }
    })
}

/// The results of whole numbers, by plain loops.
fn by_loops(spec: &ProductSpec, a: &[f32], b: &[f32]) -> Vec<f32> {
    let places = spec.places();
    let mut c = vec![f32::NAN; (spec.batch * spec.m * spec.n) as usize];
    for outer in 0..places.sizes[2] {
        for inner in 0..places.sizes[3] {
            let first = |place: Place| outer * place.matrix[2] + inner * place.matrix[3];
            let at = |place: Place, row: u64, column: u64, turned: bool| {
                let (row, column) = if turned { (column, row) } else { (row, column) };
                (first(place) + row * place.row + column) as usize
            };
            for (i, j) in (0..spec.m).flat_map(|i| (0..spec.n).map(move |j| (i, j))) {
                let term = |p: u64| a[at(places.a, i, p, spec.transpose_a)] * b[at(places.b, p, j, spec.transpose_b)];
                c[at(places.c, i, j, false)] = (0..spec.k).map(term).sum::<f32>() + 0.0;
            }
        }
    }
    c
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn products_agree_with_plain_loops_however_they_are_cut(spec in sizes(), tuning in tunings(), seed in any::<u64>()) {
        let a = numbers(spec.batch * spec.m * spec.k, seed);
        let b = numbers(spec.batch * spec.k * spec.n, seed ^ 77);
        let inputs = [testing::bytes(&a), testing::bytes(&b)];
        let inputs = [inputs[0].as_slice(), inputs[1].as_slice()];
        let size = [(spec.batch * spec.m * spec.n * 4) as usize];
        for isa in Isa::available() {
            let plain = product_on(isa, spec, None, Tuning::default()).unwrap();
            let whole = run(&plain, &inputs, &size, &backwards(&plain), &[]);
            let c: Vec<f32> = testing::values(&whole[0]);
            for (index, value) in c.iter().enumerate() {
                let index = index as u64;
                let (exact, scale) = at(&spec, &a, &b, index / (spec.m * spec.n), index / spec.n % spec.m, index % spec.n);
                prop_assert!((f64::from(*value) - exact).abs() <= 2e-6 * scale + 1e-30, "{:?} {:?} at {}: {} and not {}", isa, spec, index, value, exact);
            }
            let tuned = product_on(isa, spec, None, tuning).unwrap();
            prop_assert_eq!(&whole, &run(&tuned, &inputs, &size, &[0..tuned.chunks, 0..0], &[]), "{:?} {:?} {:?}", isa, spec, tuning);
        }
    }

    #[test]
    fn a_right_side_in_panels_gives_the_same_bits(spec in sizes(), tuning in tunings(), seed in any::<u64>()) {
        let spec = ProductSpec { batch: 1, transpose_b: false, n: spec.n * 3 / 2, ..spec };
        let (a, b, bias) = (numbers(spec.m * spec.k, seed), numbers(spec.k * spec.n, seed ^ 77), numbers(spec.n, seed ^ 5));
        let mut builder = ExprBuilder::new();
        let [c, added] = [0; 2].map(|_| builder.input(DataType::Float).unwrap());
        let sum = builder.binary(BinaryOp::Add, c, added).unwrap();
        let epilogue = Epilogue { expr: builder.finish(vec![sum]), operands: vec![vec![spec.n]] };
        let [a, b_rows, bias] = [&a, &b, &bias].map(|numbers| testing::bytes(numbers));
        let size = [(spec.m * spec.n * 4) as usize];
        for isa in Isa::available() {
            let Some(panels) = panels_of(isa, spec.n) else {
                prop_assert!(product_of_panels(isa, spec, None, tuning).is_err());
                continue;
            };
            let b_held = testing::bytes(&testing::in_panels(panels, &b));
            for epilogue in [None, Some(epilogue.clone())] {
                let inputs = |b| if epilogue.is_some() { vec![&a[..], b, &bias[..]] } else { vec![&a[..], b] };
                let plain = product_on(isa, spec, epilogue.clone(), Tuning::default()).unwrap();
                let expected = run(&plain, &inputs(&b_rows), &size, &backwards(&plain), &[]);
                for tuning in [tuning, Tuning::default()] {
                    let held = product_of_panels(isa, spec, epilogue.clone(), tuning).unwrap();
                    prop_assert_eq!(&expected, &run(&held, &inputs(&b_held), &size, &backwards(&held), &[]), "{:?} {:?} {:?}", isa, spec, tuning);
                }
            }
        }
    }

    #[test]
    fn an_epilogue_gives_the_bits_of_product_and_expression(spec in sizes(), tuning in tunings(), seed in any::<u64>(), place in any::<bool>()) {
        let spec = ProductSpec { batch: 1, ..spec };
        let (m, n) = (spec.m, spec.n);
        // w - rate * c; max(c + bias, 0) * column; c > 0.
        let mut builder = ExprBuilder::new();
        let regs: Vec<_> = (0..5).map(|_| builder.input(DataType::Float).unwrap()).collect();
        let (c, w, rate, bias, column) = (regs[0], regs[1], regs[2], regs[3], regs[4]);
        let scaled = builder.binary(BinaryOp::Mul, rate, c).unwrap();
        let updated = builder.binary(BinaryOp::Sub, w, scaled).unwrap();
        let sum = builder.binary(BinaryOp::Add, c, bias).unwrap();
        let zero = builder.constant(Scalar::F32(0.0));
        let relu = builder.binary(BinaryOp::Maximum, sum, zero).unwrap();
        let relu = builder.binary(BinaryOp::Mul, relu, column).unwrap();
        let positive = builder.binary(BinaryOp::Greater, c, zero).unwrap();
        let expr = builder.finish(vec![updated, relu, positive]);
        let operands = vec![vec![m, n], vec![], vec![n], vec![m, 1]];

        let count = (m * n) as usize;
        let [a, b, w] = [(m * spec.k, 1), (spec.k * n, 2), (m * n, 3)].map(|(count, salt)| testing::bytes(&numbers(count, seed ^ salt)));
        let [rate, bias, column] = [(1, 4), (n, 5), (m, 6)].map(|(count, salt)| testing::bytes(&numbers(count, seed ^ salt)));
        let sizes = [count * 4, count * 4, count];
        for isa in Isa::available() {
            let plain = product_on(isa, spec, None, Tuning::default()).unwrap();
            let product = run(&plain, &[&a, &b], &[count * 4], &backwards(&plain), &[]);
            let mut all = vec![vec![m, n]];
            all.extend(operands.clone());
            let then = elementwise_on(isa, &expr, &[m, n], &all).unwrap();
            let expected = run(&then, &[&product[0], &w, &rate, &bias, &column], &sizes, &backwards(&then), &[]);

            let fused = product_on(isa, spec, Some(Epilogue { expr: expr.clone(), operands: operands.clone() }), tuning).unwrap();
            prop_assert!(count == 0 || fused.in_place.contains(&(2, 0)) && fused.in_place.contains(&(2, 1)));
            prop_assert!(fused.in_place.iter().all(|pair| pair.0 >= 2));
            // The first output over w, or the second, although w is read after it is written.
            let pairs = [(2, usize::from(place))];
            for in_place in [&[], pairs.as_slice()] {
                let inputs = [&a[..], &b[..], &w[..], &rate[..], &bias[..], &column[..]];
                prop_assert_eq!(&expected, &run(&fused, &inputs, &sizes, &backwards(&fused), in_place), "{:?} {:?} {:?}", isa, spec, tuning);
            }
        }
    }

    /// An epilogue that changes tiles of results: `max(w - c * rate, bias)` with numbers for rate and bias, perhaps `x * sigmoid(x)` of it,
    /// then a column's share.
    #[test]
    fn a_chain_gives_the_bits_of_product_and_expression(spec in sizes(), tuning in tunings(), seed in any::<u64>(), swish in any::<bool>()) {
        let spec = ProductSpec { batch: 1, ..spec };
        let (m, n) = (spec.m, spec.n);
        let mut builder = ExprBuilder::new();
        let [c, w, share] = [0; 3].map(|_| builder.input(DataType::Float).unwrap());
        let [rate, least] = [0.1, -0.5].map(|number| builder.number(DataType::Float, number).unwrap());
        let scaled = builder.binary(BinaryOp::Mul, c, rate).unwrap();
        let updated = builder.binary(BinaryOp::Sub, w, scaled).unwrap();
        let above = builder.binary(BinaryOp::Maximum, updated, least).unwrap();
        let changed = if swish {
            let sigmoid = builder.unary(UnaryOp::Sigmoid, above).unwrap();
            builder.binary(BinaryOp::Mul, above, sigmoid).unwrap()
        } else {
            above
        };
        let result = builder.binary(BinaryOp::Mul, share, changed).unwrap();
        let expr = builder.finish(vec![result]);
        let operands = vec![vec![m, n], vec![n]];
        prop_assert_eq!(Chain::of(&expr, &[m, n], &operands, Functions::Never).is_some(), !swish);
        prop_assert!(Chain::of(&expr, &[m, n], &operands, Functions::Of(Isa::Avx2)).is_some());

        let size = [(m * n) as usize * 4];
        let [a, b, w, share] =
            [(m * spec.k, 1), (spec.k * n, 2), (m * n, 3), (n, 4)].map(|(count, salt)| testing::bytes(&numbers(count, seed ^ salt)));
        for isa in Isa::available() {
            let plain = product_on(isa, spec, None, Tuning::default()).unwrap();
            let product = run(&plain, &[&a, &b], &size, &backwards(&plain), &[]);
            let all = [vec![vec![m, n]], operands.clone()].concat();
            let then = elementwise_on(isa, &expr, &[m, n], &all).unwrap();
            let expected = run(&then, &[&product[0], &w, &share], &size, &backwards(&then), &[]);
            let fused = product_on(isa, spec, Some(Epilogue { expr: expr.clone(), operands: operands.clone() }), tuning).unwrap();
            for in_place in [&[][..], &[(2, 0)]] {
                let got = run(&fused, &[&a, &b, &w, &share], &size, &backwards(&fused), in_place);
                prop_assert_eq!(&expected, &got, "{:?} {:?} {:?}", isa, spec, tuning);
            }
        }
    }

    /// Floats of two bytes are summed in the order of floats, and rounded once.
    #[test]
    fn products_of_two_bytes_are_those_of_floats_rounded(spec in sizes(), tuning in tunings(), seed in any::<u64>()) {
        of_two_bytes::<F16>(&spec, tuning, seed)?;
        of_two_bytes::<Bf16>(&spec, tuning, seed)?;
    }

    #[test]
    fn products_find_their_matrices_where_they_lie(spec in placed(), tuning in tunings(), seed in any::<u64>()) {
        let [of_a, of_b, of_c] = spec.extents().unwrap();
        let whole = |count: u64, salt: u64| -> Vec<f32> { numbers(count, seed ^ salt).iter().map(|x| (x * 4.0).round() + 0.0).collect() };
        let (a, b) = (whole(of_a, 1), whole(of_b, 2));
        let expected = by_loops(&spec, &a, &b);
        prop_assert_eq!(of_c, expected.len() as u64);
        let inputs = [testing::bytes(&a), testing::bytes(&b)];
        for isa in Isa::available() {
            for tuning in [Tuning::default(), tuning] {
                let prepared = product_on(isa, spec, None, tuning).unwrap();
                let got = run(&prepared, &[&inputs[0], &inputs[1]], &[expected.len() * 4], &backwards(&prepared), &[]);
                let got: Vec<f32> = testing::values(&got[0]);
                prop_assert_eq!(&got, &expected, "{:?} {:?} {:?}", isa, spec, tuning);
            }
            let narrow = |values: &[f32]| values.iter().map(|value| Bf16::from_f32(*value)).collect::<Vec<Bf16>>();
            let prepared = product_generic(isa, DataType::Bfloat16, &spec).unwrap();
            let inputs = [testing::bytes(&narrow(&a)), testing::bytes(&narrow(&b))];
            let got = run(&prepared, &[&inputs[0], &inputs[1]], &[expected.len() * 2], &backwards(&prepared), &[]);
            let wide = |values: &[Bf16]| values.iter().map(|value| value.to_f32()).collect::<Vec<f32>>();
            prop_assert_eq!(wide(&testing::values::<Bf16>(&got[0])), wide(&narrow(&expected)), "{:?} {:?}", isa, spec);
        }
        let long = |values: &[f32]| values.iter().map(|value| *value as i64).collect::<Vec<i64>>();
        let prepared = product_generic(Isa::best(), DataType::Int64, &spec).unwrap();
        prop_assert_eq!(testing::run_one(&prepared, &[&long(&a), &long(&b)], expected.len()).unwrap(), long(&expected));
    }

    #[test]
    fn products_of_other_types_agree_with_plain_loops(spec in sizes(), seed in any::<u64>()) {
        let whole = |count: u64, salt: u64| -> Vec<f32> { numbers(count, seed ^ salt).iter().map(|x| (x * 100.0).round()).collect() };
        let (a, b) = (whole(spec.batch * spec.m * spec.k, 1), whole(spec.batch * spec.k * spec.n, 2));
        let count = spec.batch * spec.m * spec.n;
        let expected: Vec<f64> = (0..count).map(|index| at(&spec, &a, &b, index / (spec.m * spec.n), index / spec.n % spec.m, index % spec.n).0).collect();
        let f64s = |values: &[f32]| -> Vec<f64> { values.iter().map(|x| f64::from(*x)).collect() };
        let i32s = |values: &[f32]| -> Vec<i32> { values.iter().map(|x| *x as i32).collect() };
        let i64s = |values: &[f32]| -> Vec<i64> { values.iter().map(|x| *x as i64).collect() };
        let double = product_generic(Isa::best(), DataType::Double, &spec).unwrap();
        prop_assert_eq!(testing::run_one(&double, &[&f64s(&a), &f64s(&b)], count as usize).unwrap(), expected.clone());
        let int = product_generic(Isa::best(), DataType::Int32, &spec).unwrap();
        prop_assert_eq!(testing::run_one(&int, &[&i32s(&a), &i32s(&b)], count as usize).unwrap(), expected.iter().map(|x| *x as i32).collect::<Vec<_>>());
        let long = product_generic(Isa::best(), DataType::Int64, &spec).unwrap();
        prop_assert_eq!(testing::run_one(&long, &[&i64s(&a), &i64s(&b)], count as usize).unwrap(), expected.iter().map(|x| *x as i64).collect::<Vec<_>>());
    }
}

#[test]
fn large_products_are_cut_and_small_ones_are_not() {
    let spec = ProductSpec { m: 512, n: 300, k: 784, transpose_a: false, transpose_b: false, batch: 1, places: None };
    assert!(product(spec, None).unwrap().chunks >= 8);
    let spec = ProductSpec { m: 50, n: 10, k: 100, ..spec };
    let prepared = product(spec, None).unwrap();
    assert_eq!(prepared.chunks, 1);
    assert_eq!(prepared.cost.flops, 100_000.0);
}

#[test]
fn what_cannot_be_is_an_error() {
    let spec = ProductSpec { m: 4, n: 4, k: 4, transpose_a: false, transpose_b: false, batch: 2, places: None };
    let mut builder = ExprBuilder::new();
    let x = builder.input(DataType::Int32).unwrap();
    let expr = builder.finish(vec![x]);
    let epilogue = || Some(Epilogue { expr: expr.clone(), operands: vec![] });
    assert_eq!(product(spec, epilogue()).unwrap_err().code(), Code::Unimplemented);
    assert_eq!(product(ProductSpec { batch: 1, ..spec }, epilogue()).unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(product(ProductSpec { m: 1 << 40, n: 1 << 40, ..spec }, None).unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(
        product_generic(Isa::best(), DataType::Int64, &ProductSpec { batch: u64::MAX, ..spec }).unwrap_err().code(),
        Code::InvalidArgument
    );
    assert_eq!(product_generic(Isa::best(), DataType::Uint8, &spec).unwrap_err().code(), Code::Unimplemented);
}
