//! Transforms against their definition.

use plimsoll_base::Code;

use super::*;
use crate::testing::{bytes, run, run_one, values};

fn numbers(count: usize) -> Vec<f64> {
    (0..count).map(|at| ((at * 37 + 11) % 101) as f64 / 50.0 - 1.0).collect()
}

fn request(form: FftForm, rows: u64, row: u64, length: u64) -> Prepared {
    fft(&Fft { form, part: DataType::Double, rows, row, length }).unwrap()
}

/// The sum of `x[p] * exp(sign * 2i pi p q / n)`, for each `q`.
fn defined(x: &[(f64, f64)], sign: f64) -> Vec<(f64, f64)> {
    let n = x.len();
    let of = |q: usize| {
        x.iter().enumerate().fold((0.0, 0.0), |(re, im), (p, (a, b))| {
            let (sin, cos) = (sign * 2.0 * std::f64::consts::PI * ((p * q) % n) as f64 / n as f64).sin_cos();
            (re + a * cos - b * sin, im + a * sin + b * cos)
        })
    };
    (0..n).map(of).collect()
}

fn pairs(x: &[f64]) -> Vec<(f64, f64)> {
    x.chunks(2).map(|pair| (pair[0], pair[1])).collect()
}

fn near(got: &[f64], expected: &[(f64, f64)], scale: f64) {
    assert_eq!(got.len(), 2 * expected.len());
    for (got, (re, im)) in pairs(got).into_iter().zip(expected) {
        assert!((got.0 - re * scale).abs() < 1e-9 && (got.1 - im * scale).abs() < 1e-9, "{got:?} and not {re} {im} times {scale}");
    }
}

/// Powers of two, products of small primes, primes.
const LENGTHS: [usize; 12] = [1, 2, 3, 4, 5, 8, 12, 31, 60, 64, 97, 128];

#[test]
fn transforms_are_what_they_are_defined_as() {
    for length in LENGTHS {
        let x = numbers(2 * 3 * length);
        for (form, sign, scale) in [(FftForm::Forward, -1.0, 1.0), (FftForm::Inverse, 1.0, 1.0 / length as f64)] {
            let got = run_one(&request(form, 3, length as u64, length as u64), &[&x], x.len()).unwrap();
            for row in 0..3 {
                let of = 2 * row * length..2 * (row + 1) * length;
                near(&got[of.clone()], &defined(&pairs(&x[of]), sign), scale);
            }
        }
    }
}

#[test]
fn real_rows_become_half_as_many_numbers_and_back() {
    for length in LENGTHS {
        let (x, half) = (numbers(2 * length), length / 2 + 1);
        let got = run_one(&request(FftForm::Real, 2, length as u64, length as u64), &[&x], 2 * 2 * half).unwrap();
        for row in 0..2 {
            let complex: Vec<(f64, f64)> = x[row * length..(row + 1) * length].iter().map(|x| (*x, 0.0)).collect();
            near(&got[2 * row * half..2 * (row + 1) * half], &defined(&complex, -1.0)[..half], 1.0);
        }
        let back = run_one(&request(FftForm::InverseReal, 2, half as u64, length as u64), &[&got], x.len()).unwrap();
        assert!(back.iter().zip(&x).all(|(back, x)| (back - x).abs() < 1e-9), "{back:?} and not {x:?}");
    }
}

#[test]
fn rows_are_cut_off_and_filled_up() {
    let x = numbers(2 * 6);
    for row in [1usize, 3, 6] {
        let given = &x[..2 * row];
        let got = run_one(&request(FftForm::Forward, 1, row as u64, 4), &[given], 8).unwrap();
        let mut taken = pairs(given);
        taken.resize(4, (0.0, 0.0));
        near(&got, &defined(&taken, -1.0), 1.0);
    }
}

/// A part that is 0 for any real row is not looked at, whatever it is.
#[test]
fn what_no_real_row_has_is_ignored() {
    let prepared = request(FftForm::InverseReal, 1, 3, 4);
    let same = |x: [f64; 6]| {
        let mut outputs = [vec![0; 32]];
        run(&prepared, &[&bytes(&x)], &mut outputs).unwrap();
        values::<f64>(&outputs[0])
    };
    assert_eq!(same([1.0, 7.0, 2.0, -1.0, 0.5, f64::NAN]), same([1.0, 0.0, 2.0, -1.0, 0.5, 0.0]));
}

#[test]
fn too_much_is_refused() {
    let of = |length, part| fft(&Fft { form: FftForm::Real, part, rows: 1, row: 4, length }).unwrap_err().code();
    assert_eq!(of(1 << 40, DataType::Float), Code::Unimplemented);
    assert_eq!(of(4, DataType::Half), Code::Unimplemented);
    let rows = Fft { form: FftForm::Forward, part: DataType::Float, rows: 1 << 60, row: 1 << 20, length: 1 << 20 };
    assert_eq!(fft(&rows).unwrap_err().code(), Code::InvalidArgument);
}
