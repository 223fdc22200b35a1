//! Orthogonal factors of a matrix of doubles: QR by reflections, and singular values by rotations of columns. Sums run in one order.
//! Matrices of vectors have a vector in each row.

use super::symmetric::rotation;

/// QR by Householder's reflections, with the signs of Eigen's `HouseholderQR`: a diagonal element of R is negative where the element that
/// it comes from is not. `matrix` of `rows` x `columns`, row by row, becomes R with the reflections below its diagonal, which `scales` has
/// the factors of.
pub(super) fn reflect(matrix: &mut [f64], rows: usize, columns: usize, scales: &mut [f64]) {
    for (step, scale) in scales.iter_mut().enumerate().take(rows.min(columns)) {
        let head = matrix[step * columns + step];
        let tail: f64 = (step + 1..rows).map(|row| matrix[row * columns + step] * matrix[row * columns + step]).sum();
        if tail <= f64::MIN_POSITIVE {
            *scale = 0.0;
            (step + 1..rows).for_each(|row| matrix[row * columns + step] = 0.0);
            continue;
        }
        let length = (head * head + tail).sqrt();
        let diagonal = if head >= 0.0 { -length } else { length };
        (step + 1..rows).for_each(|row| matrix[row * columns + step] /= head - diagonal);
        *scale = (diagonal - head) / diagonal;
        matrix[step * columns + step] = diagonal;
        for column in step + 1..columns {
            let dot: f64 = (step + 1..rows).map(|row| matrix[row * columns + step] * matrix[row * columns + column]).sum();
            let along = *scale * (matrix[step * columns + column] + dot);
            matrix[step * columns + column] -= along;
            (step + 1..rows).for_each(|row| matrix[row * columns + column] -= along * matrix[row * columns + step]);
        }
    }
}

/// The first `width` columns of Q, row by row, from what [`reflect`] left.
pub(super) fn orthogonal(reflected: &[f64], rows: usize, columns: usize, scales: &[f64], q: &mut [f64], width: usize) {
    q.fill(0.0);
    (0..width.min(rows)).for_each(|at| q[at * width + at] = 1.0);
    for step in (0..rows.min(columns)).rev() {
        for column in 0..width {
            let dot: f64 = (step + 1..rows).map(|row| reflected[row * columns + step] * q[row * width + column]).sum();
            let along = scales[step] * (q[step * width + column] + dot);
            q[step * width + column] -= along;
            (step + 1..rows).for_each(|row| q[row * width + column] -= along * reflected[row * columns + step]);
        }
    }
}

/// Rotations are over after so many rounds, of which a matrix takes about eight.
const ROUNDS: usize = 60;

/// Singular values of a matrix whose `count` columns are the rows of `left`, by Jacobi's method on one side: pairs of columns are rotated
/// until all are orthogonal. `left` becomes the left vectors, `right` (`count` x `count`) the right ones, and `values` descend. Left vectors
/// of values that are nothing beside the largest are orthogonal to the others.
pub(super) fn singular(left: &mut [f64], length: usize, right: &mut [f64], count: usize, values: &mut [f64]) {
    right.fill(0.0);
    (0..count).for_each(|at| right[at * count + at] = 1.0);
    // Squares of large and of small numbers are numbers, too.
    let largest = left[..count * length].iter().fold(0.0f64, |largest, element| largest.max(element.abs()));
    let scale = if largest > 0.0 { largest } else { 1.0 };
    left[..count * length].iter_mut().for_each(|element| *element /= scale);
    for _ in 0..ROUNDS {
        let mut is_rotated = false;
        for p in 0..count {
            for q in p + 1..count {
                let (one, other) = two(left, length, p, q);
                let (a, b, c) = (dot(one, one), dot(other, other), dot(one, other));
                if c.abs() <= f64::EPSILON * (a * b).sqrt() || c == 0.0 {
                    continue;
                }
                is_rotated = true;
                let (cos, sin) = rotation(a, b, c);
                turn(one, other, cos, sin);
                let (one, other) = two(right, count, p, q);
                turn(one, other, cos, sin);
            }
        }
        if !is_rotated {
            break;
        }
    }
    for (at, value) in values.iter_mut().enumerate().take(count) {
        *value = dot(row(left, length, at), row(left, length, at)).sqrt();
    }
    // The largest first.
    for at in 0..count {
        let largest = (at..count).fold(at, |best, other| if values[other] > values[best] { other } else { best });
        if largest != at {
            values.swap(at, largest);
            let (one, other) = two(left, length, at, largest);
            one.swap_with_slice(other);
            let (one, other) = two(right, count, at, largest);
            one.swap_with_slice(other);
        }
    }
    let least = values.first().map_or(0.0, |value| value * f64::EPSILON * length as f64);
    for at in 0..count {
        if values[at] > least {
            left[at * length..(at + 1) * length].iter_mut().for_each(|element| *element /= values[at]);
        } else {
            complete(left, length, at);
        }
    }
    values.iter_mut().for_each(|value| *value *= scale);
}

/// Makes row `at` a vector of length 1 that is orthogonal to those before it. There is one where `at < length`.
pub(super) fn complete(vectors: &mut [f64], length: usize, at: usize) {
    let (before, own) = vectors.split_at_mut(at * length);
    let own = &mut own[..length];
    // The axis that is farthest from the space of the vectors.
    let share = |axis: usize| before.chunks_exact(length).map(|vector| vector[axis] * vector[axis]).sum::<f64>();
    let axis = (0..length).fold((0, f64::INFINITY), |best, axis| if share(axis) < best.1 { (axis, share(axis)) } else { best }).0;
    own.fill(0.0);
    own[axis] = 1.0;
    // Twice is enough for doubles.
    for _ in 0..2 {
        for vector in before.chunks_exact(length) {
            let along = dot(vector, own);
            own.iter_mut().zip(vector).for_each(|(own, other)| *own -= along * other);
        }
        let size = dot(own, own).sqrt();
        own.iter_mut().for_each(|element| *element /= size);
    }
}

fn row(matrix: &[f64], length: usize, at: usize) -> &[f64] {
    &matrix[at * length..(at + 1) * length]
}

/// Rows `p` and `q`; `p` comes first.
fn two(matrix: &mut [f64], length: usize, p: usize, q: usize) -> (&mut [f64], &mut [f64]) {
    let (first, second) = matrix.split_at_mut(q * length);
    (&mut first[p * length..(p + 1) * length], &mut second[..length])
}

fn turn(one: &mut [f64], other: &mut [f64], cos: f64, sin: f64) {
    for (one, other) in one.iter_mut().zip(other) {
        (*one, *other) = (cos * *one - sin * *other, sin * *one + cos * *other);
    }
}

fn dot(one: &[f64], other: &[f64]) -> f64 {
    one.iter().zip(other).map(|(one, other)| one * other).sum()
}
