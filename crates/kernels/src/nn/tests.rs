use super::*;
use crate::testing::{bytes, run, run_one, run_pieces, values};
use plimsoll_base::DataType;
use plimsoll_device::Prepared;

/// Logits without pattern in ±6, or ±`scale`.
fn logits(rows: usize, classes: usize, scale: f64) -> Vec<f64> {
    let value = |row: usize, class: usize| ((row * 37 + class * 101 + 13) % 97) as f64 / 97.0 * 2.0 * scale - scale;
    (0..rows).flat_map(|row| (0..classes).map(move |class| value(row, class))).collect()
}

fn labels(rows: usize, classes: usize) -> Vec<f64> {
    let value = |row: usize, class: usize| ((row * 31 + class * 17 + 5) % 23) as f64;
    (0..rows)
        .flat_map(|row| {
            let sum: f64 = (0..classes).map(|class| value(row, class)).sum();
            (0..classes).map(move |class| value(row, class) / sum).collect::<Vec<_>>()
        })
        .collect()
}

fn narrow(values: &[f64]) -> Vec<f32> {
    values.iter().map(|value| *value as f32).collect()
}

/// Largest, log of the sum of powers.
fn parts(row: &[f64]) -> (f64, f64) {
    let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (max, row.iter().map(|x| (x - max).exp()).sum::<f64>().ln())
}

fn near(what: &str, got: &[f32], expected: &[f64], relative: f64, absolute: f64) {
    assert_eq!(got.len(), expected.len());
    for (at, (got, expected)) in got.iter().zip(expected).enumerate() {
        let error = (f64::from(*got) - expected).abs();
        assert!(error <= relative * expected.abs() + absolute, "{what}, element {at}: {got} instead of {expected}");
    }
}

fn in_pieces(prepared: &Prepared, inputs: &[&[u8]], outputs: &[Vec<u8>], in_place: &[(usize, usize)]) -> Vec<Vec<u8>> {
    let calls: Vec<_> = (0..prepared.chunks).rev().map(|piece| piece..piece + 1).collect();
    let mut again: Vec<Vec<u8>> = outputs.iter().map(|output| vec![0xEE; output.len()]).collect();
    run_pieces(prepared, inputs, &mut again, &calls, in_place).unwrap();
    again
}

const SHAPES: &[(usize, usize)] =
    &[(1, 1), (3, 10), (50, 10), (5, 15), (5, 16), (5, 17), (2, 33), (300, 1000), (1, 50_001), (0, 10), (4, 0)];

#[test]
fn softmaxes_agree_with_the_definition() {
    for &(rows, classes) in SHAPES {
        for scale in [6.0, 300.0] {
            let input: Vec<f64> = narrow(&logits(rows, classes, scale)).iter().map(|x| f64::from(*x)).collect();
            let row = |at: usize| &input[at * classes..(at + 1) * classes];
            let log: Vec<f64> = (0..rows)
                .flat_map(|at| {
                    let (max, log) = parts(row(at));
                    row(at).iter().map(move |x| x - max - log).collect::<Vec<_>>()
                })
                .collect();
            let plain: Vec<f64> = log.iter().map(|x| x.exp()).collect();
            // Far below the largest logit the rounded difference limits the power.
            for (what, make, expected) in [("softmax", softmax as fn(_, _, _, _) -> _, &plain), ("log softmax", log_softmax, &log)] {
                let prepared: Prepared = make(crate::simd::Isa::best(), DataType::Float, rows as u64, classes as u64).unwrap();
                let bytes = bytes(&narrow(&input));
                let mut outputs = [vec![0; bytes.len()]];
                run(&prepared, &[&bytes], &mut outputs).unwrap();
                near(
                    what,
                    &values::<f32>(&outputs[0]),
                    expected,
                    if scale > 10.0 { 4e-5 } else { 1e-6 },
                    if what == "softmax" { 1e-37 } else { 1e-6 },
                );
                assert_eq!(in_pieces(&prepared, &[&bytes], &outputs, &[]), outputs, "{what} in pieces");
                assert_eq!(in_pieces(&prepared, &[&bytes], &outputs, &[(0, 0)]), outputs, "{what} in place");
                let wide: Prepared = make(crate::simd::Isa::best(), DataType::Double, rows as u64, classes as u64).unwrap();
                for (got, expected) in run_one(&wide, &[&input], input.len()).unwrap().iter().zip(expected) {
                    assert!((got - expected).abs() <= 1e-12 * expected.abs(), "{what} of double: {got} instead of {expected}");
                }
            }
        }
    }
    assert!(softmax(crate::simd::Isa::best(), DataType::Int32, 1, 1).is_err());
    assert!(softmax(crate::simd::Isa::best(), DataType::Float, u64::MAX, 2).is_err());
}

#[test]
fn softmaxes_of_what_is_not_finite() {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let prepared = softmax(crate::simd::Isa::best(), DataType::Float, 1, 2).unwrap();
    for row in [[-inf, -inf], [nan, 1.0], [1.0, nan], [inf, 1.0]] {
        assert!(run_one(&prepared, &[&row], 2).unwrap().iter().any(|x| x.is_nan()));
    }
    assert_eq!(run_one(&prepared, &[&[-inf, 1.0]], 2).unwrap(), [0.0, 1.0]);
    assert_eq!(run_one(&log_softmax(crate::simd::Isa::best(), DataType::Float, 1, 2).unwrap(), &[&[-inf, 1.0]], 2).unwrap(), [-inf, 0.0]);
    assert_eq!(
        run_one(&log_softmax(crate::simd::Isa::best(), DataType::Float, 1, 2).unwrap(), &[&[-200.0, 1.0f32]], 2).unwrap(),
        [-201.0, 0.0]
    );
}

#[test]
fn cross_entropies_agree_with_the_definition() {
    for &(rows, classes) in SHAPES {
        let features: Vec<f64> = narrow(&logits(rows, classes, 6.0)).iter().map(|x| f64::from(*x)).collect();
        let labels: Vec<f64> = narrow(&labels(rows, classes)).iter().map(|x| f64::from(*x)).collect();
        let mut expected = (Vec::new(), Vec::new());
        for at in 0..rows {
            let (row, label) = (&features[at * classes..(at + 1) * classes], &labels[at * classes..(at + 1) * classes]);
            let (max, log) = parts(row);
            expected.0.push(row.iter().zip(label).map(|(x, label)| label * (log - (x - max))).sum::<f64>());
            expected.1.extend(row.iter().zip(label).map(|(x, label)| (x - max - log).exp() - label));
        }
        let prepared = softmax_cross_entropy(crate::simd::Isa::best(), DataType::Float, rows as u64, classes as u64).unwrap();
        let inputs = [&bytes(&narrow(&features))[..], &bytes(&narrow(&labels))];
        let mut outputs = [vec![0; rows * 4], vec![0; rows * classes * 4]];
        run(&prepared, &inputs, &mut outputs).unwrap();
        near("loss", &values(&outputs[0]), &expected.0, 2e-6, 0.0);
        near("backprop", &values(&outputs[1]), &expected.1, 1e-6, 1e-7);
        assert_eq!(in_pieces(&prepared, &inputs, &outputs, &[]), outputs);
        assert_eq!(in_pieces(&prepared, &inputs, &outputs, &[(0, 1)]), outputs);
        let mut wide = [vec![0; rows * 8], vec![0; rows * classes * 8]];
        run(
            &softmax_cross_entropy(crate::simd::Isa::best(), DataType::Double, rows as u64, classes as u64).unwrap(),
            &[&bytes(&features), &bytes(&labels)],
            &mut wide,
        )
        .unwrap();
        for (got, expected) in values::<f64>(&wide[0]).iter().chain(&values(&wide[1])).zip(expected.0.iter().chain(&expected.1)) {
            assert!((got - expected).abs() <= 1e-12);
        }

        if classes == 0 {
            assert!(sparse_softmax_cross_entropy(crate::simd::Isa::best(), DataType::Float, DataType::Int32, rows as u64, 0).is_err());
            continue;
        }
        let classes_of_rows: Vec<i64> = (0..rows).map(|row| (row * 7 % classes) as i64).collect();
        let mut expected = (Vec::new(), Vec::new());
        for (at, label) in classes_of_rows.iter().enumerate() {
            let row = &features[at * classes..(at + 1) * classes];
            let (max, log) = parts(row);
            expected.0.push(log - (row[*label as usize] - max));
            expected
                .1
                .extend(row.iter().enumerate().map(|(class, x)| (x - max - log).exp() - if class as i64 == *label { 1.0 } else { 0.0 }));
        }
        let prepared =
            sparse_softmax_cross_entropy(crate::simd::Isa::best(), DataType::Float, DataType::Int64, rows as u64, classes as u64).unwrap();
        let inputs = [&bytes(&narrow(&features))[..], &bytes(&classes_of_rows)];
        run(&prepared, &inputs, &mut outputs).unwrap();
        near("sparse loss", &values(&outputs[0]), &expected.0, 2e-6, 1e-12);
        near("sparse backprop", &values(&outputs[1]), &expected.1, 1e-6, 1e-7);
        assert_eq!(in_pieces(&prepared, &inputs, &outputs, &[]), outputs);
        assert_eq!(in_pieces(&prepared, &inputs, &outputs, &[(0, 1)]), outputs);
    }
}

#[test]
fn a_label_that_is_no_class_is_a_fault() {
    let prepared = sparse_softmax_cross_entropy(crate::simd::Isa::best(), DataType::Float, DataType::Int32, 2, 2).unwrap();
    for (label, text) in [(2, "2"), (-1, "-1"), (i32::MIN, "-2147483648")] {
        let mut outputs = [vec![0; 8], vec![0; 16]];
        let fault = run(&prepared, &[&bytes(&[1.0f32, 2.0, 3.0, 4.0]), &bytes(&[0, label])], &mut outputs).unwrap_err();
        let expected = format!("Received a label value of {text} which is outside the valid range of [0, 2).");
        assert_eq!(fault.to_error().message(), expected);
    }
    assert!(sparse_softmax_cross_entropy(crate::simd::Isa::best(), DataType::Float, DataType::Float, 2, 2).is_err());
    assert!(softmax_cross_entropy(crate::simd::Isa::best(), DataType::Bool, 2, 2).is_err());
}

/// Recorded from TensorFlow 2.21 with the same logits and labels: 3 rows of 21 classes.
#[test]
fn values_from_tensorflow() {
    let input = narrow(&logits(3, 21, 6.0));
    let plain = run_one(&softmax(crate::simd::Isa::best(), DataType::Float, 3, 21).unwrap(), &[&input], 63).unwrap();
    near("softmax", &plain[21..25], &[0.0016918503679335117, 0.002775048604235053, 0.004551759455353022, 0.007465997710824013], 1e-6, 0.0);
    near("softmax", &plain[32..35], &[0.3911621570587158, 3.942133389500668e-06, 6.4660680436645634e-06], 1e-6, 0.0);
    let log = run_one(&log_softmax(crate::simd::Isa::best(), DataType::Float, 3, 21).unwrap(), &[&input], 63).unwrap();
    near("log softmax", &log[42..46], &[-1.730479121208191, -1.2356337308883667, -0.7407883405685425, -12.245943069458008], 1e-6, 0.0);
    let mut outputs = [vec![0; 12], vec![0; 252]];
    let inputs = [&bytes(&input)[..], &bytes(&narrow(&labels(3, 21)))];
    run(&softmax_cross_entropy(crate::simd::Isa::best(), DataType::Float, 3, 21).unwrap(), &inputs, &mut outputs).unwrap();
    near("loss", &values(&outputs[0]), &[6.439001560211182, 6.51204252243042, 6.611642360687256], 1e-6, 0.0);
    let expected = &[-0.02220257744193077, -0.09774555265903473, -0.0710582584142685, -0.044357746839523315];
    near("backprop", &values::<f32>(&outputs[1])[..4], expected, 1e-6, 1e-8);
    let inputs = [&bytes(&input)[..], &bytes(&[0i32, 20, 7])];
    run(&sparse_softmax_cross_entropy(crate::simd::Isa::best(), DataType::Float, DataType::Int32, 3, 21).unwrap(), &inputs, &mut outputs)
        .unwrap();
    near("sparse loss", &values(&outputs[0]), &[10.837627410888672, 8.485025405883789, 10.266561508178711], 1e-6, 0.0);
    near("sparse backprop", &values::<f32>(&outputs[1])[41..42], &[-0.9997934699058533], 1e-6, 0.0);
}
