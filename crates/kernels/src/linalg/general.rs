//! Eigenvalues of any square matrix, in complex doubles: Hessenberg's form by reflections, then QR steps with Wilkinson's shifts, until the
//! matrix is triangular (Golub and Van Loan, Matrix Computations, chapter 7).

use rustfft::num_complex::Complex64;

const ZERO: Complex64 = Complex64::new(0.0, 0.0);
const ONE: Complex64 = Complex64::new(1.0, 0.0);

/// Steps for each eigenvalue, of which one takes about three; an odd shift every ten helps where they go round.
const STEPS: usize = 60;

/// The eigenvalues of a matrix, row by row, which is used up; the columns of `vectors` become its vectors, of length 1, whose largest
/// element is real and not negative. False where the steps do not come to an end, as with numbers that are none.
pub(super) fn eigenvalues(
    matrix: &mut [Complex64],
    size: usize,
    vectors: &mut [Complex64],
    values: &mut [Complex64],
    scratch: &mut [Complex64],
) -> bool {
    vectors.fill(ZERO);
    (0..size).for_each(|at| vectors[at * size + at] = ONE);
    hessenberg(matrix, size, vectors, scratch);
    if !triangular(matrix, size, vectors) {
        return false;
    }
    (0..size).for_each(|at| values[at] = matrix[at * size + at]);
    of_triangle(matrix, size, vectors, scratch);
    true
}

/// Zeros below the first subdiagonal, by reflections of rows and columns.
fn hessenberg(matrix: &mut [Complex64], size: usize, vectors: &mut [Complex64], reflection: &mut [Complex64]) {
    for step in 0..size.saturating_sub(2) {
        let rest = step + 1..size;
        let length = rest.clone().map(|row| matrix[row * size + step].norm_sqr()).sum::<f64>().sqrt();
        let below = rest.clone().skip(1).map(|row| matrix[row * size + step].norm_sqr()).sum::<f64>();
        if below == 0.0 {
            continue;
        }
        let head = matrix[(step + 1) * size + step];
        let phase = if head == ZERO { ONE } else { head / head.norm() };
        rest.clone().for_each(|row| reflection[row] = matrix[row * size + step]);
        reflection[step + 1] += phase * length;
        let square = rest.clone().map(|row| reflection[row].norm_sqr()).sum::<f64>();
        for column in 0..size {
            let dot: Complex64 = rest.clone().map(|row| reflection[row].conj() * matrix[row * size + column]).sum();
            let along = dot * (2.0 / square);
            rest.clone().for_each(|row| matrix[row * size + column] -= reflection[row] * along);
        }
        for part in [&mut *matrix, &mut *vectors] {
            for row in 0..size {
                let dot: Complex64 = rest.clone().map(|column| part[row * size + column] * reflection[column]).sum();
                let along = dot * (2.0 / square);
                rest.clone().for_each(|column| part[row * size + column] -= along * reflection[column].conj());
            }
        }
        (step + 2..size).for_each(|row| matrix[row * size + step] = ZERO);
    }
}

/// QR steps on what is left above each eigenvalue that was found, the last one first.
fn triangular(matrix: &mut [Complex64], size: usize, vectors: &mut [Complex64]) -> bool {
    let mut end = size;
    let mut steps = 0;
    while end > 1 {
        let is_nothing = |at: usize, matrix: &[Complex64]| {
            let beside = matrix[(at - 1) * size + at - 1].l1_norm() + matrix[at * size + at].l1_norm();
            let below = matrix[at * size + at - 1].l1_norm();
            below <= f64::EPSILON * beside || below < f64::MIN_POSITIVE
        };
        let begin = (1..end).rev().find(|at| is_nothing(*at, matrix)).unwrap_or(0);
        if begin > 0 {
            matrix[begin * size + begin - 1] = ZERO;
        }
        if begin + 1 == end {
            end -= 1;
            steps = 0;
            continue;
        }
        steps += 1;
        if steps > STEPS {
            return false;
        }
        let shift = shift(matrix, size, end, steps);
        if !shift.is_finite() {
            return false;
        }
        qr_step(matrix, size, begin..end, vectors, shift);
    }
    matrix.iter().all(|element| element.is_finite())
}

/// The eigenvalue of the last two rows that is nearer to the last element.
fn shift(matrix: &[Complex64], size: usize, end: usize, steps: usize) -> Complex64 {
    let at = |row: usize, column: usize| matrix[(end - 2 + row) * size + end - 2 + column];
    if steps.is_multiple_of(10) {
        return at(1, 1) + Complex64::new(at(1, 0).l1_norm(), 0.0);
    }
    let half = (at(0, 0) - at(1, 1)) * 0.5;
    let product = at(0, 1) * at(1, 0);
    let root = (half * half + product).sqrt();
    let far = if (half + root).norm_sqr() >= (half - root).norm_sqr() { half + root } else { half - root };
    if far == ZERO { at(1, 1) } else { at(1, 1) - product / far }
}

/// `R Q + shift` of `Q R = matrix - shift` in a block on the diagonal, by rotations of neighbouring rows, each followed by its columns.
fn qr_step(matrix: &mut [Complex64], size: usize, block: std::ops::Range<usize>, vectors: &mut [Complex64], shift: Complex64) {
    let mut previous: Option<(usize, f64, Complex64)> = None;
    block.clone().for_each(|at| matrix[at * size + at] -= shift);
    for at in block.start..block.end - 1 {
        let (x, y) = (matrix[at * size + at], matrix[(at + 1) * size + at]);
        let length = x.norm_sqr() + y.norm_sqr();
        let (cos, sin) = if length == 0.0 {
            (1.0, ZERO)
        } else if x == ZERO {
            (0.0, y.conj() / y.norm())
        } else {
            let length = length.sqrt();
            (x.norm() / length, (x / x.norm()) * y.conj() / length)
        };
        for column in at..size {
            let (x, y) = (matrix[at * size + column], matrix[(at + 1) * size + column]);
            matrix[at * size + column] = x * cos + y * sin;
            matrix[(at + 1) * size + column] = y * cos - x * sin.conj();
        }
        // The columns of a rotation are turned when the next rotation no longer reads them.
        if let Some((at, cos, sin)) = previous.replace((at, cos, sin)) {
            turn_columns(matrix, size, at, cos, sin, at + 2);
        }
        turn_columns(vectors, size, at, cos, sin, size);
    }
    if let Some((at, cos, sin)) = previous {
        turn_columns(matrix, size, at, cos, sin, at + 2);
    }
    block.for_each(|at| matrix[at * size + at] += shift);
}

fn turn_columns(matrix: &mut [Complex64], size: usize, at: usize, cos: f64, sin: Complex64, rows: usize) {
    for row in 0..rows.min(size) {
        let (x, y) = (matrix[row * size + at], matrix[row * size + at + 1]);
        matrix[row * size + at] = x * cos + y * sin.conj();
        matrix[row * size + at + 1] = y * cos - x * sin;
    }
}

/// The vectors of a triangle, seen from where the matrix was.
fn of_triangle(triangle: &[Complex64], size: usize, vectors: &mut [Complex64], solution: &mut [Complex64]) {
    let largest = triangle.iter().fold(0.0f64, |largest, element| largest.max(element.l1_norm()));
    let least = (f64::EPSILON * largest).max(f64::MIN_POSITIVE);
    for own in (0..size).rev() {
        let value = triangle[own * size + own];
        solution[own] = ONE;
        for row in (0..own).rev() {
            let sum: Complex64 = (row + 1..=own).map(|column| triangle[row * size + column] * solution[column]).sum();
            let difference = triangle[row * size + row] - value;
            let difference = if difference.l1_norm() < least { Complex64::new(least, 0.0) } else { difference };
            solution[row] = -sum / difference;
        }
        // Column `own` is not read by those before it.
        for row in 0..size {
            vectors[row * size + own] = (0..=own).map(|column| vectors[row * size + column] * solution[column]).sum();
        }
        let length = (0..size).map(|row| vectors[row * size + own].norm_sqr()).sum::<f64>().sqrt();
        let far = |row: usize| vectors[row * size + own].norm_sqr();
        let head = (0..size).fold(0, |best, row| if far(row) > far(best) * (1.0 + 1e-9) { row } else { best });
        let head = vectors[head * size + own];
        let scale = if length > 0.0 { head.conj() / (head.norm() * length) } else { ONE };
        (0..size).for_each(|row| vectors[row * size + own] *= scale);
    }
}
