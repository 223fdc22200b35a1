//! Tests of the interpreter as a whole: against plain loops, in pieces, in place, on each instruction set.

#![expect(clippy::single_range_in_vec_init, reason = "all pieces in one call")]

use std::ops::Range;

use plimsoll_base::{Bf16, Code, DataType, F16};
use plimsoll_device::{Fault, Prepared};
use proptest::prelude::*;

use plimsoll_request::expr::*;

use super::*;
use crate::simd::Isa;
use crate::testing;

const TYPES: [DataType; 15] = [
    DataType::Float,
    DataType::Double,
    DataType::Int32,
    DataType::Int64,
    DataType::Uint8,
    DataType::Bool,
    DataType::Half,
    DataType::Bfloat16,
    DataType::Int8,
    DataType::Int16,
    DataType::Uint16,
    DataType::Uint32,
    DataType::Uint64,
    DataType::Complex64,
    DataType::Complex128,
];

fn unary(op: UnaryOp, data_type: DataType) -> Option<Expr> {
    let mut builder = ExprBuilder::new();
    let x = builder.input(data_type).unwrap();
    let y = builder.unary(op, x).ok()?;
    Some(builder.finish(vec![y]))
}

fn binary(op: BinaryOp, data_type: DataType) -> Option<Expr> {
    let mut builder = ExprBuilder::new();
    let (x, y) = (builder.input(data_type).unwrap(), builder.input(data_type).unwrap());
    let z = builder.binary(op, x, y).ok()?;
    Some(builder.finish(vec![z]))
}

fn run_unary<A: testing::Element, R: testing::Element>(isa: Isa, op: UnaryOp, data_type: DataType, x: &[A]) -> Vec<R> {
    let shape = [x.len() as u64];
    let kernel = elementwise_on(isa, &unary(op, data_type).unwrap(), &shape, &[shape.to_vec()]).unwrap();
    let mut outputs = [vec![0; size_of::<R>() * x.len()]];
    testing::run(&kernel, &[&testing::bytes(x)], &mut outputs).unwrap();
    testing::values(&outputs[0])
}

fn run_binary<A: testing::Element, R: testing::Element>(
    isa: Isa,
    op: BinaryOp,
    data_type: DataType,
    x: &[A],
    y: &[A],
) -> Result<Vec<R>, Fault> {
    let shape = [x.len() as u64];
    let kernel = elementwise_on(isa, &binary(op, data_type).unwrap(), &shape, &[shape.to_vec(), shape.to_vec()]).unwrap();
    let mut outputs = [vec![0; size_of::<R>() * x.len()]];
    testing::run(&kernel, &[&testing::bytes(x), &testing::bytes(y)], &mut outputs)?;
    Ok(testing::values(&outputs[0]))
}

/// Numbers with all special ones, and enough of them for whole blocks and a rest.
fn floats() -> Vec<f32> {
    let mut values = vec![
        0.0,
        -0.0,
        1.0,
        -1.0,
        f32::NAN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::MAX,
        f32::MIN,
        f32::MIN_POSITIVE,
        1e-42,
        0.5,
        1.5,
        2.5,
        -0.5,
        -2.5,
        88.8,
        -104.0,
        1e10,
    ];
    values.extend((0..64).map(|step| (step as f32 - 31.3) * 0.37));
    values
}

fn close(value: f64, expected: f64, tolerance: f64) -> bool {
    value == expected
        || value.is_nan() && expected.is_nan()
        || (value - expected).abs() <= tolerance * expected.abs() + f64::from(f32::MIN_POSITIVE)
}

#[test]
fn unary_operations_on_floats_are_those_of_the_table() {
    let x = floats();
    let wide: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
    for isa in Isa::available() {
        for op in UnaryOp::ALL.iter().copied().filter(|op| op.takes(DataType::Float)) {
            let (single, double): (Vec<f64>, Vec<f64>) = if op.gives(DataType::Float) == DataType::Bool {
                let single: Vec<u8> = run_unary(isa, op, DataType::Float, &x);
                let double: Vec<u8> = run_unary(isa, op, DataType::Double, &wide);
                (single.iter().map(|y| f64::from(*y)).collect(), double.iter().map(|y| f64::from(*y)).collect())
            } else {
                let single: Vec<f32> = run_unary(isa, op, DataType::Float, &x);
                (single.iter().map(|y| f64::from(*y)).collect(), run_unary(isa, op, DataType::Double, &wide))
            };
            for (at, x) in wide.iter().enumerate() {
                let exact = op.of(*x).unwrap();
                assert!(close(single[at], f64::from(exact as f32), 4e-7), "{isa:?} {op:?} of {x}: {} and not {exact}", single[at]);
                assert!(close(double[at], exact, 1e-15), "{isa:?} {op:?} of {x}: {} and not {exact}", double[at]);
            }
        }
    }
}

#[test]
fn binary_operations_on_floats_are_those_of_the_table() {
    let numbers = floats();
    let (x, y): (Vec<f32>, Vec<f32>) = numbers.iter().flat_map(|x| numbers.iter().map(|y| (*x, *y))).unzip();
    let (wide_x, wide_y): (Vec<f64>, Vec<f64>) = (x.iter().map(|x| f64::from(*x)).collect(), y.iter().map(|y| f64::from(*y)).collect());
    for isa in Isa::available() {
        for op in BinaryOp::ALL.iter().copied().filter(|op| op.takes(DataType::Float) && *op != BinaryOp::Complex) {
            let (single, double): (Vec<f32>, Vec<f64>) = if op.is_comparison() {
                let single: Vec<u8> = run_binary(isa, op, DataType::Float, &x, &y).unwrap();
                let double: Vec<u8> = run_binary(isa, op, DataType::Double, &wide_x, &wide_y).unwrap();
                (single.iter().map(|z| f32::from(*z)).collect(), double.iter().map(|z| f64::from(*z)).collect())
            } else {
                (run_binary(isa, op, DataType::Float, &x, &y).unwrap(), run_binary(isa, op, DataType::Double, &wide_x, &wide_y).unwrap())
            };
            for at in 0..x.len() {
                let exact = op.of(wide_x[at], wide_y[at]).unwrap();
                // Quotients that are rounded before the next step differ where that step has a jump.
                let expected = match op {
                    BinaryOp::FloorDiv => f64::from((x[at] / y[at]).floor()),
                    BinaryOp::FloorMod => f64::from(floor_mod_of_floats(x[at], y[at])),
                    _ => f64::from(exact as f32),
                };
                let said = |value: f64| format!("{isa:?} {op:?} of {} and {}: {value} and not {expected}", x[at], y[at]);
                // All but powers are the exact operation, rounded once.
                let tolerance = if op == BinaryOp::Pow { 1.3e-7 } else { 0.0 };
                assert!(close(single[at].into(), expected, tolerance), "{}", said(single[at].into()));
                assert!(close(double[at], exact, 1e-15), "{}", said(double[at]));
            }
        }
    }
}

#[test]
fn floats_of_two_bytes_are_computed_as_floats_and_rounded() {
    type Convert = (DataType, fn(u16) -> f32, fn(f32) -> u16);
    let types: [Convert; 2] = [
        (DataType::Half, |bits| F16::from_bits(bits).to_f32(), |value| F16::from_f32(value).to_bits()),
        (DataType::Bfloat16, |bits| Bf16::from_bits(bits).to_f32(), |value| Bf16::from_f32(value).to_bits()),
    ];
    for (data_type, to_f32, from_f32) in types {
        let narrow: Vec<u16> = (0..=u16::MAX).collect();
        let wide: Vec<f32> = narrow.iter().map(|bits| to_f32(*bits)).collect();
        for isa in Isa::available() {
            for op in UnaryOp::ALL.iter().copied().filter(|op| op.gives(data_type) == data_type && op.takes(data_type)) {
                if op == UnaryOp::Sigmoid {
                    continue; // Several steps, as in TensorFlow's recorded values.
                }
                let got: Vec<u16> = run_unary(isa, op, data_type, &narrow);
                let floats: Vec<f32> = run_unary(isa, op, DataType::Float, &wide);
                let same = |(got, value): (&u16, &f32)| *got == from_f32(*value) || value.is_nan() && to_f32(*got).is_nan();
                assert!(got.iter().zip(&floats).all(same), "{isa:?} {op:?} of {data_type}");
            }
            let reversed: Vec<u16> = narrow.iter().map(|bits| bits.wrapping_mul(40_503)).collect();
            let sums: Vec<u16> = run_binary(isa, BinaryOp::Add, data_type, &narrow, &reversed).unwrap();
            for (at, sum) in sums.iter().enumerate() {
                let exact = to_f32(narrow[at]) + to_f32(reversed[at]);
                assert!(*sum == from_f32(exact) || exact.is_nan() && to_f32(*sum).is_nan(), "{isa:?} {data_type} at {at}");
            }
        }
    }
}

fn floor_mod_of_floats(x: f32, y: f32) -> f32 {
    let rest = x % y;
    if rest != 0.0 && (rest < 0.0) != (y < 0.0) { rest + y } else { rest }
}

#[test]
fn zeros_of_different_signs_are_kept_apart_as_in_tensorflow() {
    for isa in Isa::available() {
        let max: Vec<f32> = run_binary(isa, BinaryOp::Maximum, DataType::Float, &[-0.0f32, 0.0], &[0.0, -0.0]).unwrap();
        assert_eq!(max.iter().map(|x| x.is_sign_negative()).collect::<Vec<_>>(), [true, false], "{isa:?}");
        let sign: Vec<f32> = run_unary(isa, UnaryOp::Sign, DataType::Float, &[-0.0f32; 20]);
        assert!(sign.iter().all(|x| x.is_sign_positive()));
    }
}

#[test]
fn powers_with_a_number_are_those_with_an_operand() {
    let x: Vec<f32> = floats().into_iter().chain((0..4000).map(|n| (n as f32 - 1999.7) * 0.0137)).collect();
    let shape = [x.len() as u64];
    for isa in Isa::available() {
        for exponent in [2.0f32, 3.0, 0.5] {
            let mut builder = ExprBuilder::new();
            let operand = builder.input(DataType::Float).unwrap();
            let number = builder.constant(Scalar::F32(exponent));
            let power = builder.binary(BinaryOp::Pow, operand, number).unwrap();
            let kernel = elementwise_on(isa, &builder.finish(vec![power]), &shape, &[shape.to_vec()]).unwrap();
            let by_number = testing::run_one(&kernel, &[&x], x.len()).unwrap();
            let by_operand: Vec<f32> = run_binary(isa, BinaryOp::Pow, DataType::Float, &x, &vec![exponent; x.len()]).unwrap();
            for at in 0..x.len() {
                let exact = f64::from(x[at]).powf(exponent.into()) as f32;
                assert!(by_number[at].to_bits() == by_operand[at].to_bits() || by_number[at].is_nan() && by_operand[at].is_nan());
                assert!(close(by_number[at].into(), exact.into(), 1.2e-7), "{} to the power of {exponent}: {}", x[at], by_number[at]);
            }
        }
    }
}

#[test]
fn integers_wrap_and_round_as_tensorflow_does() {
    // Recorded with TensorFlow 2.21.
    let (x, y) = ([7, -7, 7, -7, i32::MIN, 0], [2, 2, -2, -2, -1, 5]);
    let check = |op, expected: [i32; 6]| {
        for isa in Isa::available() {
            assert_eq!(run_binary::<i32, i32>(isa, op, DataType::Int32, &x, &y), Ok(expected.to_vec()), "{op:?}");
        }
    };
    check(BinaryOp::Div, [3, -3, -3, 3, i32::MIN, 0]);
    check(BinaryOp::FloorDiv, [3, -4, -4, 3, i32::MIN, 0]);
    check(BinaryOp::FloorMod, [1, 1, -1, -1, 0, 0]);
    check(BinaryOp::TruncateMod, [1, -1, 1, -1, 0, 0]);
    check(BinaryOp::Mul, [14, -14, -14, 14, i32::MIN, 0]);
    check(BinaryOp::Sub, [5, -9, 9, -5, i32::MIN + 1, -5]);
    assert_eq!(
        run_binary::<i32, i32>(Isa::Portable, BinaryOp::Pow, DataType::Int32, &[2, 0, -3, 7], &[40, 0, 3, 2]),
        Ok(vec![0, 1, -27, 49])
    );
    assert_eq!(run_unary::<i32, i32>(Isa::best(), UnaryOp::Abs, DataType::Int32, &[i32::MIN, -5]), [i32::MIN, 5]);
    assert_eq!(run_unary::<u8, u8>(Isa::best(), UnaryOp::Neg, DataType::Uint8, &[1, 0]), [255, 0]);
}

#[test]
fn integers_refuse_zero_divisors_and_negative_powers() {
    for op in [BinaryOp::Div, BinaryOp::FloorDiv, BinaryOp::FloorMod, BinaryOp::TruncateMod] {
        let fault =
            run_binary::<i64, i64>(Isa::best(), op, DataType::Int64, &[1; 3000], &[[1; 2999].as_slice(), &[0]].concat()).unwrap_err();
        assert_eq!((fault.code, fault.message), (Code::InvalidArgument, "Integer division by zero"));
    }
    let fault = run_binary::<i32, i32>(Isa::best(), BinaryOp::Pow, DataType::Int32, &[2], &[-1]).unwrap_err();
    assert_eq!((fault.code, fault.message), (Code::InvalidArgument, "Integers to negative integer powers are not allowed"));
}

#[test]
fn every_type_converts_to_every_other() {
    for isa in Isa::available() {
        for from in TYPES {
            for to in TYPES {
                let mut builder = ExprBuilder::new();
                let x = builder.input(from).unwrap();
                let y = builder.cast(to, x).unwrap();
                let n = 39u64;
                let kernel = elementwise_on(isa, &builder.finish(vec![y]), &[n], &[vec![n]]).unwrap();
                let numbers: Vec<f64> = (0..n).map(|at| if from == DataType::Bool { (at % 2) as f64 } else { at as f64 }).collect();
                let inputs = numbers.iter().flat_map(|x| element(from, *x)).collect::<Vec<u8>>();
                let mut outputs = [vec![0; to.size().unwrap() * n as usize]];
                testing::run(&kernel, &[&inputs], &mut outputs).unwrap();
                let expected: Vec<u8> = numbers.iter().flat_map(|x| element(to, *x)).collect();
                assert_eq!(outputs[0], expected, "{isa:?} {from} to {to}");
            }
        }
    }
    let mut builder = ExprBuilder::new();
    let x = builder.input(DataType::Float).unwrap();
    let y = builder.cast(DataType::Int32, x).unwrap();
    let kernel = elementwise(&builder.finish(vec![y]), &[5], &[vec![5]]).unwrap();
    let mut outputs = [vec![0; 20]];
    testing::run(&kernel, &[&testing::bytes(&[-1.9f32, 1.9, 1e20, -1e20, f32::NAN])], &mut outputs).unwrap();
    assert_eq!(testing::values::<i32>(&outputs[0]), [-1, 1, i32::MIN, i32::MIN, i32::MIN]);
}

fn element(data_type: DataType, value: f64) -> Vec<u8> {
    if let Some(part) = data_type.part() {
        return [element(part, value), element(part, 0.0)].concat();
    }
    Scalar::from_f64(data_type, value).unwrap().bits().to_le_bytes()[..data_type.size().unwrap()].to_vec()
}

/// A random expression: `choices` decide its structure. No integer division, which may fault.
fn random_expr(inputs: &[DataType], choices: &[(u8, u16, u16, u16)], outputs: &[u16]) -> Expr {
    let mut builder = ExprBuilder::new();
    let mut regs: Vec<Reg> = inputs.iter().map(|data_type| builder.input(*data_type).unwrap()).collect();
    regs.push(builder.constant(Scalar::F32(1.5)));
    regs.push(builder.constant(Scalar::I64(-3)));
    for (kind, a, b, c) in choices {
        let pick = |n: u16| regs[regs.len() - 1 - n as usize % regs.len().min(8)];
        let made = match kind % 4 {
            0 => builder.unary(UnaryOp::ALL[*b as usize % UnaryOp::ALL.len()], pick(*a)),
            1 => {
                let op = BinaryOp::ALL[*c as usize % BinaryOp::ALL.len()];
                let faults = matches!(op, BinaryOp::Div | BinaryOp::FloorDiv | BinaryOp::FloorMod | BinaryOp::TruncateMod | BinaryOp::Pow);
                if faults && builder.type_of(pick(*a)).is_integer() { Ok(pick(*a)) } else { builder.binary(op, pick(*a), pick(*b)) }
            }
            2 => builder.select(pick(*a), pick(*b), pick(*c)),
            _ => builder.cast(TYPES[*b as usize % TYPES.len()], pick(*a)),
        };
        if let Ok(reg) = made {
            regs.push(reg);
        }
    }
    let outputs = outputs.iter().map(|n| regs[regs.len() - 1 - *n as usize % regs.len()]).collect();
    builder.finish(outputs)
}

/// Runs the steps one by one, each as its own kernel on dense values.
fn step_by_step(isa: Isa, expr: &Expr, shape: &[u64], operands: &[Vec<u64>], inputs: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let count: u64 = shape.iter().product();
    let one = |build: &dyn Fn(&mut ExprBuilder, &[Reg]) -> Reg, types: &[DataType], shapes: &[Vec<u64>], values: &[&[u8]]| {
        let mut builder = ExprBuilder::new();
        let regs: Vec<Reg> = types.iter().map(|data_type| builder.input(*data_type).unwrap()).collect();
        let result = build(&mut builder, &regs);
        let size = builder.type_of(result).size().unwrap();
        let kernel = elementwise_on(isa, &builder.finish(vec![result]), shape, shapes).unwrap();
        let mut outputs = [vec![0; count as usize * size]];
        testing::run(&kernel, values, &mut outputs).unwrap();
        let [output] = outputs;
        output
    };
    let mut values: Vec<Vec<u8>> = Vec::new();
    for instr in expr.instrs() {
        let on = |regs: &[Reg], build: &dyn Fn(&mut ExprBuilder, &[Reg]) -> Reg| {
            let types: Vec<DataType> = regs.iter().map(|reg| expr.type_of(*reg)).collect();
            let dense: Vec<Vec<u64>> = regs.iter().map(|_| shape.to_vec()).collect();
            let operands: Vec<&[u8]> = regs.iter().map(|reg| values[reg.0 as usize].as_slice()).collect();
            one(build, &types, &dense, &operands)
        };
        let value = match *instr {
            Instr::Input(n) => {
                let n = n as usize;
                one(&|_, x| x[0], &[expr.inputs()[n]], &[operands[n].clone()], &[&inputs[n]])
            }
            Instr::Const(value) => one(&|b, _| b.constant(value), &[], &[], &[]),
            Instr::Unary(op, a) => on(&[a], &|b, x| b.unary(op, x[0]).unwrap()),
            Instr::Binary(op, x, y) => on(&[x, y], &|b, x| b.binary(op, x[0], x[1]).unwrap()),
            Instr::Select(c, x, y) => on(&[c, x, y], &|b, x| b.select(x[0], x[1], x[2]).unwrap()),
            Instr::Cast(to, a) => on(&[a], &|b, x| b.cast(to, x[0]).unwrap()),
        };
        values.push(value);
    }
    expr.outputs().iter().map(|reg| values[reg.0 as usize].clone()).collect()
}

fn random_bytes(data_type: DataType, count: u64, seed: u64) -> Vec<u8> {
    if let Some(part) = data_type.part() {
        return random_bytes(part, 2 * count, seed);
    }
    let mut state = seed | 1;
    let mut next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    (0..count)
        .flat_map(|_| {
            element(
                data_type,
                if data_type == DataType::Bool {
                    (next() % 2) as f64
                } else {
                    (next() % 4096) as f64 / 64.0 - if data_type == DataType::Uint8 { 0.0 } else { 32.0 }
                },
            )
        })
        .collect()
}

/// A shape, and shapes that broadcast to it, some of them the shape itself, some of one element.
fn shapes() -> impl Strategy<Value = (Vec<u64>, Vec<Vec<u64>>)> {
    let dims = prop_oneof![Just(1u64), 2..7u64, Just(13), Just(150), Just(16)];
    (prop::collection::vec(dims, 0..4), prop::collection::vec(0..96u8, 1..5)).prop_map(|(shape, masks)| {
        let operands = masks.iter().map(|mask| {
            if mask & 64 != 0 {
                return Vec::new();
            }
            if mask & 32 != 0 {
                return shape.clone();
            }
            let skip = (*mask as usize >> 3 & 3).min(shape.len());
            shape.iter().enumerate().skip(skip).map(|(at, size)| if mask >> at & 1 == 1 { 1 } else { *size }).collect()
        });
        (shape.clone(), operands.collect())
    })
}

fn run_outputs(
    kernel: &Prepared,
    expr: &Expr,
    count: u64,
    inputs: &[Vec<u8>],
    calls: &[Range<u32>],
    in_place: &[(usize, usize)],
) -> Vec<Vec<u8>> {
    let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    let mut outputs: Vec<Vec<u8>> =
        expr.output_types().iter().map(|data_type| vec![0; count as usize * data_type.size().unwrap()]).collect();
    testing::run_pieces(kernel, &inputs, &mut outputs, calls, in_place).unwrap();
    outputs
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_chain_gives_the_bits_of_its_steps_whole_in_pieces_and_in_place(
        (shape, operands) in shapes(),
        types in prop::collection::vec(0..TYPES.len(), 4),
        choices in prop::collection::vec(any::<(u8, u16, u16, u16)>(), 0..16),
        outputs in prop::collection::vec(0..12u16, 1..4),
        seed in any::<u64>(),
        pairing in any::<u16>(),
    ) {
        // Mostly floats, so that chains get long.
        let types: Vec<DataType> = operands.iter().zip(types).map(|(_, n)| if seed >> n & 1 == 1 { TYPES[n] } else { DataType::Float }).collect();
        let expr = random_expr(&types, &choices, &outputs);
        let count: u64 = shape.iter().product();
        let inputs: Vec<Vec<u8>> = operands.iter().zip(&types).enumerate().map(|(at, (shape, data_type))| random_bytes(*data_type, shape.iter().product(), seed ^ at as u64)).collect();
        for isa in Isa::available() {
            let kernel = elementwise_on(isa, &expr, &shape, &operands).unwrap();
            let whole = run_outputs(&kernel, &expr, count, &inputs, &[0..kernel.chunks], &[]);
            prop_assert_eq!(&whole, &step_by_step(isa, &expr, &shape, &operands, &inputs), "{:?} {}", isa, expr);
            let backwards: Vec<Range<u32>> = (0..kernel.chunks).rev().map(|at| at..at + 1).collect();
            prop_assert_eq!(&whole, &run_outputs(&kernel, &expr, count, &inputs, &backwards, &[]));
            // Some of the pairs that are allowed, each operand and each output once.
            let mut pairs: Vec<(usize, usize)> = Vec::new();
            for (at, pair) in kernel.in_place.iter().enumerate() {
                let free = pairs.iter().all(|taken| taken.0 != pair.0 && taken.1 != pair.1);
                if free && pairing >> (at % 16) & 1 == 1 {
                    pairs.push(*pair);
                }
            }
            prop_assert_eq!(&whole, &run_outputs(&kernel, &expr, count, &inputs, &backwards, &pairs), "{:?} {:?} {}", isa, pairs, expr);
        }
    }
}

#[test]
fn large_shapes_are_cut_and_rows_are_spread_over_tiles() {
    // x * column + row over many rows, short and long.
    let mut builder = ExprBuilder::new();
    let (x, column, row) =
        (builder.input(DataType::Float).unwrap(), builder.input(DataType::Float).unwrap(), builder.input(DataType::Float).unwrap());
    let product = builder.binary(BinaryOp::Mul, x, column).unwrap();
    let sum = builder.binary(BinaryOp::Add, product, row).unwrap();
    let expr = builder.finish(vec![sum]);
    for (batch, rows, columns) in [(3u64, 700u64, 33u64), (1, 90, 1100), (2, 5000, 2), (2, 41, 128)] {
        let shape = [batch, rows, columns];
        let kernel = elementwise(&expr, &shape, &[shape.to_vec(), vec![rows, 1], vec![batch, 1, columns]]).unwrap();
        assert!(kernel.chunks > 1 || batch * rows * columns < 33_000, "{shape:?} is one piece");
        let x: Vec<f32> = (0..batch * rows * columns).map(|n| (n % 1000) as f32).collect();
        let column: Vec<f32> = (0..rows).map(|n| n as f32 * 0.5).collect();
        let row: Vec<f32> = (0..batch * columns).map(|n| n as f32 - 7.0).collect();
        let result = testing::run_one(&kernel, &[&x, &column, &row], x.len()).unwrap();
        for (at, value) in result.iter().enumerate() {
            let (b, r, c) = (at / (rows * columns) as usize, at / columns as usize % rows as usize, at % columns as usize);
            assert_eq!(*value, x[at] * column[r] + row[b * columns as usize + c], "{shape:?} at {b} {r} {c}");
        }
    }
}

#[test]
fn outputs_that_swap_places_keep_their_values() {
    let mut builder = ExprBuilder::new();
    let (x, y) = (builder.input(DataType::Float).unwrap(), builder.input(DataType::Float).unwrap());
    let expr = builder.finish(vec![x, y, x]);
    let kernel = elementwise(&expr, &[3], &[vec![3], vec![3]]).unwrap();
    let inputs = [testing::bytes(&[1f32, 2.0, 3.0]), testing::bytes(&[4f32, 5.0, 6.0])];
    let swapped = run_outputs(&kernel, &expr, 3, &inputs, &[0..1], &[(0, 1), (1, 0)]);
    assert_eq!(swapped, [inputs[0].clone(), inputs[1].clone(), inputs[0].clone()]);
}

#[test]
fn nothing_and_numbers_alone_are_shapes_too() {
    let mut builder = ExprBuilder::new();
    let three = builder.constant(Scalar::I32(3));
    let expr = builder.finish(vec![three]);
    let kernel = elementwise(&expr, &[2, 3], &[]).unwrap();
    assert_eq!(run_outputs(&kernel, &expr, 6, &[], &[0..1], &[]), [testing::bytes(&[3i32; 6])]);
    let empty = elementwise(&expr, &[0, 3], &[]).unwrap();
    assert_eq!(run_outputs(&empty, &expr, 0, &[], &[0..1], &[]), [Vec::<u8>::new()]);
}

#[test]
fn what_does_not_fit_is_an_error() {
    let expr = binary(BinaryOp::Add, DataType::Float).unwrap();
    assert_eq!(elementwise(&expr, &[2], &[vec![2]]).unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(elementwise(&expr, &[2], &[vec![2], vec![3]]).unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(elementwise(&expr, &[u64::MAX, u64::MAX], &[vec![], vec![]]).unwrap_err().code(), Code::InvalidArgument);
}
