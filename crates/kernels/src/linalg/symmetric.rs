//! Eigenvalues of a symmetric matrix of doubles, by Jacobi's method: pairs of rows and columns are rotated until the matrix is diagonal.

/// Cosine and sine of the rotation that makes the product `c` of two vectors 0, whose squares are `a` and `b`.
pub(super) fn rotation(a: f64, b: f64, c: f64) -> (f64, f64) {
    let ratio = (b - a) / (2.0 * c);
    let tangent = ratio.signum() / (ratio.abs() + ratio.hypot(1.0));
    let cos = 1.0 / tangent.hypot(1.0);
    (cos, cos * tangent)
}

/// Rotations are over after so many rounds, of which a matrix takes about eight.
const ROUNDS: usize = 60;

/// The eigenvalues of a symmetric matrix, ascending. `matrix` is used up; the rows of `vectors` become the vectors.
pub(super) fn eigenvalues(matrix: &mut [f64], size: usize, vectors: &mut [f64], values: &mut [f64]) {
    vectors.fill(0.0);
    (0..size).for_each(|at| vectors[at * size + at] = 1.0);
    for _ in 0..ROUNDS {
        let mut is_rotated = false;
        for p in 0..size {
            for q in p + 1..size {
                let (a, b, c) = (matrix[p * size + p], matrix[q * size + q], matrix[p * size + q]);
                // What adds nothing to either is nothing.
                if c == 0.0 || c.abs() <= f64::EPSILON * 0.5 * a.abs().sqrt() * b.abs().sqrt() || c.abs() < f64::MIN_POSITIVE {
                    matrix[p * size + q] = 0.0;
                    matrix[q * size + p] = 0.0;
                    continue;
                }
                is_rotated = true;
                let (cos, sin) = rotation(a, b, c);
                for at in 0..size {
                    let (x, y) = (matrix[at * size + p], matrix[at * size + q]);
                    matrix[at * size + p] = cos * x - sin * y;
                    matrix[at * size + q] = sin * x + cos * y;
                }
                for at in 0..size {
                    let (x, y) = (matrix[p * size + at], matrix[q * size + at]);
                    matrix[p * size + at] = cos * x - sin * y;
                    matrix[q * size + at] = sin * x + cos * y;
                    let (x, y) = (vectors[p * size + at], vectors[q * size + at]);
                    vectors[p * size + at] = cos * x - sin * y;
                    vectors[q * size + at] = sin * x + cos * y;
                }
                matrix[p * size + q] = 0.0;
                matrix[q * size + p] = 0.0;
            }
        }
        if !is_rotated {
            break;
        }
    }
    (0..size).for_each(|at| values[at] = matrix[at * size + at]);
    for at in 0..size {
        let least = (at..size).fold(at, |best, other| if values[other] < values[best] { other } else { best });
        values.swap(at, least);
        for element in 0..size {
            vectors.swap(at * size + element, least * size + element);
        }
    }
}
