//! Tests of factors against the matrices that they are factors of.

use plimsoll_base::Code;

use super::factors::factors;
use super::tests::{near, numbers, product};
use crate::testing::{bytes, run, values};
use plimsoll_base::DataType;
use plimsoll_request::factors::{FactorOp, Factors};

/// The results of a request on doubles, as doubles; the last is of 32-bit integers for Lu.
fn of(op: FactorOp, input: &[f64], rows: usize, columns: usize) -> Vec<Vec<f64>> {
    let request = Factors { op, data_type: DataType::Double, matrices: 1, rows: rows as u64, columns: columns as u64 };
    let size = |(data_type, shape): (DataType, Vec<u64>)| data_type.size().unwrap() * shape.iter().product::<u64>() as usize;
    let mut outputs: Vec<Vec<u8>> = request.results().into_iter().map(size).map(|size| vec![0; size]).collect();
    run(&factors(&request).unwrap(), &[&bytes(input)], &mut outputs).unwrap();
    let is_lu = matches!(op, FactorOp::Lu { .. });
    let read = |(at, output): (usize, &Vec<u8>)| match is_lu && at == 1 {
        true => values::<i32>(output).into_iter().map(f64::from).collect(),
        false => values::<f64>(output),
    };
    outputs.iter().enumerate().map(read).collect()
}

fn turned(matrix: &[f64], rows: usize, columns: usize) -> Vec<f64> {
    (0..rows * columns).map(|at| matrix[at % rows * columns + at / rows]).collect()
}

/// `a` of `rows` x `inner`, `b` of `inner` x `columns`.
fn times(a: &[f64], b: &[f64], rows: usize, inner: usize, columns: usize) -> Vec<f64> {
    let at = |row: usize, column: usize| (0..inner).map(|p| a[row * inner + p] * b[p * columns + column]).sum();
    (0..rows * columns).map(|index| at(index / columns, index % columns)).collect()
}

/// Columns of length 1 that are orthogonal.
fn is_orthogonal(matrix: &[f64], rows: usize, columns: usize) {
    let square = times(&turned(matrix, rows, columns), matrix, columns, rows, columns);
    near(&square, &(0..columns * columns).map(|at| f64::from(u8::from(at % columns == at / columns))).collect::<Vec<f64>>());
}

fn diagonal(values: &[f64], rows: usize, columns: usize) -> Vec<f64> {
    (0..rows * columns).map(|at| if at % columns == at / columns { values[at / columns] } else { 0.0 }).collect()
}

const SIZES: [(usize, usize); 8] = [(1, 1), (2, 2), (5, 3), (3, 5), (1, 4), (4, 1), (20, 20), (23, 17)];

#[test]
fn q_times_r_is_the_matrix() {
    for (rows, columns) in SIZES {
        let a = numbers(rows * columns);
        for full in [false, true] {
            let inner = if full { rows } else { rows.min(columns) };
            let [q, r] = &of(FactorOp::Qr { full }, &a, rows, columns)[..] else { panic!() };
            is_orthogonal(q, rows, inner);
            near(&times(q, r, rows, inner, columns), &a);
            assert!((0..inner * columns).all(|at| at % columns >= at / columns || r[at] == 0.0));
        }
    }
}

#[test]
fn singular_vectors_give_the_matrix_back() {
    for (rows, columns) in SIZES {
        // Also of a lower rank, and of none.
        let all = numbers(rows * columns);
        let low: Vec<f64> = (0..rows * columns).map(|at| all[at % columns] * all[at / columns]).collect();
        for a in [all.clone(), low, vec![0.0; rows * columns]] {
            for full in [false, true] {
                let least = rows.min(columns);
                let (of_u, of_v) = if full { (rows, columns) } else { (least, least) };
                let [s, u, v] = &of(FactorOp::Svd { vectors: true, full }, &a, rows, columns)[..] else { panic!() };
                is_orthogonal(u, rows, of_u);
                is_orthogonal(v, columns, of_v);
                assert!(s.is_sorted_by(|one, other| one >= other) && s.iter().all(|value| *value >= 0.0), "{s:?}");
                let scaled = times(u, &diagonal(s, of_u, of_v), rows, of_u, of_v);
                near(&times(&scaled, &turned(v, columns, of_v), rows, of_v, columns), &a);
                near(&of(FactorOp::Svd { vectors: false, full }, &a, rows, columns)[0], s);
            }
        }
    }
}

#[test]
fn eigenvectors_of_symmetric_matrices_give_them_back() {
    for size in [1usize, 2, 3, 8, 21] {
        let half = numbers(size * size);
        let a = product(&half, &turned(&half, size, size), size, size);
        // The upper triangle is not read.
        let lower: Vec<f64> = (0..size * size).map(|at| if at % size > at / size { 99.0 } else { a[at] }).collect();
        let [e, v] = &of(FactorOp::SelfAdjointEig { vectors: true }, &lower, size, size)[..] else { panic!() };
        is_orthogonal(v, size, size);
        assert!(e.is_sorted(), "{e:?}");
        let scaled = product(v, &diagonal(e, size, size), size, size);
        near(&product(&scaled, &turned(v, size, size), size, size), &a);
    }
}

/// The real and imaginary parts of every second number.
fn parts(numbers: &[f64]) -> [Vec<f64>; 2] {
    [0, 1].map(|part| numbers.iter().skip(part).step_by(2).copied().collect())
}

#[test]
fn a_matrix_scales_its_eigenvectors() {
    let turn = |size: usize| (0..size * size).map(|at| f64::from(u8::from((at / size + 1) % size == at % size))).collect::<Vec<f64>>();
    for size in [1usize, 2, 3, 7, 20] {
        // Also one that turns places in a circle, whose eigenvalues are the roots of 1, and a triangle.
        let all = numbers(size * size);
        let triangle = (0..size * size).map(|at| if at % size < at / size { 0.0 } else { all[at] }).collect();
        for a in [all, turn(size), triangle] {
            let [e, v] = &of(FactorOp::Eig { vectors: true }, &a, size, size)[..] else { panic!() };
            let ([e_re, e_im], [v_re, v_im]) = (parts(e), parts(v));
            let (left_re, left_im) = (product(&a, &v_re, size, size), product(&a, &v_im, size, size));
            for at in 0..size * size {
                let column = at % size;
                let re = v_re[at] * e_re[column] - v_im[at] * e_im[column];
                let im = v_re[at] * e_im[column] + v_im[at] * e_re[column];
                let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-8, "{a} and not {b}, {size}");
                near(left_re[at], re);
                near(left_im[at], im);
            }
            for column in 0..size {
                let length: f64 = (0..size).map(|row| v_re[row * size + column].powi(2) + v_im[row * size + column].powi(2)).sum();
                assert!((length - 1.0).abs() < 1e-12, "{length}");
            }
        }
    }
}

#[test]
fn triangles_give_the_rows_in_their_order() {
    for size in [1usize, 2, 5, 18] {
        let a = numbers(size * size);
        let [lu, p] = &of(FactorOp::Lu { index_type: DataType::Int32 }, &a, size, size)[..] else { panic!() };
        let triangle = |is_lower: bool| -> Vec<f64> {
            let of = |at: usize| match (at % size, at / size) {
                (column, row) if column == row && is_lower => 1.0,
                (column, row) if (column < row) == is_lower && (column != row || !is_lower) => lu[at],
                _ => 0.0,
            };
            (0..size * size).map(of).collect()
        };
        let ordered: Vec<f64> = p.iter().flat_map(|row| a[*row as usize * size..(*row as usize + 1) * size].to_vec()).collect();
        near(&product(&triangle(true), &triangle(false), size, size), &ordered);
    }
}

#[test]
fn what_has_no_factors_is_an_error() {
    let request = |op, data_type| Factors { op, data_type, matrices: 1, rows: 2, columns: 2 };
    let fault = |op, input: [f64; 4]| {
        let request = request(op, DataType::Double);
        let size = |(data_type, shape): (DataType, Vec<u64>)| data_type.size().unwrap() * shape.iter().product::<u64>() as usize;
        let mut outputs: Vec<Vec<u8>> = request.results().into_iter().map(size).map(|size| vec![0; size]).collect();
        run(&factors(&request).unwrap(), &[&bytes(&input)], &mut outputs).unwrap_err().message
    };
    assert_eq!(fault(FactorOp::Lu { index_type: DataType::Int32 }, [1.0, 2.0, 2.0, 4.0]), "Input is not invertible.");
    let text = "Eigen decomposition was not successful. The input might not be valid.";
    assert_eq!(fault(FactorOp::Eig { vectors: false }, [1.0, f64::INFINITY, 0.0, 1.0]), text);
    assert!(fault(FactorOp::SelfAdjointEig { vectors: true }, [1.0, 0.0, f64::NAN, 1.0]).starts_with("Self-adjoint eigen"));
    let [s, u, v] = &of(FactorOp::Svd { vectors: true, full: false }, &[1.0, f64::INFINITY, 0.0, 1.0], 2, 2)[..] else { panic!() };
    assert!(s.iter().chain(u).chain(v).all(|value| value.is_nan()));
    let refused = |request| factors(&request).unwrap_err().code();
    assert_eq!(refused(request(FactorOp::Qr { full: true }, DataType::Complex64)), Code::Unimplemented);
    let huge = Factors { rows: 1 << 33, ..request(FactorOp::Qr { full: true }, DataType::Float) };
    assert_eq!(refused(huge), Code::InvalidArgument);
}
