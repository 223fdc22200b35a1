//! Factors of a square matrix of doubles, in place. Sums run in one order, for any number of threads.

/// A square matrix, row by row.
pub(super) struct Square<'a> {
    pub size: usize,
    pub elements: &'a mut [f64],
}

impl Square<'_> {
    fn at(&self, row: usize, column: usize) -> f64 {
        self.elements[row * self.size + column]
    }

    /// Row `above` to read and row `below` to write; `above` comes first.
    fn rows(&mut self, above: usize, below: usize) -> (&[f64], &mut [f64]) {
        let (first, second) = self.elements.split_at_mut(below * self.size);
        (&first[above * self.size..(above + 1) * self.size], &mut second[..self.size])
    }

    /// The lower triangular factor, with zeros above it; NaN in all of it where the matrix is not positive definite.
    pub fn cholesky(&mut self) {
        let size = self.size;
        let mut is_definite = true;
        for row in 0..size {
            for column in 0..=row {
                let dot = |a: &[f64], b: &[f64]| a[..column].iter().zip(&b[..column]).map(|(a, b)| a * b).sum::<f64>();
                let (own, sum) = if column == row {
                    let own = &self.elements[row * size..(row + 1) * size];
                    (own[column], dot(own, own))
                } else {
                    let (above, below) = self.rows(column, row);
                    (below[column], dot(above, below))
                };
                let rest = own - sum;
                is_definite &= column != row || rest > 0.0;
                let value = if column == row { rest.sqrt() } else { rest / self.at(column, column) };
                self.elements[row * size + column] = value;
            }
            self.elements[row * size + row + 1..(row + 1) * size].fill(0.0);
        }
        if !is_definite {
            (0..size).for_each(|row| self.elements[row * size..row * size + row + 1].fill(f64::NAN));
        }
    }

    /// Rows exchanged so that pivots are the largest of their column: the factors L, with ones on its diagonal, and U. `order` is the
    /// row that each came from. The sign of the exchange, and the least absolute value of a pivot, NaN if one is.
    pub fn lu(&mut self, order: &mut [u32]) -> (f64, f64) {
        let size = self.size;
        order.iter_mut().zip(0..).for_each(|(place, row)| *place = row);
        let (mut sign, mut least) = (1.0, f64::INFINITY);
        for step in 0..size {
            let mut pivot = step;
            for row in step + 1..size {
                if self.at(row, step).abs() > self.at(pivot, step).abs() {
                    pivot = row;
                }
            }
            if pivot != step {
                let (above, below) = self.elements.split_at_mut(pivot * size);
                above[step * size..(step + 1) * size].swap_with_slice(&mut below[..size]);
                order.swap(step, pivot);
                sign = -sign;
            }
            let largest = self.at(step, step);
            if largest.abs() < least || largest.is_nan() {
                least = largest.abs();
            }
            if largest == 0.0 {
                continue;
            }
            for row in step + 1..size {
                let (above, below) = self.rows(step, row);
                let factor = below[step] / largest;
                below[step] = factor;
                below[step + 1..].iter_mut().zip(&above[step + 1..]).for_each(|(to, from)| *to -= factor * from);
            }
        }
        (sign, least)
    }

    /// Solves the system of a triangle, of the transpose where `adjoint`, whose diagonal counts as ones where `unit`. `lower` says which
    /// triangle of the matrix as it lies.
    pub fn solve(&self, right: &mut [f64], columns: usize, lower: bool, adjoint: bool, unit: bool) {
        let size = self.size;
        let forward = lower != adjoint;
        for step in 0..size {
            let row = if forward { step } else { size - 1 - step };
            let known = if forward { 0..row } else { row + 1..size };
            for other in known {
                let factor = if adjoint { self.at(other, row) } else { self.at(row, other) };
                let (low, high) = (row.min(other), row.max(other));
                let (first, second) = right.split_at_mut(high * columns);
                let (low, high) = (&mut first[low * columns..(low + 1) * columns], &mut second[..columns]);
                let (to, from) = if row < other { (low, high) } else { (high, low) };
                to.iter_mut().zip(from.iter()).for_each(|(to, from)| *to -= factor * from);
            }
            if !unit {
                let pivot = self.at(row, row);
                right[row * columns..(row + 1) * columns].iter_mut().for_each(|value| *value /= pivot);
            }
        }
    }
}
