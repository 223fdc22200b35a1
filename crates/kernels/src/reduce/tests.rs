use super::*;
use crate::simd::{Isa, Vectorised};
use crate::testing::{bytes, run, run_one, run_pieces, values};

/// Numbers without pattern in [-1, 1).
fn noise(len: usize) -> Vec<f32> {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 40) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect()
}

/// The elements under each result, in row-major order.
fn groups<T: Copy>(input: &[T], shape: &[u64], axes: &[usize]) -> Vec<Vec<T>> {
    let results: u64 = shape.iter().enumerate().filter(|(axis, _)| !axes.contains(axis)).map(|(_, size)| *size).product();
    let mut groups = vec![Vec::new(); results as usize];
    for (at, value) in input.iter().enumerate() {
        let (mut rest, mut place, mut stride) = (at, 0, 1);
        for (axis, size) in shape.iter().enumerate().rev() {
            let index = rest % *size as usize;
            rest /= *size as usize;
            if !axes.contains(&axis) {
                place += index * stride;
                stride *= *size as usize;
            }
        }
        groups[place].push(*value);
    }
    groups
}

const CASES: &[(&[u64], &[usize])] = &[
    (&[], &[]),
    (&[1], &[0]),
    (&[7], &[0]),
    (&[7], &[]),
    (&[63], &[0]),
    (&[100], &[0]),
    (&[10_007], &[0]),
    (&[1, 10], &[0]),
    (&[33, 10], &[1]),
    (&[33, 10], &[0]),
    (&[513, 3], &[0]),
    (&[50_000, 1], &[0]),
    (&[20_011, 2], &[0]),
    (&[700, 130], &[0]),
    (&[3, 1100], &[0]),
    (&[3, 1100], &[1]),
    (&[5, 4, 3, 6], &[1, 2]),
    (&[5, 4, 3, 6], &[0, 2]),
    (&[5, 4, 3, 6], &[1, 3]),
    (&[5, 4, 3, 6], &[0, 1, 2]),
    (&[5, 4, 3, 6], &[0, 2, 3]),
    (&[2, 3, 1, 2, 3, 2], &[0, 2, 3, 5]),
    (&[40, 9, 5], &[1]),
    (&[0, 3], &[0]),
    (&[3, 0], &[0]),
    (&[3, 0, 2], &[1, 2]),
    (&[0, 3, 4], &[0, 2]),
    (&[4, 0, 3, 5], &[1, 3]),
];

#[test]
fn floats_agree_with_naive_loops() {
    for &(shape, axes) in CASES {
        let input = noise(elements(shape).unwrap());
        let expected = groups(&input, shape, axes);
        let wide: Vec<f64> = input.iter().map(|x| f64::from(*x)).collect();
        for op in [ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Max, ReduceOp::Min, ReduceOp::Prod] {
            let got = run_one(&reduce(Isa::best(), op, DataType::Float, shape, axes).unwrap(), &[&input], expected.len()).unwrap();
            let got_wide = run_one(&reduce(Isa::best(), op, DataType::Double, shape, axes).unwrap(), &[&wide], expected.len()).unwrap();
            for ((got, got_wide), group) in got.iter().zip(got_wide).zip(&expected) {
                let all = group.iter().map(|x| f64::from(*x));
                let scale = all.clone().map(f64::abs).sum::<f64>();
                let (expected, tolerance) = match op {
                    ReduceOp::Sum => (all.sum::<f64>(), 1e-6 * scale),
                    ReduceOp::Mean => (all.sum::<f64>() / group.len() as f64, 1e-6 * scale / group.len() as f64),
                    ReduceOp::Max => (all.fold(f64::NEG_INFINITY, f64::max), 0.0),
                    ReduceOp::Min => (all.fold(f64::INFINITY, f64::min), 0.0),
                    _ => (all.product::<f64>(), 1e-5),
                };
                let near =
                    |got: f64, tolerance: f64| got == expected || (got - expected).abs() <= tolerance || got.is_nan() && expected.is_nan();
                assert!(near(f64::from(*got), tolerance), "{op:?} {shape:?} {axes:?}: {got} instead of {expected}");
                assert!(near(got_wide, tolerance * 1e-6), "{op:?} {shape:?} {axes:?}: {got_wide} instead of {expected}");
            }
        }
    }
}

#[test]
fn integers_agree_with_naive_loops() {
    for &(shape, axes) in CASES {
        let input: Vec<i32> = noise(elements(shape).unwrap()).iter().map(|x| (x * 2e9) as i32).collect();
        let expected = groups(&input, shape, axes);
        for op in [ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Max, ReduceOp::Min, ReduceOp::Prod] {
            let got = run_one(&reduce(Isa::best(), op, DataType::Int32, shape, axes).unwrap(), &[&input], expected.len()).unwrap();
            for (got, group) in got.iter().zip(&expected) {
                let all = group.iter().copied();
                let expected = match op {
                    ReduceOp::Sum => all.fold(0i32, i32::wrapping_add),
                    ReduceOp::Mean => (all.map(i64::from).sum::<i64>() / group.len().max(1) as i64) as i32,
                    ReduceOp::Max => all.max().unwrap_or(i32::MIN),
                    ReduceOp::Min => all.min().unwrap_or(i32::MAX),
                    _ => all.fold(1, i32::wrapping_mul),
                };
                assert_eq!(*got, expected, "{op:?} {shape:?} {axes:?}");
            }
        }
    }
}

#[test]
fn other_types_and_the_values_tensorflow_gives() {
    let sum = |op, input: &[u8]| {
        run_one(&reduce(Isa::best(), op, DataType::Uint8, &[input.len() as u64], &[0]).unwrap(), &[input], 1).unwrap()[0]
    };
    assert_eq!(sum(ReduceOp::Sum, &[200, 100]), 44);
    assert_eq!(sum(ReduceOp::Mean, &[200, 100, 101]), 133);
    let mean = |input: &[i64]| {
        run_one(&reduce(Isa::best(), ReduceOp::Mean, DataType::Int64, &[input.len() as u64], &[0]).unwrap(), &[input], 1).unwrap()[0]
    };
    assert_eq!([mean(&[-1, -2, -4]), mean(&[1, 2, 5]), mean(&[i64::MAX, i64::MAX])], [-2, 2, -1]);
    let max = |op, input: &[f32]| {
        run_one(&reduce(Isa::best(), op, DataType::Float, &[input.len() as u64], &[0]).unwrap(), &[input], 1).unwrap()[0]
    };
    for input in [[1.0, f32::NAN, 3.0], [f32::NAN, 1.0, 3.0], [1.0, 3.0, f32::NAN]] {
        assert!(max(ReduceOp::Max, &input).is_nan() && max(ReduceOp::Min, &input).is_nan());
    }
    assert_eq!(run_one::<f32>(&l2_loss(Isa::best(), DataType::Float, &[1, 2]).unwrap(), &[&[1.0, 2.0]], 1).unwrap(), [2.5]);
    assert!(reduce(Isa::best(), ReduceOp::Sum, DataType::String, &[2], &[0]).is_err());
    assert!(reduce(Isa::best(), ReduceOp::All, DataType::Float, &[2], &[0]).is_err());
    assert!(reduce(Isa::best(), ReduceOp::Sum, DataType::Float, &[2], &[1]).is_err());
    assert!(reduce(Isa::best(), ReduceOp::Sum, DataType::Float, &[u64::MAX, u64::MAX], &[1]).is_err());
}

#[test]
fn all_and_any() {
    for &(shape, axes) in CASES {
        let input: Vec<bool> = noise(elements(shape).unwrap()).iter().map(|x| *x > -0.8).collect();
        let expected = groups(&input, shape, axes);
        for (op, expected) in [
            (ReduceOp::All, expected.iter().map(|group| group.iter().all(|x| *x)).collect::<Vec<_>>()),
            (ReduceOp::Any, expected.iter().map(|group| group.iter().any(|x| *x)).collect()),
        ] {
            assert_eq!(
                run_one(&reduce(Isa::best(), op, DataType::Bool, shape, axes).unwrap(), &[&input], expected.len()).unwrap(),
                expected
            );
        }
    }
}

#[test]
fn pieces_and_instruction_sets_change_no_bit() {
    for (shape, axes) in [(&[3000u64, 130][..], &[0usize][..]), (&[3000, 130], &[1]), (&[300, 20, 33], &[0, 2]), (&[60, 200, 33], &[1])] {
        let prepared = reduce(Isa::best(), ReduceOp::Sum, DataType::Float, shape, axes).unwrap();
        assert!(prepared.chunks > 1, "{shape:?} {axes:?}");
        let input = noise(elements(shape).unwrap());
        let len = groups(&input, shape, axes).len();
        let whole = run_one(&prepared, &[&input], len).unwrap();
        let calls: Vec<_> = (0..prepared.chunks).rev().map(|piece| piece..piece + 1).collect();
        let mut outputs = [vec![0; len * 4]];
        run_pieces(&prepared, &[&bytes(&input)], &mut outputs, &calls, &[]).unwrap();
        assert_eq!(values::<f32>(&outputs[0]), whole);
    }
    let values = noise(20_000);
    let portable = RowSum(&values).run::<false>();
    for isa in Isa::available() {
        // SAFETY: the set is available.
        assert_eq!(unsafe { isa.run(RowSum(&values)) }.to_bits(), portable.to_bits());
    }
}

struct RowSum<'a>(&'a [f32]);
impl Vectorised for RowSum<'_> {
    type Output = f32;
    #[inline(always)]
    fn run<const FMA: bool>(self) -> f32 {
        rows::fold_row::<f32, fold::Sum, 64>(self.0)
    }
}

#[test]
fn long_sums_lose_nothing() {
    // One after the other, a million times 0.1 is off by 1%.
    let input = vec![0.1f32; 1 << 20];
    for (shape, axes) in [
        (&[1u64 << 20][..], &[0usize][..]),
        (&[1 << 20, 1], &[0]),
        (&[1 << 19, 2], &[0, 1]),
        (&[1 << 12, 2, 1 << 7], &[0, 2]),
        (&[1 << 18, 4], &[0]),
    ] {
        let len = groups(&input, shape, axes).len();
        let expected = 0.1f32 as f64 * input.len() as f64 / len as f64;
        for got in run_one(&reduce(Isa::best(), ReduceOp::Sum, DataType::Float, shape, axes).unwrap(), &[&input], len).unwrap() {
            assert!((f64::from(got) / expected - 1.0).abs() < 1e-6, "{got} instead of {expected}");
        }
    }
}

#[test]
fn arg_max_and_arg_min_take_the_first() {
    for (shape, axis) in
        [(&[7u64][..], 0), (&[33, 10], 1), (&[33, 10], 0), (&[5, 100, 3], 1), (&[2, 9, 130], 1), (&[0, 3], 1), (&[3, 0], 0), (&[1], 0)]
    {
        // Few different values, so that there are ties.
        let input: Vec<f32> = noise(elements(shape).unwrap()).iter().map(|x| (x * 4.0).floor()).collect();
        let integers: Vec<i64> = input.iter().map(|x| *x as i64).collect();
        let groups = groups(&input, shape, &[axis]);
        let first = |pick: fn(f32, f32) -> f32| -> Vec<i64> {
            let place = |group: &Vec<f32>| {
                let chosen = group.iter().copied().reduce(pick)?;
                group.iter().position(|x| *x == chosen)
            };
            groups.iter().map(|group| place(group).unwrap() as i64).collect()
        };
        let long = |prepared: &Prepared, input: &[u8]| {
            let mut outputs = [vec![0; groups.len() * 8]];
            run(prepared, &[input], &mut outputs).unwrap();
            values::<i64>(&outputs[0])
        };
        assert_eq!(long(&arg_max(DataType::Float, DataType::Int64, shape, axis).unwrap(), &bytes(&input)), first(f32::max));
        assert_eq!(long(&arg_min(DataType::Float, DataType::Int64, shape, axis).unwrap(), &bytes(&input)), first(f32::min));
        assert_eq!(long(&arg_max(DataType::Int64, DataType::Int64, shape, axis).unwrap(), &bytes(&integers)), first(f32::max));
        let mut outputs = [vec![0; groups.len() * 4]];
        run(&arg_min(DataType::Float, DataType::Int32, shape, axis).unwrap(), &[&bytes(&input)], &mut outputs).unwrap();
        assert_eq!(values::<i32>(&outputs[0]).iter().map(|x| i64::from(*x)).collect::<Vec<_>>(), first(f32::min));
    }
    assert!(arg_max(DataType::Float, DataType::Int64, &[2, 0], 1).is_err());
    assert!(arg_max(DataType::Float, DataType::Int64, &[2], 1).is_err());
}

#[test]
fn arg_max_of_what_cannot_be_compared() {
    use std::f32::consts::PI;
    const NAN: f32 = f32::NAN;
    const INF: f32 = f32::INFINITY;
    // (row, ArgMax, ArgMin) as TensorFlow 2.21 gives them.
    for (row, largest, smallest) in [
        (vec![1.0, NAN, PI], 2, 0),
        (vec![NAN, 1.0, PI], 2, 1),
        (vec![NAN, NAN], 0, 0),
        (vec![-INF, -INF], 0, 0),
        (vec![-INF, NAN, -PI], 2, 0),
        (vec![2.0, 5.0, 5.0], 1, 0),
    ] {
        for shape in [vec![row.len() as u64], vec![row.len() as u64, 2]] {
            let copies = shape.get(1).copied().unwrap_or(1) as usize;
            let input: Vec<f32> = row.iter().flat_map(|x| vec![*x; copies]).collect();
            for (prepared, expected) in [
                (arg_max(DataType::Float, DataType::Int64, &shape, 0), largest),
                (arg_min(DataType::Float, DataType::Int64, &shape, 0), smallest),
            ] {
                let mut outputs = [vec![0; 8 * copies]];
                run(&prepared.unwrap(), &[&bytes(&input)], &mut outputs).unwrap();
                assert_eq!(values::<i64>(&outputs[0]), vec![expected; copies], "{row:?}");
            }
        }
    }
}

#[test]
fn in_top_k_as_tensorflow() {
    let ask = |predictions: &[f32], classes: u64, targets: &[i32], k: i64| {
        let mut outputs = [vec![0; targets.len()]];
        run(
            &in_top_k(DataType::Int32, targets.len() as u64, classes, Some(k)).unwrap(),
            &[&bytes(predictions), &bytes(targets)],
            &mut outputs,
        )
        .unwrap();
        let wide: Vec<i64> = targets.iter().map(|target| i64::from(*target)).collect();
        let mut again = [vec![0; targets.len()]];
        let inputs = [&bytes(predictions)[..], &bytes(&wide), &bytes(&[k])];
        run(&in_top_k(DataType::Int64, targets.len() as u64, classes, None).unwrap(), &inputs, &mut again).unwrap();
        assert_eq!(outputs, again);
        values::<bool>(&outputs[0])
    };
    let row = [1.0, 2.0, 2.0, 0.0].repeat(4);
    for (k, expected) in [
        (-1, [false; 4]),
        (0, [false; 4]),
        (1, [false, true, true, false]),
        (2, [false, true, true, false]),
        (3, [true, true, true, false]),
        (4, [true; 4]),
        (9, [true; 4]),
    ] {
        assert_eq!(ask(&row, 4, &[0, 1, 2, 3], k), expected, "k = {k}");
    }
    assert_eq!(ask(&row[..12], 4, &[-1, 4, 1], 9), [false, false, true]);
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    assert_eq!(ask(&[1.0, nan, 2.0, 1.0, inf, 0.0, inf, 2.0, 1.0, 5.0, 4.0, -inf], 3, &[2, 0, 0, 0], 5), [false; 4]);
    assert!(ask(&[], 3, &[], 1).is_empty());
    assert!(in_top_k(DataType::Float, 1, 1, None).is_err());
}
