//! Vectors that are defined but for a factor of size 1: eigenvectors and singular vectors.

use plimsoll_base::DataType;
use plimsoll_graph::{HostTensor, Shape};

use super::floats;

/// The results with vectors turned so that their first large element is positive (both vectors of a singular value by the left one),
/// without those of no singular value, and with the eigenvalues of matrices that are not symmetric in order. Results of other operations.
pub fn canonical(op: &str, results: &[HostTensor]) -> Vec<HostTensor> {
    let mut results = results.to_vec();
    if !matches!(op, "Eig" | "SelfAdjointEigV2" | "Svd") || results.iter().any(|result| result.elements() == 0) {
        if op == "Eig" && results[0].elements() > 0 {
            let mut values = Vectors::of(&results[0], None);
            values.sort(&mut []);
            results[0] = values.tensor();
        }
        return results;
    }
    let count = *results[0].shape().dims().last().unwrap() as usize;
    let mut values = Vectors::of(&results[0], None);
    let mut vectors: Vec<Vectors> = results[1..].iter().map(|result| Vectors::of(result, Some(count))).collect();
    if op == "Eig" {
        values.sort(&mut vectors);
    }
    for column in 0..vectors[0].numbers.len() {
        let factor = vectors[0].factor(column);
        vectors.iter_mut().for_each(|vectors| vectors.turn(column, factor));
    }
    std::iter::once(values.tensor()).chain(vectors.iter().map(Vectors::tensor)).collect()
}

/// Complex numbers in vectors: one of each matrix, or one for each column.
struct Vectors {
    data_type: DataType,
    /// Vectors of one matrix.
    columns: usize,
    is_matrix: bool,
    numbers: Vec<Vec<(f64, f64)>>,
}

impl Vectors {
    /// The values, or the first `columns` columns of each matrix.
    fn of(tensor: &HostTensor, columns: Option<usize>) -> Vectors {
        let data_type = tensor.data_type();
        let numbers: Vec<(f64, f64)> = match data_type.is_complex() {
            true => floats(tensor).chunks(2).map(|pair| (pair[0], pair[1])).collect(),
            false => floats(tensor).into_iter().map(|number| (number, 0.0)).collect(),
        };
        let dims = tensor.shape().dims();
        let width = dims[dims.len() - 1] as usize;
        let Some(kept) = columns else {
            return Vectors { data_type, columns: 1, is_matrix: false, numbers: numbers.chunks(width).map(<[_]>::to_vec).collect() };
        };
        let rows = dims[dims.len() - 2] as usize;
        let column = |matrix: &[(f64, f64)], column: usize| (0..rows).map(|row| matrix[row * width + column]).collect::<Vec<_>>();
        let matrices = numbers.chunks(rows * width);
        let numbers = matrices.flat_map(|matrix| (0..kept).map(|at| column(matrix, at)).collect::<Vec<_>>()).collect();
        Vectors { data_type, columns: kept, is_matrix: true, numbers }
    }

    /// Sorts the values of each matrix by their real parts, about, and then by their imaginary parts; with them, the vectors.
    fn sort(&mut self, vectors: &mut [Vectors]) {
        for (matrix, values) in self.numbers.iter_mut().enumerate() {
            let mut order: Vec<usize> = (0..values.len()).collect();
            let key = |at: usize| ((values[at].0 * 1e3).round(), values[at].1);
            order.sort_by(|one, other| key(*one).partial_cmp(&key(*other)).unwrap());
            *values = order.iter().map(|at| values[*at]).collect();
            for vectors in &mut *vectors {
                let first = matrix * vectors.columns;
                let own: Vec<Vec<(f64, f64)>> = order.iter().map(|at| vectors.numbers[first + at].clone()).collect();
                vectors.numbers[first..first + own.len()].clone_from_slice(&own);
            }
        }
    }

    /// What makes the first large element of a vector positive.
    fn factor(&self, column: usize) -> (f64, f64) {
        let size = |(re, im): &(f64, f64)| re.hypot(*im);
        let largest = self.numbers[column].iter().map(size).fold(0.0, f64::max);
        let first = self.numbers[column].iter().find(|number| size(number) > 0.9 * largest);
        first.map_or((1.0, 0.0), |number| (number.0 / size(number), -number.1 / size(number)))
    }

    fn turn(&mut self, column: usize, (cos, sin): (f64, f64)) {
        self.numbers[column].iter_mut().for_each(|(re, im)| (*re, *im) = (*re * cos - *im * sin, *re * sin + *im * cos));
    }

    fn tensor(&self) -> HostTensor {
        let numbers = self.numbers.iter().flatten();
        let parts: Vec<f64> = match self.data_type.is_complex() {
            true => numbers.flat_map(|(re, im)| [*re, *im]).collect(),
            false => numbers.map(|(re, _)| *re).collect(),
        };
        let bytes: Vec<u8> = match self.data_type {
            DataType::Float | DataType::Complex64 => parts.iter().flat_map(|part| (*part as f32).to_le_bytes()).collect(),
            _ => parts.iter().flat_map(|part| part.to_le_bytes()).collect(),
        };
        let vectors = self.numbers.len() as u64;
        let shape = Shape::from([u64::from(self.is_matrix), vectors, self.numbers.iter().map(Vec::len).sum::<usize>() as u64 / vectors]);
        let shape = if self.is_matrix { shape } else { Shape::from([shape[1], shape[2]]) };
        HostTensor::from_bytes(self.data_type, shape, &bytes).unwrap()
    }
}
