//! Tests of the factors against what they are factors of.

use plimsoll_base::{Code, DataType};

use super::*;
use crate::testing::{bytes, run_one};

pub(super) fn numbers(count: usize) -> Vec<f64> {
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / (1 << 23) as f64 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

fn request(op: MatrixOp, matrices: u64, size: u64, columns: u64) -> Prepared {
    linalg(&Linalg { op, data_type: DataType::Double, matrices, size, columns }).unwrap()
}

pub(super) fn product(a: &[f64], b: &[f64], size: usize, columns: usize) -> Vec<f64> {
    let at = |row: usize, column: usize| (0..size).map(|p| a[row * size + p] * b[p * columns + column]).sum();
    (0..size * columns).map(|index| at(index / columns, index % columns)).collect()
}

pub(super) fn near(a: &[f64], b: &[f64]) {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).for_each(|(a, b)| assert!((a - b).abs() < 1e-9 * (1.0 + b.abs()), "{a} and not {b}"));
}

#[test]
fn solutions_solve() {
    for size in [1usize, 2, 7, 33] {
        let (a, b) = (numbers(2 * size * size), numbers(2 * size * 3));
        let x = run_one(&request(MatrixOp::Solve { adjoint: false }, 2, size as u64, 3), &[&a, &b], 2 * size * 3).unwrap();
        let inverse = run_one(&request(MatrixOp::Inverse { adjoint: false }, 2, size as u64, 0), &[&a], 2 * size * size).unwrap();
        for matrix in 0..2 {
            let (of_a, of_b) = (matrix * size * size, matrix * size * 3);
            let (a, own) = (&a[of_a..of_a + size * size], &b[of_b..of_b + size * 3]);
            near(&product(a, &x[of_b..of_b + size * 3], size, 3), own);
            near(&product(&inverse[of_a..of_a + size * size], own, size, 3), &x[of_b..of_b + size * 3]);
        }
    }
}

#[test]
fn the_square_of_a_factor_is_the_matrix() {
    let size = 19;
    let half = numbers(size * size);
    let turned: Vec<f64> = (0..size * size).map(|at| half[at % size * size + at / size]).collect();
    let mut matrix = product(&half, &turned, size, size);
    (0..size).for_each(|at| matrix[at * size + at] += 1.0);
    let factor = run_one(&request(MatrixOp::Cholesky, 1, size as u64, 0), &[&matrix], size * size).unwrap();
    let turned: Vec<f64> = (0..size * size).map(|at| factor[at % size * size + at / size]).collect();
    near(&product(&factor, &turned, size, size), &matrix);
    assert!((0..size).all(|row| factor[row * size + row + 1..(row + 1) * size].iter().all(|value| *value == 0.0)));
}

#[test]
fn what_cannot_be_is_an_error() {
    let singular = bytes(&[1.0f64, 2.0, 2.0, 4.0]);
    let prepared = request(MatrixOp::Inverse { adjoint: false }, 1, 2, 0);
    let mut output = [vec![0; 32]];
    assert!(crate::testing::run(&prepared, &[&singular], &mut output).is_err());
    let spec = Linalg { op: MatrixOp::Cholesky, data_type: DataType::Int32, matrices: 1, size: 2, columns: 0 };
    assert_eq!(linalg(&spec).unwrap_err().code(), Code::Unimplemented);
    let spec = Linalg { data_type: DataType::Float, size: 1 << 33, ..spec };
    assert_eq!(linalg(&spec).unwrap_err().code(), Code::InvalidArgument);
}
